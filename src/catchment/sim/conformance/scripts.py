"""The scripts of the conformance suite: what clients do and which faults happen, from a seed.

A script is a list of steps, each a time to wait and something that a client or a fault does:

    arrive     clients come to brokers, subscribe and advertise
    churn      subscriptions and cancellations, roaming, suspension, publications, in no order
    probe      the network is left to settle; then everything published must reach everybody who wants it
    lose       a client falls behind while others publish, and catches up: it is told how many it has lost
    misask     clients ask for what no broker grants: each is refused
    watch      patterns are stated, and publications come one at a time: sequences must be those that somebody finds
               who sees them all
    fault      links are cut and brokers crash while the churn goes on; probe what is left of the network; all are
               healed while the churn goes on; probe again
    leave      all is cancelled; nothing may be left
"""

from __future__ import annotations

import random
from typing import Final, Literal, get_args

from msgspec import Struct

from catchment.model.values import Value
from catchment.routing.messages import Time
from catchment.sim.network import MILLISECOND
from catchment.sim.topology import Topology

CLIENTS: Final = 6
CHURN_STEPS: Final = 40
PROBES: Final = 12
# Of a short script.
SHORT_CHURN_STEPS: Final = 8
SHORT_PROBES: Final = 4
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


class FallsBehind(Struct, frozen=True):
    """The client reads nothing more: what it is due is lost, and its broker counts that."""

    client: str


class CatchesUp(Struct, frozen=True):
    """The client reads again, and is told how many it has lost."""

    client: str


Misdeed = Literal["a name that is too long", "a handler that is not there"]


class Misasks(Struct, frozen=True):
    """The client asks for what no broker grants."""

    client: str
    what: Misdeed


class Publishes(Struct, frozen=True):
    client: str
    attributes: tuple[tuple[str, Value], ...]


class Cuts(Struct, frozen=True):
    first: str
    second: str


class Heals(Struct, frozen=True):
    first: str
    second: str


class Crashes(Struct, frozen=True):
    broker: str


class Restarts(Struct, frozen=True):
    broker: str


class Settles(Struct, frozen=True):
    """Nothing under way; tables must be ideal, and empty if nobody wants anything. Publications until the next other
    step are expected to arrive."""


class Watches(Struct, frozen=True):
    """Patterns stated since the network was last settled are watched: each publication until the next other step is
    left to arrive before the next, and completes what it must."""


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
    | FallsBehind
    | CatchesUp
    | Misasks
    | Publishes
    | Cuts
    | Heals
    | Crashes
    | Restarts
    | Settles
    | Watches
)


class Step(Struct, frozen=True):
    """`after` is the time to wait before it."""

    after: Time
    doing: Doing


Script = tuple[Step, ...]


# --- writing ------------------------------------------------------------------------------------

# All values that publications have: few, so that filters cover and overlap one another.
PLACES: Final = ("north", "south", "east", "west")
KINDS: Final = ("alarm", "reading", "notice")
LEVELS: Final[tuple[int | float, ...]] = (*range(8), *(half / 2 for half in range(16)))


