"""The growth laws of F3's Appendix A, counted: steps, not seconds.

n distinct subscriptions, i interfaces, s subscriptions of an interface, d the depth and e the degree of the graph."""

from __future__ import annotations

from itertools import product

import pytest

from catchment.routing.content_graph.forwarders import FORWARDERS
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.messages import Neighbor


def tree(forwarder: str, degree: int, depth: int) -> tuple[ForwardingTable, list[list[int]]]:
    """A graph that is a tree; its nodes level by level."""
    table = ForwardingTable(FORWARDERS[forwarder])
    levels, node = [[1]], 1
    table.set_up(1, (), ())
    for _ in range(depth - 1):
        levels.append([])
        for parent, _ in product(levels[-2], range(degree)):
            node += 1
            table.set_up(node, (parent,), ())
            levels[-1].append(node)
    return table, levels


def neighbors(count: int) -> list[Neighbor]:
    return [Neighbor(f"{i:03}") for i in range(count)]


@pytest.mark.parametrize("forwarder", FORWARDERS)
def test_a_notification_costs_the_same_however_many_subscriptions_there_are(forwarder: str):
    """A.4: a look-up and an output for each interface. Content lists and graphs look at d·e nodes."""
    visited = {}
    for subscriptions in (1, 50):
        table, levels = tree(forwarder, 3, 5)
        for i, node in enumerate((levels[2] + levels[3] + levels[4]) * subscriptions):
            table.subscribe(node, neighbors(10)[i % 10], 0)
        header = (1, 2, 5, 14, 41) if forwarder == "lists" else (41,)
        before = table.forwarder.visited
        table.outputs(header)
        visited[subscriptions] = table.forwarder.visited - before
        # And nothing at all the next time.
        table.outputs(header)
        assert table.forwarder.visited - before == visited[subscriptions]
    assert visited[1] == visited[50] == (1 if forwarder == "labels" else 5)


def test_a_subscription_costs_as_much_as_the_node_has_descendants():
    """A.2, A.6: d·e, not n."""
    table, levels = tree("labels", 2, 8)
    touched = []
    for level in (1, 4, 7):
        before = table.forwarder.touched
        table.subscribe(levels[level][0], Neighbor("x"), 0)
        table.unsubscribe(levels[level][0], Neighbor("x"))
        touched.append(table.forwarder.touched - before)
    # Twice the nodes of the tree below: 127, 15 and 1.
    assert touched == [2 * 127, 2 * 15, 2]


def test_a_set_up_costs_as_much_as_the_node_has_descendants():
    """A.3: a new leaf touches itself alone, wherever the graph is large."""
    table, levels = tree("labels", 2, 8)
    before = table.forwarder.touched
    table.set_up(9_999, (levels[7][0],), ())
    assert table.forwarder.touched - before == 1


def test_tables_grow_with_nodes_and_edges_and_not_with_equal_subscriptions():
    """A.1: n·e + i·s. Content lists have no edges."""
    sizes = {}
    for copies in (1, 100):
        table, levels = tree("labels", 3, 4)
        for _ in range(copies):
            for neighbor in neighbors(10):
                for node in (node for level in levels for node in level):
                    table.subscribe(node, neighbor, 0)
        sizes[copies] = table.size
    n = 1 + 3 + 9 + 27
    # All interfaces want all nodes, so each label is the node itself: subscribers and labels are i·s each.
    assert sizes[1] == sizes[100] == (n, n - 1, 2 * 10 * n)


def test_labels_grow_with_depth_where_few_subscribe():
    """A.1 for s much smaller than n: i·s·d·e, one label at each node below."""
    for depth in (3, 5, 7):
        table, _ = tree("labels", 2, depth)
        for neighbor in neighbors(4):
            table.subscribe(1, neighbor, 0)
        n = 2**depth - 1
        assert table.size == (n, n - 1, 4 + 4 * n)
