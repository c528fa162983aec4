"""`catchment sub`: prints what a subscription delivers, as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.arguments import parsed_filter, parsed_pattern, parsed_time
from catchment.cli.client import with_client
from catchment.cli.options import DialectOption, IdentityOption, JsonFlag, UrlOption
from catchment.cli.terminal import BadUsage, console
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.model.values import format_time
from catchment.routing.durable.messages import LOG_ID_CODEPOINTS

if TYPE_CHECKING:
    from catchment.cli.sub_durable import Since
    from catchment.client import Client, Delivered, GapSpan

SUBSCRIPTIONS_HELP: Final = (
    "Subscribe to each filter in a file instead: JSON Lines with id and filter, as catchment import-sigma writes them."
)
# The id of the subscription that `--durable` makes of a filter: the same each time, so another filter replaces it.
DURABLE_ID: Final = "sub"
DURABLE_HELP: Final = (
    "Miss nothing: under this name, storages keep what matches while the command does not run. Run it again, here or "
    "at another broker, and it goes on where it was. Another filter replaces the one before."
)
INTO_HELP: Final = (
    "With --durable: append each delivery to this file, as a line of JSON, exactly once, whatever is killed. The file "
    "also says how far the command is: keep it."
)
GROUP_HELP: Final = "As --durable, but all commands with this group share the deliveries: each goes to one of them."
SINCE_HELP: Final = (
    "With --durable or --group: go back to what was published at this time or later, or in one log to just after an "
    "epoch, as LOG:EPOCH. Brokers keep what was taken as long as retain_days says."
)
Wanted = Filter | Pattern | Cesql


def sub(
    filter: Annotated[str | None, Parameter(help="A filter or a pattern, in quotes.")] = None,
    /,
    *,
    subscriptions: Annotated[str | None, Parameter(help=SUBSCRIPTIONS_HELP, metavar="FILE")] = None,
    url: UrlOption = "",
    identity: IdentityOption = None,
    dialect: DialectOption = "catchment",
    count: Annotated[int | None, Parameter(help="End after this many deliveries.")] = None,
    durable: Annotated[str | None, Parameter(help=DURABLE_HELP, metavar="NAME")] = None,
    into: Annotated[str | None, Parameter(help=INTO_HELP, metavar="FILE")] = None,
    group: Annotated[str | None, Parameter(help=GROUP_HELP, metavar="NAME")] = None,
    since: Annotated[str | None, Parameter(help=SINCE_HELP, metavar="TIME")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Subscribe, and print each notification that matches as it comes.

    Runs until you interrupt it. If the connection is lost, it connects and subscribes again. When notifications may be
    missing, it says so at once on standard error, with their time; with --json the next delivery has it too. With
    --durable none are.
    """
    if (filter is None) == (subscriptions is None):
        raise BadUsage("give either FILTER or --subscriptions FILE")
    wanted = None if filter is None else _filter_or_pattern(filter, dialect)
    wanted_by_id = {} if subscriptions is None else _read(subscriptions, dialect)
    if durable is not None or group is not None:
        wants = wanted_by_id if wanted is None else {DURABLE_ID: wanted}
        return _read_durably(wants, url, identity, durable, group, into, since, count, as_json)
    if into is not None or since is not None:
        raise BadUsage("--into and --since go with --durable NAME or --group NAME")

    async def subscribe(client: Client) -> int:
        delivered = await _subscribe_all(client, wanted_by_id) if wanted is None else await client.subscribe(wanted)
        if not as_json:
            what = f"{len(wanted_by_id):,} filters of {subscriptions}" if wanted is None else str(wanted)
            print(f"subscribed at {client.broker} as {client.identity}: {what}", file=sys.stderr, flush=True)
        deliveries = 0
        async for delivery in delivered:
            if as_json:
                print(json.dumps(to_json(delivery), ensure_ascii=False), flush=True)
            else:
                _print_delivery(delivery, with_ids=subscriptions is not None)
            deliveries += 1
            if count is not None and deliveries >= count:
                break
        return 0

    return with_client(url, identity, subscribe, reconnect=True, on_gap=print_gap)


def _read_durably(
    wanted_by_id: Mapping[str, Wanted],
    url: str,
    identity: str | None,
    durable: str | None,
    group: str | None,
    into: str | None,
    since: str | None,
    count: int | None,
    as_json: bool,
) -> int:
    from catchment.cli.sub_durable import DeliveriesFile, DurableReading, print_lost_log

    if (durable is None) == (group is None) or (durable is not None and identity not in (None, durable)):
        raise BadUsage("give either --durable NAME or --group NAME; the name of --durable is the identity")
    file = None if into is None else DeliveriesFile(Path(into))
    if file is not None and file.positions and since is not None:
        raise BadUsage(f"--since goes back before what is in {into}: name a new file")

    def show(delivery: Delivered) -> None:
        if as_json:
            print(json.dumps(to_json(delivery), ensure_ascii=False), flush=True)
        else:
            _print_delivery(delivery, with_ids=len(wanted_by_id) > 1)

    start = None if since is None else _parsed_since(since)

    async def read(client: Client) -> int:
        return await DurableReading(wanted_by_id, group, file, start, count, show, as_json).run(client)

    positions = {} if file is None or group is not None else file.positions
    return with_client(
        url, durable or identity, read, reconnect=True, positions=positions, on_lost_log=print_lost_log, offline=True
    )


