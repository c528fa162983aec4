"""What brokers of filter propagation say besides distances, and their settings."""

from __future__ import annotations

from typing import Literal

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.routing.messages import BrokerMessage, BrokerName
from catchment.routing.parts.distance_vectors import INFINITY
from catchment.routing.settings import Settings


class Filtered(BrokerMessage, frozen=True):
    """Of what travels in the tree of `publisher`, the sender wants what the filter matches, for itself and for all
    brokers behind it (§3.2.4). `true` cancels what the sender said before; `false` means that it wants nothing. If
    there is one tree for all publishers, `publisher` is its root."""

    publisher: BrokerName
    wanted: Filter


class PropagationSettings(Settings, frozen=True):
    """Timeouts of 0 mean never. Of `suppression_s`, None means half of `filter_timeout_s`. Of `root`, None means the
    broker whose name comes first."""

    infinity: int = INFINITY
    filter_timeout_s: float = 0.0
    suppression_s: float | None = None
    publisher_timeout_s: float = 0.0
    comparisons_max: int = 256
    approximation: Literal["measured", "dropping"] = "measured"
    tree: Literal["per publisher", "one"] = "per publisher"
    root: str | None = None


def check_settings(settings: PropagationSettings) -> None:
    """InputError if settings do not fit together."""
    if settings.root is not None and settings.tree != "one":
        raise InputError(f"root is {shown(settings.root)} and each publisher has a tree of its own: set tree to one")
    filter_s, publisher_s, suppression_s = (
        settings.filter_timeout_s, settings.publisher_timeout_s, settings.suppression_s,
    )  # fmt: skip
    if min(filter_s, publisher_s, suppression_s or 0.0) < 0:
        raise InputError("filter_timeout_s, publisher_timeout_s and suppression_s are 0 s or more; 0 means never")
    if publisher_s and not 0 < filter_s < publisher_s:
        raise InputError(
            f"publisher_timeout_s is {publisher_s:g} and filter_timeout_s {filter_s:g}: the publisher's must be "
            "longer, so that the filters of a publisher expire before the publisher is forgotten"
        )
    if filter_s and suppression_s is not None and suppression_s >= filter_s:
        raise InputError(
            f"suppression_s is {suppression_s:g} and filter_timeout_s {filter_s:g}: suppression must be shorter, so "
            "that a filter can be sent again as soon as it has expired; half is usual"
        )
