"""Which groups cover which, and which hard filters cover what: looked up by witnesses, never all with all.

Between skeletons the lookup decides (`model/witness.py` has the proof). Whatever has a hard filter on either side is
then asked of `covers`, pair by pair, so those are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from catchment.matching import Matcher
from catchment.model import covering
from catchment.model.box import Box
from catchment.model.filter import box_of
from catchment.model.witness import (
    JUNK,
    Attributes,
    Shape,
    corners,
    shape_corners,
    skeleton_constraints,
    skeleton_witness,
)
from catchment.pipeline.graph.parts import HARD, Part, boxes_of, hard_filters, skeleton_of

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Pairs of groups listed by one task: 4 bytes each here, 8 where they are sorted.
GROUP_PAIRS_MAX: Final = 100_000_000
# Pairs that one task asks `covers` about, which takes it some 20 µs each, and some 20 ms at the worst.
ASKED_PAIRS_MAX: Final = 2_000_000
# Witnesses matched at once: bounds what their matches take.
_CHUNK: Final = 20_000
_KEPT_MAX: Final = 65_536


class TooManyPairs(Exception):  # noqa: N818 -- an answer, not an error of anybody
    """A limit was passed: which one."""


class Shard(NamedTuple):
    """A matcher of the groups, or hard filters, of one part, which are numbered from `base` among all."""

    matcher: Matcher
    base: int
    part: Part


class Lists(NamedTuple):
    """Rows of numbers: those of row i are `values[starts[i]:starts[i + 1]]`, rising."""

    starts: Array
    values: Array

    @classmethod
    def of(cls, count: int, rows: Array, values: Array) -> Lists:
        order = np.lexsort((values, rows))
        starts = np.zeros(count + 1, I64)
        np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
        return cls(starts, values[order].astype(I32))


class Pairs:
    """Pairs as they are found, as long as they are not too many."""

    def __init__(self, limit: int, name: str) -> None:
        self._rows: list[Array] = []
        self._values: list[Array] = []
        self._left, self._name = limit, name

    def add(self, rows: Array, values: Array) -> None:
        self._left -= len(rows)
        if self._left < 0:
            raise TooManyPairs(self._name)
        self._rows.append(rows.astype(I32))
        self._values.append(values.astype(I32))

    def lists(self, count: int) -> Lists:
        rows, values = (np.concatenate([np.zeros(0, I32), *found]) for found in (self._rows, self._values))
        return Lists.of(count, rows, values)


# --- looking up ---------------------------------------------------------------------------------


def _candidates(
    owners: Array, witnesses: Sequence[Attributes], shards: Sequence[Shard]
) -> Iterator[tuple[Array, Array]]:
    """Pairs (owner, number) where all witnesses of the owner are matched; an owner's witnesses stand together."""
    if not len(witnesses):
        return
    wanted = np.bincount(owners)
    for shard in shards:
        if not len(shard.matcher):
            continue
        found = shard.matcher.match_batch(witnesses)
        pairs = np.repeat(owners, found.counts) << 32 | found.user_ids.astype(I64)
        if wanted.max() > 1:
            pairs, counts = np.unique(pairs, return_counts=True)
            pairs = pairs[counts == wanted[pairs >> 32]]
        yield pairs >> 32, (pairs & 0xFFFFFFFF) + shard.base


def _chunks(count: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, count)) for first in range(0, count, size))


def groups_above(part: Part, base: int, shards: Sequence[Shard], junk: str | None) -> Lists:
    """For each group of a part, all groups with a shape that cover its skeleton, itself left out."""
    pairs, asked = Pairs(GROUP_PAIRS_MAX, "GROUP_PAIRS_MAX"), Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX")
    soft = np.flatnonzero(part.arrays["is_hard"] == 0)
    for places in _chunks(len(soft), _CHUNK):
        groups = soft[places.start : places.stop]
        texts = part.skeletons.take(groups).to_pylist()
        witnesses = [skeleton_witness(skeleton_of(text), junk or JUNK[0]) for text in texts]
        for rows, above in _candidates(np.arange(len(groups)), witnesses, shards):
            kept = above != groups[rows] + base
            if junk is None:
                asked.add(rows[kept], above[kept])
                kept &= _covering(rows, above, [(_skeleton_box(text),) for text in texts], shards)
            pairs.add(groups[rows[kept]], above[kept])
    _add_above_hard(part, shards, pairs, asked)
    return pairs.lists(part.groups)


