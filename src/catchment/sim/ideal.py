"""What the tables of a settled network should be, computed from what all clients want: no broker knows that.

Each function yields what is wrong, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from catchment.model.filter import Advertisement, Filter
from catchment.routing.messages import Neighbor
from catchment.routing.poset import K, Poset
from catchment.routing.sessions import filters_for
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.base import SienaCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.sim.checkers import reachable, side_of, wants_at
from catchment.sim.network import LinkState
from catchment.sim.simulation import Simulation


def acyclic_tables(simulation: Simulation) -> Iterator[str]:
    """Equation (1) of the SIENA text: over each link go the roots of what is wanted on the sender's side of it."""
    return _tables(simulation, lambda core, neighbor: True)


def hierarchical_tables(simulation: Simulation) -> Iterator[str]:
    """The same, towards the master alone."""
    return _tables(simulation, lambda core, neighbor: isinstance(core, HierarchicalCore) and core.master == neighbor)


def _tables(simulation: Simulation, is_told: Callable[[SienaCore, Neighbor], bool]) -> Iterator[str]:
    for core, link, neighbor in _ends(simulation):
        wanted: Iterable[Filter] = ()
        if link.is_usable and is_told(core, neighbor):
            wanted = _filters_wanted(simulation, side_of(simulation, core.name, neighbor.name))
        yield from _differences(f"{core.name} to {neighbor}", wanted, core.interest.told_to(neighbor))
        receiver = simulation.cores[neighbor.name]
        if link.is_usable and isinstance(receiver, SienaCore):
            held = receiver.interest.held_by(Neighbor(core.name))
            yield from _differences(f"{neighbor} of {core.name}", core.interest.told_to(neighbor), held)


def _ends(simulation: Simulation) -> Iterator[tuple[SienaCore, LinkState, Neighbor]]:
    """The ends of all links that are at a living broker."""
    for broker, core in simulation.cores.items():
        if isinstance(core, SienaCore):
            for link in simulation.links_of(broker):
                yield core, link, Neighbor(link.end(broker))


def advertising_tables(simulation: Simulation) -> Iterator[str]:
    """Over each link go the roots of what is advertised on the sender's side, and the roots of what is wanted there
    among that which overlaps something advertised on the other side."""
    for core, link, neighbor in _ends(simulation):
        if not isinstance(core, AdvertisingCore):
            continue
        offered: list[Advertisement] = []
        wanted: list[Filter] = []
        if link.is_usable:
            offered = _offered(simulation, side_of(simulation, core.name, neighbor.name))
            beyond = _offered(simulation, side_of(simulation, neighbor.name, core.name))
            near = _filters_wanted(simulation, side_of(simulation, core.name, neighbor.name))
            wanted = [one for one in near if any(offer.overlaps(one) for offer in beyond)]
        where = f"{core.name} to {neighbor}"
        yield from _differences(where, wanted, core.interest.told_to(neighbor))
        yield from _differences(where, offered, core.offers.told_to(neighbor))


def no_tables(simulation: Simulation) -> Iterator[str]:
    """For a core that tells its neighbors nothing."""
    return iter(())


def general_tables(simulation: Simulation) -> Iterator[str]:
    """Each broker knows what the clients of each broker that it can reach want: the roots of it."""
    for broker, core in simulation.cores.items():
        if not isinstance(core, GeneralCore):
            continue
        near = reachable(simulation, broker)
        if set(core.origins) != near:
            yield f"{broker} reaches {core.origins}, it should {sorted(near)}"
        for origin in sorted(near):
            yield from _differences(
                f"{broker} of {origin}", _filters_wanted(simulation, {origin}), core.wants_of(origin)
            )


def _filters_wanted(simulation: Simulation, brokers: Iterable[str]) -> list[Filter]:
    wants = wants_at(simulation, brokers)
    return [filter for some in wants.values() for one in some for filter in filters_for(one) if not filter.is_empty]


def _offered(simulation: Simulation, brokers: Iterable[str]) -> list[Advertisement]:
    here = set(brokers)
    clients = [one for one in simulation.clients.values() if one.is_connected and one.home in here]
    return [offer for one in clients for offer in one.advertisements]


def _differences(where: str, wanted: Iterable[K], found: Iterable[K]) -> Iterator[str]:
    """Filters that are not there and should be, and the other way round; equal ones may be written differently."""
    ideal, actual = Poset(wanted).roots, tuple(found)
    for one in ideal:
        if not any(_same(one, other) for other in actual):
            yield f"{where}: {one} is missing"
    for other in actual:
        if not any(_same(one, other) for one in ideal):
            yield f"{where}: {other} should not be there"


def _same(one: K, other: K) -> bool:
    return one == other or (one.covers(other) and other.covers(one))


def leftovers(simulation: Simulation) -> Iterator[str]:
    """What brokers still hold when nobody wants anything."""
    for broker, core in simulation.cores.items():
        if isinstance(core, SienaCore):
            for filter in core.interest.poset:
                yield f"{broker} still holds {filter}"
            if core.sessions.subscriptions_count:
                yield f"{broker} still has {core.sessions.subscriptions_count} subscriptions"
