"""What the tables of a settled network should be where what is said over a link is merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import Neighbor
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.merging import MergingCore
from catchment.sim.conformance.checkers import side_of
from catchment.sim.conformance.ideal import alive, differences, filters_wanted, offered, table_differences
from catchment.sim.simulation import Simulation


def merging_tables(simulation: Simulation, *, is_perfect: bool = True) -> Iterator[str]:
    """A neighbor holds what is said to it; that covers all that is wanted on the sender's side, and is no more than
    that if merging is perfect."""
    for broker, core in alive(simulation, MergingCore):
        for link in simulation.links_of(broker):
            neighbor = Neighbor(link.end(broker))
            if link.is_usable:
                yield from _link(simulation, core, neighbor, is_perfect)
            elif core.said_to(neighbor) != ((), ()):
                yield f"{broker} remembers what it said to {neighbor}, which cannot be reached"


def imperfectly_merging_tables(simulation: Simulation) -> Iterator[str]:
    return merging_tables(simulation, is_perfect=False)


def _link(simulation: Simulation, core: MergingCore, neighbor: Neighbor, is_perfect: bool) -> Iterator[str]:
    where = f"{core.name} to {neighbor}"
    receiver = simulation.cores[neighbor.name]
    assert isinstance(receiver, MergingCore)
    filters, offers = core.said_to(neighbor)
    held = receiver.inner.interest.held_by(Neighbor(core.name))
    yield from differences(where, filters, held)
    yield from table_differences(neighbor.name, receiver.inspect(), core.name, held)
    near, beyond = (side_of(simulation, *ends) for ends in ((core.name, neighbor.name), (neighbor.name, core.name)))
    wanted = filters_wanted(simulation, near)
    if isinstance(core.inner, AdvertisingCore) and isinstance(receiver.inner, AdvertisingCore):
        available = offered(simulation, beyond)
        wanted = [one for one in wanted if any(offer.overlaps(one) for offer in available)]
        yield from differences(where, offers, receiver.inner.offers.held_by(Neighbor(core.name)))
        yield from _missing(where, offered(simulation, near), offers)
    yield from _missing(where, wanted, filters)
    if is_perfect and not isinstance(core.inner, AdvertisingCore):
        for one in filters:
            if not reduce(or_, (other for other in wanted if one.covers(other)), Filter.nothing()).covers(one):
                yield f"{where}: {one} lets more through than is wanted"


_Stated = Filter | Advertisement


def _missing(where: str, wanted: Iterable[_Stated], said: Iterable[_Stated]) -> Iterator[str]:
    for one in wanted:
        if not any(other.covers(one) for other in said):  # type: ignore[arg-type]
            yield f"{where}: {one} is covered by nothing that was said"
