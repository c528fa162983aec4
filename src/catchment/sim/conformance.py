"""One suite for every routing core: random clients, churn, faults, and the checkers, all from a seed.

A run is a *script*: steps, each a time to wait and something that a client or a fault does. The script of a seed is

    arrive     clients come to brokers, subscribe and advertise
    churn      subscriptions and cancellations, roaming, suspension, publications, in no order
    probe      the network is left to settle; then everything published must reach everybody who wants it
    fault      links are cut and brokers crash while the churn goes on; probe what is left of the network; all are
               healed while the churn goes on; probe again
    leave      all is cancelled; nothing may be left

A core joins the suite by one entry in CORES: how to make it, which networks it is for, and what its tables should
be. A run that fails is shrunk to the steps that matter and says how to run it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from catchment.model.values import Value
from catchment.routing.baselines import FloodingCore
from catchment.routing.messages import Time
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.sim.ideal import acyclic_tables, advertising_tables, general_tables, hierarchical_tables, no_tables
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.simulation import MakeCore, Simulation
from catchment.sim.topology import Topology, balanced_tree, line, mesh, random_network, random_tree, ring, star

# A run of the suite takes some hundred; one that takes so many loops.
RUN_OCCURRENCES_MAX: Final = 20_000
CLIENTS: Final = 6
CHURN_STEPS: Final = 40
PROBES: Final = 12
# Between two steps at most so long, some of the links' delays: things happen while others are under way.
PAUSE_MAX: Final = 8 * MILLISECOND


# --- steps --------------------------------------------------------------------------------------


class Connect(Struct, frozen=True):
    client: str
    broker: str


class Disconnect(Struct, frozen=True):
    client: str


class Subscribes(Struct, frozen=True):
    client: str
    id: str
    wanted: str
    is_pattern: bool = False


class Cancels(Struct, frozen=True):
    client: str
    id: str


class Unsubscribes(Struct, frozen=True):
    client: str
    filter: str


class Advertises(Struct, frozen=True):
    client: str
    advertisement: str


class Unadvertises(Struct, frozen=True):
    client: str
    advertisement: str


class Suspends(Struct, frozen=True):
    client: str


class Resumes(Struct, frozen=True):
    client: str


class Publishes(Struct, frozen=True):
    client: str
    attributes: tuple[tuple[str, Value], ...]


class Cuts(Struct, frozen=True):
    one: str
    other: str


class Heals(Struct, frozen=True):
    one: str
    other: str


class Crashes(Struct, frozen=True):
    broker: str


class Restarts(Struct, frozen=True):
    broker: str


class Settles(Struct, frozen=True):
    """Nothing under way; tables must be ideal, and empty if nobody wants anything. Publications until the next other
    step are expected to arrive."""


Doing = (
    Connect
    | Disconnect
    | Subscribes
    | Cancels
    | Unsubscribes
    | Advertises
    | Unadvertises
    | Suspends
    | Resumes
    | Publishes
    | Cuts
    | Heals
    | Crashes
    | Restarts
    | Settles
)


class Step(Struct, frozen=True):
    """`after` is the time to wait before it."""

    after: Time
    doing: Doing


Script = tuple[Step, ...]


# --- cores --------------------------------------------------------------------------------------

MakeCores = Callable[[Topology], MakeCore]
# What is wrong with the tables of a settled network.
Tables = Callable[[Simulation], Iterator[str]]


@dataclass(frozen=True)
class Core:
    """A routing system in the suite."""

    make: MakeCores
    networks: tuple[str, ...]
    tables: Tables
    # Publications that were not advertised are refused.
    needs_advertisements: bool = False

    @property
    def needs_tree(self) -> bool:
        """Whether it is for networks without cycles alone."""
        return set(self.networks) <= set(TREES)


def _acyclic(topology: Topology) -> MakeCore:
    return AcyclicCore


def _hierarchical(topology: Topology) -> MakeCore:
    masters = topology.masters()
    return lambda broker: HierarchicalCore(broker, masters[broker])


def _general(topology: Topology) -> MakeCore:
    return GeneralCore


def _advertising(topology: Topology) -> MakeCore:
    return AdvertisingCore


def _flooding(topology: Topology) -> MakeCore:
    return FloodingCore


TREES: Final = ("line", "star", "balanced tree", "random tree")
ANY_NETWORK: Final = ("random tree", "ring", "mesh", "random network")
CORES: Final[dict[str, Core]] = {
    "siena acyclic": Core(_acyclic, TREES, acyclic_tables),
    "siena hierarchical": Core(_hierarchical, TREES, hierarchical_tables),
    "siena advertising": Core(_advertising, TREES, advertising_tables, needs_advertisements=True),
    "flooding": Core(_flooding, ANY_NETWORK, no_tables),
    "siena general": Core(_general, ANY_NETWORK, general_tables),
}
NETWORKS: Final[dict[str, Callable[[int], Topology]]] = {
    "line": lambda seed: line(2 + seed % 4),
    "star": lambda seed: star(3 + seed % 4),
    "balanced tree": lambda seed: balanced_tree(3 + seed % 7),
    "random tree": lambda seed: random_tree(2 + seed % 9, seed),
    "ring": lambda seed: ring(3 + seed % 6),
    "mesh": lambda seed: mesh(3 + seed % 3),
    "random network": lambda seed: random_network(4 + seed % 7, seed, 1 + seed % 5),
}
QUALITIES: Final = (
    Quality(),
    Quality(jitter_us=2 * MILLISECOND),
    Quality(jitter_us=3 * MILLISECOND, loss_share=0.2, duplicate_share=0.1),
)


@dataclass(frozen=True)
class Run:
    """One run of the suite."""

    core: str
    network: str
    seed: int

    @property
    def command(self) -> str:
        return f"./dev soak --core '{self.core}' --network '{self.network}' --seed {self.seed}"


def all_runs(seeds: Sequence[int]) -> list[Run]:
    return [Run(name, network, seed) for seed in seeds for name, core in CORES.items() for network in core.networks]


# --- scripts ------------------------------------------------------------------------------------

_PLACES: Final = ("north", "south", "east", "west")
_KINDS: Final = ("alarm", "reading", "notice")


class _Writer:
    """Writes a script from a seed."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self.topology = topology
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.clients = [f"c{i}" for i in range(CLIENTS)]
        self.ids: dict[str, list[str]] = {one: [] for one in self.clients}
        self.suspended: set[str] = set()
        self.next_id = 0

    def do(self, doing: Doing, after: Time | None = None) -> None:
        self.steps.append(Step(self.rng.randrange(PAUSE_MAX) if after is None else after, doing))

    # --- vocabulary: few names and values, so that filters cover and overlap one another ---

    def filter(self) -> str:
        rng = self.rng
        parts = [
            f"place = '{rng.choice(_PLACES)}'",
            f"level > {rng.randrange(5)}",
            f"level <= {rng.randrange(3, 8)}",
            f"kind >* '{rng.choice(('a', 'al', 're', 'n'))}'",
            "place any",
            f"kind in ('{rng.choice(_KINDS)}', '{rng.choice(_KINDS)}')",
            f"place != '{rng.choice(_PLACES)}'",
        ]
        some = " and ".join(rng.sample(parts, rng.choice((1, 1, 2, 2, 3))))
        return some if rng.random() < 0.85 else f"{some} or {rng.choice(parts)}"

    def advertisement(self) -> str:
        rng = self.rng
        parts = [
            "place any" if rng.random() < 0.5 else f"place = '{rng.choice(_PLACES)}', place = '{rng.choice(_PLACES)}'",
            f"level >= {rng.randrange(4)}" if rng.random() < 0.5 else "level any",
            "kind any" if rng.random() < 0.5 else f"kind = '{rng.choice(_KINDS)}'",
        ]
        return ", ".join(parts)

    def attributes(self) -> tuple[tuple[str, Value], ...]:
        rng = self.rng
        found: dict[str, Value] = {
            "place": rng.choice(_PLACES),
            "kind": rng.choice(_KINDS),
            "level": rng.choice((rng.randrange(8), rng.randrange(16) / 2)),
        }
        return tuple((name, value) for name, value in found.items() if rng.random() < 0.85)

    # --- phases ---

    def arrive(self) -> None:
        for client in self.clients:
            self.do(Connect(client, self.rng.choice(self.topology.brokers)))
            for _ in range(self.rng.randrange(3)):
                self.subscribe(client)
            for _ in range(self.rng.randrange(3)):
                self.do(Advertises(client, self.advertisement()))

    def subscribe(self, client: str) -> None:
        id = f"{self.next_id}"
        self.next_id += 1
        self.ids[client].append(id)
        if self.rng.random() < 0.1:
            self.do(Subscribes(client, id, f"[{self.filter()}] -> [{self.filter()}] within 1s", True))
        else:
            self.do(Subscribes(client, id, self.filter()))

    def churn(self, count: int) -> None:
        for _ in range(count):
            self.one_change(self.rng.choice(self.clients))

    def one_change(self, client: str) -> None:
        kind = self.rng.random()
        if kind < 0.35:
            self.do(Publishes(client, self.attributes()))
        elif kind < 0.6:
            self.subscribe(client)
        elif kind < 0.75 and self.ids[client]:
            self.do(Cancels(client, self.ids[client].pop(self.rng.randrange(len(self.ids[client])))))
        elif kind < 0.8:
            self.do(Unsubscribes(client, self.filter()))
        elif kind < 0.9:
            self.do(Connect(client, self.rng.choice(self.topology.brokers)))
        elif kind < 0.93:
            self.do(Disconnect(client))
        elif kind < 0.96:
            self.do(Advertises(client, self.advertisement()))
        elif kind < 0.97:
            self.do(Unadvertises(client, self.advertisement()))
        else:
            self.suspension(client)

    def suspension(self, client: str) -> None:
        """A client suspends while somebody publishes."""
        publisher = self.rng.choice(self.clients)
        self.do(Suspends(client))
        for _ in range(4):
            self.do(Publishes(publisher, self.attributes()))
        self.do(Settles())
        self.do(Resumes(client))

    def probe(self) -> None:
        self.do(Settles())
        for _ in range(PROBES):
            self.do(Publishes(self.rng.choice(self.clients), self.attributes()))
        self.do(Settles())

    def faults(self) -> None:
        cut: list[Cuts] = []
        down: list[str] = []
        for _ in range(1 + self.rng.randrange(3)):
            if self.topology.links and self.rng.random() < 0.6:
                link = self.rng.choice(self.topology.links)
                cut.append(Cuts(link.one, link.other))
                self.do(cut[-1])
            else:
                down.append(self.rng.choice(self.topology.brokers))
                self.do(Crashes(down[-1]))
            self.churn(CHURN_STEPS // 8)
        self.probe()
        for one in cut:
            self.do(Heals(one.one, one.other))
        for broker in down:
            self.do(Restarts(broker))
            self.churn(2)

    def leave(self) -> None:
        for client in self.clients:
            self.do(Unsubscribes(client, "true"))
            for id in self.ids[client]:
                self.do(Cancels(client, id))
        self.do(Settles())


def script_of(topology: Topology, seed: int) -> Script:
    writer = _Writer(topology, seed)
    writer.arrive()
    writer.churn(CHURN_STEPS)
    writer.probe()
    writer.faults()
    writer.probe()
    writer.churn(CHURN_STEPS // 4)
    writer.probe()
    writer.leave()
    return tuple(writer.steps)
