"""Deliveries to a client, and the queue in which they wait to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from catchment.client.taking import Receipt
from catchment.model.notification import Notification
from catchment.wire.messages import DurableDelivery

# When a durable delivery counts as taken: when the next one is asked for, or when `ack` is called.
Acks = Literal["next", "manual"]
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
    # Of a durable subscription: the log of the storage that kept it, and its place there. `lost` is how many before it,
    # in this log, were due and will not come: the storage has dropped them, or found them damaged.
    log: str = ""
    epoch: int = 0
    lost: int = 0
    receipt: Receipt | None = None

    @property
    def notification(self) -> Notification:
        """The notification; of a sequence, the last."""
        return self.notifications[-1]

    def ack(self) -> None:
        """The application has taken it, if it comes from a durable subscription: it does not come again. Once all
        deliveries before it are taken too, the broker is told. Without this call a delivery is taken when the next one
        is asked for."""
        if self.receipt is not None:
            self.receipt.give()


class Queue:
    """Deliveries that wait to be read: at most QUEUE_MAX of them and QUEUE_BYTES_MAX in all; more are dropped and
    counted. With `take`, deliveries do not wait: each is handed to `take` as it comes. With `acks="manual"` a durable
    delivery is taken only when its `ack` is called."""

    def __init__(self, take: Callable[[Delivered], None] | None = None, acks: Acks = "next") -> None:
        self._take = take
        self._acks_by_itself = acks == "next"
        # The delivery that was read last and is not known to be taken.
        self._read: Delivered | None = None
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
        self._put(Delivered(notifications, ids, identity, self._missed, self._gap, tuple(self._gaps.values())), size)

    def put_durable(self, message: DurableDelivery, receipt: Receipt, size: int) -> None:
        """A durable delivery is never dropped: the broker sends no more of them than its window holds."""
        self._put(
            Delivered(
                (message.notification,),
                message.subscriptions,
                message.identity,
                self._missed,
                self._gap,
                tuple(self._gaps.values()),
                message.log,
                message.epoch,
                message.lost,
                receipt,
            ),
            size,
        )

    def _put(self, delivery: Delivered, size: int) -> None:
        self._missed, self._gap = 0, False
        if self._gaps:
            self._gaps = {}
        if self._take is not None:
            self._take(delivery)
            if self._acks_by_itself:
                delivery.ack()
            return
        self._waiting.append(delivery)
        self._sizes.append(size)
        self._bytes += size
        self._ready.set()

    def drop_durable(self, identity: str, log: str = "") -> None:
        """What waits of a durable identity, of one log or of all, will come again."""
        pairs = zip(self._waiting, self._sizes, strict=True)
        kept = [pair for pair in pairs if not _is_durable(pair[0], identity, log)]
        self._waiting = deque(delivery for delivery, _ in kept)
        self._sizes = deque(size for _, size in kept)
        self._bytes = sum(self._sizes)

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
        if self._read is not None:
            # Whoever asks for the next has taken this one.
            self._read.ack()
            self._read = None
        while not self._waiting:
            if self._end is not None:
                raise self._end
            self._ready.clear()
            await self._ready.wait()
        return self._next()

    def waiting_now(self, count_max: int | None = None) -> list[Delivered]:
        """All that waits to be read, without waiting for more: for readers that say themselves what they have taken."""
        assert not self._acks_by_itself, 'read several at once with acks="manual"'
        count = len(self._waiting) if count_max is None else min(count_max, len(self._waiting))
        return [self._next() for _ in range(count)]

    def _next(self) -> Delivered:
        self._bytes -= self._sizes.popleft()
        delivery = self._waiting.popleft()
        if delivery.receipt is not None and self._acks_by_itself:
            self._read = delivery
        return delivery

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self

    async def __anext__(self) -> Delivered:
        return await self.get()


def _is_durable(delivery: Delivered, identity: str, log: str) -> bool:
    return delivery.receipt is not None and delivery.identity == identity and log in ("", delivery.log)
