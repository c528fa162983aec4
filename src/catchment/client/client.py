"""The client on asyncio.

Reconnecting. A client that has lost its connection connects again, at first soon, then every few seconds. It states
again what it wants and offers, and says what it has been delivered, so that nothing comes twice. Notifications that
others published meanwhile are gone: the next delivery of each subscription says that there may be a gap. It says so too
when brokers tell that they may have lost notifications between them. `on_gap` is called at once in both cases. A
publication or request that was under way when the connection was lost raises `ConnectionLostError`: nobody knows
whether the broker has done it.

Identities that the client has mapped to another client are mapped again. If that client is not back yet, this is
tried again until it is; what the identities are due comes here until then.

Deliveries that wait to be read are bounded, for each subscription. Past the bound the client drops what comes, and the
next delivery says how many were dropped. The broker does the same for a client that does not read at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

from msgspec.structs import replace

from catchment.client.connection import ConnectionToBroker, Delivering, connected
from catchment.client.deliveries import Delivered, GapSpan, Queue
from catchment.client.numbering import Numbering
from catchment.client.problems import ConnectionLostError
from catchment.errors import BadIdError, BadNumberError, CatchmentError, InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.names import HTTP_PUBLISHER, name_refusal
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import (
    Advertise,
    Cancel,
    ClientSaid,
    Gap,
    MapIdentity,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
    Wanted,
    instant_of,
)
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.wanted import cancels
from catchment.wire.client_session import ClientSession
from catchment.wire.frames import BATCH_MAX, checked_bytes, pieces
from catchment.wire.messages import Delivery, Lost, SequenceDelivery, Welcome

DEFAULT_PORT: Final = 7400
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0
# How much a `Hello` says of what was delivered: the sources that were heard last; the others are forgotten.
SEEN_BYTES_MAX: Final = 1_048_576
# As many sources as a broker keeps for an identity.
SEEN_SOURCES_MAX: Final = 10_000

Ack = Literal["none", "accepted"]
# Notifications of one publication, and its answer.
_Sent = tuple[Sequence[Notification], "asyncio.Future[Any]"]
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
        self,
        url: str,
        identity: str,
        *,
        reconnect: bool = True,
        seen: Mapping[str, int] | None = None,
        on_gap: Callable[[GapSpan], None] | None = None,
    ) -> None:
        if refusal := name_refusal(identity):
            raise BadIdError(f"identity: {refusal}")
        self.identity = identity
        self._on_gap = on_gap
        self._lost_connections = 0
        self.broker = ""
        self._host, self._port = _address(url)
        self._reconnects = reconnect
        self._loop = asyncio.get_running_loop()
        self._connection: ConnectionToBroker | None = None
        # Set while there is a connection, and when there never will be.
        self._connected = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._ids = itertools.count(1)
        self._failed: CatchmentError | None = None
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._advertisements: dict[tuple[str, Advertisement], None] = {}
        self._suspended: set[str] = set()
        # Identities, each with its handler; besides that, it may be mapped to HTTP publishers.
        self._handlers: dict[tuple[str, str], None] = {}
        self._all: Queue | None = None
        self._seen = Newest(SEEN_SOURCES_MAX)
        self._seen.merge(seen or {})
        self._numbering = Numbering(self._loop.time)
        # Whether the user has numbered notifications: then a refused number need not be one of ours.
        self._has_given_numbers = False
        self._keeper: asyncio.Task[None] | None = None

    @property
    def seen(self) -> dict[str, int]:
        """For each source, the number of its last notification that was delivered. If it is taken from a client that is
        closed and given to `connect` at another broker, nothing comes a second time."""
        return dict(self._seen.last)

    # --- connecting ---

    async def open(self) -> Self:
        try:
            connection = await self._dial()
        except BaseException:
            # Cancelled, perhaps a moment after the broker has welcomed us: nobody else would close the connection.
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

    async def _dial(self) -> ConnectionToBroker:
        session = ClientSession(self.identity, self._seen_lately())
        return await connected(self._host, self._port, session, self._came, self._welcomed, self._misnumbered)

    def _seen_lately(self) -> dict[str, int]:
        """What was seen, as much as fits a `Hello`. The sources that were heard last are kept, and come last."""
        kept, size = [], 0
        for source, seq in reversed(self._seen.last.items()):
            size += 16 + 4 * len(source)
            if size > SEEN_BYTES_MAX:
                break
            kept.append((source, seq))
        return dict(reversed(kept))

    def _welcomed(self, connection: ConnectionToBroker, welcome: Welcome) -> None:
        self.broker, self._connection = welcome.name, connection
        self._numbering.welcomed(welcome.now, welcome.last_seq)
        self._restate(connection)
        self._connected.set()

    async def _keep(self, connection: ConnectionToBroker) -> None:
        """Connects again whenever the connection is lost: at first soon, but later and later if none lasts."""
        wait = RETRY_S_FIRST
        while True:
            began = self._loop.time()
            reason = await asyncio.shield(connection.closed)
            self._connected.clear()
            if connection.is_final or not self._reconnects:
                problem = ConnectionLostError(f"the connection to {self.broker} was lost: {reason}")
                self._fail(problem, problem)
                return
            self._lost_connections += 1
            span = GapSpan(f"connection {self._lost_connections}", datetime.now(UTC), None)
            self._mark_gap(span)
            if self._loop.time() - began > RETRY_S_MOST:
                wait = RETRY_S_FIRST
            try:
                connection, wait = await self._reconnected(wait)
            except ConnectionLostError as problem:
                self._fail(problem, problem)
                return
            self._mark_gap(replace(span, until=datetime.now(UTC)))

    def _mark_gap(self, span: GapSpan) -> None:
        for queue in self._queues():
            queue.mark_gap(span)
        if self._on_gap is not None:
            self._on_gap(span)

    async def _reconnected(self, wait: float) -> tuple[ConnectionToBroker, float]:
        """The next connection, and how long to wait before the next attempt. ConnectionLostError if the broker has
        said that there will never be one."""
        while True:
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_S_MOST)
            try:
                return await self._dial(), wait
            except ConnectionLostError as problem:
                if problem.is_final:
                    raise

    def _restate(self, connection: ConnectionToBroker) -> None:
        """States again what the client wants and offers. All of it goes out before anybody else knows of the
        connection, so nothing that is asked or published overtakes it. A subscription that the broker refuses now,
        because it has other limits, ends."""
        for identity, advertisement in self._advertisements:
            connection.ask(Advertise(identity, advertisement)).add_done_callback(_heard)
        # Before the subscriptions: otherwise something could be delivered to the wrong client in between.
        for identity, handler in list(self._handlers):
            self._remap(connection, identity, handler, RETRY_S_FIRST)
        for identity in sorted(self._suspended):
            connection.ask(Suspend(identity)).add_done_callback(_heard)
        for key, subscription in self._subscriptions.items():
            answer = connection.ask(Subscribe(subscription.identity, subscription.id, subscription.wanted))
            answer.add_done_callback(partial(self._restated, key))

    def _remap(self, connection: ConnectionToBroker, identity: str, handler: str, wait: float) -> None:
        if connection.is_open and (identity, handler) in self._handlers:
            answer = connection.ask(MapIdentity(identity, handler))
            answer.add_done_callback(partial(self._remapped, connection, identity, handler, wait))

    def _remapped(
        self, connection: ConnectionToBroker, identity: str, handler: str, wait: float, answer: asyncio.Future[Any]
    ) -> None:
        problem = None if answer.cancelled() else answer.exception()
        if isinstance(problem, BadIdError):
            # After a restart of the broker its clients come back in any order: the handler may not be there yet.
            self._loop.call_later(wait, self._remap, connection, identity, handler, min(2 * wait, RETRY_S_MOST))
        elif problem is not None and not isinstance(problem, ConnectionLostError):
            self._handlers.pop((identity, handler), None)
            log.warning("mapping refused", extra={"identity": identity, "handler": handler, "reason": str(problem)})

    def _restated(self, key: tuple[str, str], answer: asyncio.Future[Any]) -> None:
        problem = None if answer.cancelled() else answer.exception()
        # BadIdError: the broker has it still. An identity lives as long as its handler, which has not been away.
        if problem is not None and not isinstance(problem, ConnectionLostError | BadIdError):
            subscription = self._subscriptions.pop(key, None)
            if subscription is not None:
                subscription.end(problem)

    def _fail(self, problem: CatchmentError, read_problem: CatchmentError | None) -> None:
        """The client is over. Whoever asks for something gets `problem`. Whoever reads deliveries gets `read_problem`;
        without one the iteration stops."""
        self._failed = self._failed or problem
        self._connected.set()
        for queue in self._queues():
            queue.end(read_problem)

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
        """`wanted` is a filter, as text or as an object, a pattern or a CESQL expression. Deliveries are read from the
        subscription; with `take`, that is called with each of them."""
        chosen = Filter(wanted) if isinstance(wanted, str) else wanted
        assert isinstance(chosen, Filter | Pattern | Cesql)
        subscription = Subscription(self, id or f"s{next(self._ids)}", chosen, identity or self.identity, take)
        key = (subscription.identity, subscription.id)
        # Not listed before there is a connection: all that is listed is stated when the client connects again, and this
        # must be stated once.
        connection = await self._ready()
        if key in self._subscriptions:
            raise BadIdError(f"there is a subscription {shown(subscription.id)} already: cancel it first")
        answer = connection.ask(Subscribe(subscription.identity, subscription.id, chosen))
        # Listed before the answer comes: a delivery may come before that.
        self._subscriptions[key] = subscription
        try:
            await answer
        except BaseException as problem:
            self._subscriptions.pop(key, None)
            if not isinstance(problem, CatchmentError) and connection.is_open:
                # Whoever has asked was cancelled, and the broker may have the subscription already.
                connection.ask(Cancel(subscription.identity, subscription.id)).add_done_callback(_heard)
            raise
        return subscription

    async def unsubscribe(self, unwanted: Wanted | str, *, identity: str | None = None) -> None:
        """Cancels all subscriptions of the identity that this covers."""
        who, chosen = identity or self.identity, Filter(unwanted) if isinstance(unwanted, str) else unwanted
        await self._ask(Unsubscribe(who, chosen))
        for key, subscription in list(self._subscriptions.items()):
            if subscription.identity == who and cancels(chosen, subscription.wanted):
                self._subscriptions.pop(key).end()

    async def cancel(self, id: str, *, identity: str | None = None) -> None:
        who = identity or self.identity
        await self._ask(Cancel(who, id))
        if (subscription := self._subscriptions.pop((who, id), None)) is not None:
            subscription.end()

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
        """From now on, what the identity is due goes to the client named `handler`, which may speak for it too; also
        after a reconnect. With the handler `@http`, HTTP publishers may use the identity as a source, and deliveries
        stay where they are."""
        await self._ask(MapIdentity(identity, handler))
        if handler != HTTP_PUBLISHER:
            for key in [key for key in self._handlers if key[0] == identity and key[1] != HTTP_PUBLISHER]:
                del self._handlers[key]
        self._handlers[identity, handler] = None

    async def look(
        self, what: Literal["status", "explain"] = "status", notification: Notification | None = None
    ) -> Any:
        """What the broker says of itself, or why subscriptions match the notification or do not."""
        return await (await self._ready()).look(what, notification)

    async def publish(
        self, notification: Notification | Mapping[str, Any] | Iterable[Notification], *, ack: Ack = "none"
    ) -> None:
        """Publishes a notification, or several in order. Those that have no source, number or time are given them. With
        `ack="accepted"` it returns when the broker has taken them, and raises the error if the broker refuses them.

        A source that is not the client's identity must be one that the client may speak for, or that nobody has. If the
        broker refuses numbers that the client has given, because it knows greater ones of that source, they are
        published once more, with greater ones; those that the caller gave raise `BadNumberError`."""
        given = [notification] if isinstance(notification, Mapping) else list(notification)
        batch = [each if isinstance(each, Notification) else Notification(each) for each in given]
        for piece in pieces(batch, [*map(checked_bytes, batch)], BATCH_MAX):
            for part in await self._misnumbered_of(await self._publish(piece, ack == "accepted")):
                await asyncio.gather(*[answer for _, answer in await self._publish(part, True)])

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
        async with self._publishing:
            while batch:
                connection = await self._ready()
                with contextlib.suppress(ConnectionLostError):
                    count = min(len(batch), await connection.allowed())
                    answer = connection.publish(tuple(map(self._stamped, batch[:count])), is_answered)
                    sent += [] if answer is None else [(batch[:count], answer)]
                    batch = batch[count:]
        return sent

    def _stamped(self, notification: Notification) -> Notification:
        source, seq, at = notification.source, notification.seq, notification.time
        self._has_given_numbers = self._has_given_numbers or seq is not None
        if source is not None and seq is not None and at is not None:
            return notification
        return notification.stamped(
            source=source or self.identity,
            seq=seq if seq is not None else self._numbering.next(),
            time=at or datetime.now(UTC),
        )

    def _misnumbered(self, after: int) -> None:
        self._numbering.refused(after, may_go_back=not self._has_given_numbers)

    async def _ask(self, request: ClientSaid) -> None:
        await (await self._ready()).ask(request)

    async def _ready(self) -> ConnectionToBroker:
        """Waits for a connection. It is good until the next `await`."""
        while self._failed is None:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            # The connection is lost, and `_keep` has not noticed it yet.
            self._connected.clear()
            await self._connected.wait()
        raise self._failed

    # --- what comes ---

    def __aiter__(self) -> AsyncIterator[Delivered]:
        """Everything that is delivered from now on, each notification once however many subscriptions it matches."""
        if self._all is None:
            self._all = Queue()
        return self._all

    def _came(self, message: Delivering, size: int) -> None:
        match message:
            case Delivery():
                self._deliver(message.identity, message.subscriptions, (message.notification,), size)
            case SequenceDelivery():
                self._deliver(message.identity, (message.subscription,), message.notifications, size)
            case Lost():
                for queue in self._queues():
                    if not isinstance(queue, Subscription) or queue.identity == message.identity:
                        queue.miss(message.count)
            case Gap():
                until = instant_of(message.until) if message.until else None
                span = GapSpan(message.id, instant_of(message.since), until, message.missed, message.link)
                self._mark_gap(span)

    def _deliver(self, identity: str, ids: tuple[str, ...], notifications: tuple[Notification, ...], size: int) -> None:
        for notification in notifications:
            # Remembers its number, to be told to the broker with the next Hello.
            self._seen.is_new(notification)
        for id in ids:
            if (subscription := self._subscriptions.get((identity, id))) is not None:
                subscription.put(identity, ids, notifications, size)
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
    """Takes note of an answer that nobody waits for: asyncio would complain of an exception that nobody looks at."""
    if not answer.cancelled():
        answer.exception()


def _advertisement(given: Advertisement | str) -> Advertisement:
    return Advertisement(given) if isinstance(given, str) else given
