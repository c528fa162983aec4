"""A durable identity of the HTTP side: a webhook, or a durable subscription with a reader. To the node it is a client.

Its name begins with `@` and has the broker's name in it: durable identities are known in the whole network, and two
brokers may each have a webhook `audit`. It also ends with a text that was drawn when it was made. So one that is made
after another of the same id was deleted gets nothing that was meant for that one, not even from a storage that has not
heard of the deletion yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from catchment.broker.http.outlet import QuietOutlet
from catchment.model.notification import Notification
from catchment.node import Node
from catchment.routing.durable.messages import (
    CancelDurable,
    DurableRequest,
    Forget,
    SubscribeDurable,
    TakeEffect,
    Taken,
    TellLostLog,
)
from catchment.routing.messages import Client, Deliver, Wanted

log = logging.getLogger("catchment.broker")

# How long a request over HTTP waits until all storages know of a durable subscription. It is answered then anyway.
EFFECT_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class DurableEntry:
    """The entry `epoch` of a storage's log. Before it, `lost` entries are gone for good."""

    log: str
    epoch: int
    notification: Notification
    ids: tuple[str, ...]
    lost: int = 0


class DurableClient(QuietOutlet):
    """`on_entry` gets the entries, in order; `on_lost` how many entries are gone, if none follows them yet;
    `on_lost_log` the name of a storage that has lost its log."""

    def __init__(
        self,
        node: Node,
        identity: str,
        on_entry: Callable[[DurableEntry], None],
        on_lost: Callable[[int], None],
        on_lost_log: Callable[[str], None],
    ) -> None:
        self._node, self.identity = node, identity
        self._on_entry, self._on_lost, self._on_lost_log = on_entry, on_lost, on_lost_log
        self._client = Client(identity)
        # By id of a subscription: who waits until it takes effect.
        self._effects: dict[str, asyncio.Future[tuple[str, ...]]] = {}
        self.is_up = False

    def up(self, positions: Mapping[str, int] | None = None) -> None:
        """From now on it is served. `positions` says what its reader has, by log."""
        assert not self.is_up
        self.is_up = True
        self._node.client_up(self._client, self.identity, {}, self, positions=positions or {})

    def down(self) -> None:
        if self.is_up:
            self.is_up = False
            self._node.client_down(self._client)

    def taken(self, log: str, epoch: int) -> None:
        """All entries of the log up to this one are done with."""
        if self.is_up:
            self._node.taken(self._client, Taken(self.identity, log, epoch))

    # --- requests ---

    async def subscribe(self, id: str, wanted: Wanted, wait_s: float = EFFECT_S_MAX) -> tuple[str, ...]:
        """Returns the storages that do not know of it yet. The error of a refusal is raised."""
        effect: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._effects[id] = effect
        try:
            self._ask(SubscribeDurable(self.identity, id, wanted))
            async with asyncio.timeout(wait_s):
                return await effect
        except TimeoutError:
            return ("some storages",)
        finally:
            self._effects.pop(id, None)

    def cancel(self, id: str) -> None:
        self._ask(CancelDurable(self.identity, id))

    def forget(self, id: str) -> None:
        """It will never come back. `id` is that of its subscription."""
        for request in (CancelDurable(self.identity, id), Forget(self.identity)):
            for refusal in self._node.ask(self._client, request):
                # There is nobody who could do something about it: what it is due stays until somebody forgets it.
                log.warning("not forgotten", extra={"identity": self.identity, "reason": str(refusal.error)})

    def _ask(self, request: DurableRequest) -> None:
        if refusals := self._node.ask(self._client, request):
            raise refusals[0].error

    # --- what the node says ---

    def deliver(self, delivery: Deliver) -> None:
        if delivery.log:
            entry = DurableEntry(
                delivery.log, delivery.epoch, delivery.notification, delivery.subscriptions, delivery.lost
            )
            self._on_entry(entry)

    def take_effect(self, effect: TakeEffect) -> None:
        waiting = self._effects.get(effect.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(effect.missing)

    def tell_lost_log(self, lost: TellLostLog) -> None:
        self._on_lost_log(lost.storage)

    def tell_lost(self, identity: str, count: int) -> None:
        """Nothing durable is dropped on the way. But retention may have dropped entries, and no entry follows."""
        self._on_lost(count)

    def end(self, reason: str) -> None:
        self.down()
