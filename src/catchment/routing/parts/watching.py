"""The monitors of clients' patterns: one for each subscription to a pattern, at the subscriber's broker.

A monitor watches for sequences of notifications that match its pattern. When a monitor is full (MONITOR_KEYS_MAX), it
gives up its oldest partial match. The broker counts that as missed if the match could still have been completed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from catchment.errors import LimitError
from catchment.model.monitor import Match, Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Time

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Completed(NamedTuple):
    """The sequences that a notification completes, and how many partial matches the monitor gave up to make room."""

    sequences: list[tuple[Notification, ...]]
    missed: int = 0


class Watching:
    """Monitors, by identity and subscription id."""

    def __init__(self) -> None:
        self._monitors: dict[str, dict[str, Monitor]] = {}

    def begin(self, identity: str, id: str, pattern: Pattern) -> None:
        """Makes the monitor of a subscription."""
        self._monitors.setdefault(identity, {})[id] = self._monitor(pattern)

    def _monitor(self, pattern: Pattern) -> Monitor:
        return Monitor(pattern)

    def end(self, identity: str, id: str) -> None:
        """Forgets the monitor of a subscription, if it has one: most subscriptions are filters."""
        monitors = self._monitors.get(identity)
        if monitors is not None and monitors.pop(id, None) is not None and not monitors:
            del self._monitors[identity]

    def of(self, identity: str) -> Mapping[str, Monitor]:
        """The monitors of an identity, by subscription id. Not a copy."""
        return self._monitors.get(identity, {})

    def see(self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time) -> Completed:
        """Shows a notification to a monitor. `steps` are the places of the filters of its pattern that match it."""
        monitor = self._monitors[identity][id]
        return completed(monitor, notification, partial(monitor.on_notification, notification, instant(now), steps))


def completed(monitor: Monitor, notification: Notification, watch: Callable[[], list[tuple[Match, ...]]]) -> Completed:
    """The sequences that `watch` completes. If the monitor is full, it gives up its oldest partial match, and `watch`
    is called again."""
    try:
        sequences, missed = watch(), 0
    except LimitError:
        missed = int(monitor.give_up_oldest(notification))
        # One place is free now, and one notification takes at most one: this cannot fail again.
        sequences = watch()
    return Completed([tuple(match.notification for match in sequence) for sequence in sequences], missed)


def instant(now: Time) -> datetime:
    """The time of a core as monitors use it."""
    return _EPOCH + timedelta(microseconds=now)
