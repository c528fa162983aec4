"""Filters ordered by covering, with their immediate relations: SIENA's poset (§5.2.1).

Theory of operation. State: one node for each distinct filter, with the set of its immediate predecessors
(the least filters above it) and that of its immediate successors (`graph.py`); roots have none. The edges
are exactly the transitive reduction of `covers`, so what a broker forwards is read off the roots. Equal
filters are one node, also where two objects cover each other without comparing equal.

insert  All filters that cover the new one (C) and all that it covers (D) come from the attribute index
        (`index.py`), which asks `covers` only where columns of integers leave a doubt. The immediate
        predecessors are those of C that are above no other of C, the immediate successors dually;
        edges that led from the former to the latter now go through the new node.
remove  Each predecessor is linked to each successor that it does not reach on another way. The ways that
        are left lead up from the successor's other predecessors, so no filter is compared again.
search  Among the nodes, edges are followed; for a filter that is no node, the index is asked.

The paper's three cases of insertion are the `case` of the returned `Placement`. It walks the poset from
its roots to find a place; with many roots that is a linear search, so the index replaces the walk. The
same code orders subscriptions and advertisements. Nothing hangs on a node: who subscribed to a filter
is for the routing core to keep. Whatever is returned is in order of insertion.

Where `covers` reaches a limit of the model and answers "no" wrongly, an edge may be missing; none is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from catchment.model.box import Box
from catchment.model.filter import Advertisement, Filter
from catchment.model.strings import UNDECIDED
from catchment.model.values import Value
from catchment.routing.poset.codes import member
from catchment.routing.poset.graph import Graph
from catchment.routing.poset.index import Ids, Index, Row

K = TypeVar("K", Filter, Advertisement)


class Case(StrEnum):
    """Where an inserted filter came to be (SIENA §5.2.1)."""

    ROOT = "root"
    EXISTING = "existing"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Placement(Generic[K]):
    """The outcome of an insertion. `filter` is the node's, which was there first if the case is EXISTING."""

    case: Case
    filter: K
    predecessors: tuple[K, ...]
    successors: tuple[K, ...]


class Poset(Generic[K]):
    """A poset of filters, or one of advertisements."""

    def __init__(self, filters: Iterable[K] = ()) -> None:
        self._nodes: dict[K, int] = {}
        self._filters: list[K | None] = []  # by node, as the lists below
        self._samples: list[_Sample | None] = []
        self._sequence: list[int] = []  # when each came in
        self._insertions = 0
        self._nodes_free: list[int] = []
        self._graph = Graph()
        self._index = Index()
        # Pairs that the index left in doubt: how often one filter was compared with another, in all.
        self.compared = 0
        for filter in filters:
            self.insert(filter)

    # --- changes ---

    def insert(self, filter: K) -> Placement[K]:
        if (known := self._nodes.get(filter)) is not None:
            return self._placement(Case.EXISTING, known)
        row = self._index.row(_boxes(filter))
        above, below = self._coverers(filter, row), self._covered(filter, row)
        if (same := self._graph.shared(above, below)) is not None:
            self._index.release(row)
            return self._placement(Case.EXISTING, same)
        node = self._new_node(filter)
        self._index.add(node, row)
        self._graph.link(node, self._graph.least(above), self._graph.greatest(below))
        return self._placement(Case.BELOW if above.size else Case.ROOT, node)

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
        found = self._at(node)
        self._index.remove(node, _boxes(found))
        del self._nodes[found]
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
    def roots(self) -> tuple[K, ...]:
        """The filters that no other covers."""
        return tuple(filter for filter, node in self._nodes.items() if not self._graph.above[node])

    def predecessors(self, filter: K) -> tuple[K, ...]:
        """The immediate ones; KeyError if the filter is not there."""
        return self._in_order(self._graph.above[self._node(filter)])

    def successors(self, filter: K) -> tuple[K, ...]:
        """The immediate ones; KeyError if the filter is not there."""
        return self._in_order(self._graph.below[self._node(filter)])

    # --- search ---

    def covering(self, filter: K) -> tuple[K, ...]:
        """All that cover a filter, itself included if it is there."""
        if (node := self._nodes.get(filter)) is not None:
            return self._in_order(self._graph.ancestors({node}))
        return self._in_order(self._asked(filter, self._coverers).tolist())

    def covered(self, filter: K) -> tuple[K, ...]:
        """All that a filter covers, itself included if it is there."""
        if (node := self._nodes.get(filter)) is not None:
            return self._in_order(self._graph.descendants({node}))
        return self._in_order(self._asked(filter, self._covered).tolist())

    def _asked(self, filter: K, search: Callable[[K, Row], Ids]) -> Ids:
        row = self._index.row(_boxes(filter))
        found = search(filter, row)
        self._index.release(row)
        return found

    def _coverers(self, filter: K, row: Row) -> Ids:
        candidates = self._index.coverers(row)
        if not candidates.doubtful.size:
            return candidates.sure
        self.compared += candidates.doubtful.size
        sample = _sample(filter)
        return candidates.settled(lambda node: _covers(self._at(node), filter, sample))

    def _covered(self, filter: K, row: Row) -> Ids:
        candidates = self._index.covered(row)
        if not candidates.doubtful.size:
            return candidates.sure
        self.compared += candidates.doubtful.size
        return candidates.settled(lambda node: _covers(filter, self._at(node), self._sample_at(node)))

    def _sample_at(self, node: int) -> _Sample | None:
        sample = self._samples[node]
        if sample is None:
            sample = self._samples[node] = _sample(self._at(node))
        return sample

    def _find(self, filter: K) -> int | None:
        """The node of a filter, or of one that says the same."""
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

_Sample = dict[str, Value]


def _boxes(filter: Filter | Advertisement) -> Sequence[Box]:
    return filter.boxes if isinstance(filter, Filter) else (filter.box,)


def _sample(filter: Filter | Advertisement) -> _Sample | None:
    """Values that a filter accepts, as far as it names them; None where none are known."""
    for box in _boxes(filter)[:1]:
        found = {name: value for name, values in box.sets.items() if (value := member(values)) is not None}
        return None if UNDECIDED in found.values() else found
    return None


def _covers(wider: K, narrower: K, sample: _Sample | None) -> bool:
    """`covers`, but what the narrower accepts and the wider does not spares the question, which may need automata."""
    if sample is not None and not any(box.contains(sample) for box in _boxes(wider)):
        return False
    return wider.covers(narrower)
