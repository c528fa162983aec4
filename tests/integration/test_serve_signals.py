"""`catchment serve` under load is told to stop: by a signal, and by a second one."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from catchment import Filter, Notification
from catchment.broker.config import Address
from catchment.broker.server import DRAIN_S_MAX
from catchment.client import Client, ConnectionLostError
from catchment.routing.messages import Subscribe
from catchment.wire.messages import Accepted, Delivery, Goodbye, Pong, Publish, Request
from tests.integration.network import Raw, client, run, until

# What a process may take to end, beside what it waits for: an interpreter on a busy machine.
END_S_MAX = 2.0
KILOBYTES_16 = bytes(16_384)
# Seven megabytes: more than systems take, less than makes a client lose some.
BACKLOG = 430


@dataclass
class Served:
    process: asyncio.subprocess.Process
    address: Address

    def signal(self, number: signal.Signals) -> float:
        self.process.send_signal(number)
        return time.monotonic()


@contextlib.asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[Served]:
    command = ("-m", "catchment", "serve", "--listen", "127.0.0.1:0", "--json", *arguments)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=os.environ
    )
    try:
        assert process.stdout is not None
        yield Served(process, Address.parse(json.loads(await process.stdout.readline())["address"]))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _publish(publisher: Client, acknowledged: list[int]) -> None:
    """As fast as it goes, until the broker is gone."""
    with contextlib.suppress(ConnectionLostError):
        for n in range(1_000_000):
            await publisher.publish(Notification({"n": n}, payload=KILOBYTES_16), ack="accepted")
            acknowledged.append(n)


async def _read(subscription, delivered: list[int]) -> None:
    with contextlib.suppress(ConnectionLostError):
        async for one in subscription:
            assert one.missed == 0
            delivered.append(one.notification["n"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_acknowledged_before_a_signal_is_delivered(number):
    async def work():
        async with served() as found:
            publisher = await client(found, "p", reconnect=False)
            reader = await client(found, "reader", reconnect=False)
            acknowledged, delivered = list[int](), list[int]()
            subscription = await reader.subscribe("n >= 0")
            reading = asyncio.ensure_future(_read(subscription, delivered))
            publishing = asyncio.ensure_future(_publish(publisher, acknowledged))
            await until(lambda: len(acknowledged) > 500)
            began = found.signal(number)
            assert await found.process.wait() == 0
            assert time.monotonic() - began < DRAIN_S_MAX + END_S_MAX
            await asyncio.gather(publishing, reading)
            assert delivered[: len(acknowledged)] == acknowledged
            await publisher.close()
            await reader.close()

    run(work())


@contextlib.asynccontextmanager
async def slow_reader(found: Served) -> AsyncIterator[Raw]:
    """It has not read what waits for it, BACKLOG notifications, which are acknowledged to who has published them."""
    async with await Raw.client(found, "slow") as slow:
        slow.say(Request(1, Subscribe("slow", "s", Filter("n >= 0"))))
        await slow.next(Accepted)
        async with await Raw.client(found, "p") as publisher:
            for n in range(BACKLOG):
                publisher.say(Publish(1, (Notification({"n": n}, payload=KILOBYTES_16),)))
                await publisher.next(Accepted)
        yield slow


def test_a_slow_reader_gets_all_that_was_acknowledged():
    """Though it says something itself meanwhile, which the broker has no use for any more."""

    async def work():
        async with served() as found, slow_reader(found) as slow:
            began = found.signal(signal.SIGTERM)
            await _until_closed(found)
            slow.say(Pong())
            await slow.flush()
            heard = await slow.rest()
            assert [one.notification["n"] for one in heard if isinstance(one, Delivery)] == [*range(BACKLOG)]
            assert isinstance(heard[-1], Goodbye)
            await slow.close()
            assert await found.process.wait() == 0
            assert time.monotonic() - began < DRAIN_S_MAX + END_S_MAX

    run(work())


async def _until_closed(found: Served) -> None:
    """Until it takes no more connections."""
    with contextlib.suppress(ConnectionError):
        while True:
            async with await Raw.dial(found.address):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(second):
    async def work():
        async with served() as found, slow_reader(found):
            began = found.signal(signal.SIGTERM)
            await _until_closed(found)
            assert found.process.returncode is None
            again = found.signal(second)
            assert await found.process.wait() == 130
            assert time.monotonic() - again < END_S_MAX
            assert time.monotonic() - began < DRAIN_S_MAX

    run(work())


def test_a_second_signal_does_not_wait_for_a_stalled_stream_over_http():
    async def work():
        with socket.create_server(("127.0.0.1", 0)) as free:
            http = Address(*free.getsockname()[:2])
        async with served("--http", str(http)) as found, await Raw.dial(http) as stream:
            stream.say(b"GET /events?filter=n%20%3E%3D%200 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await stream._reader.readuntil(b"retry: ")
            async with client(found, "p") as publisher:
                for n in range(4 * BACKLOG):
                    await publisher.publish(Notification({"n": n}, payload=KILOBYTES_16), ack="accepted")
            found.signal(signal.SIGTERM)
            await _until_closed(found)
            assert found.process.returncode is None
            again = found.signal(signal.SIGTERM)
            assert await found.process.wait() == 130
            assert time.monotonic() - again < END_S_MAX

    run(work())


def test_a_stalled_reader_holds_up_the_end_only_for_so_long():
    async def work():
        async with served() as found, slow_reader(found):
            began = found.signal(signal.SIGTERM)
            assert await found.process.wait() == 0
            assert DRAIN_S_MAX <= time.monotonic() - began < DRAIN_S_MAX + END_S_MAX

    run(work())
