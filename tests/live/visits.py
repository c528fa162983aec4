"""A live client at one broker, from when it comes there until it leaves.

It does what it is asked one thing after the other, while the run goes on. If its broker is killed under it, it asks
again for what was not answered, as an application would. A publication is not repeated: it may be lost or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from catchment.client import Client, ConnectionLostError, GapSpan, connect
from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.messages import Client as Handler
from catchment.routing.messages import Deliver, DeliverSequence, Gap
from catchment.sim.simulation import SimClient

Work = Callable[[Client], Awaitable[object]]
Delivered = Callable[[SimClient, Deliver | DeliverSequence], None]
# Is told of each publication that a broker has accepted.
Accepted = Callable[[Notification], None]
# Between two attempts to connect to a broker that is not there yet.
ATTEMPT_S = 0.005


def _microseconds(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


class Visit:
    """`record` says what the client wants; `delivered` is told of what it gets."""

    def __init__(
        self,
        url: str,
        record: SimClient,
        is_up: asyncio.Event,
        delivered: Delivered,
        accepted: Accepted = lambda notification: None,
    ) -> None:
        self._accepted = accepted
        self._url = url
        self._record = record
        self._is_up = is_up
        self._delivered = delivered
        self._asked: asyncio.Queue[tuple[Work, bool]] = asyncio.Queue()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._undone = 0
        self._worker = asyncio.ensure_future(self._work())
        self._reader: asyncio.Task[None] | None = None
        for advertisement in record.advertisements:
            self.ask(lambda client, advertisement=advertisement: client.advertise(advertisement))  # type: ignore[misc]
        for id, wanted in record.wants.items():
            self.ask(lambda client, id=id, wanted=wanted: client.subscribe(wanted, id=id))  # type: ignore[misc]

    def ask(self, work: Work) -> None:
        """To be done in its turn, and again if the connection is lost meanwhile."""
        self._put(work, is_repeated=True)

    def publish(self, notification: Notification, is_acknowledged: bool) -> None:
        async def published(client: Client) -> None:
            await client.publish(notification, ack="accepted" if is_acknowledged else "none")
            if is_acknowledged:
                self._accepted(notification)

        self._put(published, is_repeated=False)

    def _told_gap(self, span: GapSpan) -> None:
        since, until = _microseconds(span.since), 0 if span.until is None else _microseconds(span.until)
        self._record.gaps[span.id] = Gap(span.id, 1, span.link or ("", ""), since, until, span.missed)

    def _put(self, work: Work, is_repeated: bool) -> None:
        self._undone += 1
        self._asked.put_nowait((work, is_repeated))

    @property
    def is_idle(self) -> bool:
        """Whether it is there and has done what it was asked."""
        return self._opened.done() and self._undone == 0

    async def drained(self) -> None:
        """All is done, the broker has had all that was sent to it, and all that it has sent until then has come."""
        while True:
            await self._asked.join()
            with suppress(ConnectionLostError):
                await (await self._opened).look()
                return
            await asyncio.sleep(ATTEMPT_S)

    async def leave(self) -> None:
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker
        if self._reader is not None:
            client = self._opened.result()
            await client.close()
            # Not before: while it closes, something may come still.
            self._record.seen = client.seen
            # What had come already is read.
            await self._reader

    async def _work(self) -> None:
        client = await self._open()
        self._reader = asyncio.ensure_future(self._read(client))
        self._opened.set_result(client)
        while True:
            work, is_repeated = await self._asked.get()
            await self._do(client, work, is_repeated)
            self._undone -= 1
            self._asked.task_done()

    async def _open(self) -> Client:
        while True:
            await self._is_up.wait()
            with suppress(ConnectionLostError):
                client: Client = await connect(
                    self._url, identity=self._record.identity, seen=self._record.seen, on_gap=self._told_gap
                )
                return client
            await asyncio.sleep(ATTEMPT_S)

    async def _do(self, client: Client, work: Work, is_repeated: bool) -> None:
        while True:
            try:
                await work(client)
                return
            except ConnectionLostError:
                if not is_repeated:
                    return
                await asyncio.sleep(0)
            except CatchmentError as problem:
                self._record.refused.append(problem)
                return

    async def _read(self, client: Client) -> None:
        record = self._record
        async for delivered in client:
            handler, identity, ids = Handler(record.identity), delivered.identity, delivered.subscriptions
            record.missed += delivered.missed
            if len(delivered.notifications) > 1:
                self._delivered(record, DeliverSequence(handler, identity, delivered.notifications, ids[0]))
            else:
                self._delivered(record, Deliver(handler, identity, delivered.notification, ids))
