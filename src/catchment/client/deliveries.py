"""What a client is delivered, and what waits to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct

from catchment.model.notification import Notification

# What waits to be read from one subscription.
QUEUE_MAX: Final = 100_000
# And its bytes on the wire: in memory some times as many.
QUEUE_BYTES_MAX: Final = 64 * 1_048_576


class Delivered(Struct, frozen=True):
    """A notification, or the sequence of them that completes a pattern, and what it was delivered for."""

    notifications: tuple[Notification, ...]
    subscriptions: tuple[str, ...]
    identity: str
    # So many were dropped before this one, here or at the broker, because they were not read in time.
    missed: int = 0
    # The connection was lost before this one: others may have been missed.
    gap: bool = False

    @property
    def notification(self) -> Notification:
        """The one, or the last of a sequence."""
        return self.notifications[-1]


class Queue:
    """Deliveries that wait to be read, at most QUEUE_MAX and QUEUE_BYTES_MAX; or are handed to `take` as they come."""

    def __init__(self, take: Callable[[Delivered], None] | None = None) -> None:
        self._take = take
        self._waiting: deque[Delivered] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        # All that was dropped, here or at the broker: also what no delivery has told yet.
        self.missed = 0
        self._missed = 0
        self._gap = False
        self._end: BaseException | None = None

    def put(self, identity: str, ids: tuple[str, ...], notifications: tuple[Notification, ...], size: int) -> None:
        if len(self._waiting) >= QUEUE_MAX or self._bytes + size > QUEUE_BYTES_MAX:
            self.miss(1)
            return
        delivered = Delivered(notifications, ids, identity, self._missed, self._gap)
        self._missed, self._gap = 0, False
        if self._take is not None:
            self._take(delivered)
            return
        self._waiting.append(delivered)
        self._sizes.append(size)
        self._bytes += size
        self._ready.set()

    def miss(self, count: int) -> None:
        self.missed += count
        self._missed += count

    def mark_gap(self) -> None:
        self._gap = True

    def end(self, problem: BaseException | None = None) -> None:
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
