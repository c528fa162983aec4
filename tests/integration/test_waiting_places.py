"""Every place of a broker where bytes wait for somebody: filled from outside with several times what it may hold, the
broker's resident size stays small. The broker is a process of its own, with small bounds over all connections.

A new place where something waits belongs into PLACES."""

import contextlib
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from catchment.wire.frames import VERSION
from tests.integration.live import until

MIB = 1_048_576
# What is sent to each place, at least, and by how much the broker may grow meanwhile.
SENT_BYTES = 200 * MIB
GROWTH_BYTES_MAX = 100 * MIB

BROKER = """
import sys
from catchment.broker.config import Address, Config
from catchment.broker.run import run_broker

def ready(broker):
    broker.half_sent._bytes_max = 8 * 1_048_576
    broker.outboxes._bytes_max = 32 * 1_048_576
    broker.http.subscriptions.room.bytes_max = 8 * 1_048_576
    print(broker.address.port, broker.http.address.port, flush=True)

anywhere = Address("127.0.0.1", 0)
run_broker(Config(listen=anywhere, http=anywhere, routing=sys.argv[1]), ready)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


@dataclass(frozen=True)
class Running:
    pid: int
    port: int
    http_port: int

    @property
    def resident(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        return 1_024 * int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


@contextlib.contextmanager
def running(routing: str) -> Iterator[Running]:
    process = subprocess.Popen([sys.executable, "-c", BROKER, routing], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port, http_port = map(int, process.stdout.readline().split())
        yield Running(process.pid, port, http_port)
    finally:
        process.kill()
        process.communicate()


def frame(*message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def dialed(stack: contextlib.ExitStack, port: int) -> socket.socket:
    made = stack.enter_context(socket.socket())
    # Small, so that what is not read waits at the broker.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.settimeout(60)
    made.connect(("127.0.0.1", port))
    return made


def greeted(stack: contextlib.ExitStack, at: Running, name: str, **more: str) -> socket.socket:
    made = dialed(stack, at.port)
    role = "broker" if more else "client"
    made.sendall(
        frame("Hello", [VERSION, VERSION], role, name, {}, more.get("routing", ""), 1, more.get("instance", ""))
    )
    assert b"Welcome" in made.recv(4_096)
    return made


def sent(connection: socket.socket, data: bytes) -> None:
    """As much as the broker takes: it may close the connection."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


def published(stack: contextlib.ExitStack, at: Running, payload_bytes: int, keys: int = 1, rounds: int = 1) -> None:
    """Publishes, and waits for each answer, for at most a second: a broker that is congested gives none."""
    publisher = greeted(stack, at, "publisher")
    publisher.settimeout(1.0)
    with contextlib.suppress(OSError):
        for number in range(keys * rounds):
            notification = [{"key": number % keys}, None, None, datetime.now(UTC), None, bytes(payload_bytes)]
            publisher.sendall(frame("Publish", number + 1, [notification]))
            publisher.recv(4_096)


# --- the places ---------------------------------------------------------------------------------


def frames_that_are_not_whole(stack: contextlib.ExitStack, at: Running) -> None:
    for n in range(SENT_BYTES // (4 * MIB)):
        sent(greeted(stack, at, f"c{n}"), struct.pack(">I", 4 * MIB) + bytes(4 * MIB - 1))


def bodies_that_are_not_whole(stack: contextlib.ExitStack, at: Running) -> None:
    head = f"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2 * MIB}\r\n\r\n".encode()
    for _ in range(SENT_BYTES // (2 * MIB)):
        sent(dialed(stack, at.http_port), head + bytes(2 * MIB - 1))


def outboxes_of_clients(stack: contextlib.ExitStack, at: Running) -> None:
    for n in range(30):
        reader = greeted(stack, at, f"c{n}")
        reader.sendall(frame("Request", 1, ["Subscribe", f"c{n}", "s", "key >= 0"]))
        assert b"Accepted" in reader.recv(4_096)
    published(stack, at, MIB, rounds=10)


def outboxes_of_neighbors(stack: contextlib.ExitStack, at: Running) -> None:
    for n in range(8):
        greeted(stack, at, f"n{n}", routing="flooding", instance="1")
    published(stack, at, MIB, rounds=40)


def logs_of_subscriptions_over_http(stack: contextlib.ExitStack, at: Running) -> None:
    for n in range(200):
        stream = dialed(stack, at.http_port)
        stream.sendall(f"GET /events?filter=key%3D{n} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 200 " in stream.recv(15)
    published(stack, at, 75_000, keys=200, rounds=15)


def suspended_identities(stack: contextlib.ExitStack, at: Running) -> None:
    client = greeted(stack, at, "client")
    for n in range(50):
        client.sendall(frame("Request", 2 * n + 1, ["Subscribe", f"i{n}", "s", f"key = {n}"]))
        client.sendall(frame("Request", 2 * n + 2, ["Suspend", f"i{n}"]))
        assert b"Accepted" in client.recv(4_096)
    published(stack, at, MIB - 1_024, keys=50, rounds=4)


def partial_matches_of_patterns(stack: contextlib.ExitStack, at: Running) -> None:
    client = greeted(stack, at, "client")
    for n in range(4):
        pattern = ["pattern", f"[key >= {n}] -> [key < 0] by key"]
        client.sendall(frame("Request", n + 1, ["Subscribe", "client", f"s{n}", pattern]))
        assert b"Accepted" in client.recv(4_096)
    published(stack, at, MIB - 1_024, keys=200)


PLACES = (
    (suspended_identities, "siena general"),
    (partial_matches_of_patterns, "siena general"),
    (frames_that_are_not_whole, "siena general"),
    (bodies_that_are_not_whole, "siena general"),
    (outboxes_of_clients, "siena general"),
    (outboxes_of_neighbors, "flooding"),
    (logs_of_subscriptions_over_http, "siena general"),
)


@pytest.mark.parametrize(("place", "routing"), PLACES, ids=[place.__name__ for place, _ in PLACES])
def test_bytes_are_bounded_wherever_something_waits(place, routing):
    with running(routing) as at, contextlib.ExitStack() as stack:
        healthy(at)
        before = at.resident
        place(stack, at)
        until(Quiet(at), "a broker that has handled all")
        grown = at.resident - before
        assert grown < GROWTH_BYTES_MAX, f"{grown / MIB:.0f} MiB"
        until(lambda: healthy(at))


class Quiet:
    """Whether the broker has used no processor time for some polls: it has handled what has come."""

    def __init__(self, at: Running) -> None:
        self._at, self._before, self._polls = at, "", 0

    def __call__(self) -> bool:
        used = Path(f"/proc/{self._at.pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]
        self._polls = self._polls + 1 if str(used) == self._before else 0
        self._before = str(used)
        return self._polls > 60


def healthy(at: Running) -> bool:
    with socket.create_connection(("127.0.0.1", at.http_port), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return b" 200 " in connection.recv(15)
