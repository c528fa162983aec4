"""Gaps: what nodes tell each other and their clients of what may be lost between brokers."""

from collections.abc import Callable, Sequence

import pytest

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.node import GapTimes, Node, gaps
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.messages import (
    HOPS_MOST,
    SECOND,
    Beat,
    Client,
    Gap,
    Header,
    LinkMessage,
    LinkReport,
    Neighbor,
    Parting,
    Routed,
    SetTimer,
)
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.general import GeneralCore
from catchment.sim.network import MILLISECOND
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Link, Topology, line
from tests.unit.test_node import Outlet

ALL = Filter("x any")
SETTLE = 100 * MILLISECOND
TIMES = GapTimes(settle_us=SETTLE, transit_us=50 * MILLISECOND)
BEAT = 20 * MILLISECOND


def simulated(topology: Topology, core: Callable[[str], object] = AcyclicCore) -> Simulation:
    """Alice at the last broker wants all that Bob publishes at the first."""
    simulation = Simulation(topology, core, beat_us=BEAT, gap_times=TIMES)  # type: ignore[arg-type]
    simulation.connect("alice", topology.brokers[-1])
    simulation.connect("bob", topology.brokers[0])
    simulation.subscribe("alice", "all", ALL)
    simulation.settle()
    simulation.advance(SECOND)
    return simulation


def published(simulation: Simulation) -> tuple[int, bool]:
    """Publishes: when, and whether it came."""
    alice, now = simulation.client("alice"), simulation.now
    before = len(alice.received)
    simulation.publish("bob", {"x": 1})
    simulation.settle()
    return now, len(alice.received) > before


def spans(simulation: Simulation, identity: str = "alice") -> list[tuple[int, int]]:
    return [(gap.since, gap.until) for gap in simulation.client(identity).gaps.values()]


def is_told(simulation: Simulation, time: int) -> bool:
    return any(since <= time and (not until or time <= until) for since, until in spans(simulation))


A, B, C, D = "0", "1", "2", "3"
LINE = line(4)


def test_the_line_is_as_these_tests_think():
    assert LINE.brokers == (A, B, C, D)


# --- what is told -------------------------------------------------------------------------------


def test_nobody_is_told_anything_while_nothing_fails():
    simulation = simulated(LINE)
    assert published(simulation)[1]
    simulation.advance(10 * SECOND)
    assert (spans(simulation), spans(simulation, "bob")) == ([], [])


def test_a_link_that_fails_is_a_gap_from_the_last_beat_until_all_is_known_again():
    simulation = simulated(LINE)
    cut_at = simulation.now
    simulation.cut(B, C)
    simulation.settle()
    # It is told at once, to those beyond the next broker too.
    ((since, until),) = spans(simulation)
    assert cut_at - BEAT - TIMES.transit_us - 10 * MILLISECOND <= since < cut_at
    assert until == 0
    simulation.advance(SECOND)
    time, came = published(simulation)
    assert not came
    assert is_told(simulation, time)
    healed_at = simulation.now
    simulation.heal(B, C)
    simulation.settle()
    ((_, until),) = spans(simulation)
    assert healed_at + SETTLE <= until <= healed_at + SETTLE + 10 * MILLISECOND
    simulation.advance(SECOND)
    assert published(simulation)[1]


def test_both_sides_of_a_link_are_told():
    simulation = simulated(LINE)
    simulation.subscribe("bob", "all", ALL)
    simulation.cut(B, C)
    simulation.settle()
    assert len(spans(simulation)) == len(spans(simulation, "bob")) == 1


def test_what_was_under_way_is_counted():
    simulation = simulated(LINE)
    for _ in range(3):
        simulation.publish("bob", {"x": 1})
    # The first link has carried them, the second has not.
    simulation.advance(MILLISECOND + 1)
    simulation.cut(B, C)
    simulation.advance(SECOND)
    simulation.heal(B, C)
    simulation.settle()
    assert [gap.missed for gap in simulation.client("alice").gaps.values()] == [3]


