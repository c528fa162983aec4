"""`catchment serve` under load gets a signal to stop, and then a second signal."""

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
from typing import Any

import pytest

from catchment import Filter, Notification
from catchment.broker.config import Address
from catchment.broker.server import DRAIN_S_MAX
from catchment.client import Client, ConnectionLostError
from catchment.routing.messages import Subscribe
from catchment.wire.messages import Accepted, Delivery, Goodbye, Pong, Publish, Request
from tests.integration.network import Raw, client, run, until

# How long a process may take to end when it waits for nothing: a Python process on a busy machine.
END_S_MAX = 2.0
KILOBYTES_16 = bytes(16_384)
# Notifications of 16 kB, seven megabytes in all: more than the system's buffers take, less than what makes the broker
# drop some for a slow client.
BACKLOG = 430


@dataclass
class Served:
    """A broker that is a process of its own."""

    process: asyncio.subprocess.Process
    address: Address

    def signal(self, number: signal.Signals) -> float:
        """Sends a signal and returns the time when it was sent."""
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
    """Publishes as fast as possible until the broker is gone."""
    with contextlib.suppress(ConnectionLostError):
        for n in range(1_000_000):
            await publisher.publish(Notification({"n": n}, payload=KILOBYTES_16), ack="accepted")
            acknowledged.append(n)


async def _read(subscription: Any, delivered: list[int]) -> None:
    with contextlib.suppress(ConnectionLostError):
        async for delivery in subscription:
            assert delivery.missed == 0
            delivered.append(delivery.notification["n"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_acknowledged_before_a_signal_is_delivered(number: signal.Signals) -> None:
    async def work() -> None:
        async with served() as broker:
            publisher = await client(broker, "p", reconnect=False)
            reader = await client(broker, "reader", reconnect=False)
            acknowledged, delivered = list[int](), list[int]()
            subscription = await reader.subscribe("n >= 0")
            reading = asyncio.ensure_future(_read(subscription, delivered))
            publishing = asyncio.ensure_future(_publish(publisher, acknowledged))
            await until(lambda: len(acknowledged) > 500)
            began = broker.signal(number)
            assert await broker.process.wait() == 0
            assert time.monotonic() - began < DRAIN_S_MAX + END_S_MAX
            await asyncio.gather(publishing, reading)
            assert delivered[: len(acknowledged)] == acknowledged
            await publisher.close()
            await reader.close()

    run(work())


@contextlib.asynccontextmanager
async def slow_reader(broker: Served) -> AsyncIterator[Raw]:
    """A subscriber that has not read anything. BACKLOG notifications wait for it; the broker has acknowledged them to
    their publisher."""
    async with await Raw.client(broker, "slow") as slow:
        slow.say(Request(1, Subscribe("slow", "s", Filter("n >= 0"))))
        await slow.next(Accepted)
        async with await Raw.client(broker, "p") as publisher:
            for n in range(BACKLOG):
                publisher.say(Publish(1, (Notification({"n": n}, payload=KILOBYTES_16),)))
                await publisher.next(Accepted)
        yield slow


def test_a_slow_reader_gets_all_that_was_acknowledged() -> None:
    """Even if it sends something itself meanwhile, which a stopping broker ignores."""

    async def work() -> None:
        async with served() as broker, slow_reader(broker) as slow:
            began = broker.signal(signal.SIGTERM)
            await _until_closed(broker)
            slow.say(Pong())
            await slow.flush()
            messages = await slow.rest()
            deliveries = [message for message in messages if isinstance(message, Delivery)]
            assert [delivery.notification["n"] for delivery in deliveries] == [*range(BACKLOG)]
            assert isinstance(messages[-1], Goodbye)
            await slow.close()
            assert await broker.process.wait() == 0
            assert time.monotonic() - began < DRAIN_S_MAX + END_S_MAX

    run(work())


async def _until_closed(broker: Served) -> None:
    """Waits until the broker accepts no more connections."""
    with contextlib.suppress(ConnectionError):
        while True:
            async with await Raw.dial(broker.address):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_broker_at_once(second: signal.Signals) -> None:
    async def work() -> None:
        async with served() as broker, slow_reader(broker):
            began = broker.signal(signal.SIGTERM)
            await _until_closed(broker)
            assert broker.process.returncode is None
            again = broker.signal(second)
            assert await broker.process.wait() == 130
            assert time.monotonic() - again < END_S_MAX
            assert time.monotonic() - began < DRAIN_S_MAX

    run(work())


def test_a_second_signal_does_not_wait_for_a_stalled_stream_over_http() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            http = Address(*free.getsockname()[:2])
        async with served("--http", str(http)) as broker, await Raw.dial(http) as stream:
            stream.say(b"GET /events?filter=n%20%3E%3D%200 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await stream._reader.readuntil(b"retry: ")
            async with client(broker, "p") as publisher:
                for n in range(4 * BACKLOG):
                    await publisher.publish(Notification({"n": n}, payload=KILOBYTES_16), ack="accepted")
            broker.signal(signal.SIGTERM)
            await _until_closed(broker)
            assert broker.process.returncode is None
            again = broker.signal(signal.SIGTERM)
            assert await broker.process.wait() == 130
            assert time.monotonic() - again < END_S_MAX

    run(work())


def test_a_stalled_reader_delays_the_end_by_the_time_limit_at_most() -> None:
    async def work() -> None:
        async with served() as broker, slow_reader(broker):
            began = broker.signal(signal.SIGTERM)
            assert await broker.process.wait() == 0
            assert DRAIN_S_MAX <= time.monotonic() - began < DRAIN_S_MAX + END_S_MAX

    run(work())
