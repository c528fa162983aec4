"""What a broker is told at its start: a TOML file, or nothing at all.

name = "north"
listen = "127.0.0.1:7400"
http = "127.0.0.1:7480"     # the same for HTTP; without it there is none
allowed_hosts = ["broker.example"]   # names of this broker over HTTP, besides its address and localhost
neighbors = ["127.0.0.1:7401", "catchment://south.example:7400"]
routing = "siena general"
costs = { "127.0.0.1:7401" = 3 }

[store]
url = "north.db"            # a path, sqlite:///path or postgresql://…: then this broker is a storage
storage = "south"           # instead of a url: the broker that keeps what is published here. Default: the nearest
keep_days = 7               # drop what is older, taken or not, and tell whoever was due; default: nothing is dropped
bytes_max = 10_000_000_000  # the same for what is more
retain_days = 1             # keep what everybody has taken for so long, so that subscribers can go back to it

[webhooks]
allow = ["10.0.0.0/8"]      # where webhooks may go besides public addresses: `webhook_settings.py`

[settings]                  # of the routing system, if it has any: `routing/systems.py`
master = "south"            # siena hierarchical: the broker above; without one it is the root
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, convert

from catchment.broker.hosts import ALLOWED_HOSTS_MAX, host_name
from catchment.broker.webhook_settings import WebhookSettings
from catchment.errors import InputError, shown
from catchment.model.names import name_refusal
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.messages import SECOND
from catchment.routing.stored import Opened
from catchment.routing.systems import DEFAULT_SYSTEM, live_system_named
from catchment.store.interface import Retention

DEFAULT_PORT: Final = 7400
DEFAULT_HTTP_PORT: Final = 7480
CONFIG_BYTES_MAX: Final = 1_048_576
DAY: Final = 86_400 * SECOND


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


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[store]`."""

    url: str = ""
    storage: str = ""
    keep_days: Annotated[float, Meta(gt=0)] | None = None
    bytes_max: Annotated[int, Meta(ge=1)] | None = None
    retain_days: Annotated[float, Meta(ge=0)] = 0.0

    def check(self) -> None:
        if self.url and self.storage:
            raise InputError("store: url is for a broker that keeps records itself, storage for one that does not")
        if self.storage and (refusal := name_refusal(self.storage)):
            raise InputError(f"store: storage: {refusal}")
        if not self.url and (self.keep_days is not None or self.bytes_max is not None or self.retain_days):
            raise InputError("store: keep_days, bytes_max and retain_days are for a broker that has a store: add url")

    @property
    def retention(self) -> Retention:
        age = None if self.keep_days is None else int(self.keep_days * DAY)
        return Retention(age, self.bytes_max, int(self.retain_days * DAY))


@dataclass(frozen=True, slots=True)
class Config:
    name: str = "broker"
    listen: Address = field(default_factory=lambda: Address("127.0.0.1", DEFAULT_PORT))
    neighbors: tuple[Address, ...] = ()
    costs: Mapping[Address, int] = field(default_factory=dict)
    routing: str = DEFAULT_SYSTEM
    # Of the routing system, as they are written in the file.
    settings: Mapping[str, Any] = field(default_factory=dict)
    http: Address | None = None
    allowed_hosts: tuple[str, ...] = ()
    store: StoreConfig = field(default_factory=StoreConfig)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)

    def __post_init__(self) -> None:
        self.store.check()
        _check_hosts(self.allowed_hosts)
        live_system_named(self.routing).settings_of(self.settings)
        if refusal := name_refusal(self.name):
            raise InputError(f"name: {refusal}")

    def make_core(self, opened: Opened | None = None) -> DurableCore:
        """The core of the routing system, and around it durable delivery. `opened` is what is in the broker's store."""
        inner = live_system_named(self.routing).core(self.name, self.settings)
        return DurableCore(self.name, inner, opened, DurableSettings(storage=self.store.storage))


def _check_hosts(names: tuple[str, ...]) -> None:
    if len(names) > ALLOWED_HOSTS_MAX:
        raise InputError(f"allowed_hosts has {len(names):,} names: ALLOWED_HOSTS_MAX is {ALLOWED_HOSTS_MAX:,}")
    for name in names:
        if not host_name(name):
            raise InputError(f"allowed_hosts: {shown(name)} is no host: write a name or an address, without a port")


class _Table(Struct, forbid_unknown_fields=True):
    name: str | None = None
    listen: str | None = None
    neighbors: list[str] = []
    costs: dict[str, int] = {}
    routing: str | None = None
    settings: dict[str, Any] = {}
    http: str | None = None
    allowed_hosts: list[str] = []
    store: StoreConfig = StoreConfig()
    webhooks: WebhookSettings = WebhookSettings()


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
        table.settings,
        None if table.http is None else Address.parse(table.http, DEFAULT_HTTP_PORT),
        tuple(table.allowed_hosts),
        table.store,
        table.webhooks,
    )
