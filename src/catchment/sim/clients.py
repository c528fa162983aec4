"""A client of a simulation, what cancels its subscriptions, and who is told what clients do and get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from catchment.errors import CatchmentError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Client, Deliver, DeliverSequence, Gap, Wanted

if TYPE_CHECKING:
    from catchment.sim.simulation import Simulation


@dataclass(slots=True)
class SimClient:
    """A client: what it wants and offers, where it is, and what it got."""

    identity: str
    home: str | None = None
    is_connected: bool = False
    is_suspended: bool = False
    # Whether so much waits for it that it loses what comes.
    is_behind: bool = False
    wants: dict[str, Wanted] = field(default_factory=dict)
    advertisements: dict[Advertisement, None] = field(default_factory=dict)
    published: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    received: list[Deliver | DeliverSequence] = field(default_factory=list)
    missed: int = 0
    # By id, as it was told last.
    gaps: dict[str, Gap] = field(default_factory=dict)
    refused: list[CatchmentError] = field(default_factory=list)

    @property
    def interface(self) -> Client:
        return Client(self.identity)

    def receive(self, delivery: Deliver | DeliverSequence) -> None:
        """Keeps a delivery, and the numbers that it has seen."""
        for notification in (delivery.notification,) if isinstance(delivery, Deliver) else delivery.notifications:
            source, seq = notification.source, notification.seq
            if source is not None and seq is not None and seq > self.seen.get(source, 0):
                self.seen[source] = seq
        self.received.append(delivery)


def is_cancelled(wanted: Wanted, unwanted: Filter | Pattern) -> bool:
    """Whether an unsubscription ends a subscription (SIENA §3.8), by the model alone: checkers know from this what
    clients want, so it is not the rule that brokers go by."""
    sought = wanted.filter if isinstance(wanted, Cesql) else wanted
    return type(sought) is type(unwanted) and unwanted.covers(sought)  # type: ignore[arg-type]  # of the same kind


class Observer(Protocol):
    """Is told what clients publish and get; for checkers and measures."""

    def published(self, simulation: Simulation, client: SimClient, notification: Notification, /) -> None: ...

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence, /) -> None: ...
