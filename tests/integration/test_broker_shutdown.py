"""The end of a broker: what waits is read, and nothing is left behind."""

import asyncio

import pytest

from catchment import Filter, Notification
from catchment.broker import connection as connection_module
from catchment.broker import server as server_module
from catchment.broker.config import Address, Config
from catchment.broker.server import Broker
from catchment.routing.messages import Subscribe
from catchment.wire.messages import (
    Accepted,
    Delivery,
    Goodbye,
    Lost,
    Publish,
    Request,
)
from tests.integration.network import ANYWHERE, Proxy, Raw, broker, client, run, until

KILOBYTES_64 = bytes(65_536)


async def _started() -> Broker:
    """A broker that the test stops itself."""
    b = Broker(Config(listen=ANYWHERE))
    await b.start()
    return b


async def _slow(b: Broker) -> Raw:
    """A client that has subscribed and reads nothing more."""
    raw = await Raw.client(b, "slow")
    raw.say(Request(1, Subscribe("slow", "s", Filter("n >= 0"))))
    await raw.next(Accepted)
    return raw


async def _with_much_waiting(b: Broker) -> tuple[Raw, int]:
    """A client that has not read what waits for it, and how many notifications that are."""
    raw, count = await _slow(b), 0
    (outlet,) = b.connections
    async with await Raw.client(b, "p") as publisher:
        while outlet.outbox_bytes < 2_000_000:
            publisher.say(Publish(1, (Notification({"n": count}, payload=KILOBYTES_64),)))
            await publisher.next(Accepted)
            count += 1
    return raw, count


def test_shutdown_lets_what_waits_be_read():
    async def work():
        b = await _started()
        raw, count = await _with_much_waiting(b)
        stopping = asyncio.ensure_future(b.stop())
        await until(lambda: b._server is None or not b._server.is_serving())
        with pytest.raises(ConnectionError):
            await Raw.dial(b.address)
        messages = await raw.rest()
        assert sum(isinstance(message, Delivery) for message in messages) == count
        assert messages[-1] == Goodbye("broker is shutting down")
        await raw.close()
        await stopping
        await b.stopped()
        assert not b.connections

    run(work())


def test_shutdown_tells_what_was_lost(monkeypatch):
    monkeypatch.setattr(connection_module, "CLIENT_OUTBOX_BYTES_MAX", 1_000_000)

    async def work():
        b = await _started()
        raw, count = await _slow(b), 0
        async with client(b, "p") as publisher:
            while b.node.totals.lost < 3:
                await publisher.publish(Notification({"n": count}, payload=KILOBYTES_64), ack="accepted")
                count += 1
        stopping = asyncio.ensure_future(b.stop())
        messages = await raw.rest()
        assert messages[-2:] == [Lost("slow", 3), Goodbye("broker is shutting down")]
        assert sum(isinstance(message, Delivery) for message in messages) == count - 3
        await raw.close()
        await stopping

    run(work())


def test_a_second_stop_ends_at_once(monkeypatch):
    monkeypatch.setattr(server_module, "DRAIN_S_MAX", 10_000)

    async def work():
        b = await _started()
        raw, _ = await _with_much_waiting(b)
        stopping = asyncio.ensure_future(b.stop())
        await until(lambda: b._is_stopping and all(not connection.is_open for connection in b.connections))
        assert not stopping.done()
        await b.stop()
        await b.stopped()
        await stopping
        await until(lambda: not b.connections)
        await raw.__aexit__()

    run(work())


def test_shutdown_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(server_module, "DRAIN_S_MAX", 0.05)

    async def work():
        b = await _started()
        raw, _ = await _with_much_waiting(b)
        await b.stop()
        await until(lambda: not b.connections)
        await raw.__aexit__()

    run(work())


def test_shutdown_while_dialing_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(server_module, "RETRY_S_MOST", 0.01)

    async def work():
        async with broker("a") as a, Proxy(a) as proxy:
            proxy.stall()
            for _ in range(5):
                async with broker("b", (proxy.address, Address("127.0.0.1", 1))) as b:
                    await until(lambda: proxy.attempts)
                assert not b.connections or all(not connection.is_open for connection in b.connections)
                assert all(task.done() for task in b._tasks)

    run(work())
