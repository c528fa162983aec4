"""Monitors of patterns of which brokers upstream watch a part.

A broker that has delegated a part of a pattern (`delegating.py`) gets the notifications for it when the neighbor sends
what it has *held back* (a `Part`). It may also get some of them one by one, because somebody else wants them. A monitor
that sees a notification twice, alone and again with the part, would find sequences that are not there. So for the
filters of a delegated part, only notifications that were held back count.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from catchment.model.monitor import HeldMonitor, Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Time
from catchment.routing.parts.watching import Completed, Watching, instant


class HeldWatching(Watching):
    """Monitors that know which filters of their patterns are delegated."""

    def __init__(self) -> None:
        super().__init__()
        # For each pattern, the places of the filters that are delegated: for these only `see_held` counts.
        self._held_back: dict[Pattern, Collection[int]] = {}

    def _monitor(self, pattern: Pattern) -> Monitor:
        return HeldMonitor(pattern)

    def hold_back(self, pattern: Pattern, steps: Collection[int]) -> None:
        """From now on, `steps` are the places of the filters of a pattern that are delegated."""
        self._held_back[pattern] = steps
        if not steps:
            del self._held_back[pattern]

    def see(self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time) -> Completed:
        if self._held_back:
            delegated = self._held_back.get(self._held_monitor(identity, id).pattern, ())
            steps = tuple(step for step in steps if step not in delegated)
        return super().see(identity, id, notification, steps, now)

    def see_held(
        self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time
    ) -> Completed:
        """Shows a monitor a notification that was held back. Notifications that its source published later may have
        come before it."""
        monitor = self._held_monitor(identity, id)
        return self._bounded(identity, id, notification, partial(monitor.on_held, notification, instant(now), steps))

    def is_inside(self, identity: str, id: str, first: int, last: int) -> bool:
        """Whether a monitor has a notification for the filter at `first`, and none for the filter at `last`."""
        return self._held_monitor(identity, id).is_inside(first, last)

    def _held_monitor(self, identity: str, id: str) -> HeldMonitor:
        monitor = self.of(identity)[id]
        assert isinstance(monitor, HeldMonitor)
        return monitor
