"""The clock and the queue of a simulation: occurrences in the order of (time, number).

Two occurrences of one time happen in the order in which they were scheduled, so a run depends on nothing but what was
scheduled. An occurrence may be idle (refresh, expiry): when only idle ones are left, the network is at rest. One that
is cancelled does not happen, and nobody waits for it. A budget ends a run that would go on for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from catchment.errors import LimitError
from catchment.routing.messages import Time

# Occurrences of one run: a conformance run takes some thousand, the largest studies some ten million.
OCCURRENCES_MAX: Final = 100_000_000


class Kernel:
    """An occurrence is work to do, with its arguments; it schedules what follows from it."""

    def __init__(self, occurrences_max: int = OCCURRENCES_MAX) -> None:
        self.now: Time = 0
        self.occurrences_max = occurrences_max
        self.performed = 0
        self._queue: list[tuple[Time, int, Callable[..., None], tuple[object, ...]]] = []
        self._scheduled = 0
        # By number, of those in the queue. No occurrence is in both.
        self._idle: set[int] = set()
        self._cancelled: set[int] = set()

    @property
    def is_at_rest(self) -> bool:
        """Whether only idle occurrences are left."""
        return len(self._queue) == len(self._idle) + len(self._cancelled)

    def schedule(self, at: Time, work: Callable[..., None], *arguments: object, is_idle: bool = False) -> int:
        """The number of the occurrence. LimitError past the budget."""
        assert at >= self.now, "nothing happens in the past"
        if self._scheduled >= self.occurrences_max:
            raise LimitError(
                "OCCURRENCES_MAX", self.occurrences_max, f"more at time {self.now:,}", "does it loop? else raise it"
            )
        self._scheduled += 1
        if is_idle:
            self._idle.add(self._scheduled)
        heappush(self._queue, (at, self._scheduled, work, arguments))
        return self._scheduled

    def cancel(self, number: int) -> None:
        """Of an occurrence that has not happened yet."""
        self._idle.discard(number)
        self._cancelled.add(number)

    def settle(self, until: Time | None = None) -> None:
        """Performs what is scheduled, and what that schedules, until the network is at rest or a time is over."""
        while not self.is_at_rest:
            if until is not None and self._queue[0][0] > until:
                self.now = until
                return
            self._perform_next()

    def run(self, until: Time) -> None:
        """Performs what is scheduled up to a time, and what that schedules."""
        while self._queue and self._queue[0][0] <= until:
            self._perform_next()
        self.now = max(self.now, until)

    def _perform_next(self) -> None:
        at, number, work, arguments = heappop(self._queue)
        if number in self._cancelled:
            # The clock does not move: it is as if it had never been scheduled.
            self._cancelled.remove(number)
            return
        self._idle.discard(number)
        self.now = at
        self.performed += 1
        work(*arguments)
