"""The clock and the queue of a simulation: occurrences in the order of (time, sequence).

Two occurrences of one time happen in the order in which they were scheduled, so a run depends on nothing but what was
scheduled. A budget ends a run that would go on for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from catchment.errors import LimitError
from catchment.routing.messages import Time

T = TypeVar("T")

# Occurrences of one run: a conformance run takes some thousand, the largest studies some ten million.
OCCURRENCES_MAX: Final = 100_000_000


class Kernel(Generic[T]):
    """`perform` is told of each occurrence when its time has come, and schedules what follows from it."""

    def __init__(self, perform: Callable[[T], None], occurrences_max: int = OCCURRENCES_MAX) -> None:
        self.now: Time = 0
        self.performed = 0
        self.occurrences_max = occurrences_max
        self._perform = perform
        self._queue: list[tuple[Time, int, T]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._queue)

    def schedule(self, at: Time, occurrence: T) -> None:
        assert at >= self.now, "nothing happens in the past"
        self._sequence += 1
        heappush(self._queue, (at, self._sequence, occurrence))

    def run(self, until: Time | None = None) -> None:
        """Performs what is scheduled, and what that schedules: all, or all up to a time. LimitError past the budget."""
        queue = self._queue
        while queue and (until is None or queue[0][0] <= until):
            if self.performed >= self.occurrences_max:
                raise LimitError(
                    "OCCURRENCES_MAX", self.occurrences_max, f"more at time {self.now:,}", "does it loop? else raise it"
                )
            self.performed += 1
            self.now, _, occurrence = heappop(queue)
            self._perform(occurrence)
        if until is not None:
            self.now = max(self.now, until)
