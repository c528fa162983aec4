"""Monitors of which some filters are watched upstream: for those, only what a neighbor held back counts.

A broker that delegated a part of a pattern (`delegating.py`) may still get single notifications for it, because
somebody else wants them. A monitor that saw them twice, at once and again with the part, would find sequences that
are not there.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from catchment.model.filter import Pattern
from catchment.model.monitor import HeldMonitor, Monitor
from catchment.model.notification import Notification
from catchment.routing.messages import Time
from catchment.routing.parts.watching import Completed, Watching, completed, instant


class HeldWatching(Watching):
    def __init__(self) -> None:
        super().__init__()
        # For each pattern the filters for which only `see_held` counts.
        self._held_back: dict[Pattern, Collection[int]] = {}

    def _monitor(self, pattern: Pattern) -> Monitor:
        return HeldMonitor(pattern)

    def hold_back(self, pattern: Pattern, steps: Collection[int]) -> None:
        """For these filters of a pattern only what `see_held` is given counts."""
        self._held_back[pattern] = steps
        if not steps:
            del self._held_back[pattern]

    def see(self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time) -> Completed:
        if self._held_back:
            elsewhere = self._held_back.get(self._held_monitor(identity, id).pattern, ())
            steps = tuple(step for step in steps if step not in elsewhere)
        return super().see(identity, id, notification, steps, now)

    def see_held(
        self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time
    ) -> Completed:
        """Shows a monitor one that was held back; others of its source may have come before it."""
        monitor = self._held_monitor(identity, id)
        return completed(monitor, notification, partial(monitor.on_held, notification, instant(now), steps))

    def is_inside(self, identity: str, id: str, first: int, last: int) -> bool:
        """Whether a monitor has the notification for the first of these filters and not that for the last."""
        return self._held_monitor(identity, id).is_inside(first, last)

    def _held_monitor(self, identity: str, id: str) -> HeldMonitor:
        monitor = self.of(identity)[id]
        assert isinstance(monitor, HeldMonitor)
        return monitor
