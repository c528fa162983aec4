"""What brokers of filter propagation say besides distances, and their settings."""

from __future__ import annotations

from typing import Literal

from catchment.model.filter import Filter
from catchment.routing.messages import BrokerMessage, BrokerName
from catchment.routing.parts.distance_vectors import INFINITY
from catchment.routing.settings import Settings


class Filtered(BrokerMessage, frozen=True):
    """Of what is published at `publisher`, the sender wants what the filter matches, for itself and for all brokers
    below it (§3.2.4). `true` cancels what the sender said before; `false` means that it wants nothing."""

    publisher: BrokerName
    wanted: Filter


class PropagationSettings(Settings, frozen=True):
    """Timeouts of 0 mean never. Of `suppression_s`, None means half of `filter_timeout_s`."""

    infinity: int = INFINITY
    filter_timeout_s: float = 0.0
    suppression_s: float | None = None
    publisher_timeout_s: float = 0.0
    comparisons_max: int = 256
    approximation: Literal["measured", "dropping"] = "measured"
