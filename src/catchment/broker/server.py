"""A broker on asyncio: listens, connects to neighbors, and gives a `Node` what comes.

Links. A neighbor is named by its address; who connects says who it is, and both ends say which routing system they run:
two that differ cannot be one network. A link that is lost is tried again, at first soon, then every few seconds. Two
brokers that name each other have one link: the one that the lesser name has opened. A broker that has come back is told
from that by its instance.

Back-pressure. A client may publish as many notifications as it has credit for; it is given back what was handled,
unless a link is congested: then it waits until that has drained.

Shutdown. `stop` takes no more connections, lets what waits be written, and closes; a second one ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import partial
from typing import Any, Final

from catchment.broker.config import Address, Config
from catchment.broker.connection import Connection
from catchment.broker.node import Node
from catchment.broker.status import explained, status_of
from catchment.errors import CatchmentError, shown
from catchment.routing.messages import Client, Neighbor, Time
from catchment.wire import (
    VERSION,
    Batch,
    Credit,
    Hello,
    Look,
    Ping,
    Publish,
    Refused,
    Request,
    Seen,
    Welcome,
    frame,
)

# Notifications that a client may have under way: a few reads of a busy broker.
CREDIT: Final = 8_192
CONNECTIONS_MAX: Final = 10_000
PING_S: Final = 5.0
# Silence after which the other side is taken for dead: three pings.
SILENCE_S_MAX: Final = 15.0
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0
DRAIN_S_MAX: Final = 5.0

_PING: Final = frame(Ping())
log = logging.getLogger("catchment.broker")


class Broker:
    """`await broker.start()`, then `await broker.stopped()`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.instance = os.urandom(8).hex()
        self.address = config.listen
        self._loop = asyncio.get_running_loop()
        self.node = Node(config.name, config.make_core(), _now, self._set_timer)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._connections: dict[Connection, None] = {}
        self._by_who: dict[Client | Neighbor, Connection] = {}
        self._owed: dict[Connection, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._dialing: dict[Connection, tuple[Address, asyncio.Future[None]]] = {}
        self._server: asyncio.Server | None = None
        self._is_stopping = False
        self._stopped = asyncio.Event()
        self.started = self._loop.time()

    # --- beginning and end ---

    async def start(self) -> None:
        config = self.config
        self._server = await self._loop.create_server(self._incoming, config.listen.host, config.listen.port)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        self._tasks = [self._loop.create_task(self._keep_link(one)) for one in config.neighbors]
        self._tasks.append(self._loop.create_task(self._watch()))
        log.info("listening", extra={"broker": config.name, "address": str(self.address), "routing": config.routing})

    async def stop(self) -> None:
        """Lets what waits be written, then closes. Called again, it closes at once."""
        if self._is_stopping:
            for one in list(self._connections):
                one.abort()
            self._stopped.set()
            return
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for handle in self._timers.values():
            handle.cancel()
        for one in list(self._connections):
            one.end(f"{self.config.name} is shutting down")
        until = self._loop.time() + DRAIN_S_MAX
        while self._connections and self._loop.time() < until and not self._stopped.is_set():
            await asyncio.sleep(0.02)
        for one in list(self._connections):
            one.abort()
        self._stopped.set()
        log.info("stopped", extra={"broker": self.config.name})

    async def stopped(self) -> None:
        await self._stopped.wait()

    # --- timers ---

    def _set_timer(self, name: str, at: Time) -> None:
        if (before := self._timers.pop(name, None)) is not None:
            before.cancel()
        self._timers[name] = self._loop.call_later(max(0, at - _now()) / 1e6, self._fire, name)

    def _fire(self, name: str) -> None:
        del self._timers[name]
        self.node.timer_fired(name)

    async def _watch(self) -> None:
        """Pings, and closes what is silent."""
        while True:
            await asyncio.sleep(PING_S)
            for one in list(self._connections):
                if self._loop.time() - one.last_heard > SILENCE_S_MAX:
                    one.reason = f"silent for {SILENCE_S_MAX:.0f} s"
                    one.abort()
                elif one.who is not None:
                    one.put(_PING)

    # --- links ---

    async def _keep_link(self, address: Address) -> None:
        wait = RETRY_S_FIRST
        while True:
            lost: asyncio.Future[None] = self._loop.create_future()
            try:
                make = partial(self._outgoing, address, lost)
                await self._loop.create_connection(make, address.host, address.port)
                began = self._loop.time()
                await lost
                # A link that held is tried again at once; one that is refused each time, with back-off.
                wait = RETRY_S_FIRST if self._loop.time() - began > RETRY_S_MOST else min(2 * wait, RETRY_S_MOST)
            except OSError as problem:
                log.debug("cannot connect", extra={"address": str(address), "reason": str(problem)})
                wait = min(2 * wait, RETRY_S_MOST)
            await asyncio.sleep(wait)

    def _outgoing(self, address: Address, lost: asyncio.Future[None]) -> Connection:
        config = self.config
        cost = config.costs.get(address, 1)
        hello = Hello(
            (VERSION, VERSION), "broker", config.name, routing=config.routing, cost=cost, instance=self.instance
        )
        connection = self._made(Connection(self, self._loop, hello))
        self._dialing[connection] = (address, lost)
        return connection

    def _incoming(self) -> Connection:
        connection = self._made(Connection(self, self._loop))
        if len(self._connections) > CONNECTIONS_MAX:
            self._loop.call_soon(connection.end, f"CONNECTIONS_MAX is {CONNECTIONS_MAX:,}")
        return connection

    def _made(self, connection: Connection) -> Connection:
        self._connections[connection] = None
        return connection

    # --- what connections tell ---

    def greeted(self, connection: Connection, hello: Hello) -> None:
        low, high = hello.versions
        if not low <= VERSION <= high:
            connection.end(f"this broker speaks version {VERSION}, you speak {low} to {high}")
        elif hello.role == "client":
            self._client_came(connection, hello)
        elif hello.routing != self.config.routing:
            connection.end(f"{self.config.name} runs {self.config.routing}, {hello.name} runs {hello.routing}")
        elif hello.name == self.config.name:
            connection.end(f"two brokers are named {shown(hello.name)}")
        elif self._is_second(connection, hello.name, hello.instance):
            connection.end("there is a link already")
        else:
            welcome = Welcome(VERSION, self.config.name, self.config.routing, cost=hello.cost, instance=self.instance)
            connection.put(frame(welcome))
            self._link_came(connection, hello.name, hello.instance, hello.cost)

    def welcomed(self, connection: Connection, welcome: Welcome) -> None:
        if self._is_second(connection, welcome.name, welcome.instance):
            connection.end("there is a link already")
        else:
            self._link_came(connection, welcome.name, welcome.instance, welcome.cost)

    def _is_second(self, connection: Connection, name: str, instance: str) -> bool:
        """Whether another link to the same process is to be kept: the one that the lesser name has opened."""
        other = self._by_who.get(Neighbor(name))
        if other is None or other.instance != instance or not other.is_open:
            return False
        is_by_lesser = (self.config.name < name) == connection.is_outgoing
        return not is_by_lesser

    def _link_came(self, connection: Connection, name: str, instance: str, cost: int) -> None:
        neighbor = Neighbor(name)
        before = self._by_who.pop(neighbor, None)
        if before is not None:
            before.end("replaced by another connection")
        connection.instance = instance
        connection.known_as(neighbor)
        self._by_who[neighbor] = connection
        self.node.link_up(neighbor, cost, connection)
        log.info("link up", extra={"broker": self.config.name, "neighbor": name})

    def _client_came(self, connection: Connection, hello: Hello) -> None:
        if not hello.name:
            connection.end("a client has a name")
            return
        client = Client(hello.name)
        connection.put(frame(Welcome(VERSION, self.config.name, self.config.routing, credit=CREDIT)))
        connection.known_as(client)
        self.node.client_up(client, hello.name, dict(hello.seen), connection)
        self._by_who[client] = connection
        log.debug("client up", extra={"broker": self.config.name, "client": hello.name})

    def requested(self, connection: Connection, request: Request) -> None:
        assert isinstance(connection.who, Client)
        self.node.requested(connection.who, request)

    def published(self, connection: Connection, publications: list[Publish]) -> None:
        if not isinstance(connection.who, Client):
            connection.end("publication before Welcome")
            return
        self.node.published(connection.who, publications)
        self._owed[connection] = self._owed.get(connection, 0) + sum(len(one.notifications) for one in publications)
        if self._owed[connection] >= CREDIT // 4:
            self._pay(connection)

    def _pay(self, connection: Connection) -> None:
        """Gives back the credit for what was handled, unless what it led to is not on its way yet."""
        if not any(one.is_congested for who, one in self._by_who.items() if isinstance(who, Neighbor)):
            connection.put(frame(Credit(self._owed.pop(connection))))

    def drained(self, connection: Connection) -> None:
        if isinstance(connection.who, Neighbor):
            for one in [one for one, owed in self._owed.items() if owed >= CREDIT // 4]:
                self._pay(one)

    def arrived(self, connection: Connection, batch: Batch) -> None:
        if isinstance(connection.who, Neighbor):
            self.node.arrived(connection.who, batch.routed)
        else:
            connection.end("Batch before Welcome")

    def told(self, connection: Connection, message: Any) -> None:
        assert isinstance(connection.who, Neighbor)
        self.node.told(connection.who, message)

    def looked(self, connection: Connection, look: Look) -> None:
        try:
            found = status_of(self) if look.what == "status" else explained(self.node, look.notification)
        except CatchmentError as problem:
            connection.put(frame(Refused(look.number, type(problem).__name__, str(problem))))
            return
        connection.put(frame(Seen(look.number, found)))

    def closed(self, connection: Connection, reason: str) -> None:
        self._connections.pop(connection, None)
        self._owed.pop(connection, None)
        _, lost = self._dialing.pop(connection, (None, None))
        if lost is not None and not lost.done():
            lost.set_result(None)
        who = connection.who
        if who is not None and self._by_who.get(who) is connection:
            del self._by_who[who]
            if isinstance(who, Neighbor):
                self.node.link_down(who)
                log.info("link down", extra={"broker": self.config.name, "neighbor": who.name, "reason": reason})
            else:
                self.node.client_down(who)
                log.debug("client down", extra={"broker": self.config.name, "client": who.name, "reason": reason})

    # --- looking in ---

    @property
    def uptime_s(self) -> float:
        return self._loop.time() - self.started

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)


def _now() -> Time:
    return time.time_ns() // 1_000
