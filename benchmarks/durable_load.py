"""Publishers and durable subscribers for `./dev bench durable`, each in a process of its own, for Catchment and peers.

Every publication has a body of 1 KB and is confirmed: by Catchment when it is synced, by RabbitMQ (durable queue,
persistent message, publisher confirm) when it says so, by JetStream (file storage) by its setting. A publisher has at
most `under_way` publications unconfirmed. A subscriber acknowledges what it has taken: Catchment's client once in a
turn of its loop, RabbitMQ's every 64, JetStream's each, because its Python client has nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.broker_load import TICK_S, Ticks

PAYLOAD_BYTES = 1_024
_STAMP = struct.Struct(">d")
ACKED_AT_ONCE = 64


@dataclass(frozen=True)
class DurableLoad:
    """`count` publications to `fan_out` durable subscribers, at a `rate` or as fast as `under_way` lets them. `crowd`
    is how many durable filters others have. With `is_away` the subscribers read only when all is published."""

    count: int
    under_way: int = 256
    rate: float = 0.0
    fan_out: int = 1
    crowd: int = 0


@dataclass
class Received:
    """When the first and the last came, and how long each took, in seconds."""

    expected: int
    first: float = 0.0
    last: float = 0.0
    latencies: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def got(self, body: bytes) -> None:
        now = time.time()
        self.first = self.first or now
        self.last = now
        self.latencies.append(now - _STAMP.unpack_from(body)[0])
        if len(self.latencies) >= self.expected:
            self.done.set()


def body() -> bytes:
    return _STAMP.pack(time.time()) + bytes(PAYLOAD_BYTES - _STAMP.size)


async def confirmed_all(load: DurableLoad, publish: Callable[[int], Awaitable[Any]]) -> tuple[float, float]:
    """Publishes all; when it began, and when the last was confirmed. `publish` returns when its one is confirmed."""
    waiting: set[asyncio.Future[Any]] = set()
    free = asyncio.Semaphore(load.under_way)
    ticks = Ticks(TICK_S)
    start = time.time()
    for number in range(load.count):
        while load.rate and (time.time() - start) * load.rate < number:
            await ticks.next()
        await free.acquire()
        future = asyncio.ensure_future(publish(number))
        waiting.add(future)

        def confirmed(each: asyncio.Future[Any]) -> None:
            waiting.discard(each)
            free.release()
            each.result()

        future.add_done_callback(confirmed)
    await asyncio.gather(*waiting)
    ticks.close()
    return start, time.time()


def rested() -> None:
    gc.collect()
    gc.freeze()


# --- Catchment ----------------------------------------------------------------------------------


async def catchment_subscribe(address: str, load: DurableLoad) -> None:
    """Makes the durable subscriptions, and leaves."""
    from catchment import Filter
    from catchment.client import connect

    for i in range(load.fan_out):
        async with connect(address, identity=f"reader-{i}") as client:
            subscription = await client.subscribe(Filter.of(("symbol", "=", "HOT")), id="s", durable=True)
            await subscription.effective
    if load.crowd:
        async with connect(address, identity="crowd") as crowd:
            for start in range(0, load.crowd, 500):
                chunk = range(start, min(start + 500, load.crowd))
                filters = [Filter.of(("symbol", "=", f"S{i}"), ("price", ">", i % 97)) for i in chunk]
                made = await asyncio.gather(
                    *(
                        crowd.subscribe(filter, id=str(i), durable=True)
                        for i, filter in zip(chunk, filters, strict=True)
                    )
                )
                await asyncio.gather(*(subscription.effective for subscription in made))


async def catchment_receive(address: str, load: DurableLoad, received: Received, ready: Callable[[], None]) -> None:
    from catchment import Filter
    from catchment.client import connect

    clients = []
    for i in range(load.fan_out):
        client = await connect(address, identity=f"reader-{i}")
        await client.subscribe(
            Filter.of(("symbol", "=", "HOT")),
            id="s",
            durable=True,
            take=lambda delivered: received.got(delivered.notification.payload),
        )
        clients.append(client)
    ready()
    await received.done.wait()
    for client in clients:
        await client.close()


async def catchment_publish(address: str, load: DurableLoad) -> tuple[float, float]:
    from catchment import Notification
    from catchment.client import connect

    async with connect(address, identity="writer") as client:
        rested()

        async def publish(number: int) -> None:
            attributes = {"symbol": "HOT", "price": number * 0.01, "volume": number % 997}
            await client.publish(Notification(attributes, payload=body()), ack="stored")

        return await confirmed_all(load, publish)


# --- JetStream ----------------------------------------------------------------------------------


async def jetstream_subscribe(address: str, load: DurableLoad) -> None:
    import nats
    from nats.js.api import ConsumerConfig, StorageType, StreamConfig

    connection = await nats.connect(f"nats://{address}")
    js = connection.jetstream()
    await js.add_stream(StreamConfig(name="stock", subjects=["stock.*"], storage=StorageType.FILE))
    for i in range(load.fan_out):
        consumer = ConsumerConfig(
            durable_name=f"reader-{i}",
            deliver_subject=f"deliver.{i}",
            filter_subject="stock.HOT",
            max_ack_pending=4_096,
        )
        await js.add_consumer("stock", consumer)
    await connection.close()


async def jetstream_receive(address: str, load: DurableLoad, received: Received, ready: Callable[[], None]) -> None:
    import nats

    async def take(message: Any) -> None:
        received.got(message.data)
        await message.ack()

    connections = []
    for i in range(load.fan_out):
        connection = await nats.connect(f"nats://{address}", pending_size=1 << 27)
        js = connection.jetstream()
        subscription: Any = await js.subscribe_bind("stock", _consumer(i), f"reader-{i}", cb=take, manual_ack=True)
        subscription.pending_msgs_limit = subscription.pending_bytes_limit = -1
        connections.append(connection)
    ready()
    await received.done.wait()
    for connection in connections:
        await connection.close()


def _consumer(i: int) -> Any:
    from nats.js.api import ConsumerConfig

    return ConsumerConfig(durable_name=f"reader-{i}", deliver_subject=f"deliver.{i}", filter_subject="stock.HOT")


async def jetstream_publish(address: str, load: DurableLoad) -> tuple[float, float]:
    import nats

    connection = await nats.connect(f"nats://{address}", pending_size=1 << 27)
    js = connection.jetstream()
    rested()

    async def publish(number: int) -> None:
        await js.publish("stock.HOT", body(), timeout=30)

    times = await confirmed_all(load, publish)
    await connection.close()
    return times


# --- RabbitMQ -----------------------------------------------------------------------------------


async def _rabbitmq(address: str) -> Any:
    """A channel of a connection on this loop."""
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.get_running_loop()
    host, _, port = address.partition(":")
    opened: asyncio.Future[Any] = loop.create_future()
    AsyncioConnection(
        pika.ConnectionParameters(host, int(port), heartbeat=0),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened.set_result),
        on_open_error_callback=lambda _, problem: opened.set_exception(problem),
        custom_ioloop=loop,
    )
    return await opened


async def _said(ask: Callable[[Callable[[Any], None]], Any]) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return await answer


def _with_callback(ask: Callable[..., Any], /, *arguments: Any, **options: Any) -> None:
    """Asks with a callback, which comes last."""
    *others, then = arguments
    ask(*others, callback=then, **options)


async def rabbitmq_subscribe(address: str, load: DurableLoad) -> None:
    channel = await _rabbitmq(address)
    await _said(lambda then: channel.exchange_declare("stock", "headers", durable=True, callback=then))
    for i in range(load.fan_out):
        queue = f"reader-{i}"
        await _said(partial(_with_callback, channel.queue_declare, queue, durable=True))
        wanted = {"x-match": "all", "symbol": "HOT"}
        await _said(partial(_with_callback, channel.queue_bind, queue, "stock", "", arguments=wanted))
    channel.connection.close()


async def rabbitmq_receive(address: str, load: DurableLoad, received: Received, ready: Callable[[], None]) -> None:
    channels = []
    for i in range(load.fan_out):
        channel = await _rabbitmq(address)
        await _said(partial(_with_callback, channel.basic_qos, prefetch_count=256))
        unacked = [0]

        def take(channel: Any, method: Any, properties: Any, data: bytes, unacked: list[int] = unacked) -> None:
            received.got(data)
            unacked[0] += 1
            if unacked[0] >= ACKED_AT_ONCE or received.done.is_set():
                unacked[0] = 0
                channel.basic_ack(method.delivery_tag, multiple=True)

        await _said(partial(_with_callback, channel.basic_consume, f"reader-{i}", take))
        channels.append(channel)
    ready()
    await received.done.wait()
    for channel in channels:
        with suppress(Exception):
            channel.connection.close()


async def rabbitmq_publish(address: str, load: DurableLoad) -> tuple[float, float]:
    import pika

    channel = await _rabbitmq(address)
    waiting: dict[int, asyncio.Future[None]] = {}
    confirmed_upto = [0]
    loop = asyncio.get_running_loop()

    def confirmed(frame: Any) -> None:
        method = frame.method
        tags = range(confirmed_upto[0] + 1, method.delivery_tag + 1) if method.multiple else (method.delivery_tag,)
        if method.multiple:
            confirmed_upto[0] = method.delivery_tag
        for tag in tags:
            if (future := waiting.pop(tag, None)) is not None:
                future.set_result(None)

    await _said(lambda then: channel.confirm_delivery(confirmed, callback=then))
    rested()
    tags = iter(range(1, load.count + 1))

    async def publish(number: int) -> None:
        properties = pika.BasicProperties(delivery_mode=2, headers={"symbol": "HOT", "price": number})
        future = waiting[next(tags)] = loop.create_future()
        channel.basic_publish("stock", "", body(), properties)
        await future

    times = await confirmed_all(load, publish)
    channel.connection.close()
    return times


SUBSCRIBE = {"Catchment": catchment_subscribe, "JetStream": jetstream_subscribe, "RabbitMQ": rabbitmq_subscribe}
RECEIVE = {"Catchment": catchment_receive, "JetStream": jetstream_receive, "RabbitMQ": rabbitmq_receive}
PUBLISH = {"Catchment": catchment_publish, "JetStream": jetstream_publish, "RabbitMQ": rabbitmq_publish}


# --- processes ----------------------------------------------------------------------------------


def run(work: Any) -> Any:
    """On uvloop, whichever broker it talks to; pika's adapter needs asyncio's own."""
    import uvloop

    return uvloop.run(work)


def receive(peer: str, address: str, load: DurableLoad, ready: Any, results: Any) -> None:
    """A process that reads to the end."""

    async def reading() -> Received:
        received = Received(load.count * load.fan_out)

        def is_ready() -> None:
            rested()
            ready.set()

        await RECEIVE[peer](address, load, received, is_ready)
        return received

    received = (asyncio.run if peer == "RabbitMQ" else run)(reading())
    results.put((received.first, received.last, received.latencies))


def publish(peer: str, address: str, load: DurableLoad, go: Any, results: Any) -> None:
    go.wait()
    results.put((asyncio.run if peer == "RabbitMQ" else run)(PUBLISH[peer](address, load)))
