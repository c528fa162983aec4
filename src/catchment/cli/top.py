"""`catchment top`: a table of what a broker does, refreshed until you interrupt it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.client import with_client
from catchment.cli.options import JsonFlag, UrlOption
from catchment.cli.terminal import console

if TYPE_CHECKING:
    from rich.table import Table

    from catchment.client import Client

# The clients that received most. More would not fit on a screen.
CLIENTS_SHOWN_MAX: Final = 20
# What a broker answers when asked for its status.
Status = dict[str, Any]


def top(
    *,
    url: UrlOption = "",
    every_s: Annotated[float, Parameter(help="Seconds between refreshes.", metavar="SECONDS")] = 1.0,
    count: Annotated[int | None, Parameter(help="End after this many refreshes.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Watch a broker: its links, clients, subscriptions and rates."""
    show = _print_json if as_json else _show_table
    return with_client(url, None, lambda client: show(client, every_s, count), reconnect=True)


async def _print_json(client: Client, every_s: float, count: int | None) -> int:
    """Prints a status on each line. The first comes at once and counts as a refresh."""
    import asyncio

    printed = 0
    while True:
        print(json.dumps(await client.look()), flush=True)
        printed += 1
        if count is not None and printed >= count:
            return 0
        await asyncio.sleep(every_s)


async def _show_table(client: Client, every_s: float, count: int | None) -> int:
    import asyncio

    from rich.live import Live

    earlier, earlier_s = await client.look(), time.monotonic()
    with Live(rates_table(earlier, earlier, 1.0), console=console(), auto_refresh=False) as live:
        refreshes = 0
        while count is None or refreshes < count:
            await asyncio.sleep(every_s)
            now, now_s = await client.look(), time.monotonic()
            live.update(rates_table(earlier, now, now_s - earlier_s), refresh=True)
            earlier, earlier_s, refreshes = now, now_s, refreshes + 1
    return 0


def rates_table(earlier: Status, now: Status, seconds: float) -> Table:
    """The present status, and rates since the earlier one, which is `seconds` old."""
    from rich.table import Table

    title = f"{now['name']} at {now['address']}, {now['routing']}, up {now['up_s']:,.0f} s"
    table = Table(title=title, box=None, pad_edge=False)
    for heading in ("", "in/s", "out/s", "in all"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, total in now["totals"].items():
        table.add_row(name, f"{(total - earlier['totals'][name]) / seconds:,.0f}", "", f"{total:,}")
    table.add_row("subscriptions", "", "", f"{now['subscriptions']:,}")
    table.add_row("filters in the table", "", "", f"{now['table_filters']:,}")
    # These are rare: each has a row only once it has happened.
    for name in ("suspended_bytes", "monitors_bytes", "publishers_held", "links_given_up", "bytes_given_up"):
        if now[name]:
            table.add_row(name.replace("_", " "), "", "", f"{now[name]:,}")
    _add_links(table, earlier, now, seconds)
    _add_store(table, earlier, now, seconds)
    _add_webhooks(table, earlier, now, seconds)
    _add_clients(table, earlier, now, seconds)
    return table


def _add_store(table: Table, earlier: Status, now: Status, seconds: float) -> None:
    """The store of this broker, those of others that are missing, and the identities for whom most waits."""
    for storage in now["storages"]:
        if not storage["is_reached"]:
            table.add_row(f"storage {storage['name']} cannot be reached")
    for alarm in now["alarms"]:
        table.add_row(f"alarm: {alarm}")
    store = now["store"]
    if store is None:
        return
    before = earlier["store"] or store
    problem = f": {store['problem']}" if store["problem"] else ""
    written = (store["writes"] - before["writes"]) / seconds
    table.add_row(f"store {store['state']}{problem}", f"{written:,.0f}", "", f"{store['writes']:,}")
    table.add_row("records kept", "", "", f"{store.get('records', 0):,}")
    table.add_row("their bytes", "", "", f"{store.get('bytes', 0):,}")
    for identity in store.get("identities", ())[:CLIENTS_SHOWN_MAX]:
        oldest = "" if identity["oldest_s"] is None else f", the oldest {identity['oldest_s']:,.0f} s old"
        lost = f", {identity['lost']:,} lost" if identity["lost"] else ""
        lag = f", {identity['lag']:,} behind" if identity["lag"] else ""
        table.add_row(
            f"durable {identity['identity']} waits for{oldest}{lag}{lost}", "", "", f"{identity['waiting']:,}"
        )


def _add_webhooks(table: Table, earlier: Status, now: Status, seconds: float) -> None:
    earlier_webhooks = {webhook["id"]: webhook for webhook in earlier["webhooks"]}
    for webhook in now["webhooks"]:
        before = earlier_webhooks.get(webhook["id"], webhook)
        dead = f", {webhook['dead']:,} dead" if webhook["dead"] else ""
        problem = f": {webhook['problem']}" if webhook["problem"] else ""
        table.add_row(
            f"webhook {webhook['id']} {webhook['state']}{dead}{problem}",
            "",
            f"{(webhook['delivered'] - before['delivered']) / seconds:,.0f}",
            f"{webhook['delivered']:,}",
        )


def _add_links(table: Table, earlier: Status, now: Status, seconds: float) -> None:
    earlier_links = {link["neighbor"]: link for link in earlier["links"]}
    for link in now["links"]:
        # A link that is new has no rate yet.
        before = earlier_links.get(link["neighbor"], link)
        table.add_row(
            f"link to {link['neighbor']}{_congestion(link)}",
            f"{(link['received'] - before['received']) / seconds:,.0f}",
            f"{(link['forwarded'] - before['forwarded']) / seconds:,.0f}",
            f"{link['received'] + link['forwarded']:,}",
        )


def _congestion(link: dict[str, Any]) -> str:
    return f", congested: {link['outbox_bytes']:,} bytes wait" if link["is_congested"] else ""


def _add_clients(table: Table, earlier: Status, now: Status, seconds: float) -> None:
    earlier_clients = {client["name"]: client for client in earlier["clients"]}
    by_deliveries = sorted(now["clients"], key=lambda client: -client["delivered"])
    for client in by_deliveries[:CLIENTS_SHOWN_MAX]:
        before = earlier_clients.get(client["name"], client)
        table.add_row(
            f"client {client['name']}",
            f"{(client['published'] - before['published']) / seconds:,.0f}",
            f"{(client['delivered'] - before['delivered']) / seconds:,.0f}",
            f"{client['published'] + client['delivered']:,}",
        )
