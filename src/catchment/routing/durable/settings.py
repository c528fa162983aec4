"""The settings of durable delivery at one broker."""

from __future__ import annotations

from typing import Final

from catchment.routing.messages import SECOND, Time
from catchment.routing.settings import Settings

# What may be under way to one identity, unacknowledged: enough to keep a client busy over a link of some milliseconds,
# little enough that a slow client costs a broker a megabyte.
WINDOW_ENTRIES_MAX: Final = 256
WINDOW_BYTES_MAX: Final = 1_048_576
# How long a storage waits for an acknowledgement before it asks, and a publisher's broker for `Kept`. Twice as long
# after each time that nothing came, up to RETRY_US_MAX.
RETRY_US: Final = SECOND
RETRY_US_MAX: Final = 60 * SECOND
# Acknowledgements wait so long to be written together: one that is lost by a crash is said again.
ACKNOWLEDGE_US: Final = SECOND // 50


class DurableSettings(Settings, frozen=True):
    """`storage` is where a broker without a store keeps what is published at it; without a name it takes the nearest
    storage."""

    storage: str = ""
    window_entries: int = WINDOW_ENTRIES_MAX
    window_bytes: int = WINDOW_BYTES_MAX
    retry_us: Time = RETRY_US
    retry_us_max: Time = RETRY_US_MAX
    acknowledge_us: Time = ACKNOWLEDGE_US
