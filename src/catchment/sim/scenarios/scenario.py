"""Scenarios: a network, a routing system, clients and how they behave, faults. From a file in any of three notations.

TOML, our own:

    seed = 1
    core = "siena acyclic"            # one of the conformance suite's
    network = "transit-stub 100"      # or line, star, ring, mesh, tree 31, grid 4x5, backbone, random 20, file net.toml
    links = { delay_ms = 1, loss = 0.0, jitter_ms = 0 }   # merging = "perfect" or a share, batch_ms = 5

    [[units]]                         # of a hybrid, instead of a network: `sim/hybrid.py`
    name = "east"                     # its brokers are east.0, east.1, …
    kind = "hierarchical"             # or acyclic, general, advertising
    network = "tree 7"
    gateway = "net.2"                 # its first broker, which is one of an earlier unit; all but the first have one
    root = "east.3"                   # of a hierarchy, if that is not its first broker

    [[publishers]]
    count = 10
    advertises = "event any"          # may be left out
    attributes = { event = "A", level = { from = 0, to = 20 }, place = { one_of = ["north", "south"] } }
    publications = 10                 # in each cycle
    period_ms = [2000, 2500]          # the mean of each publisher's pauses is drawn from this range
    cycles = 10
    start_s = 0.0                     # and stop_s, if it stops by the clock
    roams_every_s = 30.0              # it moves to another broker so often; subscribers may too

    [[subscribers]]
    count = 100
    filters = ["event = 'A'"]         # each subscriber takes one
    patterns = []                     # of these too: "[event = 'A'] -> [event = 'B'] within 5s by place"
    notifications = 10                # received, then it unsubscribes and begins its next cycle
    cycles = 10

    [[faults]]
    at_s = 5.0
    cut = ["03", "07"]                # or heal = [...], crash = "03", restart = "03"

The notations of the texts (`notations.py`): SIENA's Figure 25 and the filter-propagation text's Figure 4.2.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, ValidationError, convert

from catchment.errors import CatchmentError, InputError, shown
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.measure import Distribution, Spread, choice, even
from catchment.model.values import Value
from catchment.routing.core import RoutingCore
from catchment.routing.siena.base import SienaCore
from catchment.routing.siena.gateway import Kind
from catchment.routing.siena.merging import LinkPolicy, Merging, MergingCore
from catchment.sim.conformance.entries import CORES
from catchment.sim.hybrid import Plan, clusters_in_acyclic, hierarchies_in_general, hybrid
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.simulation import MakeCore
from catchment.sim.topology import (
    Link,
    Topology,
    backbone,
    balanced_tree,
    grid,
    line,
    mesh,
    random_network,
    ring,
    star,
    transit_stub_of,
)

SCENARIO_BYTES_MAX: Final = 1_048_576
CLIENTS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value that is drawn for each notification: from a range, or one of some."""

    low: float = 0.0
    high: float = 0.0
    one_of: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Publishers:
    count: int
    attributes: Mapping[str, Value | Drawn]
    advertises: Advertisement | None = None
    publications: int = 10
    period_ms: tuple[float, float] = (1_000.0, 1_000.0)
    cycles: int = 1
    start_s: float = 0.0
    stop_s: float | None = None
    # They move to another broker so often.
    roams_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Subscribers:
    """`notifications` is None for those who stay until `stop_s`, or for ever."""

    count: int
    filters: tuple[Filter | Pattern, ...]
    notifications: int | None = None
    cycles: int = 1
    start_s: float = 0.0
    stop_s: float | None = None
    roams_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: str
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
    core: str
    network: str
    seed: int = 1
    quality: Quality = field(default_factory=Quality)
    publishers: tuple[Publishers, ...] = ()
    subscribers: tuple[Subscribers, ...] = ()
    faults: tuple[Fault, ...] = ()
    stop_s: float | None = None
    # What may be let through that nobody asked for, as a share; 0 merges perfectly, None does not.
    merging: float | None = None
    batch_ms: float = 0.0
    # Of a hybrid: then `network` only describes it.
    units: tuple[UnitOf, ...] = ()

    def __post_init__(self) -> None:
        if self.core not in CORES:
            raise InputError(f"there is no core {shown(self.core)}: use one of {', '.join(CORES)}")
        if (self.merging is not None or self.batch_ms) and not CORES[self.core].can_merge:
            able = ", ".join(name for name, core in CORES.items() if core.can_merge)
            raise InputError(f"{self.core} cannot merge or batch what it says over links: use one of {able}")
        if self.merging is not None and not 0 <= self.merging < 1:
            raise InputError(f"merging is a share from 0 to less than 1, found {self.merging}")
        clients = sum(one.count for one in self.publishers) + sum(one.count for one in self.subscribers)
        if clients > CLIENTS_MAX:
            raise InputError(f"CLIENTS_MAX is {CLIENTS_MAX:,}, the scenario has {clients:,}")

    def topology(self, directory: Path | None = None) -> Topology:
        """The network; without its redundant links where the core is for networks without cycles."""
        where = directory or Path()
        if self.units:
            found: Topology = hybrid([one.plan(self.seed, where) for one in self.units])
        else:
            found = network_named(self.network, self.seed, where)
        return found.spanning_tree() if CORES[self.core].needs_tree else found

    def make_core(self, topology: Topology) -> MakeCore:
        """What makes the cores of brokers, with what is said over links merged as the scenario says."""
        make = CORES[self.core].make(topology)
        if self.merging is None and not self.batch_ms:
            return make
        merging = None if self.merging is None else Merging(self.merging, self.distribution)
        policy = LinkPolicy(merging, round(self.batch_ms * MILLISECOND))

        def make_merging(broker: str) -> RoutingCore:
            inner = make(broker)
            assert isinstance(inner, SienaCore)
            return MergingCore(inner, policy)

        return make_merging

    @property
    def distribution(self) -> Distribution:
        """How the attributes are spread that all publishers draw alike."""
        drawn: dict[str, set[Value | Drawn]] = {}
        for one in self.publishers:
            for name, value in one.attributes.items():
                drawn.setdefault(name, set()).add(value)
        alike = {name: next(iter(values)) for name, values in drawn.items() if len(values) == 1}
        return Distribution({name: _spread(value) for name, value in alike.items()})


