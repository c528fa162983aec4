"""What an index is built from: filters taken in, merged, chosen. Each distinct constraint and node is stored once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from catchment.matching.kernels import ids as kids
from catchment.matching.kernels import ingest as ki
from catchment.matching.kernels import nodes as kn
from catchment.matching.kernels.tables import OPEN_NODES_MAX

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# The least bytes of msgpack that a constraint with its field names takes, and a conjunction.
_CONSTRAINT_BYTES_MIN, _CONJUNCTION_BYTES_MIN = 24, 13


class Source(NamedTuple):
    """What an index is built from: filters as lists of conjunctions, and these as lists of constraints; or as
    expressions, whose nodes are shared."""

    blob: Array  # the constraints as msgpack, one after another
    starts: Array  # where each constraint starts in `blob`
    members: Array  # the constraints of all conjunctions, as numbers
    conjunction_starts: Array  # where each conjunction starts in `members`
    conjunctions: Array  # the conjunctions of all filters, as numbers
    filter_starts: Array  # where each filter starts in `conjunctions`
    roots: Array  # by filter: the root of its expression, -1 if it is a list of conjunctions
    node_kind: Array  # by node of the expressions, see `kernels/nodes.py`
    node_starts: Array  # where the children of each node start
    node_children: Array  # of a leaf its constraint, else nodes

    @property
    def size(self) -> int:
        return len(self.filter_starts) - 1


def slots_for(count: int) -> Array:
    """An empty hash table for so many entries."""
    return np.full(1 << max(3, (2 * count).bit_length()), -1, I32)


class _NodeTable:
    """The nodes of expressions while they are taken in: at most so many constraints occur in them."""

    def __init__(self, leaves: int) -> None:
        # An AND or OR has two parts at least, so there are fewer of them than leaves.
        self.kind, self.starts = np.empty(2 * leaves + 1, I32), np.zeros(2 * leaves + 2, I64)
        self.children, self.hashes = np.empty(4 * leaves + 2, I32), np.empty(2 * leaves + 1, I64)
        self.slots, self.used = slots_for(2 * leaves), np.zeros(2, I64)
        self.pending = np.empty(2 * leaves + 2, I32)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.kind, self.starts, self.children, self.hashes, self.slots, self.used

    def taken(self) -> tuple[Array, Array, Array]:
        nodes, children = int(self.used[kn.NODES]), int(self.used[kn.CHILDREN])
        return self.kind[:nodes].copy(), self.starts[: nodes + 1].copy(), self.children[:children].copy()


def ingested(buffer: Array, filters: int) -> Source:
    """Filters from a msgpack array of them."""
    most = len(buffer) // _CONSTRAINT_BYTES_MIN + 1
    blob, starts = np.empty(len(buffer) + 1, np.uint8), np.zeros(most + 1, I64)
    members, hashes = np.empty(most, I32), np.empty(most, I32)
    conjunction_starts = np.zeros(len(buffer) // _CONJUNCTION_BYTES_MIN + 2, I64)
    filter_starts, state = np.zeros(filters + 1, I64), np.zeros(8, I64)
    roots, nodes = np.full(filters, -1, I32), _NodeTable(most)
    frames = np.empty((OPEN_NODES_MAX, ki.FRAME_COLUMNS), I64)
    ki.ingest(
        buffer,
        blob,
        starts,
        hashes,
        slots_for(most),
        state,
        members,
        conjunction_starts,
        filter_starts,
        roots,
        nodes.pending,
        frames,
        *nodes.arrays,
    )
    count = int(state[ki.ALTERNATIVES])
    return Source(
        blob[: state[ki.BLOB]],
        starts[: state[ki.CONSTRAINTS] + 1],
        members[: state[ki.MEMBERS]],
        conjunction_starts[: count + 1],
        np.arange(count, dtype=I32),
        filter_starts,
        roots,
        *nodes.taken(),
    )


def chosen(source: Source, numbers: Array) -> Source:
    """Some filters of a source, in the given order; what only others use is left out."""
    sizes = np.diff(source.filter_starts)[numbers]
    filter_starts, conjunctions = np.zeros(len(numbers) + 1, I64), np.empty(int(sizes.sum()), I32)
    kids.gather_lists(source.conjunctions, source.filter_starts, numbers, conjunctions, filter_starts)
    used, conjunctions = _renumbered(conjunctions, len(source.conjunction_starts) - 1)
    sizes = np.diff(source.conjunction_starts)[used]
    conjunction_starts, members = np.zeros(len(used) + 1, I64), np.empty(int(sizes.sum()), I32)
    kids.gather_lists(source.members, source.conjunction_starts, used, members, conjunction_starts)
    roots, kind, node_starts, children = _chosen_nodes(source, source.roots[numbers])
    # The constraints of conjunctions and those of leaves, numbered together.
    is_leaf = np.repeat(kind == kn.LEAF, np.diff(node_starts))
    used, both = _renumbered(np.concatenate((members, children[is_leaf])), len(source.starts) - 1)
    members, children = both[: len(members)], children.copy()
    children[is_leaf] = both[len(members) :]
    sizes = np.diff(source.starts)[used]
    starts, blob = np.zeros(len(used) + 1, I64), np.empty(int(sizes.sum()), np.uint8)
    kids.gather_bytes(source.blob, source.starts, used, blob, starts)
    lists = (members, conjunction_starts, conjunctions, filter_starts)
    return Source(blob, starts, *lists, roots, kind, node_starts, children)


def _chosen_nodes(source: Source, roots: Array) -> tuple[Array, Array, Array, Array]:
    """Roots, and the nodes below them, with numbers of their own."""
    nodes = len(source.node_kind)
    is_used = np.zeros(nodes, I32)
    is_used[roots[roots >= 0]] = 1
    kn.mark_used(source.node_kind, source.node_starts, source.node_children, is_used)
    used, number_of = np.flatnonzero(is_used), (np.cumsum(is_used) - 1).astype(I32)
    sizes = np.diff(source.node_starts)[used]
    starts, children = np.zeros(len(used) + 1, I64), np.empty(int(sizes.sum()), I32)
    kids.gather_lists(source.node_children, source.node_starts, used, children, starts)
    kind = source.node_kind[used]
    is_leaf = np.repeat(kind == kn.LEAF, np.diff(starts))
    children[~is_leaf] = number_of[children[~is_leaf]]
    renumbered = np.where(roots >= 0, number_of[roots] if nodes else roots, -1).astype(I32)
    return renumbered, kind, starts, children


def _renumbered(values: Array, count: int) -> tuple[Array, Array]:
    """Which numbers below `count` occur among the values, and each value as its place among those."""
    is_used = np.zeros(count, bool)
    is_used[values] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[values].astype(I32)


def merged(sources: list[Source]) -> Source:
    """The filters of several sources, one after another; equal constraints and expressions become one."""
    most = sum(len(source.starts) - 1 for source in sources)
    blob = np.empty(sum(len(source.blob) for source in sources) + 1, np.uint8)
    starts, hashes, slots, state = np.zeros(most + 1, I64), np.empty(most, I32), slots_for(most), np.zeros(8, I64)
    nodes = _NodeTable(sum(len(source.node_children) for source in sources))
    members, conjunctions, ends, filter_ends, roots = [], [], [np.zeros(1, I64)], [np.zeros(1, I64)], []
    lists, listed, filtered = 0, 0, 0
    for source in sources:
        number_of = np.empty(len(source.starts) - 1, I32)
        ki.absorb(source.blob, source.starts, blob, starts, hashes, slots, state, number_of)
        node_of = np.empty(len(source.node_kind), I32)
        of_source = (source.node_kind, source.node_starts, source.node_children)
        kn.absorb_nodes(*of_source, number_of, nodes.pending, *nodes.arrays, node_of)  # type: ignore[call-arg]
        roots.append(np.where(source.roots >= 0, node_of[source.roots] if len(node_of) else source.roots, -1))
        members.append(number_of[source.members])
        conjunctions.append(source.conjunctions + I32(lists))
        ends.append(source.conjunction_starts[1:] + listed)
        filter_ends.append(source.filter_starts[1:] + filtered)
        lists, listed = lists + len(source.conjunction_starts) - 1, listed + len(source.members)
        filtered += len(source.conjunctions)
    return Source(
        blob[: state[ki.BLOB]],
        starts[: state[ki.CONSTRAINTS] + 1],
        np.concatenate(members),
        np.concatenate(ends),
        np.concatenate(conjunctions),
        np.concatenate(filter_ends),
        np.concatenate(roots).astype(I32),
        *nodes.taken(),
    )


def deduplicated(source: Source) -> Source:
    """The same filters with equal conjunctions stored once."""
    lists = len(source.conjunction_starts) - 1
    firsts, number_of = np.empty(lists, I64), np.empty(lists, I32)
    hashes = np.empty(lists, I64)
    count = ki.intern_lists(source.members, source.conjunction_starts, slots_for(lists), hashes, firsts, number_of)
    firsts = firsts[:count]
    starts, members = np.zeros(count + 1, I64), np.empty(len(source.members), I32)
    kids.gather_lists(source.members, source.conjunction_starts, firsts, members, starts)
    return source._replace(
        members=members[: starts[-1]].copy(),
        conjunction_starts=starts,
        conjunctions=number_of[source.conjunctions],
        blob=source.blob.copy(),
        starts=source.starts.copy(),
    )
