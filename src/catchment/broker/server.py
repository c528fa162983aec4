"""A broker on asyncio: it listens, connects to its neighbors, and gives a `Node` what comes.

Connections. Each has a session (`wire/session.py`), which knows what may be said when, and refuses a greeting that
cannot be accepted whoever else is there. What depends on who else is there is decided here.

Links. A neighbor is configured by its address; it says its name when it connects, or answers. When a link is lost, the
broker tries again, at first soon, then every few seconds. Two brokers that are configured as each other's neighbors
have one link: the first that both ends know. If both connect at the same time, the link stays that the broker with the
lesser name has opened. A broker that has been started again, or another broker of the same name, is recognized by its
instance. It is refused while the broker that is there answers, and takes its place if that broker does not.

Clients. Two connections cannot have one name: `rivals.py` decides which keeps it.

Shutdown. `stop` takes no more connections, lets what waits be read, and closes. A second `stop` closes at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from catchment.broker.config import Address, Config
from catchment.broker.connection import Connection
from catchment.broker.credit import CREDIT, Credits
from catchment.broker.explaining import Explaining
from catchment.broker.half_sent import HalfSent
from catchment.broker.idle import keep_prepared
from catchment.broker.outboxes import Outboxes
from catchment.broker.outlets import FramesToClient, FramesToNeighbor
from catchment.broker.rivals import Rivals
from catchment.broker.status import status_of
from catchment.broker.storing import opened_store
from catchment.broker.timers import Timers
from catchment.broker.turns import Turns
from catchment.errors import CatchmentError, shown
from catchment.node import Node
from catchment.routing.durable.messages import Taken
from catchment.routing.messages import BrokerMessage, Client, Gap, LinkMessage, Neighbor, Time, instant_of
from catchment.routing.systems import SYSTEMS
from catchment.wire.greetings import ThisBroker
from catchment.wire.messages import (
    Batch,
    Hello,
    Look,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    Unfit,
    Welcome,
    between_brokers,
)
from catchment.wire.session import TICK_S, Answered, BrokerSession, Ended, Event, Published

if TYPE_CHECKING:
    from catchment.broker.http import HttpSide

# Each takes a file descriptor and some kilobytes.
CONNECTIONS_MAX: Final = 10_000
RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0
# How long `stop` waits for others to read what waits for them.
DRAIN_S_MAX: Final = 5.0

# The reason to refuse a second link to the same broker. It is not logged: nothing is wrong.
LINKED: Final = "there is a link already"
log = logging.getLogger("catchment.broker")


class Broker:
    """`await broker.start()`, then `await broker.stopped()`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.instance = os.urandom(8).hex()
        self.address = config.listen
        self._loop = asyncio.get_running_loop()
        self._timers = Timers(self._loop, lambda: _now(), lambda name: self.node.timer_fired(name))  # noqa: PLW0108
        # The store, if this broker is a storage.
        self.storing = opened_store(config, self._loop, _now)
        opened = None if self.storing is None else self.storing.opened
        self.core = config.make_core(opened)
        self.node = Node(config.name, self.core, _now, self._timers.set, store=self.storing)
        self.node.on_gap = self._log_gap
        system = SYSTEMS[config.routing]
        # What a neighbor may say: no other system's messages, no other header.
        language = between_brokers(system.messages, system.header)
        self._this = ThisBroker(config.name, config.routing, language, self.instance)
        self._connections: dict[Connection, None] = {}
        # Those that were welcomed, one for each client and neighbor.
        self._by_who: dict[Client | Neighbor, Connection] = {}
        self._rivals = Rivals(self._loop, self._welcome_client, self._refuse_client)
        self.credits = Credits(config.name, self._loop.time)
        if self.storing is not None:
            self.storing.say = self.node.store_said
            self.storing.relieved = self.credits.store_relieved
            self.credits.is_store_behind = lambda: self.storing is not None and self.storing.is_behind
        self.explaining = Explaining(self.node)
        self.turns = Turns(self._loop.time, self._loop.call_soon)
        self.half_sent = HalfSent()
        self.outboxes = Outboxes()
        self._tasks: list[asyncio.Task[None]] = []
        # Connections that this broker has opened: the address, and what is done when the connection has closed.
        self._dialing: dict[Connection, tuple[Address, asyncio.Future[None]]] = {}
        # By address, why there was no link the last time.
        self._no_link_reasons: dict[Address, str] = {}
        self._server: asyncio.Server | None = None
        self.http: HttpSide | None = None
        self._is_stopping = False
        # Whether a second `stop` came before others had read what waited for them.
        self.is_cut_short = False
        self._stopped = asyncio.Event()
        self.started = self._loop.time()

    # --- beginning and end ---

    async def start(self) -> None:
        config = self.config
        try:
            self._server = await self._loop.create_server(self._incoming, config.listen.host, config.listen.port)
        finally:
            # It closes the store if the broker does not start.
            if self.storing is not None:
                self.storing.start(is_needed=self._server is not None)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        await self._start_http()
        self._tasks = [self._loop.create_task(self._keep_link(address)) for address in config.neighbors]
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
            for connection in list(self._connections):
                connection.abort("closed at once")
            if self.http is not None:
                self.http.abort()
            self._stopped.set()
            return
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        self.explaining.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._timers.stop()
        await self._flush_store()
        await asyncio.gather(self._drain(), self._stop_http())
        if self.storing is not None:
            await self.storing.close()
        self._stopped.set()
        log.info("stopped", extra={"broker": self.config.name})

    async def _flush_store(self) -> None:
        """What was accepted is synced and confirmed before anybody is told that the broker ends."""
        if self.storing is not None:
            for connection in self._connections:
                connection.hold("stopping")
            await self.storing.flush()

    async def _drain(self) -> None:
        reason = f"{self.config.name} is shutting down"
        self.node.part()
        for connection in list(self._connections):
            who = connection.who
            if isinstance(who, Client) and self._by_who.get(who) is connection:
                # A client that is behind still hears how many notifications it has lost.
                self.node.caught_up(who)
            connection.leave(reason)
        until = self._loop.time() + DRAIN_S_MAX
        while self._connections and self._loop.time() < until and not self._stopped.is_set():
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.abort(reason)

    async def _stop_http(self) -> None:
        if self.http is not None:
            await self.http.stop(f"{self.config.name} is shutting down")

    async def stopped(self) -> None:
        await self._stopped.wait()

    async def _watch(self) -> None:
        """Sessions ping, and end when the other side is silent. Neighbors hear until when they have everything."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self._loop.time()
            self.outboxes.count_again()
            for connection in list(self._connections):
                connection.tick(now)
            self.node.beat()

    # --- links ---

    async def _keep_link(self, address: Address) -> None:
        wait = RETRY_S_FIRST
        while True:
            closed: asyncio.Future[None] = self._loop.create_future()
            try:
                await self._dial(address, closed)
                began = self._loop.time()
                await closed
                # A link that lasted is tried again at once; a link that is refused each time, later and later.
                wait = RETRY_S_FIRST if self._loop.time() - began > RETRY_S_MOST else min(2 * wait, RETRY_S_MOST)
            except OSError as problem:
                self._log_no_link(address, problem.strerror or type(problem).__name__)
                wait = min(2 * wait, RETRY_S_MOST)
            await asyncio.sleep(wait)

    async def _dial(self, address: Address, closed: asyncio.Future[None]) -> None:
        connection = self._outgoing(address, closed)
        try:
            await self._loop.create_connection(lambda: connection, address.host, address.port)
        except BaseException:
            # It was never open, so it will not say that it has closed.
            self._connections.pop(connection, None)
            self._dialing.pop(connection, None)
            raise

    def _outgoing(self, address: Address, closed: asyncio.Future[None]) -> Connection:
        session = BrokerSession(self._this, is_dialing=True, cost=self.config.costs.get(address, 1))
        connection = self._made(session)
        self._dialing[connection] = (address, closed)
        return connection

    def _incoming(self) -> Connection:
        connection = self._made(BrokerSession(self._this))
        if len(self._connections) > CONNECTIONS_MAX:
            connection.refusal = f"CONNECTIONS_MAX is {CONNECTIONS_MAX:,}"
        elif self._is_stopping:
            connection.refusal = f"{self.config.name} is shutting down"
        return connection

    def _made(self, session: BrokerSession) -> Connection:
        connection = Connection(self, self._loop, session)
        self._connections[connection] = None
        return connection

    # --- what connections tell ---

    def heard(self, connection: Connection, event: Event) -> None:
        """The session has checked that this may come here: requests come from clients, batches from neighbors."""
        match event:
            case Published():
                self._published(connection, event.publications)
            case Batch():
                self.node.arrived(_neighbor(connection), event.routed())
            case Request():
                self.node.requested(_client(connection), event.number, event.body)
            case PublishStored():
                self._published_stored(connection, event)
            case Taken():
                self.node.taken(_client(connection), event)
            case Unfit():
                self._misasked(connection, event)
            case Look():
                self._looked(connection, event)
            case BrokerMessage():
                self.node.told(_neighbor(connection), event)
            case LinkMessage():
                self.node.link_told(_neighbor(connection), event)
            case Hello(role="client"):
                self._client_came(connection, event)
            case Hello():
                self._greeted(connection, event)
            case Welcome():
                self._welcomed(connection, event)
            case Answered():
                self._rivals.answered(connection)
            case Ended():
                if event.refused_name is not None and not connection.session.is_dialing:
                    self._log_refused(event.refused_name, event.reason)
            case _:
                raise AssertionError(f"{type(event).__name__} at a broker")

    def _greeted(self, connection: Connection, hello: Hello) -> None:
        """A broker wants to be a neighbor, and its greeting is in order."""
        if self._is_second(connection, hello.name, hello.instance):
            connection.end(LINKED)
        elif refusal := self._namesake(hello.name, hello.instance):
            self._log_refused(hello.name, refusal)
            connection.end(refusal)
        else:
            connection.welcome()
            self._link_came(connection, hello.name, hello.instance, hello.cost)

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        if self._is_second(connection, welcome.name, welcome.instance):
            connection.end(LINKED)
        elif refusal := self._namesake(welcome.name, welcome.instance):
            connection.end(refusal)
        else:
            self._no_link_reasons.pop(self._dialing[connection][0], None)
            self._link_came(connection, welcome.name, welcome.instance, welcome.cost)

    def _is_second(self, connection: Connection, name: str, instance: str) -> bool:
        """Whether there is another link to the same process, and that one is to be kept."""
        other = self._by_who.get(Neighbor(name))
        if other is None or other.instance != instance or not other.is_open:
            return False
        if other.session.is_dialing and not connection.session.is_dialing:
            # The other side has welcomed it, so both ends know that link. Replacing it would lose what is under way.
            return True
        # Both ends decide alike: they keep the link that the lesser name has opened.
        is_by_lesser = (self.config.name < name) == connection.session.is_dialing
        return not is_by_lesser

    def _namesake(self, name: str, instance: str) -> str:
        """Why a broker of this name cannot come: another process of that name is there, and answers. It may be the
        same broker, started again before anybody noticed the end of its old process. So the refusal is not final: if
        the old process does not answer, a later attempt finds that out."""
        other = self._by_who.get(Neighbor(name))
        if other is None or not other.is_open or other.instance == instance or not other.is_alive():
            return ""
        return f"{self.config.name} has a link to another broker named {shown(name)}: names are unique in a network"

    def _link_came(self, connection: Connection, name: str, instance: str, cost: int) -> None:
        neighbor = Neighbor(name)
        before = self._by_who.pop(neighbor, None)
        if before is not None:
            if before.is_open and before.instance != instance:
                # The neighbor was started again before anybody noticed that its old process is gone.
                log.warning("link replaced", extra={"broker": self.config.name, "neighbor": name})
            before.end("replaced by another connection")
            self.credits.link_relieved(before)
        connection.instance = instance
        connection.known_as(neighbor)
        self._by_who[neighbor] = connection
        self.node.link_up(neighbor, cost, FramesToNeighbor(connection))
        log.info("link up", extra={"broker": self.config.name, "neighbor": name})

    def _client_came(self, connection: Connection, hello: Hello) -> None:
        first = self._by_who.get(Client(hello.name))
        if first is not None and first.is_open:
            self._rivals.begin(first, connection, hello)
        else:
            self._welcome_client(connection, hello)

    def _welcome_client(self, connection: Connection, hello: Hello) -> None:
        client = Client(hello.name)
        if refusal := self.node.access.name_refusal(client):
            self._refuse_client(connection, hello, refusal)
            return
        node, now = self.node, self.node.now()
        # Not less than the time, so that it is above those of earlier connections that the client has forgotten.
        session = max(hello.session, now)
        storage = hello.storage or self.core.preferred_storage
        connection.welcome(CREDIT, now, node.access.numbers.last(client.name), session, storage)
        connection.known_as(client)
        outlet = FramesToClient(connection)
        node.client_up(client, hello.name, dict(hello.seen), outlet, session, hello.positions, hello.storage)
        self._by_who[client] = connection
        log.debug("client up", extra={"broker": self.config.name, "client": hello.name})

    def _refuse_client(self, connection: Connection, hello: Hello, reason: str) -> None:
        """Not finally: the name may be free later."""
        self._log_refused(hello.name, reason)
        connection.end(reason)

    def _published(self, connection: Connection, publications: Sequence[Publish]) -> None:
        # Once for each read of each client: lists are quicker than generators.
        if self.credits.is_good_for(connection, sum([len(each.notifications) for each in publications])):
            self.node.published(_client(connection), [(each.number, each.notifications) for each in publications])
            self.credits.handled(connection)

    def _published_stored(self, connection: Connection, publication: PublishStored) -> None:
        notifications = publication.notifications
        if self.credits.is_good_for(connection, len(notifications)):
            self.node.published_stored(_client(connection), publication.number, notifications, publication.after)
            self.credits.handled(connection)

    def _misasked(self, connection: Connection, unfit: Unfit) -> None:
        if self.credits.is_good_for(connection, unfit.notifications):
            self.node.misasked(_client(connection), unfit.number, unfit.error)
            self.credits.handled(connection)

    def _looked(self, connection: Connection, look: Look) -> None:
        try:
            if look.what == "explain":
                self.explaining.begin(connection, look)
            elif self.storing is None:
                connection.send(Seen(look.number, status_of(self)))
            else:
                self.storing.report_then(lambda: connection.send(Seen(look.number, status_of(self))))
        except CatchmentError as problem:
            connection.send(Refused(look.number, type(problem).__name__, str(problem)))

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

    def closed(self, connection: Connection, reason: str) -> None:
        self._connections.pop(connection, None)
        self.half_sent.gone(connection)
        self.outboxes.gone(connection)
        self.credits.gone(connection)
        address, closed = self._dialing.pop(connection, (None, None))
        if closed is not None and not closed.done():
            closed.set_result(None)
        who = connection.who
        if who is None and address is not None and reason != LINKED:
            self._log_no_link(address, reason)
        if who is not None and self._by_who.get(who) is connection:
            del self._by_who[who]
            if isinstance(who, Neighbor):
                self.node.link_down(who)
                log.info("link down", extra={"broker": self.config.name, "neighbor": who.name, "reason": reason})
            else:
                self.node.client_down(who)
                log.debug("client down", extra={"broker": self.config.name, "client": who.name, "reason": reason})
        # Last: who waited for the name of this connection is a client of its own.
        self._rivals.closed(connection)

    def _log_no_link(self, address: Address, reason: str) -> None:
        """Once for each reason: the broker tries again every few seconds."""
        if self._no_link_reasons.get(address) != reason:
            self._no_link_reasons[address] = reason
            log.warning("no link", extra={"broker": self.config.name, "address": str(address), "reason": reason})

    def _log_refused(self, name: str, reason: str) -> None:
        log.warning("refused", extra={"broker": self.config.name, "from": name, "reason": reason})

    def _log_gap(self, gap: Gap) -> None:
        """Those of our own links: others log theirs."""
        here, neighbor = gap.link
        if here == self.config.name:
            since, until = instant_of(gap.since).isoformat(), instant_of(gap.until).isoformat() if gap.until else "open"
            told = {"broker": here, "neighbor": neighbor, "since": since, "until": until, "missed": gap.missed}
            log.warning("gap", extra=told)

    # --- looking in ---

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def uptime_s(self) -> float:
        return self._loop.time() - self.started

    @property
    def timers_count(self) -> int:
        return self._timers.count

    def link_of(self, neighbor: Neighbor) -> Connection:
        """The connection to a neighbor that is there."""
        return self._by_who[neighbor]

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)


def _client(connection: Connection) -> Client:
    assert isinstance(connection.who, Client)
    return connection.who


def _neighbor(connection: Connection) -> Neighbor:
    assert isinstance(connection.who, Neighbor)
    return connection.who


def _now() -> Time:
    return time.time_ns() // 1_000
