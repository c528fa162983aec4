"""The monitors of clients' patterns: one for each subscription to a pattern, at the subscriber's broker.

A monitor watches for sequences of notifications that match its pattern. When a monitor is full (MONITOR_KEYS_MAX, or
MONITOR_BYTES_MAX with the payloads of what it keeps), it gives up its oldest partial match. The broker counts that as
missed if the match could still have been completed. The monitors of one client, and those of all clients, are bounded
in bytes too: then the largest give up theirs (`shares.py`).
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
from catchment.routing.parts.shares import Limits, Shares

# What the partial matches of one pattern take in memory: eight notifications with the largest payload.
MONITOR_BYTES_MAX: Final = 16 * 1_048_576
# Of all patterns of one client.
CLIENT_MONITORS_BYTES_MAX: Final = 64 * 1_048_576
# Of all patterns at one broker.
BROKER_MONITORS_BYTES_MAX: Final = 256 * 1_048_576

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Completed(NamedTuple):
    """The sequences that a notification completes, and how many partial matches the monitor gave up to make room. So
    many bytes may be held that monitors of other identities gave up some: `missed_by` has their names, one for each."""

    sequences: list[tuple[Notification, ...]]
    missed: int = 0
    missed_by: tuple[str, ...] = ()


class Watching:
    """Monitors, by identity and subscription id."""

    def __init__(self) -> None:
        self._monitors: dict[str, dict[str, Monitor]] = {}
        # By identity: the name of the client that its monitors are counted for.
        self._owners: dict[str, str] = {}
        limits = Limits(MONITOR_BYTES_MAX, CLIENT_MONITORS_BYTES_MAX, BROKER_MONITORS_BYTES_MAX)
        self._shares: Shares[str, tuple[str, str]] = Shares(limits)

    @property
    def bytes_count(self) -> int:
        """What all partial matches take in memory."""
        return self._shares.total

    def begin(self, identity: str, id: str, pattern: Pattern, owner: str = "") -> None:
        """Makes the monitor of a subscription. `owner` is the client that the identity belongs to."""
        self._monitors.setdefault(identity, {})[id] = self._monitor(pattern)
        self._owners[identity] = owner

    def _monitor(self, pattern: Pattern) -> Monitor:
        return Monitor(pattern)

    def end(self, identity: str, id: str) -> None:
        """Forgets the monitor of a subscription, if it has one: most subscriptions are filters."""
        monitors = self._monitors.get(identity)
        if monitors is not None and (monitor := monitors.pop(id, None)) is not None:
            self._shares.grow(self._owners[identity], (identity, id), -monitor.bytes_count)
            if not monitors:
                del self._monitors[identity], self._owners[identity]

    def of(self, identity: str) -> Mapping[str, Monitor]:
        """The monitors of an identity, by subscription id. Not a copy."""
        return self._monitors.get(identity, {})

    def see(self, identity: str, id: str, notification: Notification, steps: Collection[int], now: Time) -> Completed:
        """Shows a notification to a monitor. `steps` are the places of the filters of its pattern that match it."""
        monitor = self._monitors[identity][id]
        watch = partial(monitor.on_notification, notification, instant(now), steps)
        return self._bounded(identity, id, notification, watch)

    def _bounded(
        self, identity: str, id: str, notification: Notification, watch: Callable[[], list[tuple[Match, ...]]]
    ) -> Completed:
        """What `watch` completes. If the monitors take too many bytes then, the largest give up their oldest partial
        matches until they do not."""
        monitor, owner = self._monitors[identity][id], self._owners[identity]
        before = monitor.bytes_count
        complete = completed(monitor, notification, watch)
        self._shares.grow(owner, (identity, id), monitor.bytes_count - before)
        missed_by: list[str] = []
        while (past := self._shares.past_limit(owner, (identity, id))) is not None:
            fuller_owner, (fuller_identity, fuller_id) = past
            fuller = self._monitors[fuller_identity][fuller_id]
            before = fuller.bytes_count
            # It has something to give up: it is the largest of those that hold anything.
            if fuller.give_up_oldest(notification):
                missed_by.append(fuller_identity)
            self._shares.grow(fuller_owner, (fuller_identity, fuller_id), fuller.bytes_count - before)
        return complete if not missed_by else complete._replace(missed_by=tuple(missed_by))


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
