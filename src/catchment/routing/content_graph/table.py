"""A notification forwarding table (F3 §3.4.5): one namespace at one router. It needs no core: benchmarks use it alone.

For each node of the table: its edges (`graph`), the neighbors that want it and when each said so last (`subscribers`),
when the router above last confirmed it (`confirmed_at`), and what the forwarder computes. Python's dictionaries are the
text's hash-table. One more subscriber is HERE, the broker's own clients together.

A node is *pending* while the router above owes its edges (§3.4.6). A neighbor that asked for edges of a pending node
has a mark (`marks`). A node that nobody wants any longer stays as a *ghost* until the router above has acknowledged
that: a set-up that crosses the unsubscription on its way may still name it.

subscribe     adds a neighbor to a node. `is_first` tells the router that it must subscribe above.
unsubscribe   takes it off. `is_last` tells the router that it must unsubscribe above.
set_up        the edges of a node have come. Tells which neighbors had asked for them.
set_up_for    what to tell a neighbor about a node: the lowest nodes above it and the highest below it, among those that
              *this neighbor* wants. (The text compares with all nodes above and below; then a neighbor would miss the
              edge to a node that has an unwanted one between.)
drop          takes a node out, with its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from catchment.routing.content_graph.forwarders import HERE, Forwarder, Output, Subscribers
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.messages import Neighbor, Time


class Edges(NamedTuple):
    """The parents and children of a node, among the nodes that somebody wants."""

    parents: tuple[int, ...]
    children: tuple[int, ...]


class ForwardingTable:
    """`owns_graph` is false where somebody else changes the graph: at a rendezvous point, or with stored graphs. Then a
    node is in the table's graph or it is not; it is never pending."""

    def __init__(
        self, forwarder: type[Forwarder], graph: ContentGraph | None = None, *, owns_graph: bool = True
    ) -> None:
        self.graph = ContentGraph() if graph is None else graph
        self.owns_graph = owns_graph
        self.subscribers: Subscribers = {}
        self.forwarder = forwarder(self.graph, self.subscribers)
        self.pending: set[int] = set()
        # By node: the neighbors that asked for its edges.
        self.marks: dict[int, set[Neighbor]] = {}
        self.confirmed_at: dict[int, Time] = {}
        # By neighbor: the nodes it wants, in order. The same as `subscribers`, the other way round.
        self._nodes: dict[Neighbor, dict[int, None]] = {}

    # --- questions ---

    def __contains__(self, node: int) -> bool:
        return node in self.subscribers or node in self.graph or node in self.pending

    def is_ready(self, node: int) -> bool:
        """Whether the edges of a node are known."""
        return node in self.graph and node not in self.pending

    def is_ghost(self, node: int) -> bool:
        return node in self and not self.subscribers.get(node)

    def nodes_of(self, neighbor: Neighbor) -> list[int]:
        """The nodes that a neighbor wants, sorted."""
        return sorted(self._nodes.get(neighbor, ()))

    def count_of(self, neighbor: Neighbor) -> int:
        return len(self._nodes.get(neighbor, ()))

    @property
    def wanted(self) -> list[int]:
        """All nodes that somebody wants, sorted."""
        return sorted(node for node, neighbors in self.subscribers.items() if neighbors)

    @property
    def neighbors(self) -> list[Neighbor]:
        """The neighbors that want something, sorted. HERE is one of them."""
        return sorted(self._nodes)

    def outputs(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        """Whom a notification with these nodes goes to, and which nodes its header names there."""
        return self.forwarder.outputs(nodes)

    def listed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        """The same for a header that names all nodes which cover the notification (§6.6): by subscribers alone."""
        neighbors = {neighbor for node in nodes for neighbor in self.subscribers.get(node, ())}
        return tuple((neighbor, nodes) for neighbor in sorted(neighbors))

    def wanted_here(self, nodes: Iterable[int]) -> list[int]:
        """The nodes at or above some nodes that our own clients want, sorted. Labels name only the lowest of them."""
        mine = self._nodes.get(HERE, {})
        return sorted(node for node in self.graph.at_or_above(nodes) if node in mine)

    # --- subscriptions ---

    def subscribe(self, node: int, neighbor: Neighbor, now: Time) -> bool:
        """Adds a subscriber. Returns whether it is the first of the node."""
        neighbors = self.subscribers.setdefault(node, {})
        is_first, is_new = not neighbors, neighbor not in neighbors
        neighbors[neighbor] = now
        self._nodes.setdefault(neighbor, {})[node] = None
        if is_new and node in self.graph:
            self.forwarder.subscribed(node, neighbor)
        elif is_new:
            self.forwarder.changed()
        return is_first

    def unsubscribe(self, node: int, neighbor: Neighbor) -> bool:
        """Takes a subscriber off. Returns whether it was the last of the node."""
        neighbors = self.subscribers.get(node, {})
        if neighbor not in neighbors:
            return False
        del neighbors[neighbor], self._nodes[neighbor][node]
        if not self._nodes[neighbor]:
            del self._nodes[neighbor]
        self.marks.get(node, set()).discard(neighbor)
        if not neighbors:
            del self.subscribers[node]
        if node in self.graph:
            self.forwarder.unsubscribed(node, neighbor)
        else:
            self.forwarder.changed()
        return not neighbors

    # --- nodes ---

    def add(self, node: int) -> None:
        """Puts a node without edges into the graph, for content lists."""
        if node not in self.graph:
            self._inserted(node, (), ())

    def set_up(self, node: int, parents: Iterable[int], children: Iterable[int]) -> None:
        """Puts a node into the graph, or adds edges to it if it is there."""
        if node not in self.graph:
            self._inserted(node, parents, children)
            return
        # Edges that paths replace already are left out.
        above = set(parents) - self.graph.ancestors([node])
        below = set(children) - self.graph.descendants([node])
        if above or below:
            self.graph.link(node, above, below)
            self.forwarder.linked(node)

    def _inserted(self, node: int, parents: Iterable[int], children: Iterable[int]) -> None:
        self.graph.insert(node, parents, children)
        self.noted(node)

    def noted(self, node: int) -> None:
        """A node has come into the graph, perhaps after its first subscribers."""
        # First as a node that nobody wants: `subscribed` then corrects the labels below for each subscriber.
        waiting = self.subscribers.pop(node, None)
        self.forwarder.inserted(node)
        if waiting is not None:
            self.subscribers[node] = waiting
            for neighbor in waiting:
                self.forwarder.subscribed(node, neighbor)

    def marked(self, node: int) -> list[Neighbor]:
        """The neighbors that asked for the edges of a node, sorted."""
        return sorted(self.marks.get(node, ()))

    def mark(self, node: int, neighbor: Neighbor) -> None:
        """A neighbor asks for the edges of a node."""
        self.marks.setdefault(node, set()).add(neighbor)

    def set_up_for(self, node: int, neighbor: Neighbor) -> Edges:
        """The edges of a node that a neighbor needs. Nodes that it has a mark on are left out: it does not know them
        yet, and their own set-up will name this one. Takes the neighbor's mark off."""
        wanted, marks = self._nodes.get(neighbor, {}), self.marks
        if node in marks:
            marks[node].discard(neighbor)
            if not marks[node]:
                del marks[node]

        def is_known(each: int) -> bool:
            return each in wanted and neighbor not in marks.get(each, ())

        above = _nearest(node, is_known, self.graph.parents)
        below = _nearest(node, is_known, self.graph.children)
        return Edges(tuple(sorted(self.graph.lowest(above))), tuple(sorted(self.graph.highest(below))))

    def drop(self, node: int) -> list[Neighbor]:
        """Takes a node out. Returns the neighbors that wanted it, sorted."""
        neighbors = sorted(self.subscribers.get(node, ()))
        for neighbor in neighbors:
            self.unsubscribe(node, neighbor)
        self.pending.discard(node)
        self.marks.pop(node, None)
        self.confirmed_at.pop(node, None)
        if self.owns_graph and node in self.graph:
            self.graph.remove(node)
            self.forwarder.removed(node)
        return neighbors

    def gone(self, node: int) -> None:
        """Somebody else has taken a node out of the graph, after `drop`."""
        self.forwarder.removed(node)

    # --- looking in ---

    @property
    def size(self) -> tuple[int, int, int]:
        """Nodes, edges, and ids in subscriber lists and labels: the parts of Appendix A.1."""
        ids = sum(len(label) for some in self.forwarder.labels.values() for label in some.values())
        return len(self.graph), self.graph.edges, sum(map(len, self.subscribers.values())) + ids


def _nearest(node: int, is_known: Callable[[int], bool], edges: dict[int, set[int]]) -> set[int]:
    """The known nodes that edges lead to from a node without passing another known one."""
    nearest, visited = set[int](), set[int]()
    level = edges[node]
    while level:
        visited |= level
        known = {each for each in level if is_known(each)}
        nearest |= known
        level = set[int]().union(*(edges[each] for each in level - known)) - visited
    return nearest
