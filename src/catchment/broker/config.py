"""What a broker is told at its start: a TOML file, or nothing at all.

name = "north"
listen = "127.0.0.1:7400"
http = "127.0.0.1:7480"     # the same for HTTP; without it there is none
neighbors = ["127.0.0.1:7401", "catchment://south.example:7400"]
routing = "siena general"
costs = { "127.0.0.1:7401" = 3 }

[role]                      # of some routing systems
master = "south"            # siena hierarchical: the broker above; without one it is the root
center = "north"            # centralized: the broker that matches everything
merging_share_max = 0.3     # siena merging: the share nobody asked for of what merged filters may let through
batch_ms = 5                # siena merging: how long changes wait to go together

[[role.units]]              # siena hybrid: each unit that the broker is in; in more than one it is a gateway
unit = "east"
kind = "hierarchical"       # or acyclic, general; advertising where all units are
neighbors = ["e1", "e2"]    # its neighbors in that unit, by name
master = "e1"               # of a hierarchy: the broker above
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct, ValidationError, convert

from catchment.errors import InputError, shown
from catchment.routing.baselines import CentralizedCore, FloodingCore
from catchment.routing.core import RoutingCore
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.gateway import Kind, Membership, hybrid_core
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import LinkPolicy, Merging, MergingCore

DEFAULT_PORT: Final = 7400
DEFAULT_HTTP_PORT: Final = 7480
DEFAULT_ROUTING: Final = "siena general"
CONFIG_BYTES_MAX: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int = DEFAULT_PORT) -> Address:
        """`host:port`, `host`, or `catchment://host:port`."""
        host, colon, port = text.removeprefix("catchment://").rstrip("/").rpartition(":")
        if not colon:
            host, port = port, str(default_port)
        if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
            raise InputError(f"{shown(text)} is no address: write host:port, as in 127.0.0.1:{default_port}")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unit(Struct, frozen=True, forbid_unknown_fields=True):
    """A unit of a hybrid network that the broker is in."""

    unit: str
    kind: Kind
    neighbors: frozenset[str]
    master: str | None = None


class Role(Struct, frozen=True, forbid_unknown_fields=True):
    """What some routing systems have to know of a broker's place, and of how it is to talk."""

    master: str | None = None
    center: str | None = None
    merging_share_max: float = 0.0
    batch_ms: float = 0.0
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    name: str = "broker"
    listen: Address = field(default_factory=lambda: Address("127.0.0.1", DEFAULT_PORT))
    neighbors: tuple[Address, ...] = ()
    costs: Mapping[Address, int] = field(default_factory=dict)
    routing: str = DEFAULT_ROUTING
    role: Role = field(default_factory=Role)
    http: Address | None = None

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise InputError(f"there is no routing system {shown(self.routing)}: use one of {', '.join(ROUTINGS)}")
        if not self.name or self.name.startswith("@") or self.name == "*":
            raise InputError(f"{shown(self.name)} cannot be a broker's name")

    def make_core(self) -> RoutingCore:
        return ROUTINGS[self.routing](self.name, self.role)


def _centralized(name: str, role: Role) -> RoutingCore:
    if role.center is None:
        raise InputError("centralized routing needs a center: write [role] center = the name of a broker")
    return CentralizedCore(name, role.center)


def _hybrid(name: str, role: Role) -> RoutingCore:
    if not role.units:
        raise InputError("hybrid routing needs units: write [[role.units]] for each that the broker is in")
    return hybrid_core(name, [Membership(one.unit, one.kind, one.neighbors, one.master) for one in role.units])


def _policy(role: Role) -> LinkPolicy:
    if not 0 <= role.merging_share_max <= 1 or role.batch_ms < 0:
        raise InputError("merging_share_max lies between 0 and 1, batch_ms is not negative")
    return LinkPolicy(Merging(role.merging_share_max), batch=round(role.batch_ms * 1_000))


ROUTINGS: Final[dict[str, Callable[[str, Role], RoutingCore]]] = {
    "siena general": lambda name, role: GeneralCore(name),
    "siena acyclic": lambda name, role: AcyclicCore(name),
    "siena hierarchical": lambda name, role: HierarchicalCore(name, role.master),
    "siena advertising": lambda name, role: AdvertisingCore(name),
    "siena delegating": lambda name, role: DelegatingCore(name),
    "siena merging": lambda name, role: MergingCore(AcyclicCore(name), _policy(role)),
    "siena merging advertising": lambda name, role: MergingCore(AdvertisingCore(name), _policy(role)),
    "siena hybrid": _hybrid,
    "flooding": lambda name, role: FloodingCore(name),
    "centralized": _centralized,
}


class _Table(Struct, forbid_unknown_fields=True):
    name: str | None = None
    listen: str | None = None
    neighbors: list[str] = []
    costs: dict[str, int] = {}
    routing: str | None = None
    role: Role = Role()
    http: str | None = None


def read_config(path: Path) -> Config:
    """InputError says what is wrong with the file."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise InputError(f"{path} is too long: CONFIG_BYTES_MAX is {CONFIG_BYTES_MAX:,}")
        table = convert(tomllib.loads(path.read_text("utf-8")), _Table)
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as problem:
        raise InputError(f"{path}: {problem}") from None
    given = Config()
    return Config(
        given.name if table.name is None else table.name,
        given.listen if table.listen is None else Address.parse(table.listen),
        tuple(map(Address.parse, table.neighbors)),
        {Address.parse(text): cost for text, cost in table.costs.items()},
        given.routing if table.routing is None else table.routing,
        table.role,
        None if table.http is None else Address.parse(table.http, DEFAULT_HTTP_PORT),
    )
