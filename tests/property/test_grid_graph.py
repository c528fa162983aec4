"""The connectivity graph of a grid against all paths, tried one by one; its routing cache against a graph without."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import InputError
from catchment.routing.grid.graph import ConnectivityGraph, Edge, edge_between
from catchment.routing.grid.units import BLOCK_LIMIT, contains, free_context, link_level, seen_from

VERTEX = ("A", "c", "0")
NODES = (VERTEX, ("A", "c", "1"), ("A", "c", "2"), ("A", "b"), ("A", "d"), ("B",), ("C",))
EDGES = [edge_between(node, other) for i, node in enumerate(NODES) for other in NODES[i + 1 :]]
edge_sets = st.dictionaries(st.sampled_from(EDGES), st.integers(1, 4), max_size=14)


def level(node: tuple[str, ...]) -> int:
    return 3 - len(node)


def graph_of(costs: dict[Edge, int]) -> ConnectivityGraph:
    graph = ConnectivityGraph(VERTEX)
    graph.replace({edge: {("x", "y"): cost} for edge, cost in costs.items()})
    return graph


def best(costs: dict[Edge, int], node: tuple[str, ...]) -> tuple[int, ...] | None:
    """By trying all paths on which levels never fall: the least cost, the highest level first."""
    found = []
    others = [each for each in NODES if each not in (VERTEX, node)]
    for count in range(len(others) + 1):
        for between in permutations(others, count):
            path = (VERTEX, *between, node)
            steps = list(pairwise(path))
            if all(edge_between(*step) in costs and level(step[0]) <= level(step[1]) for step in steps):
                by_level = [0, 0, 0]
                for here, there in steps:
                    by_level[2 - max(level(here), level(there))] += costs[edge_between(here, there)]
                found.append(tuple(by_level))
    return min(found, default=None)


@given(edge_sets)
def test_routes_are_the_best_of_all_paths(costs):
    graph = graph_of(costs)
    for node in NODES[1:]:
        route = graph.route(node)
        assert (None if route is None else route.costs) == best(costs, node)
        if route is not None:
            assert edge_between(VERTEX, route.hop) in costs
            assert route.distance == sum(route.costs)
    assert set(graph.reached()) == {node for node in NODES[1:] if best(costs, node)}


@given(st.lists(edge_sets, min_size=2, max_size=4), st.sampled_from(NODES[1:]))
def test_the_cache_never_lies(states, asked):
    """Whatever changes, and whoever asks in between."""
    kept = ConnectivityGraph(VERTEX)
    for costs in states:
        kept.replace({edge: {("x", "y"): cost} for edge, cost in costs.items()})
        fresh = graph_of(costs)
        assert kept.route(asked) == fresh.route(asked)
        for node in kept.cached:
            assert kept.route(node) == fresh.route(node)
    assert {node: kept.route(node) for node in kept.reached()} == {node: fresh.route(node) for node in fresh.reached()}


@given(edge_sets, st.sampled_from(EDGES))
def test_routes_that_do_not_use_an_edge_survive_its_end(costs, gone):
    graph = graph_of(costs)
    before = {node: route for node in graph.reached() if (route := graph.route(node))}
    graph.replace({edge: {("x", "y"): cost} for edge, cost in costs.items() if edge != gone})
    using = {
        node
        for node, route in before.items()
        if gone in [edge_between(*step) for step in zip((VERTEX, *route.nodes), route.nodes, strict=False)]
    }
    assert set(graph.cached) == set(before) - (using if gone in costs else set())


paths = st.tuples(st.sampled_from("AB"), st.sampled_from("ab"), st.sampled_from("123"))


@given(paths, paths)
def test_two_brokers_see_each_other_at_the_level_of_their_link(one, other):
    seen = seen_from(other, one)
    if one == other:
        assert seen is None
    else:
        assert seen is not None
        assert contains(seen, other)
        assert not contains(seen, one)
        assert 3 - len(seen) == link_level(one, other) == link_level(other, one)


@given(st.sets(st.integers(1, BLOCK_LIMIT), max_size=BLOCK_LIMIT - 1), st.integers(1, 3))
def test_a_free_context_is_the_lowest_number_that_is_not_taken(numbers, length):
    context = ("1",) * length
    taken = {(*context[:-1], str(number)) for number in numbers}
    free = free_context(context, taken)
    assert free[:-1] == context[:-1]
    assert free not in taken
    assert all(number in numbers for number in range(1, int(free[-1])))


def test_a_full_unit_gives_a_new_one_and_a_full_system_none():
    clusters = {("A", str(number)) for number in range(1, BLOCK_LIMIT + 1)}
    assert free_context(("A", "1"), clusters) == ("1", "1")
    assert free_context(("A", "1"), {*clusters, ("1", "7")}) == ("2", "1")
    with pytest.raises(InputError, match="all 4,096 places of the system are taken: it needs another level"):
        free_context(("1",), {(str(number),) for number in range(1, BLOCK_LIMIT + 1)})
