"""`catchment pub`, `sub`, `advertise` and `explain`: a client on the command line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import BadUsage, console, described
from catchment.errors import CatchmentError, InputError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value, format_time, parse_time

if TYPE_CHECKING:
    from catchment.client import Client, Delivered

# Notifications of standard input that go in one frame.
LINES_AT_ONCE: Final = 256


def _with_client(
    url: str, identity: str | None, work: Callable[[Client], Awaitable[int]], *, reconnect: bool = False
) -> int:
    from catchment.client import connect

    async def run() -> int:
        async with connect(url, identity=identity, reconnect=reconnect) as client:
            return await work(client)

    return asyncio.run(run())


# --- pub ----------------------------------------------------------------------------------------


def run_pub(
    attributes: Sequence[str], url: str, identity: str | None, payload: str | None, advertise: str | None
) -> int:
    """Publishes one notification, or those of standard input; returns when the broker has them."""
    offered = None if advertise is None else _advertisement(advertise)
    if attributes == ["-"]:
        return _with_client(url, identity, lambda client: _publish_lines(client, offered))
    notification = Notification(
        dict(_attribute(one) for one in attributes), payload=b"" if payload is None else payload.encode()
    )

    async def publish(client: Client) -> int:
        await _offer(client, offered)
        await client.publish(notification, ack="accepted")
        return 0

    return _with_client(url, identity, publish)


async def _offer(client: Client, offered: Advertisement | None) -> None:
    if offered is not None:
        await client.advertise(offered)


async def _publish_lines(client: Client, offered: Advertisement | None) -> int:
    await _offer(client, offered)
    bad = published = 0
    batch: list[Notification] = []
    for number, line in _lines():
        try:
            batch.append(Notification.parse(line))
        except CatchmentError as problem:
            bad += 1
            print(f"line {number}: {problem}", file=sys.stderr)
        if len(batch) >= LINES_AT_ONCE:
            await client.publish(batch, ack="accepted")
            published += len(batch)
            batch = []
    if batch:
        await client.publish(batch, ack="accepted")
    rest = f", {bad:,} bad lines" if bad else ""
    print(f"{published + len(batch):,} notifications published{rest}", file=sys.stderr)
    return 1 if bad else 0


def _lines() -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(sys.stdin, 1) if line.strip())


def _attribute(text: str) -> tuple[str, Value]:
    """`name=value`: a number, true or false, a time, or else a string; what is in quotes is a string always."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadUsage(f"{text!r} is no attribute: write name=value, as in level=5 or place=north")
    return name, _value(value)


def _value(text: str) -> Value:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, parse_time):
        try:
            found: Value = kind(text)
        except (ValueError, InputError):
            continue
        # Python reads words as floats which are none here.
        if not isinstance(found, float) or text[-1].isdigit() or text[-1] == ".":
            return found
    return text


# --- sub ----------------------------------------------------------------------------------------


def run_sub(filter: str, url: str, identity: str | None, dialect: str, count: int | None, as_json: bool) -> int:
    wanted = _wanted(filter, dialect)

    async def subscribe(client: Client) -> int:
        subscription = await client.subscribe(wanted)
        if not as_json:
            print(f"subscribed at {client.broker} as {client.identity}: {wanted}", file=sys.stderr, flush=True)
        seen = 0
        async for delivery in subscription:
            _print(delivery, as_json)
            seen += 1
            if count is not None and seen >= count:
                break
        return 0

    return _with_client(url, identity, subscribe, reconnect=True)


def _wanted(text: str, dialect: str) -> Filter | Pattern | Cesql:
    try:
        if dialect == "cesql":
            return Cesql(text)
        return Pattern(text) if text.lstrip().startswith("[") and "->" in text else Filter(text)
    except InputError as problem:
        raise BadUsage(described(problem, "FILTER", text)) from None


def _print(delivery: Delivered, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {"notifications": [one.to_json() for one in delivery.notifications]}
        if len(delivery.notifications) == 1:
            found = {"notification": delivery.notification.to_json()}
        found["subscriptions"] = list(delivery.subscriptions)
        if delivery.missed or delivery.gap:
            found |= {"missed": delivery.missed, "gap": delivery.gap}
        print(json.dumps(found, ensure_ascii=False), flush=True)
        return
    out = console()
    if delivery.missed or delivery.gap:
        why = f"{delivery.missed:,} missed" if delivery.missed else "the connection was lost: some may be missing"
        out.print(f"  ({why})", style="yellow")
    for place, one in enumerate(delivery.notifications):
        at = "" if one.time is None else format_time(one.time)[11:23]
        values = "  ".join(
            f"{name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in one.items()
        )
        before = "" if len(delivery.notifications) == 1 else f"{place + 1}. "
        out.print(f"{at}  {before}{values}  ({one.source})", soft_wrap=True)
    sys.stdout.flush()


def _shown(value: Value) -> str:
    return format_time(value) if isinstance(value, datetime) else json.dumps(value, ensure_ascii=False)


# --- advertise and explain ----------------------------------------------------------------------


def run_advertise(advertisement: str, url: str, identity: str | None) -> int:
    """Holds an advertisement for as long as it runs."""
    offered = _advertisement(advertisement)

    async def advertise(client: Client) -> int:
        await client.advertise(offered)
        print(f"advertised at {client.broker} as {client.identity} until interrupted: {offered}", file=sys.stderr)
        await asyncio.Event().wait()
        return 0

    return _with_client(url, identity, advertise, reconnect=True)


def _advertisement(text: str) -> Advertisement:
    try:
        return Advertisement(text)
    except InputError as problem:
        raise BadUsage(f"the advertisement: {problem}") from None


def run_explain(attributes: Sequence[str], url: str, as_json: bool) -> int:
    """Why a broker's subscriptions match a notification, or do not."""
    notification = Notification(dict(_attribute(one) for one in attributes))

    async def explain(client: Client) -> int:
        found = await client.look("explain", notification)
        if as_json:
            print(json.dumps(found, ensure_ascii=False))
            return 0
        out = console()
        if not found:
            out.print(f"{client.broker} has no subscriptions of its own clients")
        for one in found:
            verdict = "matches" if one["matches"] else "does not match"
            out.print(f"{one['identity']} {one['subscription']} {verdict}: {one['filter']}", soft_wrap=True)
            if not one["matches"]:
                out.print(f"    {one['explanation']}", soft_wrap=True)
        return 0

    return _with_client(url, None, explain)
