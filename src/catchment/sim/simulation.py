"""Brokers and clients on a simulated network: runs routing cores, and tells observers what happens.

The same topology, cores, requests and seed give the same run, to the last byte. Brokers only perform the actions that
their cores return, in order; clients are at their broker without delay or cost.

A broker that crashes loses its core and all that is in it, and its clients their connection; when it restarts it has
a new core, its links come up, and its clients connect again and state again what they want, as a client's library
does. A client that roams does that at another broker; it brings along what it has seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, assert_never

from catchment.errors import CatchmentError, InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value
from catchment.routing.core import RoutingCore
from catchment.routing.messages import (
    HOST,
    Action,
    Advertise,
    Cancel,
    Client,
    ClientDown,
    ClientUp,
    Deliver,
    DeliverSequence,
    Forward,
    LinkDown,
    LinkUp,
    Message,
    Missed,
    Neighbor,
    Part,
    Refuse,
    Resume,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    Suspend,
    Time,
    TimerFired,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.routing.wanted import cancels
from catchment.sim.kernel import OCCURRENCES_MAX, Kernel
from catchment.sim.network import Direction, LinkState, Payload, Quality, Traffic, arrivals
from catchment.sim.topology import Topology

MakeCore = Callable[[str], RoutingCore]

# Publication times are instants: runs begin at this one.
_BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class SimClient:
    """A client: what it wants and offers, where it is, and what it got."""

    identity: str
    home: str | None = None
    is_connected: bool = False
    is_suspended: bool = False
    wants: dict[str, Wanted] = field(default_factory=dict)
    advertisements: dict[Advertisement, None] = field(default_factory=dict)
    published: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    received: list[Deliver | DeliverSequence] = field(default_factory=list)
    missed: int = 0
    refused: list[CatchmentError] = field(default_factory=list)

    @property
    def interface(self) -> Client:
        return Client(self.identity)


class Observer(Protocol):
    """Is told of what clients do and get; for checkers and measures."""

    def published(self, simulation: Simulation, client: SimClient, notification: Notification, /) -> None: ...

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence, /) -> None: ...


class Simulation:
    """`make_core` makes the core of a broker, at first and after each crash."""

    def __init__(
        self,
        topology: Topology,
        make_core: MakeCore,
        *,
        seed: int = 1,
        quality: Quality | None = None,
        observers: Iterable[Observer] = (),
        occurrences_max: int = OCCURRENCES_MAX,
    ) -> None:
        self.topology = topology
        self.quality = quality or Quality()
        self.clients: dict[str, SimClient] = {}
        self.cores: dict[str, RoutingCore | None] = dict.fromkeys(topology.brokers)
        self.core_messages = 0
        # Notifications that came over a link and were neither delivered nor passed on.
        self.arrivals_idle = 0
        # By the time of a change (what a client asked, a fault), when the last control message that it caused arrived.
        self.converged_at: dict[Time, Time] = {}
        self._cause: Time = 0
        self._handed_over: Sequence[Routed] = ()
        self._make_core = make_core
        self._rng = random.Random(seed)
        self._observers = tuple(observers)
        self._kernel = Kernel(occurrences_max)
        self._lives: dict[str, int] = dict.fromkeys(topology.brokers, 0)
        self._timers: dict[tuple[str, str], int] = {}
        # By sender and receiver.
        self._ways: dict[str, dict[str, Direction]] = {one: {} for one in topology.brokers}
        for link in topology.links:
            state = LinkState(link.one, link.other, link.cost)
            for one, other in ((link.one, link.other), (link.other, link.one)):
                self._ways[one][other] = Direction(state, Neighbor(one), other)
        self.traffic = Traffic(way for ways in self._ways.values() for way in ways.values())
        for broker in topology.brokers:
            self.cores[broker] = make_core(broker)
        self._refresh_links(topology.brokers)

    # --- time ---

    @property
    def now(self) -> Time:
        return self._kernel.now

    @property
    def occurrences(self) -> int:
        return self._kernel.performed

    @property
    def is_quiescent(self) -> bool:
        return not len(self._kernel)

    def settle(self) -> None:
        """Runs until nothing is under way."""
        self._kernel.run()

    def advance(self, duration: Time) -> None:
        self._kernel.run(self.now + duration)

    def at(self, time: Time, work: Callable[..., None], *arguments: object) -> None:
        """Does something at a time, for scenarios."""
        self._kernel.schedule(max(time, self.now), work, *arguments)

    # --- clients ---

    def client(self, identity: str) -> SimClient:
        return self.clients.setdefault(identity, SimClient(identity))

    def connect(self, identity: str, broker: str) -> None:
        """Comes to a broker, from another if it was at one."""
        if broker not in self.cores:
            raise InputError(f"there is no broker {shown(broker)}")
        self.disconnect(identity)
        client = self.client(identity)
        client.home = broker
        self._attach(client)

    def disconnect(self, identity: str) -> None:
        client = self.client(identity)
        if client.is_connected and client.home is not None:
            client.is_connected = client.is_suspended = False
            self._cause = self.now
            self._tell(client.home, ClientDown(), client.interface)
        client.home = None

    def _attach(self, client: SimClient) -> None:
        if client.home is None or self.cores[client.home] is None:
            return
        client.is_connected = True
        self._ask(client, ClientUp(client.identity, dict(client.seen)))
        for advertisement in client.advertisements:
            self._ask(client, Advertise(client.identity, advertisement))
        for id, wanted in client.wants.items():
            self._ask(client, Subscribe(client.identity, id, wanted))

    def _ask(self, client: SimClient, message: Message) -> None:
        self._cause = self.now
        if client.is_connected and client.home is not None:
            self._tell(client.home, message, client.interface)

    def subscribe(self, identity: str, id: str, wanted: Wanted) -> None:
        client = self.client(identity)
        client.wants.setdefault(id, wanted)
        self._ask(client, Subscribe(identity, id, wanted))

    def cancel(self, identity: str, id: str) -> None:
        client = self.client(identity)
        client.wants.pop(id, None)
        self._ask(client, Cancel(identity, id))

    def unsubscribe(self, identity: str, unwanted: Filter | Pattern) -> None:
        client = self.client(identity)
        for id in [id for id, wanted in client.wants.items() if cancels(unwanted, wanted)]:
            del client.wants[id]
        self._ask(client, Unsubscribe(identity, unwanted))

    def advertise(self, identity: str, advertisement: Advertisement) -> None:
        client = self.client(identity)
        client.advertisements[advertisement] = None
        self._ask(client, Advertise(identity, advertisement))

    def unadvertise(self, identity: str, advertisement: Advertisement) -> None:
        client = self.client(identity)
        for one in [one for one in client.advertisements if advertisement.covers(one)]:
            del client.advertisements[one]
        self._ask(client, Unadvertise(identity, advertisement))

    def suspend(self, identity: str) -> None:
        client = self.client(identity)
        client.is_suspended = client.is_connected
        self._ask(client, Suspend(identity))

    def resume(self, identity: str) -> None:
        client = self.client(identity)
        client.is_suspended = False
        self._ask(client, Resume(identity))

    def publish(self, identity: str, attributes: Mapping[str, Value]) -> Notification | None:
        """The notification, stamped; None if the client is nowhere."""
        client = self.client(identity)
        if not client.is_connected or client.home is None:
            return None
        client.published += 1
        time = _BEGINNING + timedelta(microseconds=self.now)
        notification = Notification(attributes, source=identity, seq=client.published, time=time)
        for observer in self._observers:
            observer.published(self, client, notification)
        self._hand_over(client.home, (Routed(notification),), client.interface)
        return notification

    # --- faults ---

    def link(self, one: str, other: str) -> LinkState:
        try:
            return self._ways[one][other].link
        except KeyError:
            raise InputError(f"there is no link between {shown(one)} and {shown(other)}") from None

    def links_of(self, broker: str) -> tuple[LinkState, ...]:
        return tuple(way.link for way in self._ways[broker].values())

    def cut(self, one: str, other: str) -> None:
        self.link(one, other).is_cut = True
        self._refresh_links((one,))

    def heal(self, one: str, other: str) -> None:
        self.link(one, other).is_cut = False
        self._refresh_links((one,))

    def crash(self, broker: str) -> None:
        self.cores[broker] = None
        self._lives[broker] += 1
        for client in self.clients.values():
            if client.home == broker:
                client.is_connected = client.is_suspended = False
        self._refresh_links((broker,))

    def restart(self, broker: str) -> None:
        if self.cores[broker] is not None:
            return
        self.cores[broker] = self._make_core(broker)
        self._refresh_links((broker,))
        for identity in sorted(self.clients):
            if self.clients[identity].home == broker:
                self._attach(self.clients[identity])

    def _refresh_links(self, brokers: Sequence[str]) -> None:
        """Tells the ends of links that have become usable or are so no longer."""
        self._cause = self.now
        changed: list[LinkState] = []
        for one in brokers:
            for link in self.links_of(one):
                usable = not link.is_cut and self.cores[link.one] is not None and self.cores[link.other] is not None
                if usable != link.is_usable and link not in changed:
                    link.is_usable = usable
                    link.incarnation += 1
                    self._ways[link.one][link.other].last_arrival = 0
                    self._ways[link.other][link.one].last_arrival = 0
                    changed.append(link)
        for link in sorted(changed, key=lambda link: (link.one, link.other)):
            message = LinkUp(link.cost) if link.is_usable else LinkDown()
            for end in (link.one, link.other):
                if self.cores[end] is not None:
                    self._tell(end, message, Neighbor(link.end(end)))

    # --- running cores ---

    def _tell(self, broker: str, message: Message, source: Neighbor | Client) -> None:
        core = self.cores[broker]
        assert core is not None
        self.core_messages += 1
        self._perform_actions(broker, core.on_message(message, source, self.now))

    def _hand_over(self, broker: str, batch: Sequence[Routed], source: Neighbor | Client) -> None:
        core = self.cores[broker]
        assert core is not None
        self.core_messages += 1
        self._handed_over = batch
        actions = core.on_notifications(batch, source, self._kernel.now)
        if not actions and isinstance(source, Neighbor):
            self.arrivals_idle += len(batch)
        self._perform_actions(broker, actions)

    def hops_of(self, notification: Notification) -> int | None:
        """Within a delivery: how many links it has come; None if it was not delivered as it came."""
        return next((one.hops for one in self._handed_over if one.notification is notification), None)

    def _perform_actions(self, broker: str, actions: Sequence[Action]) -> None:
        # The frequent ones first.
        for action in actions:
            match action:
                case Forward():
                    self._transmit(self._ways[broker][action.interface.name], action.batch)
                case Deliver() | DeliverSequence():
                    self._deliver(broker, action)
                case Send():
                    self._transmit(self._ways[broker][action.interface.name], action.message)
                case Missed():
                    self.clients[action.identity].missed += action.count
                case SetTimer():
                    self._set_timer(broker, action)
                case Refuse():
                    self._refuse(broker, action)
                case _:
                    assert_never(action)

    def _transmit(self, way: Direction, payload: Payload) -> None:
        link = way.link
        if not link.is_usable:
            return
        times, sent = arrivals(self.quality, way, self._kernel.now, self._rng)
        way.count(payload, sent)
        for time in times:
            self._kernel.schedule(time, self._arrive, way, link.incarnation, payload, self._cause)

    def _arrive(self, way: Direction, incarnation: int, payload: Payload, cause: Time) -> None:
        self._cause = cause
        if incarnation == way.link.incarnation:
            if isinstance(payload, tuple):
                self._hand_over(way.receiver, payload, way.sender)
            else:
                if not isinstance(payload, Part):
                    self.converged_at[cause] = self.now
                self._tell(way.receiver, payload, way.sender)

    def _deliver(self, broker: str, delivery: Deliver | DeliverSequence) -> None:
        client = self.clients[delivery.identity]
        assert client.is_connected, "nobody is there to deliver to"
        assert client.home == broker, "a broker delivers to its own clients"
        for one in (delivery.notification,) if isinstance(delivery, Deliver) else delivery.notifications:
            source, seq = one.source, one.seq
            if source is not None and seq is not None and seq > client.seen.get(source, 0):
                client.seen[source] = seq
        client.received.append(delivery)
        for observer in self._observers:
            observer.delivered(self, client, delivery)

    def _set_timer(self, broker: str, timer: SetTimer) -> None:
        key = (broker, timer.name)
        self._timers[key] = self._timers.get(key, 0) + 1
        due = max(timer.at, self.now)
        life = self._lives[broker]
        self._kernel.schedule(due, self._fire, broker, timer.name, self._timers[key], life, self._cause)

    def _fire(self, broker: str, name: str, generation: int, life: int, cause: Time) -> None:
        self._cause = cause
        core = self.cores[broker]
        if core is not None and life == self._lives[broker] and generation == self._timers[broker, name]:
            self.core_messages += 1
            self._perform_actions(broker, core.on_message(TimerFired(name), HOST, self.now))

    def _refuse(self, broker: str, refusal: Refuse) -> None:
        if isinstance(refusal.source, Client):
            self.clients[refusal.source.name].refused.append(refusal.error)
        elif isinstance(refusal.source, Neighbor):
            # As the live broker does: that connection ends, and begins anew.
            self.cut(broker, refusal.source.name)
            self.heal(broker, refusal.source.name)
