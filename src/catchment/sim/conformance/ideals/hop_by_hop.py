"""Brokers that tell each other filters hop by hop: siena acyclic, siena hierarchical, siena advertising.

What goes over a link follows from what is wanted and offered on the two sides of it: equation (1) of the SIENA text
(§5.2.3) for a network in which there is one path between two brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import Neighbor
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.sim.conformance.checkers import side_of
from catchment.sim.conformance.ideals.tables import (
    Checked,
    Ideal,
    alive,
    differences,
    filters_wanted,
    offered,
    overlapping,
)
from catchment.sim.simulation import Simulation

AnyHopByHop = HopByHopCore[Any]


class Said(NamedTuple):
    """What a broker should have told a neighbor: the roots of these filters, and of these advertisements."""

    wanted: list[Filter]
    offers: list[Advertisement]


NOTHING = Said([], [])
# What the first broker should have told the second.
SaidOver = Callable[[str, str], Said]


@Ideal
def acyclic_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Over each link go the roots of what is wanted on the sender's side of it."""

    def said(sender: str, receiver: str) -> Said:
        return Said(filters_wanted(simulation, side_of(simulation, sender, receiver)), [])

    return hop_by_hop_tables(simulation, AcyclicCore, said)


@Ideal
def hierarchical_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """The same, towards the master alone."""
    masters = simulation.topology.masters()

    def said(sender: str, receiver: str) -> Said:
        if masters[sender] != receiver:
            return NOTHING
        return Said(filters_wanted(simulation, side_of(simulation, sender, receiver)), [])

    return hop_by_hop_tables(simulation, HierarchicalCore, said)


@Ideal
def advertising_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Over each link go the roots of what is advertised on the sender's side, and the roots of what is wanted there
    among that which overlaps something advertised on the other side."""

    def said(sender: str, receiver: str) -> Said:
        near, beyond = side_of(simulation, sender, receiver), side_of(simulation, receiver, sender)
        wanted = overlapping(filters_wanted(simulation, near), offered(simulation, beyond))
        return Said(wanted, offered(simulation, near))

    return hop_by_hop_tables(simulation, AdvertisingCore, said)


def hop_by_hop_tables(simulation: Simulation, kind: type[AnyHopByHop], said: SaidOver) -> Iterator[str | Checked]:
    """Both ends of each link, as `said` has it for a link that is usable."""
    said_once = cache(said)
    for broker, core in alive(simulation, kind):
        for link in simulation.links_of(broker):
            other = link.end(broker)
            told, heard = (said_once(broker, other), said_once(other, broker)) if link.is_usable else (NOTHING, NOTHING)
            yield from link_differences(core, other, told, heard)
        yield Checked(broker, held_by_neighbors(simulation, core))


def link_differences(core: AnyHopByHop, other: str, told: Said, heard: Said) -> Iterator[str]:
    """What a broker has told a neighbor, and what it holds for that neighbor."""
    neighbor = Neighbor(other)
    to, held = f"{core.name} to {other}", f"{core.name} holds for {other}"
    yield from differences(to, told.wanted, core.interest.told_to(neighbor))
    yield from differences(held, heard.wanted, core.interest.held_by(neighbor))
    if isinstance(core, AdvertisingCore):
        yield from differences(to, told.offers, core.offers.told_to(neighbor))
        yield from differences(held, heard.offers, core.offers.held_by(neighbor))


def held_by_neighbors(simulation: Simulation, core: AnyHopByHop) -> dict[str, tuple[Filter, ...]]:
    """What a core has entered for each neighbor. The core matches by another table, of which it says the size."""
    neighbors = [link.end(core.name) for link in simulation.links_of(core.name)]
    return {neighbor: core.interest.held_by(Neighbor(neighbor)) for neighbor in neighbors}
