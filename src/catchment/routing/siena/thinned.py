"""The filters for which thinners want single notifications, with one matcher for the thinners of all patterns.

A delegated pattern (`delegating.py`) has a thinner. The filters of the pattern that this broker has delegated further
upstream come to the thinner in parts; this is about the other filters, whose notifications come one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from catchment.matching.ids import Id
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.parts.recall import RecallingMatcher

# Patterns that want a notification, each with the places of the filters that match it.
Places = tuple[tuple[Pattern, tuple[int, ...]], ...]


class ThinnedFilters:
    """Filters by pattern and place in the pattern."""

    def __init__(self) -> None:
        self.matcher = RecallingMatcher(self._places)
        # By pattern: the numbers of its filters in the matcher. By number: the pattern and the place.
        self._numbers: dict[Pattern, range] = {}
        self._places_by_number: dict[Id, tuple[Pattern, int]] = {}
        self._number_next = 0

    def listen(self, pattern: Pattern, steps: Sequence[int]) -> None:
        """From now on, the thinner of a pattern gets the notifications that match the filters at these places."""
        for number in self._numbers.pop(pattern, ()):
            self.matcher.remove(number)
            del self._places_by_number[number]
        if not steps:
            return
        numbers = self._numbers[pattern] = range(self._number_next, self._number_next + len(steps))
        self._number_next += len(steps)
        for number, step in zip(numbers, steps, strict=True):
            self.matcher.add(number, pattern.filters[step])
            self._places_by_number[number] = (pattern, step)

    def wanting(self, notification: Notification) -> Places:
        """The patterns whose thinners want a notification."""
        return self.matcher.answers((notification,))[0]

    def _places(self, numbers: Sequence[Id]) -> Places:
        steps_by_pattern: dict[Pattern, list[int]] = {}
        for number in numbers:
            pattern, step = self._places_by_number[number]
            steps_by_pattern.setdefault(pattern, []).append(step)
        return tuple((pattern, tuple(sorted(steps))) for pattern, steps in steps_by_pattern.items())
