"""The worked examples of the Grid Event Service, with exact values. Figures 1 to 3 are rebuilt, as
`tests/grid_networks.py` says. Example 8, Figure 4, is in `property/test_grid_profiles.py`."""

from collections import Counter
from itertools import product

import pytest

from catchment.routing.grid.core import GridCore
from catchment.routing.grid.messages import Gateways, GridHeader, ProfileChange
from catchment.routing.grid.units import capacity, link_level
from catchment.routing.messages import Neighbor, Routed
from tests.grid_networks import (
    CLUSTER_A,
    CLUSTER_B,
    CLUSTER_C,
    FIVE,
    FOUR,
    SC_1,
    SC_2,
    SC_3,
    SIX,
    SSC_B,
    SSC_C,
    SSC_D,
    figure_2,
    grid,
)
from tests.wired_cores import Wired


def test_1_capacity():
    assert capacity(1) == 4_096
    assert capacity(3) == 16_777_216


@pytest.mark.parametrize(
    ("other", "level"), [("A.SC-1.c.4", 0), ("A.SC-1.b.1", 1), ("A.SC-2.k.1", 2), ("C.SC-7.p.1", 3)]
)
def test_2_levels_from_6(other: str, level: int):
    assert link_level(SIX, tuple(other.split("."))) == level
    assert link_level(tuple(other.split(".")), SIX) == level


# --- 3: Figure 1 --------------------------------------------------------------------------------

SUPER_CLUSTERS = {"A": 3, "B": 3, "C": 3, "D": 2}
# 26 clusters of three brokers in 11 super-clusters. SC-1 has three clusters, and links between them at 4 brokers.
CLUSTERS = (3, 2, 3, 2, 3, 2, 2, 3, 2, 2, 2)
# Triangles in A and C, two links in B, one in D.
TRIANGLE = ((0, 1), (1, 2), (2, 0))
LEVEL_2 = {"A": TRIANGLE, "B": TRIANGLE[:2], "C": TRIANGLE, "D": TRIANGLE[:1]}
LEVEL_3 = (("A", "B"), ("A", "C"), ("B", "C"), ("C", "D"), ("B", "D"), ("B", "D"))


