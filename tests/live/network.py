"""Live brokers and clients behind the methods of `Simulation`: the same scripts are played, the same checkers watch.

Brokers are processes on this machine (`hosts.py`), clients those of `catchment.client` in this process (`visits.py`).
A broker that crashes is killed (SIGKILL). Nobody can tell live brokers to cut a link: instead one of its ends is
stopped (SIGTERM), and started again when the link is healed. At any time a broker may stall (SIGSTOP) for some steps:
links here are so quick that otherwise little would ever be under way.

A network is settled when that can be shown: no timer waits but idle ones; each broker has the links and clients that
it should have, and both ends of each link are of the same two processes; at the ends of each link as many messages have
come as were sent; and all brokers, asked a second time, say the same. Then no message was under way when the second
round began (F. Mattern, Algorithms for distributed termination detection, 1987: four counters). Clients have done what
they were asked before, and hear an answer behind their last delivery after. A network that does not come to that within
SETTLE_S_MAX is a violation.

A live client cannot be made to fall behind by so few publications: those steps of a script do nothing here.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from catchment.client import Client, ConnectionLostError, connect
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value
from catchment.routing.core import Table
from catchment.routing.messages import (
    ClientRequest,
    Deliver,
    DeliverSequence,
    MapIdentity,
    Subscribe,
    Time,
    Wanted,
)
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError
from catchment.sim.conformance.gap_checker import GapChecker
from catchment.sim.conformance.sequences import SequenceChecker
from catchment.sim.network import LinkState
from catchment.sim.simulation import SimClient, is_cancelled
from catchment.sim.topology import Topology
from tests.live.hosts import Hosts
from tests.live.visits import ATTEMPT_S, Visit

# A network that takes longer to settle never will: everything is on one machine, which may be busy.
SETTLE_S_MAX = 20.0
POLL_S = 0.002
# Real links are quicker than those of the simulator.
PACE = 0.25
# At each step a broker stalls with this probability, for at most so many steps.
STALL_SHARE, STALL_STEPS_MAX = 0.15, 10
# The client that asks a broker how it is.
LOOKER = "looker"

T = TypeVar("T")
Observer = DeliveryChecker | SequenceChecker | GapChecker


@dataclass(frozen=True)
class Status:
    """What one broker says of itself, as far as it tells whether anything is under way, and what the broker holds."""

    instance: str
    # Without idle ones.
    timers: int
    # By neighbor: the instance there, messages sent, messages heard.
    links: Mapping[str, tuple[str, int, int]]
    clients: frozenset[str]
    subscriptions: int
    tables: tuple[Table, ...]
    totals: Mapping[str, int]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Status:
        links = {
            link["neighbor"]: (link["instance"], link["messages_sent"], link["messages_heard"])
            for link in said["links"]
        }
        clients = frozenset(client["name"] for client in said["clients"] if client["name"] != LOOKER)
        tables = tuple(Table(**table) for table in said["tables"])
        return cls(said["instance"], said["timers"], links, clients, said["subscriptions"], tables, said["totals"])


class LiveNetwork:
    """`configs` and `urls` are of each broker. All brokers are started at once."""

    def __init__(
        self,
        topology: Topology,
        configs: Mapping[str, Path],
        urls: Mapping[str, str],
        hosts: Hosts,
        observers: Iterable[Observer] = (),
        *,
        seed: int = 1,
        settle_s_max: float = SETTLE_S_MAX,
    ) -> None:
        self.topology = topology
        self.clients: dict[str, SimClient] = {}
        # When it was last settled, by broker that is up.
        self.statuses: dict[str, Status] = {}
        self.kills = 0
        self._configs = configs
        self._urls = urls
        self._hosts = hosts
        self._observers = tuple(observers)
        self._links = [LinkState(link.first, link.second, link.cost) for link in topology.links]
        self._processes: dict[str, int] = {}
        self._visits: dict[str, Visit] = {}
        self._lookers: dict[str, Client] = {}
        self._rng = random.Random(seed)
        self._settle_s_max = settle_s_max
        # By broker, how many steps more.
        self._stalled: dict[str, int] = {}
        self._violation: ViolationError | None = None
        self._why = ""
        self._last_time = datetime.fromtimestamp(0, UTC)
        self._loop = asyncio.new_event_loop()
        self._up = {broker: asyncio.Event() for broker in topology.brokers}
        for broker in topology.brokers:
            self._start(broker)

    # --- time ---

    @property
    def is_quiescent(self) -> bool:
        """Always: the network is left to settle first."""
        self.settle()
        return True

    def advance(self, duration: Time) -> None:
        self._stall_some()
        self._run(asyncio.sleep(duration * PACE / 1e6))

    def run_until(self, is_so: Callable[[], object]) -> None:
        """Lets clients do and get things until something is so."""

        async def waiting() -> None:
            async with asyncio.timeout(self._settle_s_max):
                while not is_so():
                    await asyncio.sleep(POLL_S)

        self._run(waiting())

    def settle(self) -> None:
        for broker in list(self._stalled):
            self._go_on(broker)
        self._run(self._settled())

    def _run(self, work: Awaitable[T]) -> T:
        result = self._loop.run_until_complete(work)
        if self._violation is not None:
            raise self._violation
        return result

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(self._settle_s_max):
                self._why = "clients are still doing what they were asked"
                await self._drained()
                self.statuses = await self._balanced()
                self._why = "clients do not get answers"
                await self._drained()
        except TimeoutError:
            raise ViolationError(f"not settled within {self._settle_s_max:.0f} s: {self._why}") from None

    async def _drained(self) -> None:
        connected = [visit for identity, visit in self._visits.items() if self.clients[identity].is_connected]
        await asyncio.gather(*(visit.drained() for visit in connected))

    async def _balanced(self) -> dict[str, Status]:
        before: dict[str, Status] = {}
        while self._violation is None:
            statuses = await self._looked()
            why = next(self._unsettled(statuses), "")
            # The same twice: between the two rounds nothing came and nothing was sent.
            if not why and statuses == before:
                return statuses
            self._why, before = why or "brokers go on talking", statuses
            await asyncio.sleep(POLL_S if why else 0)
        raise self._violation

    async def _looked(self) -> dict[str, Status]:
        brokers = list(self._processes)
        return dict(zip(brokers, await asyncio.gather(*map(self._look, brokers)), strict=True))

    async def _look(self, broker: str) -> Status:
        while True:
            self._why = f"{broker} does not answer"
            with suppress(ConnectionLostError):
                if broker not in self._lookers:
                    self._lookers[broker] = await connect(self._urls[broker], identity=LOOKER)
                return Status.of(await self._lookers[broker].look())
            await asyncio.sleep(ATTEMPT_S)

    def _unsettled(self, statuses: Mapping[str, Status]) -> Iterator[str]:
        """Why it is not settled."""
        for broker, status in statuses.items():
            if status.timers:
                yield f"{broker} waits for {status.timers} timers"
            near = {link.end(broker) for link in self.links_of(broker) if link.is_usable}
            if near != set(status.links):
                yield f"{broker} has links to {sorted(status.links)}, not to {sorted(near)}"
                continue
            for other, (instance, sent, _) in status.links.items():
                there = statuses[other].links.get(broker)
                if there is None or instance != statuses[other].instance or there[0] != status.instance:
                    yield f"{broker} and {other} are not linked as they are now"
                elif sent != there[2]:
                    yield f"{broker} has sent {sent} messages to {other}, which has had {there[2]}"
            records = self.clients.values()
            here = {record.identity for record in records if record.is_connected and record.home == broker}
            if here != status.clients:
                yield f"{broker} has clients {sorted(status.clients)}, not {sorted(here)}"

    @property
    def unwanted(self) -> int:
        return sum(status.totals["unwanted"] for status in self.statuses.values())

    # --- clients ---

    def client(self, identity: str) -> SimClient:
        return self.clients.setdefault(identity, SimClient(identity))

    def connect(self, identity: str, broker: str) -> None:
        self._run(self._moved(self.client(identity), broker))

    def disconnect(self, identity: str) -> None:
        self._run(self._moved(self.client(identity), None))

    async def _moved(self, record: SimClient, broker: str | None) -> None:
        before = self._visits.pop(record.identity, None)
        if before is not None:
            await before.leave()
        record.home, record.is_suspended = broker, False
        record.is_connected = broker in self._processes
        if broker is not None:
            self._visits[record.identity] = Visit(
                self._urls[broker], record, self._up[broker], self._delivered, self._accepted
            )

    def is_idle(self, identity: str) -> bool:
        """Whether it is at its broker and has done what it was asked."""
        return self._visits[identity].is_idle

    def _ask(self, identity: str, work: Callable[[Client], Awaitable[object]]) -> None:
        if identity in self._visits:
            self._visits[identity].ask(work)

    def subscribe(self, identity: str, id: str, wanted: Wanted) -> None:
        self.client(identity).wants.setdefault(id, wanted)
        self._ask(identity, lambda client: client.subscribe(wanted, id=id))

    def cancel(self, identity: str, id: str) -> None:
        self.client(identity).wants.pop(id, None)
        self._ask(identity, lambda client: client.cancel(id))

    def unsubscribe(self, identity: str, unwanted: Filter | Pattern) -> None:
        wants = self.client(identity).wants
        for id in [id for id, wanted in wants.items() if is_cancelled(wanted, unwanted)]:
            del wants[id]
        self._ask(identity, lambda client: client.unsubscribe(unwanted))

    def advertise(self, identity: str, advertisement: Advertisement) -> None:
        self.client(identity).advertisements[advertisement] = None
        self._ask(identity, lambda client: client.advertise(advertisement))

    def unadvertise(self, identity: str, advertisement: Advertisement) -> None:
        offers = self.client(identity).advertisements
        for offer in [offer for offer in offers if advertisement.covers(offer)]:
            del offers[offer]
        self._ask(identity, lambda client: client.unadvertise(advertisement))

    def suspend(self, identity: str) -> None:
        record = self.client(identity)
        record.is_suspended = record.is_connected
        if record.is_connected:
            self._ask(identity, lambda client: client.suspend())

    def resume(self, identity: str) -> None:
        self.client(identity).is_suspended = False
        self._ask(identity, lambda client: client.resume())

    def fall_behind(self, identity: str) -> None:
        """Nothing: it would take as much as a connection holds."""

    def catch_up(self, identity: str) -> None:
        """Nothing: the client has not fallen behind."""

    def ask(self, identity: str, request: ClientRequest) -> None:
        """A request as it is: what is asked does not count as what the client wants."""
        match request:
            case Subscribe():
                self._ask(identity, lambda client: client.subscribe(request.wanted, id=request.id))
            case MapIdentity():
                self._ask(identity, lambda client: client.map_identity(request.identity, request.handler))
            case _:
                raise NotImplementedError(f"no script asks for {request!r}")

    def publish(self, identity: str, attributes: Mapping[str, Value]) -> Notification | None:
        record = self.client(identity)
        if not record.is_connected:
            return None
        record.published += 1
        self._last_time = max(datetime.now(UTC), self._last_time + timedelta(microseconds=1))
        notification = Notification(attributes, source=identity, seq=record.published, time=self._last_time)
        for observer in self._observers:
            observer.published(self, record, notification)
        self._visits[identity].publish(notification, is_acknowledged=record.published % 2 == 0)
        return notification

    def _delivered(self, record: SimClient, delivery: Deliver | DeliverSequence) -> None:
        record.received.append(delivery)
        try:
            for observer in self._observers:
                observer.delivered(self, record, delivery)
        except ViolationError as problem:
            self._violation = self._violation or problem

    def _accepted(self, notification: Notification) -> None:
        for observer in self._observers:
            if isinstance(observer, GapChecker):
                observer.accepted(notification)

    # --- faults ---

    def links_of(self, broker: str) -> Sequence[LinkState]:
        return [link for link in self._links if broker in (link.first, link.second)]

    def cut(self, first: str, second: str) -> None:
        self._end(second, signal.SIGTERM)

    def heal(self, first: str, second: str) -> None:
        self.restart(second)

    def crash(self, broker: str) -> None:
        self._end(broker, signal.SIGKILL)

    def restart(self, broker: str) -> None:
        if broker not in self._processes:
            self._start(broker)

    def _start(self, broker: str) -> None:
        self._processes[broker] = self._hosts.start(self._configs[broker])
        self._up[broker].set()
        self._changed(broker)

    def _stall_some(self) -> None:
        for broker, steps in list(self._stalled.items()):
            self._stalled[broker] = steps - 1
            if not steps:
                self._go_on(broker)
        broker = self._rng.choice(self.topology.brokers)
        if self._rng.random() < STALL_SHARE and broker in self._processes and broker not in self._stalled:
            self.stall(broker, self._rng.randrange(STALL_STEPS_MAX))

    def stall(self, broker: str, steps: int) -> None:
        """The broker does nothing for so many steps, or until the network is to settle."""
        self._stalled[broker] = steps
        os.kill(self._processes[broker], signal.SIGSTOP)

    def _go_on(self, broker: str) -> None:
        if self._stalled.pop(broker, None) is not None:
            os.kill(self._processes[broker], signal.SIGCONT)

    def _end(self, broker: str, how: signal.Signals) -> None:
        if how != signal.SIGKILL:
            self._go_on(broker)
        self._stalled.pop(broker, None)
        process = self._processes.pop(broker, None)
        if process is None:
            return
        self.kills += how == signal.SIGKILL
        # Clients go on meanwhile: a broker that is stopped waits for them to read what it has said.
        ended = self._run(self._loop.run_in_executor(None, self._hosts.end, process, how))
        if ended != (-how if how == signal.SIGKILL else 0):
            raise ViolationError(f"{broker} ended with {ended} after {how.name}: see {self._configs[broker]}.log")
        self._up[broker].clear()
        self._changed(broker)
        if (looker := self._lookers.pop(broker, None)) is not None:
            self._loop.run_until_complete(looker.close())

    def _changed(self, broker: str) -> None:
        """A broker has come or gone: its links and its clients with it."""
        for link in self.links_of(broker):
            link.is_usable = link.first in self._processes and link.second in self._processes
        for record in self.clients.values():
            if record.home == broker:
                record.is_connected = broker in self._processes

    # --- the end ---

    def close(self) -> None:
        """Ends everything, once."""
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(self._closed())
        self._loop.close()
        for process in self._processes.values():
            self._hosts.end(process, signal.SIGKILL)
        self._processes.clear()

    def problems(self) -> Iterator[str]:
        """Tracebacks that brokers have written to their logs."""
        for broker, config in self._configs.items():
            log = Path(f"{config}.log").read_text("utf-8")
            if "Traceback" in log:
                yield f"{broker} has written of a problem:\n{log[log.index('Traceback') :]}"

    async def _closed(self) -> None:
        await asyncio.gather(*(visit.leave() for visit in self._visits.values()))
        await asyncio.gather(*(looker.close() for looker in self._lookers.values()))
        # Transports say that they are closed in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)
