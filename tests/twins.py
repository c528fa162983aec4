"""The same requests to two networks, one that watches patterns at the subscriber's broker and one that delegates them.
If nothing happens before the last thing has reached everybody, clients of both must get what somebody finds who reads
all publications (`Truth`), one by one.

And requests in a hurry, with faults, to a network that delegates: its tables must be ideal whenever it has settled, and
what it delivers must be sequences. The conformance suite does the same with filters that are rarely delegated.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from catchment.errors import LimitError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.delegating import DelegatingCore
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError
from catchment.sim.conformance.ideals.delegating import delegating_tables
from catchment.sim.conformance.ideals.tables import leftovers
from catchment.sim.conformance.sequences import sequences_in
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.simulation import Simulation
from catchment.sim.topology import random_tree

KINDS, HOSTS = "ABCD", "xy"
# So much in a run is published, so much changed.
PUBLISHED_SHARE = 0.85
# A run takes some hundred; one that takes so many loops.
OCCURRENCES_MAX = 10_000


def advertisement(rng: random.Random) -> str:
    kinds = rng.sample(KINDS, rng.choice((1, 1, 2)))
    return ", ".join([*(f"kind = '{kind}'" for kind in kinds), "level any", "host any"])


def filter(rng: random.Random) -> str:
    kind = rng.choice(KINDS)
    return rng.choice((f"kind = '{kind}'", f"kind = '{kind}'", f"kind = '{kind}' and level > 0", "kind in ('A', 'B')"))


def pattern(rng: random.Random) -> str:
    steps = " -> ".join(f"[{filter(rng)}]" for _ in range(rng.choice((2, 2, 3, 3, 4))))
    within = rng.choice(("", "", " within 20ms", " within 60ms"))
    return steps + within + rng.choice(("", " by host"))


# What a subscription got, or should get, in order: notifications, or sequences of them.
Got = list[Notification | tuple[Notification, ...]]


@dataclass
class Truth:
    """What each subscription should get: by reading all that was published since, with no broker in between."""

    wants: dict[tuple[str, str], Filter | Pattern] = field(default_factory=dict)
    advertisements: dict[str, list[Advertisement]] = field(default_factory=dict)
    # What was published since the subscriber came to its broker, and what it should have got before.
    streams: dict[tuple[str, str], list[Notification]] = field(default_factory=dict)
    before: dict[tuple[str, str], Got] = field(default_factory=dict)

    def did(self, name: str, client: str, arguments: tuple[Any, ...], notification: Notification | None) -> None:
        """A client has done something, and nothing is under way."""
        match name:
            case "subscribe":
                id, wanted = arguments
                self.wants[client, id], self.streams[client, id] = wanted, []
            case "cancel":
                (id,) = arguments
                self._close(client, id)
                del self.wants[client, id]
            case "connect":
                # Sequences that are begun stay at the broker that it leaves.
                for who, id in list(self.wants):
                    if who == client:
                        self._close(client, id)
            case "advertise":
                self.advertisements.setdefault(client, []).extend(arguments)
            case "unadvertise":
                (unwanted,) = arguments
                offers = self.advertisements.get(client, [])
                self.advertisements[client] = [offer for offer in offers if not unwanted.covers(offer)]
            case "publish":
                assert notification is not None
                if any(offer.matches(notification) for offer in self.advertisements.get(client, ())):
                    for key in self.wants:
                        self.streams[key].append(notification)
            case _:
                raise NotImplementedError(name)

    def _close(self, client: str, id: str) -> None:
        self.before.setdefault((client, id), []).extend(self._found(client, id))
        self.streams[client, id] = []

    def _found(self, client: str, id: str) -> Got:
        wanted, stream = self.wants[client, id], self.streams[client, id]
        if isinstance(wanted, Pattern):
            return list(sequences_in(wanted, stream))
        return [notification for notification in stream if wanted.matches(notification)]

    def expected(self) -> dict[tuple[str, str], Got]:
        for client, id in self.wants:
            self._close(client, id)
        return {key: got for key, got in self.before.items() if got}


class Twins:
    """Does everything in both networks, and waits in between."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topology = random_tree(2 + seed % 9, seed)
        self.networks = [
            Simulation(self.topology, core, occurrences_max=OCCURRENCES_MAX)
            for core in (AdvertisingCore, DelegatingCore)
        ]
        self.clients = [f"c{i}" for i in range(5)]
        # Few, so that much comes from one side only.
        self.publishers = self.clients[:3]
        self.ids: dict[str, list[str]] = {client: [] for client in self.clients}
        self.truth = Truth()
        self.patterns: list[str] = []
        self.next_id = 0

    def do(self, name: str, client: str, *arguments: Any) -> None:
        notification: Notification | None = None
        for network in self.networks:
            notification = getattr(network, name)(client, *arguments)
            network.settle()
        self.truth.did(name, client, arguments, notification)
        # At the same time in both: later than everything before.
        latest = max(network.now for network in self.networks) + MILLISECOND
        for network in self.networks:
            network.advance(latest - network.now)

    def arrive(self) -> None:
        for client in self.clients:
            self.do("connect", client, self.rng.choice(self.topology.brokers))
        for client in self.publishers:
            self.do("advertise", client, Advertisement(advertisement(self.rng)))
        for client in self.clients:
            self.subscribe(client)

    def subscribe(self, client: str) -> None:
        id, self.next_id = str(self.next_id), self.next_id + 1
        self.ids[client].append(id)
        kind = self.rng.random()
        if kind < 0.1:
            self.do("subscribe", client, id, Filter(filter(self.rng)))
            return
        # Some are wanted several times, and share what is delegated.
        wanted = self.rng.choice(self.patterns) if self.patterns and kind < 0.5 else pattern(self.rng)
        self.patterns.append(wanted)
        self.do("subscribe", client, id, Pattern(wanted))

    def change(self) -> None:
        client, kind = self.rng.choice(self.clients), self.rng.random()
        if kind < 0.3:
            self.subscribe(client)
        elif kind < 0.6 and self.ids[client]:
            self.do("cancel", client, self.ids[client].pop(self.rng.randrange(len(self.ids[client]))))
        elif kind < 0.75:
            self.do("advertise", self.rng.choice(self.publishers), Advertisement(advertisement(self.rng)))
        elif kind < 0.9:
            self.do("unadvertise", self.rng.choice(self.publishers), Advertisement(advertisement(self.rng)))
        else:
            self.do("connect", client, self.rng.choice(self.topology.brokers))

    def publish(self) -> None:
        attributes = {
            "kind": self.rng.choice(KINDS),
            "level": self.rng.choice((0, 1)),
            "host": self.rng.choice(HOSTS),
        }
        self.do("publish", self.rng.choice(self.publishers), attributes)

    def run(self, steps: int) -> None:
        self.arrive()
        for _ in range(steps):
            if self.rng.random() < PUBLISHED_SHARE:
                self.publish()
            else:
                self.change()

    def got(self, network: Simulation) -> dict[tuple[str, str], Got]:
        """What each client got for each subscription, in order."""
        got: dict[tuple[str, str], Got] = {}
        for client in network.clients.values():
            for delivery in client.received:
                if isinstance(delivery, Deliver):
                    for id in delivery.subscriptions:
                        got.setdefault((client.identity, id), []).append(delivery.notification)
                else:
                    got.setdefault((client.identity, delivery.subscription), []).append(delivery.notifications)
        return got


