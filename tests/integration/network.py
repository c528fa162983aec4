"""Brokers on real sockets in one loop, and what is said to them word by word.

Nothing sleeps for a while and hopes: `until` waits for a condition, and what waits for ever fails."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from catchment import Notification
from catchment.broker.config import Address, Config
from catchment.broker.server import Broker
from catchment.client import connect
from catchment.routing.systems import DEFAULT_SYSTEM
from catchment.wire.frames import VERSION, Decoder, frame
from catchment.wire.messages import Batch, Goodbye, Hello, Ping, Pong, Welcome
from tests.said import TO_BROKER, TO_CLIENT, to_neighbor

ANYWHERE = Address("127.0.0.1", 0)
# A test that takes so long waits for what does not come, also on a busy machine.
TEST_S_MAX = 100.0
WAIT_S_MAX = 30.0


def run(work: Awaitable[Any]) -> Any:
    """Runs a test to its end; what it leaves behind is ended too."""

    async def bounded() -> Any:
        async with asyncio.timeout(TEST_S_MAX):
            return await work

    return asyncio.run(bounded())


async def until(is_so: Callable[[], object], what: str = "") -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not is_so():
            await asyncio.sleep(0.005)


async def until_heard(publisher: Any, subscription: Any) -> None:
    """Publishes probes until one is delivered: the way is open, and what was under way before has come."""
    heard = False
    async with asyncio.timeout(WAIT_S_MAX):
        while not heard:
            await publisher.publish({"probe": True}, ack="accepted")
            await asyncio.sleep(0.01)
            while subscription._waiting:
                heard = "probe" in (await subscription.get()).notification or heard


def notifications_in(messages: list[Any]) -> list[Notification]:
    """What the batches among the messages carry."""
    return [routed.notification for batch in messages if isinstance(batch, Batch) for routed in batch.routed()]


@contextlib.asynccontextmanager
async def broker(name: str = "b", neighbors: tuple[Address, ...] = (), **given: Any) -> Any:
    config = replace(Config(name=name, listen=ANYWHERE, neighbors=neighbors), **given)
    running = Broker(config)
    await running.start()
    try:
        yield running
    finally:
        stopping = asyncio.ensure_future(running.stop())
        await asyncio.sleep(0)
        await running.stop()
        await stopping


def client(at: Any, identity: str, **given: Any) -> Any:
    """A client of a broker, or of whatever has an address."""
    return connect(f"catchment://{at.address}", identity=identity, **given)


class Raw:
    """The other end of a connection, which does only what the test tells it: it reads only when asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: Any = TO_CLIENT) -> None:
        self._reader, self._writer = reader, writer
        self._decoder: Decoder[Any] = Decoder(kinds, 32 * 1_048_576)
        self._unread: list[Any] = []
        self.is_at_end = False

    @classmethod
    async def dial(cls, address: Address, kinds: Any = TO_CLIENT) -> "Raw":
        made = socket.socket()
        # Small, so that the broker soon notices an end that does not read.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address.host, address.port))
        except OSError:
            made.close()
            raise
        return cls(*await asyncio.open_connection(sock=made, limit=16_384), kinds)

    @classmethod
    async def client(cls, at: Any, identity: str, **given: Any) -> "Raw":
        raw = await cls.dial(at.address)
        raw.say(Hello((VERSION, VERSION), "client", identity, **given))
        await raw.next(Welcome)
        return raw

    @classmethod
    async def neighbor(cls, at: Any, name: str, routing: str, instance: str = "1") -> "Raw":
        raw = await cls.hailing(at, name, routing, instance)
        await raw.next(Welcome)
        return raw

    @classmethod
    async def hailing(cls, at: Any, name: str, routing: str = DEFAULT_SYSTEM, instance: str = "1") -> "Raw":
        """A broker that has said Hello, and has not read the answer."""
        raw = await cls.dial(at.address, to_neighbor(routing))
        raw.say(Hello((VERSION, VERSION), "broker", name, routing=routing, instance=instance))
        return raw

    def say(self, *messages: Any) -> None:
        """Messages, or frames as they are."""
        for message in messages:
            self._writer.write(message if isinstance(message, bytes) else frame(message))

    async def flush(self) -> None:
        await self._writer.drain()

    async def read(self) -> list[Any]:
        """The messages that come next; nothing at the end. Pings are answered and left out."""
        try:
            data = await self._reader.read(262_144)
        except ConnectionError:
            data = b""
        self.is_at_end = not data
        messages = self._decoder.feed(data)
        if any(isinstance(message, Ping) for message in messages) and not self._writer.is_closing():
            self.say(Pong())
        return [message for message in messages if not isinstance(message, Ping)]

    async def next(self, kind: Any) -> Any:
        """The next message of a kind; others before it are left out."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                while self._unread:
                    message = self._unread.pop(0)
                    if isinstance(message, kind):
                        return message
                assert not self.is_at_end, f"the connection ended before {kind}"
                self._unread = await self.read()

    async def rest(self, is_enough: Callable[[list[Any]], object] = lambda messages: False) -> list[Any]:
        """All messages that come until they are enough, or to the end."""
        messages, self._unread = self._unread, []
        async with asyncio.timeout(WAIT_S_MAX):
            while not self.is_at_end and not is_enough(messages):
                messages += await self.read()
        return messages

    async def goodbye(self) -> str:
        """The reason that is given at the end."""
        messages = await self.rest()
        assert isinstance(messages[-1], Goodbye), messages[-1:]
        return messages[-1].reason

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> "Raw":
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Proxy:
    """A wire that can be cut, or carry nothing for a while."""

    def __init__(self, target: Any) -> None:
        self.target = target.address
        self.address = ANYWHERE
        self.attempts: list[float] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=65_536)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        self._is_refusing = True
        # Connections that were accepted in the last turn of the loop begin in the next ones, and close in them.
        for _ in range(5):
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def stall(self) -> None:
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def refuse(self, is_refusing: bool = True) -> None:
        self._is_refusing = is_refusing
        if is_refusing:
            self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also if it is cancelled before it begins.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        ends = {writer}
        try:
            if not self._is_refusing:
                inner, outer = await asyncio.open_connection(self.target.host, self.target.port, limit=65_536)
                ends.add(outer)
                self._writers |= ends
                await asyncio.gather(self._pump(reader, outer), self._pump(inner, writer))
        except OSError:
            pass
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class FakeBroker:
    """Welcomes each client that comes, and hands the connection to the test, which then speaks for the broker."""

    def __init__(self, credit: int = 100, version: int = VERSION) -> None:
        self.credit = credit
        self.version = version
        # What it says instead of a Welcome.
        self.refusal: Goodbye | None = None
        self.address = ANYWHERE
        self._came: asyncio.Queue[Raw] = asyncio.Queue()
        self._all: list[Raw] = []

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        for raw in self._all:
            await raw.__aexit__()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = Raw(reader, writer, TO_BROKER)
        self._all.append(raw)
        await raw.next(Hello)
        raw.say(self.refusal or Welcome(self.version, "fake", credit=self.credit))
        self._came.put_nowait(raw)

    async def next(self) -> Raw:
        async with asyncio.timeout(WAIT_S_MAX):
            return await self._came.get()


@dataclass(frozen=True)
class Pair:
    """Brokers `a` and `b` with a proxy between them; what is published at `a` is heard by a reader at `b`."""

    a: Broker
    b: Broker
    proxy: Proxy
    publisher: Any
    subscription: Any


@contextlib.asynccontextmanager
async def pair() -> Any:
    async with (
        broker("a") as a,
        Proxy(a) as proxy,
        broker("b", (proxy.address,)) as b,
        client(a, "p") as publisher,
        client(b, "reader") as reader,
    ):
        subscription = await reader.subscribe("n >= 0 or probe = true")
        await until_heard(publisher, subscription)
        yield Pair(a, b, proxy, publisher, subscription)
