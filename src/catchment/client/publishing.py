"""How a client publishes: numbers, credit, order; and what is to be stored, until it is (`unkept.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from catchment.client.connection import ConnectionToBroker
from catchment.client.numbering import Numbering
from catchment.client.problems import ConnectionLostError
from catchment.client.state import StateFile
from catchment.client.unkept import Chain, Kept, Unkept, Waiter
from catchment.errors import BadNumberError, CatchmentError, UnavailableError
from catchment.model.notification import Notification
from catchment.wire.frames import BATCH_MAX, checked_bytes, pieces
from catchment.wire.messages import Confirmed, Welcome

# How long publications wait before they are sent again to a storage that did not take them.
RESEND_S_FIRST, RESEND_S_MOST = 0.5, 10.0

log = logging.getLogger("catchment.client")
Ack = Literal["none", "accepted", "stored"]
# One notification, or several in order.
Publishable = Notification | Mapping[str, Any] | Iterable[Notification]
# Notifications of one publication, and its answer.
_Sent = tuple[Sequence[Notification], "asyncio.Future[Any]"]


class Publishing:
    """`ready` waits for a connection that is good until the next `await`."""

    def __init__(
        self,
        identity: str,
        ready: Callable[[], Awaitable[ConnectionToBroker]],
        state: StateFile | None,
    ) -> None:
        self._identity, self._ready, self._state = identity, ready, state
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._numbering = Numbering(self._loop.time)
        # Whether a broker has told its clock: before that nothing is numbered.
        self._is_clock_known = False
        # Whether the user has numbered notifications: then a refused number need not be one of ours.
        self._has_given_numbers = False
        self.unkept = Unkept(identity, self._numbering.next, state)
        if state is not None:
            numbers = [seq for queued in state.remembered.queued.values() for seq, _ in queued]
            self._numbering.last = max([0, *numbers, *state.remembered.done.values()])
        self._sending: asyncio.Task[None] | None = None
        # Not set while the storage takes nothing.
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._resend_s = RESEND_S_FIRST

    # --- beginning and end ---

    def welcomed(self, welcome: Welcome) -> None:
        self._numbering.welcomed(welcome.now, welcome.last_seq)
        self._is_clock_known = True
        self.unkept.connected(welcome.storage)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_unkept())

    def end(self, problem: BaseException) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self.unkept.fail(problem)

    # --- publishing ---

    async def publish(self, given: Publishable, ack: Ack) -> Kept | None:
        batch = _batch(given)
        if ack == "stored":
            return await self._publish_stored(batch)
        for piece in pieces(batch, [*map(checked_bytes, batch)], BATCH_MAX):
            for part in await self._misnumbered_of(await self._publish(piece, ack == "accepted")):
                await asyncio.gather(*[answer for _, answer in await self._publish(part, True)])
        return None

    async def _misnumbered_of(self, sent: Sequence[_Sent]) -> list[Sequence[Notification]]:
        """Waits for the answers. Returns what the broker has refused because of numbers that the client has given: it
        has published nothing of that. Raises any other refusal."""
        results = await asyncio.gather(*[answer for _, answer in sent], return_exceptions=True)
        misnumbered: list[Sequence[Notification]] = []
        for (part, _), result in zip(sent, results, strict=True):
            if isinstance(result, BadNumberError) and all(each.seq is None for each in part):
                misnumbered.append(part)
            elif isinstance(result, BaseException):
                raise result
        return misnumbered

    async def _publish(self, batch: Sequence[Notification], is_answered: bool) -> list[_Sent]:
        """Calls take turns, in their order, so that what is stamped first is sent first. At most as many notifications
        are sent at once as there is credit for: a broker need not give as much as a batch is long. Returns what is to
        be answered, in parts."""
        sent: list[_Sent] = []
        async with self._turn:
            while batch:
                connection = await self._ready()
                with contextlib.suppress(ConnectionLostError):
                    count = min(len(batch), await connection.allowed())
                    answer = connection.publish(tuple(map(self._numbered, batch[:count])), is_answered)
                    sent += [] if answer is None else [(batch[:count], answer)]
                    batch = batch[count:]
        return sent

    def _numbered(self, notification: Notification) -> Notification:
        self._has_given_numbers = self._has_given_numbers or notification.seq is not None
        stamped = self._stamped(notification)
        return stamped if stamped.seq is not None else stamped.stamped(seq=self._numbering.next())

    def _stamped(self, notification: Notification) -> Notification:
        source, at = notification.source, notification.time
        if source is not None and at is not None:
            return notification
        return notification.stamped(source=source or self._identity, time=at or datetime.now(UTC))

    def misnumbered(self, after: int) -> None:
        if not len(self.unkept):
            self._numbering.refused(after, may_go_back=not self._has_given_numbers)

    # --- what is to be stored ---

    async def _publish_stored(self, batch: Sequence[Notification]) -> Kept | None:
        await self.unkept.has_room.wait()
        future = self._queued(batch)
        return None if future is None else await asyncio.shield(future)

    def _queued(self, batch: Sequence[Notification]) -> asyncio.Future[Kept] | None:
        """Puts notifications in the queue of what is to be stored. They are in the state file when this returns."""
        if not batch:
            return None
        for notification in batch:
            checked_bytes(notification)
        waiter = Waiter(self._loop.create_future(), len(batch))
        self.unkept.add([*map(self._stamped, batch)], self._is_clock_known, waiter)
        return waiter.future

    def publish_nowait(self, given: Publishable) -> asyncio.Future[Kept]:
        self.unkept.check_room()
        batch = _batch(given)
        future = self._queued(batch)
        if self._state is not None:
            self._state.flush()
        return self._loop.create_future() if future is None else future

    async def publish_many(self, notifications: Iterable[Any] | AsyncIterable[Any]) -> int:
        """Publishes a stream, many at a time, and returns how many were stored: all of them."""
        waiting: list[asyncio.Future[Kept]] = []
        count = 0
        async for part in _parts(notifications):
            await self.unkept.has_room.wait()
            future = self._queued(part)
            if future is not None:
                waiting.append(future)
                count += len(part)
            # Errors are told as they come, and what is done is forgotten.
            for each in [each for each in waiting if each.done()]:
                each.result()
            waiting = [each for each in waiting if not each.done()]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        return count

    async def _send_unkept(self) -> None:
        """Sends what is to be stored as there is credit for it; all that was queued in a turn of the loop together."""
        while True:
            await self.unkept.has_some.wait()
            await self._may_send.wait()
            connection = await self._ready()
            with contextlib.suppress(ConnectionLostError):
                allowed = await connection.allowed()
                if self._state is not None:
                    # Before anybody else knows of it.
                    self._state.flush()
                for part, after, chain in self.unkept.parts(allowed):
                    answer = connection.publish_stored(part, after)
                    answer.add_done_callback(partial(self._answered, chain, part, after))

    def _answered(
        self, chain: Chain, part: Sequence[Notification], after: int | None, answer: asyncio.Future[Any]
    ) -> None:
        problem = None if answer.cancelled() else answer.exception()
        # A lost connection answers nothing: it is sent again over the next one.
        if isinstance(problem, UnavailableError) and self.unkept.storage:
            self.unavailable(problem)
        elif isinstance(problem, CatchmentError) and not isinstance(problem, ConnectionLostError):
            self.unkept.refused(chain, part, after, problem)

    def unavailable(self, problem: UnavailableError) -> None:
        """The storage is full, or cannot be reached: all that is not confirmed waits, and is sent again later."""
        if self._may_send.is_set() and len(self.unkept):
            self._may_send.clear()
            log.warning("publications wait", extra={"count": len(self.unkept), "reason": str(problem)})
            self._loop.call_later(self._resend_s, self._send_again)
            self._resend_s = min(2 * self._resend_s, RESEND_S_MOST)

    def _send_again(self) -> None:
        self.unkept.send_all_again()
        self._may_send.set()

    def confirmed(self, said: Confirmed) -> bool:
        self._resend_s = RESEND_S_FIRST
        is_same = self.unkept.confirmed(said)
        if self._state is not None:
            self._state.flush()
        return is_same


def _batch(given: Publishable) -> list[Notification]:
    several = [given] if isinstance(given, Mapping) else list(given)
    return [each if isinstance(each, Notification) else Notification(each) for each in several]


async def _parts(notifications: Iterable[Any] | AsyncIterable[Any]) -> Any:
    """Lists of at most BATCH_MAX notifications. What comes one by one is handed on one by one."""
    if isinstance(notifications, AsyncIterable):
        async for each in notifications:
            yield [each if isinstance(each, Notification) else Notification(each)]
        return
    part: list[Notification] = []
    for each in notifications:
        part.append(each if isinstance(each, Notification) else Notification(each))
        if len(part) >= BATCH_MAX:
            yield part
            part = []
    if part:
        yield part
