"""Watching for a pattern: a pure state machine over notifications in the order in which they were matched.

SIENA §3.4: a monitor waits for a notification that matches the first filter of the sequence. Then it waits for the next
filter, and ignores notifications that match other filters. A notification advances it only if it was published after
the one before. When the sequence is complete, the monitor returns it and begins anew with the next notification. A
*wait* is a sequence that has begun and is not complete. Beyond the paper:

- `by`: there is a wait for each combination of values of those attributes, its *key*. A notification that lacks one
  of the attributes does not count. Equal numbers are the same key, whatever their type.
- `within`: the first and the last notification are published at most so far apart. A notification that matches some
  filter of the pattern, but was published too late for the wait in progress, ends that wait and may begin the next.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from catchment.errors import BadNotificationError, LimitError
from catchment.model.notification import Notification, memory_bytes
from catchment.model.pattern import Pattern
from catchment.model.values import Json, format_time, parse_time

# Waits in progress at once, one for each key. A monitor also counts the bytes of its waits; the broker bounds those.
MONITOR_KEYS_MAX: Final = 100_000
# The keys that a `HeldMonitor` remembers after their waits have ended: a value of `by` may be a long text.
BUSY_KEYS_BYTES_MAX: Final = 16 * 1_048_576
# What an entry of a dictionary takes, with its key's tuples and a time.
_ENTRY_BYTES: Final = 256

Key = tuple[tuple[bool, object], ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A notification in a sequence, and when it arrived at the monitor."""

    notification: Notification
    arrived: datetime

    @property
    def published(self) -> datetime:
        assert self.notification.time is not None
        return self.notification.time

    def to_json(self) -> dict[str, Json]:
        return {"notification": self.notification.to_json(), "arrived": format_time(self.arrived)}

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Match:
        return cls(Notification.from_json(data["notification"]), parse_time(str(data["arrived"])))


Sequence = tuple[Match, ...]


def key_of(pattern: Pattern, notification: Notification) -> Key | None:
    """The values of the attributes that `by` names; None if the notification lacks one of them."""
    values = notification.matched
    if any(name not in values for name in pattern.by):
        return None
    # True equals 1 in Python but not in the model, so the key says which values are booleans.
    return tuple((isinstance(values[name], bool), values[name]) for name in pattern.by)


