"""Link states: which records make sense, which are forgotten, who finds room; and the same for wants, and for what is
registered at a center. What neighbors say has a range, which the wire checks."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec import ValidationError, msgpack

from catchment.errors import LimitError, RemoteProtocolError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.baselines.centralized import CentralizedCore
from catchment.routing.baselines.messages import AddressedHeader, Registration
from catchment.routing.messages import (
    HOPS_RANGE,
    HOST,
    LINK_COST_MAX,
    NUMBER_MAX,
    Header,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    TimerFired,
)
from catchment.routing.parts import link_states, remote
from catchment.routing.parts.link_states import (
    AHEAD_MAX_US,
    CHECK_TIMER,
    CHECK_US,
    FORGET_US,
    Links,
    LinkStates,
)
from catchment.routing.siena import advertising
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.gateway import HybridCore, Membership
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import (
    Advertised,
    Delegated,
    Held,
    Interest,
    OriginHeader,
    Part,
    Wants,
    WantsChange,
)
from catchment.sim.conformance.checkers import reachable
from catchment.sim.network import Quality
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Link, Topology
from catchment.wire.frames import frame

TWO, THREE = Neighbor("2"), Neighbor("3")
WIDE = Filter("x > 0")


def linked(states: LinkStates) -> LinkStates:
    for neighbor in (TWO, THREE):
        states.up(neighbor, 1, 0)
        states.heard(Links(neighbor.name, 1, (("1", 1),)), neighbor, 0)
    return states


def checked_until(states: LinkStates, last: int) -> None:
    for now in range(CHECK_US, last + 1, CHECK_US):
        states.on_timer(CHECK_TIMER, now)


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Links("9", NUMBER_MAX + 1, ()),
        Links("9", -1, ()),
        Links("9", 1, (("2", 0),)),
        Links("9", 1, (("2", LINK_COST_MAX + 1),)),
        Links("9", 1, (("@", 1),)),
        Links("@", 1, ()),
        Links("*", 1, ()),
        Links("", 1, ()),
        Links("a\nb", 1, ()),
        Links("x" * 1_025, 1, ()),
        Wants("9", 2**64 - 1, ()),
        Wants("@", 1, ()),
        WantsChange("9", 2**64 - 1, 0, (), ()),
        WantsChange("9", 1, -1, (), ()),
        Registration("9", 2**64 - 1, 1, True, ()),
        Registration("9", 1, 2**64 - 1, True, ()),
        Registration("@", 1, 1, True, ()),
        Header(-1),
        Header(HOPS_RANGE + 1),
        OriginHeader(1, "@"),
        AddressedHeader(1, ("@", "alice")),
        Held(Notification({}), 2**63, (0,)),
        Held(Notification({}), 1, (-1,)),
        Held(Notification({}), 1, (64,)),
    ],
    ids=str,
)
def test_what_is_out_of_range_is_not_even_read(message):
    written = msgpack.encode(message, enc_hook=lambda value: [dict(value), None, None, None])
    with pytest.raises(ValidationError):
        msgpack.decode(written, type=type(message), dec_hook=lambda kind, value: Notification(value[0]))


def test_the_greatest_numbers_that_are_read_can_be_written_again():
    states = linked(LinkStates("1"))
    actions: Any = states.heard(Links("1", AHEAD_MAX_US, ()), TWO, 0)
    assert [action.message.seq for action in actions] == [AHEAD_MAX_US + 1] * 2
    assert frame(Links("1", NUMBER_MAX, ()))


def test_a_number_from_the_future_is_dropped_and_ends_the_link_of_who_it_is_of():
    states = linked(LinkStates("1"))
    assert states.heard(Links("9", AHEAD_MAX_US + 6, ()), TWO, 5) == []
    assert "9" not in states.records
    (refused,) = states.heard(Links("2", AHEAD_MAX_US + 6, ()), TWO, 5)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, RemoteProtocolError)
    assert "86,400 s ahead of the clock here" in str(refused.error)
    # In our own name too: we would have to outbid it.
    assert states.heard(Links("1", AHEAD_MAX_US + 6, ()), TWO, 5) == []
    assert states.seq < 10
    assert states.dropped == 3
    core = GeneralCore("1")
    core.on_message(LinkUp(), TWO, 0)
    core.on_message(Links("2", 1, (("1", 1),)), TWO, 0)
    assert core.on_message(Wants("9", AHEAD_MAX_US + 6, ()), TWO, 5) == []
    for message in (Wants("2", AHEAD_MAX_US + 6, ()), WantsChange("2", AHEAD_MAX_US + 6, 0, (), ())):
        (refused,) = core.on_message(message, TWO, 5)
        assert isinstance(refused, Refuse)


def test_a_change_that_was_made_up_in_our_name_is_outbid():
    core = GeneralCore("1")
    for neighbor in (TWO, THREE):
        core.on_message(LinkUp(), neighbor, 0)
    core.on_message(Links("2", 1, (("1", 1),)), TWO, 0)
    assert core.on_message(WantsChange("1", 99, 1, (), (WIDE,)), TWO, 5) == [
        Send(neighbor, Wants("1", 100, ())) for neighbor in (TWO, THREE)
    ]
    # Its own change comes back to it like this.
    assert core.on_message(WantsChange("1", 100, 99, (), ()), TWO, 5) == []


def poisoned() -> Simulation:
    """A ring of four, in which one broker has told lies about all others that it may tell."""
    ring = [Link(str(end), str(end % 4 + 1)) for end in range(1, 5)]
    simulation = Simulation(Topology(("1", "2", "3", "4"), tuple(ring)), GeneralCore, quality=Quality(delay_us=1_000))
    simulation.connect("alice", "3")
    simulation.subscribe("alice", "s", WIDE)
    simulation.settle()
    victim = simulation.nodes["2"]
    assert victim is not None
    ahead = simulation.now + AHEAD_MAX_US
    for name in ("2", "3", "4", "9"):
        victim.told(Neighbor("1"), Links(name, ahead, (("1", 1),)))
        victim.told(Neighbor("1"), Wants(name, ahead, ()))
    simulation.settle()
    return simulation


def reaches_all(simulation: Simulation) -> None:
    simulation.settle()
    simulation.publish("bob", {"x": 1})
    simulation.settle()
    received: Any = simulation.client("alice").received
    assert [delivery.notification["x"] for delivery in received] == [1]
    for broker, core in simulation.cores.items():
        assert isinstance(core, GeneralCore)
        assert set(core.origins) == reachable(simulation, broker)


def test_lies_about_brokers_that_are_there_are_outbid():
    simulation = poisoned()
    simulation.connect("bob", "1")
    reaches_all(simulation)


def test_lies_from_before_a_restart_heal_though_brokers_are_restarted_one_by_one():
    simulation = poisoned()
    for broker in ("1", "2", "3", "4"):
        simulation.crash(broker)
        simulation.settle()
        simulation.restart(broker)
        simulation.settle()
    simulation.connect("bob", "1")
    reaches_all(simulation)
    # And what never was is forgotten.
    simulation.advance(FORGET_US + 2 * CHECK_US)
    for core in simulation.cores.values():
        assert isinstance(core, GeneralCore)
        assert set(core.links.records) == {"1", "2", "3", "4"}


# --- forgetting ---------------------------------------------------------------------------------


def test_who_cannot_be_reached_is_forgotten():
    gone: list[str] = []
    states = linked(LinkStates("1", gone.append))
    states.heard(Links("9", 5, (("8", 1),)), TWO, 0)
    checked_until(states, FORGET_US)
    assert (gone, "9" in states.records) == ([], True)
    assert states.on_timer(CHECK_TIMER, FORGET_US + CHECK_US) == []
    assert (gone, sorted(states.records)) == (["9"], ["1", "2", "3"])


def test_a_link_that_one_end_alone_states_reaches_nobody():
    states = linked(LinkStates("1"))
    states.heard(Links("9", 5, (("2", 1),)), TWO, 0)
    checked_until(states, FORGET_US + CHECK_US)
    assert "9" not in states.records
    states.heard(Links("9", 6, (("2", 1),)), TWO, 0)
    states.heard(Links("2", 6, (("1", 1), ("9", 1))), TWO, 0)
    checked_until(states, 2 * FORGET_US)
    assert "9" in states.records


def test_checks_are_made_only_after_changes_and_while_somebody_is_away():
    states = LinkStates("1")
    (_, timer) = states.up(TWO, 1, 7)
    assert timer == SetTimer(CHECK_TIMER, 7 + CHECK_US, is_idle=True)
    # The timer is set once.
    assert states.heard(Links("2", 1, (("1", 1),)), TWO, 8) == []
    assert states.on_timer("another", 9) == []
    assert states.on_timer(CHECK_TIMER, 10) == []
    # It is set again with the next change, and with each check as long as somebody is away.
    assert SetTimer(CHECK_TIMER, 11 + CHECK_US, is_idle=True) in states.heard(Links("9", 1, ()), TWO, 11)
    assert states.on_timer(CHECK_TIMER, 12) == [SetTimer(CHECK_TIMER, 12 + CHECK_US, is_idle=True)]


def test_who_comes_back_is_flooded_on_once_though_it_is_known():
    """Others may have forgotten it a moment earlier."""
    core = GeneralCore("1")
    for neighbor in (TWO, THREE):
        core.on_message(LinkUp(), neighbor, 0)
        core.on_message(Links(neighbor.name, 1, (("1", 1),)), neighbor, 0)
    links, wants = Links("9", 5, (("2", 1),)), Wants("9", 5, (WIDE,))
    for record in (links, wants):
        assert core.on_message(record, TWO, 0) == [Send(THREE, record)]
        assert core.on_message(record, TWO, 0) == []
    core.on_message(TimerFired(CHECK_TIMER), HOST, CHECK_US)
    for record in (links, wants):
        assert core.on_message(record, TWO, CHECK_US) == [Send(THREE, record)]
        # In a cycle it comes back.
        assert core.on_message(record, THREE, CHECK_US) == []


def test_a_network_in_which_some_have_forgotten_and_some_have_not_becomes_whole():
    brokers = ("1", "2", "3", "4", "5")
    line = tuple(Link(first, second) for first, second in pairwise(brokers))
    simulation = Simulation(Topology(brokers, line), GeneralCore)
    simulation.connect("alice", "5")
    simulation.subscribe("alice", "s", WIDE)
    simulation.connect("bob", "1")
    simulation.settle()
    # 4 notices a check later than 1 and 2 that 5 cannot be reached: its own checks began earlier.
    simulation.cut("3", "4")
    simulation.advance(CHECK_US // 2)
    simulation.cut("1", "2")
    simulation.advance(FORGET_US - CHECK_US // 4)
    simulation.heal("1", "2")
    simulation.advance(CHECK_US)
    cores: Any = simulation.cores
    knowing = [broker for broker, core in cores.items() if "5" in core.links.records]
    assert knowing != list(brokers)
    simulation.heal("3", "4")
    simulation.settle()
    simulation.publish("bob", {"x": 1})
    simulation.settle()
    assert len(simulation.client("alice").received) == 1


def test_wants_are_forgotten_with_links_and_are_not_taken_without():
    core = GeneralCore("1")
    core.on_message(LinkUp(), TWO, 0)
    core.on_message(Links("2", 1, (("1", 1),)), TWO, 0)
    for message in (Wants("9", 5, (WIDE,)), WantsChange("9", 5, 0, (), (WIDE,))):
        assert core.on_message(message, TWO, 0) == []
    core.on_message(Links("9", 5, ()), TWO, 0)
    core.on_message(Wants("9", 5, (WIDE,)), TWO, 0)
    assert core.wants_of("9") == (WIDE,)
    for now in range(CHECK_US, FORGET_US + 2 * CHECK_US, CHECK_US):
        core.on_message(TimerFired(CHECK_TIMER), HOST, now)
    assert core.wants_of("9") == ()
    assert len(core.remote) == 0
    # As if it had never been there.
    core.on_message(Links("9", 1, ()), TWO, FORGET_US)
    assert core.on_message(Wants("9", 1, (WIDE,)), TWO, FORGET_US) == []
    assert core.wants_of("9") == (WIDE,)


def test_nothing_is_kept_for_origins_that_headers_make_up():
    core = GeneralCore("1")
    core.on_message(LinkUp(), TWO, 0)
    core.on_message(Links("2", 1, (("1", 1),)), TWO, 0)
    core.on_message(Wants("2", 1, (WIDE,)), TWO, 0)
    for number in range(50):
        core.on_notifications([Routed(Notification({"x": 1}), OriginHeader(1, f"made up {number}"))], TWO, 0)
    assert len(core.links._trees) + len(core.links._hops) <= 2


# --- room ---------------------------------------------------------------------------------------


def test_those_that_cannot_be_reached_make_room_first(monkeypatch):
    monkeypatch.setattr(link_states, "BROKERS_MAX", 6)
    monkeypatch.setattr(link_states, "ROOM_AT_ONCE", 1)
    states = linked(LinkStates("1"))
    states.heard(Links("old", 1, ()), TWO, 0)
    states.on_timer(CHECK_TIMER, 1)
    states.heard(Links("new", 1, ()), TWO, 2)
    states.heard(Links("two's", 1, (("2", 1),)), TWO, 3)
    states.heard(Links("2", 2, (("1", 1), ("two's", 1))), TWO, 3)
    states.heard(Links("3's", 1, (("3", 1),)), THREE, 4)
    assert sorted(states.records) == ["1", "2", "3", "3's", "new", "two's"]


def test_who_makes_up_brokers_takes_no_place_from_others(monkeypatch):
    monkeypatch.setattr(link_states, "BROKERS_MAX", 12)
    monkeypatch.setattr(link_states, "ROOM_AT_ONCE", 2)
    states = linked(LinkStates("1"))
    names = [f"made up {number}" for number in range(20)]
    # All of them are beside 2, by the account of 2 and by their own.
    states.heard(Links("2", 2, (("1", 1), *((name, 1) for name in names))), TWO, 0)
    for name in names:
        assert states.heard(Links(name, 1, (("2", 1),)), TWO, 0) in ([], [Send(THREE, Links(name, 1, (("2", 1),)))])
    assert (len(states.records), states.dropped) == (12, 11)
    newcomers = ["a", "b", "c"]
    states.heard(Links("3", 2, (("1", 1), *((name, 1) for name in newcomers))), THREE, 0)
    for name in newcomers:
        states.heard(Links(name, 1, (("3", 1),)), THREE, 0)
    assert {"1", "2", "3", *newcomers} <= set(states.records)
    # A neighbor always finds room.
    states.up(Neighbor("4"), 1, 0)
    states.heard(Links("4", 1, (("1", 1),)), Neighbor("4"), 0)
    assert "4" in states.reached


def test_wants_of_those_that_cannot_be_reached_make_room_for_others(monkeypatch):
    monkeypatch.setattr(remote, "REMOTE_FILTERS_MAX", 2)
    core = GeneralCore("1")
    for neighbor in (TWO, THREE):
        core.on_message(LinkUp(), neighbor, 0)
        core.on_message(Links(neighbor.name, 1, (("1", 1),)), neighbor, 0)
    core.on_message(Links("9", 1, ()), TWO, 0)
    core.on_message(Wants("9", 1, (Filter("x = 1"), Filter("x = 2"))), TWO, 0)
    one_more = Wants("3", 1, (WIDE,))
    # It may have come a moment ago: perhaps the rest of it follows.
    (refused,) = core.on_message(one_more, THREE, 1)
    assert isinstance(refused, Refuse)
    core.on_message(TimerFired(CHECK_TIMER), HOST, CHECK_US)
    assert core.on_message(one_more, THREE, CHECK_US) == [Send(TWO, one_more)]
    assert (core.wants_of("9"), core.wants_of("3")) == ((), (WIDE,))


def test_a_neighbor_that_finds_no_room_is_told_so(monkeypatch):
    monkeypatch.setattr(link_states, "BROKERS_MAX", 3)
    states = linked(LinkStates("1"))
    states.up(Neighbor("4"), 1, 0)
    refused: Any
    (refused,) = states.heard(Links("4", 1, (("1", 1),)), Neighbor("4"), 0)
    assert isinstance(refused.error, LimitError)
    assert refused.error.limit == "BROKERS_MAX"
    # Those that are known may say more.
    assert states.heard(Links("2", 2, (("1", 2),)), TWO, 0)


# --- what others build on it --------------------------------------------------------------------


def test_registrations_are_taken_only_from_who_leads_to_their_broker(monkeypatch):
    core = CentralizedCore("0", "0")
    for neighbor in (TWO, THREE):
        core.on_message(LinkUp(), neighbor, 1)
        core.on_message(Links(neighbor.name, 5, (("0", 1),)), neighbor, 1)
    whole = (Subscribe("alice", "s", WIDE),)
    for false, source in (
        (Registration("9", 1, 1, True, whole), TWO),  # nobody knows it
        (Registration("2", 5, 1, True, whole), THREE),  # it is not behind this neighbor
        (Registration("2", 6, 1, True, whole), TWO),  # it has not stated so many links
    ):
        assert core.on_message(false, source, 1) == []
        assert core.registry.of(false.origin) == []
    core.on_message(Registration("2", 5, 1, True, whole), TWO, 1)
    assert core.registry.of("2") == [("alice", "s")]
    monkeypatch.setattr("catchment.routing.baselines.centralized.REMOTE_FILTERS_MAX", 1)
    refused: Any
    (refused,) = core.on_message(Registration("3", 5, 1, True, whole), THREE, 1)
    assert refused.error.limit == "REMOTE_FILTERS_MAX"
    # What it replaces needs no room.
    assert core.on_message(Registration("2", 5, 2, True, whole), TWO, 1) == []
    core.on_message(LinkDown(), TWO, 2)
    for now in range(CHECK_US, FORGET_US + 2 * CHECK_US, CHECK_US):
        core.on_message(TimerFired(CHECK_TIMER), HOST, now)
    assert (core.registry.of("2"), len(core.registry.matcher)) == ([], 0)


def test_a_port_of_a_gateway_forgets_too_and_tells_the_hub():
    core = HybridCore(
        "g", (Membership("north", "general", frozenset(("2", "3"))), Membership("south", "acyclic", frozenset(("4",))))
    )
    core.on_message(LinkUp(), Neighbor("4"), 0)
    timers = [action for action in core.on_message(LinkUp(), TWO, 0) if isinstance(action, SetTimer)]
    assert [timer.name for timer in timers] == [CHECK_TIMER]
    core.on_message(Links("2", 1, (("g", 1),)), TWO, 0)
    core.on_message(Wants("2", 1, (WIDE,)), TWO, 0)
    port = core.ports["north"]
    assert isinstance(port, GeneralCore)
    core.on_message(LinkDown(), TWO, 1)
    for now in range(CHECK_US, FORGET_US + 2 * CHECK_US, CHECK_US):
        core.on_message(TimerFired(CHECK_TIMER), HOST, now)
    assert sorted(port.links.records) == ["g"]
    assert port.wants_of("2") == ()


def test_what_is_remembered_of_filters_that_come_and_go_is_bounded(monkeypatch):
    monkeypatch.setattr(advertising, "OVERLAPS_KEPT_MAX", 10)
    core = advertising.AdvertisingCore("1")
    core.on_message(LinkUp(), TWO, 0)
    core.on_message(LinkUp(), THREE, 0)
    core.on_message(Advertised((), (Advertisement("x any"),)), THREE, 0)
    for number in range(100):
        filter = Filter(f"x = {number}")
        assert core.on_message(Interest((), (filter,)), TWO, 0) == [Send(THREE, Interest((), (filter,)))]
        assert core.on_message(Interest((filter,), ()), TWO, 0) == [Send(THREE, Interest((filter,), ()))]
    assert all(len(known) <= 10 for known in core._told_of.values())


def test_parts_that_were_not_delegated_and_filters_that_were_not_announced_change_nothing(monkeypatch):
    monkeypatch.setattr(remote, "REMOTE_FILTERS_MAX", 3)
    core = DelegatingCore("1")
    core.on_message(LinkUp(), TWO, 0)
    pattern = Pattern("[x = 1] -> [x = 2]")
    (refused,) = core.on_message(Part(pattern, ()), TWO, 0)
    assert isinstance(refused, Refuse)
    for message in (Interest((WIDE,), ()), Advertised((), ()), Delegated((), (), (pattern,))):
        assert not [action for action in core.on_message(message, TWO, 0) if isinstance(action, Refuse)]
    assert core.leftovers() == []
