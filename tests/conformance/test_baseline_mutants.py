"""Mistakes planted in unicast and multicast: the suite must find each."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.routing.baselines.disjunctive import DisjunctiveCore
from catchment.routing.baselines.informed import Copies, InformedCore
from catchment.routing.baselines.messages import ReceiverHeader
from catchment.routing.baselines.topics import TopicCore, Topics
from catchment.routing.baselines.unicast import UnicastCore
from catchment.routing.messages import Neighbor, Routed, Send
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.link_states import Links
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.records import FloodedRecords
from tests.conformance.planted import Plant, assert_found

SEEDS = range(12)


# --- records, in all three ----------------------------------------------------------------------


def records_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    flooded = FloodedRecords.flooded
    patch.setattr(
        FloodedRecords, "flooded", lambda self, record, source=None: flooded(self, record) if source is None else []
    )


def a_new_neighbor_is_told_of_our_own_clients_only(patch: pytest.MonkeyPatch) -> None:
    wholes = FloodedRecords.wholes
    patch.setattr(
        FloodedRecords, "wholes", lambda self, now: [each for each in wholes(self, now) if each.origin == self.name]
    )


def what_was_said_before_a_crash_stands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("catchment.routing.parts.records.following", lambda seq, now: seq + 1)
    patch.setattr(FloodedRecords, "_outbid", lambda self, record, now: None)


def a_whole_record_only_adds(patch: pytest.MonkeyPatch) -> None:
    difference = FloodedRecords._difference

    def adding(self: Any, record: Any, source: Neighbor, known: int | None) -> Any:
        gone, new = difference(self, record, source, known)
        return ({}, {key: new[key] for key in new if key not in gone}) if record.after is None else (gone, new)

    patch.setattr(FloodedRecords, "_difference", adding)


def a_client_that_leaves_is_remembered(patch: pytest.MonkeyPatch) -> None:
    client_down = ClientSide.client_down

    def forgetful(self: ClientSide, client: Any) -> list[str]:
        client_down(self, client)
        return []

    patch.setattr(ClientSide, "client_down", forgetful)


def unsubscribing_is_not_told(patch: pytest.MonkeyPatch) -> None:
    stated = InformedCore._stated
    patch.setattr(InformedCore, "_stated", lambda self, gone, new, now: stated(self, (), new, now) if new else [])


def links_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    heard = InformedCore._heard

    def silent(self: Any, message: Any, source: Neighbor, now: int) -> Any:
        actions = heard(self, message, source, now)
        return [] if isinstance(message, Links) else actions

    patch.setattr(InformedCore, "_heard", silent)


# --- unicast ------------------------------------------------------------------------------------


def one_copy_for_each_broker(patch: pytest.MonkeyPatch) -> None:
    """Of the clients of a broker, the first gets it."""
    add = Copies.add

    def once(self: Any, neighbor: Neighbor, copy: Routed) -> None:
        brokers = self.__dict__.setdefault("brokers", set())
        assert isinstance(copy.header, ReceiverHeader)
        if (copy.header.broker, id(copy.notification)) not in brokers:
            brokers.add((copy.header.broker, id(copy.notification)))
            add(self, neighbor, copy)

    patch.setattr(Copies, "add", once)


def a_relay_keeps_its_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "forwards", _without_relays(Copies.forwards))


def _without_relays(forwards: Any) -> Any:
    return lambda self, is_relayed=False: [] if is_relayed else forwards(self)


def a_copy_is_for_everybody_here(patch: pytest.MonkeyPatch) -> None:
    """Without numbers to tell by, each gets as many as there are clients."""
    due = ClientSide.due
    patch.setattr(ClientSide, "due", lambda self, batch, now, only=None: due(self, batch, now))
    patch.setattr(Newest, "is_new", lambda self, notification: True)


def local_clients_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    due = ClientSide.due
    patch.setattr(
        ClientSide, "due", lambda self, batch, now, only=None: [] if only is None else due(self, batch, now, only)
    )


def cancelled_filters_still_match(patch: pytest.MonkeyPatch) -> None:
    on_subscriptions = UnicastCore._on_subscriptions

    def keeping(self: Any, origin: str, gone: Mapping[Any, Any], new: Mapping[Any, Any]) -> None:
        on_subscriptions(self, origin, {}, new)

    patch.setattr(UnicastCore, "_on_subscriptions", keeping)


def hops_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    add = Copies.add

    def uncounted(self: Any, neighbor: Neighbor, copy: Routed) -> None:
        add(self, neighbor, Routed(copy.notification, replace(copy.header, hops=0)))

    patch.setattr(Copies, "add", uncounted)


# --- multicast ----------------------------------------------------------------------------------


def only_the_first_topic_is_sent(patch: pytest.MonkeyPatch) -> None:
    of = Topics.of
    patch.setattr(Topics, "of", lambda self, batch: [topics[:1] for topics in of(self, batch)])


def every_copy_is_delivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Newest, "is_new", lambda self, notification: True)


def ways_are_not_computed_anew(patch: pytest.MonkeyPatch) -> None:
    on_subscriptions = TopicCore._on_subscriptions

    def keeping(self: Any, origin: str, gone: Mapping[Any, Any], new: Mapping[Any, Any]) -> None:
        ways = dict(self._ways)
        on_subscriptions(self, origin, gone, new)
        self._ways.update(ways)

    patch.setattr(TopicCore, "_on_subscriptions", keeping)


def ways_are_those_of_this_broker(patch: pytest.MonkeyPatch) -> None:
    """Not those in the tree of the origin: copies go back."""
    way = TopicCore.way
    patch.setattr(TopicCore, "way", lambda self, origin, topics: way(self, self.name, topics))
    patch.setattr(TopicCore, "_is_on_its_way", lambda self, header, origin, source: header.hops < 20)


def a_topic_of_two_clients_goes_with_the_first(patch: pytest.MonkeyPatch) -> None:
    remove = Topics._remove

    def forgetting(self: Any, origin: str, filter: Any) -> None:
        brokers = self._brokers.get(str(filter), {})
        if origin in brokers:
            brokers[origin] = 1
            remove(self, origin, filter)

    patch.setattr(Topics, "_remove", forgetting)


def no_topic_is_wanted_here(patch: pytest.MonkeyPatch) -> None:
    """So a broker delivers nothing that comes from elsewhere."""
    patch.setattr(TopicCore, "_is_wanted_here", lambda self, topics: False)


def channels_are_not_opened(patch: pytest.MonkeyPatch) -> None:
    opened = DisjunctiveCore._open

    def silent(self: Any, combination: tuple[int, ...], now: int) -> Any:
        return [action for action in opened(self, combination, now) if not isinstance(action, Send)]

    patch.setattr(DisjunctiveCore, "_open", silent)


def a_channel_for_each_notification(patch: pytest.MonkeyPatch) -> None:
    opened = DisjunctiveCore._open

    def again(self: Any, combination: tuple[int, ...], now: int) -> Any:
        self._opened.pop(combination, None)
        return opened(self, combination, now)

    patch.setattr(DisjunctiveCore, "_open", again)


def channels_are_never_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DisjunctiveCore, "_settle", lambda self, now: [])


def a_channel_number_is_used_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("catchment.routing.baselines.disjunctive.following", lambda last, now: 1)


INFORMED: tuple[Plant, ...] = (
    records_are_not_passed_on,
    a_new_neighbor_is_told_of_our_own_clients_only,
    what_was_said_before_a_crash_stands,
    a_whole_record_only_adds,
    a_client_that_leaves_is_remembered,
    unsubscribing_is_not_told,
    links_are_not_passed_on,
)
MUTANTS: list[tuple[str, Plant]] = [
    *(("unicast", plant) for plant in INFORMED),
    ("unicast", one_copy_for_each_broker),
    ("unicast", a_relay_keeps_its_copies),
    ("unicast", a_copy_is_for_everybody_here),
    ("unicast", local_clients_are_overlooked),
    ("unicast", cancelled_filters_still_match),
    ("unicast", hops_are_not_counted),
    ("overlapping multicast", only_the_first_topic_is_sent),
    ("overlapping multicast", every_copy_is_delivered),
    ("overlapping multicast", ways_are_not_computed_anew),
    ("overlapping multicast", ways_are_those_of_this_broker),
    ("overlapping multicast", a_topic_of_two_clients_goes_with_the_first),
    ("overlapping multicast", no_topic_is_wanted_here),
    ("overlapping multicast", hops_are_not_counted),
    ("overlapping multicast", records_are_not_passed_on),
    ("disjunctive multicast", only_the_first_topic_is_sent),
    ("disjunctive multicast", ways_are_not_computed_anew),
    ("disjunctive multicast", no_topic_is_wanted_here),
    ("disjunctive multicast", channels_are_not_opened),
    ("disjunctive multicast", a_channel_for_each_notification),
    ("disjunctive multicast", channels_are_never_closed),
    ("disjunctive multicast", a_channel_number_is_used_again),
    ("disjunctive multicast", what_was_said_before_a_crash_stands),
    ("disjunctive multicast", a_whole_record_only_adds),
]


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=[f"{entry}-{plant.__name__}" for entry, plant in MUTANTS])
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)
