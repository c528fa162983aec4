"""Mistakes planted in who may use which name and number, and in what is bounded in bytes: the tests find each."""

from collections.abc import Callable
from typing import Any

import pytest

from catchment.model import monitor as monitor_module
from catchment.model import names
from catchment.model.monitor import Monitor
from catchment.node.access import Access
from catchment.node.numbers import Numbers
from catchment.routing.parts import clients, identities
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.shares import BySize, Shares
from catchment.routing.siena import thinning
from catchment.routing.siena.acyclic import AcyclicCore
from tests.unit import test_access, test_bytes_held, test_node, test_numbers
from tests.unit.test_node import node_of

Plant = Callable[[pytest.MonkeyPatch], None]


def anybody_speaks_for_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "_is_foreign", lambda self, client, name: False)


def a_handler_maps_again(patch: pytest.MonkeyPatch) -> None:
    check = Access._check_mapping

    def lenient(self: Any, client: Any, request: Any) -> None:
        known = self._core.clients.get(request.identity)
        check(self, client if known is None else known.owner, request)

    patch.setattr(Access, "_check_mapping", lenient)


def a_refused_request_introduces_somebody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clients, "_has_anything", lambda identity: True)


def a_name_goes_with_the_handler_of_its_identity(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Any, client: Any, name: str) -> bool:
        known = self._core.clients.get(name)
        return known is not None and client not in (known.owner, known.client)

    patch.setattr(Access, "_is_foreign", forgetful)


def anybody_connects_under_any_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "name_refusal", lambda self, client: "")


def names_may_have_line_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "_UNPRINTABLE", frozenset())


def http_publishers_use_any_source(patch: pytest.MonkeyPatch) -> None:
    problem = Access._source_problem

    def lenient(self: Any, client: Any, source: str) -> Any:
        return None if client.name == "@http" else problem(self, client, source)

    patch.setattr(Access, "_source_problem", lenient)


def a_source_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "_source_problem", lambda self, client, source: None)


def identities_without_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientSide, "owned_by", lambda self, client: frozenset())


def mapped_identities_without_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientSide, "mapped_to", lambda self, client: frozenset())


def mapped_identities_count_as_ones_own(patch: pytest.MonkeyPatch) -> None:
    owned = ClientSide.owned_by
    patch.setattr(
        ClientSide, "owned_by", lambda self, client: owned(self, client) | self._by_client.get(client, {}).keys()
    )


def numbers_may_go_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Numbers, "remember", lambda self, numbers: None)


def numbers_may_leap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("catchment.node.numbers.SEQ_AHEAD_MAX", 2**64)


def numbers_of_neighbors_may_leap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("catchment.node.numbers.LINK_SEQ_AHEAD_MAX", 2**64)


def a_refused_batch_is_remembered(patch: pytest.MonkeyPatch) -> None:
    checked = Numbers.checked

    def hasty(self: Any, batch: Any, now: int) -> Any:
        for notification in batch:
            self.remember(checked(self, [notification], now))
        return {}

    patch.setattr(Numbers, "checked", hasty)


def numbers_of_neighbors_are_not_learned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Numbers, "plausible", lambda self, batch, now: batch)


def what_is_old_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    is_new = Newest.is_new

    def silent(self: Any, notification: Any) -> bool:
        answer = is_new(self, notification)
        self.old_count = 0
        return answer

    patch.setattr(Newest, "is_new", silent)


def no_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shares, "past_limit", lambda self, client, item: None)


def only_items_are_bounded(patch: pytest.MonkeyPatch) -> None:
    def lenient(self: Any, client: Any, item: Any) -> Any:
        return (client, item) if self.size(client, item) > self._limits.item else None

    patch.setattr(Shares, "past_limit", lenient)


def who_grows_gives_up(patch: pytest.MonkeyPatch) -> None:
    past_limit = Shares.past_limit

    def selfish(self: Any, client: Any, item: Any) -> Any:
        past = past_limit(self, client, item)
        return None if past is None else (client, item) if self.size(client, item) else past

    patch.setattr(Shares, "past_limit", selfish)


def anybody_is_the_largest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BySize, "largest", lambda self: next(iter(self._sizes)))


def the_largest_is_looked_for_among_all(patch: pytest.MonkeyPatch) -> None:
    from catchment.routing.parts import shares

    def largest(self: Any) -> Any:
        most = getattr(shares, "max", max)(self._sizes)
        return max(self._sizes, key=lambda key: (self._sizes[key], most))

    patch.setattr(BySize, "largest", largest)


def payloads_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    for module in (identities, monitor_module, thinning):
        patch.setattr(module, "memory_bytes", lambda notification: len(notification.content))


def who_is_gone_is_still_counted(patch: pytest.MonkeyPatch) -> None:
    grow = Shares.grow
    patch.setattr(
        Shares, "grow", lambda self, client, item, amount: grow(self, client, item, amount) if amount >= 0 else None
    )


def waits_given_up_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientSide, "_miss", lambda self, identity, count, actions: None)


def monitors_without_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Monitor, "_advanced", lambda self, key, so_far: self._waiting.update({key: so_far}) or [])


def remembered_keys_without_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(monitor_module, "key_bytes", lambda key: 0)


def thinners_without_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(thinning, "memory_bytes", lambda notification: 0)


