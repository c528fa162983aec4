"""The immediate relations of a poset: a directed acyclic graph that is its own transitive reduction.

Nodes are small integers that the caller chooses. Besides the sets of immediate predecessors and successors of each
node, up to NEAR predecessors of each node are kept in columns. So most questions about a large set of nodes are
answered for all of them at once with array operations, and the sets are asked only about the few that are left.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

# Predecessors of a node that the columns hold, 4 bytes each: most nodes have fewer.
NEAR: Final = 8
# Up to so many nodes it is faster to ask one by one than to start array operations.
FEW: Final = 12
NODES_FIRST: Final = 64
_NONE: Final = -1

Nodes = npt.NDArray[np.int32]


class Graph:
    """Edges lead from `above` to `below`."""

    def __init__(self) -> None:
        self.above: list[set[int]] = []
        self.below: list[set[int]] = []
        self._near = np.full((NEAR, NODES_FIRST), _NONE, np.int32)
        # By node, and all False between uses. The last entry is for no node: _NONE, which is -1, as an index finds it.
        self._marks = np.zeros(NODES_FIRST + 1, np.bool_)

    def _make_room(self, node: int) -> None:
        while node >= len(self.above):
            self.above.append(set())
            self.below.append(set())
        if (size := self._near.shape[1]) <= node:
            more = np.full((NEAR, max(size, node + 1 - size)), _NONE, np.int32)
            self._near = np.concatenate([self._near, more], axis=1)
            self._marks = np.zeros(self._near.shape[1] + 1, np.bool_)

    # --- changes ---

    def link(self, node: int, above: set[int], below: set[int]) -> None:
        """Puts a new node between others. An edge from `above` to `below` now goes through the new node."""
        self._make_room(node)
        self.above[node], self.below[node] = above, below
        for predecessor in above:
            # These edges are no longer immediate: a way through the new node replaces them.
            shortcuts = self.below[predecessor] & below
            self.below[predecessor] -= shortcuts
            self.below[predecessor].add(node)
            for successor in shortcuts:
                self.above[successor].remove(predecessor)
        for successor in below:
            self.above[successor].add(node)
        self._note_near(node, *below)

    def unlink(self, node: int) -> None:
        """Takes a node out. Each of its predecessors is linked to those successors that it does not reach in another
        way."""
        above, below = self.above[node], self.below[node]
        self.above[node], self.below[node] = set(), set()
        for predecessor in above:
            self.below[predecessor].remove(node)
        for successor in below:
            predecessors = self.above[successor]
            predecessors.remove(node)
            cut_off = self._leading_nowhere(above, predecessors)
            # In place: this is the set that the graph keeps.
            predecessors |= cut_off
            for predecessor in cut_off:
                self.below[predecessor].add(successor)
        self._note_near(node, *below)

    def _leading_nowhere(self, sources: set[int], goals: set[int]) -> set[int]:
        """The sources that are not above any goal. Searches upward from the goals, level by level."""
        left, visited, level = sources - goals, set(goals), goals
        while left and level:
            level = set[int]().union(*(self.above[node] for node in level)) - visited
            visited |= level
            left -= level
        return left

    def _note_near(self, *nodes: int) -> None:
        """Writes the predecessors of nodes into the columns, up to NEAR of each."""
        for node in nodes:
            near = list(islice(self.above[node], NEAR))
            self._near[:, node] = near + [_NONE] * (NEAR - len(near))

    # --- questions ---

    def shared(self, first: Nodes, second: Nodes) -> int | None:
        """The least node that is in both sets; None if there is none."""
        self._marks[first] = True
        common = second[self._marks[second]]
        self._marks[first] = False
        return int(common.min()) if common.size else None

    def least(self, nodes: Nodes) -> set[int]:
        """The nodes of an upward closed set that have no other node of the set below them."""
        members = set(nodes.tolist())
        candidates = members
        if len(members) > FEW:
            # A node that is a predecessor of a member is not least. The columns show most of them at once.
            near = self._near[:, nodes]
            self._marks[near] = True
            candidates = set(nodes[~self._marks[nodes]].tolist())
            # This clears the entry for no node too, which empty columns have marked.
            self._marks[near] = False
        return {node for node in candidates if self.below[node].isdisjoint(members)}

    def greatest(self, nodes: Nodes) -> set[int]:
        """The nodes of a downward closed set that have no other node of the set above them."""
        if nodes.size <= FEW:
            members = set(nodes.tolist())
            return {node for node in members if self.above[node].isdisjoint(members)}
        marks = self._marks
        marks[nodes] = True
        # First by the predecessors in the columns. Then, for nodes that have more than fit there, by all of them.
        candidates = nodes[~marks[self._near[:, nodes]].any(axis=0)].tolist()
        kept = {node for node in candidates if len(self.above[node]) <= NEAR or not marks[list(self.above[node])].any()}
        marks[nodes] = False
        return kept

    def ancestors(self, nodes: set[int]) -> set[int]:
        """These nodes and all nodes above them."""
        return _closure(nodes, self.above)

    def descendants(self, nodes: set[int]) -> set[int]:
        """These nodes and all nodes below them."""
        return _closure(nodes, self.below)


def _closure(nodes: set[int], edges: list[set[int]]) -> set[int]:
    """These nodes and all that edges lead to from them, level by level."""
    reached, level = set(nodes), set(nodes)
    while level:
        level = set[int]().union(*(edges[node] for node in level)) - reached
        reached |= level
    return reached
