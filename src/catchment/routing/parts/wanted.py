"""What subscriptions ask for: filters, patterns and CESQL expressions, alike."""

from __future__ import annotations

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter, Pattern
from catchment.routing.messages import Wanted


def filters_for(wanted: Wanted) -> tuple[Filter, ...]:
    """The filters that together let through all that a subscription needs."""
    if isinstance(wanted, Pattern):
        return wanted.filters
    return (wanted.filter if isinstance(wanted, Cesql) else wanted,)


def cancels(unwanted: Wanted, wanted: Wanted) -> bool:
    """Whether an unsubscription cancels a subscription (SIENA §3.8)."""
    if isinstance(wanted, Cesql):
        # Its own filter may be wider than it is: covering that is covering it.
        return isinstance(unwanted, Filter) and unwanted.covers(wanted.filter)
    if isinstance(wanted, Pattern):
        return isinstance(unwanted, Pattern) and unwanted.covers(wanted)
    return isinstance(unwanted, Filter) and unwanted.covers(wanted)


def text_bytes(wanted: Wanted) -> int:
    """The length of its text as the wire sends it."""
    return len(str(wanted).encode())
