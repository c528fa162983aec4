"""What an explored world is made of: brokers, processes of the reader, the publisher, and what bounds a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from catchment.model.notification import Notification
from catchment.routing.core import Inspection
from catchment.routing.durable.core import DurableCore
from catchment.routing.messages import Action, Client, Deliver, Time
from catchment.routing.stored import Fetch
from catchment.sim.explore.copying import Folding
from catchment.sim.explore.disk import Disk

BROKERS: Final = ("A", "B")
READER, OTHER, PUBLISHER = Client("reader"), Client("other"), Client("publisher")
PUBLICATIONS: Final = 3

# A core's caches, and times: all intervals are zero. Serial numbers of writes only matter relative to the disk's.
FOLDING: Final = Folding(
    frozenset((
        "Outflow.asked", "Outflow.asked_at", "Sending._least", "Publisher.asked_at", "LinkStates.version",
        "LinkStates._agreed", "LinkStates._trees", "LinkStates._hops", "Paths._version", "Paths._reached",
        "Paths._storages",
        "Table._owners", "Table._numbers", "Table._next_number", "Table.text_bytes", "Disk.log", "Disk.written",
    )),
    frozenset(("Storage._serial", "Storage._stored", "Unstored.serial", "Disk.serial")),
)  # fmt: skip


class Bounds(Struct, frozen=True):
    """How often something may happen in one run."""

    crashes: int = 1
    losses: int = 1
    doublings: int = 1
    delays: int = 0
    cuts: int = 0
    # Moves of the reader, and of the publisher to another storage.
    moves: int = 1
    publisher_moves: int = 0
    # Deliveries that an old process takes while a newer one is connected.
    stale_takes: int = 0
    # Timers that fire although something is under way.
    early_timers: int = 0
    # Syncs of the first write alone, while more wait.
    partial_syncs: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__struct_fields__)

    def allows(self, name: str) -> bool:
        return not name or int(getattr(self, name)) > 0

    def less(self, name: str) -> Bounds:
        return replace(self, **{name: getattr(self, name) - 1}) if name else self

    def covers(self, other: Bounds) -> bool:
        """Whether whatever may happen within `other` may happen within these."""
        return all(getattr(self, name) >= getattr(other, name) for name in self.__struct_fields__)


class NoRouting:
    """The core inside: it routes nothing, and knows no clients."""

    def __init__(self) -> None:
        self.clients: Any = self

    def wants_of(self, identity: str) -> tuple[str, ...]:
        return ()

    def on_message(self, message: Any, source: Any, now: Time) -> list[Action]:
        return []

    def on_notifications(self, batch: Sequence[Any], source: Any, now: Time) -> list[Action]:
        return []

    def matchers(self) -> Sequence[Any]:
        return ()

    def inspect(self) -> Inspection:
        return Inspection(())

    def leftovers(self) -> list[str]:
        return []


@dataclass(slots=True)
class Broker:
    """A storage: its core, None while it is down; its disk; what it has asked of the disk, and its timers."""

    core: DurableCore | None
    disk: Disk
    fetches: list[Fetch] = field(default_factory=list)
    timers: set[str] = field(default_factory=set)
    # The session of the reader that it has heard of last, and what older processes had taken of its log by then.
    session: int = 0
    taken_before: int = 0
    # Of all this but itself; None after a change.
    digest: int | None = None

    def digested(self) -> int:
        if self.digest is None:
            serial = self.disk.serial
            core = None if self.core is None else FOLDING.digest(self.core, serial)
            written = [persist.writes for persist in self.disk.written]
            rest = (self.fetches, self.timers, self.session, self.taken_before, written)
            self.digest = hash((core, FOLDING.digest(self.disk, serial), *map(FOLDING.digest, rest)))
        return self.digest


@dataclass(slots=True)
class Process:
    """A process of the reader: where it is connected, what it was given of each log, and what it has taken."""

    broker: str | None = None
    session: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    inbox: list[Deliver] = field(default_factory=list)
    # The number of the publication that it took last.
    last: int = 0


@dataclass(slots=True)
class Publisher:
    """The publisher, with what its library remembers."""

    broker: str | None = None
    at: str = "A"
    published: int = 0
    unkept: list[Notification] = field(default_factory=list)
    kept: int | None = None
    confirmed: int = 0
    # Where its publications go, and whether all of them were taken by everybody.
    home: str = ""
    is_settled: bool = True
    must_resend: bool = False