def test_a_gap_in_which_a_link_fails_twice_counts_both_or_says_that_it_does_not_know():
    simulation = simulated(LINE)
    for _ in range(2):
        simulation.publish("bob", {"x": 1})
        simulation.advance(MILLISECOND + 1)
        simulation.cut(B, C)
        simulation.advance(MILLISECOND)
        simulation.heal(B, C)
        # What alice wants has come back to the first broker; the gap is not over.
        simulation.advance(20 * MILLISECOND)
    assert [gap.missed for gap in simulation.client("alice").gaps.values()] == [2]
    simulation.crash(B)
    simulation.restart(B)
    simulation.advance(20 * MILLISECOND)
    simulation.cut(B, C)
    simulation.heal(B, C)
    simulation.advance(20 * MILLISECOND)
    assert [gap.missed for gap in simulation.client("alice").gaps.values()] == [None]


def test_a_link_that_failed_and_lost_nothing_says_so():
    simulation = simulated(LINE)
    assert published(simulation)[1]
    simulation.cut(B, C)
    simulation.heal(B, C)
    simulation.settle()
    assert [gap.missed for gap in simulation.client("alice").gaps.values()] == [0]


def test_a_relay_that_is_killed_is_a_gap_for_those_behind_it_though_it_knows_nothing_itself():
    simulation = simulated(LINE)
    simulation.crash(B)
    simulation.settle()
    lost_at, came = published(simulation)
    assert not came
    assert is_told(simulation, lost_at)
    # It is back for those behind it, and only much later for those before it.
    simulation.cut(A, B)
    simulation.restart(B)
    simulation.settle()
    simulation.advance(SECOND)
    lost_later, came = published(simulation)
    assert not came
    assert not is_told(simulation, lost_later)
    simulation.heal(A, B)
    simulation.settle()
    assert is_told(simulation, lost_later)
    assert all(gap.missed is None for gap in simulation.client("alice").gaps.values())


def test_what_a_broker_handles_before_all_know_what_is_wanted_is_told():
    """Its neighbor would not know: it has parted, alone, and come back."""
    simulation = simulated(LINE)
    node = simulation.nodes[A]
    assert node is not None
    node.part()
    simulation.settle()
    simulation.crash(A)
    simulation.settle()
    simulation.advance(SECOND)
    # Nothing can be missed: who could publish there is gone.
    assert spans(simulation) == []
    simulation.restart(A)
    # Before what alice wants has come there.
    time, came = published(simulation)
    assert not came
    assert is_told(simulation, time)


def test_a_clean_restart_of_a_broker_with_no_other_neighbor_is_no_gap():
    simulation = simulated(LINE)
    node = simulation.nodes[A]
    assert node is not None
    node.part()
    simulation.settle()
    simulation.crash(A)
    simulation.restart(A)
    simulation.settle()
    simulation.advance(SECOND)
    assert published(simulation)[1]
    assert spans(simulation) == []


def test_a_relay_that_parts_is_a_gap():
    simulation = simulated(LINE)
    node = simulation.nodes[B]
    assert node is not None
    node.part()
    simulation.settle()
    parted_at = simulation.now
    simulation.crash(B)
    simulation.settle()
    ((since, until),) = spans(simulation)
    assert parted_at - TIMES.transit_us - 10 * MILLISECOND <= since <= parted_at
    assert until == 0


def test_a_gap_that_could_not_be_passed_on_is_told_when_the_link_is_back():
    simulation = simulated(LINE)
    simulation.cut(A, B)
    simulation.settle()
    simulation.advance(SECOND)
    lost_at = simulation.now - SECOND // 2
    simulation.cut(C, D)
    simulation.heal(A, B)
    simulation.settle()
    simulation.advance(SECOND)
    (open_gap, *_) = (gap for gap in simulation.client("alice").gaps.values() if gap.link == (B, A))
    assert not open_gap.until
    simulation.heal(C, D)
    simulation.settle()
    assert is_told(simulation, lost_at)
    assert all(gap.until for gap in simulation.client("alice").gaps.values())


def test_where_there_is_another_way_a_gap_ends_though_the_link_does_not_come_back():
    ring = Topology((A, B, C, D), tuple(Link(str(end), str((end + 1) % 4)) for end in range(4)))
    simulation = simulated(ring, GeneralCore)
    cut_at = simulation.now
    simulation.cut(A, D)
    simulation.settle()
    assert all(until == 0 for _, until in spans(simulation))
    simulation.advance(SECOND)
    assert all(cut_at < until <= cut_at + 2 * SETTLE for _, until in spans(simulation))
    assert published(simulation)[1]
    # When it comes back, paths change again.
    simulation.heal(A, D)
    simulation.settle()
    assert is_told(simulation, simulation.now)


