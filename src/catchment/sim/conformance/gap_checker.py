"""Nothing is lost in silence: what a client should have got and did not get lies in a gap that it was told.

Whom something is owed, by knowledge that no broker has. A subscription is *established* with the brokers that the
network had told it when it was last quiescent. From then on the client is owed all that is published there and matches,
whatever fails in between, until it cancels the subscription, leaves its broker, or its broker crashes. Where publishers
must advertise, the advertisement must have been there at a quiescent time too.

At quiescence    what was owed has come, or the time of its publication lies in a gap that the client was told, as
                 it was told last. What waits for a suspended client is owed still.
No false alarm   as long as nothing has failed, nobody is told a gap.

What a client loses because it is behind is counted exactly, and checked elsewhere (`checkers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from catchment.model.advertisement import Advertisement
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver, DeliverSequence, Time, Wanted
from catchment.sim.conformance.checkers import Network, Published, ViolationError, matches, reachable
from catchment.sim.simulation import BEGINNING, SimClient


@dataclass
class GapChecker:
    """Watches a run. `epoch` is when the times of gaps begin."""

    served: Callable[[Network, str], set[str]] = reachable
    needs_advertisements: bool = False
    # Whether something is owed only when the publisher has heard that it is accepted.
    needs_acceptance: bool = False
    epoch: datetime = BEGINNING
    has_failed: bool = False
    # How often a loss was found to lie in a gap.
    losses_told: int = 0
    # By identity and id: what is wanted, and the brokers that have been told it.
    _established: dict[tuple[str, str], tuple[Wanted, set[str]]] = field(default_factory=dict)
    _offers: dict[str, set[Advertisement]] = field(default_factory=dict)
    # When it was published, and who should get it.
    _owed: dict[Published, tuple[Time, set[str]]] = field(default_factory=dict)
    _not_accepted: dict[Published, tuple[Time, set[str]]] = field(default_factory=dict)
    # By publisher, the broker that it was at when it last published.
    _homes: dict[str, str | None] = field(default_factory=dict)

    # --- what clients do ---

    def left(self, identity: str) -> None:
        """A client leaves its broker: nothing is established, and nothing owed."""
        self.forgives(identity)
        self._offers.pop(identity, None)
        for key in [key for key in self._established if key[0] == identity]:
            del self._established[key]

    def forgives(self, identity: str) -> None:
        """What is under way to a client may be dropped rightly: it cancels something, or reads too slowly."""
        for _, owed in (*self._owed.values(), *self._not_accepted.values()):
            owed.discard(identity)

    def retracts(self, identity: str) -> None:
        """A publisher takes back an advertisement: what is under way may be dropped rightly."""
        self._offers.pop(identity, None)
        self._drop_under_way(identity)

    def _drop_under_way(self, identity: str) -> None:
        for kept in (self._owed, self._not_accepted):
            for key in [key for key in kept if key[0] == identity]:
                del kept[key]

    def published(self, network: Network, client: SimClient, notification: Notification) -> None:
        source, seq, time = notification.source, notification.seq, notification.time
        assert source is not None
        assert seq is not None
        assert time is not None
        if self._homes.get(source, client.home) != client.home:
            # It has gone to another broker. What it publishes there may overtake what it published before, which is
            # dropped then: clients keep the order of a publisher.
            self._drop_under_way(source)
        self._homes[source] = client.home
        offers = self._offers.get(client.identity, ())
        if self.needs_advertisements and not any(offer.matches(notification) for offer in offers):
            return
        owed = {
            identity
            for (identity, id), (wanted, brokers) in self._established.items()
            if client.home in brokers
            and network.clients[identity].wants.get(id) is wanted
            and not network.clients[identity].is_behind
            and matches(wanted, notification)
        }
        at = (time - self.epoch) // timedelta(microseconds=1)
        (self._not_accepted if self.needs_acceptance else self._owed)[source, seq] = (at, owed)

    def accepted(self, notification: Notification) -> None:
        """The publisher has heard that its broker has accepted it."""
        key = (notification.source or "", notification.seq or 0)
        if key in self._not_accepted:
            self._owed[key] = self._not_accepted.pop(key)

    def delivered(self, network: Network, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if isinstance(delivery, Deliver):
            key = (delivery.notification.source or "", delivery.notification.seq or 0)
            for kept in (self._owed, self._not_accepted):
                if key in kept:
                    kept[key][1].discard(client.identity)

    # --- when nothing is under way ---

    def at_quiescence(self, network: Network) -> None:
        self._check_owed(network)
        for client in network.clients.values():
            if client.gaps and not self.has_failed:
                raise ViolationError(f"{client.identity} was told {client.gaps}, and nothing has failed")
            if client.is_connected and client.home is not None:
                self._establish(network, client, client.home)

    def _check_owed(self, network: Network) -> None:
        kept: dict[Published, tuple[Time, set[str]]] = {}
        for (source, seq), (at, owed) in self._owed.items():
            for identity in sorted(owed):
                client = network.clients[identity]
                if client.is_suspended:
                    kept.setdefault((source, seq), (at, set()))[1].add(identity)
                elif not any(gap.since <= at and (not gap.until or at <= gap.until) for gap in client.gaps.values()):
                    what = f"number {seq} of {source}, published at {at}"
                    raise ViolationError(f"{identity} did not get {what}, and was told only {client.gaps}")
                else:
                    self.losses_told += 1
        self._owed = kept
        self._not_accepted.clear()

    def _establish(self, network: Network, client: SimClient, home: str) -> None:
        near = self.served(network, home)
        self._offers.setdefault(client.identity, set()).update(client.advertisements)
        for id, wanted in client.wants.items():
            before, brokers = self._established.get((client.identity, id), (wanted, set()))
            if not isinstance(wanted, Pattern):
                told = near | (brokers if before is wanted else set())
                self._established[client.identity, id] = (wanted, told)
