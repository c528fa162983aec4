"""Merging filters into fewer, wider ones (SIENA §5.3.1 and §5.3.2).

*Perfect*: the union of two filters is a filter with no more alternatives than the larger of the two. It lets nothing
through that neither of them matches. *Imperfect*: the values of each attribute are widened to a single range. Such a
filter lets more through. The result says which share of the notifications it lets through is matched by none of the
originals (the false positives), under a distribution that the caller gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

from catchment.model.advertisement import Advertisement
from catchment.model.box import Box
from catchment.model.domain import EVERYTHING, Values
from catchment.model.filter import Filter
from catchment.model.measure import Distribution
from catchment.model.ranges import K, Ranges
from catchment.model.strings import EVERY_STRING, Strings, of_ranges


def perfect_merge(first: Filter, second: Filter) -> Filter | None:
    """The union, if it takes no more alternatives than the larger of the two filters; else None."""
    union = first | second
    most = max(len(first.alternatives), len(second.alternatives))
    return union if len(union.alternatives) <= most else None


def perfect_merge_of_advertisements(first: Advertisement, second: Advertisement) -> Advertisement | None:
    """The union, if it is an advertisement; else None. It is one if the two differ in at most one attribute, because
    the constraints of an advertisement on the same attribute are alternatives."""
    names = first.box.sets.keys() | second.box.sets.keys()
    differing = [name for name in names if first.box.sets.get(name) != second.box.sets.get(name)]
    # An envelope field that is not named may have any value; an attribute that is not named may not appear.
    if len(differing) > 1 or any(_frees(name, first, second) for name in differing):
        return None
    return Advertisement.of(*first.constraints, *second.constraints)


def _frees(name: str, first: Advertisement, second: Advertisement) -> bool:
    """Whether only one of the two restricts an envelope field: the union would then have to leave it free."""
    return name.startswith("$") and not (name in first.box.sets and name in second.box.sets)


def perfectly_merged(filters: Sequence[Filter]) -> list[Filter]:
    """The same union in fewer filters: merges pairs perfectly until no pair can be merged."""
    remaining = list(dict.fromkeys(filters))
    while (merged := _first_perfect(remaining)) is not None:
        remaining = merged
    return remaining


def _first_perfect(filters: list[Filter]) -> list[Filter] | None:
    """The filters with the first pair merged that can be; None if there is no such pair."""
    for first, second in combinations(filters, 2):
        if (union := perfect_merge(first, second)) is not None:
            return [filter for filter in filters if filter not in (first, second)] + [union]
    return None


@dataclass(frozen=True, slots=True)
class Merge:
    """A filter that covers some others, and the share of the notifications it matches that none of them matches."""

    filter: Filter
    false_positive_share: float


def imperfect_merge(filters: Sequence[Filter], distribution: Distribution) -> Merge:
    """The least filter that covers all of them with a single alternative and a single range for each attribute."""
    boxes = [box for filter in filters for box in filter.boxes]
    if not boxes:
        return Merge(Filter.nothing(), 0.0)
    hull = reduce(Box.hull, boxes)
    wide = Box({name: widened(values) for name, values in hull.sets.items()})
    through = distribution.share_of_box(wide)
    return Merge(Filter.of_boxes([wide]), distribution.share_outside(wide, boxes) / through if through else 0.0)


def imperfectly_merged(
    filters: Sequence[Filter], distribution: Distribution, false_positive_share_max: float
) -> list[Merge]:
    """Merges the pair with the fewest false positives, again and again, while their share stays within the limit."""
    groups: list[tuple[list[Filter], Merge]] = [([filter], Merge(filter, 0.0)) for filter in perfectly_merged(filters)]
    while len(groups) > 1:
        merge, a, b = min(
            ((imperfect_merge(groups[a][0] + groups[b][0], distribution), a, b) for a, b in _pairs(len(groups))),
            key=lambda candidate: candidate[0].false_positive_share,
        )
        if merge.false_positive_share > false_positive_share_max:
            break
        joined = (groups[a][0] + groups[b][0], merge)
        groups = [group for i, group in enumerate(groups) if i not in (a, b)] + [joined]
    return [merge for _, merge in groups]


def _pairs(count: int) -> combinations[tuple[int, int]]:
    return combinations(range(count), 2)


def widened(values: Values) -> Values:
    """The set with the values of each type widened to a single range; EVERYTHING if absence is in it."""
    if values.absent:
        return EVERYTHING
    return Values(False, tuple(_span(keys) for keys in values.keys), _widened_strings(values.strings))


def _span(ranges: Ranges[K]) -> Ranges[K]:
    return ((ranges[0][0], ranges[-1][1]),) if ranges else ()


def _widened_strings(strings: Strings) -> Strings:
    if strings.ranges is not None:
        return of_ranges(_span(strings.ranges))
    # A single piece is a single conjunction already.
    return strings if len(strings.pieces) == 1 else _spanned(strings)


def _spanned(strings: Strings) -> Strings:
    """The range from the least to the greatest string that the ranges of its pieces allow; globs are ignored."""
    span = reduce(or_, (of_ranges(piece.ranges) for piece in strings.pieces)).ranges
    return EVERY_STRING if span is None else of_ranges(_span(span))
