"""Clients of a live network.

    async with connect("catchment://127.0.0.1:7400", identity="alice") as client:
        subscription = await client.subscribe("symbol = 'DIS' and price > 100")
        await client.publish(Notification({"symbol": "DIS", "price": 101.25}), ack="accepted")
        async for delivery in subscription:
            delivery.notification

`connect_blocking` gives the same without `await`, for scripts and notebooks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from catchment.client.blocking import BlockingClient, BlockingSubscription
from catchment.client.client import Client, Subscription
from catchment.client.deliveries import Delivered, GapSpan
from catchment.client.problems import ConnectionLostError, RefusedError

__all__ = [
    "BlockingClient",
    "BlockingSubscription",
    "Client",
    "ConnectionLostError",
    "Delivered",
    "GapSpan",
    "RefusedError",
    "Subscription",
    "connect",
    "connect_blocking",
]


def connect(
    url: str = "",
    *,
    identity: str | None = None,
    reconnect: bool = True,
    seen: Mapping[str, int] | None = None,
    on_gap: Callable[[GapSpan], None] | None = None,
) -> Connecting:
    """A client of the broker at `catchment://host:port`, on this machine without a url: `async with` it, or await it.

    An identity is a name of your own, unique in the network; what is delivered and published goes by it.
    One that comes from another broker brings along what it has `seen` there (`Client.seen`). `on_gap` is called
    whenever notifications may be missing; the next delivery says it too."""
    return Connecting(url, identity or _anonymous(), reconnect, seen, on_gap)


def connect_blocking(
    url: str = "",
    *,
    identity: str | None = None,
    reconnect: bool = True,
    on_gap: Callable[[GapSpan], None] | None = None,
) -> BlockingClient:
    """The same for scripts and notebooks: `with connect_blocking() as client`. `on_gap` is called in the thread of the
    client: it must return soon, and must not call the client."""
    return BlockingClient(url, identity or _anonymous(), reconnect=reconnect, on_gap=on_gap)


def _anonymous() -> str:
    return f"anonymous-{time.time_ns():x}"


class Connecting:
    """What `connect` gives: an asynchronous context, or something to await."""

    def __init__(
        self,
        url: str,
        identity: str,
        reconnect: bool,
        seen: Mapping[str, int] | None,
        on_gap: Callable[[GapSpan], None] | None,
    ) -> None:
        self._given = (url, identity, reconnect, seen, on_gap)
        self._client: Client | None = None

    async def _opened(self) -> Client:
        url, identity, reconnect, seen, on_gap = self._given
        return await Client(url, identity, reconnect=reconnect, seen=seen, on_gap=on_gap).open()

    def __await__(self) -> Any:
        return self._opened().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._opened()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()
