"""Sets over one ordered domain as sorted, disjoint, non-touching half-open ranges.

A range is `(low, high)`: every key k with low <= k < high; `high` None means no upper end. The least
key of the domain bounds from below. The form is canonical: equal sets are equal tuples. One algebra
serves integers (numbers, times, booleans by their keys) and strings, whose successor in code point
order is the string with U+0000 appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K", int, str)
Range = tuple[K, K | None]
Ranges = tuple[tuple[K, K | None], ...]


def _lesser(a: K | None, b: K | None) -> K | None:
    if a is None:
        return b
    return a if b is None or a <= b else b


def _reaches(high: K | None, low: K) -> bool:
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


def _low(found: tuple[K, K | None]) -> K:
    return found[0]


def union(parts: Iterable[Range[K]]) -> Ranges[K]:
    """The union of any ranges, in any order."""
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
    found: list[tuple[K, K | None]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), _lesser(a[i][1], b[j][1])
        if high is None or low < high:
            found.append((low, high))
        if high == a[i][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def overlap(a: Ranges[K], b: Ranges[K]) -> bool:
    """Whether the intersection holds anything."""
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
    """What the domain from `least` upwards holds besides."""
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
        while j < len(b) and not _covers_start(b[j], low):
            j += 1
        if j == len(b) or low < b[j][0]:
            return False
        end = b[j][1]
        if end is not None and (high is None or high > end):
            return False
    return True


def _covers_start(found: tuple[K, K | None], low: K) -> bool:
    return found[1] is None or low < found[1]
