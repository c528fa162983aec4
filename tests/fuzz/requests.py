"""HTTP requests: the HTTP side of a broker without sockets is told good, strange and broken requests. Every one is
answered or ends the connection, and none is answered with 500."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from urllib.parse import quote

from catchment.broker.config import Address, Config, StoreConfig
from catchment.broker.server import Broker
from tests.fuzz import texts
from tests.fuzz.memory import MemoryTransport

METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "X", "")
PATHS = (
    "/events",
    "/events/ws",
    "/subscriptions",
    "/subscriptions/a",
    "/subscriptions/a/events",
    "/subscriptions/a/ws",
    "/subscriptions/a/ack",
    "/subscriptions/a/dead",
    "/subscriptions/a/dead/1",
    "/subscriptions/a/dead/1/resend",
    "/subscriptions/a/confirm",
    "/subscriptions/a/validate",
)
MORE_PATHS = (
    "/metrics",
    "/healthz",
    "/topology",
    "/openapi.json",
    "/",
    "*",
    "//",
    "/%ff",
    "/subscriptions/%00",
    "http://x/",
)
VALUES = (
    "",
    "1",
    "localhost",
    "close",
    "upgrade",
    "keep-alive",
    "\xff",
    "http://[",
    "null",
    "9" * 30,
    "x" * 9_000,
    ";=,",
    "%ff",
)
HEADERS = ("Host", "Origin", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Expect")
MORE_HEADERS = ("Last-Event-ID", "ce-specversion", "ce-id", "ce-source", "ce-type", "ce-x", "Sec-WebSocket-Key", "X")
TYPES = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json", "text/plain")
PARAMETERS = ("limit=0", "limit=9", "limit=%C2%B2", "x", "&&&=", "after", "ack=stored", "key=%ff", "kind=x")
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version: 13",
)
# Turns of the loop in which a request must be answered, or wait for something.
TURNS = 12


def body(chance: random.Random) -> bytes:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "x": chance.choice((1, "a", None, 1.5, [1]))}
    filters = [
        {"catchment": texts.filter_text(chance)[:2_000]},
        {"sql": texts.cesql(chance)[:2_000]},
        {"exact": {"x": "1"}},
    ]
    subscription = {"id": chance.choice(("a", "b", "", "é")), "filters": chance.sample(filters, chance.randrange(3))}
    # A sink that nobody may send to: the fuzzer makes no connection.
    webhook = {**subscription, "sink": chance.choice(("https://127.0.0.1/", "", 7)), "protocol": "HTTP"}
    durable = {**subscription, "durable": chance.choice((True, True, False, 7))}
    place = {"place": chance.choice(("d:", "d:a:1~0123456789abcdef", "", 7))}
    bodies: tuple[object, ...] = (
        event,
        [event],
        [event, {}],
        subscription,
        subscription,
        webhook,
        durable,
        place,
        1,
        [],
        {},
    )
    made = json.dumps(chance.choice(bodies)).encode()
    return made if chance.random() < 0.9 else made[: chance.randrange(len(made))] + chance.randbytes(2)


def target(chance: random.Random) -> str:
    path = chance.choice((*PATHS, *PATHS, *MORE_PATHS))
    match chance.randrange(5):
        case 0:
            return f"{path}?filter={quote(texts.filter_text(chance)[:1_000])}"
        case 1:
            return f"{path}?sql={quote(texts.cesql(chance)[:1_000])}&after={chance.choice(('x.1', '%ff', ''))}"
        case 2:
            return f"{path}?{chance.choice(PARAMETERS)}"
    return path


def request(chance: random.Random) -> bytes:
    payload = body(chance)
    lines = ["Host: localhost"] if chance.random() < 0.9 else []
    lines += [f"Content-Type: {chance.choice(TYPES)}"] if chance.random() < 0.8 else []
    if chance.random() < 0.2:
        lines += UPGRADE
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        lines.append(f"{chance.choice((*HEADERS, *MORE_HEADERS))}: {chance.choice(VALUES)}")
    if chance.random() < 0.3:
        lines.append("Transfer-Encoding: chunked")
        payload = b"%x\r\n%b\r\n0\r\n\r\n" % (len(payload), payload)
    elif chance.random() < 0.9:
        lines.append(f"Content-Length: {len(payload)}")
    version = chance.choice(("HTTP/1.1",) * 9 + ("HTTP/1.0",))
    head = f"{chance.choice((*METHODS, 'GET', 'POST', 'POST'))} {target(chance)} {version}\r\n"
    made = (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode("latin-1") + payload
    if chance.random() < 0.1:
        at = chance.randrange(len(made))
        made = made[:at] + chance.randbytes(chance.randint(1, 3)) + made[at + chance.randrange(3) :]
    return made


class HttpFuzzer:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        anywhere = Address("127.0.0.1", 0)
        self._broker = Broker(Config("broker", anywhere, http=anywhere, store=StoreConfig(url="memory:")))

    async def requests(self, count: int) -> Iterator[bytes]:  # type: ignore[misc]
        """Yields each request before it is sent."""
        await self._broker.start()
        http = self._broker.http
        assert http is not None
        server = http._server
        assert server is not None
        try:
            for _ in range(count):
                data = request(self._chance)
                yield data
                made = server.config.http_protocol_class(  # type: ignore[call-arg]
                    config=server.config, server_state=server.server_state, app_state={}, _loop=None
                )
                transport = MemoryTransport(made)
                made.connection_made(transport)  # type: ignore[arg-type]
                transport.feed(data)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                # What comes behind: frames of a WebSocket, or another request.
                transport.feed(self._chance.choice((b"", b"\x89\x80\0\0\0\0" * 3, self._chance.randbytes(9), data)))
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                assert b"HTTP/1.1 500" not in transport.written, transport.written
                transport.abort()
                await asyncio.sleep(0)
        finally:
            await self._broker.stop()
        assert not server.server_state.connections
