"""docs/protocol.md: its example is what a broker says, its tables are what the code has."""

import importlib
import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from catchment import wire
from catchment.broker.config import Config
from catchment.wire.frames import Decoder
from catchment.wire.messages import ToBroker, ToClient
from tests.integration.network import ANYWHERE, Raw, broker, run

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
LIMITS_IN = (
    "wire",
    "model.notification",
    "model.values",
    "model.language",
    "model.filter",
    "routing.parts.clients",
    "broker.connection",
    "broker.credit",
    "broker.node",
    "broker.server",
)


def example() -> list[tuple[str, str, bytes]]:
    """Direction, what it is said to be, and the frame, of each message of the page."""
    (block,) = re.findall(r"^```hex\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^([<>]) (.*)\n", block, flags=re.MULTILINE)[1:]
    return [(parts[i], parts[i + 1], bytes.fromhex(parts[i + 2])) for i in range(0, len(parts), 3)]


def rows(heading: str) -> dict[str, list[str]]:
    """The first column, and the names in the second, of the tables whose first heading is this."""
    found = {}
    for table in re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for line in table.splitlines():
            name, fields = [cell.strip() for cell in line.split("|")[1:3]]
            found[name.strip("`")] = re.findall(r"`(\w+)`", fields)
    return found


def test_a_broker_says_what_the_page_says():
    async def work():
        async with broker(**_plain()) as b, await Raw.dial(b.address) as raw:
            for direction, _, data in example():
                if direction == ">":
                    raw.say(data)
                else:
                    assert await raw._reader.readexactly(len(data)) == data

    run(work())


def _plain() -> dict:
    given = replace(Config(), listen=ANYWHERE)
    return {"name": given.name, "routing": given.routing}


@pytest.mark.parametrize(("direction", "text", "data"), example())
def test_each_frame_is_what_it_is_said_to_be(direction, text, data):
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    (message,) = Decoder(ToBroker if direction == ">" else ToClient).feed(data)
    fields = msgspec.msgpack.decode(data[4:])
    assert type(message).__name__ in (fields[0], "Unfit")
    start, cut, _ = text.partition("…")
    assert written(fields).startswith(start) if cut else written(fields) == text


def written(value: object) -> str:
    """As the page writes it."""
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
            return f"{{{', '.join(f'{written(name)}: {written(one)}' for name, one in value.items())}}}"
        case _:
            return json.dumps(value)


def test_every_message_is_on_the_page_with_its_fields_in_order():
    messages = rows("message")
    kinds = {*ToBroker.__args__, *ToClient.__args__}
    assert set(messages) == {kind.__name__ for kind in kinds}
    for kind in kinds:
        assert messages[kind.__name__] == list(kind.__struct_fields__), kind.__name__


def test_every_request_is_on_the_page_with_its_fields_in_order():
    requests = rows("request")
    assert set(requests) == {kind.__name__ for kind in wire.ClientRequest.__args__}
    for kind in wire.ClientRequest.__args__:
        assert requests[kind.__name__] == list(kind.__struct_fields__), kind.__name__


def test_the_limits_are_those_of_the_code():
    modules = [importlib.import_module(f"catchment.{name}") for name in LIMITS_IN]
    limits = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", PAGE, re.MULTILINE)
    assert len(limits) > 15
    for name, value in [*limits, ("LINK_FRAME_BYTES_MAX", "33,554,432")]:
        found = {getattr(module, name) for module in modules if hasattr(module, name)}
        assert found == {int(value.replace(",", ""))}, name
