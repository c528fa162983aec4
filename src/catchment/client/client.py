"""The client on asyncio.

A connection that is lost is made again, at first soon, then every few seconds; what the client wants and offers is
stated again, with what it has been delivered, so that nothing comes twice. What was published elsewhere in between is
gone: the next delivery of each subscription says that there may be a gap. A publication or request that was under way
when the connection was lost raises `ConnectionLostError`: nobody knows whether it was done.

What waits to be read is bounded, for each subscription: past it, what comes is dropped, and the next delivery says how
many were. The broker does the same for a client that does not read at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

from catchment.client.deliveries import Delivered, Queue
from catchment.client.problems import ConnectionLostError, RefusedError, error_of
from catchment.errors import BadIdError, CatchmentError, InputError, shown
from catchment.model.cesql import Cesql
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification
from catchment.routing.messages import (
    Advertise,
    Cancel,
    MapIdentity,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.routing.wanted import cancels
from catchment.wire import (
    BATCH_MAX,
    VERSION,
    Accepted,
    ClientRequest,
    Credit,
    Decoder,
    Delivery,
    Goodbye,
    Hello,
    Look,
    Lost,
    Ping,
    Pong,
    Publish,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    ToClient,
    Welcome,
    WireError,
    frame,
)

DEFAULT_PORT: Final = 7400
CONNECT_S_MAX: Final = 10.0
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0

Ack = Literal["none", "accepted"]


class Subscription(Queue):
    """`async for delivery in subscription`; `await subscription.cancel()`."""

    def __init__(self, client: Client, id: str, wanted: Wanted, identity: str) -> None:
        super().__init__()
        self.id = id
        self.wanted = wanted
        self.identity = identity
        self._client = client

    async def cancel(self) -> None:
        await self._client.cancel(self.id)


class Client:
    """Made by `connect`."""

    def __init__(self, url: str, identity: str, *, reconnect: bool = True) -> None:
        self.identity = identity
        self.broker = ""
        self._host, self._port = _address(url)
        self._reconnects = reconnect
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._credit = 0
        self._credited = asyncio.Event()
        self._connected = asyncio.Event()
        self._failed: CatchmentError | None = None
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._advertisements: dict[tuple[str, Advertisement], None] = {}
        self._suspended: set[str] = set()
        self._all: Queue | None = None
        self._seen: dict[str, int] = {}
        self._seq = 0
        self._keeper: asyncio.Task[None] | None = None
        self._is_closing = False

    # --- connecting ---

    async def open(self) -> Self:
        await self._dial()
        self._keeper = self._loop.create_task(self._keep())
        return self

    async def close(self) -> None:
        self._is_closing = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self._transport is not None:
            self._transport.write(frame(Goodbye("done")))
            self._transport.close()
        self._lose(ConnectionLostError("the client was closed"))
        for one in self._queues():
            one.end()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _dial(self) -> None:
        welcome: asyncio.Future[Welcome] = self._loop.create_future()
        hello = Hello((VERSION, VERSION), "client", self.identity, dict(self._seen))
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                self._lost = self._loop.create_future()
                await self._loop.create_connection(lambda: _Wire(self, hello, welcome), self._host, self._port)
                found = await welcome
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
            raise ConnectionLostError(f"cannot connect to {self._host}:{self._port}: {reason}") from None
        self.broker, self._credit = found.name, found.credit
        self._credited.set()
        self._connected.set()

    async def _keep(self) -> None:
        """Connects again, and states again what is wanted."""
        wait = RETRY_S_FIRST
        while True:
            await self._lost
            self._connected.clear()
            if not self._reconnects:
                self._fail(ConnectionLostError(f"the connection to {self.broker} was lost: {self._lost.result()}"))
                return
            for one in self._queues():
                one.mark_gap()
            while not self._connected.is_set():
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_S_MOST)
                with contextlib.suppress(ConnectionLostError):
                    await self._dial()
            wait = RETRY_S_FIRST
            with contextlib.suppress(ConnectionLostError):
                await self._restate()

    async def _restate(self) -> None:
        requests: list[ClientRequest] = [Advertise(identity, one) for identity, one in self._advertisements]
        requests += [Subscribe(one.identity, one.id, one.wanted) for one in self._subscriptions.values()]
        requests += [Suspend(identity) for identity in sorted(self._suspended)]
        for request in requests:
            with contextlib.suppress(InputError, RefusedError):
                await self._ask(request)

    def _fail(self, problem: CatchmentError) -> None:
        self._failed = problem
        self._connected.set()
        self._credited.set()
        for one in self._queues():
            one.end(problem)

    def _queues(self) -> Iterable[Queue]:
        return (*self._subscriptions.values(), *(() if self._all is None else (self._all,)))

    # --- asking ---

    async def subscribe(
        self, wanted: Wanted | str, *, id: str | None = None, identity: str | None = None
    ) -> Subscription:
        """A filter, as text or as an object, a pattern or a CESQL expression."""
        chosen = Filter(wanted) if isinstance(wanted, str) else wanted
        assert isinstance(chosen, Filter | Pattern | Cesql)
        found = Subscription(self, id or f"s{next(self._ids)}", chosen, identity or self.identity)
        key = (found.identity, found.id)
        if key in self._subscriptions:
            raise BadIdError(f"there is a subscription {shown(found.id)} already: cancel it first")
        # Before it is asked for: what is delivered at once must find it.
        self._subscriptions[key] = found
        try:
            await self._ask(Subscribe(found.identity, found.id, chosen))
        except CatchmentError:
            self._subscriptions.pop(key, None)
            raise
        return found

    async def unsubscribe(self, unwanted: Wanted | str, *, identity: str | None = None) -> None:
        """Cancels all subscriptions that are covered by this."""
        who, chosen = identity or self.identity, Filter(unwanted) if isinstance(unwanted, str) else unwanted
        await self._ask(Unsubscribe(who, chosen))
        for key, one in list(self._subscriptions.items()):
            if one.identity == who and cancels(chosen, one.wanted):
                self._subscriptions.pop(key).end()

    async def cancel(self, id: str, *, identity: str | None = None) -> None:
        who = identity or self.identity
        await self._ask(Cancel(who, id))
        if (found := self._subscriptions.pop((who, id), None)) is not None:
            found.end()

    async def advertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        who, chosen = identity or self.identity, _advertisement(advertisement)
        await self._ask(Advertise(who, chosen))
        self._advertisements[who, chosen] = None

    async def unadvertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        who, chosen = identity or self.identity, _advertisement(advertisement)
        await self._ask(Unadvertise(who, chosen))
        for key in [key for key in self._advertisements if key[0] == who and chosen.covers(key[1])]:
            del self._advertisements[key]

    async def suspend(self, *, identity: str | None = None) -> None:
        await self._ask(Suspend(identity or self.identity))
        self._suspended.add(identity or self.identity)

    async def resume(self, *, identity: str | None = None) -> None:
        self._suspended.discard(identity or self.identity)
        await self._ask(Resume(identity or self.identity))

    async def map_identity(self, identity: str, handler: str) -> None:
        """What the identity is due goes to the client of that name from now on."""
        await self._ask(MapIdentity(identity, handler))

    async def look(
        self, what: Literal["status", "explain"] = "status", notification: Notification | None = None
    ) -> Any:
        """What the broker says of itself."""
        number = next(self._numbers)
        return await self._answered(number, frame(Look(number, what, notification)))

    async def publish(
        self, notification: Notification | Mapping[str, Any] | Iterable[Notification], *, ack: Ack = "none"
    ) -> None:
        """One notification or several, in order; stamped with source, number and time where they have none. With
        `ack="accepted"` it returns when the broker has taken them, and raises what it refuses them with."""
        batch = [notification] if isinstance(notification, Mapping) else list(notification)
        stamped = [self._stamped(one) for one in batch]
        for start in range(0, len(stamped), BATCH_MAX):
            await self._publish(tuple(stamped[start : start + BATCH_MAX]), ack)

    async def _publish(self, batch: tuple[Notification, ...], ack: Ack) -> None:
        while self._credit < len(batch) or not self._connected.is_set():
            await self._connected.wait()
            if self._failed is not None:
                raise self._failed
            if self._credit < len(batch):
                self._credited.clear()
                await self._credited.wait()
        self._credit -= len(batch)
        number = next(self._numbers) if ack == "accepted" else 0
        body = frame(Publish(number, batch))
        if number:
            await self._answered(number, body)
        else:
            self._write(body)

    def _stamped(self, found: Notification | Mapping[str, Any]) -> Notification:
        one = found if isinstance(found, Notification) else Notification(found)
        if one.source is not None and one.seq is not None and one.time is not None:
            return one
        # From the clock, so that it goes on above what was said before this process began.
        self._seq = max(self._seq + 1, time.time_ns() // 1_000)
        return Notification(
            dict(one),
            source=one.source or self.identity,
            seq=one.seq if one.seq is not None else self._seq,
            time=one.time or datetime.now(UTC),
            id=one.id,
            payload=one.payload,
        )

    async def _ask(self, request: ClientRequest) -> None:
        number = next(self._numbers)
        await self._answered(number, frame(Request(number, request)))

    async def _answered(self, number: int, body: bytes) -> Any:
        await self._connected.wait()
        if self._failed is not None:
            raise self._failed
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            self._write(body)
            return await answer
        finally:
            self._waiting.pop(number, None)

    def _write(self, body: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLostError(f"the connection to {self.broker} was lost")
        self._transport.write(body)

    # --- what comes ---

    def __aiter__(self) -> AsyncIterator[Delivered]:
        """Everything that is delivered, each once, however many subscriptions it matches; from now on."""
        if self._all is None:
            self._all = Queue()
        return self._all

    def _came(self, message: Any) -> None:
        match message:
            case Delivery():
                self._deliver(message.identity, message.subscriptions, (message.notification,))
            case SequenceDelivery():
                self._deliver(message.identity, (message.subscription,), message.notifications)
            case Lost():
                for one in self._queues():
                    if not isinstance(one, Subscription) or one.identity == message.identity:
                        one.miss(message.count)
            case Credit():
                self._credit += message.notifications
                self._credited.set()
            case Accepted():
                self._answer(message.number, None)
            case Seen():
                self._answer(message.number, message.found)
            case Refused():
                self._answer(message.number, error_of(message))
            case Ping() if self._transport is not None:
                self._transport.write(frame(Pong()))
            case _:
                pass

    def _deliver(self, identity: str, ids: tuple[str, ...], notifications: tuple[Notification, ...]) -> None:
        for one in notifications:
            if one.source is not None and one.seq is not None:
                self._seen[one.source] = max(one.seq, self._seen.get(one.source, one.seq))
        for id in ids:
            if (found := self._subscriptions.get((identity, id))) is not None:
                found.put(identity, ids, notifications)
        if self._all is not None:
            self._all.put(identity, ids, notifications)

    def _answer(self, number: int, found: Any) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(found, CatchmentError):
            waiting.set_exception(found)
        else:
            waiting.set_result(found)

    def _opened(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def _closed(self, reason: str) -> None:
        self._connected.clear()
        self._transport = None
        self._lose(ConnectionLostError(f"the connection to {self.broker or self._host} was lost: {reason}"))
        if not self._lost.done():
            self._lost.set_result(reason)

    def _lose(self, problem: ConnectionLostError) -> None:
        for one in self._waiting.values():
            if not one.done():
                one.set_exception(problem)
        self._waiting.clear()


class _Wire(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, client: Client, hello: Hello, welcome: asyncio.Future[Welcome]) -> None:
        self._client = client
        self._hello = hello
        self._welcome = welcome
        self._decoder: Decoder[Any] = Decoder(ToClient)
        self._reason = "the broker has closed it"
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it with uvloop.
        self._transport = cast("asyncio.Transport", transport)
        self._client._opened(self._transport)
        self._transport.write(frame(self._hello))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            for message in self._decoder.feed(data):
                match message:
                    case Welcome() if not self._welcome.done():
                        self._welcome.set_result(message)
                    case Goodbye():
                        self._reason = message.reason
                        self._transport.close()
                    case _:
                        self._client._came(message)
        except WireError as problem:
            self._reason = str(problem)
            self._transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        reason = self._reason if problem is None else str(problem) or type(problem).__name__
        if not self._welcome.done():
            self._welcome.set_exception(ConnectionLostError(f"refused: {reason}"))
        self._client._closed(reason)


def _address(url: str) -> tuple[str, int]:
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "catchment":
        raise InputError(f"{shown(url)}: a broker's address begins with catchment://")
    host, colon, port = (rest if separator else url).rstrip("/").rpartition(":")
    if not colon:
        host, port = port, str(DEFAULT_PORT)
    if not port.isdecimal():
        raise InputError(f"{shown(url)} is no address: write catchment://host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _advertisement(found: Advertisement | str) -> Advertisement:
    return Advertisement(found) if isinstance(found, str) else found
