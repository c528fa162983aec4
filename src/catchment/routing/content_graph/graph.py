"""A content graph (F3 §3.3): node ids, and edges from wider nodes to narrower ones. It knows no content.

Invariant: if the set of notifications that node a stands for contains that of node b, a path leads from a to b. A path
never leads elsewhere. Edges are kept few: where a path a → v → b exists, there is no edge a → b beside it.

insert   A node comes between its parents and its children. Edges from the former to the latter now go through it.
link     A node that is here already gets further parents and children.
remove   Each parent of the node is linked to each of its children that it does not reach in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

# A graph with more nodes takes more memory than a broker has, some kilobytes for each with labels; and the numbers of
# all its nodes must fit into one message.
GRAPH_NODES_MAX: Final = 1_000_000


class ContentGraph:
    """`parents` and `children` have an entry for each node."""

    def __init__(self) -> None:
        self.parents: dict[int, set[int]] = {}
        self.children: dict[int, set[int]] = {}

    def __contains__(self, node: int) -> bool:
        return node in self.parents

    def __iter__(self) -> Iterator[int]:
        return iter(self.parents)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def edges(self) -> int:
        return sum(map(len, self.children.values()))

    # --- changes ---

    def insert(self, node: int, parents: Iterable[int] = (), children: Iterable[int] = ()) -> None:
        """Puts a new node between others, which must be here."""
        assert node not in self.parents, f"node {node} is in the graph already"
        self.parents[node], self.children[node] = set(), set()
        self.link(node, parents, children)

    def link(self, node: int, parents: Iterable[int], children: Iterable[int]) -> None:
        """Adds parents and children to a node. Edges that a path through the node replaces are taken out."""
        above, below = set(parents), set(children)
        for parent in above:
            shortcuts = self.children[parent] & below
            self.children[parent] -= shortcuts
            self.children[parent].add(node)
            for child in shortcuts:
                self.parents[child].remove(parent)
        for child in below:
            self.parents[child].add(node)
        self.parents[node] |= above
        self.children[node] |= below
        # Of a node that was here before, older edges may stand beside a longer path now.
        for parent in self.parents[node] - self.lowest(self.parents[node]):
            self._unlink(parent, node)
        for child in self.children[node] - self.highest(self.children[node]):
            self._unlink(node, child)

    def _unlink(self, parent: int, child: int) -> None:
        self.children[parent].remove(child)
        self.parents[child].remove(parent)

    def remove(self, node: int) -> None:
        """Takes a node out; KeyError if it is not there."""
        above, below = self.parents.pop(node), self.children.pop(node)
        for parent in above:
            self.children[parent].remove(node)
        # From all children first: the search below must not meet the node again.
        for child in below:
            self.parents[child].remove(node)
        for child in below:
            # A parent that is above another parent of the child reaches the child already.
            others = self.parents[child]
            cut_off = above - others - self.ancestors(others)
            self.parents[child] |= cut_off
            for parent in cut_off:
                self.children[parent].add(child)

    def contradicts(self, node: int, parents: Iterable[int], children: Iterable[int]) -> bool:
        """Whether these edges would make a circle. Of nodes that are not here nothing is known."""
        above, below = set(parents), set(children)
        above |= self.ancestors(above & self.parents.keys())
        own = self.ancestors({node} & self.parents.keys())
        return node in above or not below.isdisjoint({node, *above, *own})

    # --- questions ---

    def ancestors(self, nodes: Iterable[int]) -> set[int]:
        """All nodes above these; a node of these is one only if it is above another of them."""
        return _reached(nodes, self.parents)

    def descendants(self, nodes: Iterable[int]) -> set[int]:
        """All nodes below these; a node of these is one only if it is below another of them."""
        return _reached(nodes, self.children)

    def at_or_above(self, nodes: Iterable[int]) -> set[int]:
        """These nodes, as far as they are here, and all nodes above them: the text's superset graph."""
        here = {node for node in nodes if node in self.parents}
        return here | self.ancestors(here)

    def lowest(self, nodes: set[int]) -> set[int]:
        """The nodes of a set that have no other node of the set below them."""
        return {node for node in nodes if not self._meets(node, nodes, self.children)}

    def highest(self, nodes: set[int]) -> set[int]:
        """The nodes of a set that have no other node of the set above them."""
        return {node for node in nodes if not self._meets(node, nodes, self.parents)}

    def _meets(self, start: int, goals: set[int], edges: dict[int, set[int]]) -> bool:
        """Whether edges lead from a node to another one of the goals."""
        if len(goals) == 1:
            return False
        visited, level = set[int](), edges[start]
        while level:
            if not level.isdisjoint(goals):
                return True
            visited |= level
            level = set[int]().union(*(edges[node] for node in level)) - visited
        return False

    def downward(self, node: int) -> list[int]:
        """A node and all nodes below it, each after all of its parents that are among them (topological order)."""
        below = self.descendants([node])
        waiting = {each: len(self.parents[each] & below) + (node in self.parents[each]) for each in below}
        order, ready = [], [node]
        while ready:
            here = ready.pop()
            order.append(here)
            for child in sorted(self.children[here]):
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        return order

    def levels(self) -> int:
        """The number of nodes on the longest path. It takes time for each edge: for adaptive forwarding and studies."""
        longest: dict[int, int] = {}
        waiting = {node: len(parents) for node, parents in self.parents.items()}
        ready = [node for node, count in waiting.items() if not count]
        while ready:
            here = ready.pop()
            level = longest.setdefault(here, 1) + 1
            for child in self.children[here]:
                longest[child] = max(longest.get(child, 0), level)
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        return max(longest.values(), default=0)


def _reached(nodes: Iterable[int], edges: dict[int, set[int]]) -> set[int]:
    """All nodes that edges lead to from some nodes, level by level."""
    reached = set[int]()
    level = set[int]().union(*(edges[node] for node in nodes))
    while level:
        reached |= level
        level = set[int]().union(*(edges[node] for node in level)) - reached
    return reached
