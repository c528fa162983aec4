"""Scripts with durable clients: what they do, and which links, brokers and disks fail, from a seed.

arrive     some brokers have a store; readers subscribe durably, one of them transiently, publishers advertise
churn      stored and unstored publications, subscriptions that are made, edited and cancelled; clients that leave,
           roam, vanish without their broker noticing, lose their memory, or have a clock that goes back; readers
           that take nothing for a while
fault      links are cut; brokers are killed, or the power fails; disks are full, slow, fail, or are gone for ever;
           while the churn goes on. What is left of the network must do what it can
heal       everything works again, and some broker has a store that had none; while the churn goes on
end        a burst larger than any window; then all must have come, and nothing may be left in the logs
"""

from __future__ import annotations

import random
from typing import Final, Literal

from msgspec import Struct

from catchment.model.values import Value
from catchment.routing.messages import SECOND, Time
from catchment.sim.conformance.scripts import (
    KINDS,
    LEVELS,
    PAUSE_MAX,
    PLACES,
    Connect,
    Crashes,
    Cuts,
    Disconnect,
    Heals,
    Publishes,
    Restarts,
    Settles,
)
from catchment.sim.topology import Topology

READERS: Final = ("r0", "r1")
PUBLISHERS: Final = ("p0", "p1")
# It subscribes transiently.
WATCHER: Final = "t0"
CHURN_STEPS: Final = 30
SHORT_CHURN_STEPS: Final = 10
BURST: Final = 10
# How long a fault lasts at most: longer than all retries of the suite, so that storages have asked for the last time.
AWAY_US_MAX: Final = 2 * SECOND


class SubscribesDurably(Struct, frozen=True):
    """A new subscription, or with a known id an edit."""

    client: str
    id: str
    wanted: str


class CancelsDurably(Struct, frozen=True):
    client: str
    id: str


class PublishesStored(Struct, frozen=True):
    client: str
    attributes: tuple[tuple[str, Value], ...]


class Vanishes(Struct, frozen=True):
    """The client appears at another broker, and the old one does not notice for a while."""

    client: str
    broker: str


class Notices(Struct, frozen=True):
    """All brokers notice who has vanished."""


class ForgetsAll(Struct, frozen=True):
    """The client loses its memory; with `is_clock_back` its clock goes back too. It connects again."""

    client: str
    is_clock_back: bool = False


class StopsTaking(Struct, frozen=True):
    client: str


class TakesAgain(Struct, frozen=True):
    client: str


DiskFault = Literal["power loss", "full", "slow", "fail", "lost"]


class DiskFails(Struct, frozen=True):
    """`power loss` ends the broker too; `lost` needs one that is down."""

    broker: str
    what: DiskFault


class DiskMends(Struct, frozen=True):
    broker: str


class GetsStore(Struct, frozen=True):
    """A broker that has no store is started again with one."""

    broker: str


class Waits(Struct, frozen=True):
    """What is left of the network has time to do what it can; that must have come then."""


Doing = (
    Connect | Disconnect | SubscribesDurably | CancelsDurably | Publishes | PublishesStored | Vanishes | Notices
    | ForgetsAll | StopsTaking | TakesAgain | Cuts | Heals | Crashes | Restarts | DiskFails | DiskMends | GetsStore
    | Waits | Settles
)  # fmt: skip


class Step(Struct, frozen=True):
    """`after` is the time to wait before it."""

    after: Time
    doing: Doing


Script = tuple[Step, ...]


