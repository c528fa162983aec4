"""A simulation with durable delivery: every core in a `DurableCore`, some brokers with a store, clients with positions.

A client of this simulation does what a client's library does:

- It remembers what its application has taken of each log (`positions`), and says so when it connects.
- It keeps what it publishes to be stored until that is confirmed (`unkept`), and publishes it again when it has
  connected, when it was refused, and after a while.
- It remembers which storage its publications go to (`home`), and says so when it connects, unless all have settled.
- It takes each delivery a little later than it comes (`take_us`), and then acknowledges it. What it has not taken when
  its connection ends, it never had.

A client may lose its memory (`forget`): positions and unkept publications are gone, its numbers are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct

from catchment.errors import BadNumberError
from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.node import Node, StoreOutlet
from catchment.routing.core import RoutingCore
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import (
    CancelDurable,
    Confirm,
    Forget,
    Join,
    Leave,
    Rewind,
    SubscribeDurable,
    TakeEffect,
    Taken,
    TellLostLog,
    session_after,
)
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.messages import Deliver, DeliverSequence, Refuse, Time, Wanted
from catchment.sim.network import MILLISECOND
from catchment.sim.outlets import ToClient
from catchment.sim.simulation import BEGINNING, MakeCore, SimClient, Simulation
from catchment.sim.stores import DiskTimes, SimStore
from catchment.sim.topology import Topology
from catchment.store.interface import Retention

# Links of a simulation take milliseconds: so do its retries.
SETTINGS: Final = DurableSettings(
    retry_us=100 * MILLISECOND, retry_us_max=800 * MILLISECOND, acknowledge_us=MILLISECOND
)
# When a client publishes again what was refused.
AGAIN_US: Final = 50 * MILLISECOND


class Durability(Struct, frozen=True):
    """How a simulated network is durable. `storages` are the brokers that have a store; all, if it is None."""

    storages: tuple[str, ...] | None = None
    settings: DurableSettings = SETTINGS
    by_broker: Mapping[str, DurableSettings] = {}
    disk: DiskTimes = DiskTimes()
    retention: Retention | None = None
    take_us: Time = MILLISECOND


class Got(Struct, frozen=True):
    """A delivery that an application has taken, and where it stands. `identity` is its own, or a group."""

    identity: str
    log: str
    epoch: int
    notification: Notification
    subscriptions: tuple[str, ...]
    lost: int


@dataclass(slots=True)
class DurableClient:
    """What a client remembers of durable delivery, and what its application has taken."""

    identity: str
    wants: dict[str, Wanted] = field(default_factory=dict)
    # By subscription id: the storages that did not know of its last change when it took effect.
    effective: dict[str, tuple[str, ...]] = field(default_factory=dict)
    session: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    taken: list[Got] = field(default_factory=list)
    # Deliveries that the application has not taken yet, of this connection.
    waiting: list[Deliver] = field(default_factory=list)
    # Whether the application takes what comes.
    is_taking: bool = True
    unkept: list[Notification] = field(default_factory=list)
    # Where its publications go; the last number that is kept there, None if nothing is; whether all that was published
    # there is kept, and was taken by everybody.
    home: str = ""
    kept: int | None = None
    is_settled: bool = True
    confirms: list[Confirm] = field(default_factory=list)
    lost_logs: list[TellLostLog] = field(default_factory=list)
    # Connections so far: what was scheduled for an earlier one does not happen.
    connections: int = 0
    # How far its clock is ahead.
    clock_us: Time = 0
    is_resending: bool = False
    groups: dict[str, None] = field(default_factory=dict)

    @property
    def storage(self) -> str:
        """What it says when it connects."""
        return "" if self.is_settled else self.home


@dataclass(frozen=True, slots=True)
class ToDurableClient(ToClient):
    """The sending side of a client's connection, with what durable delivery says."""

    simulation: DurableSimulation
    # The number of the connection: what is said on an earlier one reaches nobody.
    number: int

    @property
    def is_current(self) -> bool:
        return self.simulation.durable[self.client.identity].connections == self.number

    def deliver(self, delivery: Deliver) -> None:
        if self.is_current:
            ToClient.deliver(self, delivery)  # A class with slots is made anew: super() would not find it.

    def confirm(self, confirm: Confirm) -> None:
        if self.is_current:
            self.simulation.confirmed(self.client, confirm)

    def end(self, reason: str) -> None:
        assert not self.is_current, f"{self.client.identity} was ended: {reason}"

    def take_effect(self, effect: TakeEffect) -> None:
        if self.is_current:
            self.simulation.took_effect(effect)

    def tell_lost_log(self, lost: TellLostLog) -> None:
        self.simulation.durable[self.client.identity].lost_logs.append(lost)

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        self.client.refused += [refusal.error for refusal in refusals]
        if refusals and self.is_current:
            self.simulation.was_refused(self.client, refusals)


