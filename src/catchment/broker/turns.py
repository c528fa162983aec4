"""Turns: who may work next on the broker's loop.

Everything that a broker does runs on one loop, so whoever works long makes everybody wait. A connection works in
slices. A slice ends after SLICE_S or SLICE_EVENTS, or with the first event that takes longer than that. What is left
waits for another turn of the loop, and between two turns the loop serves all others.

A connection whose last read was long, did not fit one slice, or took as long as one, is greedy. The others are served
first, as their bytes come. Of all greedy connections together one slice is handled in a turn of the loop, round and
round. So a greedy connection slows itself and other greedy ones, and somebody who asks for little waits for a slice or
two, however many are greedy.

A connection that takes a turn is a `Worker`: native connections, HTTP requests and WebSockets are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

# A slice: short against the 5 ms that others should wait at most, long against a turn of the loop, some 20 µs.
SLICE_S: Final = 0.001
# Events in a slice, however cheap they are: some hundred microseconds of pings.
SLICE_EVENTS: Final = 256
# A read as long as this makes a connection greedy: it is handled in another turn. uvloop would else read up to 32 times
# 256 kB from one connection before it looks at another.
LONG_READ_BYTES: Final = 131_072
# What connections that are not greedy may take of one turn of the loop. Those that come later in the turn wait for the
# next one, so that a thousand small reads at once do not keep the loop from writing.
TURN_S: Final = 0.005


class Worker(Protocol):
    def work(self, slice: Slice) -> bool:
        """Handles what has come until the slice ends; whether something is left that can be handled now."""
        ...

    def crash(self) -> None:
        """`work` has raised, which is a bug: closes the connection at once."""
        ...


class Slice:
    """What a worker may do now. It asks after each event whether the slice `is_over`."""

    __slots__ = ("_clock", "_ends_at", "events")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends_at = clock() + SLICE_S
        self.events = 0

    def is_over(self) -> bool:
        """Counts an event."""
        self.events += 1
        return self.events >= SLICE_EVENTS or self._clock() >= self._ends_at


class Turns:
    """`clock` and `call_soon` are the loop's."""

    def __init__(self, clock: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock, self._call_soon = clock, call_soon
        # Workers that wait, each once.
        self._waiting: deque[Worker] = deque()
        self._greedy_waiting: deque[Worker] = deque()
        # Those whose last read did not fit a slice, and whether they have read again since.
        self._greedy: dict[Worker, bool] = {}
        self._turn_ends_at = 0.0
        self._is_begun = False

    def take(self, worker: Worker, read_bytes: int = 0) -> None:
        """Something has come for a worker that does not wait for a turn. It works now, or waits."""
        if worker in self._greedy or read_bytes >= LONG_READ_BYTES:
            self._greedy[worker] = True
            self._greedy_waiting.append(worker)
        elif self._waiting or (self._is_begun and self._clock() >= self._turn_ends_at):
            self._waiting.append(worker)
        else:
            self._begin()
            self._serve(worker)
            return
        self._begin()

    def leave(self, worker: Worker) -> None:
        """The connection has closed. If it waits for a turn, it finds nothing to do in it."""
        self._greedy.pop(worker, None)

    @property
    def greedy_count(self) -> int:
        return len(self._greedy)

    def _begin(self) -> None:
        """From the first work in a turn of the loop until the next turn."""
        if not self._is_begun:
            self._is_begun = True
            self._turn_ends_at = self._clock() + TURN_S
            self._call_soon(self._next)

    def _next(self) -> None:
        """The next turn of the loop: it has looked for what others have sent, and has written what was for them."""
        self._is_begun = False
        if not self._waiting and not self._greedy_waiting:
            return
        self._begin()
        while self._waiting and self._clock() < self._turn_ends_at:
            self._serve(self._waiting.popleft())
        if self._greedy_waiting:
            self._serve(self._greedy_waiting.popleft())

    def _serve(self, worker: Worker) -> None:
        try:
            has_more = worker.work(Slice(self._clock))
        except BaseException:
            # The loop logs it. Only this connection ends.
            worker.crash()
            raise
        if has_more:
            self._greedy[worker] = False
            self._greedy_waiting.append(worker)
        elif self._greedy.get(worker):
            # All that it has read fitted this slice.
            del self._greedy[worker]
