"""docs/protocol.md: its example is what a broker says, and its tables are what the code has."""

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catchment.broker import server as server_module
from catchment.broker.config import Config
from catchment.routing.durable.messages import BETWEEN_STORAGES, DurableRequest
from catchment.routing.messages import Beat, BrokerMessage, ClientSaid, Gap, LinkReport, Parting
from catchment.routing.systems import SYSTEMS
from catchment.wire.frames import VERSION, Decoder
from catchment.wire.messages import Batch
from catchment.wire.states import TABLE, Happening, HelloOf, What
from tests.integration.network import ANYWHERE, Raw, broker, run
from tests.said import TO_BROKER, TO_CLIENT

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
LIMITS_IN = (
    "wire.frames",
    "wire.greetings",
    "wire.session",
    "model.notification",
    "model.values",
    "model.language",
    "model.filter",
    "model.expression",
    "model.constraint",
    "model.globs",
    "model.normal",
    "model.advertisement",
    "model.pattern",
    "model.cesql.dialect",
    "model.cesql.analysis",
    "model.cesql.implied",
    "model.monitor",
    "routing.parts.clients",
    "routing.parts.identities",
    "routing.parts.watching",
    "node.access",
    "node.numbers",
    "node.node",
    "broker.allowance",
    "broker.connection",
    "broker.credit",
    "broker.half_sent",
    "broker.outboxes",
    "broker.server",
    "routing.messages",
    "routing.durable.messages",
    "routing.durable.settings",
    "routing.parts.link_states",
    "node.gaps",
)


def example() -> list[tuple[str, str, bytes]]:
    """Direction, text and frame of each message of the example."""
    (block,) = re.findall(r"^```hex\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^([<>]) (.*)\n", block, flags=re.MULTILINE)[1:]
    return [(parts[i], parts[i + 1], bytes.fromhex(parts[i + 2])) for i in range(0, len(parts), 3)]


def lines(heading: str) -> Iterator[list[str]]:
    """The cells of each line of the tables whose first heading is this."""
    for table in re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in line.split("|")[1:-1]]