class DurableSimulation(Simulation):
    """`make_inner` makes the core inside."""

    def __init__(
        self, topology: Topology, make_inner: MakeCore, durability: Durability | None = None, **options: Any
    ) -> None:
        self.durability = durability or Durability()
        self.durable: dict[str, DurableClient] = {}
        storages = self.durability.storages
        self._store_names = topology.brokers if storages is None else storages
        self.stores: dict[str, SimStore] = {}
        # How often a broker has had a new disk.
        self._disks = 0
        self._disk_rng = random.Random(options.get("seed", 1))
        super().__init__(topology, make_inner, **options)

    # --- brokers ---

    def core_and_store(self, broker: str) -> tuple[RoutingCore[Any], StoreOutlet | None]:
        inner, _ = super().core_and_store(broker)
        settings = self.durability.by_broker.get(broker, self.durability.settings)
        if broker not in self._store_names:
            return DurableCore(broker, inner, None, settings), None
        store = self.stores.get(broker) or self.new_store(broker)
        return DurableCore(broker, inner, store.open(), settings), store

    def new_store(self, broker: str) -> SimStore:
        """A store with an empty disk, for a broker that is down."""
        self._disks += 1
        node = partial(self._node, broker)
        rng = random.Random(self._disk_rng.randrange(1 << 30))
        log = f"log-{broker}-{self._disks}"[:32]
        store = SimStore(log, self._later, node, rng, self.durability.disk, self.durability.retention)
        self.stores[broker] = store
        return store

    def _node(self, broker: str) -> Node | None:
        return self.nodes[broker]

    def _later(self, delay: Time, work: Callable[[], None], /, *, is_idle: bool = False) -> None:
        self.at(self.now + delay, work, is_idle=is_idle)

    def core(self, broker: str) -> DurableCore | None:
        core = self.cores[broker]
        assert core is None or isinstance(core, DurableCore)
        return core

    def crash(self, broker: str, is_power_loss: bool = False) -> None:
        is_up = self.nodes[broker] is not None
        super().crash(broker)
        if is_up and broker in self.stores:
            self.stores[broker].crash(is_power_loss)
        for identity, client in self.durable.items():
            if self.client(identity).home == broker:
                self._disconnected(client)

    def lose_disk(self, broker: str) -> None:
        """The disk of a broker that is down is gone for ever: it gets a new one."""
        assert self.nodes[broker] is None, "a broker that runs has its disk"
        self.new_store(broker)

    def add_store(self, broker: str) -> None:
        """A broker that is down has a store from its next start on."""
        assert self.nodes[broker] is None, "a broker that runs has a store, or none"
        self._store_names = (*self._store_names, broker)

    # --- clients ---

    def durable_client(self, identity: str) -> DurableClient:
        return self.durable.setdefault(identity, DurableClient(identity))

    def disconnect(self, identity: str) -> None:
        super().disconnect(identity)
        if identity in self.durable:
            self._disconnected(self.durable[identity])

    def vanish(self, identity: str) -> str | None:
        """The client is gone, and its broker does not know: whatever it says reaches nobody. Returns the broker."""
        client = self.client(identity)
        home = client.home if client.is_connected else None
        client.is_connected, client.home = False, None
        self._disconnected(self.durable_client(identity))
        return home

    def notice(self, identity: str, broker: str) -> None:
        """The broker that a client has vanished from notices it."""
        node, client = self.nodes[broker], self.client(identity)
        if node is not None and client.interface in node.clients and client.home != broker:
            node.client_down(client.interface)

    def _disconnected(self, client: DurableClient) -> None:
        client.waiting.clear()
        client.connections += 1
        client.is_resending = False

    def greet(self, node: Node, client: SimClient) -> None:
        durable = self.durable_client(client.identity)
        durable.connections += 1
        durable.session = session_after(durable.session, max(0, self.now + durable.clock_us))
        outlet = ToDurableClient(self, client, durable.connections)
        seen, positions = dict(client.seen), dict(durable.positions)
        node.client_up(client.interface, client.identity, seen, outlet, durable.session, positions, durable.storage)
        self._know_home(node, client, durable)
        for group in durable.groups:
            node.requested(client.interface, 1, Join(group))

    def restated(self, client: SimClient) -> None:
        # Not before: what a client has not advertised is refused.
        self._publish_again(client, self.durable_client(client.identity))

    def _know_home(self, node: Node, client: SimClient, durable: DurableClient) -> None:
        """What a live broker says when a client connects: where its publications are kept."""
        assert node.durable is not None
        home = node.durable.home(client.interface)
        if home != durable.home:
            durable.home, durable.kept = home, None

    def forget(self, identity: str) -> None:
        """The client loses its memory."""
        client = self.durable_client(identity)
        client.positions.clear()
        client.unkept.clear()
        client.home, client.kept, client.is_settled = "", None, True

    # --- subscriptions ---

    def subscribe_durable(self, identity: str, id: str, wanted: Wanted, via: str = "") -> None:
        client = self.durable_client(identity)
        client.wants[id] = wanted
        client.effective.pop(id, None)
        self.ask(identity, SubscribeDurable(identity, id, wanted, via))

    def cancel_durable(self, identity: str, id: str) -> None:
        client = self.durable_client(identity)
        client.wants.pop(id, None)
        client.effective.pop(id, None)
        self.ask(identity, CancelDurable(identity, id))

    def took_effect(self, effect: TakeEffect) -> None:
        """A client is told that a change of its durable subscriptions is known."""
        self.durable[effect.client.name].effective[effect.id] = effect.missing

    def subscribe_group(self, identity: str, group: str, id: str, wanted: Wanted) -> None:
        """A client subscribes for a group."""
        self.ask(identity, SubscribeDurable(group, id, wanted, is_group=True))

    def join(self, identity: str, group: str) -> None:
        self.durable_client(identity).groups[group] = None
        self.ask(identity, Join(group))

    def leave(self, identity: str, group: str) -> None:
        client = self.durable_client(identity)
        client.groups.pop(group, None)
        client.waiting = [delivery for delivery in client.waiting if delivery.identity != group]
        self.ask(identity, Leave(group))

    def go_back(self, identity: str, log: str = "", epoch: int = 0, since: Time | None = None) -> None:
        """The client forgets its positions in the logs that it goes back in, and what waits of them."""
        client = self.durable_client(identity)
        client.waiting = [delivery for delivery in client.waiting if log not in ("", delivery.log)]
        for gone in [log] if log else list(client.positions):
            client.positions.pop(gone, None)
        self.ask(identity, Rewind(identity, log, epoch, since))

    def forget_identity(self, identity: str) -> None:
        """The client says that it will never come back."""
        self.durable_client(identity).wants.clear()
        self.ask(identity, Forget(identity))

    # --- deliveries ---

    def delivered(self, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if not isinstance(delivery, Deliver) or not delivery.log:
            super().delivered(client, delivery)
            return
        durable = self.durable_client(client.identity)
        durable.waiting.append(delivery)
        if durable.is_taking:
            self._later(self.durability.take_us, partial(self._take, durable, durable.connections))

    def take_all(self, identity: str) -> None:
        """The application takes all that waits for it."""
        client = self.durable_client(identity)
        while client.waiting:
            self._take(client, client.connections)

    def _take(self, client: DurableClient, connection: int) -> None:
        """The application takes the delivery that has waited longest."""
        if client.connections != connection or not client.waiting:
            return
        delivery = client.waiting.pop(0)
        identity, log, epoch = delivery.identity, delivery.log, delivery.epoch
        if identity == client.identity:
            if epoch <= client.positions.get(log, 0):
                return  # A client that knows its positions takes nothing twice.
            client.positions[log] = epoch
        self.took(client, Got(identity, log, epoch, delivery.notification, delivery.subscriptions, delivery.lost))
        sim_client = self.client(client.identity)
        node = self.node_of(sim_client)
        if node is not None:
            node.taken(sim_client.interface, Taken(identity, log, epoch))

    def took(self, client: DurableClient, got: Got) -> None:
        """An application has taken a delivery."""
        client.taken.append(got)

    # --- publications ---

    def publish(self, identity: str, attributes: Mapping[str, Value], payload: bytes = b"") -> Notification | None:
        """A client publishes nothing else while something of it is not kept: it would overtake that."""
        client = self.durable_client(identity)
        if client.unkept:
            return None
        client.is_settled = False
        return super().publish(identity, attributes, payload)

    def publish_stored(self, identity: str, attributes: Mapping[str, Value], payload: bytes = b"") -> Notification:
        """The notification, numbered. It is kept by the client until it is confirmed, connected or not."""
        client, durable = self.client(identity), self.durable_client(identity)
        client.published += 1
        time = BEGINNING + timedelta(microseconds=self.now)
        notification = Notification(attributes, source=identity, seq=client.published, time=time, payload=payload)
        after = durable.unkept[-1].seq if durable.unkept else durable.kept
        durable.unkept.append(notification)
        durable.is_settled = False
        self._publish(client, (notification,), after)
        return notification

    def _publish(self, client: SimClient, notifications: Iterable[Notification], after: int | None) -> None:
        node = self.node_of(client)
        if node is not None:
            node.published_stored(client.interface, 1, tuple(notifications), after)

    def _publish_again(self, client: SimClient, durable: DurableClient) -> None:
        durable.is_resending = False
        if durable.unkept:
            self._publish(client, tuple(durable.unkept), durable.kept)

    def confirmed(self, client: SimClient, confirm: Confirm) -> None:
        durable = self.durable_client(client.identity)
        durable.confirms.append(confirm)
        if confirm.storage != durable.home:
            durable.home, durable.kept = confirm.storage, None
        durable.unkept = [each for each in durable.unkept if (each.seq or 0) > confirm.seq]
        durable.kept = max(durable.kept or 0, confirm.seq) or None
        durable.is_settled = confirm.settled and not durable.unkept

    def was_refused(self, client: SimClient, refusals: Sequence[Refuse]) -> None:
        """Publications were refused: they are published again, after a while."""
        durable = self.durable_client(client.identity)
        for refusal in refusals:
            error = refusal.error
            if isinstance(error, BadNumberError) and durable.kept is not None and error.after < durable.kept:
                durable.kept = None  # The storage has lost what it had kept.
        if durable.unkept and not durable.is_resending:
            durable.is_resending = True
            self._later(AGAIN_US, partial(self._resend, client, durable, durable.connections))

    def _resend(self, client: SimClient, durable: DurableClient, connection: int) -> None:
        if durable.connections == connection:
            self._publish_again(client, durable)
