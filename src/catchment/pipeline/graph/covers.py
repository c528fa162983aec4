"""Which groups cover which, and which filters the hard ones cover: found by witnesses, never by comparing all with all.

Between two skeletons the match of a witness decides (`model/witness.py` has the proof). If one side is a hard filter, a
match only gives a candidate, and `covers` is asked about the pair. That takes longer, so the number of such pairs is
bounded. A filter is *above* another one if it covers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from catchment.matching import Matcher
from catchment.model import covering
from catchment.model.box import Box
from catchment.model.conjunction import box_of
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
# Pairs of groups that one task lists: 4 bytes each here, and 8 while they are sorted.
GROUP_PAIRS_MAX: Final = 100_000_000
# Pairs that one task asks `covers` about. One takes some 20 µs, and some 20 ms at the worst.
ASKED_PAIRS_MAX: Final = 2_000_000
# Witnesses matched at once: bounds the memory for their matches.
_CHUNK: Final = 20_000
# Skeletons whose boxes a worker remembers.
_KEPT_MAX: Final = 65_536


class TooManyPairs(Exception):  # noqa: N818 -- an answer, not anybody's error
    """A limit was passed; the argument is its name. The index is then compiled without a content graph."""


class PartMatcher(NamedTuple):
    """A matcher of the groups of one part, or of its hard filters. `base` is added to their numbers in the part to get
    their numbers among all parts."""

    matcher: Matcher
    base: int
    part: Part


class Lists(NamedTuple):
    """A list of numbers for each row: that of row i is `values[starts[i]:starts[i + 1]]`, in rising order."""

    starts: Array
    values: Array

    @classmethod
    def of(cls, count: int, rows: Array, values: Array) -> Lists:
        """The lists of so many rows, from pairs of a row and a value."""
        order = np.lexsort((values, rows))
        starts = np.zeros(count + 1, I64)
        np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
        return cls(starts, values[order].astype(I32))


class Pairs:
    """Collects pairs of a row and a value. Raises TooManyPairs past a limit."""

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
        rows, values = (np.concatenate([np.zeros(0, I32), *arrays]) for arrays in (self._rows, self._values))
        return Lists.of(count, rows, values)


# --- candidates ---------------------------------------------------------------------------------


def _candidates(
    owners: Array, witnesses: Sequence[Attributes], matchers: Sequence[PartMatcher]
) -> Iterator[tuple[Array, Array]]:
    """Pairs of an owner and a group or filter that matches all witnesses of the owner. `owners` has the owner of each
    witness; the witnesses of an owner stand together."""
    if not len(witnesses):
        return
    witness_counts = np.bincount(owners)
    for part_matcher in matchers:
        if not len(part_matcher.matcher):
            continue
        matches = part_matcher.matcher.match_batch(witnesses)
        # A pair as one number, the owner in its upper half: pairs can then be counted by sorting numbers.
        pairs = np.repeat(owners, matches.counts) << 32 | matches.user_ids.astype(I64)
        if witness_counts.max() > 1:
            pairs, counts = np.unique(pairs, return_counts=True)
            pairs = pairs[counts == witness_counts[pairs >> 32]]
        yield pairs >> 32, (pairs & 0xFFFFFFFF) + part_matcher.base


def _chunks(count: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, count)) for first in range(0, count, size))


# --- groups that cover --------------------------------------------------------------------------


def groups_above(part: Part, base: int, matchers: Sequence[PartMatcher], junk: str | None) -> Lists:
    """For each group of a part, all other groups with a shape that cover its skeleton. `junk` is a character that
    occurs in no filter; without one a witness decides nothing, and `covers` is asked about every pair."""
    pairs, asked = Pairs(GROUP_PAIRS_MAX, "GROUP_PAIRS_MAX"), Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX")
    soft = np.flatnonzero(part.arrays["is_hard"] == 0)
    for places in _chunks(len(soft), _CHUNK):
        groups = soft[places.start : places.stop]
        texts = part.skeletons.take(groups).to_pylist()
        witnesses = [skeleton_witness(skeleton_of(text), junk or JUNK[0]) for text in texts]
        for rows, above in _candidates(np.arange(len(groups)), witnesses, matchers):
            is_covering = above != groups[rows] + base
            if junk is None:
                asked.add(rows[is_covering], above[is_covering])
                is_covering &= _is_skeleton_covering(rows, above, [(_skeleton_box(text),) for text in texts], matchers)
            pairs.add(groups[rows[is_covering]], above[is_covering])
    _add_above_hard(part, matchers, pairs, asked)
    return pairs.lists(part.groups)


def _add_above_hard(part: Part, matchers: Sequence[PartMatcher], pairs: Pairs, asked: Pairs) -> None:
    """Adds the groups that cover hard filters."""
    for filters, owners, witnesses in _hard_witnesses(part):
        for rows, above in _candidates(owners, witnesses, matchers):
            asked.add(rows, above)
            boxes = [boxes_at(part, filter) for filter in filters]
            is_covering = _is_skeleton_covering(rows, above, boxes, matchers)
            pairs.add(part.group_of[np.asarray(filters)[rows[is_covering]]], above[is_covering])


def _hard_witnesses(part: Part) -> Iterator[tuple[list[int], Array, list[Attributes]]]:
    """Chunks of hard filters: the filters, and their witnesses, each with the place of its filter in the chunk."""
    numbers = hard_filters(part)
    for places in _chunks(len(numbers), _CHUNK):
        filters = numbers[places.start : places.stop]
        yield filters, *_flat([corners(boxes_at(part, filter)) for filter in filters])


def _flat(witnesses: Sequence[Sequence[Attributes]]) -> tuple[Array, list[Attributes]]:
    """The witnesses of several owners in one list, and the owner of each."""
    owners = np.repeat(np.arange(len(witnesses)), list(map(len, witnesses)))
    return owners, [witness for of_owner in witnesses for witness in of_owner]


def boxes_at(part: Part, filter: int) -> tuple[Box, ...]:
    """The boxes of a filter by its number in a part."""
    return boxes_of(part.table["filter"][filter].as_py(), part.table["dialect"][filter].as_py())


@lru_cache(_KEPT_MAX)
def _skeleton_box(text: str) -> Box:
    return box_of(skeleton_constraints(skeleton_of(text)))


def _is_skeleton_covering(
    rows: Array, above: Array, boxes: Sequence[Sequence[Box]], matchers: Sequence[PartMatcher]
) -> Array:
    """For each pair of a row and a group, whether the skeleton of the group covers the boxes of the row."""
    bases = np.array([part_matcher.base for part_matcher in matchers])
    is_covering = np.zeros(len(rows), bool)
    for i, (row, group) in enumerate(_pairs_of(rows, above)):
        owner = matchers[int(np.searchsorted(bases, group, side="right")) - 1]
        skeleton = owner.part.skeletons[group - owner.base].as_py()
        is_covering[i] = covering.covers((_skeleton_box(skeleton),), boxes[row])
    return is_covering


# --- hard filters that cover --------------------------------------------------------------------


def hard_above(part: Part, base: int, matchers: Sequence[PartMatcher], junk: str | None) -> Lists:
    """For each filter of a part, all other hard filters that cover it."""
    pairs, asked = Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX"), Pairs(ASKED_PAIRS_MAX, "ASKED_PAIRS_MAX")
    if any(len(part_matcher.matcher) for part_matcher in matchers):
        bases = np.array([part_matcher.base for part_matcher in matchers])
        for first, owners, witnesses in _all_witnesses(part, junk or JUNK[0]):
            for rows, above in _candidates(owners, witnesses, matchers):
                is_other = above != rows + first + base
                asked.add(rows[is_other], above[is_other])
                filters, candidates = rows[is_other] + first, above[is_other]
                is_covering = np.array(
                    [_is_above(*pair, part, bases, matchers) for pair in _pairs_of(filters, candidates)], bool
                )
                pairs.add(filters[is_covering], candidates[is_covering])
    return pairs.lists(part.filters)


def _pairs_of(rows: Array, above: Array) -> Iterator[tuple[int, int]]:
    return zip(rows.tolist(), above.tolist(), strict=True)


def _is_above(filter: int, above: int, part: Part, bases: Array, matchers: Sequence[PartMatcher]) -> bool:
    owner = matchers[int(np.searchsorted(bases, above, side="right")) - 1]
    return covering.covers(boxes_at(owner.part, above - owner.base), boxes_at(part, filter))


def _all_witnesses(part: Part, junk: str) -> Iterator[tuple[int, Array, list[Attributes]]]:
    """Chunks of all filters: the number of the first, and their witnesses, each with the place of its filter in the
    chunk."""
    for places in _chunks(part.filters, _CHUNK):
        yield places.start, *_flat([_corners(part, filter, int(part.group_of[filter]), junk) for filter in places])


def _corners(part: Part, filter: int, group: int, junk: str) -> Sequence[Attributes]:
    """The witnesses of a filter at the corners of its sets."""
    text = part.skeletons[group].as_py()
    if text.startswith(HARD):
        return corners(boxes_at(part, filter))
    return shape_corners(Shape(skeleton_of(text), _spans(part, filter, group)), junk)


def _spans(part: Part, filter: int, group: int) -> tuple[tuple[str, str, int, int], ...]:
    arrays = part.arrays
    first, last = arrays["span_starts"][group : group + 2].tolist()
    start = int(part.bases[group] + 2 * (filter - part.firsts[group]) * (last - first))
    spans = []
    for place, span in enumerate(arrays["spans"][first:last].tolist()):
        kind, _, name = part.span_names[span].partition(":")
        low, high = arrays["points"][start + 2 * place : start + 2 * place + 2].tolist()
        spans.append((name, kind, low, -high))
    return tuple(spans)
