"""What must hold in every run, checked against knowledge that no broker has: all clients' wants, all publications.

At every delivery    it goes to somebody whose subscriptions match it, to all those that it names; not twice; not after
                     a later one of the same publisher; not to a client that is suspended or behind. Where publishers
                     must advertise, nobody gets what was not advertised.
At quiescence        everything that was published while the network was settled has reached everybody who wanted it
                     then. What is due to a suspended client is expected when it resumes. What a client lost because it
                     was behind is counted exactly: deliveries and losses together are what was expected. Where a
                     routing system promises that, no broker got what it has no use for.

A violation says what is wrong; who runs the network adds how to run it again. The network may be a simulation, or
live brokers (`tests/live`): `Network` is what is asked of either.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from catchment.errors import BadNotificationError
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver, DeliverSequence, Wanted
from catchment.sim.network import LinkState
from catchment.sim.simulation import SimClient, Simulation
from catchment.sim.topology import Topology

# A notification by its publisher and number.
Published = tuple[str, int]


class Network(Protocol):
    """Clients with what they want and where they are, and the links between brokers."""

    @property
    def topology(self) -> Topology: ...

    @property
    def clients(self) -> Mapping[str, SimClient]: ...

    def links_of(self, broker: str) -> Sequence[LinkState]: ...

    @property
    def unwanted(self) -> int:
        """Notifications that a broker got from another and neither delivered nor passed on nor kept."""
        ...


class ViolationError(AssertionError):
    """A run that did what must not be."""


def matches(wanted: Wanted, notification: Notification) -> bool:
    """By the model alone: no matcher, no poset."""
    if isinstance(wanted, Cesql):
        return wanted.matches(notification.matched)
    return isinstance(wanted, Filter) and wanted.matches(notification)


def wanting(client: SimClient, notification: Notification) -> tuple[str, ...]:
    """The ids of a client's subscriptions that match, sorted."""
    return tuple(sorted(id for id, wanted in client.wants.items() if matches(wanted, notification)))


def reachable(network: Network, broker: str) -> set[str]:
    """The brokers that can be reached over usable links."""
    return side_of(network, broker, None)


def side_of(network: Network, broker: str, without: str | None) -> set[str]:
    """The brokers that can be reached from a broker without going through the broker `without`."""
    near, waiting = {broker}, [broker]
    while waiting:
        here = waiting.pop()
        for link in network.links_of(here):
            other = link.end(here)
            if link.is_usable and other not in near and other != without:
                near.add(other)
                waiting.append(other)
    return near


def wants_at(network: Network, brokers: Iterable[str]) -> Mapping[str, list[Wanted]]:
    """What the connected clients at some brokers want, by identity."""
    chosen = set(brokers)
    return {
        client.identity: list(client.wants.values())
        for client in network.clients.values()
        if client.is_connected and client.home in chosen
    }


def is_advertised(client: SimClient, notification: Notification) -> bool:
    return any(offer.matches(notification) for offer in client.advertisements)