# Each with a test that finds it.
PLANTED: list[tuple[Plant, Callable[..., Any], dict[str, Any]]] = [
    (
        anybody_speaks_for_anybody,
        test_access.test_nobody_speaks_for_the_identity_of_another,
        {"identity": "alice", "place": 2},
    ),
    (a_handler_maps_again, test_access.test_owner_and_handler_speak_for_an_identity_that_is_mapped, {}),
    (
        a_refused_request_introduces_somebody,
        test_access.test_a_request_that_is_refused_or_ends_nothing_introduces_nobody,
        {},
    ),
    (
        a_name_goes_with_the_handler_of_its_identity,
        test_access.test_a_client_keeps_its_name_when_the_handler_of_its_identity_goes,
        {},
    ),
    (anybody_connects_under_any_identity, test_access.test_nobody_connects_under_an_identity_of_another, {}),
    (
        names_may_have_line_ends,
        test_access.test_reserved_names_are_refused_as_identities_and_as_sources,
        {"name": "a\nb"},
    ),
    (
        http_publishers_use_any_source,
        test_access.test_http_publishers_use_names_that_nobody_has_or_that_they_were_granted,
        {},
    ),
    (a_source_is_not_checked, test_access.test_publications_carry_a_name_of_their_publisher, {}),
    (identities_without_number, test_node.test_identities_of_a_client_are_bounded_apart_from_those_mapped_to_it, {}),
    (
        mapped_identities_count_as_ones_own,
        test_node.test_identities_of_a_client_are_bounded_apart_from_those_mapped_to_it,
        {},
    ),
    (mapped_identities_without_number, test_node.test_identities_mapped_to_a_client_are_bounded, {}),
    (numbers_may_go_back, test_numbers.test_numbers_grow, {}),
    (numbers_may_leap, test_access.test_a_number_that_is_refused_is_answered_with_the_number_to_go_on_after, {}),
    (numbers_of_neighbors_may_leap, test_numbers.test_what_is_dropped_as_old_or_absurd_is_counted, {}),
    (a_refused_batch_is_remembered, test_numbers.test_a_batch_is_taken_as_a_whole_or_not_at_all, {}),
    (numbers_of_neighbors_are_not_learned, test_numbers.test_a_broker_learns_numbers_from_its_neighbors, {}),
    (what_is_old_is_not_counted, test_numbers.test_what_is_dropped_as_old_or_absurd_is_counted, {}),
    (no_limit, test_bytes_held.test_what_waits_for_an_identity_is_bounded_in_bytes, {}),
    (no_limit, test_bytes_held.test_a_monitor_is_bounded_in_bytes, {}),
    (no_limit, test_bytes_held.test_payloads_of_the_largest_size_fill_no_memory, {}),
    (only_items_are_bounded, test_bytes_held.test_what_waits_for_all_identities_of_a_client_is_bounded_in_bytes, {}),
    (
        only_items_are_bounded,
        test_bytes_held.test_what_waits_at_a_broker_is_bounded_in_bytes_and_who_holds_much_loses_first,
        {},
    ),
    (only_items_are_bounded, test_bytes_held.test_monitors_of_a_client_and_of_a_broker_are_bounded_in_bytes, {}),
    (
        who_grows_gives_up,
        test_bytes_held.test_what_waits_at_a_broker_is_bounded_in_bytes_and_who_holds_much_loses_first,
        {},
    ),
    (
        anybody_is_the_largest,
        test_bytes_held.test_what_waits_at_a_broker_is_bounded_in_bytes_and_who_holds_much_loses_first,
        {},
    ),
    (the_largest_is_looked_for_among_all, test_bytes_held.test_the_largest_is_found_without_looking_at_all, {}),
    (payloads_are_not_counted, test_bytes_held.test_what_waits_for_an_identity_is_bounded_in_bytes, {}),
    (payloads_are_not_counted, test_bytes_held.test_a_monitor_is_bounded_in_bytes, {}),
    (who_is_gone_is_still_counted, test_bytes_held.test_what_waits_for_who_is_gone_is_not_counted, {}),
    (who_is_gone_is_still_counted, test_bytes_held.test_a_monitor_that_is_gone_is_not_counted, {}),
    (waits_given_up_are_not_told, test_bytes_held.test_a_monitor_is_bounded_in_bytes, {}),
    (monitors_without_bytes, test_bytes_held.test_a_monitor_is_bounded_in_bytes, {}),
    (remembered_keys_without_bytes, test_bytes_held.test_the_keys_that_a_monitor_remembers_are_bounded_in_bytes, {}),
    (thinners_without_bytes, test_bytes_held.test_what_a_thinner_holds_is_bounded_in_bytes, {}),
]


@pytest.mark.parametrize(
    ("plant", "test", "given"), PLANTED, ids=[f"{plant.__name__}-{n}" for n, (plant, *_) in enumerate(PLANTED)]
)
def test_is_found(plant: Plant, test: Callable[..., Any], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    names_of_arguments = test.__code__.co_varnames[: test.__code__.co_argcount]
    arguments = dict(given)
    if "broker" in names_of_arguments:
        arguments["broker"] = node_of(AcyclicCore("1"))
    if "monkeypatch" in names_of_arguments:
        arguments["monkeypatch"] = monkeypatch
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ValueError, pytest.fail.Exception)):
        test(**arguments)
