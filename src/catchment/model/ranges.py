"""Sets over one ordered domain as sorted, disjoint, non-touching half-open ranges.

A range is `(low, high)`: every key k with low <= k < high. If `high` is None, the range has no upper end. No `low` is
below the least key of the domain. The form is canonical: equal sets are equal tuples. The same algebra serves integers
(numbers, times and booleans by their keys) and strings; the successor of a string in code point order is the string
with U+0000 appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", int, str)
Range = tuple[K, K | None]
Ranges = tuple[tuple[K, K | None], ...]


def _lesser(a: K | None, b: K | None) -> K | None:
    """The lesser of two upper ends; None stands for no end."""
    if a is None:
        return b
    return a if b is None or a <= b else b


def _reaches(high: K | None, low: K) -> bool:
    """Whether a range that ends at `high` overlaps or touches one that begins at `low` or later."""
    return high is None or high >= low


def contains(ranges: Ranges[K], key: K) -> bool:
    if len(ranges) == 1:
        low, high = ranges[0]
        return low <= key and (high is None or key < high)
    at = bisect_right(ranges, key, key=_low) - 1
    if at < 0:
        return False
    end = ranges[at][1]
    return end is None or key < end


def _low(part: tuple[K, K | None]) -> K:
    return part[0]


def union(parts: Iterable[Range[K]]) -> Ranges[K]:
    """The union of ranges, which may overlap and come in any order."""
    merged: list[tuple[K, K | None]] = []
    for low, high in sorted(parts, key=_low):
        if merged and _reaches(merged[-1][1], low):
            before_low, before = merged[-1]
            if before is not None and (high is None or high > before):
                merged[-1] = (before_low, high)
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(a: Ranges[K], b: Ranges[K]) -> Ranges[K]:
    common: list[tuple[K, K | None]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), _lesser(a[i][1], b[j][1])
        if high is None or low < high:
            common.append((low, high))
        # The range that ends first cannot meet any further range of the other set.
        if high == a[i][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def intersections(sets: Sequence[Ranges[K]]) -> Ranges[K]:
    """The intersection of several sets, two by two as in a tournament: so each range is read a few times only."""
    rest = list(sets)
    while len(rest) > 1:
        rest = [intersection(*rest[at : at + 2]) if at + 1 < len(rest) else rest[at] for at in range(0, len(rest), 2)]
    return rest[0]


def overlap(a: Ranges[K], b: Ranges[K]) -> bool:
    """Whether the intersection is not empty."""
    i = j = 0
    while i < len(a) and j < len(b):
        (a_low, a_high), (b_low, b_high) = a[i], b[j]
        if a_high is not None and a_high <= b_low:
            i += 1
        elif b_high is not None and b_high <= a_low:
            j += 1
        else:
            return True
    return False


def complement(ranges: Ranges[K], least: K) -> Ranges[K]:
    """The keys from `least` upwards that are not in `ranges`."""
    gaps: list[tuple[K, K | None]] = []
    start: K | None = least
    for low, high in ranges:
        assert start is not None
        if start < low:
            gaps.append((start, low))
        start = high
    if start is not None:
        gaps.append((start, None))
    return tuple(gaps)


def is_subset(a: Ranges[K], b: Ranges[K]) -> bool:
    if a == b or not a:
        return True
    j = 0
    for low, high in a:
        # Skips the ranges of b that end at or before `low`. Ranges never touch, so one range of b must hold all of
        # this range of a.
        while j < len(b) and not _ends_after(b[j], low):
            j += 1
        if j == len(b) or low < b[j][0]:
            return False
        end = b[j][1]
        if end is not None and (high is None or high > end):
            return False
    return True


def _ends_after(part: tuple[K, K | None], low: K) -> bool:
    return part[1] is None or low < part[1]
