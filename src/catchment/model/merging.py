"""Merging filters into fewer, wider ones (SIENA §5.3.1 and §5.3.2).

*Perfect*: the union is exactly one filter no more complex than the larger of the two; nothing is let
through that neither asked for. *Imperfect*: the attributes' values are widened to one range each, which
lets more through; the share of that among what the merged filter lets through is stated with it, under
a distribution of notifications that the caller states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

from catchment.model.box import Box
from catchment.model.domain import EVERYTHING, Values
from catchment.model.filter import Advertisement, Filter
from catchment.model.measure import Distribution
from catchment.model.ranges import K, Ranges
from catchment.model.strings import EVERY_STRING, Strings, of_ranges


def perfect_merge(first: Filter, second: Filter) -> Filter | None:
    """The union, when it takes no more alternatives than the larger of the two; else None."""
    union = first | second
    most = max(len(first.alternatives), len(second.alternatives))
    return union if len(union.alternatives) <= most else None


def perfect_merge_of_advertisements(first: Advertisement, second: Advertisement) -> Advertisement | None:
    """The union, when it is one advertisement: they differ in what one attribute may be, and constraints on one
    attribute are alternatives there."""
    names = first.box.sets.keys() | second.box.sets.keys()
    differing = [name for name in names if first.box.sets.get(name) != second.box.sets.get(name)]
    # A field of the envelope that is not named is free, an attribute that is not named may not appear.
    if len(differing) > 1 or any(_frees(name, first, second) for name in differing):
        return None
    return Advertisement.of(*first.constraints, *second.constraints)


def _frees(name: str, first: Advertisement, second: Advertisement) -> bool:
    return name.startswith("$") and not (name in first.box.sets and name in second.box.sets)


def perfectly_merged(filters: Sequence[Filter]) -> list[Filter]:
    """The same union in fewer filters: merges pairs perfectly until none is left to merge."""
    found = list(dict.fromkeys(filters))
    while (merged := _first_perfect(found)) is not None:
        found = merged
    return found


def _first_perfect(filters: list[Filter]) -> list[Filter] | None:
    for first, second in combinations(filters, 2):
        if (union := perfect_merge(first, second)) is not None:
            return [one for one in filters if one not in (first, second)] + [union]
    return None


@dataclass(frozen=True, slots=True)
class Merge:
    """A filter that covers some others, and which share of what it lets through none of them asked for."""

    filter: Filter
    false_positive_share: float


def imperfect_merge(filters: Sequence[Filter], distribution: Distribution) -> Merge:
    """The least filter of one alternative, one range an attribute, that covers all of them."""
    boxes = [box for one in filters for box in one.boxes]
    if not boxes:
        return Merge(Filter.nothing(), 0.0)
    hull = reduce(Box.hull, boxes)
    wide = Box({name: widened(values) for name, values in hull.sets.items()})
    through = distribution.share_of_box(wide)
    return Merge(Filter.of_boxes([wide]), distribution.share_outside(wide, boxes) / through if through else 0.0)


def imperfectly_merged(
    filters: Sequence[Filter], distribution: Distribution, false_positive_share_max: float
) -> list[Merge]:
    """Merges while a merge stays within the budget, the one with the least false positives first."""
    groups: list[tuple[list[Filter], Merge]] = [([one], Merge(one, 0.0)) for one in perfectly_merged(filters)]
    while len(groups) > 1:
        merge, a, b = min(
            ((imperfect_merge(groups[a][0] + groups[b][0], distribution), a, b) for a, b in _pairs(len(groups))),
            key=lambda found: found[0].false_positive_share,
        )
        if merge.false_positive_share > false_positive_share_max:
            break
        joined = (groups[a][0] + groups[b][0], merge)
        groups = [group for i, group in enumerate(groups) if i not in (a, b)] + [joined]
    return [merge for _, merge in groups]


def _pairs(count: int) -> combinations[tuple[int, int]]:
    return combinations(range(count), 2)


def widened(values: Values) -> Values:
    """One range of each type that it holds values of."""
    if values.absent:
        return EVERYTHING
    return Values(False, tuple(_span(keys) for keys in values.keys), _widened_strings(values.strings))


def _span(ranges: Ranges[K]) -> Ranges[K]:
    return ((ranges[0][0], ranges[-1][1]),) if ranges else ()


def _widened_strings(strings: Strings) -> Strings:
    if strings.ranges is not None:
        return of_ranges(_span(strings.ranges))
    # One piece stays what it is: it is one conjunction already.
    return strings if len(strings.pieces) == 1 else _spanned(strings)


def _spanned(strings: Strings) -> Strings:
    span = reduce(or_, (of_ranges(piece.ranges) for piece in strings.pieces)).ranges
    return EVERY_STRING if span is None else of_ranges(_span(span))