def figure_1() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Gateways of level 2 and 3 have a broker of their own at each end: none serves two links of these levels."""
    contexts: dict[str, str] = {}
    links: list[tuple[str, str]] = []
    sizes = iter(CLUSTERS)
    # By super-cluster: its brokers, cluster by cluster.
    brokers: dict[tuple[str, int], list[list[str]]] = {}
    for above, count in SUPER_CLUSTERS.items():
        for number in range(count):
            clusters = [[f"{above}{number}{c}{i}" for i in range(3)] for c in range(next(sizes))]
            brokers[above, number] = clusters
            for c, cluster in enumerate(clusters):
                contexts.update(dict.fromkeys(cluster, f"{above}.SC-{number}.c{c}"))
                links += [(cluster[0], cluster[1]), (cluster[1], cluster[2])]
            links += [(clusters[c][1], clusters[c + 1][0]) for c in range(len(clusters) - 1)]
    free = {
        key: [broker for cluster in reversed(clusters) for broker in reversed(cluster)]
        for key, clusters in brokers.items()
    }
    for above, pairs in LEVEL_2.items():
        links += [(free[above, one].pop(0), free[above, other].pop(0)) for one, other in pairs]
    for first_above, second_above in LEVEL_3:
        ends = [max((len(free[key]), key) for key in free if key[0] == each)[1] for each in (first_above, second_above)]
        links.append((free[ends[0]].pop(0), free[ends[1]].pop(0)))
    return contexts, links


@pytest.fixture(scope="module")
def first() -> Wired:
    return grid(*figure_1())


def gatekeepers(network: Wired, level: int, within: tuple[str, ...] = ()) -> list[str]:
    cores: dict[str, GridCore] = network.cores
    return [
        name for name, core in cores.items() if core.path[: len(within)] == within and core.gateways.speaks_at(level)
    ]


def test_3_figure_1(first: Wired):
    paths = [core.path for core in first.cores.values()]
    assert [len({path[:length] for path in paths}) for length in (4, 3, 2, 1)] == [78, 26, 11, 4]
    assert Counter(above for above, _ in {path[:2] for path in paths}) == SUPER_CLUSTERS
    assert [len(gatekeepers(first, 2, (above,))) for above in "ABCD"] == [6, 4, 6, 2]
    assert len(gatekeepers(first, 3)) == 12
    assert len(gatekeepers(first, 1, ("A", "SC-0"))) == 4
    assert len(gatekeepers(first, 0)) == 78


def test_3_everybody_sees_the_whole_system_in_outline(first: Wired):
    for core in first.cores.values():
        levels = Counter(core.graph.level(unit) for unit in core.graph.reached())
        assert levels[0] == 2
        assert levels[3] == 3
        assert core.cut_off == []


# --- 4 to 6: Figures 2 and 3 --------------------------------------------------------------------


def test_4_a_connection_is_rewritten_where_it_leaves_a_unit():
    network = figure_2()
    six, b1 = network.cores["6"], network.cores["b1"]
    assert six.graph.link_count(FIVE, SC_2) == 1
    assert b1.graph.link_count(CLUSTER_C, SC_2) == 1
    assert b1.graph.link_count(FIVE, SC_2) == 0
    told = [(here, there, said) for here, there, said in network.said if isinstance(said, Gateways)]
    about = [
        (here, there, said.unit, gateway.to)
        for here, there, said in told
        for gateway in said.gateways
        if gateway.ends == ("5", "k1")
    ]
    assert ("5", "6", FIVE, SC_2) in about
    assert ("4", "b1", CLUSTER_C, SC_2) in about
    assert ("b1", "a1", CLUSTER_C, SC_2) in about
    # Within A alone: not over the gateways of level 3 in a and g.
    assert not [each for each in about if {each[0], each[1]} & {"B1", "C1"}]


def test_4_what_is_inside_a_cluster_never_leaves_it():
    network = figure_2()
    said = [(here, there) for here, there, said in network.said if isinstance(said, Gateways) and said.unit == SIX]
    assert {end for ends in said for end in ends} == {"4", "5", "6"}


def test_5_the_graph_at_6():
    graph = figure_2().cores["6"].graph
    assert graph.uplinks(SC_3) == {SC_2, CLUSTER_B}
    assert graph.downlinks(SC_3) == {SSC_B}
    assert graph.cost(CLUSTER_B, SC_3) == 3
    assert graph.link_count(SSC_B, SSC_D) == 2
    distances = {FOUR: 1, FIVE: 1, CLUSTER_B: 2, SC_2: 3, CLUSTER_A: 4, SC_3: 5, SSC_C: 8, SSC_B: 10, SSC_D: 14}
    assert {unit: graph.route(unit).distance for unit in graph.reached()} == distances
    assert {unit for unit in distances if graph.route(unit).hop == FIVE} == {FIVE, SC_2}
    assert {unit for unit in distances if graph.route(unit).hop == FOUR} == set(distances) - {FIVE, SC_2}


def test_6_the_link_from_c_to_b_is_cut():
    network = figure_2()
    core = network.cores["6"]
    graph = core.graph
    assert len(graph.reached()) == 9
    computed = graph.computed
    network.link_down("4", "b1")
    # Routes that do not use the link are still there.
    assert set(graph.cached) == {FOUR, FIVE, SC_2}
    assert graph.route(SC_2).distance == 3
    assert graph.computed == computed
    assert {unit: graph.route(unit).distance for unit in (SC_3, SSC_B, SSC_C, SSC_D)} == {
        SC_3: 7,
        SSC_B: 12,
        SSC_C: 18,
        SSC_D: 18,
    }
    assert {graph.route(unit).hop for unit in (SC_3, SSC_B, SSC_C, SSC_D)} == {FIVE}
    assert graph.route(CLUSTER_A) is None
    assert core.cut_off == [CLUSTER_A, CLUSTER_B]


def test_6_one_of_two_links_is_cut():
    network = figure_2()
    graph = network.cores["6"].graph
    before = {unit: graph.route(unit) for unit in graph.reached()}
    computed = graph.computed
    network.link_down("B2", "D1")
    assert graph.link_count(SSC_B, SSC_D) == 1
    assert {unit: graph.route(unit) for unit in graph.reached()} == before
    assert graph.computed == computed
    network.link_down("B1", "D1")
    assert graph.link_count(SSC_B, SSC_D) == 0
    assert SSC_D in graph.reached()


# --- 7: changes of profiles ---------------------------------------------------------------------


def seen_gatekeepers(core: GridCore, level: int) -> set[tuple[str, ...]]:
    """The nodes of a broker's own unit of the level that have an edge of this level."""
    graph, unit = core.graph, core.path[: len(core.path) - level]
    leaving = [edge for edge in graph.edges if max(map(graph.level, edge)) == level]
    return {node for edge in leaving for node in edge if node[: len(unit)] == unit}


def test_7_changes_go_to_the_gatekeepers_of_the_next_level():
    """The text names SC-2 too, so in its drawing SC-2 had a gateway of level 3; here it gets one."""
    network = figure_2(("D1", "k1"))
    assert seen_gatekeepers(network.cores["6"], 1) == {FOUR}
    assert seen_gatekeepers(network.cores["4"], 2) == {FIVE, CLUSTER_B}
    assert seen_gatekeepers(network.cores["5"], 3) == {CLUSTER_A, SC_2, SC_3}


