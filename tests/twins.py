"""The same requests to two networks, one that watches patterns at the subscriber's broker and one that delegates them:
what clients get must be the same, one by one, if nothing happens before the last thing has reached everybody.

And requests in a hurry, with faults, to one that delegates: its tables must be ideal whenever it has settled, and what
it delivers must be sequences. The conformance suite does the same with filters that are rarely delegated.
"""

import random
from typing import Any

from catchment.errors import LimitError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.delegating import DelegatingCore
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError
from catchment.sim.conformance.ideal_delegating import delegating_leftovers, delegating_tables
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
    return ", ".join([*(f"kind = '{one}'" for one in kinds), "level any", "host any"])


def filter(rng: random.Random) -> str:
    kind = rng.choice(KINDS)
    return rng.choice((f"kind = '{kind}'", f"kind = '{kind}'", f"kind = '{kind}' and level > 0", "kind in ('A', 'B')"))


def pattern(rng: random.Random) -> str:
    steps = " -> ".join(f"[{filter(rng)}]" for _ in range(rng.choice((2, 2, 3, 3, 4))))
    within = rng.choice(("", "", " within 20ms", " within 60ms"))
    return steps + within + rng.choice(("", " by host"))


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
        self.ids: dict[str, list[str]] = {one: [] for one in self.clients}
        self.patterns: list[str] = []
        self.next_id = 0

    def do(self, name: str, *arguments: Any) -> None:
        for one in self.networks:
            getattr(one, name)(*arguments)
            one.settle()
        # At the same time in both: later than everything before.
        latest = max(one.now for one in self.networks) + MILLISECOND
        for one in self.networks:
            one.advance(latest - one.now)

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

    def got(self, network: Simulation) -> dict[tuple[str, str], list[Any]]:
        """What each client got for each subscription, in order."""
        found: dict[tuple[str, str], list[Any]] = {}
        for client in network.clients.values():
            for one in client.received:
                ids = one.subscriptions if isinstance(one, Deliver) else (one.subscription,)
                for id in ids:
                    what = one.notification if isinstance(one, Deliver) else one.notifications
                    found.setdefault((client.identity, id), []).append(what)
        return found


def difference(seed: int, steps: int = 80) -> str | None:
    """What is wrong, if anything is."""
    twins = Twins(seed)
    try:
        twins.run(steps)
    except LimitError as problem:
        return f"seed {seed}: {problem}"
    expected, found = map(twins.got, twins.networks)
    for key in sorted({*expected, *found}):
        if expected.get(key) != found.get(key):
            return f"seed {seed}: {key} got {found.get(key)}, it should have {expected.get(key)}"
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
        self.undo: list[tuple[str, ...]] = []

    def do(self, name: str, *arguments: Any) -> None:
        if name == "subscribe":
            self.checker.wanted(*arguments)
        (network,) = self.networks
        getattr(network, name)(*arguments)
        network.advance(self.rng.randrange(8 * MILLISECOND))

    def fault(self) -> None:
        if self.undo and self.rng.random() < 0.6:
            self.do(*self.undo.pop(self.rng.randrange(len(self.undo))))
        elif self.topology.links and self.rng.random() < 0.6:
            link = self.rng.choice(self.topology.links)
            self.do("cut", link.one, link.other)
            self.undo.append(("heal", link.one, link.other))
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
        return wrong + self.settle() + list(delegating_leftovers(self.networks[0]))


def violation(seed: int, steps: int = 120) -> str | None:
    """What is wrong, if anything is."""
    hurried = Hurried(seed)
    try:
        hurried.run(steps)
        wrong = hurried.leave()
    except (LimitError, ViolationError) as problem:
        return f"seed {seed}: {problem}"
    return f"seed {seed}: {'; '.join(wrong)}" if wrong else None
