"""Units of different architecture joined by gateways: siena hybrid.

What is wanted *at* a broker, seen from one of its units, is what its clients want and what its other units want of it.
A unit wants of a gateway what is wanted at all its other brokers that the gateway reaches within it; a hierarchy in
which the gateway has a master wants everything. Units form a tree, so that ends.

A gateway has a core for each of its units, a *port*, and a *hub* that joins them. Hub and ports are neighbors of one
another, and what they tell each other is checked as between brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import Neighbor
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.gateway import HybridCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.sim.conformance.ideals.hop_by_hop import NOTHING, AnyHopByHop, Said, link_differences
from catchment.sim.conformance.ideals.tables import (
    Checked,
    F,
    Ideal,
    alive,
    differences,
    filters_wanted,
    offered,
    overlapping,
)
from catchment.sim.hybrid import Unit, as_hybrid
from catchment.sim.simulation import Simulation

EVERYTHING: Final = Filter("true")
# The names of hub and ports as neighbors: to read tables by.
HUB, PORT_PREFIX = "@", "@"


class _View(Generic[F]):
    """Who wants what, or who offers what: `of_clients` says it for the clients at a broker."""

    def __init__(self, simulation: Simulation, of_clients: Callable[[str], list[F]], everything: list[F]) -> None:
        self._simulation = simulation
        self._of_clients: Callable[[str], list[F]] = of_clients
        self._everything: list[F] = everything
        self._units = as_hybrid(simulation.topology).units

    def reached(self, unit: Unit, start: str, without: str | None = None) -> set[str]:
        """Brokers of a unit that are reached over its links."""
        near, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            for link in self._simulation.links_of(here):
                other = link.end(here)
                if link.is_usable and other in unit.brokers and other != without and other not in near:
                    near.add(other)
                    waiting.append(other)
        return near

    def at(self, broker: str, seen_from: Unit) -> list[F]:
        others = [unit for unit in self._units if broker in unit.brokers and unit != seen_from]
        beyond: list[F] = [filter for unit in others for filter in self.of_unit(unit, broker)]
        return self._of_clients(broker) + beyond

    def of_unit(self, unit: Unit, gateway: str) -> list[F]:
        """What a unit wants of a gateway."""
        if unit.kind == "hierarchical" and unit.root != gateway:
            return self._everything
        return self.of_side(unit, gateway, None, besides=gateway)

    def of_side(self, unit: Unit, start: str, without: str | None, besides: str = "") -> list[F]:
        side = self.reached(unit, start, without) - {besides}
        return [filter for broker in sorted(side) for filter in self.at(broker, unit)]


class _Views:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.topology = as_hybrid(simulation.topology)
        self.wants = _View(simulation, lambda broker: filters_wanted(simulation, {broker}), [EVERYTHING])
        self.offers: _View[Advertisement] = _View(simulation, lambda broker: offered(simulation, {broker}), [])
        self._masters = {
            unit.name: self.topology.within(unit).masters(unit.root)
            for unit in self.topology.units
            if unit.kind == "hierarchical"
        }

    def said(self, unit: Unit, sender: str, receiver: str) -> Said:
        """What a broker of a unit should have told another over a link of it."""
        if unit.name in self._masters and self._masters[unit.name][sender] != receiver:
            return NOTHING
        wanted = self.wants.of_side(unit, sender, receiver)
        if unit.kind != "advertising":
            return Said(wanted, [])
        offers, beyond = self.offers.of_side(unit, sender, receiver), self.offers.of_side(unit, receiver, sender)
        return Said(overlapping(wanted, beyond), offers)


@Ideal
def hybrid_tables(simulation: Simulation) -> Iterator[str | Checked]:
    views = _Views(simulation)
    for broker, core in alive(simulation, HybridCore):
        units = [unit for unit in views.topology.units if broker in unit.brokers]
        if {unit.name for unit in units} != set(core.ports) or core.is_gateway != (len(units) > 1):
            yield f"{broker} is in units {sorted(core.ports)}, it should be in {[unit.name for unit in units]}"
            continue
        held: dict[str, Collection[Filter]] = {}
        for unit in units:
            port = core.ports[unit.name]
            if isinstance(port, GeneralCore):
                yield from _general_differences(views, unit, port)
                held.update({origin: port.wants_of(origin) for origin in unit.brokers if origin != broker})
            else:
                for other in _neighbors_in(simulation, unit, broker):
                    yield from _link_differences(views, unit, port, other)
                    held[other] = port.interest.held_by(Neighbor(other))
            if core.is_gateway:
                yield from _inner_differences(views, unit, core)
        yield Checked(broker, held)


def _neighbors_in(simulation: Simulation, unit: Unit, broker: str) -> list[str]:
    others = [link.end(broker) for link in simulation.links_of(broker)]
    return [other for other in others if other in unit.brokers]


def _general_differences(views: _Views, unit: Unit, port: GeneralCore) -> Iterator[str]:
    near = views.wants.reached(unit, port.name)
    if set(port.origins) != near:
        yield f"{port.name} reaches {port.origins} in {unit.name}, it should reach {sorted(near)}"
    for origin in sorted(near):
        where = f"{port.name} of {origin} in {unit.name}"
        yield from differences(where, views.wants.at(origin, unit), port.wants_of(origin))


def _link_differences(views: _Views, unit: Unit, port: AnyHopByHop, other: str) -> Iterator[str]:
    told = heard = NOTHING
    if views.simulation.link(port.name, other).is_usable:
        told, heard = views.said(unit, port.name, other), views.said(unit, other, port.name)
    yield from link_differences(port, other, told, heard)


def _inner_differences(views: _Views, unit: Unit, core: HybridCore) -> Iterator[str]:
    """What hub and port tell each other."""
    hub, port = core.hub, core.ports[unit.name]
    assert isinstance(hub, HopByHopCore)
    outward, inward = views.wants.at(core.name, unit), views.wants.of_unit(unit, core.name)
    if unit.root == core.name:
        # The port sends everything up to the hub, its master: it is told nothing.
        outward = []
    to_port, to_hub = f"hub of {core.name} to {unit.name}", f"{unit.name} to hub of {core.name}"
    if isinstance(hub, AdvertisingCore) and isinstance(port, AdvertisingCore):
        offers_out, offers_in = views.offers.at(core.name, unit), views.offers.of_unit(unit, core.name)
        yield from differences(to_port, offers_out, port.offers.held_by(Neighbor(HUB)))
        yield from differences(to_hub, offers_in, hub.offers.held_by(Neighbor(PORT_PREFIX + unit.name)))
        outward, inward = overlapping(outward, offers_in), overlapping(inward, offers_out)
    # In a general unit the hub stands where clients do.
    entered = port.own if isinstance(port, GeneralCore) else port.interest
    yield from differences(to_port, outward, entered.held_by(Neighbor(HUB)))
    yield from differences(to_hub, inward, hub.interest.held_by(Neighbor(PORT_PREFIX + unit.name)))
    # What is matched is held in another table, which a gateway does not tell of.
    yield from differences(f"{to_port}, matched", outward, port.remote.of(HUB))
    yield from differences(f"{to_hub}, matched", inward, hub.remote.of(PORT_PREFIX + unit.name))