def test_7_a_change_is_told_level_by_level():
    network = figure_2()
    network.said.clear()
    network.subscribe("6", "1", "x > 1")
    changes = [(here, there, said) for here, there, said in network.said if isinstance(said, ProfileChange)]
    units = {(said.unit, said.speaker) for _, _, said in changes}
    # 6 for itself, 4 for the cluster, 5 and b1 for the super-cluster, g1, a1 for A.
    assert units >= {(SIX, "6"), (CLUSTER_C, "4"), (SC_1, "5"), (SC_1, "b1"), (("A",), "g1"), (("A",), "a1")}
    # Each is one predicate, wherever it is counted.
    assert all(said.minus == () and [each.count for each in said.plus] == [1] for _, _, said in changes)
    for here, there, said in changes:
        assert not {here, there} & {"B1", "C1"} or said.unit in (("A",), ("B",), ("C",))
    wanting = {"4": SIX, "b1": CLUSTER_C, "g1": SC_1, "k1": SC_1}
    for broker, unit in wanting.items():
        assert list(network.cores[broker].profiles.of(unit).values()) == [1]
    assert network.cores["D1"].profiles.of(("A",)).keys() == {
        ("SC-1", next(iter(network.cores["k1"].profiles.of(SC_1)))[1])
    }


# --- 12: matching steps -------------------------------------------------------------------------


def test_12_from_a_to_b_there_are_four_matching_steps():
    """N = 3: the publisher's broker, the first broker of the super-cluster, of the cluster, and the client's."""
    contexts = {
        "p": "A.SC-1.c",
        "q": "A.SC-1.c",
        "e1": "B.SC-4.k",
        "e2": "B.SC-5.l",
        "e3": "B.SC-5.m",
        "r": "B.SC-5.m",
    }
    network = grid(contexts, [("p", "q"), ("e1", "q"), ("e1", "e2"), ("e2", "e3"), ("e3", "r")])
    network.subscribe("r", "1", "x > 1")
    before = {name: core.inspect().work.matched for name, core in network.cores.items()}
    network.publish("p", {"x": 2})
    matched = {name: core.inspect().work.matched - before[name] for name, core in network.cores.items()}
    assert network.delivered[-1][0] == "r"
    assert matched == {"p": 1, "q": 0, "e1": 0, "e2": 1, "e3": 1, "r": 1}
    network.publish("p", {"x": 0})
    assert len(network.copies) == 5


def test_only_units_with_an_interested_client_see_a_notification():
    network = grid(*figure_1())
    network.subscribe("B200", "1", "x = 1")
    network.subscribe("A110", "1", "x = 2")
    for value, wanting in ((1, {("A",), ("B",)}), (2, {("A",)}), (3, set())):
        network.copies.clear()
        network.publish("A000", {"x": value})
        assert {network.cores[there].path[:1] for _, there, _, _ in network.copies} <= wanting | {("A",)}
        assert bool(network.copies) == bool(wanting)
    # Whatever is published anywhere, no more than N + 1 brokers match it for a client.
    for publisher, value in product(("A000", "C110", "D001"), (1, 2)):
        before = sum(core.inspect().work.matched for core in network.cores.values())
        network.publish(publisher, {"x": value})
        assert sum(core.inspect().work.matched for core in network.cores.values()) - before <= 4


# --- §3.3 routing information -------------------------------------------------------------------


def test_the_first_broker_stamps_its_path_and_gateways_strip_what_is_below():
    network = figure_2()
    network.subscribe("k1", "1", "x > 1")
    network.publish("6", {"x": 2})
    (inside, outside) = [(here, there, routed.header) for here, there, routed, _ in network.copies]
    assert inside == ("6", "5", GridHeader(1, (SIX,), (SC_2,)))
    assert outside == ("5", "k1", GridHeader(2, (SC_1, (*SC_2, "k", "k1")), (SC_2,)))


def test_a_unit_that_has_a_notification_does_not_get_it_again():
    """A copy on a wrong way, from b for SC-2 by way of c, which has it."""
    network = figure_2()
    core = network.cores["4"]
    routed = network.publish("6", {"x": 0})
    header = GridHeader(3, (CLUSTER_B, FOUR), (CLUSTER_B,))
    assert core.on_notifications([Routed(routed, header)], Neighbor("6"), 1) == []
    header = GridHeader(3, (FOUR,), (CLUSTER_B,))
    (forward,) = core.on_notifications([Routed(routed, header)], Neighbor("6"), 1)
    assert forward.interface == Neighbor("b1")
