"""Near misses: the subscriptions of a segment that fail to match by exactly one clause.

Every distinct constraint is matched as a filter of its own, by an index of constraints that is built on first
use. Then the failing constraints of each conjunction are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.matching.ids import Id, Ids
from catchment.matching.kernels import nodes as kn
from catchment.matching.kernels.tables import Entries
from catchment.matching.segment import Segment
from catchment.matching.source import Source

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64


def near_misses(segment: Segment, entries: Entries, version: int, limit: int) -> list[Id]:
    """The first ids, in sorted order, of subscriptions whose best alternative has exactly one failing constraint."""
    source = segment.source
    failing = np.ones(len(source.starts) - 1, I64)
    failing[_satisfied(segment, entries)] = 0
    in_conjunction = _sums(failing[source.members], source.conjunction_starts)
    fewest = np.full(segment.count, np.iinfo(I64).max)
    filled = np.flatnonzero(np.diff(source.filter_starts))
    if len(filled):
        fewest[filled] = np.minimum.reduceat(in_conjunction[source.conjunctions], source.filter_starts[filled])
    written = np.flatnonzero(source.roots >= 0)
    if len(written):
        in_node = np.zeros(len(source.node_kind), I64)
        kn.count_failing(source.node_kind, source.node_starts, source.node_children, failing, in_node)
        fewest[written] = in_node[source.roots[written]]
    near = np.flatnonzero(fewest == 1)
    if len(segment.died):
        near = near[segment.died[near] > version]
    return segment.ids.sorted(near)[:limit]


def _satisfied(segment: Segment, entries: Entries) -> Array:
    """The constraints that a notification satisfies."""
    index = segment.constraint_index or _constraint_index(segment)
    segment.constraint_index = index
    _, numbers = index.match(entries, 0, lambda _: {})
    return index.ids.objects(numbers).astype(I64)


def _constraint_index(segment: Segment) -> Segment:
    source = segment.source
    count = len(source.starts) - 1
    each, starts = np.arange(count, dtype=I32), np.arange(count + 1, dtype=I64)
    none = np.zeros(0, I32)
    alone = Source(
        source.blob, source.starts, each, starts, each, starts, np.full(count, -1, I32), none, np.zeros(1, I64), none
    )
    return Segment.built(alone, Ids.of(range(count)), np.full(count, -1, I64), {})


def _sums(values: Array, starts: Array) -> Array:
    """The sum of each list of values; list i goes from `starts[i]` to `starts[i + 1]`."""
    total = np.zeros(len(values) + 1, I64)
    np.cumsum(values, out=total[1:])
    sums: Array = total[starts[1:]] - total[starts[:-1]]
    return sums
