"""Publishers and subscribers for `./dev bench broker`, each in a process of its own, for Catchment and for its peers.

Every subscriber of the stream wants `symbol = "HOT"` or the nearest that its system has; the crowd wants other symbols.

Both processes run on uvloop, whichever broker they talk to: a hundred readers in one process cost asyncio's own loop
more than a broker takes to serve them. A paced publisher sends twice in a millisecond, by a timer of the system: the
loops' own have whole milliseconds, of which two pass as often as one. What is due since then goes in one burst, stamped
when it is handed to the client. A subscriber's garbage is collected before it says that it is ready and what it holds
by then is left alone: its pauses are not the broker's. Nothing is left out: all that is delivered counts, from the
first.

A publisher that is not paced stays at most WINDOW notifications ahead of the slowest subscriber. A rate is one at which
nothing is lost; without that, the faster broker would fill a Python subscriber's queue until it drops or swells.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
import struct
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

PAYLOAD_BYTES = 200
# Notifications that are sent in one go where nothing is paced: what a busy publisher hands over at once.
AT_ONCE = 64
TICK_S = 0.0005
WINDOW = 8_192
# Brokers have heard of an advertisement by then, and told each other who wants it.
SPREAD_S = 1.0
# A subscriber tells how far it is once in so many deliveries.
TOLD_EVERY = 64
_STAMP = struct.Struct(">d")


@dataclass(frozen=True)
class Load:
    """So many notifications to `fan_out` connections, with `crowd` subscriptions of others; `rate` a second, or as
    fast as it goes. `progress` is shared by both processes: what was delivered so far."""

    count: int
    fan_out: int = 1
    crowd: int = 0
    rate: float = 0.0
    progress: Any = None
    # Whether the publisher advertises first, and waits SPREAD_S until brokers have heard of it.
    advertises: bool = False

    def is_far_ahead(self, sent: int) -> bool:
        return self.progress is not None and sent * self.fan_out - self.progress.value > WINDOW * self.fan_out


@dataclass
class Reception:
    """When the last came, how long each took, in seconds, and how many a broker dropped because they were not read in
    time, as far as it says."""

    load: Load
    last: float = 0.0
    latencies: list[float] = field(default_factory=list)
    received: int = 0
    missed: int = 0

    def got(self, payload: bytes) -> None:
        self.received += 1
        now = time.time()
        self.last = now
        self.latencies.append(now - _STAMP.unpack_from(payload)[0])
        if self.received % TOLD_EVERY == 0 and self.load.progress is not None:
            self.load.progress.value = self.received


def payload() -> bytes:
    return _STAMP.pack(time.time()) + bytes(PAYLOAD_BYTES - _STAMP.size)


class Ticks:
    """`await ticks.next()` waits for the next of the system's timer: a loop's own has whole milliseconds."""

    def __init__(self, seconds: float) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        # struct itimerspec: the interval and the first, each in seconds and nanoseconds.
        timing = (ctypes.c_long * 4)(*(0, int(seconds * 1e9)) * 2)
        if self._file < 0 or libc.timerfd_settime(self._file, 0, timing, None) != 0:
            raise OSError(ctypes.get_errno(), "no timer")
        self._ticked = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._file, self._tick)

    def _tick(self) -> None:
        os.read(self._file, 8)
        self._ticked.set()

    async def next(self) -> None:
        self._ticked.clear()
        await self._ticked.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)


async def paced(load: Load, send: Callable[[int], Any]) -> tuple[float, float]:
    """Sends all, at the rate; when it began and when the last was sent. `send` is given how many to send at once."""
    ticks = Ticks(TICK_S)
    start = time.time()
    sent = 0
    while sent < load.count:
        due = load.count if not load.rate else min(load.count, int((time.time() - start) * load.rate) + 1)
        while sent < due:
            while not load.rate and load.is_far_ahead(sent):
                await ticks.next()
            some = min(AT_ONCE, due - sent)
            await send(some)
            sent += some
        if load.rate:
            await ticks.next()
    ticks.close()
    return start, time.time()


def say_ready(ready: Any) -> None:
    gc.collect()
    gc.freeze()
    ready.set()


# --- Catchment ----------------------------------------------------------------------------------


async def catchment_receive(address: str, load: Load, ready: Any) -> Reception:
    from catchment import Filter
    from catchment.client import connect

    reception, done = Reception(load), asyncio.Event()
    expected = load.count * load.fan_out
    clients = [await connect(address, identity=f"reader-{i}") for i in range(load.fan_out)]
    wanted = Filter.of(("symbol", "=", "HOT"))
    subscriptions = [
        await client.subscribe(
            wanted, take=lambda delivered: _count(reception, delivered.notification.payload, expected, done)
        )
        for client in clients
    ]
    if load.crowd:
        crowd = await connect(address, identity="crowd")
        for start in range(0, load.crowd, 500):
            chunk = range(start, min(start + 500, load.crowd))
            filters = [Filter.of(("symbol", "=", f"S{i}"), ("price", ">", i % 97)) for i in chunk]
            await asyncio.gather(
                *(crowd.subscribe(filter, id=str(i)) for i, filter in zip(chunk, filters, strict=True))
            )
    say_ready(ready)
    while not done.is_set() and reception.received + reception.missed < expected:
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 1.0)
        reception.missed = sum(subscription.missed for subscription in subscriptions)
    return reception


def _count(reception: Reception, body: bytes, expected: int, done: asyncio.Event) -> None:
    reception.got(body)
    if reception.received >= expected:
        done.set()


async def catchment_send(address: str, load: Load) -> tuple[float, float]:
    from catchment import Notification
    from catchment.client import connect

    client = await connect(address, identity="writer")
    if load.advertises:
        for advertisement in ("symbol any, price any, volume any", "symbol any"):
            await client.advertise(advertisement)
        await asyncio.sleep(SPREAD_S)

    numbers = itertools.count()

    async def send(count: int) -> None:
        body = payload()
        # No two alike: what a broker recalls of contents that repeat would not be its work.
        some = itertools.islice(numbers, count)
        await client.publish(
            [Notification({"symbol": "HOT", "price": i * 0.01, "volume": i % 997}, payload=body) for i in some]
        )

    times = await paced(load, send)
    await client.publish(Notification({"symbol": "END"}), ack="accepted")
    return times


# --- NATS ---------------------------------------------------------------------------------------


async def nats_receive(address: str, load: Load, ready: Any) -> Reception:
    import nats

    reception, done = Reception(load), asyncio.Event()
    expected = load.count * load.fan_out

    async def take(message: Any) -> None:
        _count(reception, message.data, expected, done)

    for _ in range(load.fan_out):
        reader = await nats.connect(f"nats://{address}", pending_size=1 << 27)
        await reader.subscribe("stock.HOT", cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await reader.flush()
    if load.crowd:
        crowd = await nats.connect(f"nats://{address}")
        for i in range(load.crowd):
            await crowd.subscribe(f"stock.S{i}", cb=take)
        await crowd.flush(timeout=60)
    say_ready(ready)
    await done.wait()
    return reception


async def nats_send(address: str, load: Load) -> tuple[float, float]:
    import nats

    writer = await nats.connect(f"nats://{address}", pending_size=1 << 27)

    async def send(count: int) -> None:
        body = payload()
        for _ in range(count):
            await writer.publish("stock.HOT", body)

    times = await paced(load, send)
    # A flush may overtake what waits to be written, and who ends then loses it.
    while writer.pending_data_size:
        await asyncio.sleep(0.001)
    await writer.flush(timeout=60)
    return times


# --- Mosquitto ----------------------------------------------------------------------------------


async def mosquitto_receive(address: str, load: Load, ready: Any) -> Reception:
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    reception, done, loop = Reception(load), asyncio.Event(), asyncio.get_running_loop()
    expected = load.count * load.fan_out
    host, _, port = address.partition(":")

    def take(client: Any, data: Any, message: Any) -> None:
        reception.got(message.payload)
        if reception.received >= expected:
            loop.call_soon_threadsafe(done.set)

    for i in range(load.fan_out):
        reader = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"reader-{i}")
        reader.on_message = take
        reader.connect(host, int(port))
        _subscribed(reader, [("stock/HOT", 0)])
    if load.crowd:
        crowd = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="crowd")
        crowd.connect(host, int(port))
        crowd.loop_start()
        for start in range(0, load.crowd, 1_000):
            crowd.subscribe([(f"stock/S{i}", 0) for i in range(start, min(start + 1_000, load.crowd))])
        await asyncio.sleep(1 + load.crowd / 50_000)
    say_ready(ready)
    await done.wait()
    return reception


def _subscribed(reader: Any, topics: list[tuple[str, int]]) -> None:
    import threading

    heard = threading.Event()
    reader.on_subscribe = lambda *_: heard.set()
    reader.loop_start()
    reader.subscribe(topics)
    heard.wait(10)


async def mosquitto_send(address: str, load: Load) -> tuple[float, float]:
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    host, _, port = address.partition(":")
    writer = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="writer")
    writer.max_queued_messages_set(0)
    writer.connect(host, int(port))
    writer.loop_start()

    async def send(count: int) -> None:
        body = payload()
        for _ in range(count):
            last[0] = writer.publish("stock/HOT", body)

    last: list[Any] = [None]
    times = await paced(load, send)
    last[0].wait_for_publish(60)
    return times


# --- RabbitMQ -----------------------------------------------------------------------------------


async def rabbitmq_receive(address: str, load: Load, ready: Any) -> Reception:
    return await asyncio.to_thread(_rabbitmq_receive, address, load, ready)


def _rabbitmq(address: str) -> Any:
    import pika

    host, _, port = address.partition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))


def _rabbitmq_receive(address: str, load: Load, ready: Any) -> Reception:
    reception, expected = Reception(load), load.count * load.fan_out
    connection = _rabbitmq(address)
    channel = connection.channel()
    channel.exchange_declare("stock", "headers")
    wanted = {"x-match": "all", "symbol": "HOT"}

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        reception.got(body)
        if reception.received >= expected:
            channel.stop_consuming()

    for i in range(load.fan_out):
        channel.queue_declare(f"reader-{i}", exclusive=True)
        channel.queue_bind(f"reader-{i}", "stock", arguments=wanted)
        channel.basic_consume(f"reader-{i}", take, auto_ack=True)
    if load.crowd:
        channel.queue_declare("crowd", exclusive=True)
        for i in range(load.crowd):
            channel.queue_bind("crowd", "stock", arguments={"x-match": "all", "symbol": f"S{i}"})
    say_ready(ready)
    channel.start_consuming()
    return reception


async def rabbitmq_send(address: str, load: Load) -> tuple[float, float]:
    return await asyncio.to_thread(_rabbitmq_send, address, load)


def _rabbitmq_send(address: str, load: Load) -> tuple[float, float]:
    import pika

    connection = _rabbitmq(address)
    channel = connection.channel()
    channel.exchange_declare("stock", "headers")
    properties = pika.BasicProperties(headers={"symbol": "HOT", "price": "12.5", "volume": 300})

    async def send(count: int) -> None:
        body = payload()
        for _ in range(count):
            channel.basic_publish("stock", "", body, properties)

    times = asyncio.run(paced(load, send))
    connection.close()
    return times


RECEIVERS = {
    "Catchment": catchment_receive,
    "RabbitMQ": rabbitmq_receive,
    "NATS": nats_receive,
    "Mosquitto": mosquitto_receive,
}
SENDERS = {
    "Catchment": catchment_send,
    "RabbitMQ": rabbitmq_send,
    "NATS": nats_send,
    "Mosquitto": mosquitto_send,
}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.run(work)
    return uvloop.run(work)


def receive(peer: str, address: str, load: Load, ready: Any, answer: Any) -> None:
    reception = run(RECEIVERS[peer](address, load, ready))
    answer.put((reception.last, reception.latencies, reception.missed))


def send(peer: str, address: str, load: Load, go: Any, answer: Any) -> None:
    go.wait()
    answer.put(run(SENDERS[peer](address, load)))
