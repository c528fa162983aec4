"""A durable simulation that tells a checker everything, on links that may be bad for directed messages."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_args

from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.node import Node
from catchment.routing.durable.messages import Confirm, Directed, Offer, TakeEffect
from catchment.routing.messages import BrokerMessage, Deliver, DeliverSequence, Time
from catchment.sim.clients import SimClient
from catchment.sim.conformance.durable.checker import DurableChecker
from catchment.sim.conformance.durable.ledger import Ledger, WatchedDisk
from catchment.sim.durable import Durability, DurableClient, DurableSimulation, Got
from catchment.sim.network import MILLISECOND, Direction
from catchment.sim.simulation import MakeCore
from catchment.sim.stores import SimStore
from catchment.sim.topology import Topology

DIRECTED: Final = get_args(Directed)
# How long a broker that was started may not have heard of all storages, nor they of it.
YOUNG_US: Final = 100 * MILLISECOND


@dataclass(frozen=True)
class Flaws:
    """What links do to messages that go to one broker: shares of those that are lost, doubled, and late."""

    loss: float = 0.0
    double: float = 0.0
    late: float = 0.0
    late_us: Time = 4 * MILLISECOND


class CheckedSimulation(DurableSimulation):
    """`flaws` is what links do to directed messages; all others arrive once and in order."""

    def __init__(
        self,
        topology: Topology,
        make_inner: MakeCore,
        durability: Durability,
        checker: DurableChecker,
        flaws: Flaws,
        **options: Any,
    ) -> None:
        self.checker, self.flaws = checker, flaws
        # By broker, when it was started last.
        self.started_at: dict[str, Time] = {}
        # Storages that have lost their disk since the whole network was settled.
        self.blank: set[str] = set()
        self._flaw_rng = random.Random(options.get("seed", 1))
        super().__init__(topology, make_inner, durability, **options)

    # --- disks ---

    def new_store(self, broker: str) -> SimStore:
        store = super().new_store(broker)
        ledger = Ledger(broker, store.log, self.checker.recorded, self.checker.synced)
        self.checker.ledgers[ledger.log] = ledger
        store.disk = WatchedDisk(ledger)
        return store

    def ledger(self, broker: str) -> Ledger:
        return self.checker.ledgers[self.stores[broker].log]

    def lose_disk(self, broker: str) -> None:
        self.blank.add(broker)
        self.checker.lost(self.ledger(broker))
        super().lose_disk(broker)

    def restart(self, broker: str) -> None:
        if self.nodes[broker] is None:
            self.started_at[broker] = self.now
        super().restart(broker)

    # --- links ---

    def carry_message(self, way: Direction, message: BrokerMessage) -> None:
        self.checker.sent(way.sender.name, message)
        flaws, rng = self.flaws, self._flaw_rng
        # Nobody waits for what is offered unasked: links are all that it relies on.
        if isinstance(message, DIRECTED) and not (isinstance(message, Offer) and not message.is_stored):
            if flaws.loss and rng.random() < flaws.loss:
                return
            if flaws.late and rng.random() < flaws.late:
                later = partial(self._carry_later, way, way.link.incarnation, message)
                self.at(self.now + rng.randrange(flaws.late_us) + 1, later)
                return
            if flaws.double and rng.random() < flaws.double:
                super().carry_message(way, message)
        super().carry_message(way, message)

    def _carry_later(self, way: Direction, incarnation: int, message: BrokerMessage) -> None:
        if way.link.is_usable and way.link.incarnation == incarnation:
            super().carry_message(way, message)

    # --- clients ---

    def greet(self, node: Node, client: SimClient) -> None:
        self.checker.connected(client.identity, self.durable_client(client.identity).positions)
        super().greet(node, client)

    def forget(self, identity: str) -> None:
        self.checker.forgot(identity)
        super().forget(identity)

    def took_effect(self, effect: TakeEffect) -> None:
        young = {broker for broker, started_at in self.started_at.items() if self.now - started_at < YOUNG_US}
        is_young = self.client(effect.identity).home in young
        unheard = set(self.stores) if is_young else young | self.blank
        self.checker.took_effect(effect, set(self.stores), unheard, self.now)
        super().took_effect(effect)

    def delivered(self, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if isinstance(delivery, Deliver) and delivery.log:
            waiting = self.durable_client(delivery.identity).waiting
            self.checker.delivered(delivery, 1 + sum(each.log == delivery.log for each in waiting))
        super().delivered(client, delivery)

    def took(self, client: DurableClient, got: Got) -> None:
        self.checker.took(client.identity, got.log, got.epoch, got.notification, got.lost)
        super().took(client, got)

    def publish_stored(self, identity: str, attributes: Any, payload: bytes = b"") -> Notification:
        # Before it is published: the storage may have it at once.
        self.checker.expecting(identity, self.client(identity).published + 1, attributes, self.now)
        return super().publish_stored(identity, attributes, payload)

    def confirmed(self, client: SimClient, confirm: Confirm) -> None:
        self.checker.confirmed(confirm, self.now)
        super().confirmed(client, confirm)


Attributes = tuple[tuple[str, Value], ...]
