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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from catchment.client.blocking import BlockingClient, BlockingSubscription
from catchment.client.client import Client
from catchment.client.deliveries import Delivered, GapSpan
from catchment.client.durable import LostLogSpan
from catchment.client.problems import ConnectionLostError, RefusedError
from catchment.client.state import StateError
from catchment.client.subscription import Subscription
from catchment.client.unkept import Kept

__all__ = [
    "BlockingClient",
    "BlockingSubscription",
    "Client",
    "ConnectionLostError",
    "Delivered",
    "GapSpan",
    "Kept",
    "LostLogSpan",
    "RefusedError",
    "StateError",
    "Subscription",
    "connect",
    "connect_blocking",
]


def connect(
    url: str | Sequence[str] = "",
    *,
    identity: str | None = None,
    reconnect: bool = True,
    seen: Mapping[str, int] | None = None,
    on_gap: Callable[[GapSpan], None] | None = None,
    state: str | Path | None = None,
    positions: Mapping[str, int] | None = None,
    on_lost_log: Callable[[LostLogSpan], None] | None = None,
    offline: bool = False,
) -> Connecting:
    """A client of the broker at `catchment://host:port`, on this machine without a url: `async with` it, or await it.
    With several addresses, it goes to the next one whenever a connection is lost.

    An identity is a name of your own, unique in the network; what is delivered and published goes by it.
    One that comes from another broker brings along what it has `seen` there (`Client.seen`). `on_gap` is called
    whenever notifications may be missing; the next delivery says it too.

    `state` is a file that the client keeps between processes: how far it has taken each log, and what it has published
    and no storage has confirmed. `positions` are those that the application has kept itself (`Client.positions`).
    `on_lost_log` is called when a storage has lost records that this client was due. With `offline`, a client is made
    also if no broker can be reached: what it publishes with `ack="stored"` waits."""
    made = partial(
        Client,
        url,
        identity or _anonymous(),
        reconnect=reconnect,
        seen=seen,
        on_gap=on_gap,
        state=state,
        positions=positions,
        on_lost_log=on_lost_log,
        offline=offline,
    )
    return Connecting(made)


def connect_blocking(
    url: str | Sequence[str] = "",
    *,
    identity: str | None = None,
    reconnect: bool = True,
    on_gap: Callable[[GapSpan], None] | None = None,
    state: str | Path | None = None,
    positions: Mapping[str, int] | None = None,
    on_lost_log: Callable[[LostLogSpan], None] | None = None,
    offline: bool = False,
) -> BlockingClient:
    """The same for scripts and notebooks: `with connect_blocking() as client`. `on_gap` and `on_lost_log` are called in
    the thread of the client: they must return soon, and must not call the client."""
    made = partial(
        Client,
        url,
        identity or _anonymous(),
        reconnect=reconnect,
        on_gap=on_gap,
        state=state,
        positions=positions,
        on_lost_log=on_lost_log,
        offline=offline,
    )
    return BlockingClient(made)


def _anonymous() -> str:
    return f"anonymous-{time.time_ns():x}"


class Connecting:
    """What `connect` gives: an asynchronous context, or something to await."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client: Client | None = None

    async def _opened(self) -> Client:
        return await self._make().open()

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
