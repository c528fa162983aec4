"""Deliveries to a client, and the queue in which they wait to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from catchment.model.notification import Notification

# Deliveries that wait to be read from one subscription.
QUEUE_MAX: Final = 100_000
# Their size on the wire. In memory they take several times as much.
QUEUE_BYTES_MAX: Final = 64 * 1_048_576
# Gaps that one delivery reports. Brokers tell a flapping link as one gap; more than a few are rare.
GAPS_MAX: Final = 16


class GapSpan(Struct, frozen=True):
    """Notifications that were published in this time may be missing, because the connection to the broker was lost, or
    because the `link` between two brokers failed or one of them did. `until` is None while it is not over: a later one
    with the same id says when it was. `missed` is how many notifications the link has lost, of whoever, if that is
    known."""

    id: str
    since: datetime
    until: datetime | None
    missed: int | None = None
    link: tuple[str, str] | None = None


class Delivered(Struct, frozen=True):
    """A notification, or the sequence of notifications that completes a pattern; `subscriptions` has the ids of the
    subscriptions that match."""

    notifications: tuple[Notification, ...]
    subscriptions: tuple[str, ...]
    identity: str
    # How many deliveries the client or the broker dropped before this one, because they were not read in time.
    missed: int = 0
    # Whether others may be missing before this delivery: the connection was lost, or brokers have lost some.
    gap: bool = False
    # The same in detail: the last GAPS_MAX that the client was told since the delivery before.
    gaps: tuple[GapSpan, ...] = ()

    @property
    def notification(self) -> Notification:
        """The notification; of a sequence, the last."""
        return self.notifications[-1]


class Queue:
    """Deliveries that wait to be read: at most QUEUE_MAX of them and QUEUE_BYTES_MAX in all; more are dropped and
    counted. With `take`, deliveries do not wait: each is handed to `take` as it comes."""

    def __init__(self, take: Callable[[Delivered], None] | None = None) -> None:
        self._take = take
        self._waiting: deque[Delivered] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        # All deliveries dropped since the start, by the client or by the broker.
        self.missed = 0
        # Those dropped, and whether there was a gap, since the last delivery that was queued: the next one reports it.
        self._missed = 0
        self._gap = False
        self._gaps: dict[str, GapSpan] = {}
        self._end: BaseException | None = None

    def put(self, identity: str, ids: tuple[str, ...], notifications: tuple[Notification, ...], size: int) -> None:
        if len(self._waiting) >= QUEUE_MAX or self._bytes + size > QUEUE_BYTES_MAX:
            self.miss(1)
            return
        delivery = Delivered(notifications, ids, identity, self._missed, self._gap, tuple(self._gaps.values()))
        self._missed, self._gap = 0, False
        if self._gaps:
            self._gaps = {}
        if self._take is not None:
            self._take(delivery)
            return
        self._waiting.append(delivery)
        self._sizes.append(size)
        self._bytes += size
        self._ready.set()

    def miss(self, count: int) -> None:
        self.missed += count
        self._missed += count

    def mark_gap(self, span: GapSpan | None = None) -> None:
        self._gap = True
        if span is not None:
            # What is told again is told as it is now.
            self._gaps.pop(span.id, None)
            self._gaps[span.id] = span
            if len(self._gaps) > GAPS_MAX:
                del self._gaps[next(iter(self._gaps))]

    def end(self, problem: BaseException | None = None) -> None:
        """Once what waits is read, `get` raises `problem`; without one, the iteration stops."""
        self._end = problem or StopAsyncIteration()
        self._ready.set()

    async def get(self) -> Delivered:
        while not self._waiting:
            if self._end is not None:
                raise self._end
            self._ready.clear()
            await self._ready.wait()
        self._bytes -= self._sizes.popleft()
        return self._waiting.popleft()

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self

    async def __anext__(self) -> Delivered:
        return await self.get()