def _add_above_hard(part: Part, shards: Sequence[Shard], pairs: Pairs, asked: Pairs) -> None:
    for filters, owners, witnesses in _hard_witnesses(part):
        for rows, above in _candidates(owners, witnesses, shards):
            asked.add(rows, above)
            kept = _covering(rows, above, [boxes_at(part, one) for one in filters], shards)
            pairs.add(part.group_of[np.asarray(filters)[rows[kept]]], above[kept])


def _hard_witnesses(part: Part) -> Iterator[tuple[list[int], Array, list[Attributes]]]:
    numbers = hard_filters(part)
    for places in _chunks(len(numbers), _CHUNK):
        filters = numbers[places.start : places.stop]
        found = [corners(boxes_at(part, one)) for one in filters]
        yield filters, *_flat(found)


def _flat(found: Sequence[Sequence[Attributes]]) -> tuple[Array, list[Attributes]]:
    return np.repeat(np.arange(len(found)), list(map(len, found))), [one for some in found for one in some]


def boxes_at(part: Part, filter: int) -> tuple[Box, ...]:
    return boxes_of(part.table["filter"][filter].as_py(), part.table["dialect"][filter].as_py())


@lru_cache(_KEPT_MAX)
def _skeleton_box(text: str) -> Box:
    return box_of(skeleton_constraints(skeleton_of(text)))


def _covering(rows: Array, above: Array, boxes: Sequence[Sequence[Box]], shards: Sequence[Shard]) -> Array:
    """Which of the skeletons cover their rows."""
    bases = np.array([shard.base for shard in shards])
    found = np.zeros(len(rows), bool)
    for i, (row, group) in enumerate(_both(rows, above)):
        shard = shards[int(np.searchsorted(bases, group, side="right")) - 1]
        skeleton = shard.part.skeletons[group - shard.base].as_py()
        found[i] = covering.covers((_skeleton_box(skeleton),), boxes[row])
    return found


# --- hard filters that cover --------------------------------------------------------------------


def hard_above(part: Part, base: int, shards: Sequence[Shard], junk: str | None) -> Lists:
    """For each filter of a part, all hard ones that cover it, itself left out."""
    pairs, asked = Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX"), Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX")
    if any(len(shard.matcher) for shard in shards):
        bases = np.array([shard.base for shard in shards])
        for first, owners, witnesses in _all_witnesses(part, junk or JUNK[0]):
            for rows, above in _candidates(owners, witnesses, shards):
                other = above != rows + first + base
                asked.add(rows[other], above[other])
                found = rows[other] + first, above[other]
                kept = np.array([_is_above(*pair, part, bases, shards) for pair in _both(*found)], bool)
                pairs.add(found[0][kept], found[1][kept])
    return pairs.lists(part.filters)


def _both(rows: Array, above: Array) -> Iterator[tuple[int, int]]:
    return zip(rows.tolist(), above.tolist(), strict=True)


def _is_above(filter: int, above: int, part: Part, bases: Array, shards: Sequence[Shard]) -> bool:
    shard = shards[int(np.searchsorted(bases, above, side="right")) - 1]
    return covering.covers(boxes_at(shard.part, above - shard.base), boxes_at(part, filter))


def _all_witnesses(part: Part, junk: str) -> Iterator[tuple[int, Array, list[Attributes]]]:
    """Corners of every filter, with the number of the first of them."""
    for places in _chunks(part.filters, _CHUNK):
        found = [_corners(part, one, int(part.group_of[one]), junk) for one in places]
        yield places.start, *_flat(found)


def _corners(part: Part, filter: int, group: int, junk: str) -> Sequence[Attributes]:
    text = part.skeletons[group].as_py()
    if text.startswith(HARD):
        return corners(boxes_at(part, filter))
    return shape_corners(Shape(skeleton_of(text), _spans(part, filter, group)), junk)


def _spans(part: Part, filter: int, group: int) -> tuple[tuple[str, str, int, int], ...]:
    arrays = part.arrays
    first, last = arrays["span_starts"][group : group + 2].tolist()
    start = int(part.bases[group] + 2 * (filter - part.firsts[group]) * (last - first))
    found = []
    for place, span in enumerate(arrays["spans"][first:last].tolist()):
        kind, _, name = part.span_names[span].partition(":")
        low, high = arrays["points"][start + 2 * place : start + 2 * place + 2].tolist()
        found.append((name, kind, low, -high))
    return tuple(found)