def test_a_flapping_link_is_one_gap_and_few_messages():
    simulation = simulated(LINE)
    told: list[Gap] = []
    alice = simulation.client("alice")
    node = simulation.nodes[D]
    assert node is not None
    state = node.clients[alice.interface]
    state.outlet = Outlet(gaps=told)
    for _ in range(500):
        simulation.cut(B, C)
        simulation.heal(B, C)
        simulation.settle()
    assert len({gap.id for gap in told}) == 1
    assert len(told) <= gaps.BURST + 10
    simulation.advance(5 * SECOND)
    # What was told last is how it is.
    assert told[-1].until
    assert published(simulation)[0] >= told[-1].until - SETTLE


# --- one node -----------------------------------------------------------------------------------

TWO, THREE = Neighbor("2"), Neighbor("3")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND
        self.timers: list[SetTimer] = []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(clock: Clock) -> Node:
    return Node("1", FloodingCore("1"), lambda: clock.now, clock.timers.append, 7)


def linked(node: Node, neighbor: Neighbor = TWO, incarnation: int = 20) -> Outlet:
    outlet = Outlet()
    node.link_up(neighbor, 1, outlet)
    node.link_told(neighbor, LinkReport(incarnation, 0, 0, 0))
    return outlet


def with_client(node: Node) -> Outlet:
    outlet = Outlet()
    node.client_up(Client("alice"), "alice", {}, outlet)
    return outlet


def batch(count: int, hops: int = 1) -> Sequence[Routed]:
    return [Routed(Notification({"x": i}), Header(hops)) for i in range(count)]


def gaps_of(messages: Sequence[LinkMessage]) -> list[Gap]:
    return [message for message in messages if isinstance(message, Gap)]


def test_a_link_begins_with_a_report_and_goes_on_with_beats(node: Node, clock: Clock):
    two = linked(node)
    assert two.told == [LinkReport(7, 0, 0, 0)]
    node.arrived(THREE if THREE in node.links else TWO, batch(2))
    node.link_told(TWO, Beat(clock.now, 2, 0))
    clock.now += 5
    node.beat()
    assert two.told[1:] == [Beat(clock.now, 0, clock.now - 5)]
    node.part()
    assert two.told[2:] == [Parting(clock.now, is_alone=True)]
    linked(node, THREE)
    node.part()
    assert two.told[3:] == [Parting(clock.now, is_alone=False)]
    # What both ends compare has no beats.
    assert (node.links[TWO].sent, node.links[TWO].heard) == (1, 2)


def test_only_the_first_report_on_a_link_counts(node: Node, clock: Clock):
    two, alice = linked(node), with_client(node)
    node.publish(Client("alice"), [Notification({"x": 1})])
    for incarnation in range(30, 40):
        node.link_told(TWO, LinkReport(incarnation, 7, 99, 0))
    assert (gaps_of(two.told), alice.gaps) == ([], [])


def test_a_beat_that_counts_more_than_came_shows_a_loss(node: Node, clock: Clock):
    linked(node)
    alice, three = with_client(node), linked(node, THREE)
    node.arrived(TWO, batch(3))
    clock.now += SECOND
    node.link_told(TWO, Beat(clock.now, 5, 0))
    assert [(gap.missed, gap.until) for gap in alice.gaps] == [(2, clock.now)]
    assert gaps_of(three.told) == alice.gaps
    # It is told once.
    node.link_told(TWO, Beat(clock.now, 5, 0))
    assert len(alice.gaps) == 1


def test_a_neighbor_that_was_started_again_hears_what_it_cannot_know(node: Node, clock: Clock):
    linked(node)
    node.link_told(TWO, Parting(clock.now, is_alone=True))
    with_client(node)
    node.link_down(TWO)
    # Nothing was handled, and it was alone: nothing is lost yet.
    two = linked(node, incarnation=21)
    assert gaps_of(two.told) == []
    up_at = clock.now
    clock.now += SECOND
    node.publish(Client("alice"), [Notification({"x": 1})])
    assert [(gap.since, gap.until) for gap in gaps_of(two.told)] == [(up_at, up_at + gaps.SETTLE_US)]
    # Handled while it was away.
    clock.now += 100 * SECOND
    node.link_told(TWO, Parting(clock.now, is_alone=True))
    node.link_down(TWO)
    down_at = clock.now
    clock.now += SECOND
    node.publish(Client("alice"), [Notification({"x": 1})])
    two = linked(node, incarnation=22)
    (gap,) = gaps_of(two.told)
    assert gap.since <= down_at
    assert gap.until == clock.now + gaps.SETTLE_US


