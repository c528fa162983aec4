"""What must hold in every run, checked against knowledge that no broker has: all clients' wants, all publications.

At every delivery    it goes to somebody whose subscriptions, all those named and no others of the time, match it; not
                     twice; not after a later one of the same publisher.
At quiescence        everything that was published while the network was settled has reached everybody who wanted it
                     then; tables are the ideal ones of the core; after the last unsubscription nothing is left.

A violation says what is wrong; who runs the network adds how to run it again. The network may be a simulation, or
live brokers (`tests/live`): `Network` is what is asked of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver, DeliverSequence, Wanted
from catchment.sim.network import LinkState
from catchment.sim.simulation import SimClient
from catchment.sim.topology import Topology


class Network(Protocol):
    """Clients with what they want and where they are, and the links between brokers."""

    @property
    def topology(self) -> Topology: ...

    @property
    def clients(self) -> Mapping[str, SimClient]: ...

    def links_of(self, broker: str) -> Sequence[LinkState]: ...


class ViolationError(AssertionError):
    """A run that did what must not be."""


def matches(wanted: Wanted, notification: Notification) -> bool:
    """By the model alone: no matcher, no poset."""
    if isinstance(wanted, Cesql):
        return wanted.matches(notification.matched)
    return isinstance(wanted, Filter) and wanted.matches(notification)


def wanting(client: SimClient, notification: Notification) -> tuple[str, ...]:
    """The ids of a client's subscriptions that match, sorted."""
    return tuple(sorted(id for id, one in client.wants.items() if matches(one, notification)))


def reachable(network: Network, broker: str) -> set[str]:
    """The brokers that can be reached over usable links."""
    found, waiting = {broker}, [broker]
    while waiting:
        here = waiting.pop()
        for link in network.links_of(here):
            other = link.end(here)
            if link.is_usable and other not in found:
                found.add(other)
                waiting.append(other)
    return found


@dataclass
class DeliveryChecker:
    """Watches deliveries. While `is_settled`, every publication is expected by all connected clients that want it and
    can be reached; `at_quiescence` says whether it came."""

    needs_advertisements: bool = False
    # The brokers whose clients must get what is published at one.
    served: Callable[[Network, str], set[str]] = reachable
    is_settled: bool = False
    expected: dict[tuple[str, int], dict[str, tuple[str, ...]]] = field(default_factory=dict)
    ever_wanted: dict[tuple[str, str], list[Wanted]] = field(default_factory=dict)
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    delivered_count: int = 0

    def wanted(self, identity: str, id: str, wanted: Wanted) -> None:
        """Is told of each subscription, also those that are cancelled later."""
        self.ever_wanted.setdefault((identity, id), []).append(wanted)

    def published(self, network: Network, client: SimClient, notification: Notification) -> None:
        if not self.is_settled or (self.needs_advertisements and not is_advertised(client, notification)):
            return
        assert notification.source is not None
        assert notification.seq is not None
        assert client.home is not None
        near = self.served(network, client.home)
        here = [one for one in network.clients.values() if one.is_connected and one.home in near]
        found = {one.identity: ids for one in here if (ids := wanting(one, notification))}
        self.expected[notification.source, notification.seq] = found

    def delivered(self, network: Network, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        self.delivered_count += 1
        if isinstance(delivery, DeliverSequence):
            self._check_sequence(client, delivery)
            return
        notification, who = delivery.notification, client.identity
        for id in delivery.subscriptions:
            if not any(matches(one, notification) for one in self.ever_wanted.get((who, id), ())):
                raise ViolationError(f"{who} got {notification!r} for {id}, which does not match it")
        source, seq = notification.source, notification.seq
        assert source is not None
        assert seq is not None
        before = self.last.get((who, source), 0)
        if seq == before:
            raise ViolationError(f"{who} got {notification!r} twice")
        if seq < before:
            raise ViolationError(f"{who} got {notification!r} after number {before} of {source}")
        self.last[who, source] = seq
        awaited = self.expected.get((source, seq), {}).pop(who, None)
        if awaited is not None and not client.is_suspended and awaited != delivery.subscriptions:
            raise ViolationError(f"{who} got {notification!r} for {delivery.subscriptions}, it matches {awaited}")

    def _check_sequence(self, client: SimClient, delivery: DeliverSequence) -> None:
        who, id = client.identity, delivery.subscription
        for wanted in self.ever_wanted.get((who, id), ()):
            if isinstance(wanted, Pattern) and _completes(wanted, delivery.notifications):
                return
        raise ViolationError(f"{who} got {delivery.notifications!r} for {id}, which it does not complete")

    def at_quiescence(self, network: Network) -> None:
        for (source, seq), awaited in self.expected.items():
            for identity in awaited:
                client = network.clients[identity]
                if client.is_connected and not client.is_suspended:
                    raise ViolationError(f"{identity} did not get number {seq} of {source}, which it wants")
        self.expected.clear()


def is_advertised(client: SimClient, notification: Notification) -> bool:
    return any(one.matches(notification) for one in client.advertisements)


def _completes(pattern: Pattern, notifications: tuple[Notification, ...]) -> bool:
    if len(notifications) != len(pattern.filters):
        return False
    times = [one.time for one in notifications if one.time is not None]
    in_order = len(times) == len(notifications) and all(a < b for a, b in pairwise(times))
    in_time = in_order and (pattern.within is None or times[-1] - times[0] <= pattern.within)
    of_one_key = all(len({one.matched.get(name) for one in notifications}) == 1 for name in pattern.by)
    matching = all(f.matches(n) for f, n in zip(pattern.filters, notifications, strict=True))
    return in_time and of_one_key and matching


def side_of(network: Network, broker: str, without: str) -> set[str]:
    """The brokers that can be reached from one without going through a neighbor of it."""
    found, waiting = {broker}, [broker]
    while waiting:
        here = waiting.pop()
        for link in network.links_of(here):
            other = link.end(here)
            if link.is_usable and other not in found and other != without:
                found.add(other)
                waiting.append(other)
    return found


def wants_at(network: Network, brokers: Iterable[str]) -> Mapping[str, list[Wanted]]:
    """What the connected clients at some brokers want, by identity."""
    chosen = set(brokers)
    return {
        one.identity: list(one.wants.values())
        for one in network.clients.values()
        if one.is_connected and one.home in chosen
    }
