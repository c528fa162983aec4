"""The tables of a scenario in TOML, as they are written: names, types and bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from catchment.routing.siena.settings import Kind
from catchment.routing.systems import DEFAULT_SYSTEM

Count = Annotated[int, Meta(ge=1)]
Instant = Annotated[float, Meta(ge=0)]
Duration = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1)]


class LinksTable(Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: float = 1.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicates: float = 0.0
    reordered: float = 0.0
    transport: Literal["stream", "datagram"] = "stream"


class GroupTable(Struct, forbid_unknown_fields=True, kw_only=True):
    count: Count = 1
    name: Name | None = None
    at: str | list[str] = []
    distinct: bool = False
    start_s: Instant = 0.0
    stop_s: Instant | None = None
    roams_every_s: Duration | None = None

    def common(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "name": self.name,
            "at": (self.at,) if isinstance(self.at, str) else tuple(self.at),
            "is_distinct": self.distinct,
            "start_s": self.start_s,
            "stop_s": self.stop_s,
            "roams_every_s": self.roams_every_s,
        }


class PublishersTable(GroupTable, kw_only=True):
    attributes: dict[str, Any] | None = None
    advertises: str | None = None
    publications: Count = 10
    period_ms: tuple[float, float] = (1_000.0, 1_000.0)
    cycles: Count = 1
    publish: list[dict[str, Any]] = []


class SubscribersTable(GroupTable, kw_only=True):
    filters: list[str] = []
    patterns: list[str] = []
    notifications: Count | None = None
    cycles: Count = 1


class ChangeTable(Struct, forbid_unknown_fields=True):
    at_s: Instant
    client: str
    id: str | None = None
    subscribe: str | None = None
    cancel: str | None = None
    unsubscribe: str | None = None
    advertise: str | None = None
    unadvertise: str | None = None
    connect: str | None = None
    disconnect: Literal[True] | None = None
    suspend: Literal[True] | None = None
    resume: Literal[True] | None = None


class FaultTable(Struct, forbid_unknown_fields=True):
    at_s: Instant
    cut: tuple[str, str] | None = None
    heal: tuple[str, str] | None = None
    crash: str | None = None
    restart: str | None = None


class UnitTable(Struct, forbid_unknown_fields=True):
    name: str
    kind: Kind
    network: str
    gateway: str | None = None
    root: str | None = None


class ScenarioTable(Struct, forbid_unknown_fields=True):
    network: str | None = None
    routing: str = DEFAULT_SYSTEM
    seed: int = 1
    settings: dict[str, Any] = {}
    links: LinksTable = LinksTable()
    units: list[UnitTable] = []
    publishers: list[PublishersTable] = []
    subscribers: list[SubscribersTable] = []
    changes: list[ChangeTable] = []
    faults: list[FaultTable] = []
    stop_s: Duration | None = None
    warm_up_s: Instant = 0.0
    sample_every_s: Duration | None = None
    dump_at_s: list[Instant] = []
