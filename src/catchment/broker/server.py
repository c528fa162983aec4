"""A broker on asyncio: listens, connects to neighbors, and gives a `Node` what comes.

Links. A neighbor is named by its address; who connects says who it is, and both ends say which routing system they run:
two that differ cannot be one network. A link that is lost is tried again, at first soon, then every few seconds. Two
brokers that name each other have one link: the first that both ends know; of two that are made at the same time the one
that the lesser name has opened. A broker that has come back, or another of the same name, is told from that by its
instance: it is refused while the one that is there answers, and takes its place if that does not.

Shutdown. `stop` takes no more connections, lets what waits be read, and closes; a second one ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from catchment.broker.config import Address, Config
from catchment.broker.connection import Connection
from catchment.broker.credit import CREDIT, Credits
from catchment.broker.idle import keep_prepared
from catchment.broker.outlets import FramesToClient, FramesToNeighbor
from catchment.broker.status import explained, status_of
from catchment.errors import CatchmentError, shown
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.node import Node
from catchment.routing.messages import Client, Neighbor, SetTimer, Time
from catchment.routing.systems import SYSTEMS
from catchment.wire.frames import VERSION, frame
from catchment.wire.messages import (
    Batch,
    Hello,
    Look,
    Ping,
    Publish,
    Refused,
    Request,
    Seen,
    Unfit,
    Welcome,
    between_brokers,
)

if TYPE_CHECKING:
    from catchment.broker.http import HttpSide

CONNECTIONS_MAX: Final = 10_000
PING_S: Final = 5.0
LINK_COST_MAX: Final = 1_000_000
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0
DRAIN_S_MAX: Final = 5.0

# Said of a second link to the same broker: no reason to worry.
LINKED: Final = "there is a link already"
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
        system = SYSTEMS[config.routing]
        # What a neighbor may say: no other system's messages, no other header.
        self.between_brokers = between_brokers(system.messages, system.header)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle_timers: set[str] = set()
        self._connections: dict[Connection, None] = {}
        self._by_who: dict[Client | Neighbor, Connection] = {}
        self.credits = Credits(config.name, self._loop.time)
        self._tasks: list[asyncio.Task[None]] = []
        self._dialing: dict[Connection, tuple[Address, asyncio.Future[None]]] = {}
        # Why the broker at an address was last no neighbor.
        self._refused: dict[Address, str] = {}
        self._server: asyncio.Server | None = None
        self.http: HttpSide | None = None
        self._is_stopping = False
        # Whether a second `stop` came before what waited was read.
        self.is_cut_short = False
        self._stopped = asyncio.Event()
        self.started = self._loop.time()

    # --- beginning and end ---

    async def start(self) -> None:
        config = self.config
        self._server = await self._loop.create_server(self._incoming, config.listen.host, config.listen.port)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        await self._start_http()
        self._tasks = [self._loop.create_task(self._keep_link(one)) for one in config.neighbors]
        self._tasks.append(self._loop.create_task(self._watch()))
        self._tasks.append(self._loop.create_task(keep_prepared(self.node)))
        log.info("listening", extra={"broker": config.name, "address": str(self.address), "routing": config.routing})

    async def _start_http(self) -> None:
        if self.config.http is not None:
            # Only here: a broker without HTTP needs no web stack.
            from catchment.broker.http import HttpSide

            self.http = HttpSide(self, self.config.http)
            try:
                await self.http.start()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Lets what waits be read, then closes. Called again, it closes at once."""
        if self._is_stopping:
            self.is_cut_short = self.is_cut_short or not self._stopped.is_set()
            for one in list(self._connections):
                one.abort()
            if self.http is not None:
                self.http.abort()
            self._stopped.set()
            return
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for handle in self._timers.values():
            handle.cancel()
        await asyncio.gather(self._drain(), self._stop_http())
        self._stopped.set()
        log.info("stopped", extra={"broker": self.config.name})

    async def _drain(self) -> None:
        for one in list(self._connections):
            if isinstance(one.who, Client) and self._by_who.get(one.who) is one:
                self.node.caught_up(one.who)
            one.leave(f"{self.config.name} is shutting down")
        until = self._loop.time() + DRAIN_S_MAX
        while self._connections and self._loop.time() < until and not self._stopped.is_set():
            await asyncio.sleep(0.02)
        for one in list(self._connections):
            one.abort()

    async def _stop_http(self) -> None:
        if self.http is not None:
            await self.http.stop(f"{self.config.name} is shutting down")

    async def stopped(self) -> None:
        await self._stopped.wait()

    # --- timers ---

    def _set_timer(self, timer: SetTimer) -> None:
        if self._is_stopping:
            return
        if (before := self._timers.pop(timer.name, None)) is not None:
            before.cancel()
        self._timers[timer.name] = self._loop.call_later(max(0, timer.at - _now()) / 1e6, self._fire, timer.name)
        (self._idle_timers.add if timer.is_idle else self._idle_timers.discard)(timer.name)

    def _fire(self, name: str) -> None:
        del self._timers[name]
        self._idle_timers.discard(name)
        self.node.timer_fired(name)

    async def _watch(self) -> None:
        """Pings, and closes what is silent."""
        while True:
            await asyncio.sleep(PING_S)
            for one in list(self._connections):
                if one.is_silent():
                    one.reason = "it is silent"
                    one.abort()
                elif one.who is not None:
                    one.put(_PING)

    # --- links ---

    async def _keep_link(self, address: Address) -> None:
        wait = RETRY_S_FIRST
        while True:
            lost: asyncio.Future[None] = self._loop.create_future()
            try:
                await self._dial(address, lost)
                began = self._loop.time()
                await lost
                # A link that held is tried again at once; one that is refused each time, with back-off.
                wait = RETRY_S_FIRST if self._loop.time() - began > RETRY_S_MOST else min(2 * wait, RETRY_S_MOST)
            except OSError as problem:
                self._log_refused(address, problem.strerror or type(problem).__name__)
                wait = min(2 * wait, RETRY_S_MOST)
            await asyncio.sleep(wait)

    async def _dial(self, address: Address, lost: asyncio.Future[None]) -> None:
        connection = self._outgoing(address, lost)
        try:
            await self._loop.create_connection(lambda: connection, address.host, address.port)
        except BaseException:
            # It was never open, so it will not say that it has closed.
            self._connections.pop(connection, None)
            self._dialing.pop(connection, None)
            raise

    def _outgoing(self, address: Address, lost: asyncio.Future[None]) -> Connection:
        config = self.config
        cost = config.costs.get(address, 1)
        hello = Hello(
            (VERSION, VERSION), "broker", config.name, routing=config.routing, cost=cost, instance=self.instance
        )
        connection = self._made(Connection(self, self._loop, self.between_brokers, hello))
        self._dialing[connection] = (address, lost)
        return connection

    def _incoming(self) -> Connection:
        connection = self._made(Connection(self, self._loop, self.between_brokers))
        if len(self._connections) > CONNECTIONS_MAX:
            connection.refusal = f"CONNECTIONS_MAX is {CONNECTIONS_MAX:,}"
        elif self._is_stopping:
            connection.refusal = f"{self.config.name} is shutting down"
        return connection

    def _made(self, connection: Connection) -> Connection:
        self._connections[connection] = None
        return connection

    # --- what connections tell ---

    def greeted(self, connection: Connection, hello: Hello) -> None:
        if refusal := self._refusal(hello):
            log.warning("refused", extra={"broker": self.config.name, "from": hello.name, "reason": refusal})
            connection.end(refusal, is_final=True)
        elif hello.role == "client":
            self._client_came(connection, hello)
        elif self._is_second(connection, hello.name, hello.instance):
            connection.end(LINKED)
        elif refusal := self._namesake(hello.name, hello.instance):
            log.warning("refused", extra={"broker": self.config.name, "from": hello.name, "reason": refusal})
            connection.end(refusal)
        else:
            welcome = Welcome(VERSION, self.config.name, self.config.routing, cost=hello.cost, instance=self.instance)
            connection.put(frame(welcome))
            self._link_came(connection, hello.name, hello.instance, hello.cost)

    def _refusal(self, hello: Hello) -> str:
        """Why who says this cannot be here; nothing if it can."""
        (low, high), name = hello.versions, hello.name
        if not low <= VERSION <= high:
            return f"this broker speaks version {VERSION}, you speak {low} to {high}"
        if hello.role == "broker":
            return self._link_refusal(hello)
        return "names that begin with @ are the broker's own" if name.startswith("@") else _misnamed(name)

    def _link_refusal(self, other: Hello | Welcome) -> str:
        """Why who says this is no neighbor; nothing if it is."""
        name, config = other.name, self.config
        if found := _misnamed(name) or _misnamed(other.instance or "none"):
            return found
        if other.routing != config.routing:
            return f"{config.name} runs {config.routing}, {shown(name)} runs {shown(other.routing)}"
        if name == config.name:
            return f"two brokers are named {shown(name)}"
        if not 1 <= other.cost <= LINK_COST_MAX:
            return f"a link costs 1 to {LINK_COST_MAX:,}, found {other.cost}"
        return ""

    def welcomed(self, connection: Connection, welcome: Welcome) -> None:
        if welcome.version != VERSION:
            connection.end(f"{shown(welcome.name)} speaks version {welcome.version}, {VERSION} was offered")
        elif refusal := self._link_refusal(welcome):
            connection.end(refusal)
        elif self._is_second(connection, welcome.name, welcome.instance):
            connection.end(LINKED)
        elif refusal := self._namesake(welcome.name, welcome.instance):
            connection.end(refusal)
        else:
            self._refused.pop(self._dialing[connection][0], None)
            self._link_came(connection, welcome.name, welcome.instance, welcome.cost)

    def _is_second(self, connection: Connection, name: str, instance: str) -> bool:
        """Whether another link to the same process is to be kept: the one that the lesser name has opened."""
        other = self._by_who.get(Neighbor(name))
        if other is None or other.instance != instance or not other.is_open:
            return False
        if other.is_outgoing and not connection.is_outgoing:
            # The other side has welcomed it: a link at both ends, which stays. To replace it loses what is under way.
            return True
        is_by_lesser = (self.config.name < name) == connection.is_outgoing
        return not is_by_lesser

    def _namesake(self, name: str, instance: str) -> str:
        """Why a broker of this name cannot come: another is there. It may be the same, started again before the end of
        what it was is noticed: so it is not final, and one of the next attempts finds that it does not answer."""
        other = self._by_who.get(Neighbor(name))
        if other is None or not other.is_open or other.instance == instance or not other.is_alive():
            return ""
        return f"{self.config.name} has a link to another broker named {shown(name)}: names are unique in a network"

    def _link_came(self, connection: Connection, name: str, instance: str, cost: int) -> None:
        neighbor = Neighbor(name)
        before = self._by_who.pop(neighbor, None)
        if before is not None:
            if before.is_open and before.instance != instance:
                # It has come back before its end was noticed.
                log.warning("link replaced", extra={"broker": self.config.name, "neighbor": name})
            before.end("replaced by another connection")
            self.credits.link_relieved(before)
        connection.instance = instance
        connection.known_as(neighbor)
        self._by_who[neighbor] = connection
        self.node.link_up(neighbor, cost, FramesToNeighbor(connection))
        log.info("link up", extra={"broker": self.config.name, "neighbor": name})

    def _client_came(self, connection: Connection, hello: Hello) -> None:
        client = Client(hello.name)
        connection.put(frame(Welcome(VERSION, self.config.name, self.config.routing, credit=CREDIT)))
        connection.known_as(client)
        if (before := self._by_who.get(client)) is not None:
            # Two that use one identity would take it from each other for ever.
            before.end(f"{shown(client.name)} has connected again", is_final=True)
        self.node.client_up(client, hello.name, dict(hello.seen), FramesToClient(connection))
        self._by_who[client] = connection
        log.debug("client up", extra={"broker": self.config.name, "client": hello.name})

    def requested(self, connection: Connection, request: Request) -> None:
        assert isinstance(connection.who, Client)
        self.node.requested(connection.who, request.number, request.body)

    def published(self, connection: Connection, publications: list[Publish]) -> None:
        if not isinstance(connection.who, Client):
            connection.end("publication before Welcome")
        elif self.credits.is_good_for(connection, sum(len(one.notifications) for one in publications)):
            self.node.published(connection.who, [(each.number, each.notifications) for each in publications])
            self.credits.handled(connection)

    def misasked(self, connection: Connection, unfit: Unfit) -> None:
        assert isinstance(connection.who, Client)
        if self.credits.is_good_for(connection, unfit.notifications):
            self.node.misasked(connection.who, unfit.number, unfit.error)
            self.credits.handled(connection)

    @property
    def is_congested(self) -> bool:
        """Whether a neighbor does not keep up."""
        return bool(self.credits.congested)

    def congested(self, connection: Connection) -> None:
        if isinstance(connection.who, Neighbor):
            self.credits.link_congested(connection, connection.who)

    def drained(self, connection: Connection) -> None:
        if isinstance(connection.who, Neighbor):
            self.credits.link_relieved(connection)
        elif connection.who is not None and self._by_who.get(connection.who) is connection:
            self.node.caught_up(connection.who)

    def arrived(self, connection: Connection, batch: Batch[Any]) -> None:
        if isinstance(connection.who, Neighbor):
            self.node.arrived(connection.who, batch.routed())
        else:
            connection.end("Batch before Welcome")

    def told(self, connection: Connection, message: Any) -> None:
        assert isinstance(connection.who, Neighbor)
        self.node.told(connection.who, message)

    def looked(self, connection: Connection, look: Look) -> None:
        try:
            found = status_of(self) if look.what == "status" else explained(self.node, look.notification)
            answer = frame(Seen(look.number, found))
        except CatchmentError as problem:
            answer = frame(Refused(look.number, type(problem).__name__, str(problem)))
        connection.put(answer)

    def closed(self, connection: Connection, reason: str) -> None:
        self._connections.pop(connection, None)
        self.credits.gone(connection)
        address, lost = self._dialing.pop(connection, (None, None))
        if lost is not None and not lost.done():
            lost.set_result(None)
        who = connection.who
        if who is None and address is not None and reason != LINKED:
            self._log_refused(address, reason)
        if who is not None and self._by_who.get(who) is connection:
            del self._by_who[who]
            if isinstance(who, Neighbor):
                self.node.link_down(who)
                log.info("link down", extra={"broker": self.config.name, "neighbor": who.name, "reason": reason})
            else:
                self.node.client_down(who)
                log.debug("client down", extra={"broker": self.config.name, "client": who.name, "reason": reason})

    def _log_refused(self, address: Address, reason: str) -> None:
        """Once for each reason: it is tried again every few seconds."""
        if self._refused.get(address) != reason:
            self._refused[address] = reason
            log.warning("no link", extra={"broker": self.config.name, "address": str(address), "reason": reason})

    # --- looking in ---

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def uptime_s(self) -> float:
        return self._loop.time() - self.started

    @property
    def timers_count(self) -> int:
        """Those that wait to fire, without the idle ones of a network at rest."""
        return len(self._timers) - len(self._idle_timers)

    def link_of(self, neighbor: Neighbor) -> Connection:
        """Of one that is there."""
        return self._by_who[neighbor]

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)


def _misnamed(name: str) -> str:
    if 1 <= len(name) <= IDENTITY_CODEPOINTS_MAX:
        return ""
    return f"a name has 1 to {IDENTITY_CODEPOINTS_MAX:,} characters, found {len(name):,}"


def _now() -> Time:
    return time.time_ns() // 1_000
