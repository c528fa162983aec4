"""`catchment sub`: prints what a subscription delivers, as it comes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from catchment.cli.arguments import parsed_filter, parsed_pattern
from catchment.cli.client import with_client
from catchment.cli.options import DialectOption, IdentityOption, JsonFlag, UrlOption
from catchment.cli.terminal import console
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.model.values import format_time

if TYPE_CHECKING:
    from catchment.client import Client, Delivered


def sub(
    filter: Annotated[str, Parameter(help="A filter or a pattern, in quotes.")],
    /,
    *,
    url: UrlOption = "",
    identity: IdentityOption = None,
    dialect: DialectOption = "catchment",
    count: Annotated[int | None, Parameter(help="End after this many deliveries.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Subscribe, and print each notification that matches as it comes.

    Runs until you interrupt it. If the connection is lost, it connects and subscribes again.
    """
    wanted = _filter_or_pattern(filter, dialect)

    async def subscribe(client: Client) -> int:
        subscription = await client.subscribe(wanted)
        if not as_json:
            print(f"subscribed at {client.broker} as {client.identity}: {wanted}", file=sys.stderr, flush=True)
        deliveries = 0
        async for delivery in subscription:
            if as_json:
                print(json.dumps(_to_json(delivery), ensure_ascii=False), flush=True)
            else:
                _print_delivery(delivery)
            deliveries += 1
            if count is not None and deliveries >= count:
                break
        return 0

    return with_client(url, identity, subscribe, reconnect=True)


def _filter_or_pattern(text: str, dialect: str) -> Filter | Pattern | Cesql:
    """A pattern if the text looks like `[filter] -> [filter]`, otherwise a filter."""
    if dialect == "catchment" and text.lstrip().startswith("[") and "->" in text:
        return parsed_pattern("FILTER", text)
    return parsed_filter("FILTER", text, dialect)


def _to_json(delivery: Delivered) -> dict[str, Any]:
    """A pattern delivers several notifications at once, a filter a single one."""
    if len(delivery.notifications) == 1:
        document: dict[str, Any] = {"notification": delivery.notification.to_json()}
    else:
        document = {"notifications": [notification.to_json() for notification in delivery.notifications]}
    document["subscriptions"] = list(delivery.subscriptions)
    if delivery.missed or delivery.gap:
        document |= {"missed": delivery.missed, "gap": delivery.gap}
    return document


def _print_delivery(delivery: Delivered) -> None:
    out = console()
    if delivery.missed or delivery.gap:
        why = f"{delivery.missed:,} missed" if delivery.missed else "the connection was lost: some may be missing"
        out.print(f"  ({why})", style="yellow")
    for number, notification in enumerate(delivery.notifications, 1):
        published_at = "" if notification.time is None else format_time(notification.time)[11:23]
        attributes = "  ".join(
            f"{name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in notification.items()
        )
        place = "" if len(delivery.notifications) == 1 else f"{number}. "
        out.print(f"{published_at}  {place}{attributes}  ({notification.source})", soft_wrap=True)
    sys.stdout.flush()