class Monitor:
    """Feed it every notification that matches some filter of the pattern, in match order."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._waiting: dict[Key, Sequence] = {}
        # What all waits in progress take in memory.
        self.bytes_count = 0

    def __len__(self) -> int:
        """How many waits are in progress."""
        return len(self._waiting)

    def on_notification(
        self, notification: Notification, arrived: datetime, matched: Collection[int] | None = None
    ) -> list[Sequence]:
        """The sequences that the notification completes: one or none. `matched` holds the numbers of the filters that
        it matches, if the caller knows them."""
        match = Match(notification, arrived)
        if notification.time is None:
            raise BadNotificationError(
                "a pattern orders notifications by $time, and this one has none: publish it with a time"
            )
        steps = self._matched(notification) if matched is None else matched
        key = self._key(notification)
        if not steps or key is None:
            return []
        so_far = self._unexpired(key, match)
        # The wait has got len(so_far) notifications, so it waits for the filter with that number.
        if len(so_far) not in steps or (so_far and match.published <= so_far[-1].published):
            return []
        return self._advanced(key, (*so_far, match))

    def _matched(self, notification: Notification) -> list[int]:
        return [i for i, filter in enumerate(self.pattern.filters) if filter.matches(notification)]

    def _key(self, notification: Notification) -> Key | None:
        return key_of(self.pattern, notification)

    def _unexpired(self, key: Key, match: Match) -> Sequence:
        """The wait of a key; () if there is none, or if the notification ends it because it is too late."""
        so_far = self._waiting.get(key, ())
        within = self.pattern.within
        if so_far and within is not None and match.published - so_far[0].published > within:
            self._forgotten(key)
            return ()
        return so_far

    def _advanced(self, key: Key, so_far: Sequence) -> list[Sequence]:
        if len(so_far) == len(self.pattern.filters):
            if key in self._waiting:
                self._forgotten(key)
            return [so_far]
        if key not in self._waiting and len(self._waiting) >= MONITOR_KEYS_MAX:
            raise LimitError(
                "MONITOR_KEYS_MAX", MONITOR_KEYS_MAX, "one more key", "narrow the pattern or give it a shorter `within`"
            )
        self._waiting[key] = so_far
        self.bytes_count += memory_bytes(so_far[-1].notification)
        return []

    def _forgotten(self, key: Key) -> Sequence:
        """Takes a wait out."""
        so_far = self._waiting.pop(key)
        self.bytes_count -= _bytes_of(so_far)
        return so_far

    def forget(self, published_until: datetime) -> int:
        """Drops the waits that no notification published after `published_until` can complete, and returns how many.
        Results stay the same if all notifications published until then have arrived."""
        within = self.pattern.within
        if within is None:
            return 0
        late = [key for key, so_far in self._waiting.items() if published_until - so_far[0].published > within]
        for key in late:
            self._forgotten(key)
        return len(late)

    def give_up_oldest(self, notification: Notification) -> bool:
        """Drops the wait that began first. Returns whether it could still have been completed when `notification` was
        published."""
        so_far = self._forgotten(next(iter(self._waiting)))
        within = self.pattern.within
        return within is None or notification.time is None or notification.time - so_far[0].published <= within

    def to_json(self) -> list[Json]:
        """The waits in progress, oldest first."""
        return [[match.to_json() for match in so_far] for so_far in self._waiting.values()]

    @classmethod
    def from_json(cls, pattern: Pattern, waits: list[Json]) -> Monitor:
        monitor = cls(pattern)
        for wait in waits:
            assert isinstance(wait, list)
            so_far = tuple(Match.from_json(match) for match in wait)  # type: ignore[arg-type]
            key = monitor._key(so_far[0].notification)
            assert key is not None
            monitor._waiting[key] = so_far
            monitor.bytes_count += _bytes_of(so_far)
        return monitor


def _bytes_of(so_far: Sequence) -> int:
    return sum(memory_bytes(match.notification) for match in so_far)


def key_bytes(key: Key) -> int:
    """About what a key takes in memory; a character takes at most four bytes."""
    return _ENTRY_BYTES + 4 * sum(len(value) for _, value in key if isinstance(value, str))


class HeldMonitor(Monitor):
    """A monitor that gets the notifications of some filters late: a broker upstream holds them back until it has a
    whole part of the pattern (`routing/siena/thinning.py`).

    If notifications arrive in the order of publication, it finds the sequences that it would have found had they come
    at once. For that it must not begin a wait with a notification that was published during a wait that has ended
    since: had it come at once, that wait would have been in progress.
    """

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern)
        # For each key, when its last wait ended: with the completion, or when it was too late to complete it.
        self._busy_until: dict[Key, datetime] = {}
        self._busy_bytes = 0

    def on_held(self, notification: Notification, arrived: datetime, matched: Collection[int]) -> list[Sequence]:
        """As `on_notification`, for a notification that was held back."""
        busy_until = self._busy_until.get(self._key(notification) or ())
        if busy_until is not None and notification.time is not None and notification.time <= busy_until:
            matched = [step for step in matched if step > 0]  # it may not be the first of a sequence
        return self.on_notification(notification, arrived, matched)

    def is_inside(self, first: int, last: int) -> bool:
        """Whether some wait has the notification for filter `first`, and does not have that for filter `last`."""
        return any(first < len(so_far) <= last for so_far in self._waiting.values())

    def _unexpired(self, key: Key, match: Match) -> Sequence:
        before, so_far = self._waiting.get(key, ()), super()._unexpired(key, match)
        if before and not so_far and self.pattern.within is not None:
            self._ended(key, before[0].published + self.pattern.within)
        return so_far

    def _advanced(self, key: Key, so_far: Sequence) -> list[Sequence]:
        completed = super()._advanced(key, so_far)
        for sequence in completed:
            self._ended(key, sequence[-1].published)
        return completed

    def _ended(self, key: Key, until: datetime) -> None:
        before = self._busy_until.pop(key, None)
        # Taken out and put in again, so that the first entry is always the one that was set longest ago.
        self._busy_until[key] = until if before is None else max(until, before)
        self._busy_bytes += key_bytes(key) if before is None else 0
        while len(self._busy_until) > MONITOR_KEYS_MAX or self._busy_bytes > BUSY_KEYS_BYTES_MAX:
            oldest = next(iter(self._busy_until))
            del self._busy_until[oldest]
            self._busy_bytes -= key_bytes(oldest)
