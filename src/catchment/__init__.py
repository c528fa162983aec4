"""Catchment: content-based publish/subscribe. The public names; everything else is a module away."""

from typing import TYPE_CHECKING, Any

from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern, Subscription

if TYPE_CHECKING:
    from catchment.client import connect, connect_blocking
    from catchment.matching import Matcher

__all__ = [
    "Advertisement",
    "Cesql",
    "Conjunction",
    "Filter",
    "Matcher",
    "Notification",
    "Pattern",
    "Subscription",
    "connect",
    "connect_blocking",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The matcher brings compiled kernels along: whoever only looks at filters should not wait for them.
    if name == "Matcher":
        from catchment.matching import Matcher

        return Matcher
    if name in ("connect", "connect_blocking"):
        from catchment import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