def quoted(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def fields_by_name(heading: str) -> dict[str, list[str]]:
    """The first column, and the fields in the second."""
    return {name.strip("`"): re.findall(r"(?:^|· )`(\w+)`", fields) for name, fields, *_ in lines(heading)}


# --- the example --------------------------------------------------------------------------------


def test_a_broker_says_what_the_page_says(monkeypatch):
    at = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
    monkeypatch.setattr(server_module, "_now", lambda: int(at.timestamp()) * 1_000_000)

    async def work():
        config = replace(Config(), listen=ANYWHERE)
        async with broker(config.name, routing=config.routing) as b, await Raw.dial(b.address) as raw:
            for direction, _, data in example():
                if direction == ">":
                    raw.say(data)
                else:
                    assert await raw._reader.readexactly(len(data)) == data

    run(work())


@pytest.mark.parametrize(("direction", "text", "data"), example())
def test_each_frame_is_what_it_is_said_to_be(direction, text, data):
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    decoder: Decoder[Any] = Decoder(TO_BROKER if direction == ">" else TO_CLIENT)
    (message,) = decoder.feed(data)
    fields = msgspec.msgpack.decode(data[4:])
    assert type(message).__name__ in (fields[0], "Unfit")
    start, cut, _ = text.partition("…")
    assert written(fields).startswith(start) if cut else written(fields) == text


def written(value: object) -> str:
    """A value as the page writes it."""
    match value:
        case None:
            return "nil"
        case bytes():
            return f'b"{value.hex()}"'
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return f"[{', '.join(map(written, value))}]"
        case dict():
            return f"{{{', '.join(f'{written(name)}: {written(inner)}' for name, inner in value.items())}}}"
        case _:
            return json.dumps(value)


# --- states -------------------------------------------------------------------------------------


def named(what: What) -> str:
    match what:
        case HelloOf():
            return f"`Hello` of a {what.value}"
        case Happening():
            return what.value
        case _ if what is BrokerMessage:
            return "a message of the routing system"
        case _:
            return f"`{what.__name__}`"


def state_lines() -> list[list[str]]:
    """The table of states as the page prints it."""
    return [
        [
            ", ".join(f"`{state.value}`" for state in row.states),
            f"{row.does} {', '.join(map(named, row.what))}" if row.does != "notices" else named(row.what[0]),
            f"`{row.then.value}`",
        ]
        for row in TABLE
    ]


def test_the_table_of_states_is_that_of_the_code():
    assert list(lines("state")) == state_lines()


# --- messages -----------------------------------------------------------------------------------


def test_every_message_is_on_the_page_with_its_fields_in_order():
    kinds = {*TO_BROKER.__args__, *TO_CLIENT.__args__}
    assert fields_by_name("message") == {kind.__name__: list(kind.__struct_fields__) for kind in kinds}


def test_every_request_is_on_the_page_with_its_fields_in_order():
    kinds = (*ClientSaid.__args__, *DurableRequest.__args__)
    requests = {kind.__name__: list(kind.__struct_fields__) for kind in kinds}
    assert fields_by_name("request") == requests


def test_what_brokers_say_is_on_the_page_by_system_with_header():
    printed = {
        name.strip("`"): (re.findall(r"(?:^|· )`(\w+)`", header), quoted(messages))
        for name, header, messages in lines("routing system")
    }
    assert printed == {
        system.name: (list(system.header.__struct_fields__), [kind.__name__ for kind in system.messages])
        for system in SYSTEMS.values()
    }


def test_every_message_of_durable_delivery_is_on_the_page_with_its_fields_in_order():
    assert fields_by_name("message of durable delivery") == {
        kind.__name__: list(kind.__struct_fields__) for kind in BETWEEN_STORAGES
    }


def test_every_message_between_brokers_is_on_the_page_with_its_fields_in_order():
    kinds = {kind for system in SYSTEMS.values() for kind in system.messages}
    assert fields_by_name("message of a routing system") == {
        kind.__name__: list(kind.__struct_fields__) for kind in kinds
    }
    between_all = (Batch, LinkReport, Beat, Parting, Gap)
    assert fields_by_name("message between all brokers") == {
        kind.__name__: list(kind.__struct_fields__) for kind in between_all
    }


def test_the_version_is_that_of_the_code():
    assert f"The version of the protocol is {VERSION}." in PAGE


# --- limits -------------------------------------------------------------------------------------


def test_every_limit_on_what_is_written_is_on_the_page():
    """Filters, advertisements, patterns and CESQL: the limits that somebody who writes one can meet."""
    places = (
        "expression",
        "constraint",
        "globs",
        "normal",
        "pattern",
        "cesql.dialect",
        "cesql.analysis",
        "cesql.implied",
    )
    limits = {
        name
        for place in places
        for name, value in vars(importlib.import_module(f"catchment.model.{place}")).items()
        if name.endswith("_MAX") and isinstance(value, int) and not name.startswith("_")
    }
    assert limits - INNER <= set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))


# Of the normal form: past them it is longer, and means the same.
INNER = {
    "PRIME_BOXES_MAX",
    "IRREDUNDANT_STEPS_MAX",
    "GLOB_BOXES_MAX",
    "IRREDUNDANT_GLOB_STEPS_MAX",
    "INT_MAX",
    "INTEGER_MAX",
}


def test_the_limits_are_those_of_the_code():
    modules = [importlib.import_module(f"catchment.{name}") for name in LIMITS_IN]
    limits = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", PAGE, re.MULTILINE)
    assert len(limits) > 15
    for name, value in [*limits, ("LINK_FRAME_BYTES_MAX", "33,554,432"), ("ANSWER_S_MAX", "2")]:
        values = {getattr(module, name) for module in modules if hasattr(module, name)}
        assert values == {int(value.replace(",", ""))}, name
