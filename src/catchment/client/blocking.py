"""The client without `await`, for scripts and notebooks. It runs an asyncio loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from catchment.client.client import Client
from catchment.client.deliveries import Acks, Delivered, Queue
from catchment.client.problems import ConnectionLostError
from catchment.client.publishing import Ack, Publishable
from catchment.client.subscription import Subscription
from catchment.client.unkept import Kept
from catchment.model.advertisement import Advertisement
from catchment.model.notification import Notification
from catchment.routing.messages import Wanted

T = TypeVar("T")


class BlockingSubscription:
    """`for delivery in subscription` waits for each delivery, and ends when the subscription or the client does."""

    def __init__(self, client: BlockingClient, queue: Queue) -> None:
        self._client = client
        self._queue = queue

    def get(self, timeout: float | None = None) -> Delivered | None:
        """The next delivery, or None if none comes within `timeout` seconds or none will come any more."""
        return self._client._call(_next(self._queue, timeout))

    def __iter__(self) -> Iterator[Delivered]:
        while (delivery := self.get()) is not None:
            yield delivery

    def cancel(self) -> None:
        self._client._call(self._subscription.cancel())

    # --- durable ---

    def ack(self, delivery: Delivered) -> None:
        """`Delivered.ack`, from this thread: use it instead, for the client runs in another."""
        self._client._call(_done(delivery.ack))

    def effective(self, timeout: float | None = None) -> tuple[str, ...]:
        """Waits until all storages know a durable subscription, and returns those that are missing. TimeoutError if
        that takes longer."""
        return self._client._call(_waited(self._subscription.effective, timeout))

    def edit(self, wanted: Wanted | str) -> None:
        self._client._call(self._subscription.edit(wanted))

    def rewind(self, *, log: str = "", epoch: int = 0, since: datetime | None = None) -> None:
        self._client._call(self._subscription.rewind(log=log, epoch=epoch, since=since))

    @property
    def _subscription(self) -> Subscription:
        assert isinstance(self._queue, Subscription), "this has the deliveries of a group: use the client's methods"
        return self._queue


async def _next(queue: Queue, timeout: float | None) -> Delivered | None:
    try:
        async with asyncio.timeout(timeout):
            return await queue.get()
    except (TimeoutError, StopAsyncIteration):
        return None


class BlockingClient:
    """Made by `connect_blocking`. Each method does what the method of the same name of `Client` does, and returns when
    that is done."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="catchment client", daemon=True)
        self._thread.start()
        try:
            self._client = self._call(_opened(make))
        except BaseException:
            self._end()
            raise

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise ConnectionLostError("the client was closed")
        if current_thread() is self._thread:
            # It would wait for itself, for ever.
            work.close()
            raise RuntimeError("on_gap runs in the thread of the client: call the client from another thread")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # For example a KeyboardInterrupt: the work must not go on when nobody waits for it.
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def close(self) -> None:
        if not self._loop.is_closed():
            try:
                self._call(self._client.close())
            finally:
                self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def identity(self) -> str:
        return self._client.identity

    @property
    def broker(self) -> str:
        return self._client.broker

    def subscribe(
        self,
        wanted: Wanted | str,
        *,
        id: str | None = None,
        identity: str | None = None,
        durable: bool = False,
        group: str | None = None,
        via: str = "",
        acks: Acks = "next",
    ) -> BlockingSubscription:
        made = self._client.subscribe(
            wanted, id=id, identity=identity, durable=durable, group=group, via=via, acks=acks
        )
        return BlockingSubscription(self, self._call(made))

    def unsubscribe(self, unwanted: Wanted | str, *, identity: str | None = None) -> None:
        self._call(self._client.unsubscribe(unwanted, identity=identity))

    def cancel(self, id: str, *, identity: str | None = None) -> None:
        self._call(self._client.cancel(id, identity=identity))

    def advertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        self._call(self._client.advertise(advertisement, identity=identity))

    def unadvertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        self._call(self._client.unadvertise(advertisement, identity=identity))

    def suspend(self, *, identity: str | None = None) -> None:
        self._call(self._client.suspend(identity=identity))

    def resume(self, *, identity: str | None = None) -> None:
        self._call(self._client.resume(identity=identity))

    def map_identity(self, identity: str, handler: str) -> None:
        self._call(self._client.map_identity(identity, handler))

    def publish(self, notification: Publishable, *, ack: Ack = "none") -> Kept | None:
        return self._call(self._client.publish(notification, ack=ack))

    def publish_many(self, notifications: Iterable[Any]) -> int:
        return self._call(self._client.publish_many(notifications))

    @property
    def positions(self) -> dict[str, int]:
        return self._client.positions

    @property
    def unkept_count(self) -> int:
        return self._client.unkept_count

    def leave_storage(self) -> None:
        self._call(_done(self._client.leave_storage))

    def edit(self, id: str, wanted: Wanted | str, *, identity: str | None = None) -> None:
        self._call(self._client.edit(id, wanted, identity=identity))

    def cancel_durable(self, id: str, *, identity: str | None = None) -> None:
        self._call(self._client.cancel_durable(id, identity=identity))

    def rewind(
        self, *, log: str = "", epoch: int = 0, since: datetime | None = None, identity: str | None = None
    ) -> None:
        self._call(self._client.rewind(log=log, epoch=epoch, since=since, identity=identity))

    def join(self, group: str, *, acks: Acks = "next") -> BlockingSubscription:
        return BlockingSubscription(self, self._call(self._client.join(group, acks=acks)))

    def leave(self, group: str) -> None:
        self._call(self._client.leave(group))

    def forget(self, *, identity: str | None = None) -> None:
        self._call(self._client.forget(identity=identity))

    def look(self, what: Literal["status", "explain"] = "status", notification: Notification | None = None) -> Any:
        return self._call(self._client.look(what, notification))


async def _opened(make: Callable[[], Client]) -> Client:
    return await make().open()


async def _waited(future: asyncio.Future[T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await asyncio.shield(future)


async def _done(work: Callable[[], object]) -> None:
    work()