def test_what_was_under_way_to_a_process_that_is_gone_is_told(node: Node, clock: Clock):
    linked(node)
    with_client(node)
    node.beat()
    echoed_at = clock.now
    node.link_told(TWO, Beat(clock.now, 0, clock.now))
    clock.now += 30 * SECOND
    node.publish(Client("alice"), [Notification({"x": 1})])
    clock.now += 30 * SECOND
    node.link_down(TWO)
    two = linked(node, incarnation=21)
    (gap,) = [gap for gap in gaps_of(two.told) if gap.link == ("1", "2") and gap.until]
    assert gap.since == echoed_at - gaps.TRANSIT_US


def test_a_process_that_is_young_tells_what_it_has_handled_without_a_link(node: Node, clock: Clock):
    with_client(node)
    started = clock.now
    clock.now += SECOND
    assert gaps_of(linked(node, THREE).told) == []
    node.publish(Client("alice"), [Notification({"x": 1})])
    (gap,) = gaps_of(linked(node).told)
    assert (gap.since, gap.until) == (started, clock.now + gaps.SETTLE_US)
    # Two networks that have been apart for long lose nothing when they are joined.
    clock.now += gaps.STARTING_US
    assert gaps_of(linked(node, Neighbor("4")).told) == []


def test_a_gap_is_passed_on_once_and_not_back(node: Node, clock: Clock):
    two, three, alice = linked(node), linked(node, THREE), with_client(node)
    gap = Gap("far/1/1", 1, ("far", "farther"), clock.now, 0)
    closed = Gap("far/1/1", 2, ("far", "farther"), clock.now, clock.now + 9)
    for message in (gap, gap, closed, gap):
        node.link_told(TWO, message)
        node.link_told(THREE, message)
    assert alice.gaps == [gap, closed]
    assert (gaps_of(two.told), gaps_of(three.told)) == ([], [gap, closed])
    # What lies within it is told already.
    node.link_told(THREE, Gap("near/1/1", 1, ("near", "far"), clock.now + 1, clock.now + 8))
    assert len(alice.gaps) == 2
    # One that comes later hears of it.
    assert gaps_of(linked(node, Neighbor("4")).told) == [closed]


@pytest.mark.parametrize(
    "gap",
    [
        Gap("x", 1, ("a", "b"), 10, 5),
        Gap("x", 1, ("a", "b"), 2**60, 2**60 + 1),
        Gap("x", 1, ("a", "b"), 2**60, 0),
    ],
)
def test_a_gap_that_makes_no_sense_is_dropped(node: Node, gap: Gap):
    linked(node)
    alice = with_client(node)
    node.link_told(TWO, gap)
    assert alice.gaps == []


def test_a_neighbor_that_tells_too_many_gaps_is_told_on_as_one(node: Node, clock: Clock):
    linked(node)
    alice = with_client(node)
    for i in range(1_000):
        node.link_told(TWO, Gap(f"x/{i}", 1, ("a", "b"), clock.now - i, clock.now + i))
    assert len(alice.gaps) == gaps.BURST
    clock.now = clock.timers[-1].at
    node.timer_fired(gaps.TIMER)
    last = alice.gaps[-1]
    assert (last.since, last.until) == (1_000 * SECOND - 999, 1_000 * SECOND + 999)
    assert len(alice.gaps) == gaps.BURST + 1
    assert len(node._gaps._known) <= gaps.KNOWN_MAX


def test_what_goes_in_circles_is_dropped_and_counted(node: Node):
    linked(node)
    three = linked(node, THREE)
    node.arrived(TWO, [*batch(2, HOPS_MOST + 1), *batch(1, HOPS_MOST)])
    assert node.totals.looped == 2
    assert [what for what in three.put if isinstance(what, tuple)] == [("forwarded", [0])]


def test_a_clock_that_is_wrong_at_the_other_end_makes_no_gap_longer_than_the_link(node: Node, clock: Clock):
    linked(node)
    alice, up_at = with_client(node), clock.now
    for wrong in (0, 2**60):
        clock.now += SECOND
        node.link_told(TWO, Beat(wrong, 0, 0))
        node.link_down(TWO)
        assert up_at - gaps.TRANSIT_US <= alice.gaps[-1].since <= clock.now
        linked(node)
