"""A routing system of somebody else's, in a few lines: settings, message, header, core, ideal, and two entries.

Brokers of a tree tell each other how many subscriptions there are on their side of a link (`Listeners`), and send
notifications to where there are any. They say it again from time to time, by an idle timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from catchment.routing.core import Inspection
from catchment.routing.messages import (
    SECOND,
    Action,
    BrokerMessage,
    ClientRequest,
    Forward,
    Header,
    HostMessage,
    Interface,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.settings import Settings
from catchment.routing.systems import RoutingSystem
from catchment.sim.conformance.checkers import side_of, wants_at
from catchment.sim.conformance.entries import TREES, Entry
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive
from catchment.sim.simulation import Simulation


class ToySettings(Settings, frozen=True):
    refresh_s: float


class Listeners(BrokerMessage, frozen=True):
    count: int


class PathHeader(Header, frozen=True, gc=False):
    """The brokers that a notification has come through."""

    path: tuple[str, ...]


class ToyCore(DispatchingCore[Listeners]):
    def __init__(self, name: str, refresh_s: float) -> None:
        self.name = name
        self.clients = ClientSide()
        # What neighbors said, and what they were told.
        self.counts: dict[Neighbor, int] = {}
        self._told: dict[Neighbor, int | None] = {}
        self._refresh = round(refresh_s * SECOND)

    def on_message(
        self, message: ClientRequest | HostMessage | Listeners, source: Interface, now: Time
    ) -> list[Action]:
        return super().on_message(message, source, now) + self._tell()

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self.counts[neighbor], self._told[neighbor] = 0, None
        return [SetTimer("refresh", now + self._refresh, is_idle=True)]

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        del self.counts[neighbor], self._told[neighbor]
        return []

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        self._told = dict.fromkeys(self._told)
        return [SetTimer("refresh", now + self._refresh, is_idle=True)]

    def _heard(self, message: Listeners, source: Neighbor, now: Time) -> list[Action]:
        self.counts[source] = message.count
        return []

    def _tell(self) -> list[Action]:
        actions: list[Action] = []
        for neighbor in sorted(self._told):
            count = self.clients.subscriptions_count + sum(self.counts.values()) - self.counts[neighbor]
            if self._told[neighbor] != count:
                self._told[neighbor] = count
                actions.append(Send(neighbor, Listeners(count)))
        return actions

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        actions = self.clients.due([routed.notification for routed in batch], now)
        for routed in batch:
            path = routed.header.path if isinstance(routed.header, PathHeader) else ()
            further = Routed(routed.notification, PathHeader(routed.header.hops + 1, (*path, self.name)))
            neighbors = [each for each in sorted(self.counts) if self.counts[each] and each.name not in path]
            actions += [Forward(neighbor, (further,)) for neighbor in neighbors]
        return actions

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        return Inspection(tuple(self.clients.tables()))

    def leftovers(self) -> list[str]:
        return [*self.clients.leftovers(), *(f"listeners at {each}" for each, count in self.counts.items() if count)]


SYSTEM = RoutingSystem(
    "toy",
    "notifications go to where there are subscriptions",
    ToySettings,
    lambda name, settings: ToyCore(name, settings.refresh_s),
    (Listeners,),
    PathHeader,
)


@Ideal
def toy_tables(simulation: Simulation) -> Iterator[str | Checked]:
    for broker, core in alive(simulation, ToyCore):
        for link in simulation.links_of(broker):
            other = link.end(broker)
            beyond = wants_at(simulation, side_of(simulation, other, broker))
            ideal = sum(map(len, beyond.values())) if link.is_usable else None
            if core.counts.get(Neighbor(other)) != ideal:
                yield f"{broker} knows of {core.counts.get(Neighbor(other))} listeners at {other}, there are {ideal}"
        yield Checked(broker, {})


ENTRY = Entry(
    "toy",
    TREES,
    toy_tables,
    lambda topology, settings: {broker: {"refresh_s": 0.1} for broker in topology.brokers},
    wastes_nothing=False,
)
