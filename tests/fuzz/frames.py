"""Frames: a broker without sockets is told good frames, frames of a grammar, and changed ones, as a client and as a
neighbor. Nothing but a Goodbye may come of that.

The connections are the broker's own, on transports that exist only in memory.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from catchment.broker.config import Address, Config
from catchment.broker.connection import Connection
from catchment.broker.server import Broker
from catchment.wire.frames import VERSION
from tests.fuzz import texts
from tests.fuzz.memory import MemoryTransport

CLIENT_FRAMES_MAX = 200
NUMBERS = (0, 1, 2, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 1.5, float("nan"), float("inf"))
IDENTITIES = ("fuzz", "other", "", "@http", "@x", "*", "é" * 2_000, "a\nb")
KINDS = (
    "Ping",
    "Pong",
    "Goodbye",
    "Hello",
    "Welcome",
    "Accepted",
    "Refused",
    "Seen",
    "Credit",
    "Lost",
    "Batch",
    "Nothing",
)


def value(chance: random.Random, depth: int = 2) -> Any:
    """Whatever MessagePack can say."""
    match chance.randrange(9):
        case 0 if depth:
            return [value(chance, depth - 1) for _ in range(chance.randrange(5))]
        case 1 if depth:
            return {chance.choice(texts.NAMES): value(chance, depth - 1) for _ in range(chance.randrange(5))}
        case 2:
            return chance.choice(IDENTITIES)
        case 3:
            return chance.choice((None, True, False))
        case 4:
            return chance.randbytes(chance.choice((0, 1, 100)))
        case 5:
            return msgspec.msgpack.Ext(chance.choice((-1, 0, 5)), chance.randbytes(chance.choice((4, 8, 12, 3))))
        case 6:
            return chance.choice(texts.STRINGS)
    return chance.choice(NUMBERS)


def is_odd(chance: random.Random) -> bool:
    """Most of what is said is good: else nothing would get beyond the decoder."""
    return chance.random() < 0.02


def notification(chance: random.Random) -> list[Any]:
    if is_odd(chance):
        attributes = {name: value(chance, 0) for name in chance.sample(texts.NAMES, chance.randrange(4))}
        return [attributes, *(value(chance) for _ in range(chance.randrange(6)))]
    attributes = {"x": chance.randrange(10), "s": chance.choice(("a", "t7")), "price": chance.random()}
    source, seq = chance.choice(((None, None), ("fuzz", chance.randrange(1_000)), ("fuzz", chance.choice(NUMBERS[:6]))))
    return [attributes, source, seq, None, chance.choice((None, "id")), chance.randbytes(chance.choice((0, 9)))]


def wanted(chance: random.Random) -> Any:
    match chance.randrange(20):
        case 0:
            return ["pattern", f"[{texts.constraint(chance)}] -> [{texts.constraint(chance)}] by x"]
        case 1:
            return ["cesql", chance.choice(("x > 1", "LENGTH(s) = 1", "s LIKE 'a%' AND NOT EXISTS y", "x +"))]
        case 2:
            return texts.changed(texts.expression(chance, 1), chance)
        case 3:
            return value(chance)
        case 4:
            return texts.expression(chance, 2)
    return texts.constraint(chance)


def request(chance: random.Random) -> list[Any]:
    identity = chance.choice(IDENTITIES) if is_odd(chance) else "fuzz"
    match chance.randrange(8):
        case 0 | 1 | 2:
            return ["Subscribe", identity, f"s{chance.randrange(20)}", wanted(chance)]
        case 3:
            return ["Cancel", identity, f"s{chance.randrange(20)}"]
        case 4:
            return ["Unsubscribe", identity, wanted(chance)]
        case 5:
            return [chance.choice(("Advertise", "Unadvertise")), identity, texts.constraint(chance)]
        case 6:
            return ["MapIdentity", identity, chance.choice(IDENTITIES)]
    return [chance.choice(("Suspend", "Resume")), identity]


def of_a_client(chance: random.Random) -> list[Any]:
    number = chance.choice(NUMBERS) if is_odd(chance) else chance.randrange(9)
    match chance.randrange(40):
        case 0:
            return ["Look", number, chance.choice(("status", "explain")), notification(chance)]
        case kind if kind < 10:
            return ["Request", number, request(chance)]
        case kind if kind < 39:
            return ["Publish", number, [notification(chance) for _ in range(chance.randrange(4))]]
    return [chance.choice(KINDS), *(value(chance) for _ in range(chance.randrange(4)))]


def of_a_neighbor(chance: random.Random) -> list[Any]:
    filters = [texts.constraint(chance) for _ in range(chance.randrange(3))]
    origin = chance.choice(("neighbor 0", "neighbor 1", "broker", "far"))
    seq = chance.choice(NUMBERS[:8]) if is_odd(chance) else chance.randrange(1_000_000)
    match chance.randrange(30):
        case kind if kind < 10:
            return ["Batch", [[[chance.randrange(3), origin], [notification(chance)]]]]
        case kind if kind < 16:
            return ["Links", origin, seq, [[chance.choice(("broker", "far")), chance.choice((1, 2, 10**7))]]]
        case kind if kind < 22:
            return ["Wants", origin, seq, filters]
        case kind if kind < 29:
            return ["WantsChange", origin, seq, chance.randrange(9), filters, filters]
    return [chance.choice(KINDS), *(value(chance) for _ in range(chance.randrange(4)))]


def framed(message: list[Any], chance: random.Random) -> bytes:
    """A frame, in some cases with something changed."""
    try:
        body = msgspec.msgpack.encode(message)
    except (OverflowError, msgspec.MsgspecError):
        body = b"\x93\xa7Request\xcf" + b"\xff" * 8
    if chance.random() < 0.05:
        changed = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(changed))
            match chance.randrange(3):
                case 0:
                    changed[at] = chance.randrange(256)
                case 1:
                    changed[at:at] = chance.randbytes(chance.randint(1, 4))
                case 2:
                    del changed[at:]
            changed = changed or bytearray(b"\xc0")
        body = bytes(changed)
    length = len(body) if chance.random() < 0.995 else chance.choice((0, 1, len(body) + 1, 2**32 - 1))
    return struct.pack(">I", length) + body


def whole(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class Fuzzer:
    """One broker, and connections to it one after the other."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._broker = Broker(Config("broker", Address("127.0.0.1", 0)))
        # Slices end by their events alone: what happens depends on the seed, and not on how busy the machine is.
        self._broker.turns._clock = lambda: 0.0

    def _connected(self) -> tuple[Connection, MemoryTransport, bool]:
        connection = self._broker._incoming()
        transport = MemoryTransport(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        is_client = self._chance.random() < 0.7
        role, name = ("client", "fuzz") if is_client else ("broker", f"neighbor {self._chance.randrange(3)}")
        hello: list[Any] = ["Hello", [VERSION, VERSION], role, name, {}, self._broker.config.routing, 1, "i"]
        transport.feed(whole(msgspec.msgpack.encode(hello)))
        assert connection.session.is_established
        return connection, transport, is_client

    async def frames(self, count: int) -> Iterator[bytes]:  # type: ignore[misc]
        """Yields each frame before it is said."""
        said = 0
        while said < count:
            connection, transport, is_client = self._connected()
            for _ in range(self._chance.randint(1, CLIENT_FRAMES_MAX)):
                data = framed((of_a_client if is_client else of_a_neighbor)(self._chance), self._chance)
                yield data
                said += 1
                # In pieces, sometimes.
                cut = self._chance.randrange(len(data)) if self._chance.random() < 0.1 else 0
                for piece in (data[:cut], data[cut:]):
                    if piece:
                        transport.feed(piece)
                if self._chance.random() < 0.05:
                    connection.tick(asyncio.get_running_loop().time())
                if said % 20 == 0 or not transport.is_reading():
                    await asyncio.sleep(0)
                if transport.is_closing() or not transport.is_reading():
                    break
            transport.abort()
            await asyncio.sleep(0)
        await self._settled()

    async def _settled(self) -> None:
        """Everybody is gone: nothing may be left of them."""
        for _ in range(1_000):
            await asyncio.sleep(0)
            if not self._broker.connections:
                break
        node = self._broker.node
        assert node.totals.published, "nothing got beyond the decoder"
        assert not node.clients
        assert not node.links
        assert not self._broker.half_sent.bytes
        assert not self._broker.outboxes.bytes
        assert not node.core.clients.subscriptions_count
