"""The numbers (`$seq`) that a client gives to what it publishes.

A number is about the broker's clock in microseconds, as the `Welcome` told it, and always greater than the one before.
So the numbers of a process go on above those of earlier processes of the same name, at this broker or at another, and
the clock of this machine does not matter: it may be wrong, and it may be set right at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time_ns

log = logging.getLogger("catchment.client")


class Numbering:
    """`clock` is a clock in seconds that never goes back: the loop's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.last = 0
        # What to add to `clock`, in microseconds, to have the broker's.
        self._ahead = 0

    def welcomed(self, now: int, last_seq: int | None) -> None:
        """A broker has told its clock, and the last number of this client that it knows."""
        # A broker that does not tell its clock: ours is what is left.
        self._ahead = (now or time_ns() // 1_000) - self._elapsed()
        if last_seq is not None:
            self.last = max(self.last, last_seq)

    def next(self) -> int:
        self.last = max(self.last + 1, self._elapsed() + self._ahead)
        return self.last

    def refused(self, after: int, may_go_back: bool) -> None:
        """The broker takes numbers greater than `after`. They may be less than the last one, if the clock of a broker
        was wrong."""
        if after >= self.last:
            self.last = after
        elif may_go_back:
            # Who has been delivered the greater numbers drops what comes until they are reached again.
            log.warning("numbers go back", extra={"last": self.last, "after": after})
            self.last = after
            self._ahead = after - self._elapsed()

    def _elapsed(self) -> int:
        return int(self._clock() * 1e6)