class _Writer:
    """Writes a script from a seed."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self.topology = topology
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.clients = [f"c{i}" for i in range(CLIENTS)]
        self.ids: dict[str, list[str]] = {client: [] for client in self.clients}
        self.next_id = 0
        self.probes = PROBES

    def do(self, doing: Doing, after: Time | None = None) -> None:
        self.steps.append(Step(self.rng.randrange(PAUSE_MAX) if after is None else after, doing))

    # --- vocabulary ---

    def filter(self) -> str:
        rng = self.rng
        parts = [
            f"place = '{rng.choice(PLACES)}'",
            f"level > {rng.randrange(5)}",
            f"level <= {rng.randrange(3, 8)}",
            f"kind >* '{rng.choice(('a', 'al', 're', 'n'))}'",
            "place any",
            f"kind in ('{rng.choice(KINDS)}', '{rng.choice(KINDS)}')",
            f"place != '{rng.choice(PLACES)}'",
        ]
        some = " and ".join(rng.sample(parts, rng.choice((1, 1, 2, 2, 3))))
        return some if rng.random() < 0.85 else f"{some} or {rng.choice(parts)}"

    def pattern(self) -> str:
        rng = self.rng
        steps = " -> ".join(f"[{self.filter()}]" for _ in range(rng.choice((2, 2, 3))))
        return steps + rng.choice(("", " within 1s", " within 30ms")) + rng.choice(("", "", " by place"))

    def advertisement(self) -> str:
        rng = self.rng
        parts = [
            "place any" if rng.random() < 0.5 else f"place = '{rng.choice(PLACES)}', place = '{rng.choice(PLACES)}'",
            f"level >= {rng.randrange(4)}" if rng.random() < 0.5 else "level any",
            "kind any" if rng.random() < 0.5 else f"kind = '{rng.choice(KINDS)}'",
        ]
        return ", ".join(parts)

    def attributes(self) -> tuple[tuple[str, Value], ...]:
        rng = self.rng
        attributes: dict[str, Value] = {
            "place": rng.choice(PLACES),
            "kind": rng.choice(KINDS),
            "level": rng.choice(LEVELS),
        }
        return tuple((name, value) for name, value in attributes.items() if rng.random() < 0.85)

    # --- phases ---

    def arrive(self) -> None:
        for client in self.clients:
            self.do(Connect(client, self.rng.choice(self.topology.brokers)))
            for _ in range(self.rng.randrange(3)):
                self.subscribe(client)
            for _ in range(self.rng.randrange(3)):
                self.do(Advertises(client, self.advertisement()))

    def subscribe(self, client: str, is_pattern: bool = False) -> None:
        id = f"{self.next_id}"
        self.next_id += 1
        self.ids[client].append(id)
        if is_pattern or self.rng.random() < 0.1:
            self.do(Subscribes(client, id, self.pattern(), True))
        else:
            self.do(Subscribes(client, id, self.filter()))

    def churn(self, count: int) -> None:
        for _ in range(count):
            self.change(self.rng.choice(self.clients))

    def change(self, client: str) -> None:
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
            self.roam(client)
        elif kind < 0.93:
            self.do(Disconnect(client))
        elif kind < 0.96:
            self.do(Advertises(client, self.advertisement()))
        elif kind < 0.97:
            self.do(Unadvertises(client, self.advertisement()))
        else:
            self.suspend(client)

    def roam(self, client: str) -> None:
        """A client goes to another broker, now and then while something is on its way that it had already, or wants."""
        if self.rng.random() < 0.5:
            self.do(Publishes(self.rng.choice(self.clients), self.attributes()))
        self.do(Connect(client, self.rng.choice(self.topology.brokers)), self.rng.randrange(2 * MILLISECOND))

    def suspend(self, client: str) -> None:
        """A client suspends while somebody publishes. Now and then nothing is under way then: all that it is due must
        have waited."""
        publisher = self.rng.choice(self.clients)
        is_settled = self.rng.random() < 0.5
        if is_settled:
            self.do(Settles())
        self.do(Suspends(client))
        if is_settled:
            self.do(Settles())
        for _ in range(4):
            self.do(Publishes(publisher, self.attributes()))
        self.do(Settles())
        self.do(Resumes(client))

    def lose(self) -> None:
        for client in self.rng.sample(self.clients, 2):
            self.do(Settles())
            self.do(FallsBehind(client))
            for _ in range(PROBES // 2):
                self.do(Publishes(self.rng.choice(self.clients), self.attributes()))
            self.do(CatchesUp(client))

    def misask(self) -> None:
        for what in get_args(Misdeed):
            self.do(Misasks(self.rng.choice(self.clients), what))

    def probe(self) -> None:
        self.do(Settles())
        for _ in range(self.probes):
            self.do(Publishes(self.rng.choice(self.clients), self.attributes()))
        self.do(Settles())

    def watch(self) -> None:
        self.do(Settles())
        for client in self.rng.sample(self.clients, 3):
            self.subscribe(client, is_pattern=True)
        self.do(Watches())
        for _ in range(2 * PROBES):
            self.do(Publishes(self.rng.choice(self.clients), self.attributes()))

    def faults(self, most: int = 3) -> None:
        cut: list[Cuts] = []
        down: list[str] = []
        for _ in range(1 + self.rng.randrange(most)):
            if self.topology.links and self.rng.random() < 0.6:
                link = self.rng.choice(self.topology.links)
                cut.append(Cuts(link.first, link.second))
                self.do(cut[-1])
            else:
                down.append(self.rng.choice(self.topology.brokers))
                self.do(Crashes(down[-1]))
            self.churn(CHURN_STEPS // 8)
        self.probe()
        for cuts in cut:
            self.do(Heals(cuts.first, cuts.second))
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
    writer.misask()
    writer.faults()
    writer.probe()
    writer.lose()
    writer.churn(CHURN_STEPS // 4)
    writer.probe()
    writer.watch()
    writer.leave()
    return tuple(writer.steps)


def short_script_of(topology: Topology, seed: int) -> Script:
    """Clients come, change their minds, lose a link or a broker, and leave: the phases in which most mistakes show, in
    a sixth of the time, so that tests can make hundreds of runs of each system."""
    writer = _Writer(topology, seed)
    writer.probes = SHORT_PROBES
    writer.arrive()
    writer.churn(SHORT_CHURN_STEPS)
    writer.faults(1)
    writer.churn(SHORT_CHURN_STEPS)
    writer.probe()
    writer.leave()
    return tuple(writer.steps)
