"""Numeric ranges (F3 §3.3, §4.1: exits of a highway).

A subscription is a range of one attribute: `exit >= 5 and exit <= 12`. A document is a range too: a stretch of the
highway from one number to another, or a single number. A document belongs to a subscription if they have a number in
common. So the range that contains another is wider.

The attributes of a notification that begin and end its range are `low` and `high`; where there is only one number, both
are the attribute that subscriptions name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.preprocessors.base import Relation
from catchment.routing.content_graph.preprocessors.reading import MakeSearch, ReadKind, constraints_of
from catchment.routing.content_graph.preprocessors.searches import MatcherSearch, Range, RangeIndexSearch

# Before and after all numbers.
_LEAST, _MOST = -math.inf, math.inf


class RangeKind(ReadKind[Range, Range | None]):
    """Ranges of `attribute`. None is the document of a notification that has no range."""

    is_canonical = True

    def __init__(self, attribute: str, low: str | None = None, high: str | None = None) -> None:
        self._attribute = attribute
        self._low, self._high = low or attribute, high or attribute

    def parse(self, text: str) -> Range:
        """`5..12`, `5..`, `..12` or `5`."""
        first, dots, last = text.partition("..")
        try:
            low = float(first) if first.strip() else _LEAST
            high = (float(last) if last.strip() else _MOST) if dots else low
        except ValueError:
            low, high = _MOST, _LEAST
        if not text.strip() or math.isnan(low) or math.isnan(high) or low > high:
            raise InputError(f"{shown(text)} is no range: write 5..12, 5.., ..12 or 5")
        return Range(low, high)

    def relation(self, first: Range, second: Range) -> Relation:
        if first == second:
            return Relation.SAME
        if first.low <= second.low and first.high >= second.high:
            return Relation.WIDER
        is_inside = first.low >= second.low and first.high <= second.high
        return Relation.NARROWER if is_inside else Relation.APART

    def matches(self, subscription: Range, notification: Range | None) -> bool:
        return notification is not None and (
            subscription.low <= notification.high and subscription.high >= notification.low
        )

    def read(self, filter: Filter) -> Range | None:
        constraints = constraints_of(filter)
        if not constraints:
            return None
        low, high = _LEAST, _MOST
        for each in constraints:
            number = each.value
            if each.name != self._attribute or isinstance(number, bool) or not isinstance(number, int | float):
                return None
            match each.operator:
                case ">=":
                    low = max(low, number)
                case "<=":
                    high = min(high, number)
                case "=":
                    # In canonical form it stands alone.
                    low = high = number
                case _:
                    return None
        return Range(low, high) if low <= high else None

    def written(self, subscription: Range) -> Filter:
        ends = ((">=", subscription.low), ("<=", subscription.high))
        return Filter.of(*((self._attribute, sign, number) for sign, number in ends if math.isfinite(number)))

    def document(self, notification: Notification) -> Range | None:
        low, high = (notification.matched.get(name) for name in (self._low, self._high))
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            return None
        # A stretch may be told from either end.
        return None if isinstance(low, bool) or isinstance(high, bool) else Range(min(low, high), max(low, high))

    def searches(self) -> Mapping[str, MakeSearch[Range, Range | None]]:
        return {
            "index": lambda graph: RangeIndexSearch(),
            "matcher": lambda graph: MatcherSearch(_meeting, _of_document),
        }


def _meeting(range_: Range) -> Filter:
    """What documents meet a range, for the matcher. A range without ends still wants a document."""
    ends = (("low", "<=", range_.high), ("high", ">=", range_.low))
    return Filter.of(("low", "any"), *(end for end in ends if math.isfinite(end[2])))


def _of_document(document: Range | None) -> Notification:
    return Notification({} if document is None else {"low": document.low, "high": document.high})
