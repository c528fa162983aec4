"""`catchment top`: a broker as it runs."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import console

if TYPE_CHECKING:
    from rich.table import Table

CLIENTS_SHOWN_MAX: Final = 20


def run_top(url: str, every_s: float, count: int | None, as_json: bool) -> int:
    return asyncio.run(_watch(url, every_s, count, as_json))


async def _watch(url: str, every_s: float, count: int | None, as_json: bool) -> int:
    from rich.live import Live

    from catchment.client import connect

    out = console()
    async with connect(url) as client:
        before, at = await client.look(), time.monotonic()
        if as_json:
            print(json.dumps(before), flush=True)
            seen = 1
            while count is None or seen < count:
                await asyncio.sleep(every_s)
                print(json.dumps(await client.look()), flush=True)
                seen += 1
            return 0
        with Live(_table(before, before, 1.0), console=out, auto_refresh=False) as live:
            seen = 0
            while count is None or seen < count:
                await asyncio.sleep(every_s)
                now, then = await client.look(), time.monotonic()
                live.update(_table(before, now, then - at), refresh=True)
                before, at, seen = now, then, seen + 1
    return 0


def _congestion(link: dict[str, Any]) -> str:
    return f", congested: {link['outbox_bytes']:,} bytes wait" if link["is_congested"] else ""


def _table(before: dict[str, Any], now: dict[str, Any], seconds: float) -> Table:
    """Rates since the last look."""
    from rich.table import Table

    found = Table(
        title=f"{now['name']} at {now['address']}, {now['routing']}, up {now['up_s']:,.0f} s", box=None, pad_edge=False
    )
    for name in ("", "in/s", "out/s", "in all"):
        found.add_column(name, justify="left" if not name else "right")
    totals = {name: (before["totals"][name], now["totals"][name]) for name in now["totals"]}
    for name, (earlier, later) in totals.items():
        found.add_row(name, f"{(later - earlier) / seconds:,.0f}", "", f"{later:,}")
    found.add_row("subscriptions", "", "", f"{now['subscriptions']:,}")
    found.add_row("filters in the table", "", "", f"{now['table_filters']:,}")
    for name in ("publishers_held", "links_given_up", "bytes_given_up"):
        # Rare, and worth a look when it happens.
        if now[name]:
            found.add_row(name.replace("_", " "), "", "", f"{now[name]:,}")
    known = {one["neighbor"]: one for one in before["links"]}
    for link in now["links"]:
        earlier = known.get(link["neighbor"], link)
        found.add_row(
            f"link to {link['neighbor']}{_congestion(link)}",
            f"{(link['received'] - earlier['received']) / seconds:,.0f}",
            f"{(link['forwarded'] - earlier['forwarded']) / seconds:,.0f}",
            f"{link['received'] + link['forwarded']:,}",
        )
    clients = {one["name"]: one for one in before["clients"]}
    for one in sorted(now["clients"], key=lambda one: -one["delivered"])[:CLIENTS_SHOWN_MAX]:
        earlier = clients.get(one["name"], one)
        found.add_row(
            f"client {one['name']}",
            f"{(one['published'] - earlier['published']) / seconds:,.0f}",
            f"{(one['delivered'] - earlier['delivered']) / seconds:,.0f}",
            f"{one['published'] + one['delivered']:,}",
        )
    return found