def _parsed_since(text: str) -> Since:
    from catchment.cli.sub_durable import Since

    log, colon, epoch = text.rpartition(":")
    if colon and epoch.isdecimal() and log.isalnum() and len(log) == LOG_ID_CODEPOINTS:
        return Since(log=log, epoch=int(epoch))
    return Since(time=parsed_time("--since", text))


async def _subscribe_all(client: Client, wanted_by_id: Mapping[str, Wanted]) -> AsyncIterator[Delivered]:
    """Makes the subscriptions. Returns the deliveries of all together: what several of them match comes once."""
    delivered = aiter(client)
    for id, wanted in wanted_by_id.items():
        # Each subscription also has deliveries of its own. They are dropped, so that they do not wait to be read.
        await client.subscribe(wanted, id=id, take=lambda _: None)
    return delivered


def _read(path: str, dialect: str) -> dict[str, Wanted]:
    """The filters of a file by their ids."""
    wanted_by_id: dict[str, Wanted] = {}
    for number, line in enumerate(Path(path).read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"--subscriptions {path}, line {number}"
        try:
            row = json.loads(line)
            id, text = row["id"], row["filter"]
        except (ValueError, TypeError, KeyError):
            raise BadUsage(f"{where}: write a JSON object with id and filter on each line") from None
        if not isinstance(id, str) or not isinstance(text, str) or id in wanted_by_id:
            raise BadUsage(f"{where}: id and filter are texts, and no two lines have the same id")
        wanted_by_id[id] = parsed_filter(where, text, row.get("dialect") or dialect)
    if not wanted_by_id:
        raise BadUsage(f"--subscriptions {path}: the file is empty")
    return wanted_by_id


def _filter_or_pattern(text: str, dialect: str) -> Wanted:
    """A pattern if the text looks like `[filter] -> [filter]`, otherwise a filter."""
    if dialect == "catchment" and text.lstrip().startswith("[") and "->" in text:
        return parsed_pattern("FILTER", text)
    return parsed_filter("FILTER", text, dialect)


def to_json(delivery: Delivered) -> dict[str, Any]:
    """A pattern delivers several notifications at once, a filter a single one."""
    if len(delivery.notifications) == 1:
        document: dict[str, Any] = {"notification": delivery.notification.to_json()}
    else:
        document = {"notifications": [notification.to_json() for notification in delivery.notifications]}
    document["subscriptions"] = list(delivery.subscriptions)
    if delivery.log:
        document |= {"log": delivery.log, "epoch": delivery.epoch, "lost": delivery.lost}
    if delivery.missed or delivery.gap:
        document |= {"missed": delivery.missed, "gap": delivery.gap, "gaps": [*map(_gap_json, delivery.gaps)]}
    return document


def _gap_json(gap: GapSpan) -> dict[str, Any]:
    until = None if gap.until is None else format_time(gap.until)
    return {"since": format_time(gap.since), "until": until, "missed": gap.missed, "link": gap.link}


def print_gap(gap: GapSpan) -> None:
    """On standard error: with --json, standard output has one document for each delivery."""
    where = "the connection to the broker was lost" if gap.link is None else f"the link {' - '.join(gap.link)} failed"
    until = "it is not over" if gap.until is None else f"until {format_time(gap.until)}"
    count = f", {gap.missed:,} were lost on the link" if gap.missed else ""
    text = f"gap: {where}: notifications since {format_time(gap.since)} may be missing, {until}{count}"
    print(text, file=sys.stderr, flush=True)


def _print_delivery(delivery: Delivered, with_ids: bool) -> None:
    out = console()
    if with_ids:
        out.print(", ".join(delivery.subscriptions), style="bold", soft_wrap=True)
    if delivery.missed or delivery.gap:
        why = f"{delivery.missed:,} missed" if delivery.missed else "some may be missing before this"
        out.print(f"  ({why})", style="yellow")
    for number, notification in enumerate(delivery.notifications, 1):
        published_at = "" if notification.time is None else format_time(notification.time)[11:23]
        attributes = "  ".join(
            f"{name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in notification.items()
        )
        place = "" if len(delivery.notifications) == 1 else f"{number}. "
        out.print(f"{published_at}  {place}{attributes}  ({notification.source})", soft_wrap=True)
    sys.stdout.flush()
