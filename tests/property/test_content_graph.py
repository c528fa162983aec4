"""Content graphs against enumeration: paths are covering, and a notification gets the lowest nodes that match."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.preprocessors import BreadthFirstPreprocessor, FilterKind, FilterPreprocessor
from tests import strategies as some

NUMBERS = list(some.SMALL_NUMBERS)
small = some.small_pair_filters
numbered = st.fixed_dictionaries({}, optional={name: st.sampled_from(NUMBERS) for name in "xy"})
small_notifications = numbered.map(Notification)
changes = st.lists(st.tuples(small, st.booleans()), max_size=12)


def reachable(graph: ContentGraph) -> set[tuple[int, int]]:
    """All pairs of nodes that a path joins, edge by edge."""
    pairs = {(node, child) for node in graph for child in graph.children[node]}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def sorted_in(preprocessor, script):
    """Adds each filter under the next number, or removes the first node that there is."""
    for node, (filter, removes) in enumerate(script, 1):
        if removes and len(preprocessor.graph):
            preprocessor.remove(min(preprocessor.graph))
        else:
            preprocessor.add(node, filter)
    return preprocessor


@given(changes)
def test_reachability_is_covering_and_edges_are_few(script):
    for preprocessor in (FilterPreprocessor(), BreadthFirstPreprocessor(FilterKind())):
        graph = sorted_in(preprocessor, script).graph
        filters = {node: preprocessor.subscription(node) for node in graph}
        pairs = {(a, b) for a in filters for b in filters if a != b and filters[a].covers(filters[b])}
        assert reachable(graph) == pairs
        # An edge beside a longer path would be one too many.
        edges = {(node, child) for node in graph for child in graph.children[node]}
        assert not {(a, c) for a, b in pairs for other, c in pairs if b == other} & edges
        assert all(graph.parents[child] >= {node} for node, child in edges)


@given(changes, st.lists(small_notifications, max_size=4))
def test_both_preprocessors_give_the_lowest_nodes_that_match(script, notifications):
    fast = sorted_in(FilterPreprocessor(), script)
    slow = sorted_in(BreadthFirstPreprocessor(FilterKind()), script)
    assert set(fast.graph) == set(slow.graph)
    for notification, nodes in zip(notifications, fast.nodes_for(notifications), strict=True):
        matching = {node for node in fast.graph if fast.subscription(node).matches(notification)}
        below = {a for a, b in reachable(fast.graph) if b in matching}
        assert nodes == tuple(sorted(matching - below))
    assert fast.nodes_for(notifications) == slow.nodes_for(notifications)


@given(changes, small)
def test_a_filter_is_found_by_what_it_means(script, filter):
    fast = sorted_in(FilterPreprocessor(), script)
    slow = sorted_in(BreadthFirstPreprocessor(FilterKind()), script)
    same = [node for node in fast.graph if fast.subscription(node).covers(filter)]
    same = [node for node in same if filter.covers(fast.subscription(node))]
    assert fast.find(filter) == slow.find(filter) == (same[0] if same else None)


@given(changes)
def test_order_downward_and_levels(script):
    graph = sorted_in(FilterPreprocessor(), script).graph
    pairs = reachable(graph)
    longest = dict.fromkeys(graph, 1)
    for _ in graph:
        longest = {node: 1 + max((longest[a] for a, b in pairs if b == node), default=0) for node in graph}
    assert graph.levels() == max(longest.values(), default=0)
    for node in graph:
        order = graph.downward(node)
        assert set(order) == {node} | {b for a, b in pairs if a == node}
        assert len(order) == len(set(order))
        assert all(order.index(a) < order.index(b) for a, b in pairs if a in order and b in order)


def test_circles_are_seen():
    graph = ContentGraph()
    graph.insert(1)
    graph.insert(2, [1])
    assert graph.contradicts(3, [2], [1])
    assert graph.contradicts(3, [3], [])
    assert graph.contradicts(1, [2], [])
    assert graph.contradicts(2, [], [1])
    assert not graph.contradicts(3, [1], [2])
    assert not graph.contradicts(3, [9], [8])


def test_a_node_that_means_the_same_is_the_same():
    fast = FilterPreprocessor()
    assert fast.add(1, Filter("x > 3 and x > 2")).node == 1
    assert fast.add(2, Filter("x > 3")).node == 1
    assert fast.add(3, Filter("x > 5")) == (3, (1,), ())
