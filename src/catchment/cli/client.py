"""What the commands that talk to a broker share: a client that is connected while the command runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catchment.client import Client, GapSpan, LostLogSpan


def with_client(
    url: str,
    identity: str | None,
    work: Callable[[Client], Awaitable[int]],
    *,
    reconnect: bool = False,
    on_gap: Callable[[GapSpan], None] | None = None,
    state: str | None = None,
    positions: Mapping[str, int] | None = None,
    on_lost_log: Callable[[LostLogSpan], None] | None = None,
    offline: bool = False,
) -> int:
    """Connects to the broker, does the work, and returns its exit code. `on_gap` is called when notifications may be
    missing. The other arguments are those of `connect`."""
    import asyncio

    from catchment.client import connect

    async def run() -> int:
        connecting = connect(
            url,
            identity=identity,
            reconnect=reconnect,
            on_gap=on_gap,
            state=state,
            positions=positions,
            on_lost_log=on_lost_log,
            offline=offline,
        )
        async with connecting as client:
            return await work(client)

    return asyncio.run(run())
