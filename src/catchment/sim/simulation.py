"""Brokers and clients on a simulated network: drives nodes, and tells observers what happens.

The same topology, cores, requests and seed give the same run, to the last byte. A broker is a `Node`, as in the live
broker: the simulator only carries what nodes send, and counts it. Clients are at their broker without delay or cost.

A broker that crashes loses its node and all that is in it, and its clients lose their connection. When it restarts it
has a new core, its links come up, and its clients connect again and ask again for what they want, as a client's library
does. A client that roams does that at another broker; it brings along what it has seen.

Bytes are those of the wire. With a `language` (`wire.messages.between_brokers`) everything between brokers is encoded
and decoded: a core that says, or writes as a header, what its system does not know raises WireError. Without a
language, messages are only measured, which is quicker.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal

from catchment.errors import InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value
from catchment.node import GapTimes, Node, StoreOutlet
from catchment.routing.core import RoutingCore, Work
from catchment.routing.durable.messages import DurableRequest
from catchment.routing.messages import (
    Advertise,
    Beat,
    BrokerMessage,
    Cancel,
    ClientRequest,
    Deliver,
    DeliverSequence,
    LinkMessage,
    LinkReport,
    Neighbor,
    Resume,
    Routed,
    SetTimer,
    Subscribe,
    Suspend,
    Time,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.sim.clients import Observer, SimClient, is_cancelled
from catchment.sim.kernel import OCCURRENCES_MAX, Kernel
from catchment.sim.network import NOTIFICATIONS, Direction, LinkState, Quality, Traffic, arrivals
from catchment.sim.outlets import ToClient, ToNeighbor
from catchment.sim.topology import Topology
from catchment.wire.frames import LINK_FRAME_BYTES_MAX, Decoder, batch_frame, batch_size, frame

__all__ = ["BEGINNING", "Cause", "MakeCore", "Observer", "SimClient", "Simulation", "is_cancelled"]

MakeCore = Callable[[str], RoutingCore[Any]]
# Why something is sent: a change (what a client asked, a fault) by its time, a notification, or an idle timer.
Cause = Time | Literal["traffic", "idle"]

# Publication times are instants: runs begin at this one.
BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)


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
        language: Any = None,
        beat_us: Time | None = None,
        gap_times: GapTimes | None = None,
    ) -> None:
        """With `beat_us`, brokers tell each other in that interval until when they have everything, as live ones do."""
        self._gap_times = gap_times
        self.topology = topology
        self.quality = quality or Quality()
        self.clients: dict[str, SimClient] = {}
        self.nodes: dict[str, Node | None] = dict.fromkeys(topology.brokers)
        # Messages and batches that cores were given.
        self.core_messages = 0
        # By the time of a change, when the last control message that it caused arrived.
        self.converged_at: dict[Time, Time] = {}
        # Control messages that arrived, by what caused them: a change, traffic, or an idle timer.
        self.control_caused: Counter[str] = Counter()
        self._cause: Cause = 0
        # The batch that a core was given last: while it answers, headers are looked up here.
        self._handed_over: Sequence[Routed] = ()
        self._make_core = make_core
        self._decoder: Decoder[Any] | None = None if language is None else Decoder(language, LINK_FRAME_BYTES_MAX)
        self._rng = random.Random(seed)
        self._observers = tuple(observers)
        self._kernel = Kernel(occurrences_max)
        # By broker and name, the number of the occurrence.
        self._timers: dict[str, dict[str, int]] = {broker: {} for broker in topology.brokers}
        # What nodes that crashed had counted, less what was counted before the last reset.
        self._unwanted_before = 0
        self._work_before = Work()
        # By sender and receiver.
        self._ways: dict[str, dict[str, Direction]] = {broker: {} for broker in topology.brokers}
        for link in topology.links:
            state = LinkState(link.first, link.second, link.cost)
            for sender, receiver in ((link.first, link.second), (link.second, link.first)):
                self._ways[sender][receiver] = Direction(state, Neighbor(sender), receiver)
        self.traffic = Traffic(way for ways in self._ways.values() for way in ways.values())
        # How often brokers were started: the incarnation of the next.
        self._starts = 0
        for broker in topology.brokers:
            self._start(broker)
        if beat_us is not None:
            self._kernel.schedule(beat_us, self._beat, beat_us, is_idle=True)
        self._refresh_links(topology.brokers)

    @property
    def cores(self) -> dict[str, RoutingCore[Any] | None]:
        """By broker; None for one that is down."""
        return {broker: None if node is None else node.core for broker, node in self.nodes.items()}

    # --- time ---

    @property
    def now(self) -> Time:
        return self._kernel.now

    @property
    def occurrences(self) -> int:
        return self._kernel.performed

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing is under way, and only idle timers wait."""
        return self._kernel.is_at_rest

    def settle(self, until: Time | None = None) -> None:
        """Runs until the network is quiescent, or until a time."""
        self._kernel.settle(until)

    def advance(self, duration: Time) -> None:
        self._kernel.run(self.now + duration)

    def at(self, time: Time, work: Callable[..., None], *arguments: object, is_idle: bool = False) -> None:
        """Does something at a time, for scenarios. A run does not wait for what `is_idle`."""
        self._kernel.schedule(max(time, self.now), work, *arguments, is_idle=is_idle)

    # --- clients ---

    def client(self, identity: str) -> SimClient:
        return self.clients.setdefault(identity, SimClient(identity))

    def connect(self, identity: str, broker: str) -> None:
        """The client comes to a broker. If it is at another, it leaves that first."""
        if broker not in self.nodes:
            raise InputError(f"there is no broker {shown(broker)}")
        self.disconnect(identity)
        client = self.client(identity)
        client.home = broker
        self._attach(client)

    def disconnect(self, identity: str) -> None:
        client = self.client(identity)
        node = self.node_of(client)
        if node is not None:
            client.is_connected = client.is_suspended = client.is_behind = False
            self._change()
            node.client_down(client.interface)
        client.home = None

    def node_of(self, client: SimClient) -> Node | None:
        """The broker that a client is connected to."""
        return self.nodes[client.home] if client.is_connected and client.home is not None else None

    def _attach(self, client: SimClient) -> None:
        node = None if client.home is None else self.nodes[client.home]
        if node is None:
            return
        client.is_connected = True
        self._change()
        self.greet(node, client)
        for advertisement in client.advertisements:
            self._ask(client, Advertise(client.identity, advertisement))
        for id, wanted in client.wants.items():
            self._ask(client, Subscribe(client.identity, id, wanted))
        self.restated(client)

    def restated(self, client: SimClient) -> None:
        """A client that has connected has said again what it wants and offers."""

    def greet(self, node: Node, client: SimClient) -> None:
        """Tells a node that a client has connected."""
        node.client_up(client.interface, client.identity, dict(client.seen), ToClient(self, client))

    def _ask(self, client: SimClient, request: ClientRequest | DurableRequest) -> None:
        node = self.node_of(client)
        if node is not None:
            self._change()
            node.requested(client.interface, 1, request)

    def _change(self) -> None:
        """The core of a broker is told of a change; the messages that follow are counted as caused by it."""
        self._cause = self.now
        self.core_messages += 1

    def subscribe(self, identity: str, id: str, wanted: Wanted) -> None:
        client = self.client(identity)
        client.wants.setdefault(id, wanted)
        self._ask(client, Subscribe(identity, id, wanted))

    def cancel(self, identity: str, id: str) -> None:
        self.client(identity).wants.pop(id, None)
        self._ask(self.client(identity), Cancel(identity, id))

    def unsubscribe(self, identity: str, unwanted: Filter | Pattern) -> None:
        client = self.client(identity)
        for id in [id for id, wanted in client.wants.items() if is_cancelled(wanted, unwanted)]:
            del client.wants[id]
        self._ask(client, Unsubscribe(identity, unwanted))

    def advertise(self, identity: str, advertisement: Advertisement) -> None:
        client = self.client(identity)
        client.advertisements[advertisement] = None
        self._ask(client, Advertise(identity, advertisement))

    def unadvertise(self, identity: str, advertisement: Advertisement) -> None:
        client = self.client(identity)
        for offer in [offer for offer in client.advertisements if advertisement.covers(offer)]:
            del client.advertisements[offer]
        self._ask(client, Unadvertise(identity, advertisement))

    def suspend(self, identity: str) -> None:
        client = self.client(identity)
        client.is_suspended = client.is_connected
        self._ask(client, Suspend(identity))

    def resume(self, identity: str) -> None:
        client = self.client(identity)
        client.is_suspended = False
        self._ask(client, Resume(identity))

    def ask(self, identity: str, request: ClientRequest | DurableRequest) -> None:
        """Any request, as it is: what is asked does not count as what the client wants."""
        self._ask(self.client(identity), request)

    def fall_behind(self, identity: str) -> None:
        """The client reads nothing more: what it is due is lost, and counted by its broker."""
        client = self.client(identity)
        client.is_behind = client.is_connected

    def catch_up(self, identity: str) -> None:
        """The client reads again, and is told what it has lost."""
        client = self.client(identity)
        client.is_behind = False
        node = self.node_of(client)
        if node is not None:
            node.caught_up(client.interface)

    def publish(self, identity: str, attributes: Mapping[str, Value], payload: bytes = b"") -> Notification | None:
        """The notification, stamped; None if the client is not connected."""
        client = self.client(identity)
        node = self.node_of(client)
        if node is None:
            return None
        client.published += 1
        time = BEGINNING + timedelta(microseconds=self.now)
        notification = Notification(attributes, source=identity, seq=client.published, time=time, payload=payload)
        for observer in self._observers:
            observer.published(self, client, notification)
        self._cause = "traffic"
        self.core_messages += 1
        self._handed_over = (Routed(notification),)
        node.published(client.interface, ((1, (notification,)),))
        return notification

    # --- faults ---

    def link(self, first: str, second: str) -> LinkState:
        try:
            return self._ways[first][second].link
        except KeyError:
            raise InputError(f"there is no link between {shown(first)} and {shown(second)}") from None

    def links_of(self, broker: str) -> tuple[LinkState, ...]:
        return tuple(way.link for way in self._ways[broker].values())

    def cut(self, first: str, second: str) -> None:
        self.link(first, second).is_cut = True
        self._refresh_links((first,))

    def heal(self, first: str, second: str) -> None:
        self.link(first, second).is_cut = False
        self._refresh_links((first,))

    def crash(self, broker: str) -> None:
        node = self.nodes[broker]
        if node is not None:
            self._unwanted_before += node.totals.unwanted
            self._work_before = self._work_before + node.core.inspect().work
        self.nodes[broker] = None
        for number in self._timers[broker].values():
            self._kernel.cancel(number)
        self._timers[broker].clear()
        for client in self.clients.values():
            if client.home == broker:
                client.is_connected = client.is_suspended = client.is_behind = False
        self._refresh_links((broker,))

    def restart(self, broker: str) -> None:
        if self.nodes[broker] is not None:
            return
        self._start(broker)
        self._refresh_links((broker,))
        for identity in sorted(self.clients):
            if self.clients[identity].home == broker:
                self._attach(self.clients[identity])

    def _start(self, broker: str) -> None:
        self._starts += 1
        set_timer = partial(self._set_timer, broker)
        core, store = self.core_and_store(broker)
        self.nodes[broker] = Node(broker, core, lambda: self.now, set_timer, self._starts, self._gap_times, store)

    def core_and_store(self, broker: str) -> tuple[RoutingCore[Any], StoreOutlet | None]:
        """What the node of a broker that starts is made of."""
        return self._make_core(broker), None

    def _beat(self, interval: Time) -> None:
        for node in self._alive():
            node.beat()
        self._kernel.schedule(self.now + interval, self._beat, interval, is_idle=True)

    def _refresh_links(self, brokers: Sequence[str]) -> None:
        """Tells both ends of each link of these brokers that has become usable, or is usable no longer."""
        self._cause = self.now
        changed: list[LinkState] = []
        for broker in brokers:
            for link in self.links_of(broker):
                usable = not link.is_cut and self.nodes[link.first] is not None and self.nodes[link.second] is not None
                if usable != link.is_usable and link not in changed:
                    link.is_usable = usable
                    # Nothing that is under way arrives: it belongs to the incarnation before.
                    link.incarnation += 1
                    self._ways[link.first][link.second].last_arrival = 0
                    self._ways[link.second][link.first].last_arrival = 0
                    changed.append(link)
        # Only now, when all states are known: a node that is told may send at once over any of them.
        for link in sorted(changed, key=lambda link: (link.first, link.second)):
            for end in (link.first, link.second):
                self._tell_link(end, link)

    def _tell_link(self, broker: str, link: LinkState) -> None:
        node, other = self.nodes[broker], link.end(broker)
        if node is None:
            return
        self.core_messages += 1
        if link.is_usable:
            node.link_up(Neighbor(other), link.cost, ToNeighbor(self, self._ways[broker][other]))
        else:
            node.link_down(Neighbor(other))

    # --- carrying ---

    def carry_message(self, way: Direction, message: BrokerMessage) -> None:
        """A message of the routing system, onto a link."""
        whole = frame(message, LINK_FRAME_BYTES_MAX)
        name = type(message).__name__
        if self._decoder is not None:
            message = self._decoder.decoded(whole[4:])
        times, sent = arrivals(self.quality, way, self._kernel.now, self._rng)
        way.count(name, len(whole), sent).logical += int(message.carries_notifications)
        for time in times:
            self._kernel.schedule(time, self._message_arrives, way, way.link.incarnation, message, self._cause)

    def carry_link_message(self, way: Direction, message: LinkMessage) -> None:
        """A message of one node to another, onto a link. It is the same for all routing systems, so it is not counted
        as traffic; and it takes nothing from the generator, so that runs are what they were without it."""
        if self._decoder is not None:
            message = self._decoder.decoded(frame(message)[4:])
        # No later than anything that is sent after it, however little that is delayed.
        way.last_arrival = max(way.last_arrival, self.now + self.quality.delay_us * way.link.cost)
        # Nobody waits for what is said in a network at rest too, nor for a report that there is nothing to report.
        is_idle = isinstance(message, Beat) or (isinstance(message, LinkReport) and not message.known)
        arrives = partial(self._link_message_arrives, way, way.link.incarnation)
        self._kernel.schedule(way.last_arrival, arrives, message, is_idle=is_idle)

    def _link_message_arrives(self, way: Direction, incarnation: int, message: LinkMessage) -> None:
        node = self.nodes[way.receiver]
        if incarnation == way.link.incarnation and node is not None:
            node.link_told(way.sender, message)

    def carry_batch(self, way: Direction, batch: Sequence[Routed], is_relayed: bool) -> None:
        """Notifications, onto a link."""
        if self._decoder is None:
            size = batch_size(batch)
        else:
            whole = batch_frame(batch)
            size, batch = len(whole), self._decoder.decoded(whole[4:]).routed()
        times, sent = arrivals(self.quality, way, self._kernel.now, self._rng)
        carried = way.count(NOTIFICATIONS, size, sent)
        carried.notifications += sent * len(batch)
        carried.logical += 0 if is_relayed else len(batch)
        for time in times:
            self._kernel.schedule(time, self._batch_arrives, way, way.link.incarnation, batch, self._cause)

    def _message_arrives(self, way: Direction, incarnation: int, message: BrokerMessage, cause: Cause) -> None:
        node = self.nodes[way.receiver]
        if incarnation != way.link.incarnation or node is None:
            return
        self._cause = cause
        if isinstance(cause, int):
            self.converged_at[cause] = self.now
        if not message.carries_notifications:
            self.control_caused["change" if isinstance(cause, int) else cause] += 1
        self.core_messages += 1
        node.told(way.sender, message)

    def _batch_arrives(self, way: Direction, incarnation: int, batch: Sequence[Routed], cause: Cause) -> None:
        node = self.nodes[way.receiver]
        if incarnation != way.link.incarnation or node is None:
            return
        self._cause = "traffic"
        self.core_messages += 1
        self._handed_over = batch
        node.arrived(way.sender, batch)

    def hops_of(self, notification: Notification) -> int | None:
        """While it is being delivered: how many links it has come. None for what is not delivered as it comes: what
        waited for a suspended client, and sequences."""
        for routed in self._handed_over:
            if routed.notification is notification:
                return routed.header.hops
        return None

    def delivered(self, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        """A broker has delivered something to a client's connection."""
        identity = self.clients[delivery.identity]
        assert identity.is_connected, "nobody is there to deliver to"
        assert identity.home == client.home, "a broker delivers to its own clients"
        identity.receive(delivery)
        for observer in self._observers:
            observer.delivered(self, identity, delivery)

    def _set_timer(self, broker: str, timer: SetTimer) -> None:
        timers = self._timers[broker]
        if (before := timers.pop(timer.name, None)) is not None:
            self._kernel.cancel(before)
        cause: Cause = "idle" if timer.is_idle else self._cause
        due = max(timer.at, self.now)
        timers[timer.name] = self._kernel.schedule(due, self._fire, broker, timer.name, cause, is_idle=timer.is_idle)

    def _fire(self, broker: str, name: str, cause: Cause) -> None:
        del self._timers[broker][name]
        node = self.nodes[broker]
        assert node is not None, "a crash cancels timers"
        self._cause = cause
        self.core_messages += 1
        node.timer_fired(name)

    # --- measures ---

    @property
    def unwanted(self) -> int:
        """Notifications that a broker got from another and neither delivered nor passed on nor kept."""
        return self._unwanted_before + sum(node.totals.unwanted for node in self._alive())

    @property
    def work(self) -> Work:
        """What all cores have done."""
        work = self._work_before
        for node in self._alive():
            work += node.core.inspect().work
        return work

    def _alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node is not None]

    def reset_measures(self) -> None:
        """Measures begin anew, for example after a warm-up."""
        self.traffic.reset()
        self.core_messages = 0
        self.converged_at.clear()
        self.control_caused.clear()
        # Nodes go on counting: what they have counted so far is taken off from now on.
        self._unwanted_before -= self.unwanted
        self._work_before += -self.work
