"""The client on asyncio.

Reconnecting. A client that has lost its connection connects again, at first soon, then every few seconds. It states
again what it wants and offers, and says what it has been delivered, so that nothing comes twice. Notifications that
others published meanwhile are gone: the next delivery of each subscription says that there may be a gap. It says so too
when brokers tell that they may have lost notifications between them. `on_gap` is called at once in both cases. A
publication or request that was under way when the connection was lost raises `ConnectionLostError`: nobody knows
whether the broker has done it.

Identities that the client has mapped to another client are mapped again. If that client is not back yet, this is
tried again until it is; what the identities are due comes here until then.

Durable subscriptions are different: nothing is missed, and nothing is stated again (`durable.py`). Publications that
are to be stored wait in the client until they are, whatever happens to the connection (`unkept.py`).

With several addresses the client goes to the next one whenever a connection is lost or refused.

Deliveries that wait to be read are bounded, for each subscription. Past the bound the client drops what comes, and the
next delivery says how many were dropped. The broker does the same for a client that does not read at all.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from catchment.client.addresses import parsed_addresses
from catchment.client.connection import ConnectionToBroker, Delivering
from catchment.client.deliveries import Acks, Delivered, GapSpan, Queue
from catchment.client.durable import Durably, LostLogSpan, check_durable, heard
from catchment.client.problems import ConnectionLostError
from catchment.client.publishing import Ack, Publishable, Publishing
from catchment.client.reconnecting import Events, Reconnecting
from catchment.client.standing import Standing
from catchment.client.state import StateFile
from catchment.client.subscription import Subscription
from catchment.client.unkept import Kept
from catchment.errors import BadIdError, CatchmentError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.names import name_refusal
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.durable.messages import (
    CancelDurable,
    DurableRequest,
    Forget,
)
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
from catchment.wire.messages import (
    Confirmed,
    Delivery,
    DurableDelivery,
    Effective,
    Lost,
    LostLog,
    SequenceDelivery,
    Welcome,
)

# How much a `Hello` says of what was delivered: the sources that were heard last; the others are forgotten.
SEEN_BYTES_MAX: Final = 1_048_576
# As many sources as a broker keeps for an identity.
SEEN_SOURCES_MAX: Final = 10_000


class Client:
    """Made by `connect`."""

    def __init__(
        self,
        url: str | Sequence[str],
        identity: str,
        *,
        reconnect: bool = True,
        seen: Mapping[str, int] | None = None,
        on_gap: Callable[[GapSpan], None] | None = None,
        state: str | Path | None = None,
        positions: Mapping[str, int] | None = None,
        on_lost_log: Callable[[LostLogSpan], None] | None = None,
        offline: bool = False,
    ) -> None:
        if refusal := name_refusal(identity):
            raise BadIdError(f"identity: {refusal}")
        self.identity = identity
        self._on_gap = on_gap
        self._loop = asyncio.get_running_loop()
        self._connecting = Reconnecting(self._events(), parsed_addresses(url), reconnect, offline)
        self._ids = itertools.count(1)
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._standing = Standing()
        self._all: Queue | None = None
        self._seen = Newest(SEEN_SOURCES_MAX)
        self._seen.merge(seen or {})
        self._state = None if state is None else StateFile(Path(state), identity)
        self._publishing = Publishing(identity, self._connecting.ready, self._state)
        self._durably = Durably(self, self._queues, self._queues_of, positions or {}, self._state, on_lost_log)

    @property
    def broker(self) -> str:
        """The name of the broker that the client is connected to, or was last."""
        return self._connecting.broker

    @property
    def is_connected(self) -> bool:
        return self._connecting.is_connected

    @property
    def is_over(self) -> bool:
        """Whether the client was closed, or will never connect again."""
        return self._connecting.is_over

    @property
    def connection(self) -> ConnectionToBroker | None:
        """The connection that there is, or was last."""
        return self._connecting.connection

    @property
    def seen(self) -> dict[str, int]:
        """For each source, the number of its last notification that was delivered. If it is taken from a client that is
        closed and given to `connect` at another broker, nothing comes a second time."""
        return dict(self._seen.last)

    @property
    def positions(self) -> dict[str, int]:
        """How far the application has taken each log. An application that keeps them with what it makes of the
        deliveries, and gives them to `connect`, has each of them exactly once."""
        return self._durably.taking.positions

    @property
    def unkept_count(self) -> int:
        """How many publications that are to be stored are not confirmed yet."""
        return len(self._publishing.unkept)

    # --- connecting ---

    async def open(self) -> Self:
        try:
            await self._connecting.open()
        except BaseException:
            self._close_state()
            raise
        return self

    async def close(self) -> None:
        """Returns when what was published is on its way."""
        # What was taken in this turn of the loop.
        self._durably.taking.tell()
        await self._connecting.close()
        self._close_state()

    def _close_state(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _events(self) -> Events:
        return Events(
            self._make_session,
            self._came,
            # Publishing needs the connection, so it is made later.
            lambda after: self._publishing.misnumbered(after),  # noqa: PLW0108
            lambda problem: self._publishing.unavailable(problem),  # noqa: PLW0108
            self._welcomed,
            self._mark_gap,
            self._disconnected,
            self._failed,
        )

    def _make_session(self) -> ClientSession:
        return ClientSession(
            self.identity,
            self._seen_lately(),
            session=self._durably.next_session,
            positions=self._durably.taking.positions,
            storage=self._publishing.unkept.bound_to,
        )

    def _seen_lately(self) -> dict[str, int]:
        """What was seen, as much as fits a `Hello`. The sources that were heard last are kept, and come last."""
        lately = reversed(self._seen.last.items())
        sizes = itertools.accumulate(16 + 4 * len(source) for source in reversed(self._seen.last))
        kept = [each for each, size in zip(lately, sizes, strict=True) if size <= SEEN_BYTES_MAX]
        return dict(reversed(kept))

    def _welcomed(self, connection: ConnectionToBroker, welcome: Welcome) -> None:
        self._durably.welcomed(welcome)
        self._restate(connection)
        self._publishing.welcomed(welcome)

    def _disconnected(self) -> None:
        self._durably.disconnected()
        self._publishing.unkept.disconnected()

    def _mark_gap(self, span: GapSpan) -> None:
        for queue in self._queues():
            queue.mark_gap(span)
        if self._on_gap is not None:
            self._on_gap(span)

    def _restate(self, connection: ConnectionToBroker) -> None:
        """States again what the client wants and offers. All of it goes out before anybody else knows of the
        connection, so nothing that is asked or published overtakes it. A subscription that the broker refuses now,
        because it has other limits, ends."""
        self._standing.restate(connection)
        for key, subscription in self._subscriptions.items():
            if not subscription.is_durable:
                answer = connection.ask(Subscribe(subscription.identity, subscription.id, subscription.wanted))
                answer.add_done_callback(partial(self._restated, key))
        self._durably.restate(connection, self._durable_subscriptions())

    def _restated(self, key: tuple[str, str], answer: asyncio.Future[Any]) -> None:
        problem = None if answer.cancelled() else answer.exception()
        # BadIdError: the broker has it still. An identity lives as long as its handler, which has not been away.
        if problem is not None and not isinstance(problem, ConnectionLostError | BadIdError):
            subscription = self._subscriptions.pop(key, None)
            if subscription is not None:
                subscription.end(problem)

    def _failed(self, problem: CatchmentError, read_problem: CatchmentError | None) -> None:
        """The client is over. Whoever asks for something gets `problem`. Whoever reads deliveries gets `read_problem`;
        without one the iteration stops."""
        self._publishing.end(problem)
        for queue in self._queues():
            queue.end(read_problem)

    def _queues(self) -> Iterable[Queue]:
        groups = [queue for queue in self._durably.groups.values() if queue is not None]
        return (*self._subscriptions.values(), *groups, *(() if self._all is None else (self._all,)))

    def _durable_subscriptions(self) -> list[Subscription]:
        return [each for each in self._subscriptions.values() if each.is_durable]

    # --- asking ---

    async def subscribe(
        self,
        wanted: Wanted | str,
        *,
        id: str | None = None,
        identity: str | None = None,
        take: Callable[[Delivered], None] | None = None,
        durable: bool = False,
        group: str | None = None,
        via: str = "",
        acks: Acks = "next",
    ) -> Subscription:
        """`wanted` is a filter, as text or as an object, a pattern or a CESQL expression. Deliveries are read from the
        subscription; with `take`, that is called with each of them.

        With `durable`, nothing is missed while the client is away, here or elsewhere. Give it an `id` of your own: a
        process that starts again subscribes with the same id, and goes on where the last one was. The same id with
        another filter edits the subscription. `group` is the name of a group: its members share what matches. `via`
        names a relay. `acks` says when a delivery is taken: when the next one is asked for, or by `Delivered.ack`."""
        chosen = Filter(wanted) if isinstance(wanted, str) else wanted
        assert isinstance(chosen, Filter | Pattern | Cesql)
        who = group or identity or self.identity
        subscription = Subscription(self, id or f"s{next(self._ids)}", chosen, who, take, acks)
        if durable or group is not None:
            check_durable(self.identity, identity, group)
            subscription.make_durable(group is not None, via)
        await self._subscribe(subscription)
        if group is not None:
            await self._durably.join(group, self._durably.groups.get(group))
        return subscription

    async def _subscribe(self, subscription: Subscription) -> None:
        key = (subscription.identity, subscription.id)
        # Not listed before there is a connection: all that is listed is stated when the client connects again, and this
        # must be stated once.
        connection = await self._ready()
        if key in self._subscriptions:
            raise BadIdError(f"there is a subscription {shown(subscription.id)} already: cancel it first")
        # Listed before the answer comes: a delivery may come before that.
        self._subscriptions[key] = subscription
        try:
            if subscription.is_durable:
                await self._durably.subscribe(subscription)
            else:
                await connection.ask(Subscribe(*key, subscription.wanted))
        except BaseException as problem:
            self._subscriptions.pop(key, None)
            if not isinstance(problem, CatchmentError) and connection.is_open and not subscription.is_durable:
                # Whoever has asked was cancelled, and the broker may have the subscription already.
                connection.ask(Cancel(*key)).add_done_callback(heard)
            raise

    async def unsubscribe(self, unwanted: Wanted | str, *, identity: str | None = None) -> None:
        """Cancels all subscriptions of the identity that this covers."""
        who, chosen = identity or self.identity, Filter(unwanted) if isinstance(unwanted, str) else unwanted
        await self.ask(Unsubscribe(who, chosen))
        for key, subscription in list(self._subscriptions.items()):
            if subscription.identity == who and cancels(chosen, subscription.wanted):
                self._subscriptions.pop(key).end()

    async def cancel(self, id: str, *, identity: str | None = None) -> None:
        """Cancels a subscription of this process; `CancelDurable` is for one that this process has not made."""
        who = identity or self.identity
        known = self._subscriptions.get((who, id))
        await self.ask(CancelDurable(who, id) if known is not None and known.is_durable else Cancel(who, id))
        self._end_subscription(who, id)

    def _end_subscription(self, identity: str, id: str) -> None:
        if (subscription := self._subscriptions.pop((identity, id), None)) is not None:
            subscription.end()

    async def advertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        who, chosen = identity or self.identity, _advertisement(advertisement)
        await self.ask(Advertise(who, chosen))
        self._standing.advertisements[who, chosen] = None

    async def unadvertise(self, advertisement: Advertisement | str, *, identity: str | None = None) -> None:
        who, chosen = identity or self.identity, _advertisement(advertisement)
        await self.ask(Unadvertise(who, chosen))
        self._standing.unadvertised(who, chosen)

    async def suspend(self, *, identity: str | None = None) -> None:
        await self.ask(Suspend(identity or self.identity))
        self._standing.suspended.add(identity or self.identity)

    async def resume(self, *, identity: str | None = None) -> None:
        self._standing.suspended.discard(identity or self.identity)
        await self.ask(Resume(identity or self.identity))

    async def map_identity(self, identity: str, handler: str) -> None:
        """From now on, what the identity is due goes to the client named `handler`, which may speak for it too; also
        after a reconnect. With the handler `@http`, HTTP publishers may use the identity as a source, and deliveries
        stay where they are."""
        await self.ask(MapIdentity(identity, handler))
        self._standing.mapped(identity, handler)

    async def look(
        self, what: Literal["status", "explain"] = "status", notification: Notification | None = None
    ) -> Any:
        """What the broker says of itself, or why subscriptions match the notification or do not."""
        return await (await self._ready()).look(what, notification)

    async def publish(self, notification: Publishable, *, ack: Ack = "none") -> Kept | None:
        """Publishes a notification, or several in order. Those that have no source, number or time are given them. With
        `ack="accepted"` it returns when the broker has taken them, and raises the error if the broker refuses them.

        With `ack="stored"` it returns when a storage has them on disk, in order, and says where. Until then the client
        keeps them: also while there is no connection, and at another broker. With `state`, so does the next process.

        A source that is not the client's identity must be one that the client may speak for, or that nobody has. If the
        broker refuses numbers that the client has given, because it knows greater ones of that source, they are
        published once more, with greater ones; those that the caller gave raise `BadNumberError`."""
        return await self._publishing.publish(notification, ack)

    def publish_nowait(self, notification: Publishable) -> asyncio.Future[Kept]:
        """As `publish(…, ack="stored")`, but does not wait: the future is done when they are stored. LimitError if too
        many wait already."""
        return self._publishing.publish_nowait(notification)

    async def publish_many(self, notifications: Iterable[Any] | AsyncIterable[Any]) -> int:
        """Publishes all of a stream with `ack="stored"`, many at a time, in order. Returns how many, when all are
        stored."""
        return await self._publishing.publish_many(notifications)

    def leave_storage(self) -> None:
        """Gives up the storage that the client has published to, settled or not, and goes to that of the broker it
        connects to next. Only if the storage will not come back soon: what it has and has not confirmed may be stored
        twice, and order holds per storage only."""
        self._publishing.unkept.leave()
        self._connecting.drop("leaves its storage")

    # --- durable subscriptions ---

    async def edit(self, id: str, wanted: Wanted | str, *, identity: str | None = None) -> None:
        """Another filter for a durable subscription, from now on: what was published before goes by the old one."""
        who, chosen = identity or self.identity, Filter(wanted) if isinstance(wanted, str) else wanted
        await self._durably.edit(who, id, chosen, self._subscriptions.get((who, id)))

    async def cancel_durable(self, id: str, *, identity: str | None = None) -> None:
        """Cancels a durable subscription that this process need not have made."""
        await self.ask(CancelDurable(identity or self.identity, id))
        self._end_subscription(identity or self.identity, id)

    async def rewind(
        self, *, log: str = "", epoch: int = 0, since: datetime | None = None, identity: str | None = None
    ) -> None:
        """Goes back to records that are still kept: in one log to just after `epoch`, or in all logs to what was
        published at `since` or later. What comes then may have come before."""
        await self._durably.rewind(identity or self.identity, log, epoch, since)

    async def join(self, group: str, *, take: Callable[[Delivered], None] | None = None, acks: Acks = "next") -> Queue:
        """Takes part in a group that somebody has made (`subscribe(…, group=NAME)`). The deliveries that come to this
        member are read from what is returned."""
        check_durable(self.identity, None, group)
        return await self._durably.join(group, Queue(take, acks))

    async def leave(self, group: str) -> None:
        """Ends `join`. What this member has not taken goes to the others."""
        await self._durably.leave(group)

    async def forget(self, *, identity: str | None = None) -> None:
        """The identity will never come back: all storages forget its durable subscriptions, and what it is due."""
        who = identity or self.identity
        await self.ask(Forget(who))
        for subscription in [each for each in self._durable_subscriptions() if each.identity == who]:
            self._subscriptions.pop((who, subscription.id)).end()

    async def ask(self, request: ClientSaid | DurableRequest) -> None:
        """Asks the broker for something as it stands. The other methods also remember it for the next connection."""
        await (await self._ready()).ask(request)

    async def _ready(self) -> ConnectionToBroker:
        return await self._connecting.ready()

    # --- what comes ---

    def __aiter__(self) -> AsyncIterator[Delivered]:
        """Everything that is delivered from now on, each notification once however many subscriptions it matches."""
        return self.all_deliveries()

    def all_deliveries(self, acks: Acks = "next") -> Queue:
        """The same. `acks` counts the first time."""
        if self._all is None:
            self._all = Queue(acks=acks)
            self._durably.claim()
        return self._all

    def _came(self, message: Delivering, size: int) -> None:
        match message:
            case Delivery():
                self._deliver(message.identity, message.subscriptions, (message.notification,), size)
            case SequenceDelivery():
                self._deliver(message.identity, (message.subscription,), message.notifications, size)
            case DurableDelivery():
                self._durably.deliver(message, size)
            case Confirmed():
                if not self._publishing.confirmed(message):
                    self._durably.lost_log(LostLog(message.source, message.storage, message.log))
            case Effective():
                self._durably.took_effect(message, self._subscriptions.get((message.identity, message.id)))
            case LostLog():
                self._durably.lost_log(message)
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

    def _queues_of(self, message: DurableDelivery) -> list[Queue]:
        """Who reads a durable delivery."""
        keys = [(message.identity, id) for id in message.subscriptions]
        queues: list[Queue] = [self._subscriptions[key] for key in keys if key in self._subscriptions]
        group = self._durably.groups.get(message.identity)
        return [*queues, *(each for each in (group, self._all) if each is not None)]


def _advertisement(given: Advertisement | str) -> Advertisement:
    return Advertisement(given) if isinstance(given, str) else given
