"""Watching for a pattern: a pure state machine over notifications in the order they were matched.

SIENA §3.4: a monitor waits for the first filter of the sequence; having a notification for it, it waits
for the next filter and ignores all that match others; a notification advances it only if it was
published after the one before. A complete sequence is returned and the monitor begins anew with the
next notification. Beyond the text:

- `by`: one such wait for each combination of values of those attributes; a notification that lacks one
  of them does not count. Equal numbers are one key whatever their type.
- `within`: first and last publication lie at most so far apart. A notification that matches some filter
  of the pattern and was published too late for the wait in progress ends it, and may begin the next.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from catchment.errors import BadNotificationError, LimitError
from catchment.model.filter import Pattern
from catchment.model.notification import Notification
from catchment.model.values import Json, format_time, parse_time

# Waits in progress at once, one for each key: what bounds a monitor's memory.
MONITOR_KEYS_MAX: Final = 100_000

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
    def from_json(cls, found: dict[str, Json]) -> Match:
        return cls(Notification.from_json(found["notification"]), parse_time(str(found["arrived"])))


Sequence = tuple[Match, ...]


def key_of(pattern: Pattern, notification: Notification) -> Key | None:
    """The values that `by` names; None if it lacks one of them."""
    values = notification.matched
    if any(name not in values for name in pattern.by):
        return None
    # Python calls True equal to 1; the model does not.
    return tuple((isinstance(values[name], bool), values[name]) for name in pattern.by)


class Monitor:
    """Feed it every notification that matches some filter of the pattern, in match order."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._waiting: dict[Key, Sequence] = {}

    def __len__(self) -> int:
        """Waits in progress."""
        return len(self._waiting)

    def on_notification(
        self, notification: Notification, arrived: datetime, matched: Collection[int] | None = None
    ) -> list[Sequence]:
        """The sequences it completes: one or none. `matched` names the filters it matches, where known."""
        found = Match(notification, arrived)
        if notification.time is None:
            raise BadNotificationError(
                "a pattern orders notifications by $time, and this one has none: publish it stamped"
            )
        steps = self._matched(notification) if matched is None else matched
        key = self._key(notification)
        if not steps or key is None:
            return []
        so_far = self._unexpired(key, found)
        if len(so_far) not in steps or (so_far and found.published <= so_far[-1].published):
            return []
        return self._advanced(key, (*so_far, found))

    def _matched(self, notification: Notification) -> list[int]:
        return [i for i, filter in enumerate(self.pattern.filters) if filter.matches(notification)]

    def _key(self, notification: Notification) -> Key | None:
        return key_of(self.pattern, notification)

    def _unexpired(self, key: Key, found: Match) -> Sequence:
        so_far = self._waiting.get(key, ())
        within = self.pattern.within
        if so_far and within is not None and found.published - so_far[0].published > within:
            del self._waiting[key]
            return ()
        return so_far

    def _advanced(self, key: Key, so_far: Sequence) -> list[Sequence]:
        if len(so_far) == len(self.pattern.filters):
            self._waiting.pop(key, None)
            return [so_far]
        if key not in self._waiting and len(self._waiting) >= MONITOR_KEYS_MAX:
            raise LimitError(
                "MONITOR_KEYS_MAX", MONITOR_KEYS_MAX, "one more key", "narrow the pattern or give it a shorter `within`"
            )
        self._waiting[key] = so_far
        return []

    def forget(self, published_until: datetime) -> int:
        """Drops waits that nothing published later can complete; how many. Changes no result when all
        that was published until then has arrived."""
        within = self.pattern.within
        if within is None:
            return 0
        late = [key for key, so_far in self._waiting.items() if published_until - so_far[0].published > within]
        for key in late:
            del self._waiting[key]
        return len(late)

    def give_up_oldest(self, found: Notification) -> bool:
        """Drops the wait that was begun first; whether it could still have been completed when this came."""
        so_far = self._waiting.pop(next(iter(self._waiting)))
        within = self.pattern.within
        return within is None or found.time is None or found.time - so_far[0].published <= within

    def to_json(self) -> list[Json]:
        """The waits in progress, oldest first."""
        return [[found.to_json() for found in so_far] for so_far in self._waiting.values()]

    @classmethod
    def from_json(cls, pattern: Pattern, waits: list[Json]) -> Monitor:
        monitor = cls(pattern)
        for wait in waits:
            assert isinstance(wait, list)
            so_far = tuple(Match.from_json(found) for found in wait)  # type: ignore[arg-type]
            key = monitor._key(so_far[0].notification)
            assert key is not None
            monitor._waiting[key] = so_far
        return monitor


class HeldMonitor(Monitor):
    """A monitor that gets some filters' notifications later than they were published: a broker upstream holds them
    back until it has all of a part of the pattern (`routing/siena/thinning.py`). It finds what it would have found
    had they come at once, if all came in the order of publication: so one that was published while a wait was in
    progress which has ended since begins none."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern)
        # For each key the end of its last wait: the completion, or the time from which it was too late for it.
        self._busy_until: dict[Key, datetime] = {}

    def on_held(self, notification: Notification, arrived: datetime, matched: Collection[int]) -> list[Sequence]:
        busy_until = self._busy_until.get(self._key(notification) or ())
        if busy_until is not None and notification.time is not None and notification.time <= busy_until:
            matched = [step for step in matched if step > 0]
        return self.on_notification(notification, arrived, matched)

    def is_inside(self, first: int, last: int) -> bool:
        """Whether a wait has got the notification for the first of these filters and not that for the last."""
        return any(first < len(so_far) <= last for so_far in self._waiting.values())

    def _unexpired(self, key: Key, found: Match) -> Sequence:
        before, so_far = self._waiting.get(key, ()), super()._unexpired(key, found)
        if before and not so_far and self.pattern.within is not None:
            self._ended(key, before[0].published + self.pattern.within)
        return so_far

    def _advanced(self, key: Key, so_far: Sequence) -> list[Sequence]:
        for complete in (found := super()._advanced(key, so_far)):
            self._ended(key, complete[-1].published)
        return found

    def _ended(self, key: Key, until: datetime) -> None:
        self._busy_until[key] = max(until, self._busy_until.pop(key, until))
        if len(self._busy_until) > MONITOR_KEYS_MAX:
            del self._busy_until[next(iter(self._busy_until))]
