"""Unicast and both kinds of multicast: message by message, on a simulated network, and with neighbors that lie."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from catchment import Filter, Notification, Pattern
from catchment.errors import LimitError, RemoteProtocolError
from catchment.routing.baselines import disjunctive, informed
from catchment.routing.baselines.disjunctive import DisjunctiveCore
from catchment.routing.baselines.informed import HOPS_MAX, InformedCore
from catchment.routing.baselines.messages import ChannelHeader, Channels, ReceiverHeader, Subscribed, TopicHeader
from catchment.routing.baselines.overlapping import OverlappingCore
from catchment.routing.baselines.topics import topic_of
from catchment.routing.baselines.unicast import UnicastCore
from catchment.routing.core import Table
from catchment.routing.messages import (
    HOST,
    Action,
    Cancel,
    Client,
    ClientDown,
    ClientUp,
    Deliver,
    Forward,
    Header,
    LinkDown,
    LinkUp,
    MapIdentity,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from catchment.routing.parts.link_states import AHEAD_MAX_US, CHECK_TIMER, CHECK_US, Links
from catchment.sim.conformance.entries import ENTRIES
from catchment.sim.network import NOTIFICATIONS
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology, star

GAMES, BOSTON, CUBS = Filter("game any"), Filter("team = 'Boston'"), Filter("team = 'Cubs'")
WEST, EAST = Neighbor("w"), Neighbor("e")
ALICE = Client("alice")
RESULT = Notification({"game": 1, "team": "Boston"}, source="p", seq=1)
CORES = (UnicastCore, OverlappingCore, DisjunctiveCore)
SYSTEMS = ("unicast", "overlapping multicast", "disjunctive multicast")


def middle(make: Callable[[str], InformedCore]) -> Any:
    """The middle, m, of a line of three: w is on one side, e on the other."""
    core = make("m")
    for neighbor in (WEST, EAST):
        core.on_message(LinkUp(), neighbor, 1)
        core.on_message(Links(neighbor.name, 1, (("m", 1),)), neighbor, 1)
    return core


def subscribed(origin: str, *wants: tuple[str, str, Filter | Pattern], seq: int = 1) -> Subscribed:
    """All subscriptions of the clients of a broker: identity, id, filter."""
    return Subscribed(origin, seq, None, (), tuple(((identity, id), wanted) for identity, id, wanted in wants))


def forwards(actions: Sequence[Action]) -> list[tuple[Neighbor, Header]]:
    return [(action.interface, action.batch[0].header) for action in actions if isinstance(action, Forward)]


def refused(actions: Sequence[Action]) -> Exception:
    (action,) = actions
    assert isinstance(action, Refuse)
    return action.error


# --- what is told -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", CORES)
def test_each_subscription_is_flooded_as_it_is(make: Callable[[str], InformedCore]):
    core = middle(make)
    core.on_message(ClientUp("alice"), ALICE, 2)
    told: list[Subscribed] = []
    for request in (
        Subscribe("alice", "1", GAMES),
        Subscribe("alice", "2", GAMES),
        Cancel("alice", "1"),
        MapIdentity("alice", "alice"),
        Unsubscribe("alice", Filter.everything()),
        Subscribe("alice", "3", BOSTON),
    ):
        sends = [action for action in core.on_message(request, ALICE, 5) if isinstance(action, Send)]
        assert [send.interface for send in sends] == ([EAST, WEST] if sends else [])
        told += [send.message for send in sends[:1]]  # type: ignore[misc]
    assert [(record.gone, record.new) for record in told] == [
        ((), ((("alice", "1"), GAMES),)),
        ((), ((("alice", "2"), GAMES),)),
        ((("alice", "1"),), ()),
        ((("alice", "2"),), ()),
        ((), ((("alice", "3"), BOSTON),)),
    ]
    assert all(later.after == before.seq for before, later in pairwise(told))
    (gone, _) = core.on_message(ClientDown(), ALICE, 6)
    assert gone.message.gone == (("alice", "3"),)


@pytest.mark.parametrize("make", CORES)
def test_a_new_neighbor_is_told_everything(make: Callable[[str], InformedCore]):
    core = middle(make)
    core.on_message(subscribed("w", ("bob", "1", GAMES)), WEST, 2)
    told = [send.message for send in core.on_message(LinkUp(), Neighbor("x"), 3) if send.interface == Neighbor("x")]
    kinds = [type(message) for message in told]
    # Links, then subscriptions, then channels: who hears of one knows what it is about.
    assert kinds == sorted(kinds, key=(Links, Subscribed, Channels).index)
    assert subscribed("w", ("bob", "1", GAMES)) in told


@pytest.mark.parametrize("make", CORES)
def test_a_core_says_what_it_holds(make: Callable[[str], InformedCore]):
    core = middle(make)
    core.on_message(Subscribe("alice", "1", BOSTON), ALICE, 2)
    core.on_message(subscribed("w", ("bob", "1", Pattern("[x > 1] -> [x > 2]"))), WEST, 2)
    assert core.inspect().tables == (Table("@clients", 1, len(str(BOSTON))), Table("w", 2, 18))
    assert core.leftovers() == [
        "1 subscriptions of clients",
        "subscription 1 of alice at m",
        "subscription 1 of bob at w",
    ]
    core.on_message(subscribed("w", seq=2), WEST, 3)
    core.on_message(Cancel("alice", "1"), ALICE, 3)
    assert core.inspect().tables == ()
    assert core.leftovers() == []


@pytest.mark.parametrize("make", CORES)
def test_what_a_broker_said_before_a_crash_is_outbid(make: Callable[[str], InformedCore]):
    """Its clock has gone back: others would prefer the old record."""
    core = middle(make)
    core.on_message(Subscribe("alice", "1", GAMES), ALICE, 5)
    sends = core.on_message(subscribed("m", ("carol", "9", CUBS), seq=1_000), WEST, 6)
    assert [send.interface for send in sends] == [EAST, WEST]
    again = sends[0].message
    assert (again.seq, again.after, again.new) == (1_001, None, ((("alice", "1"), GAMES),))
    # Its own words that come round are none of that.
    assert core.on_message(again, EAST, 7) == []
    assert core.on_message(Subscribed("m", 6, 5, (), ()), EAST, 7) == []


# --- where notifications go ---------------------------------------------------------------------


def test_unicast_sends_a_copy_to_each_client():
    core = middle(UnicastCore)
    core.on_message(Subscribe("alice", "1", GAMES), ALICE, 2)
    core.on_message(subscribed("e", ("bob", "1", GAMES), ("bob", "2", BOSTON), ("carol", "1", CUBS)), EAST, 2)
    core.on_message(subscribed("w", ("dan", "1", BOSTON), ("eve", "1", GAMES)), WEST, 2)
    delivered, *copies = core.on_notifications([Routed(RESULT)], ALICE, 3)
    assert delivered == Deliver(ALICE, "alice", RESULT, ("1",))
    assert forwards(copies) == [
        (EAST, ReceiverHeader(1, "e", "bob")),
        (WEST, ReceiverHeader(1, "w", "dan")),
        (WEST, ReceiverHeader(1, "w", "eve")),
    ]


def test_unicast_relays_and_delivers_to_one_client():
    core = middle(UnicastCore)
    for identity in ("alice", "anna"):
        core.on_message(Subscribe(identity, "1", GAMES), Client(identity), 2)
    relayed = core.on_notifications([Routed(RESULT, ReceiverHeader(1, "e", "bob"))], WEST, 3)
    assert relayed == [Forward(EAST, (Routed(RESULT, ReceiverHeader(2, "e", "bob")),), is_relayed=True)]
    here = core.on_notifications([Routed(RESULT, ReceiverHeader(1, "m", "anna"))], WEST, 3)
    assert here == [Deliver(Client("anna"), "anna", RESULT, ("1",))]
    assert core.on_notifications([Routed(RESULT, ReceiverHeader(1, "unknown", "bob"))], WEST, 3) == []
    assert core.on_notifications([Routed(RESULT, ReceiverHeader(HOPS_MAX, "e", "bob"))], WEST, 3) == []


def test_overlapping_topics_each_bring_a_copy():
    core = middle(OverlappingCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES), ("bob", "2", BOSTON), ("carol", "1", CUBS)), EAST, 2)
    core.on_message(subscribed("w", ("dan", "1", GAMES), ("eve", "1", GAMES)), WEST, 2)
    copies = core.on_notifications([Routed(RESULT)], ALICE, 3)
    games, boston = (TopicHeader(1, "m", topic_of(filter)) for filter in (GAMES, BOSTON))
    assert sorted(forwards(copies), key=str) == sorted([(EAST, games), (EAST, boston), (WEST, games)], key=str)


@pytest.mark.parametrize("seq", [1, None])
def test_a_client_of_overlapping_topics_gets_one_delivery(seq: int | None):
    core = middle(OverlappingCore)
    core.on_message(Subscribe("alice", "1", GAMES), ALICE, 2)
    core.on_message(Subscribe("alice", "2", BOSTON), ALICE, 2)
    notification = Notification({"game": 1, "team": "Boston"}, source="p", seq=seq)
    topics = sorted(topic_of(filter) for filter in (GAMES, BOSTON))
    arrived = [core.on_notifications([Routed(notification, TopicHeader(1, "w", each))], WEST, 3) for each in topics]
    assert arrived == [[Deliver(ALICE, "alice", notification, ("1", "2"))], []]


def test_topics_of_the_same_number_are_one_topic(monkeypatch: pytest.MonkeyPatch):
    """Nobody is missed, whoever else gets copies."""
    monkeypatch.setattr("catchment.routing.baselines.topics.topic_of", lambda filter: 7)
    core = middle(OverlappingCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES)), EAST, 2)
    core.on_message(subscribed("w", ("dan", "1", CUBS)), WEST, 2)
    header = TopicHeader(1, "m", 7)
    assert forwards(core.on_notifications([Routed(RESULT)], ALICE, 3)) == [(EAST, header), (WEST, header)]
    core.on_message(subscribed("w", seq=2), WEST, 4)
    assert forwards(core.on_notifications([Routed(RESULT)], ALICE, 5)) == [(EAST, header)]
    core.on_message(subscribed("e", seq=2), EAST, 4)
    assert core.on_notifications([Routed(RESULT)], ALICE, 5) == []


def test_a_combination_of_topics_has_a_channel():
    core = middle(DisjunctiveCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES), ("bob", "2", BOSTON)), EAST, 2)
    core.on_message(subscribed("w", ("dan", "1", GAMES)), WEST, 2)
    *opened, east, west = core.on_notifications([Routed(RESULT)], ALICE, 30)
    topics = tuple(sorted(map(topic_of, (GAMES, BOSTON))))
    ((number, combination),) = opened[0].message.new
    assert [send.interface for send in opened] == [EAST, WEST]
    assert combination == topics
    header = ChannelHeader(1, "m", number)
    assert forwards([east, west]) == [(EAST, header), (WEST, header)]
    # The same combination again needs no new channel; another one does.
    assert forwards(core.on_notifications([Routed(RESULT)], ALICE, 31)) == [(EAST, header), (WEST, header)]
    *_, other = core.on_notifications([Routed(Notification({"team": "Boston"}))], ALICE, 32)
    ((_, further),) = forwards([other])
    assert isinstance(further, ChannelHeader)
    assert further.channel > number
    assert len(core.channels.of("m")) == 2


def test_channels_close_when_a_topic_is_gone_and_what_is_under_way_arrives():
    core = middle(DisjunctiveCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES)), EAST, 2)
    core.on_message(Channels("w", 5, None, (), ((9, (topic_of(GAMES), topic_of(BOSTON))),)), WEST, 2)
    core.on_message(Channels("w", 6, 5, (9,), ()), WEST, 3)
    assert core.channels.of("w") == {}
    # The notification took the longer way.
    arrived = core.on_notifications([Routed(RESULT, ChannelHeader(1, "w", 9))], WEST, 4)
    assert forwards(arrived) == [(EAST, ChannelHeader(2, "w", 9))]
    # Our own are closed when nobody else wants one of their topics.
    core.on_notifications([Routed(RESULT)], ALICE, 5)
    assert len(core.channels.of("m")) == 1
    closing = core.on_message(subscribed("e", seq=2), EAST, 6)[-1].message
    assert isinstance(closing, Channels)
    assert len(closing.gone) == 1
    assert core.leftovers() == []


def test_the_oldest_channel_is_closed_for_a_new_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disjunctive, "CHANNELS_MAX", 2)
    monkeypatch.setattr(disjunctive, "CLOSED_MAX", 1)
    core = middle(DisjunctiveCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES), ("bob", "2", BOSTON), ("bob", "3", CUBS)), EAST, 2)
    numbers: list[int] = []
    for attributes in ({"game": 1}, {"team": "Boston"}, {"team": "Cubs"}, {"game": 1, "team": "Cubs"}):
        *_, (_, header) = forwards(core.on_notifications([Routed(Notification(attributes))], ALICE, 30))
        assert isinstance(header, ChannelHeader)
        numbers.append(header.channel)
    assert list(core.channels.of("m")) == numbers[2:]
    assert [core.topics_of("m", number) is None for number in numbers] == [True, False, False, False]
    assert len(set(numbers)) == 4


def test_a_batch_keeps_the_order_of_its_publisher():
    core = middle(OverlappingCore)
    core.on_message(subscribed("e", ("bob", "1", GAMES), ("bob", "2", BOSTON)), EAST, 2)
    contents: tuple[dict[str, Any], ...] = ({"game": 1}, {"game": 2}, {"team": "Boston"}, {"game": 3})
    batch = [Routed(Notification(content, source="p", seq=i)) for i, content in enumerate(contents)]
    sent = [action for action in core.on_notifications(batch, ALICE, 3) if isinstance(action, Forward)]
    assert [[routed.notification.seq for routed in action.batch] for action in sent] == [[0, 1], [2], [3]]


# --- neighbors that lie -------------------------------------------------------------------------


@pytest.mark.parametrize("make", CORES)
def test_a_neighbor_that_contradicts_itself_is_refused(make: Callable[[str], InformedCore]):
    core = middle(make)
    core.on_message(subscribed("w", ("bob", "1", GAMES), seq=5), WEST, 2)
    before = core.inspect()
    for what in (
        Subscribed("w", 9, 7, (), ((("bob", "2"), CUBS),)),
        Subscribed("w", 9, 5, (("bob", "3"),), ()),
        Subscribed("w", 9, 5, (), ((("bob", "1"), CUBS),)),
    ):
        assert isinstance(refused(core.on_message(what, WEST, 3)), RemoteProtocolError)
        assert core.inspect() == before
    # What is old is no contradiction: it came by another way.
    assert core.on_message(subscribed("w", seq=4), WEST, 3) == []


@pytest.mark.parametrize("make", CORES)
def test_records_that_make_no_sense_are_dropped(make: Callable[[str], InformedCore]):
    """Of a broker whose links nobody knows, or with a number from the future; who says that of itself is refused."""
    core = middle(make)
    before = core.inspect()
    future = AHEAD_MAX_US + 100
    assert core.on_message(subscribed("nobody", ("bob", "1", GAMES)), WEST, 2) == []
    assert core.on_message(subscribed("e", ("bob", "1", GAMES), seq=future), WEST, 2) == []
    assert core.inspect() == before
    error = refused(core.on_message(subscribed("w", ("bob", "1", GAMES), seq=future), WEST, 2))
    assert "ahead of the clock" in str(error)
    assert core.inspect() == before


@pytest.mark.parametrize("make", CORES)
def test_a_broker_that_is_away_for_long_is_forgotten(make: Callable[[str], InformedCore]):
    core = middle(make)
    core.on_message(subscribed("w", ("bob", "1", GAMES)), WEST, 2)
    if isinstance(core, DisjunctiveCore):
        core.on_message(Channels("w", 5, None, (), ((9, (1,)),)), WEST, 2)
        core.on_notifications([Routed(RESULT)], ALICE, 3)
    core.on_message(LinkDown(), WEST, 4)
    for check in range(1, 12):
        core.on_message(TimerFired(CHECK_TIMER), HOST, 4 + check * CHECK_US)
    assert core.subscriptions.origins == ["m"]
    assert core.inspect().tables == ()
    assert core.on_notifications([Routed(RESULT)], ALICE, 5 + 12 * CHECK_US) == []
    if isinstance(core, DisjunctiveCore):
        assert [core.channels.of(origin) for origin in ("m", "w")] == [{}, {}]


@pytest.mark.parametrize("make", CORES)
def test_a_flood_of_records_is_refused(make: Callable[[str], InformedCore], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(informed, "KNOWN_SUBSCRIPTIONS_MAX", 2)
    core = middle(make)
    wants = [("bob", str(i), GAMES) for i in range(3)]
    assert isinstance(refused(core.on_message(subscribed("w", *wants), WEST, 2)), LimitError)
    assert core.subscriptions.of("w") == {}
    assert len(core.on_message(subscribed("w", *wants[:2]), WEST, 3)) == 1


def test_a_flood_of_channels_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disjunctive, "KNOWN_CHANNELS_MAX", 6)
    core = middle(DisjunctiveCore)
    many = tuple((number, (1, 2)) for number in range(3))
    assert isinstance(refused(core.on_message(Channels("w", 1, None, (), many), WEST, 2)), LimitError)
    assert len(core.on_message(Channels("w", 1, None, (), many[:2]), WEST, 2)) == 1


@pytest.mark.parametrize("origin", ["nobody", "e"])
def test_what_comes_from_the_wrong_side_goes_nowhere(origin: str):
    """Who invents origins, or sends things round, makes no copies and no trees."""
    multicast: list[tuple[Any, Header]] = [
        (middle(OverlappingCore), TopicHeader(1, origin, topic_of(GAMES))),
        (middle(DisjunctiveCore), ChannelHeader(1, origin, 9)),
    ]
    for core, header in multicast:
        core.on_message(Subscribe("alice", "1", GAMES), ALICE, 2)
        if isinstance(core, DisjunctiveCore):
            core.on_message(Channels(origin, 5, None, (), ((9, (topic_of(GAMES),)),)), WEST, 2)
        assert core.on_notifications([Routed(RESULT, header)], WEST, 3) == []
        assert core.links.records.keys() == {"m", "w", "e"}


def test_numbers_that_nobody_knows_go_nowhere():
    overlapping, channels = middle(OverlappingCore), middle(DisjunctiveCore)
    assert overlapping.on_notifications([Routed(RESULT, TopicHeader(1, "w", 12345))], WEST, 3) == []
    assert channels.on_notifications([Routed(RESULT, ChannelHeader(1, "w", 12345))], WEST, 3) == []
    # Topics that nobody has: the channel is kept, and leads nowhere.
    channels.on_message(Channels("w", 5, None, (), ((9, (1, 2, 3)),)), WEST, 2)
    assert channels.on_notifications([Routed(RESULT, ChannelHeader(1, "w", 9))], WEST, 3) == []


# --- on a network -------------------------------------------------------------------------------


def traffic(system: str) -> tuple[int, int]:
    """Deliveries and notifications over links. All want all games; at each leaf of a star of four a client wants those
    of Boston too, in a subscription of its own, and another wants all games."""
    topology: Topology = star(5)
    simulation = Simulation(topology, ENTRIES[system].make_core(topology))
    for leaf in topology.brokers[1:]:
        for identity in (f"a{leaf}", f"b{leaf}"):
            simulation.connect(identity, leaf)
            simulation.subscribe(identity, "1", GAMES)
        simulation.subscribe(f"a{leaf}", "2", BOSTON)
    simulation.settle()
    simulation.reset_measures()
    simulation.publish("a1", {"game": 1, "team": "Boston"})
    simulation.settle()
    carried = sum(each.messages for _, name, each in simulation.traffic if name == NOTIFICATIONS)
    return sum(len(client.received) for client in simulation.clients.values()), carried


def test_copies_over_links():
    """Three other leaves with two clients each, and two topics. Disjunctive: the least there can be."""
    assert [traffic(system) for system in (*SYSTEMS, "siena general")] == [(8, 12), (8, 8), (8, 4), (8, 4)]
