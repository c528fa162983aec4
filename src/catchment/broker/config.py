"""What a broker is told at its start: a TOML file, or nothing at all.

name = "north"
listen = "127.0.0.1:7400"
neighbors = ["127.0.0.1:7401", "catchment://south.example:7400"]
routing = "siena general"
costs = { "127.0.0.1:7401" = 3 }

[role]                      # of some routing systems
master = "south"            # siena hierarchical: the broker above; without one it is the root
center = "north"            # centralized: the broker that matches everything
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
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import LinkPolicy, Merging, MergingCore

DEFAULT_PORT: Final = 7400
DEFAULT_ROUTING: Final = "siena general"
CONFIG_BYTES_MAX: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`host:port`, `host`, or `catchment://host:port`."""
        host, colon, port = text.removeprefix("catchment://").rstrip("/").rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
            raise InputError(f"{shown(text)} is no address: write host:port, as in 127.0.0.1:{DEFAULT_PORT}")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Role:
    """What some routing systems have to know of a broker's place."""

    master: str | None = None
    center: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    name: str = "broker"
    listen: Address = field(default_factory=lambda: Address("127.0.0.1", DEFAULT_PORT))
    neighbors: tuple[Address, ...] = ()
    costs: Mapping[Address, int] = field(default_factory=dict)
    routing: str = DEFAULT_ROUTING
    role: Role = field(default_factory=Role)

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


ROUTINGS: Final[dict[str, Callable[[str, Role], RoutingCore]]] = {
    "siena general": lambda name, role: GeneralCore(name),
    "siena acyclic": lambda name, role: AcyclicCore(name),
    "siena hierarchical": lambda name, role: HierarchicalCore(name, role.master),
    "siena advertising": lambda name, role: AdvertisingCore(name),
    "siena delegating": lambda name, role: DelegatingCore(name),
    "siena merging": lambda name, role: MergingCore(AcyclicCore(name), LinkPolicy(Merging())),
    "flooding": lambda name, role: FloodingCore(name),
    "centralized": _centralized,
}


class _Table(Struct, forbid_unknown_fields=True):
    name: str | None = None
    listen: str | None = None
    neighbors: list[str] = []
    costs: dict[str, int] = {}
    routing: str | None = None
    role: dict[str, str] = {}


def read_config(path: Path) -> Config:
    """InputError says what is wrong with the file."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise InputError(f"{path} is too long: CONFIG_BYTES_MAX is {CONFIG_BYTES_MAX:,}")
        table = convert(tomllib.loads(path.read_text("utf-8")), _Table)
        role = convert(table.role, Role)
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as problem:
        raise InputError(f"{path}: {problem}") from None
    given = Config()
    return Config(
        table.name or given.name,
        given.listen if table.listen is None else Address.parse(table.listen),
        tuple(map(Address.parse, table.neighbors)),
        {Address.parse(text): cost for text, cost in table.costs.items()},
        table.routing or given.routing,
        role,
    )
