"""The client on asyncio.

A connection that is lost is made again, at first soon, then every few seconds; what the client wants and offers is
stated again, with what it has been delivered, so that nothing comes twice. What was published elsewhere in between is
gone: the next delivery of each subscription says that there may be a gap. A publication or request that was under way
when the connection was lost raises `ConnectionLostError`: nobody knows whether it was done.

Identities that were mapped to another client are mapped again; if that one is not back yet, as soon as it is: what
they are due comes here until then.

What waits to be read is bounded, for each subscription: past it, what comes is dropped, and the next delivery says how
many were. The broker does the same for a client that does not read at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

from catchment.client.connection import Connection, connected
from catchment.client.deliveries import Delivered, Queue
from catchment.client.problems import ConnectionLostError
from catchment.errors import BadIdError, CatchmentError, InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import (
    Advertise,
    Cancel,
    ClientRequest,
    MapIdentity,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.wanted import cancels
from catchment.wire.frames import BATCH_MAX, VERSION, checked_bytes, pieces
from catchment.wire.messages import Delivery, Hello, Lost, SequenceDelivery, Welcome

DEFAULT_PORT: Final = 7400
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0
# What a `Hello` tells of what was delivered: the last sources; the others are forgotten.
SEEN_BYTES_MAX: Final = 1_048_576
# As many as a broker keeps for an identity.
SEEN_SOURCES_MAX: Final = 10_000

Ack = Literal["none", "accepted"]
log = logging.getLogger("catchment.client")


class Subscription(Queue):
    """`async for delivery in subscription`; `await subscription.cancel()`."""

    def __init__(
        self, client: Client, id: str, wanted: Wanted, identity: str, take: Callable[[Delivered], None] | None = None
    ) -> None:
        super().__init__(take)
        self.id = id
        self.wanted = wanted
        self.identity = identity
        self._client = client

    async def cancel(self) -> None:
        await self._client.cancel(self.id, identity=self.identity)


class Client:
    """Made by `connect`."""

    def __init__(
        self, url: str, identity: str, *, reconnect: bool = True, seen: Mapping[str, int] | None = None
    ) -> None:
        self.identity = identity
        self.broker = ""
        self._host, self._port = _address(url)
        self._reconnects = reconnect
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._ids = itertools.count(1)
        self._failed: CatchmentError | None = None
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._advertisements: dict[tuple[str, Advertisement], None] = {}
        self._suspended: set[str] = set()
        self._handlers: dict[str, str] = {}
        self._all: Queue | None = None
        self._seen = Newest(SEEN_SOURCES_MAX)
        self._seen.merge(seen or {})
        self._seq = 0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def seen(self) -> dict[str, int]:
        """By source the last number that was delivered. Taken from a client that is closed and given to `connect`
        elsewhere, nothing comes a second time."""
        return dict(self._seen.last)

    # --- connecting ---

    async def open(self) -> Self:
        try:
            connection = await self._dial()
        except BaseException:
            # Given up, perhaps a moment after it was welcomed: nobody is there to close it.
            if self._connection is not None:
                self._connection.abort("given up")
            raise
        self._keeper = self._loop.create_task(self._keep(connection))
        return self

    async def close(self) -> None:
        """Returns when what was published is on its way."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._fail(ConnectionLostError("the client was closed"), None)
        if self._connection is not None:
            self._connection.end("done")
            await self._connection.ended()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _dial(self) -> Connection:
        hello = Hello((VERSION, VERSION), "client", self.identity, self._seen_lately())
        return await connected(self._host, self._port, hello, self._came, self._welcomed)

    def _seen_lately(self) -> dict[str, int]:
        """As much of what was seen as fits, the last first to be kept."""
        found, size = [], 0
        for source, seq in reversed(self._seen.last.items()):
            size += 16 + 4 * len(source)
            if size > SEEN_BYTES_MAX:
                break
            found.append((source, seq))
        return dict(reversed(found))

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        self.broker, self._connection = welcome.name, connection
        self._restate(connection)
        self._connected.set()

    async def _keep(self, connection: Connection) -> None:
        """Connects again, at first soon; a connection that does not last is no reason to hurry."""
        wait = RETRY_S_FIRST
        while True:
            began = self._loop.time()
            reason = await asyncio.shield(connection.lost)
            self._connected.clear()
            if connection.is_final or not self._reconnects:
                problem = ConnectionLostError(f"the connection to {self.broker} was lost: {reason}")
                self._fail(problem, problem)
                return
            for one in self._queues():
                one.mark_gap()
            if self._loop.time() - began > RETRY_S_MOST:
                wait = RETRY_S_FIRST
            found = None
            while found is None:
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_S_MOST)
                with contextlib.suppress(ConnectionLostError):
                    found = await self._dial()
            connection = found

    def _restate(self, connection: Connection) -> None:
        """All at once, and before others know of the connection: nothing that is asked or published overtakes it. What
        is refused now, by a broker with other limits, has ended."""
        for identity, one in self._advertisements:
            connection.ask(Advertise(identity, one)).add_done_callback(_heard)
        # Before the subscriptions: nothing is delivered in between, or to somebody else.
        for identity, handler in list(self._handlers.items()):
            self._remap(connection, identity, handler, RETRY_S_FIRST)
        for identity in sorted(self._suspended):
            connection.ask(Suspend(identity)).add_done_callback(_heard)
        for key, subscription in self._subscriptions.items():
            answer = connection.ask(Subscribe(subscription.identity, subscription.id, subscription.wanted))
            answer.add_done_callback(partial(self._restated, key))

    def _remap(self, connection: Connection, identity: str, handler: str, wait: float) -> None:
        if connection.is_open and self._handlers.get(identity) == handler:
            answer = connection.ask(MapIdentity(identity, handler))
            answer.add_done_callback(partial(self._remapped, connection, identity, handler, wait))

    def _remapped(
        self, connection: Connection, identity: str, handler: str, wait: float, answer: asyncio.Future[Any]
    ) -> None:
        problem = None if answer.cancelled() else answer.exception()
        if isinstance(problem, BadIdError):
            # After a restart of the broker clients come in any order: the handler may not be there yet.
            self._loop.call_later(wait, self._remap, connection, identity, handler, min(2 * wait, RETRY_S_MOST))
        elif problem is not None and not isinstance(problem, ConnectionLostError):
            if self._handlers.get(identity) == handler:
                del self._handlers[identity]
            log.warning("mapping refused", extra={"identity": identity, "handler": handler, "reason": str(problem)})

    def _restated(self, key: tuple[str, str], answer: asyncio.Future[Any]) -> None:
        problem = None if answer.cancelled() else answer.exception()
        # With a BadIdError it is there still: an identity lives as long as its handler, which has not been away.
        if problem is not None and not isinstance(problem, ConnectionLostError | BadIdError):
            subscription = self._subscriptions.pop(key, None)
            if subscription is not None:
                subscription.end(problem)

    def _fail(self, problem: CatchmentError, said: CatchmentError | None) -> None:
        """Nothing is done any more: whoever asks hears the problem, whoever reads what is said or that it is over."""
        self._failed = self._failed or problem
        self._connected.set()
        for one in self._queues():
            one.end(said)

    def _queues(self) -> Iterable[Queue]:
        return (*self._subscriptions.values(), *(() if self._all is None else (self._all,)))

    # --- asking ---

    async def subscribe(
        self,
        wanted: Wanted | str,
        *,
        id: str | None = None,
        identity: str | None = None,
        take: Callable[[Delivered], None] | None = None,
    ) -> Subscription:
        """A filter, as text or as an object, a pattern or a CESQL expression. What is delivered is read from the
        subscription, or `take` is called with it."""
        chosen = Filter(wanted) if isinstance(wanted, str) else wanted
        assert isinstance(chosen, Filter | Pattern | Cesql)
        found = Subscription(self, id or f"s{next(self._ids)}", chosen, identity or self.identity, take)
        key = (found.identity, found.id)
        # What is there when the connection is made again is stated then: this one is to be stated once.
        connection = await self._ready()
        if key in self._subscriptions:
            raise BadIdError(f"there is a subscription {shown(found.id)} already: cancel it first")
        answer = connection.ask(Subscribe(found.identity, found.id, chosen))
        # Before it is answered: what is delivered at once must find it.
        self._subscriptions[key] = found
        try:
            await answer
        except BaseException as problem:
            self._subscriptions.pop(key, None)
            if not isinstance(problem, CatchmentError) and connection.is_open:
                # Whoever has asked does not want it any more, and the broker may have it already.
                connection.ask(Cancel(found.identity, found.id)).add_done_callback(_heard)
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
        """What the identity is due goes to the client of that name from now on, also after a reconnect."""
        await self._ask(MapIdentity(identity, handler))
        self._handlers[identity] = handler

    async def look(
        self, what: Literal["status", "explain"] = "status", notification: Notification | None = None
    ) -> Any:
        """What the broker says of itself."""
        return await (await self._ready()).look(what, notification)

    async def publish(
        self, notification: Notification | Mapping[str, Any] | Iterable[Notification], *, ack: Ack = "none"
    ) -> None:
        """One notification or several, in order; stamped with source, number and time where they have none. With
        `ack="accepted"` it returns when the broker has taken them, and raises what it refuses them with."""
        batch = [notification] if isinstance(notification, Mapping) else list(notification)
        whole = [one if isinstance(one, Notification) else Notification(one) for one in batch]
        for piece in pieces(whole, [checked_bytes(one) for one in whole], BATCH_MAX):
            await asyncio.gather(*await self._publish(piece, ack == "accepted"))

    async def _publish(self, batch: Sequence[Notification], is_answered: bool) -> list[asyncio.Future[Any]]:
        """One after the other, in the order of the calls: what is stamped first is sent first. As many at once as there
        is credit for: a broker need not give as much as a batch is long."""
        answers: list[asyncio.Future[Any]] = []
        async with self._publishing:
            while batch:
                connection = await self._ready()
                with contextlib.suppress(ConnectionLostError):
                    count = min(len(batch), await connection.allowed())
                    answer = connection.publish(tuple(map(self._stamped, batch[:count])), is_answered)
                    batch = batch[count:]
                    answers += [] if answer is None else [answer]
        return answers

    def _stamped(self, one: Notification) -> Notification:
        if one.source is not None and one.seq is not None and one.time is not None:
            return one
        # From the clock, so that it goes on above what was said before this process began.
        self._seq = max(self._seq + 1, time.time_ns() // 1_000)
        return one.stamped(
            source=one.source or self.identity,
            seq=one.seq if one.seq is not None else self._seq,
            time=one.time or datetime.now(UTC),
        )

    async def _ask(self, request: ClientRequest) -> None:
        await (await self._ready()).ask(request)

    async def _ready(self) -> Connection:
        """The connection, once there is one; it is, until the next `await`."""
        while self._failed is None:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            # Lost already, and the keeper does not know it yet.
            self._connected.clear()
            await self._connected.wait()
        raise self._failed

    # --- what comes ---

    def __aiter__(self) -> AsyncIterator[Delivered]:
        """Everything that is delivered, each once, however many subscriptions it matches; from now on."""
        if self._all is None:
            self._all = Queue()
        return self._all

    def _came(self, message: Delivery | SequenceDelivery | Lost, size: int) -> None:
        match message:
            case Delivery():
                self._deliver(message.identity, message.subscriptions, (message.notification,), size)
            case SequenceDelivery():
                self._deliver(message.identity, (message.subscription,), message.notifications, size)
            case Lost():
                for one in self._queues():
                    if not isinstance(one, Subscription) or one.identity == message.identity:
                        one.miss(message.count)

    def _deliver(self, identity: str, ids: tuple[str, ...], notifications: tuple[Notification, ...], size: int) -> None:
        for one in notifications:
            self._seen.is_new(one)
        for id in ids:
            if (found := self._subscriptions.get((identity, id))) is not None:
                found.put(identity, ids, notifications, size)
        if self._all is not None:
            self._all.put(identity, ids, notifications, size)


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


def _heard(answer: asyncio.Future[Any]) -> None:
    """Whatever it says: it is asked for again with the next connection."""
    if not answer.cancelled():
        answer.exception()


def _advertisement(found: Advertisement | str) -> Advertisement:
    return Advertisement(found) if isinstance(found, str) else found
