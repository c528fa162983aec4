"""The durable side of a client: its subscriptions, where it is in each log, groups, and what a storage has lost.

Durable deliveries may come as soon as the client is connected: the storages know its subscriptions from before. Those
that no subscription of this process is for yet wait (`unclaimed`); the window of the broker bounds them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from catchment.client.connection import ConnectionToBroker
from catchment.client.deliveries import Queue
from catchment.client.problems import ConnectionLostError
from catchment.client.state import Begun, StateFile
from catchment.client.taking import Taking
from catchment.errors import BadIdError, shown
from catchment.routing.durable.messages import DurableRequest, Join, Leave, Rewind, SubscribeDurable, Taken
from catchment.routing.messages import Wanted
from catchment.wire.messages import DurableDelivery, Effective, LostLog, Welcome

# The queue of a member of a group, if it has one of its own.
Q = TypeVar("Q", bound=Queue | None)
log = logging.getLogger("catchment.client")


class LostLogSpan(Struct, frozen=True):
    """The storage came back with another log: what it kept before, and was not taken, is lost."""

    identity: str
    storage: str
    log: str


class DurableOne(Protocol):
    """A durable subscription, as this side needs it."""

    id: str
    identity: str
    wanted: Wanted
    is_group: bool
    via: str
    effective: asyncio.Future[tuple[str, ...]]


class Owner(Protocol):
    """The client that this is a side of."""

    identity: str

    @property
    def connection(self) -> ConnectionToBroker | None: ...

    @property
    def is_over(self) -> bool: ...

    async def ask(self, request: DurableRequest) -> None: ...


class Durably:
    """`queues` are all that deliveries are read from, `queues_of` those that a delivery goes to."""

    def __init__(
        self,
        owner: Owner,
        queues: Callable[[], Iterable[Queue]],
        queues_of: Callable[[DurableDelivery], list[Queue]],
        positions: Mapping[str, int],
        state: StateFile | None,
        on_lost_log: Callable[[LostLogSpan], None] | None,
    ) -> None:
        self._owner, self._queues, self._queues_of = owner, queues, queues_of
        self._state, self._on_lost_log = state, on_lost_log
        identity, loop = owner.identity, asyncio.get_running_loop()
        remembered = {} if state is None else state.remembered.positions
        self.taking = Taking(identity, {**remembered, **positions}, state, loop.call_soon, self._say)
        self._last_session = 0 if state is None else state.remembered.session
        # Groups that this client takes part in.
        self.groups: dict[str, Queue | None] = {}
        # What came before there was somebody to read it, with its size on the wire.
        self._unclaimed: list[tuple[DurableDelivery, int]] = []
        self._has_warned = False

    # --- connecting ---

    @property
    def next_session(self) -> int:
        """What a `Hello` says: 0 if this client knows of no session."""
        return self._last_session + 1 if self._last_session else 0

    def welcomed(self, welcome: Welcome) -> None:
        self._last_session = welcome.session
        if self._state is not None:
            self._state.add(Begun(welcome.session))
            self._state.flush()

    def restate(self, connection: ConnectionToBroker, subscriptions: Iterable[DurableOne]) -> None:
        """Durable subscriptions are known to the network. Only those are said again that may not be: nobody has said
        that they have taken effect. Groups are joined again."""
        for subscription in subscriptions:
            if not subscription.effective.done():
                connection.ask(request_of(subscription)).add_done_callback(heard)
        for group in self.groups:
            connection.ask(Join(group)).add_done_callback(heard)

    def disconnected(self) -> None:
        """What was given to this member of a group and not taken goes to other members."""
        self.taking.disconnected()
        for group in self.groups:
            self._drop(group)

    def _drop(self, identity: str, log_id: str = "") -> None:
        """What waits of an identity, of one log or of all, comes again, here or elsewhere."""
        self._unclaimed = [
            each for each in self._unclaimed if each[0].identity != identity or log_id not in ("", each[0].log)
        ]
        for queue in self._queues():
            queue.drop_durable(identity, log_id)

    def _say(self, taken: Iterable[Taken]) -> None:
        connection = self._owner.connection
        if connection is not None and connection.is_open:
            for message in taken:
                connection.say(message)

    # --- deliveries ---

    def deliver(self, message: DurableDelivery, size: int) -> None:
        taken_log = self.taking.log(message.identity, message.log)
        if not taken_log.is_new(message.epoch):
            return
        queues = self._queues_of(message)
        # What comes after something that waits must wait too: otherwise that would look as if it had come before.
        if not queues or self._is_waited_for(message):
            self._keep_unclaimed(message, size)
            return
        for queue, receipt in zip(queues, taken_log.receipts(message.epoch, len(queues)), strict=True):
            queue.put_durable(message, receipt, size)

    def _is_waited_for(self, message: DurableDelivery) -> bool:
        return any(kept.log == message.log and kept.identity == message.identity for kept, _ in self._unclaimed)

    def _keep_unclaimed(self, message: DurableDelivery, size: int) -> None:
        # After a reconnect the broker sends again what was not taken.
        if any(_is_same(message, kept) for kept, _ in self._unclaimed):
            return
        self._unclaimed.append((message, size))
        if not self._has_warned and len(self._unclaimed) > 1:
            self._has_warned = True
            ids = ", ".join(message.subscriptions)
            log.warning(
                "durable deliveries wait for a subscription: subscribe with the same id, or cancel it",
                extra={"identity": message.identity, "subscriptions": ids},
            )

    def claim(self) -> None:
        """There is a new reader: what waited for one is delivered, in order."""
        unclaimed, self._unclaimed = self._unclaimed, []
        for message, size in unclaimed:
            self.deliver(message, size)

    # --- asking ---

    async def subscribe(self, subscription: DurableOne) -> None:
        """Asked for twice it is the same: so it is asked again if the connection is lost before the answer comes."""
        while True:
            try:
                await self._owner.ask(request_of(subscription))
            except ConnectionLostError:
                if self._owner.is_over:
                    raise
            else:
                break
        self.claim()

    async def edit(self, identity: str, id: str, wanted: Wanted, known: DurableOne | None) -> None:
        """`known` is the subscription, if this process has made it."""
        is_group, via = (False, "") if known is None else (known.is_group, known.via)
        if known is not None:
            known.wanted, known.effective = wanted, asyncio.get_running_loop().create_future()
        await self._owner.ask(SubscribeDurable(identity, id, wanted, via, is_group))

    async def rewind(self, identity: str, log_id: str, epoch: int, since: datetime | None) -> None:
        if (since is None) == (not log_id):
            raise BadIdError("rewind: give either since, or log and epoch")
        at = None if since is None else int(since.timestamp() * 1e6)
        await self._owner.ask(Rewind(identity, log_id, epoch, at))
        self._drop(identity, log_id)
        self.taking.rewound(identity, log_id, epoch)

    async def join(self, group: str, queue: Q) -> Q:
        is_member = group in self.groups
        # Listed before the answer comes: a delivery may come before that.
        self.groups[group] = queue
        try:
            await self._owner.ask(Join(group))
        except BaseException:
            if not is_member:
                self.groups.pop(group, None)
            raise
        self.claim()
        return queue

    async def leave(self, group: str) -> None:
        queue = self.groups.pop(group, None)
        await self._owner.ask(Leave(group))
        self.taking.forget(group)
        self._drop(group)
        if queue is not None:
            queue.end()

    # --- what else brokers say ---

    def took_effect(self, message: Effective, subscription: DurableOne | None) -> None:
        if subscription is not None and not subscription.effective.done():
            subscription.effective.set_result(message.missing)

    def lost_log(self, message: LostLog) -> None:
        log.error("a storage has lost its log", extra={"storage": message.storage, "identity": message.identity})
        if self._on_lost_log is not None:
            self._on_lost_log(LostLogSpan(message.identity, message.storage, message.log))


def request_of(subscription: DurableOne) -> SubscribeDurable:
    return SubscribeDurable(
        subscription.identity, subscription.id, subscription.wanted, subscription.via, subscription.is_group
    )


def check_durable(client: str, identity: str | None, group: str | None) -> None:
    """BadIdError if the client cannot subscribe durably under this name."""
    if identity not in (None, client):
        raise BadIdError(
            f"a client subscribes durably as itself, {shown(client)}, or as a group: connect as {shown(identity)}, or "
            "give it as group"
        )
    if group == client:
        raise BadIdError(f"{shown(group)} is the name of this client: take another for the group")


def _is_same(first: DurableDelivery, second: DurableDelivery) -> bool:
    return (first.identity, first.log, first.epoch) == (second.identity, second.log, second.epoch)


def heard(answer: asyncio.Future[Any]) -> None:
    """Takes note of an answer that nobody waits for: asyncio would complain of an exception that nobody looks at."""
    if not answer.cancelled():
        answer.exception()
