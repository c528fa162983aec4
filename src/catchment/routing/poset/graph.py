"""The immediate relations of a poset: a directed acyclic graph that is its own transitive reduction.

Nodes are small integers that the caller chooses. Beside the sets of neighbors, a few predecessors of each
node are kept in columns: most questions about a large set of nodes are then answered for all of them at
once, and the sets are asked only for what is left.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

# Most nodes have fewer immediate predecessors; 4 bytes each.
NEAR: Final = 8
# So many nodes are asked one by one sooner than all at once.
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
        # False between uses. The last stands for no node, so that _NONE as an index finds False.
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
        """Puts a new node between others; edges from one side to the other now go through it."""
        self._make_room(node)
        self.above[node], self.below[node] = above, below
        for one in above:
            through = self.below[one] & below
            self.below[one] -= through
            self.below[one].add(node)
            for other in through:
                self.above[other].remove(one)
        for one in below:
            self.above[one].add(node)
        self._note_near(node, *below)

    def unlink(self, node: int) -> None:
        """Takes a node out; its predecessors are linked to those successors they reach on no other way."""
        above, below = self.above[node], self.below[node]
        self.above[node], self.below[node] = set(), set()
        for one in above:
            self.below[one].remove(node)
        for one in below:
            others = self.above[one]
            others.remove(node)
            fresh = self._leading_nowhere(above, others)
            others |= fresh
            for other in fresh:
                self.below[other].add(one)
        self._note_near(node, *below)

    def _leading_nowhere(self, sources: set[int], goals: set[int]) -> set[int]:
        """Those sources from which no edges lead to a goal, found upward from the goals."""
        left, seen, fresh = sources - goals, set(goals), goals
        while left and fresh:
            fresh = set[int]().union(*(self.above[node] for node in fresh)) - seen
            seen |= fresh
            left -= fresh
        return left

    def _note_near(self, *nodes: int) -> None:
        for node in nodes:
            near = list(islice(self.above[node], NEAR))
            self._near[:, node] = near + [_NONE] * (NEAR - len(near))

    # --- questions ---

    def shared(self, first: Nodes, second: Nodes) -> int | None:
        """A node that is in both, if there is one."""
        self._marks[first] = True
        found = second[self._marks[second]]
        self._marks[first] = False
        return int(found.min()) if found.size else None

    def least(self, nodes: Nodes) -> set[int]:
        """Those of an upward closed set that have none of it below them."""
        members = set(nodes.tolist())
        found = members
        if len(members) > FEW:
            near = self._near[:, nodes]
            self._marks[near] = True
            found = set(nodes[~self._marks[nodes]].tolist())
            self._marks[near] = False
        return {node for node in found if self.below[node].isdisjoint(members)}

    def greatest(self, nodes: Nodes) -> set[int]:
        """Those of a downward closed set that have none of it above them."""
        if nodes.size <= FEW:
            members = set(nodes.tolist())
            return {node for node in members if self.above[node].isdisjoint(members)}
        marks = self._marks
        marks[nodes] = True
        found = nodes[~marks[self._near[:, nodes]].any(axis=0)].tolist()
        kept = {node for node in found if len(self.above[node]) <= NEAR or not marks[list(self.above[node])].any()}
        marks[nodes] = False
        return kept

    def ancestors(self, nodes: set[int]) -> set[int]:
        """Some nodes and all above them."""
        return _closure(nodes, self.above)

    def descendants(self, nodes: set[int]) -> set[int]:
        """Some nodes and all below them."""
        return _closure(nodes, self.below)


def _closure(nodes: set[int], edges: list[set[int]]) -> set[int]:
    found, fresh = set(nodes), set(nodes)
    while fresh:
        fresh = set[int]().union(*(edges[node] for node in fresh)) - found
        found |= fresh
    return found
