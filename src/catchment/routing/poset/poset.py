"""Filters ordered by covering, with their immediate relations: SIENA's poset (§5.2.1).

Theory of operation. A filter is *above* the filters that it covers. State: one node for each distinct filter, with the
set of its *immediate predecessors* (the least filters above it) and the set of its *immediate successors* (the greatest
filters below it); see `graph.py`. *Roots* have no predecessors. The edges are exactly the transitive reduction of
`covers`, so the roots tell what a broker forwards. Two filters that cover each other are one node, even if the objects
do not compare equal.

insert  The attribute index (`index.py`) finds all filters that cover the new one (set C) and all that it covers (set
        D). It asks `covers` only where columns of integers leave a doubt. The immediate predecessors of the new filter
        are those in C that have no other member of C below them; the immediate successors are those in D that have no
        other member of D above them. Edges from the former to the latter now go through the new node.
remove  Each predecessor of the removed node is linked to each successor that it does not reach in another way. Other
        ways can only lead up from the successor's other predecessors, so the edges tell, and no filter is compared.
search  For a filter that is a node, the edges are followed. For any other filter, the index is asked.

The paper's three cases of insertion are the `case` of the returned `Placement`. The paper walks the poset from its
roots to find a place; with many roots that is a linear search, so here the index replaces the walk. The same code
orders subscriptions and advertisements. Nodes carry nothing else: the routing core keeps who subscribed to a filter.
All results are in the order of insertion.

Where `covers` reaches a limit of the model and answers "no" wrongly, an edge may be missing. No edge is ever wrong.

A filter whose place takes too many steps to find is kept *apart*: it is a node without edges, which is in no
index, so later filters are not compared with it. To a broker it is a root: it is forwarded as it is. A search that
takes more than that finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import numpy as np

from catchment.model.advertisement import Advertisement
from catchment.model.box import Box
from catchment.model.budget import BudgetSpent, budget, charge, steps_used
from catchment.model.filter import Filter
from catchment.model.strings import UNDECIDED
from catchment.model.values import Value
from catchment.routing.poset.codes import member
from catchment.routing.poset.graph import Graph
from catchment.routing.poset.index import Candidates, Ids, Index, Row

K = TypeVar("K", Filter, Advertisement)

# Steps of about a microsecond (`model/budget.py`) that it may take to find what covers a filter.
PLACE_STEPS_MAX: Final = 2_000
# The same for what it covers: a wide filter that covers many others is rare, and saves more than it costs.
COVERED_STEPS_MAX: Final = 8_000
# What it takes to compare two filters that the index leaves in doubt, without what `covers` charges.
_COMPARED_STEPS: Final = 8
# Rows that the index rules out in a step: it compares columns of integers.
_ROWS_IN_A_STEP: Final = 64


class Case(StrEnum):
    """Where an inserted filter is placed (SIENA §5.2.1)."""

    ROOT = "root"
    EXISTING = "existing"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Placement(Generic[K]):
    """The result of an insertion. `filter` is the filter of the node: if the case is EXISTING, the one that was there
    before."""

    case: Case
    filter: K
    predecessors: tuple[K, ...]
    successors: tuple[K, ...]


class Poset(Generic[K]):
    """A poset of filters, or a poset of advertisements."""

    def __init__(self, filters: Iterable[K] = ()) -> None:
        # A node is a number, which is also its row in the index. The lists are by node.
        self._nodes: dict[K, int] = {}
        self._filters: list[K | None] = []
        self._samples: list[_Sample | None] = []
        self._sequence: list[int] = []  # in which order the nodes were inserted
        self._insertions = 0
        self._nodes_free: list[int] = []
        self._graph = Graph()
        self._index = Index()
        # Nodes that are in no index.
        self._apart: set[int] = set()
        # Pairs of filters that the index left in doubt, in all: each was compared with `covers`.
        self.compared = 0
        for filter in filters:
            self.insert(filter)

    # --- changes ---

    def insert(self, filter: K) -> Placement[K]:
        if (known := self._nodes.get(filter)) is not None:
            return self._placement(Case.EXISTING, known)
        try:
            row, above, below = self._place(filter)
        except BudgetSpent:
            node = self._new_node(filter)
            self._apart.add(node)
            self._graph.link(node, set(), set())
            return self._placement(Case.ROOT, node)
        # A node that covers the new filter and is covered by it says the same in other words.
        if (same := self._graph.shared(above, below)) is not None:
            self._index.release(row)
            return self._placement(Case.EXISTING, same)
        node = self._new_node(filter)
        self._index.add(node, row)
        self._graph.link(node, self._graph.least(above), self._graph.greatest(below))
        return self._placement(Case.BELOW if above.size else Case.ROOT, node)

    def _place(self, filter: K) -> tuple[Row, Ids, Ids]:
        """The row of a filter, the nodes that cover it, and the nodes that it covers; BudgetSpent if that takes too
        much."""
        row = self._row(filter)
        try:
            return row, self._coverers(filter, row), self._covered(filter, row)
        except BudgetSpent:
            self._index.release(row)
            raise

    def _row(self, filter: K) -> Row:
        with budget(PLACE_STEPS_MAX):
            charge(sum(1 + len(box.sets) for box in _boxes(filter)))
            return self._index.row(_boxes(filter))

    def _new_node(self, filter: K) -> int:
        if not self._nodes_free:
            self._nodes_free.append(len(self._filters))
            self._filters.append(None)
            self._samples.append(None)
            self._sequence.append(0)
        node = self._nodes_free.pop()
        self._insertions += 1
        self._nodes[filter], self._filters[node], self._sequence[node] = node, filter, self._insertions
        return node

    def remove(self, filter: K) -> None:
        """Takes a filter out; KeyError if it is not there."""
        node = self._node(filter)
        self._graph.unlink(node)
        # The filter of the node, not the given one, which may say the same in other words.
        stored = self._at(node)
        if node in self._apart:
            self._apart.remove(node)
        else:
            self._index.remove(node, _boxes(stored))
        del self._nodes[stored]
        self._filters[node] = self._samples[node] = None
        self._nodes_free.append(node)

    # --- what it holds ---

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[K]:
        return iter(self._nodes)

    def __contains__(self, filter: K) -> bool:
        return self._find(filter) is not None

    @property
    def apart(self) -> int:
        """How many filters are kept apart, because it takes too much to find their place."""
        return len(self._apart)

    @property
    def roots(self) -> tuple[K, ...]:
        """The filters that no other filter covers."""
        return tuple(filter for filter, node in self._nodes.items() if not self._graph.above[node])

    def predecessors(self, filter: K) -> tuple[K, ...]:
        """The immediate predecessors of a filter; KeyError if it is not there."""
        return self._in_order(self._graph.above[self._node(filter)])

    def successors(self, filter: K) -> tuple[K, ...]:
        """The immediate successors of a filter; KeyError if it is not there."""
        return self._in_order(self._graph.below[self._node(filter)])

    # --- search ---

    def covering(self, filter: K) -> tuple[K, ...]:
        """All filters here that cover a filter, which need not be here itself. If it is here, it is one of them."""
        if (node := self._nodes.get(filter)) is not None:
            return self._in_order(self._graph.ancestors({node}))
        return self._in_order(self._asked(filter, self._coverers).tolist())

    def covered(self, filter: K) -> tuple[K, ...]:
        """All filters here that a filter covers, which need not be here itself. If it is here, it is one of them."""
        if (node := self._nodes.get(filter)) is not None:
            return self._in_order(self._graph.descendants({node}))
        return self._in_order(self._asked(filter, self._covered).tolist())

    def _asked(self, filter: K, search: Callable[[K, Row], Ids]) -> Ids:
        """The nodes that a search finds for a filter that is no node; none past the budget."""
        try:
            row = self._row(filter)
        except BudgetSpent:
            return _NO_NODES
        try:
            return search(filter, row)
        except BudgetSpent:
            return _NO_NODES
        finally:
            self._index.release(row)

    def _coverers(self, filter: K, row: Row) -> Ids:
        """The nodes that cover a filter, which has this row; BudgetSpent past PLACE_STEPS_MAX."""
        until = steps_used() + PLACE_STEPS_MAX
        candidates = self._index.coverers(row)
        if not self._is_in_doubt(candidates, until):
            return candidates.sure
        sample = _sample(filter)
        return candidates.settled(_until(until, lambda node: _covers(self._at(node), filter, sample)))

    def _covered(self, filter: K, row: Row) -> Ids:
        """The nodes that a filter covers, which has this row; BudgetSpent past COVERED_STEPS_MAX."""
        until = steps_used() + COVERED_STEPS_MAX
        candidates = self._index.covered(row)
        if not self._is_in_doubt(candidates, until):
            return candidates.sure
        return candidates.settled(_until(until, lambda node: _covers(filter, self._at(node), self._sample_at(node))))

    def _is_in_doubt(self, candidates: Candidates, until: int) -> bool:
        """Whether some candidates must be compared. BudgetSpent if they are too many, before the first is."""
        count = candidates.doubtful.size
        charge(1 + candidates.sure.size // _ROWS_IN_A_STEP)
        if steps_used() + count * _COMPARED_STEPS > until:
            raise BudgetSpent
        self.compared += count
        return bool(count)

    def _sample_at(self, node: int) -> _Sample | None:
        sample = self._samples[node]
        if sample is None:
            sample = self._samples[node] = _sample(self._at(node))
        return sample

    def _find(self, filter: K) -> int | None:
        """The node of a filter, or of a filter that says the same."""
        if (node := self._nodes.get(filter)) is not None:
            return node
        return self._graph.shared(self._asked(filter, self._coverers), self._asked(filter, self._covered))

    def _node(self, filter: K) -> int:
        node = self._find(filter)
        if node is None:
            raise KeyError(filter)
        return node

    def _at(self, node: int) -> K:
        filter = self._filters[node]
        assert filter is not None
        return filter

    def _in_order(self, nodes: Iterable[int]) -> tuple[K, ...]:
        return tuple(map(self._at, sorted(nodes, key=self._sequence.__getitem__)))

    def _placement(self, case: Case, node: int) -> Placement[K]:
        graph = self._graph
        return Placement(case, self._at(node), self._in_order(graph.above[node]), self._in_order(graph.below[node]))


# --- filters and advertisements alike -----------------------------------------------------------

_NO_NODES: Final[Ids] = np.empty(0, np.int32)


def _until(until: int, is_true: Callable[[int], bool]) -> Callable[[int], bool]:
    """The same question, with BudgetSpent once more steps are used. A question that has begun is answered: what it
    costs is bounded, and its answer is kept."""

    def asked(node: int) -> bool:
        charge(_COMPARED_STEPS)
        if steps_used() > until:
            raise BudgetSpent
        return is_true(node)

    return asked


# Values that a filter accepts, by attribute.
_Sample = dict[str, Value]


def _boxes(filter: Filter | Advertisement) -> Sequence[Box]:
    return filter.boxes if isinstance(filter, Filter) else (filter.box,)


def _sample(filter: Filter | Advertisement) -> _Sample | None:
    """A value that a filter accepts for each attribute that it names; None where such values are not known."""
    for box in _boxes(filter)[:1]:
        # An attribute that must be absent has no value (None) and is left out.
        sample = {name: value for name, values in box.sets.items() if (value := member(values)) is not None}
        return None if UNDECIDED in sample.values() else sample
    return None


def _covers(wider: K, narrower: K, sample: _Sample | None) -> bool:
    """Whether `wider` covers `narrower`. `sample` is accepted by `narrower`: if `wider` does not accept it, the answer
    is no, without asking `covers`, which may need automata."""
    if sample is not None and not any(box.contains(sample) for box in _boxes(wider)):
        return False
    return wider.covers(narrower)
