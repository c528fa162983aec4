"""What the HTTP side of a broker with a store has besides: webhooks, durable subscriptions, and where they are kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from catchment.broker.hosts import host_name
from catchment.broker.http.durable_streams import DurableStreams
from catchment.broker.http.tables import TablesThread
from catchment.broker.http.webhooks.registry import Webhooks
from catchment.broker.http.webhooks.sinks import Sinks
from catchment.broker.http.webhooks.webhook import Surroundings
from catchment.broker.targets import TargetRules
from catchment.broker.webhook_settings import WebhookSettings
from catchment.model.notification import Notification
from catchment.node import Node
from catchment.store.http_tables import HttpTables


@dataclass(frozen=True, slots=True)
class Place:
    """How others name this broker: `host` is what it is called, `url` where its HTTP side is."""

    host: str
    url: str
    # The CloudEvents source of its own messages.
    source: str


class DurableSide:
    def __init__(
        self,
        node: Node,
        tables: HttpTables,
        settings: WebhookSettings,
        place: Place,
        encode: Callable[[Notification], bytes],
    ) -> None:
        rules = TargetRules(settings.allow)
        self._tables = TablesThread(tables)
        self._sinks = Sinks(rules)
        around = Surroundings(
            self._sinks,
            self._tables,
            asyncio.get_running_loop().time,
            lambda: datetime.now(UTC),
            _chance,
            settings.origin or place.host,
            place.source,
            (settings.callback or place.url).rstrip("/"),
            frozenset(map(host_name, settings.trusted)),
        )
        self.webhooks = Webhooks(node, around, rules)
        self.streams = DurableStreams(node, self._tables, encode)

    async def open(self) -> None:
        """Goes on with what was kept."""
        resources = await self._tables.call(lambda tables: tables.resources())
        await self.streams.open(resources)
        await self.webhooks.open(resources)

    async def close(self, reason: str) -> None:
        self.streams.close(reason)
        await self.webhooks.close()
        await self._sinks.close()
        await self._tables.close()


def _chance() -> float:
    """A number in [0, 1)."""
    return int.from_bytes(os.urandom(6), "big") / (1 << 48)