def _spread(value: Value | Drawn) -> Spread:
    if not isinstance(value, Drawn):
        return choice({value: 1.0})
    return choice(dict.fromkeys(value.one_of, 1.0)) if value.one_of else even(value.low, value.high)


# --- networks -----------------------------------------------------------------------------------

_COUNTED: Final = {
    "line": line,
    "star": star,
    "ring": ring,
    "mesh": mesh,
    "tree": balanced_tree,
}


def network_named(text: str, seed: int, directory: Path) -> Topology:
    """`ring 12`, `grid 4x5`, `transit-stub 100`, `backbone`, `clusters-in-acyclic 3x4`, `file net.toml`, …"""
    kind, _, rest = text.strip().partition(" ")
    try:
        if kind in _COUNTED:
            return _COUNTED[kind](int(rest))
        match kind:
            case "grid":
                columns, _, rows = rest.partition("x")
                return grid(int(columns), int(rows))
            case "hierarchies-in-general" | "clusters-in-acyclic":
                count, _, size = rest.partition("x")
                build = hierarchies_in_general if kind == "hierarchies-in-general" else clusters_in_acyclic
                return build(int(count), int(size), seed)
            case "transit-stub":
                return transit_stub_of(int(rest), seed)
            case "random":
                return random_network(int(rest), seed, int(rest) // 2)
            case "backbone":
                return backbone(seed)
            case "file":
                return network_file(directory / rest)
    except ValueError as problem:
        if isinstance(problem, CatchmentError):
            raise
        raise InputError(f"network {shown(text)}: {kind} needs a number, as in `ring 12` or `grid 4x5`") from None
    others = "grid transit-stub random backbone hierarchies-in-general clusters-in-acyclic file"
    known = ", ".join([*_COUNTED, *others.split()])
    raise InputError(f"network {shown(text)}: use one of {known}")


def network_file(path: Path) -> Topology:
    """`links = [["a", "b", 3], …]`: two names, and a cost if it is not 1."""
    found = _toml(path).get("links")
    if not isinstance(found, list) or not all(_is_link(one) for one in found):
        raise InputError(f"{path} is no network: it has links = [[name, name, cost], …]")
    links = [Link(min(one[:2]), max(one[:2]), *(int(cost) for cost in one[2:])) for one in found]
    return Topology(tuple(sorted({name for link in links for name in (link.one, link.other)})), tuple(sorted(links)))


def _is_link(found: object) -> bool:
    if not isinstance(found, list) or len(found) not in (2, 3):
        return False
    return all(isinstance(one, str) for one in found[:2]) and all(isinstance(one, int) for one in found[2:])


# --- TOML ---------------------------------------------------------------------------------------


class _LinksTable(Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: float = 1.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicates: float = 0.0
    reordered: float = 0.0
    transport: str = "stream"
    merging: Literal["none", "perfect"] | float = "none"
    batch_ms: float = 0.0


class _PublishersTable(Struct, forbid_unknown_fields=True):
    attributes: dict[str, Any]
    count: int = 1
    advertises: str | None = None
    publications: int = 10
    period_ms: tuple[float, float] = (1_000.0, 1_000.0)
    cycles: int = 1
    start_s: float = 0.0
    stop_s: float | None = None
    roams_every_s: Annotated[float, Meta(gt=0)] | None = None


class _SubscribersTable(Struct, forbid_unknown_fields=True):
    filters: list[str] = []
    patterns: list[str] = []
    count: int = 1
    notifications: int | None = None
    cycles: int = 1
    start_s: float = 0.0
    stop_s: float | None = None
    roams_every_s: Annotated[float, Meta(gt=0)] | None = None


class _FaultTable(Struct, forbid_unknown_fields=True):
    at_s: float
    cut: tuple[str, str] | None = None
    heal: tuple[str, str] | None = None
    crash: str | None = None
    restart: str | None = None


class _UnitTable(Struct, forbid_unknown_fields=True):
    name: str
    kind: Kind
    network: str
    gateway: str | None = None
    root: str | None = None


class _ScenarioTable(Struct, forbid_unknown_fields=True):
    network: str | None = None
    core: str = "siena general"
    seed: int = 1
    links: _LinksTable = _LinksTable()
    publishers: list[_PublishersTable] = []
    subscribers: list[_SubscribersTable] = []
    faults: list[_FaultTable] = []
    units: list[_UnitTable] = []
    stop_s: float | None = None


def _toml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > SCENARIO_BYTES_MAX:
            raise InputError(f"{path} is too long: SCENARIO_BYTES_MAX is {SCENARIO_BYTES_MAX:,}")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: {problem}") from None


def scenario_from_toml(path: Path) -> Scenario:
    """A scenario in our own notation; InputError says what is wrong with it."""
    try:
        table = convert(_toml(path), _ScenarioTable)
    except ValidationError as problem:
        raise InputError(f"{path}: {problem}") from None
    if (table.network is None) != bool(table.units):
        raise InputError(f"{path} has a network, or units")
    links = table.links
    quality = Quality(
        max(1, round(links.delay_ms * MILLISECOND)),
        round(links.jitter_ms * MILLISECOND),
        links.loss,
        links.duplicates,
        links.reordered,
        "datagram" if links.transport == "datagram" else "stream",
    )
    return Scenario(
        core=table.core,
        network=table.network or f"hybrid of {len(table.units)} units",
        seed=table.seed,
        quality=quality,
        publishers=tuple(map(_publishers, table.publishers)),
        subscribers=tuple(map(_subscribers, table.subscribers)),
        faults=tuple(map(_fault, table.faults)),
        stop_s=table.stop_s,
        merging=merging_share(links.merging),
        batch_ms=links.batch_ms,
        units=tuple(UnitOf(one.name, one.kind, one.network, one.gateway, one.root) for one in table.units),
    )


def merging_share(found: str | float) -> float | None:
    """As it is written: none, perfect, or a share."""
    if isinstance(found, str):
        named = {"none": None, "perfect": 0.0}
        if found not in named:
            raise InputError(f"merging is none, perfect or a share such as 0.2, found {shown(found)}")
        return named[found]
    return found


def _publishers(table: _PublishersTable) -> Publishers:
    return Publishers(
        table.count,
        {name: _attribute(name, value) for name, value in table.attributes.items()},
        None if table.advertises is None else Advertisement(table.advertises),
        table.publications,
        table.period_ms,
        table.cycles,
        table.start_s,
        table.stop_s,
        table.roams_every_s,
    )


def _attribute(name: str, value: Any) -> Value | Drawn:
    if not isinstance(value, dict):
        found: Value = value
        return found
    if set(value) == {"from", "to"}:
        return Drawn(float(value["from"]), float(value["to"]))
    if set(value) == {"one_of"} and value["one_of"]:
        return Drawn(one_of=tuple(value["one_of"]))
    raise InputError(f"attribute {shown(name)}: a value, {{ from = 0, to = 20 }}, or {{ one_of = [...] }}")


def _subscribers(table: _SubscribersTable) -> Subscribers:
    wanted: tuple[Filter | Pattern, ...] = (*map(Filter, table.filters), *map(Pattern, table.patterns))
    if not wanted:
        raise InputError("subscribers have filters or patterns")
    return Subscribers(
        table.count, wanted, table.notifications, table.cycles, table.start_s, table.stop_s, table.roams_every_s
    )


def _fault(table: _FaultTable) -> Fault:
    given: dict[str, tuple[str, ...]] = {}
    for kind in ("cut", "heal", "crash", "restart"):
        names = getattr(table, kind)
        if names is not None:
            given[kind] = (names,) if isinstance(names, str) else names
    if len(given) != 1:
        raise InputError(f"the fault at {table.at_s} s is one of cut, heal, crash and restart")
    ((kind, names),) = given.items()
    return Fault(table.at_s, kind, names)