class _Writer:
    def __init__(self, topology: Topology, storages: tuple[str, ...], seed: int) -> None:
        self.topology, self.storages = topology, storages
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.ids: dict[str, list[str]] = {reader: [] for reader in READERS}
        self.next_id = 0

    def do(self, doing: Doing, after: Time | None = None) -> None:
        self.steps.append(Step(self.rng.randrange(PAUSE_MAX) if after is None else after, doing))

    # --- vocabulary ---

    def filter(self) -> str:
        rng = self.rng
        parts = (
            f"place = '{rng.choice(PLACES)}'",
            f"place != '{rng.choice(PLACES)}'",
            f"level > {rng.randrange(4)}",
            f"level <= {rng.randrange(3, 8)}",
            f"kind = '{rng.choice(KINDS)}'",
            "place any",
        )
        return " and ".join(rng.sample(parts, rng.choice((1, 1, 2))))

    def attributes(self) -> tuple[tuple[str, Value], ...]:
        rng = self.rng
        return (("place", rng.choice(PLACES)), ("kind", rng.choice(KINDS)), ("level", rng.choice(LEVELS)))

    # --- phases ---

    def arrive(self) -> None:
        self.do(Settles())
        for client in (*READERS, *PUBLISHERS, WATCHER):
            self.do(Connect(client, self.rng.choice(self.topology.brokers)))
        for reader in READERS:
            for _ in range(1 + self.rng.randrange(2)):
                self.subscribe(reader)

    def subscribe(self, reader: str) -> None:
        id = f"{self.next_id}"
        self.next_id += 1
        self.ids[reader].append(id)
        self.do(SubscribesDurably(reader, id, self.filter()))

    def churn(self, count: int) -> None:
        for _ in range(count):
            self.change()

    def change(self) -> None:
        rng, reader = self.rng, self.rng.choice(READERS)
        kind = rng.random()
        if kind < 0.5:
            self.publish()
        elif kind < 0.58:
            self.subscribe(reader) if len(self.ids[reader]) < 4 else self.edit(reader)
        elif kind < 0.64:
            self.edit(reader)
        elif kind < 0.68 and len(self.ids[reader]) > 1:
            self.do(CancelsDurably(reader, self.ids[reader].pop(rng.randrange(len(self.ids[reader])))))
        else:
            self.move(rng.choice((*READERS, *PUBLISHERS)))

    def publish(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 1, 3))):
            kind = PublishesStored if rng.random() < 0.7 else Publishes
            self.do(kind(rng.choice(PUBLISHERS), self.attributes()), rng.randrange(1_000))

    def edit(self, reader: str) -> None:
        if self.ids[reader]:
            self.do(SubscribesDurably(reader, self.rng.choice(self.ids[reader]), self.filter()))

    def move(self, client: str) -> None:
        rng, broker = self.rng, self.rng.choice(self.topology.brokers)
        kind = rng.random()
        if kind < 0.4:
            self.do(Connect(client, broker))
        elif kind < 0.55:
            self.do(Disconnect(client))
            self.publish()
            self.do(Connect(client, broker))
        elif kind < 0.7:
            self.do(Vanishes(client, broker))
            self.publish()
            self.do(Notices())
        elif kind < 0.8 and client in READERS:
            self.do(ForgetsAll(client, rng.random() < 0.5))
        elif client in READERS:
            self.do(StopsTaking(client))
            self.churn(2)
            self.do(TakesAgain(client))

    def faults(self, most: int, churn: int) -> None:
        heals: list[Doing] = []
        for _ in range(1 + self.rng.randrange(most)):
            heals += self.fault()
            self.churn(churn)
        if self.rng.random() < 0.4:
            self.do(Waits(), self.rng.randrange(AWAY_US_MAX))
        else:
            self.do(Waits())
        self.rng.shuffle(heals)
        for heal in sorted(heals, key=lambda heal: isinstance(heal, Restarts)):
            self.do(heal)
            self.churn(1)

    def fault(self) -> list[Doing]:
        """Something fails; returns what heals it."""
        rng, storage = self.rng, self.rng.choice(self.storages)
        kind = rng.random()
        if kind < 0.25 and self.topology.links:
            link = rng.choice(self.topology.links)
            self.do(Cuts(link.first, link.second))
            return [Heals(link.first, link.second)]
        if kind < 0.45:
            broker = rng.choice(self.topology.brokers)
            self.do(Crashes(broker))
            return [Restarts(broker)]
        if kind < 0.7:
            self.publish()
            self.do(DiskFails(storage, "power loss"), rng.randrange(2_000))
            return [Restarts(storage)]
        if kind < 0.76:
            self.do(Crashes(storage))
            self.do(DiskFails(storage, "lost"))
            return [Restarts(storage)]
        self.do(DiskFails(storage, rng.choice(("full", "full", "slow", "fail"))))
        return [DiskMends(storage)]

    def add_store(self) -> None:
        others = [broker for broker in self.topology.brokers if broker not in self.storages]
        if others and self.rng.random() < 0.5:
            self.do(GetsStore(self.rng.choice(others)))

    def end(self) -> None:
        self.do(Settles())
        for _ in range(BURST):
            self.do(PublishesStored(self.rng.choice(PUBLISHERS), self.attributes()), self.rng.randrange(200))
        self.do(Settles())


def storages_of(topology: Topology, seed: int) -> tuple[str, ...]:
    """The brokers that have a store in the run of this seed: one at least."""
    rng = random.Random(seed)
    count = min(len(topology.brokers), rng.choice((1, 2, 2, 3, 4)))
    return tuple(sorted(rng.sample(topology.brokers, count)))


def script_of(topology: Topology, seed: int, is_short: bool) -> Script:
    writer = _Writer(topology, storages_of(topology, seed), seed)
    churn = SHORT_CHURN_STEPS if is_short else CHURN_STEPS
    writer.arrive()
    writer.churn(churn)
    for _ in range(1 if is_short else 3):
        writer.faults(2, churn // 3)
        writer.add_store()
        writer.churn(churn // 2)
        writer.do(Settles())
    writer.end()
    return tuple(writer.steps)
