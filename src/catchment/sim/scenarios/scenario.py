"""What a scenario says: a network, a routing system with settings, clients and how they behave, changes, faults.

`toml.py` and `notations.py` read scenarios from files. `ready.py` fits a scenario to its network, `play.py` plays it.

Clients come in groups (`groups.py`). A group without a name is called by its kind and place: the first group of
publishers is `p0`, the second `p1`, and groups of subscribers are `s0`, `s1`, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from catchment.errors import InputError, shown
from catchment.routing.siena.settings import Kind
from catchment.sim.conformance.entries import Entry, entry_of
from catchment.sim.hybrid import Plan, hybrid
from catchment.sim.network import Quality
from catchment.sim.scenarios.groups import Publishers, Subscribers
from catchment.sim.scenarios.networks import network_named
from catchment.sim.scenarios.settings import check_settings
from catchment.sim.topology import Topology

CLIENTS_MAX: Final = 1_000_000

# Each is a method of `Simulation`, which is called with the identity of a client and the arguments of the change.
ChangeKind = Literal[
    "subscribe", "cancel", "unsubscribe", "advertise", "unadvertise", "connect", "disconnect", "suspend", "resume"
]
FaultKind = Literal["cut", "heal", "crash", "restart"]
CHANGE_KINDS: Final[tuple[ChangeKind, ...]] = get_args(ChangeKind)
FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)


@dataclass(frozen=True, slots=True)
class Change:
    """What a client does at a time, or all clients of a group."""

    at_s: float
    client: str
    kind: ChangeKind
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A link that is cut or healed, by the names of its ends; a broker that crashes or restarts."""

    at_s: float
    kind: FaultKind
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitOf:
    """A unit of a hybrid: `Plan`, with its network as written."""

    name: str
    kind: Kind
    network: str
    gateway: str | None = None
    root: str | None = None

    def plan(self, seed: int, directory: Path) -> Plan:
        network = network_named(self.network, seed, directory)
        return Plan(self.name, self.kind, network, self.gateway, self.root)


@dataclass(frozen=True, slots=True)
class Scenario:
    routing: str
    # If there are units, this only describes them.
    network: str
    seed: int = 1
    # Of the routing system, as they are written in a file, for all brokers.
    settings: Mapping[str, Any] = field(default_factory=dict)
    quality: Quality = field(default_factory=Quality)
    publishers: tuple[Publishers, ...] = ()
    subscribers: tuple[Subscribers, ...] = ()
    changes: tuple[Change, ...] = ()
    faults: tuple[Fault, ...] = ()
    units: tuple[UnitOf, ...] = ()
    stop_s: float | None = None
    # Measures begin at this time.
    warm_up_s: float = 0.0
    sample_every_s: float | None = None
    # When tables are dumped, if they are; at the end if there is none.
    dump_at_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self.routing, self.settings)
        clients = sum(group.count for group in self.groups())
        if clients > CLIENTS_MAX:
            raise InputError(f"CLIENTS_MAX is {CLIENTS_MAX:,}, the scenario has {clients:,}")
        identities = [identity for identity, _ in self.clients()]
        if len(set(identities)) < clients:
            twice = next(name for name, count in Counter(identities).items() if count > 1)
            raise InputError(f"two clients are named {shown(twice)}: give their tables other names")
        if self.stop_s is not None and self.warm_up_s >= self.stop_s:
            raise InputError(f"warm_up_s is {self.warm_up_s}, and the run stops at {self.stop_s}: stop it later")
        self.clients_by_name(change.client for change in self.changes)

    # --- clients ---

    def groups(self) -> Iterator[Publishers | Subscribers]:
        yield from self.publishers
        yield from self.subscribers

    def named_groups(self) -> Iterator[tuple[str, Publishers | Subscribers]]:
        """Each group with the name that it has, or that stands in for one."""
        yield from ((group.name or f"p{number}", group) for number, group in enumerate(self.publishers))
        yield from ((group.name or f"s{number}", group) for number, group in enumerate(self.subscribers))

    def clients(self) -> Iterator[tuple[str, Publishers | Subscribers]]:
        """Each client, by its identity, with its group."""
        for name, group in self.named_groups():
            yield from ((identity, group) for identity in group.identities(name))

    def clients_by_name(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Whom each name means: a client, or all clients of a group. InputError if it means nobody."""
        asked = list(names)
        if not asked:
            # Most scenarios name nobody, and some have a million clients.
            return {}
        meant: dict[str, tuple[str, ...]] = {identity: (identity,) for identity, _ in self.clients()}
        meant |= {name: tuple(group.identities(name)) for name, group in self.named_groups()}
        named: dict[str, tuple[str, ...]] = {}
        for name in asked:
            if name not in meant:
                groups = ", ".join(name for name, _ in self.named_groups()) or "none"
                raise InputError(f"[[changes]]: there is no client {shown(name)}; the groups of clients are {groups}")
            named[name] = meant[name]
        return named

    # --- network ---

    @property
    def entry(self) -> Entry:
        return entry_of(self.routing)

    def whole_network(self, directory: Path | None = None) -> Topology:
        """With all links, whatever the routing system needs."""
        where = directory or Path()
        if self.units:
            return hybrid([unit.plan(self.seed, where) for unit in self.units])
        return network_named(self.network, self.seed, where)

    def topology(self, directory: Path | None = None) -> Topology:
        """The network; without its redundant links if the routing system is for networks without cycles."""
        whole = self.whole_network(directory)
        return whole.spanning_tree() if self.entry.needs_tree else whole
