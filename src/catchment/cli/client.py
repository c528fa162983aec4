"""What the commands that talk to a broker share: a client that is connected while the command runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catchment.client import Client, GapSpan


def with_client(
    url: str,
    identity: str | None,
    work: Callable[[Client], Awaitable[int]],
    *,
    reconnect: bool = False,
    on_gap: Callable[[GapSpan], None] | None = None,
) -> int:
    """Connects to the broker, does the work, and returns its exit code. `on_gap` is called when notifications may be
    missing."""
    import asyncio

    from catchment.client import connect

    async def run() -> int:
        async with connect(url, identity=identity, reconnect=reconnect, on_gap=on_gap) as client:
            return await work(client)

    return asyncio.run(run())
