"""Gateways between units (SIENA §4.4): Figures 8 and 9 in small, message by message and on a simulated network.

The drawings are not in the text: the networks are of the kind that the prose describes.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.errors import InputError, RemoteProtocolError
from catchment.routing.messages import (
    PUBLISHED,
    Advertise,
    Client,
    Deliver,
    Forward,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
)
from catchment.routing.parts.link_states import Links
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.gateway import EVERYTHING, HybridCore, Membership
from catchment.routing.siena.messages import Advertised, Interest, OriginHeader, Wants, WantsChange
from catchment.routing.siena.settings import Kind
from catchment.sim.conformance.entries import ENTRIES
from catchment.sim.conformance.ideals.hybrid import hybrid_tables
from catchment.sim.hybrid import (
    HybridTopology,
    Plan,
    Unit,
    as_hybrid,
    clusters_in_acyclic,
    hierarchies_in_general,
    hybrid,
    random_hybrid,
)
from catchment.sim.scenarios.networks import network_named
from catchment.sim.scenarios.toml import scenario_from_toml
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Link, line, ring, star

WIDE, NARROW = Filter("x > 0"), Filter("x > 5")
ALICE = Client("alice")
IN, OUT = Neighbor("in"), Neighbor("out")
NUMBERS = count(1)


def gateway(inner: Kind, outer: Kind, master: str | None = None) -> HybridCore:
    """A gateway with one neighbor in each of two units, connected, after what it says to them at first."""
    core = HybridCore(
        "g", [Membership("i", inner, frozenset({"in"})), Membership("o", outer, frozenset({"out"}), master)]
    )
    for neighbor in (IN, OUT):
        core.on_message(LinkUp(), neighbor, 1)
        unit = inner if neighbor == IN else outer
        if unit == "general":
            core.on_message(Links(neighbor.name, 1, (("g", 1),)), neighbor, 1)
    return core


def published(core: HybridCore, source: Neighbor | Client, origin: str, **attributes: int) -> list[object]:
    """What follows from a notification that has come three links, or none; forwards as neighbor, origin and hops."""
    notification = Notification(attributes, source="p", seq=next(NUMBERS))
    actions = core.on_notifications([Routed(notification, OriginHeader(3, origin) if origin else PUBLISHED)], source, 2)
    return [_forwarded(action) if isinstance(action, Forward) else action for action in actions]


def _forwarded(action: Forward) -> tuple[Neighbor, str, int]:
    header = action.batch[0].header
    assert isinstance(header, OriginHeader)
    return action.interface, header.origin, header.hops


# --- Figure 8: a hierarchy, its root in a general network ----------------------------------------


def test_figure_8_interest_of_the_hierarchy_is_the_gateways_record_outside():
    core = gateway("hierarchical", "general")
    (told,) = core.on_message(Interest(announced=(WIDE,)), IN, 2)
    assert isinstance(told, Send)
    assert isinstance(told.message, WantsChange)
    assert (told.interface, told.message.origin, told.message.announced) == (OUT, "g", (WIDE,))
    # Covered by it: nothing to say.
    assert core.on_message(Subscribe("alice", "1", NARROW), ALICE, 3) == []


def test_figure_8_nothing_is_told_down():
    core = gateway("hierarchical", "general")
    assert core.on_message(Wants("out", 5, (WIDE,)), OUT, 2) == []
    assert core.on_message(Links("far", 5, (("out", 1),)), OUT, 2) == []


def test_figure_8_only_what_is_wanted_outside_leaves():
    core = gateway("hierarchical", "general")
    core.on_message(Wants("out", 5, (NARROW,)), OUT, 2)
    assert published(core, IN, "leaf", x=3) == []
    # In the general unit the gateway is its origin; the link inside is none.
    assert published(core, IN, "leaf", x=7) == [(OUT, "g", 4)]


def test_figure_8_what_comes_in_goes_to_those_who_want_it():
    core = gateway("hierarchical", "general")
    core.on_message(Interest(announced=(NARROW,)), IN, 2)
    core.on_message(Subscribe("alice", "1", WIDE), ALICE, 2)
    (delivered,) = published(core, OUT, "out", x=3)
    assert isinstance(delivered, Deliver)
    delivered, onward = published(core, OUT, "out", x=7)
    assert isinstance(delivered, Deliver)
    assert onward == (IN, "g", 4)


# --- Figure 9: a cluster with cycles, its gateway in an acyclic network ---------------------------


def test_figure_9_each_side_is_told_what_the_other_wants_in_its_own_words():
    core = gateway("general", "acyclic")
    assert core.on_message(Wants("in", 5, (NARROW,)), IN, 2) == [Send(OUT, Interest((), (NARROW,)))]
    (told,) = core.on_message(Interest(announced=(WIDE,)), OUT, 2)
    assert isinstance(told, Send)
    assert told.interface == IN
    assert isinstance(told.message, WantsChange)
    assert told.message.announced == (WIDE,)


def test_figure_9_the_roots_of_all_that_a_cluster_wants_leave_it():
    core = gateway("general", "acyclic")
    core.on_message(Links("in", 2, (("far", 1), ("g", 1))), IN, 2)
    core.on_message(Links("far", 2, (("in", 1),)), IN, 2)
    core.on_message(Wants("far", 2, (NARROW,)), IN, 2)
    assert core.on_message(Wants("in", 5, (WIDE,)), IN, 2) == [Send(OUT, Interest((NARROW,), (WIDE,)))]
    assert core.on_message(WantsChange("in", 6, 5, (WIDE,), ()), IN, 2) == [Send(OUT, Interest((WIDE,), (NARROW,)))]


def test_figure_9_the_clusters_own_protocol_stays_in_it():
    core = gateway("general", "acyclic")
    assert core.on_message(Links("far", 5, (("in", 1),)), IN, 2) == []
    assert core.on_message(Wants("far", 5, ()), IN, 2) == []
    (refused,) = core.on_message(Links("far", 5, ()), OUT, 2)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, RemoteProtocolError)


def test_figure_9_what_a_lost_part_of_the_cluster_wants_is_withdrawn_and_comes_back():
    core = gateway("general", "acyclic")
    core.on_message(Wants("in", 5, (WIDE,)), IN, 2)
    assert Send(OUT, Interest((WIDE,))) in core.on_message(LinkDown(), IN, 3)
    assert Send(OUT, Interest((), (WIDE,))) in core.on_message(LinkUp(), IN, 4)


def test_figure_9_only_what_is_wanted_leaves_the_cluster():
    core = gateway("general", "acyclic")
    core.on_message(Interest(announced=(NARROW,)), OUT, 2)
    assert published(core, IN, "in", x=3) == []
    assert published(core, IN, "in", x=7) == [(OUT, "g", 4)]
    # Nor does it come back.
    core.on_message(Wants("in", 5, (WIDE,)), IN, 2)
    assert published(core, IN, "in", x=8) == [(OUT, "g", 4)]


# --- other joints ---------------------------------------------------------------------------------


def test_below_a_master_the_gateway_asks_for_everything():
    core = gateway("acyclic", "hierarchical", master="out")
    port = core.ports["i"]
    assert isinstance(port, AcyclicCore)
    assert port.interest.told_to(IN) == (EVERYTHING,)
    assert published(core, IN, "leaf", x=1) == [(OUT, "g", 4)]
    # Interest goes up, and what comes down goes where it is wanted.
    assert core.on_message(Interest(announced=(NARROW,)), IN, 2) == [Send(OUT, Interest((), (NARROW,)))]
    assert published(core, OUT, "top", x=1) == []
    assert published(core, OUT, "top", x=7) == [(IN, "g", 4)]


def test_three_units_at_one_gateway():
    units = [Membership(f"u{i}", "acyclic", frozenset({str(i)})) for i in range(3)]
    core = HybridCore("g", units)
    for i in range(3):
        core.on_message(LinkUp(), Neighbor(str(i)), 0)
    told = core.on_message(Interest(announced=(WIDE,)), Neighbor("0"), 0)
    assert told == [Send(Neighbor(str(i)), Interest((), (WIDE,))) for i in (1, 2)]
    assert published(core, Neighbor("2"), "z", x=1) == [(Neighbor("0"), "g", 4)]


def test_advertisements_cross_and_draw_interest():
    core = gateway("advertising", "advertising")
    offer = Advertisement("x any")
    assert core.on_message(Interest(announced=(WIDE,)), IN, 2) == []
    assert core.on_message(Advertised(announced=(offer,)), OUT, 2) == [
        Send(IN, Advertised((), (offer,))),
        Send(OUT, Interest((), (WIDE,))),
    ]
    assert isinstance(published(core, ALICE, "", x=1)[0], Refuse)
    core.on_message(Advertise("p", offer), ALICE, 2)
    assert published(core, ALICE, "", x=1) == [(IN, "g", 1)]


def test_a_neighbor_of_no_unit_is_refused():
    core = gateway("acyclic", "acyclic")
    for actions in (core.on_message(LinkUp(), Neighbor("x"), 0), core.on_notifications([], Neighbor("x"), 0)):
        (refused,) = actions
        assert isinstance(refused, Refuse)
        assert "in no unit of g" in str(refused.error)


@pytest.mark.parametrize(
    ("memberships", "why"),
    [
        ([], "at least one"),
        ([Membership("u", "acyclic", frozenset("a")), Membership("u", "acyclic", frozenset("b"))], "different names"),
        ([Membership("u", "acyclic", frozenset("a")), Membership("v", "acyclic", frozenset("a"))], "one of its units"),
        ([Membership("u", "advertising", frozenset("a")), Membership("v", "general", frozenset("b"))], "advertisement"),
        ([Membership("u", "hierarchical", frozenset("a"), "b")], "master"),
        ([Membership("u", "acyclic", frozenset("a"), "a")], "master"),
        ([Membership("u", "acyclic", frozenset({"@a"}))], "does not begin with @"),
    ],
)
def test_memberships_that_cannot_be(memberships: list[Membership], why: str):
    with pytest.raises(InputError, match=why):
        HybridCore("g", memberships)


# --- on a network ---------------------------------------------------------------------------------


def simulated(topology: HybridTopology) -> Simulation:
    simulation = Simulation(topology, ENTRIES["siena hybrid"].make_core(topology))
    simulation.settle()
    return simulation


def carried(simulation: Simulation, unit: Unit) -> set[str]:
    """The kinds of messages on the links of a unit."""
    return {
        kind for way, kind, _ in simulation.traffic if way.sender.name in unit.brokers and way.receiver in unit.brokers
    }


@pytest.mark.parametrize("build", [hierarchies_in_general, clusters_in_acyclic])
def test_figures_8_and_9_each_unit_speaks_its_own_protocol(build: Callable[[int, int, int], HybridTopology]):
    topology = build(3, 4, 1)
    simulation = simulated(topology)
    for i, broker in enumerate(topology.brokers):
        simulation.connect(f"c{i}", broker)
        simulation.subscribe(f"c{i}", "1", Filter(f"x > {i}"))
    simulation.settle()
    for unit in topology.units:
        words = {"Links", "Wants", "WantsChange"} if unit.kind == "general" else {"Interest"}
        assert carried(simulation, unit) == words
    assert list(hybrid_tables(simulation)) == []


@pytest.mark.parametrize("build", [hierarchies_in_general, clusters_in_acyclic])
def test_figures_8_and_9_from_any_unit_to_any_other_once(build: Callable[[int, int, int], HybridTopology]):
    topology = build(3, 3, 2)
    simulation = simulated(topology)
    for i, broker in enumerate(topology.brokers):
        simulation.connect(f"c{i}", broker)
        simulation.subscribe(f"c{i}", "1", WIDE)
    simulation.settle()
    for i in range(len(topology.brokers)):
        simulation.publish(f"c{i}", {"x": 1})
    simulation.settle()
    assert {len(client.received) for client in simulation.clients.values()} == {len(topology.brokers)}


def test_figure_9_traffic_that_is_not_wanted_outside_stays_in_its_cluster():
    topology = clusters_in_acyclic(3, 4, 1)
    acyclic, cluster = topology.units[0], topology.units[1]
    simulation = simulated(topology)
    for i, broker in enumerate(cluster.brokers):
        simulation.connect(f"c{i}", broker)
        simulation.subscribe(f"c{i}", "1", WIDE)
    outside = topology.units[2].brokers[-1]
    simulation.connect("outside", outside)
    simulation.subscribe("outside", "1", NARROW)
    simulation.settle()
    simulation.publish("c1", {"x": 3})
    simulation.settle()
    assert "notifications" in carried(simulation, cluster)
    assert "notifications" not in carried(simulation, acyclic)
    simulation.publish("c1", {"x": 7})
    simulation.settle()
    assert "notifications" in carried(simulation, acyclic)
    assert "notifications" not in carried(simulation, topology.units[3])
    assert len(simulation.clients["outside"].received) == 1


def test_a_gateway_that_crashes_parts_its_units_until_it_is_back():
    topology = clusters_in_acyclic(2, 3, 1)
    near, far = topology.units[1].brokers, topology.units[2].brokers
    simulation = simulated(topology)
    simulation.connect("far", far[-1])
    simulation.subscribe("far", "1", WIDE)
    simulation.connect("near", near[-1])
    simulation.subscribe("near", "1", WIDE)
    simulation.connect("p", near[1])
    simulation.settle()
    for step, expected in (("crash", (1, 0)), ("restart", (2, 1))):
        getattr(simulation, step)(near[0])
        simulation.settle()
        simulation.publish("p", {"x": 1})
        simulation.settle()
        assert tuple(len(simulation.clients[client].received) for client in ("near", "far")) == expected
        assert list(hybrid_tables(simulation)) == []


# --- topologies -----------------------------------------------------------------------------------


def test_units_are_built_one_on_another():
    network = hybrid(
        [
            Plan("net", "acyclic", ring(3)),
            Plan("a", "hierarchical", star(3), "net.2"),
            Plan("b", "general", ring(3), "a.1"),
        ]
    )
    assert network.brokers == ("net.0", "net.1", "net.2", "a.1", "a.2", "b.1", "b.2")
    assert [(unit.brokers[0], unit.root) for unit in network.units] == [
        ("net.0", None),
        ("net.2", "net.2"),
        ("a.1", None),
    ]
    # The acyclic one has lost a link.
    assert len(network.links) == 2 + 2 + 3
    assert [membership.unit for membership in network.memberships()["net.2"]] == ["net", "a"]
    assert network.memberships()["a.1"][0].master == "net.2"


def test_random_hybrids_are_networks_of_their_seed():
    assert random_hybrid(3) == random_hybrid(3) != random_hybrid(4)
    assert len({unit.kind for seed in range(20) for unit in random_hybrid(seed).units}) == 3


def test_a_network_without_units_is_one():
    assert [unit.kind for unit in as_hybrid(ring(4)).units] == ["general"]


SQUARE = (Link("a", "b"), Link("b", "c"), Link("c", "d"), Link("a", "d"))


@pytest.mark.parametrize(
    ("units", "why"),
    [
        ([Unit("u", "acyclic", ("a", "b", "c")), Unit("v", "acyclic", ("c", "d", "a"))], "joined in a cycle"),
        ([Unit("u", "acyclic", ("a", "b")), Unit("u", "acyclic", ("b", "c", "d"))], "same name"),
        ([Unit("u", "acyclic", ("a", "b", "c", "d"))], "has a cycle"),
        ([Unit("u", "general", ("a", "b", "c"))], "in no unit"),
        ([Unit("u", "general", ("a", "b", "c", "d")), Unit("v", "advertising", ("d",))], "advertisement-based"),
        ([Unit("u", "general", ("a", "c"))], "not every broker can be reached"),
        ([Unit("u", "general", ("a", "b", "c", "d"), "a")], "root"),
        ([Unit("u", "hierarchical", ("a", "b"))], "root"),
        ([Unit("u", "pigeons", ("a", "b"))], "use one of"),  # type: ignore[arg-type]
    ],
)
def test_units_that_cannot_be(units: list[Unit], why: str):
    with pytest.raises(InputError, match=why):
        HybridTopology(("a", "b", "c", "d"), SQUARE, tuple(units))


@pytest.mark.parametrize(
    ("plans", "why"),
    [
        ([Plan("a", "acyclic", line(2)), Plan("b", "acyclic", line(2))], "gateway"),
        ([Plan("a", "acyclic", line(2)), Plan("b", "acyclic", line(2), "c.1")], "gateway"),
        ([Plan("a", "acyclic", line(2), root="a.1")], "only a hierarchy"),
        ([Plan("a", "hierarchical", line(2), root="b.1")], "root"),
    ],
)
def test_plans_that_cannot_be(plans: list[Plan], why: str):
    with pytest.raises(InputError, match=why):
        hybrid(plans)


# --- scenarios ------------------------------------------------------------------------------------

UNITS = """
routing = "siena hybrid"
[[units]]
name = "n"
kind = "general"
network = "ring 3"
[[units]]
name = "a"
kind = "hierarchical"
network = "tree 4"
gateway = "n.1"
root = "a.2"
"""


def test_a_scenario_says_its_units(tmp_path: Path):
    (tmp_path / "s.toml").write_text(UNITS)
    scenario = scenario_from_toml(tmp_path / "s.toml")
    assert scenario.network == "hybrid of 2 units"
    topology = scenario.topology()
    assert isinstance(topology, HybridTopology)
    assert [unit.brokers for unit in topology.units] == [("n.0", "n.1", "n.2"), ("n.1", "a.1", "a.2", "a.3")]
    assert topology.memberships()["n.1"][1].master is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("general", "pigeons"), "pigeons"),
        (('"n.1"', '"n.7"'), "a broker of an earlier one"),
        (('"a.2"', '"a.9"'), "root"),
        (('routing = "siena hybrid"', 'network = "ring 4"'), "has a network, or units"),
        (("ring 3", "ring"), "needs a number"),
    ],
)
def test_scenarios_whose_units_cannot_be(tmp_path: Path, change: tuple[str, str], why: str):
    (tmp_path / "s.toml").write_text(UNITS.replace(*change))
    with pytest.raises(InputError, match=why):
        scenario_from_toml(tmp_path / "s.toml").topology()


@pytest.mark.parametrize("name", ["hierarchies-in-general 3x4", "clusters-in-acyclic 3x4"])
def test_hybrids_have_names(name: str):
    topology = network_named(name, 1, Path())
    assert isinstance(topology, HybridTopology)
    assert len(topology.units) == 4
    assert len(topology.brokers) == 3 + 3 * 3


def test_units_that_do_not_advertise_are_not_for_the_advertising_hybrid():
    with pytest.raises(InputError, match="advertising"):
        ENTRIES["siena hybrid advertising"].make_core(ring(3))
