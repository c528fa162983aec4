"""What the tables of a settled hybrid network should be: what each link of each unit, and each port, must carry.

What is wanted *at* a broker, seen from one of its units, is what its clients want and what its other units want of it.
A unit wants of a gateway what is wanted at all its other brokers that the gateway reaches within it; a hierarchy in
which the gateway has a master wants everything. Units form a tree, so that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import Neighbor
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.gateway import EVERYTHING, HUB, INNER, HybridCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.sim.conformance.ideal import AnyHopByHop, K, alive, differences, filters_wanted, offered
from catchment.sim.hybrid import Unit, as_hybrid
from catchment.sim.simulation import Simulation


class _View(Generic[K]):
    """Who wants or offers what, of clients given by broker."""

    def __init__(self, simulation: Simulation, of_clients: Callable[[str], list[K]], everything: list[K]) -> None:
        self._simulation = simulation
        self._of_clients: Callable[[str], list[K]] = of_clients
        self._everything: list[K] = everything
        self._units = as_hybrid(simulation.topology).units

    def reached(self, unit: Unit, start: str, without: str | None = None) -> set[str]:
        """Brokers of a unit that are reached over its links."""
        found, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            for link in self._simulation.links_of(here):
                other = link.end(here)
                if link.is_usable and other in unit.brokers and other != without and other not in found:
                    found.add(other)
                    waiting.append(other)
        return found

    def at(self, broker: str, seen_from: Unit) -> list[K]:
        others = [unit for unit in self._units if broker in unit.brokers and unit != seen_from]
        beyond: list[K] = [one for unit in others for one in self.of_unit(unit, broker)]
        return self._of_clients(broker) + beyond

    def of_unit(self, unit: Unit, gateway: str) -> list[K]:
        if unit.kind == "hierarchical" and unit.root != gateway:
            return self._everything
        return self.of_side(unit, gateway, None, besides=gateway)

    def of_side(self, unit: Unit, start: str, without: str | None, besides: str = "") -> list[K]:
        side = self.reached(unit, start, without) - {besides}
        return [one for broker in sorted(side) for one in self.at(broker, unit)]


class _Views:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.wants = _View(simulation, lambda broker: filters_wanted(simulation, {broker}), [EVERYTHING])
        self.offers: _View[Advertisement] = _View(simulation, lambda broker: offered(simulation, {broker}), [])


def hybrid_tables(simulation: Simulation) -> Iterator[str]:
    topology = as_hybrid(simulation.topology)
    views = _Views(simulation)
    for unit in topology.units:
        masters = topology.within(unit).masters(unit.root) if unit.kind == "hierarchical" else {}
        for broker, core in alive(simulation, HybridCore):
            if broker not in unit.brokers:
                continue
            port = core.ports[unit.name]
            if isinstance(port, GeneralCore):
                yield from _general(views, unit, port)
            else:
                for link in simulation.links_of(broker):
                    other = link.end(broker)
                    if other in unit.brokers:
                        is_told = link.is_usable and (not masters or masters[broker] == other)
                        yield from _link(views, unit, port, other, is_told)
            if core.is_gateway:
                yield from _inside(views, unit, core)


def _general(views: _Views, unit: Unit, port: GeneralCore) -> Iterator[str]:
    near = views.wants.reached(unit, port.name)
    if set(port.origins) != near:
        yield f"{port.name} reaches {port.origins} in {unit.name}, it should {sorted(near)}"
    for origin in sorted(near):
        where = f"{port.name} of {origin} in {unit.name}"
        yield from differences(where, views.wants.at(origin, unit), port.wants_of(origin))


def _link(views: _Views, unit: Unit, port: AnyHopByHop, other: str, is_told: bool) -> Iterator[str]:
    wanted = views.wants.of_side(unit, port.name, other) if is_told else []
    where = f"{port.name} to {other} in {unit.name}"
    if isinstance(port, AdvertisingCore):
        offers = views.offers.of_side(unit, port.name, other) if is_told else []
        beyond = views.offers.of_side(unit, other, port.name) if is_told else []
        yield from differences(where, offers, port.offers.told_to(Neighbor(other)))
        wanted = _overlapping(wanted, beyond)
    yield from differences(where, wanted, port.interest.told_to(Neighbor(other)))


def _inside(views: _Views, unit: Unit, core: HybridCore) -> Iterator[str]:
    """What hub and port tell each other."""
    hub, port, inner = core.hub, core.ports[unit.name], Neighbor(INNER + unit.name)
    assert isinstance(hub, HopByHopCore)
    # In a general unit the hub stands where clients do.
    held_by_hub = port.own.held_by(HUB) if isinstance(port, GeneralCore) else port.interest.held_by(HUB)
    outward, inward = views.wants.at(core.name, unit), views.wants.of_unit(unit, core.name)
    if unit.root == core.name:
        outward = []
    if isinstance(hub, AdvertisingCore) and isinstance(port, AdvertisingCore):
        offers_out, offers_in = views.offers.at(core.name, unit), views.offers.of_unit(unit, core.name)
        yield from differences(f"hub of {core.name} to {unit.name}", offers_out, port.offers.held_by(HUB))
        yield from differences(f"{unit.name} to hub of {core.name}", offers_in, hub.offers.held_by(inner))
        outward, inward = _overlapping(outward, offers_in), _overlapping(inward, offers_out)
    yield from differences(f"hub of {core.name} to {unit.name}", outward, held_by_hub)
    yield from differences(f"{unit.name} to hub of {core.name}", inward, hub.interest.held_by(inner))


def _overlapping(wanted: list[Filter], offers: list[Advertisement]) -> list[Filter]:
    return [one for one in wanted if any(offer.overlaps(one) for offer in offers)]
