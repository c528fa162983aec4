"""The monitors of clients' patterns: one for each subscription to a pattern, at the subscriber's broker.

A monitor that is full (MONITOR_KEYS_MAX) gives up its oldest partial match, which is counted as missed if it could
still have been completed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from catchment.errors import LimitError
from catchment.model.filter import Pattern
from catchment.model.monitor import Match, Monitor
from catchment.model.notification import Notification
from catchment.routing.messages import Time

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Completed(NamedTuple):
    """The sequences that a notification completes, and how many partial matches were given up for it."""

    sequences: list[tuple[Notification, ...]]
    missed: int = 0


class Watching:
    """Monitors by identity and subscription."""

    def __init__(self) -> None:
        self._monitors: dict[str, dict[str, Monitor]] = {}

    def begin(self, identity: str, id: str, pattern: Pattern) -> None:
        self._monitors.setdefault(identity, {})[id] = self._monitor(pattern)

    def _monitor(self, pattern: Pattern) -> Monitor:
        return Monitor(pattern)

    def end(self, identity: str, id: str) -> None:
        """Nothing if there is none: most subscriptions are filters."""
        monitors = self._monitors.get(identity)
        if monitors is not None and monitors.pop(id, None) is not None and not monitors:
            del self._monitors[identity]

    def of(self, identity: str) -> Mapping[str, Monitor]:
        """By subscription; not a copy."""
        return self._monitors.get(identity, {})

    def see(self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time) -> Completed:
        """Shows a monitor a notification that matches these filters of its pattern."""
        monitor = self._monitors[identity][id]
        return completed(monitor, notification, partial(monitor.on_notification, notification, instant(now), steps))


def completed(monitor: Monitor, notification: Notification, watch: Callable[[], list[tuple[Match, ...]]]) -> Completed:
    """What `watch` finds. If the monitor is full, its oldest partial match makes room, and `watch` is called again."""
    try:
        found, missed = watch(), 0
    except LimitError:
        missed = int(monitor.give_up_oldest(notification))
        found = watch()
    return Completed([tuple(match.notification for match in sequence) for sequence in found], missed)


def instant(now: Time) -> datetime:
    return _EPOCH + timedelta(microseconds=now)