@dataclass
class DeliveryChecker:
    """Watches deliveries. While `is_settled`, every publication is expected by all connected clients that want it and
    can be reached; `at_quiescence` says whether it came."""

    needs_advertisements: bool = False
    # For a broker, the brokers whose clients must get what is published at it.
    served: Callable[[Network, str], set[str]] = reachable
    # Whether a publisher surely hears that its publication is refused: not if nobody waits for the answer.
    hears_refusals: bool = True
    # Whether no broker gets what it has no use for, while the network is settled; or how to tell that of a network.
    wastes_nothing: bool | Callable[[Network], bool] = False
    # Whether brokers find out what was lost on the way and tell clients: how much that is, is not known here.
    detects_losses: bool = False
    is_settled: bool = False
    delivered_count: int = 0
    _expected: dict[Published, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    _ever_wanted: dict[tuple[str, str], list[Wanted]] = field(default_factory=dict)
    # By client and publisher, the last number that was delivered.
    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _unadvertised: set[Published] = field(default_factory=set)
    # Clients that were suspended when the network was last quiescent.
    _suspended: set[str] = field(default_factory=set)
    # By client that is behind, how many it has lost, while that is known exactly.
    _lost: Counter[str] = field(default_factory=Counter)
    # By client, of how many losses it has been told rightly.
    _missed: Counter[str] = field(default_factory=Counter)
    _unwanted: int = 0

    # --- what clients do ---

    def wanted(self, identity: str, id: str, wanted: Wanted) -> None:
        """Is told of each subscription, also those that are cancelled later."""
        self._ever_wanted.setdefault((identity, id), []).append(wanted)

    def left(self, identity: str) -> None:
        """A client leaves its broker: what waits for it there is gone."""
        for awaited in self._expected.values():
            awaited.pop(identity, None)
        self._lost.pop(identity, None)

    def unsettled(self) -> None:
        """Something changes: what is published now reaches whom it reaches, and losses are not known exactly."""
        self.is_settled = False
        self._lost.clear()

    def falls_behind(self, client: SimClient) -> None:
        """Before the client reads nothing more."""
        if self.is_settled and client.is_connected and not client.is_suspended and not client.is_behind:
            self._lost[client.identity] = 0

    def suspends(self, identity: str) -> None:
        """What a client that is behind loses when it resumes is not known exactly."""
        self._lost.pop(identity, None)

    def caught_up(self, client: SimClient) -> None:
        """After the client reads again: it has been told of each loss, and of nothing else."""
        told = client.missed - self._missed[client.identity]
        self._missed[client.identity] = client.missed
        if client.identity in self._lost:
            lost = self._lost.pop(client.identity)
            # Of a pattern it is not known here how many sequences were lost.
            is_exact = not any(isinstance(wanted, Pattern) for wanted in client.wants.values())
            if told < lost or (told > lost and is_exact):
                raise ViolationError(f"{client.identity} lost {lost} while it was behind, it was told of {told}")

    def published(self, network: Network, client: SimClient, notification: Notification) -> None:
        assert client.home is not None
        if self.needs_advertisements and not is_advertised(client, notification):
            self._unadvertised.add(_key(notification))
            return
        if not self.is_settled:
            return
        near = self.served(network, client.home)
        awaited: dict[str, tuple[str, ...]] = {}
        for reader in network.clients.values():
            if reader.is_connected and reader.home in near and (ids := wanting(reader, notification)):
                if not reader.is_behind:
                    awaited[reader.identity] = ids
                elif reader.identity in self._lost:
                    self._lost[reader.identity] += 1
        self._expected[_key(notification)] = awaited

    # --- what clients get ---

    def delivered(self, network: Network, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        self.delivered_count += 1
        if client.is_behind:
            raise ViolationError(f"{client.identity} got {delivery!r} while it was behind")
        if client.is_suspended and client.identity in self._suspended:
            raise ViolationError(f"{client.identity} got {delivery!r} while it was suspended")
        if isinstance(delivery, DeliverSequence):
            self._check_sequence(client, delivery)
        else:
            self._check_match(client, delivery)
            self._check_order(client, delivery.notification)
            self._check_expected(client, delivery)

    def _check_match(self, client: SimClient, delivery: Deliver) -> None:
        identity, notification = client.identity, delivery.notification
        for id in delivery.subscriptions:
            wants = self._ever_wanted.get((identity, id), ())
            if not any(matches(wanted, notification) for wanted in wants):
                raise ViolationError(f"{identity} got {notification!r} for {id}, which does not match it")
        if not delivery.subscriptions:
            raise ViolationError(f"{identity} got {notification!r} for no subscription")
        if _key(notification) in self._unadvertised:
            raise ViolationError(f"{identity} got {notification!r}, which was not advertised")

    def _check_order(self, client: SimClient, notification: Notification) -> None:
        source, seq = _key(notification)
        before = self._last.get((client.identity, source), 0)
        if seq == before:
            raise ViolationError(f"{client.identity} got {notification!r} twice")
        if seq < before:
            raise ViolationError(f"{client.identity} got {notification!r} after number {before} of {source}")
        self._last[client.identity, source] = seq

    def _check_expected(self, client: SimClient, delivery: Deliver) -> None:
        awaited = self._expected.get(_key(delivery.notification), {}).pop(client.identity, None)
        if awaited is not None and awaited != delivery.subscriptions:
            got = f"{client.identity} got {delivery.notification!r} for {delivery.subscriptions}"
            raise ViolationError(f"{got}, it matches {awaited}")

    def _check_sequence(self, client: SimClient, delivery: DeliverSequence) -> None:
        identity, id = client.identity, delivery.subscription
        if any(_key(notification) in self._unadvertised for notification in delivery.notifications):
            raise ViolationError(f"{identity} got {delivery.notifications!r}, which was not advertised")
        for wanted in self._ever_wanted.get((identity, id), ()):
            if isinstance(wanted, Pattern) and _completes(wanted, delivery.notifications):
                return
        raise ViolationError(f"{identity} got {delivery.notifications!r} for {id}, which it does not complete")

    # --- when nothing is under way ---

    def at_quiescence(self, network: Network) -> None:
        kept: dict[Published, dict[str, tuple[str, ...]]] = {}
        for (source, seq), awaited in self._expected.items():
            for identity, ids in awaited.items():
                client = network.clients[identity]
                if client.is_suspended and client.is_connected:
                    kept.setdefault((source, seq), {})[identity] = ids
                elif client.is_connected and not client.is_behind:
                    raise ViolationError(f"{identity} did not get number {seq} of {source}, which it wants")
        self._expected = kept
        self._suspended = {client.identity for client in network.clients.values() if client.is_suspended}
        for client in network.clients.values():
            self._check_losses(client)
            self._check_refusals(client)
        is_thrifty = self.wastes_nothing(network) if callable(self.wastes_nothing) else self.wastes_nothing
        if self.is_settled and is_thrifty and network.unwanted != self._unwanted:
            count = network.unwanted - self._unwanted
            raise ViolationError(f"brokers got {count} notifications that they have no use for")
        self._unwanted = network.unwanted

    def excuse_waste(self, network: Network) -> None:
        """What no broker has a use for so far was sent on purpose."""
        self._unwanted = network.unwanted

    def _check_losses(self, client: SimClient) -> None:
        if self.detects_losses and not self.is_settled and not client.is_behind:
            self._missed[client.identity] = client.missed
        if not client.is_behind and client.missed != self._missed[client.identity]:
            lost = client.missed - self._missed[client.identity]
            raise ViolationError(f"{client.identity} was told that it lost {lost}, and it was not behind")

    def _check_refusals(self, client: SimClient) -> None:
        """Each publication that was not advertised is refused, and no other."""
        refused = sum(isinstance(error, BadNotificationError) for error in client.refused)
        unadvertised = sum(source == client.identity for source, _ in self._unadvertised)
        if self.hears_refusals and refused != unadvertised:
            raise ViolationError(f"{client.identity} had {refused} publications refused, {unadvertised} not advertised")


@dataclass
class HopChecker:
    """The links that a notification has come, by its header, are those of a way that leads there: in a network without
    cycles there is one way, and a system that `is_direct` takes it."""

    is_direct: bool
    # The broker that a notification was published at.
    _origins: dict[Published, str] = field(default_factory=dict)

    def published(self, simulation: Simulation, client: SimClient, notification: Notification) -> None:
        assert client.home is not None
        self._origins[_key(notification)] = client.home

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if isinstance(delivery, DeliverSequence) or (hops := simulation.hops_of(delivery.notification)) is None:
            return
        assert client.home is not None
        topology, origin = simulation.topology, self._origins[_key(delivery.notification)]
        shortest = _distances(topology, origin)[client.home]
        is_exact = self.is_direct and topology.is_acyclic
        if hops < shortest or (is_exact and hops > shortest):
            way = f"from {origin} to {client.home}"
            raise ViolationError(f"{delivery.notification!r} has come {hops} links {way}, there are {shortest}")


@lru_cache(maxsize=1_000)
def _distances(topology: Topology, start: str) -> dict[str, int]:
    """The fewest links to each broker."""
    distances, waiting = {start: 0}, deque([start])
    neighbors = topology.neighbors()
    while waiting:
        here = waiting.popleft()
        for other in neighbors[here]:
            if other not in distances:
                distances[other] = distances[here] + 1
                waiting.append(other)
    return distances


def _key(notification: Notification) -> Published:
    assert notification.source is not None
    assert notification.seq is not None
    return notification.source, notification.seq


def _completes(pattern: Pattern, notifications: tuple[Notification, ...]) -> bool:
    if len(notifications) != len(pattern.filters):
        return False
    times = [notification.time for notification in notifications if notification.time is not None]
    in_order = len(times) == len(notifications) and all(a < b for a, b in pairwise(times))
    in_time = in_order and (pattern.within is None or times[-1] - times[0] <= pattern.within)
    # A notification that lacks an attribute of `by` has no key, and completes nothing.
    keys = [[notification.matched.get(name) for name in pattern.by] for notification in notifications]
    of_one_key = None not in keys[0] and all(key == keys[0] for key in keys)
    matching = all(filter.matches(each) for filter, each in zip(pattern.filters, notifications, strict=True))
    return in_time and of_one_key and matching
