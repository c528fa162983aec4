"""The clock and the queue of a simulation: occurrences in the order of (time, sequence).

Two occurrences of one time happen in the order in which they were scheduled, so a run depends on nothing but what was
scheduled. An occurrence may be idle (refresh, expiry): when only idle ones are left, the network is at rest. A budget
ends a run that would go on for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
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
        self._queue: list[tuple[Time, int, bool, Callable[..., None], tuple[object, ...]]] = []
        self._scheduled = 0
        self._idle = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether only idle occurrences are left."""
        return len(self._queue) == self._idle

    @property
    def performed(self) -> int:
        return self._scheduled - len(self._queue)

    def schedule(self, at: Time, work: Callable[..., None], *arguments: object, is_idle: bool = False) -> None:
        """LimitError past the budget."""
        assert at >= self.now, "nothing happens in the past"
        if self._scheduled >= self.occurrences_max:
            raise LimitError(
                "OCCURRENCES_MAX", self.occurrences_max, f"more at time {self.now:,}", "does it loop? else raise it"
            )
        self._scheduled += 1
        self._idle += is_idle
        heappush(self._queue, (at, self._scheduled, is_idle, work, arguments))

    def settle(self, until: Time | None = None) -> None:
        """Performs what is scheduled, and what that schedules, until the network is at rest or a time is over."""
        queue, end = self._queue, inf if until is None else until
        while len(queue) > self._idle:
            if queue[0][0] > end:
                assert until is not None
                self.now = until
                return
            self.now, _, is_idle, work, arguments = heappop(queue)
            self._idle -= is_idle
            work(*arguments)

    def run(self, until: Time) -> None:
        """Performs what is scheduled up to a time, and what that schedules."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, is_idle, work, arguments = heappop(queue)
            self._idle -= is_idle
            work(*arguments)
        self.now = max(self.now, until)
