"""What an attacker or a clumsy neighbor does to a broker, as raw frames written from docs/protocol.md.

An attack is a generator. What it does before its first `yield` is its preparation, which is not measured. After that it
yields now and then, so that it can be stopped. All attacks go to one broker on this machine, are bounded in count, and
end when the benchmark says so.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

VERSION = 2
PIECE_BYTES = 262_144


@dataclass(frozen=True)
class Target:
    port: int
    http_port: int


Steps = Iterator[None]


@dataclass(frozen=True)
class Attack:
    # The number of the finding in issue 18, or what else it stands for.
    finding: str
    name: str
    steps: Callable[[Target], Steps]
    routing: str = "siena general"


# --- connections --------------------------------------------------------------------------------


def frame(*message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def dialed(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def client(target: Target, name: str) -> socket.socket:
    made = dialed(target.port)
    made.sendall(frame("Hello", [VERSION, VERSION], "client", name))
    assert hear(made)[0] == "Welcome"
    return made


def hear(connection: socket.socket) -> Any:
    (length,) = struct.unpack(">I", read_exactly(connection, 4))
    return msgspec.msgpack.decode(read_exactly(connection, length))


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker has closed the connection")
        data += part
    return data


def pumped(connection: socket.socket, data: bytes) -> Steps:
    """Sends as fast as the broker takes it, and throws away what it answers. Ends when the broker closes."""
    connection.setblocking(False)
    sent = 0
    while sent < len(data):
        readable, writable, _ = select.select([connection], [connection], [], 0.1)
        try:
            if readable and not connection.recv(PIECE_BYTES):
                return
            if writable:
                sent += connection.send(memoryview(data)[sent : sent + PIECE_BYTES])
        except BlockingIOError:
            pass
        except OSError:
            return
        yield


def answered(connection: socket.socket, number: int) -> None:
    """Reads until the request with this number is answered."""
    connection.setblocking(True)
    connection.settimeout(600)
    while True:
        message = hear(connection)
        if message[0] in ("Accepted", "Refused") and message[1] == number:
            return


def subscribed(connection: socket.socket, identity: str, texts: list[str], from_number: int = 1) -> None:
    """Subscribes to all of these and waits for the answers, some at a time."""
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        numbers = range(from_number + start, from_number + start + len(part))
        for number, text in zip(numbers, part, strict=True):
            connection.sendall(frame("Request", number, ["Subscribe", identity, f"s{number}", text]))
        answered(connection, numbers[-1])


# --- filters that cost ----------------------------------------------------------------------------


def asked_for_ever(target: Target, text_of: Callable[[int], Any]) -> Steps:
    """One subscription after the other, each another filter."""
    connection = client(target, "attacker")
    yield
    for number in itertools.count(1):
        yield from pumped(
            connection, frame("Request", number, ["Subscribe", "attacker", f"s{number}", text_of(number)])
        )
        yield


def conjuncts(count: int) -> Callable[[int], str]:
    return lambda n: " and ".join(f"(a{i} > {i + n} or b{i} < {-i - n})" for i in range(count))


def glob_conjuncts(n: int) -> str:
    return " and ".join(f'(s glob "*{n}x{i}?a*b" or not t glob "?{n}y{i}*c?d")' for i in range(12))


def not_globs(n: int) -> str:
    return " and ".join(f'not s glob "*a{n}?{i}*b{i}*"' for i in range(20))


def cesql(n: int) -> list[str]:
    return ["cesql", " XOR ".join(f"s LIKE '%{n}a{i}_b%'" for i in range(14))]


def refused(n: int) -> str:
    """Too long for the normal form at main, and deep enough to be refused by any limit on nesting."""
    return " and ".join(f"(a{i} > {n} or b{i} < 0)" for i in range(40)) + " and " + "(" * 70 + "x = 1" + ")" * 70


def unsubscription(target: Target) -> Steps:
    connection = client(target, "attacker")
    subscribed(connection, "attacker", [f"x > {n} and y < {n % 97}" for n in range(20_000)])
    alternatives = " or ".join(f"(x > {30_000 + n} and z < {n})" for n in range(100))
    yield
    yield from pumped(connection, frame("Request", 30_000, ["Unsubscribe", "attacker", alternatives]))
    yield


def incomparable_globs(target: Target) -> Steps:
    connection = client(target, "attacker")
    yield
    texts = (f's glob "*a{n}?b*c{n % 7}*"' for n in range(2_000))
    yield from _requests(connection, texts)


def incomparable_ranges(target: Target) -> Steps:
    connection = client(target, "attacker")
    yield
    texts = (f"x > {n} and x < {n + 30_000} and y > {-n} and y < {30_000 - n}" for n in range(20_000))
    yield from _requests(connection, texts)


def _requests(connection: socket.socket, texts: Iterator[str]) -> Steps:
    for number, text in enumerate(texts, 1):
        yield from pumped(connection, frame("Request", number, ["Subscribe", "attacker", f"s{number}", text]))


def disconnect(target: Target) -> Steps:
    connection = client(target, "attacker")
    subscribed(connection, "attacker", [f"x = {n}" for n in range(100_000)])
    yield
    connection.close()
    yield


def refused_publications(target: Target) -> Steps:
    """Nobody has advertised them."""
    connection = client(target, "attacker")
    yield
    for round in itertools.count():
        numbers = range(round * 8_000 + 1, round * 8_000 + 8_001)
        yield from pumped(connection, b"".join(frame("Publish", n, [[{"x": n}, None, None, None]]) for n in numbers))
        if round == 3:
            return


# --- floods ---------------------------------------------------------------------------------------


def native_flood(data: bytes, connections: int = 1) -> Callable[[Target], Steps]:
    def steps(target: Target) -> Steps:
        opened = [client(target, f"attacker {n}") for n in range(connections)]
        yield
        pumps = [pumped(connection, data) for connection in opened]
        while pumps:
            pumps = [pump for pump in pumps if next(pump, "over") is None]
            yield

    return steps


def websocket_pings(target: Target) -> Steps:
    connection = dialed(target.http_port)
    connection.sendall(
        b"GET /events/ws?filter=never%3D1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b" 101 " in connection.recv(65_536)
    yield
    yield from pumped(connection, b"\x89\x80\0\0\0\0" * 4_000_000)


def publications(target: Target) -> Steps:
    """A publisher that keeps to its credit, as fast as it can. Nothing of it is wrong."""
    connection = client(target, "attacker")
    batch = frame("Publish", 1, [[{"x": n, "y": "z"}, None, None, None] for n in range(1_000)])
    yield
    while True:
        yield from pumped(connection, batch)
        answered(connection, 1)
        yield


# --- half of something ----------------------------------------------------------------------------


def half_frames(target: Target) -> Steps:
    connections = [client(target, f"attacker {n}") for n in range(150)]
    yield
    begun = struct.pack(">I", 4_194_304) + bytes(4_194_000)
    for connection in connections:
        yield from pumped(connection, begun)
    while True:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(b"\0")
            yield


def half_headers(target: Target) -> Steps:
    yield
    held = []
    for _ in range(2_005):
        with contextlib.suppress(OSError):
            held.append(dialed(target.http_port))
            held[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        yield
    while held:
        yield


def http_flood(head: bytes, piece: bytes, pieces: int) -> Callable[[Target], Steps]:
    def steps(target: Target) -> Steps:
        yield
        for _ in range(pieces):
            with dialed(target.http_port) as connection:
                yield from pumped(connection, head)
                for _ in range(pieces):
                    steps_of_piece = pumped(connection, piece)
                    if next(steps_of_piece, "over") is not None:
                        break
                    yield from steps_of_piece

    return steps


_POST = b"POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/cloudevents+json\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_CHUNK = b"10000\r\n" + bytes(0x10000) + b"\r\n"
_GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def nothing(target: Target) -> Steps:
    """How long somebody waits when nobody attacks."""
    while True:
        yield


ATTACKS = (
    Attack("none", "nobody attacks", nothing),
    Attack("1", "normal form, 8 conjuncts, 154 bytes", lambda target: asked_for_ever(target, conjuncts(8))),
    Attack("1", "normal form, 16 conjuncts", lambda target: asked_for_ever(target, conjuncts(16))),
    Attack("1", "normal form, 80 conjuncts", lambda target: asked_for_ever(target, conjuncts(80))),
    Attack("1", "12 conjuncts of globs", lambda target: asked_for_ever(target, glob_conjuncts)),
    Attack("1", "20 not glob", lambda target: asked_for_ever(target, not_globs)),
    Attack("1", "14 CESQL LIKE, XOR", lambda target: asked_for_ever(target, cesql)),
    Attack("1", "filters that are refused", lambda target: asked_for_ever(target, refused)),
    Attack("2", "Unsubscribe, 100 alternatives, 20,000 subscriptions", unsubscription),
    Attack("3", "2,000 incomparable globs", incomparable_globs),
    Attack("3", "20,000 incomparable ranges", incomparable_ranges),
    Attack("4", "a client with 100,000 subscriptions leaves", disconnect),
    Attack("5", "32,000 refused publications", refused_publications, "siena advertising"),
    Attack("6", "4,000,000 pings of a WebSocket", websocket_pings),
    Attack("6", "2,000,000 pings", native_flood(frame("Ping") * 2_000_000)),
    Attack("6", "100 connections with 20,000 pings each", native_flood(frame("Ping") * 20_000, 100)),
    Attack("6", "looks at the status", native_flood(frame("Look", 1, "status") * 20_000)),
    Attack("12", "150 half-sent frames of 4 MiB", half_frames),
    Attack("15", "2,005 half-sent headers", half_headers),
    Attack("18", "endless bodies in chunks", http_flood(_CHUNKED, _CHUNK * 16, 2_000)),
    Attack("18", "bodies in chunks of a byte", http_flood(_CHUNKED, b"1\r\n \r\n" * 40_000, 100)),
    Attack("18", "requests one behind the other", http_flood(b"", _GET * 1_000, 100)),
    Attack("load", "a publisher as fast as its credit", publications),
)
