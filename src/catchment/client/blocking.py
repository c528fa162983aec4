"""The client without `await`, for scripts and notebooks. It runs an asyncio loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from catchment.client.client import Ack, Client, Subscription
from catchment.client.deliveries import Delivered, GapSpan, Queue
from catchment.client.problems import ConnectionLostError
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
        assert isinstance(self._queue, Subscription), "only a single subscription can be cancelled"
        self._client._call(self._queue.cancel())


async def _next(queue: Queue, timeout: float | None) -> Delivered | None:
    try:
        async with asyncio.timeout(timeout):
            return await queue.get()
    except (TimeoutError, StopAsyncIteration):
        return None


class BlockingClient:
    """Made by `connect_blocking`. Each method does what the method of the same name of `Client` does, and returns when
    that is done."""

    def __init__(
        self,
        url: str,
        identity: str,
        *,
        reconnect: bool = True,
        on_gap: Callable[[GapSpan], None] | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="catchment client", daemon=True)
        self._thread.start()
        try:
            self._client = self._call(_opened(url, identity, reconnect, on_gap))
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
        self, wanted: Wanted | str, *, id: str | None = None, identity: str | None = None
    ) -> BlockingSubscription:
        return BlockingSubscription(self, self._call(self._client.subscribe(wanted, id=id, identity=identity)))

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

    def publish(
        self, notification: Notification | Mapping[str, Any] | Iterable[Notification], *, ack: Ack = "none"
    ) -> None:
        self._call(self._client.publish(notification, ack=ack))

    def look(self, what: Literal["status", "explain"] = "status", notification: Notification | None = None) -> Any:
        return self._call(self._client.look(what, notification))


async def _opened(url: str, identity: str, reconnect: bool, on_gap: Callable[[GapSpan], None] | None) -> Client:
    return await Client(url, identity, reconnect=reconnect, on_gap=on_gap).open()
