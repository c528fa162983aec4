"""Brokers on real sockets in one loop, and what is said to them word by word.

Nothing sleeps for a while and hopes: `until` waits for a condition, and what waits for ever fails."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from catchment.broker.config import Address, Config
from catchment.broker.server import Broker
from catchment.client import connect
from catchment.wire.frames import VERSION, Decoder, frame
from catchment.wire.messages import BetweenBrokers, Goodbye, Hello, Ping, Pong, ToClient, Welcome

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


@contextlib.asynccontextmanager
async def broker(name: str = "b", neighbors: tuple[Address, ...] = (), **given: Any) -> Any:
    config = replace(Config(name=name, listen=ANYWHERE, neighbors=neighbors), **given)
    found = Broker(config)
    await found.start()
    try:
        yield found
    finally:
        stopping = asyncio.ensure_future(found.stop())
        await asyncio.sleep(0)
        await found.stop()
        await stopping


def client(at: Any, identity: str, **given: Any) -> Any:
    """Of a broker, or of whatever has its address."""
    return connect(f"catchment://{at.address}", identity=identity, **given)


class Raw:
    """The other end of a connection, that does what it is told and nothing else: it reads only when asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: Any = ToClient) -> None:
        self._reader, self._writer = reader, writer
        self._decoder: Decoder[Any] = Decoder(kinds, 32 * 1_048_576)
        self._found: list[Any] = []
        self.is_at_end = False

    @classmethod
    async def dial(cls, address: Address, kinds: Any = ToClient) -> "Raw":
        made = socket.socket()
        # Small, so that who does not read is soon noticed.
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
        found = await cls.dial(at.address)
        found.say(Hello((VERSION, VERSION), "client", identity, **given))
        await found.next(Welcome)
        return found

    @classmethod
    async def neighbor(cls, at: Any, name: str, routing: str, instance: str = "1") -> "Raw":
        found = await cls.dial(at.address, BetweenBrokers)
        found.say(Hello((VERSION, VERSION), "broker", name, routing=routing, instance=instance))
        await found.next(Welcome)
        return found

    def say(self, *messages: Any) -> None:
        for one in messages:
            self._writer.write(one if isinstance(one, bytes) else frame(one))

    async def flush(self) -> None:
        await self._writer.drain()

    async def read(self) -> list[Any]:
        """What comes next, pings answered; nothing at the end."""
        try:
            data = await self._reader.read(262_144)
        except ConnectionError:
            data = b""
        self.is_at_end = not data
        found = self._decoder.feed(data)
        if any(isinstance(one, Ping) for one in found) and not self._writer.is_closing():
            self.say(Pong())
        return [one for one in found if not isinstance(one, Ping)]

    async def next(self, kind: Any) -> Any:
        """The next of a kind; others before it are left out."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                while self._found:
                    one = self._found.pop(0)
                    if isinstance(one, kind):
                        return one
                assert not self.is_at_end, f"the connection ended before {kind}"
                self._found = await self.read()

    async def rest(self, is_enough: Callable[[list[Any]], object] = lambda found: False) -> list[Any]:
        """All that comes until that is enough, or to the end."""
        found, self._found = self._found, []
        async with asyncio.timeout(WAIT_S_MAX):
            while not self.is_at_end and not is_enough(found):
                found += await self.read()
        return found

    async def goodbye(self) -> str:
        found = await self.rest()
        assert isinstance(found[-1], Goodbye), found[-1:]
        return found[-1].reason

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
        # What was accepted in the last turn comes in the next ones, and what is aborted closes in them.
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
        for one in self._writers:
            one.transport.abort()

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
            for one in ends:
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class FakeBroker:
    """Welcomes each client that comes and hands it to the test, word by word."""

    def __init__(self, credit: int = 100, version: int = VERSION) -> None:
        self.credit = credit
        self.version = version
        self.address = ANYWHERE
        self._came: asyncio.Queue[Raw] = asyncio.Queue()
        self._all: list[Raw] = []

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        for one in self._all:
            await one.__aexit__()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from catchment.wire.messages import ToBroker

        found = Raw(reader, writer, ToBroker)
        self._all.append(found)
        await found.next(Hello)
        found.say(Welcome(self.version, "fake", credit=self.credit))
        self._came.put_nowait(found)

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
