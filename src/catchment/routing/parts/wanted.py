"""What subscriptions ask for: filters, patterns and CESQL expressions, treated alike."""

from __future__ import annotations

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Wanted


def filters_for(wanted: Wanted) -> tuple[Filter, ...]:
    """The filters that together let through every notification that a subscription needs. They have a normal form: a
    filter that has none is routed by a wider one, as a CESQL expression is."""
    if isinstance(wanted, Pattern):
        return tuple(filter.routed for filter in wanted.filters)
    return ((wanted.filter if isinstance(wanted, Cesql) else wanted).routed,)


def cancels(unwanted: Wanted, wanted: Wanted) -> bool:
    """Whether unsubscribing with `unwanted` cancels a subscription to `wanted` (SIENA §3.8)."""
    if isinstance(wanted, Cesql):
        # The filter of an expression matches all that the expression does, and perhaps more: what covers the filter
        # covers the expression.
        return isinstance(unwanted, Filter) and unwanted.covers(wanted.filter)
    if isinstance(wanted, Pattern):
        return isinstance(unwanted, Pattern) and unwanted.covers(wanted)
    return isinstance(unwanted, Filter) and unwanted.covers(wanted)


def text_bytes(wanted: Wanted) -> int:
    """The length in bytes of the text of a filter, pattern or expression, as the wire sends it."""
    return len(str(wanted).encode())
