"""An allowance: how often somebody may cause a certain kind of work.

It is a bucket that fills at a steady rate. Whoever takes more than it holds has to rest until it is no longer empty:
nothing is refused, and nothing is lost; it only comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Pings of one connection: an end that wants to know whether the other is there asks every few seconds.
PINGS_PER_S: Final = 100
# Refusals of one connection. Refusing may cost as much as doing what was asked for, and earns the other side nothing.
REFUSALS_PER_S: Final = 1_000
# An allowance that was not used is kept for so long: a burst of this many seconds passes without a rest.
BURST_S: Final = 2.0
# Somebody who must rest is not woken for each single thing that it may do again.
REST_S_LEAST: Final = 0.1


class Allowance:
    __slots__ = ("_clock", "_filled_at", "_left", "_per_s")

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s, self._clock = per_s, clock
        self._left = per_s * BURST_S
        self._filled_at = clock()

    def take(self, count: int = 1) -> float:
        """Takes some. Returns how many seconds to rest, 0 if none."""
        if self._left < count:
            now = self._clock()
            self._left = min(self._per_s * BURST_S, self._left + (now - self._filled_at) * self._per_s)
            self._filled_at = now
        self._left -= count
        return max(REST_S_LEAST, -self._left / self._per_s) if self._left < 0 else 0.0