def difference(seed: int, steps: int = 80) -> str | None:
    """What is wrong, if anything is."""
    twins = Twins(seed)
    try:
        twins.run(steps)
    except LimitError as problem:
        return f"seed {seed}: {problem}"
    expected = twins.truth.expected()
    for name, network in zip(("advertising", "delegating"), twins.networks, strict=True):
        got = twins.got(network)
        for key in sorted({*expected, *got}):
            if expected.get(key) != got.get(key):
                return f"seed {seed}, {name}: {key} got {got.get(key)}, it should have {expected.get(key)}"
    return None


class Hurried(Twins):
    """One network that delegates; nobody waits for anybody, links are cut and brokers crash."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.checker = DeliveryChecker(needs_advertisements=True)
        quality = Quality(jitter_us=3 * MILLISECOND)
        self.networks = [
            Simulation(
                self.topology,
                DelegatingCore,
                seed=seed,
                quality=quality,
                observers=(self.checker,),
                occurrences_max=OCCURRENCES_MAX,
            )
        ]
        self.undo: list[tuple[str, str, *tuple[str, ...]]] = []

    def do(self, name: str, client: str, *arguments: Any) -> None:
        if name == "subscribe":
            self.checker.wanted(client, *arguments)
        (network,) = self.networks
        getattr(network, name)(client, *arguments)
        network.advance(self.rng.randrange(8 * MILLISECOND))

    def fault(self) -> None:
        if self.undo and self.rng.random() < 0.6:
            self.do(*self.undo.pop(self.rng.randrange(len(self.undo))))
        elif self.topology.links and self.rng.random() < 0.6:
            link = self.rng.choice(self.topology.links)
            self.do("cut", link.first, link.second)
            self.undo.append(("heal", link.first, link.second))
        else:
            broker = self.rng.choice(self.topology.brokers)
            self.do("crash", broker)
            self.undo.append(("restart", broker))

    def settle(self) -> list[str]:
        self.networks[0].settle()
        return list(delegating_tables(self.networks[0]))

    def run(self, steps: int) -> None:
        self.arrive()
        for _ in range(steps):
            kind = self.rng.random()
            if kind < 0.05:
                self.fault()
            elif kind < 0.4:
                self.change()
            elif kind < 0.95:
                self.publish()
            elif wrong := self.settle():
                raise ViolationError("; ".join(wrong))

    def leave(self) -> list[str]:
        while self.undo:
            self.do(*self.undo.pop())
        wrong = self.settle()
        for client, ids in self.ids.items():
            for id in ids:
                self.do("cancel", client, id)
        return wrong + self.settle() + list(leftovers(self.networks[0]))


def violation(seed: int, steps: int = 120) -> str | None:
    """What is wrong, if anything is."""
    hurried = Hurried(seed)
    try:
        hurried.run(steps)
        wrong = hurried.leave()
    except (LimitError, ViolationError) as problem:
        return f"seed {seed}: {problem}"
    return f"seed {seed}: {'; '.join(wrong)}" if wrong else None
