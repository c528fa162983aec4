"""The four forwarders of F3 against enumeration, and against each other: random graphs, random subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from catchment.routing.content_graph.forwarders import FORWARDERS, Forwarder
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.messages import Neighbor

NEIGHBORS = [Neighbor(name) for name in "FGH"]
# A node is a set of letters; a wider node has more of them. So every family of sets is a partial order.
LETTERS = "abcde"
families = st.lists(st.frozensets(st.sampled_from(LETTERS), min_size=1), min_size=1, max_size=9, unique=True)
# What happens: a node, a neighbor, and whether it subscribes, unsubscribes, or the node goes and comes.
steps = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.sampled_from("++++-x")), max_size=25)


class Slow:
    """Sets and subscriptions; every answer by its definition."""

    def __init__(self) -> None:
        self.sets: dict[int, frozenset[str]] = {}
        self.wants: dict[Neighbor, set[int]] = {neighbor: set() for neighbor in NEIGHBORS}

    def above(self, node: int) -> set[int]:
        """All nodes that contain a node, itself included."""
        return {other for other, letters in self.sets.items() if letters >= self.sets[node]}

    def lowest(self, nodes: Iterable[int]) -> set[int]:
        some = set(nodes)
        return {node for node in some if not any(self.sets[other] < self.sets[node] for other in some)}

    def label(self, node: int, neighbor: Neighbor) -> set[int]:
        return {node} if node in self.wants[neighbor] else self.lowest(self.above(node) & self.wants[neighbor])


def place(slow: Slow, letters: frozenset[str]) -> tuple[set[int], set[int]]:
    """The nodes right above and right below a set."""
    wider = {node for node, other in slow.sets.items() if other > letters}
    narrower = {node for node, other in slow.sets.items() if other < letters}
    highest = {node for node in narrower if not any(slow.sets[node] < slow.sets[other] for other in narrower)}
    return slow.lowest(wider), highest


def played(forwarder: type[Forwarder], family, script) -> tuple[ForwardingTable, Slow]:
    table, slow = ForwardingTable(forwarder), Slow()
    for index, which, doing in script:
        node, neighbor = index % len(family) + 1, NEIGHBORS[which]
        if node not in slow.sets:
            parents, children = place(slow, family[node - 1])
            slow.sets[node] = family[node - 1]
            # Half of the subscriptions come before the node's edges are known.
            if doing == "+" and which:
                table.subscribe(node, neighbor, 0)
                slow.wants[neighbor].add(node)
            table.set_up(node, parents, children)
        if doing == "+":
            table.subscribe(node, neighbor, 0)
            slow.wants[neighbor].add(node)
        elif doing == "-":
            table.unsubscribe(node, neighbor)
            slow.wants[neighbor].discard(node)
        else:
            table.drop(node)
            del slow.sets[node]
            for wanted in slow.wants.values():
                wanted.discard(node)
    return table, slow


@given(families, steps)
def test_labels_are_what_the_two_rules_say(family, script):
    table, slow = played(FORWARDERS["labels"], family, script)
    for node in slow.sets:
        ideal = {neighbor: tuple(sorted(slow.label(node, neighbor))) for neighbor in NEIGHBORS}
        assert table.forwarder.labels[node] == {neighbor: label for neighbor, label in ideal.items() if label}
    assert set(table.graph) == set(slow.sets)


@given(families, steps, st.frozensets(st.sampled_from(LETTERS), max_size=2))
def test_all_forwarders_send_to_the_same_neighbors(family, script, content):
    """A notification is a set, too: it belongs to all nodes that contain it."""
    for name, forwarder in FORWARDERS.items():
        table, slow = played(forwarder, family, script)
        matching = {node for node, letters in slow.sets.items() if letters >= content}
        nodes = tuple(sorted(matching if forwarder.names_all else slow.lowest(matching)))
        outputs = dict(table.outputs(nodes))
        assert set(outputs) == {neighbor for neighbor, wanted in slow.wants.items() if wanted & matching}, name
        assert table.outputs(nodes) is table.outputs(nodes)
        for neighbor, header in outputs.items():
            wanted = slow.wants[neighbor] & matching
            if name == "minimal":
                assert set(header) == slow.lowest(wanted)
            elif name == "labels":
                # Of several nodes, each has its label: together they name at least the lowest.
                assert slow.lowest(wanted) <= set(header) <= wanted
            else:
                assert header == nodes
            # Whatever the header names, all that the neighbor wants is at or above it.
            above = {each for node in header for each in slow.above(node)}
            assert wanted <= above & slow.wants[neighbor]


@given(families, steps)
def test_set_ups_name_the_nearest_nodes_that_a_neighbor_wants(family, script):
    table, slow = played(FORWARDERS["labels"], family, script)
    for node, letters in slow.sets.items():
        for neighbor, wanted in slow.wants.items():
            wider = {each for each in wanted if slow.sets[each] > letters}
            narrower = {each for each in wanted if slow.sets[each] < letters}
            highest = {each for each in narrower if not any(slow.sets[each] < slow.sets[one] for one in narrower)}
            edges = table.set_up_for(node, neighbor)
            assert (set(edges.parents), set(edges.children)) == (slow.lowest(wider), highest)
