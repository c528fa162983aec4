"""A subscription of a client: its deliveries wait here to be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from catchment.client.deliveries import Acks, Delivered, GapSpan, Queue
from catchment.routing.messages import Wanted

if TYPE_CHECKING:
    from catchment.client.client import Client


class Subscription(Queue):
    """`async for delivery in subscription`; `await subscription.cancel()`.

    Of a durable one, `await subscription.effective` returns when all storages know it, and says which of them are
    missing: those that cannot be reached, and learn of it when they can. What is published after that, at the others,
    is not missed."""

    def __init__(
        self,
        client: Client,
        id: str,
        wanted: Wanted,
        identity: str,
        take: Callable[[Delivered], None] | None = None,
        acks: Acks = "next",
    ) -> None:
        super().__init__(take, acks)
        self.id = id
        self.wanted = wanted
        self.identity = identity
        self.is_durable = False
        self.is_group = False
        self.via = ""
        self.effective: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._client = client

    def make_durable(self, is_group: bool, via: str) -> None:
        self.is_durable, self.is_group, self.via = True, is_group, via

    def mark_gap(self, span: GapSpan | None = None) -> None:
        """A durable subscription misses nothing: what was lost on the way comes again."""
        if not self.is_durable:
            super().mark_gap(span)

    async def cancel(self) -> None:
        """Ends it. Of a durable one, what was published before is still due, and comes when the client connects."""
        await self._client.cancel(self.id, identity=self.identity)

    async def edit(self, wanted: Wanted | str) -> None:
        """Another filter from now on: what was published before still goes by the old one. Only for durable ones."""
        await self._client.edit(self.id, wanted, identity=self.identity)

    async def rewind(self, *, log: str = "", epoch: int = 0, since: datetime | None = None) -> None:
        """Goes back, with all subscriptions of the identity: `Client.rewind`."""
        await self._client.rewind(log=log, epoch=epoch, since=since, identity=self.identity)
