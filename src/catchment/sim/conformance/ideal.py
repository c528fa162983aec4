"""What the tables of a settled network should be, computed from what all clients want: no broker knows that.

Each function yields what is wrong, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from catchment.model.filter import Advertisement, Filter
from catchment.routing.baselines import CentralizedCore
from catchment.routing.messages import Neighbor
from catchment.routing.parts.wanted import filters_for
from catchment.routing.poset import K
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.base import SienaCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.sim.conformance.checkers import Network, reachable, side_of, wants_at
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
            wanted = filters_wanted(simulation, side_of(simulation, core.name, neighbor.name))
        yield from differences(f"{core.name} to {neighbor}", wanted, core.interest.told_to(neighbor))
        receiver = simulation.cores[neighbor.name]
        if link.is_usable and isinstance(receiver, SienaCore):
            held = receiver.interest.held_by(Neighbor(core.name))
            yield from differences(f"{neighbor} of {core.name}", core.interest.told_to(neighbor), held)


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
        offers: list[Advertisement] = []
        wanted: list[Filter] = []
        if link.is_usable:
            offers = offered(simulation, side_of(simulation, core.name, neighbor.name))
            beyond = offered(simulation, side_of(simulation, neighbor.name, core.name))
            near = filters_wanted(simulation, side_of(simulation, core.name, neighbor.name))
            wanted = [one for one in near if any(offer.overlaps(one) for offer in beyond)]
        where = f"{core.name} to {neighbor}"
        yield from differences(where, wanted, core.interest.told_to(neighbor))
        yield from differences(where, offers, core.offers.told_to(neighbor))


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
            yield from differences(f"{broker} of {origin}", filters_wanted(simulation, {origin}), core.wants_of(origin))


def centralized_tables(simulation: Simulation) -> Iterator[str]:
    """The center has the subscriptions of all clients whose broker it reaches; the others have none."""
    for broker, core in simulation.cores.items():
        if isinstance(core, CentralizedCore):
            near = reachable(simulation, broker) if broker == core.center else set()
            for origin in simulation.topology.brokers if broker != core.center else sorted(near):
                clients = [one for one in simulation.clients.values() if one.is_connected and one.home == origin]
                wanted = sorted((one.identity, id) for one in clients for id in one.wants) if near else []
                if core.registry.of(origin) != wanted:
                    yield f"{broker} has {core.registry.of(origin)} of {origin}, it should have {wanted}"


def served_centrally(network: Network, broker: str) -> set[str]:
    """The brokers whose clients get what is published at one: without the center nobody does."""
    near = reachable(network, broker)
    return near if network.topology.brokers[0] in near else set()


def filters_wanted(simulation: Simulation, brokers: Iterable[str]) -> list[Filter]:
    wants = wants_at(simulation, brokers)
    return [filter for some in wants.values() for one in some for filter in filters_for(one) if not filter.is_empty]


def offered(simulation: Simulation, brokers: Iterable[str]) -> list[Advertisement]:
    here = set(brokers)
    clients = [one for one in simulation.clients.values() if one.is_connected and one.home in here]
    return [offer for one in clients for offer in one.advertisements]


def differences(where: str, wanted: Iterable[K], found: Iterable[K]) -> Iterator[str]:
    """Filters that are not there and should be, and the other way round; equal ones may be written differently."""
    ideal, actual = roots(wanted), tuple(found)
    for one in ideal:
        if not any(_same(one, other) for other in actual):
            yield f"{where}: {one} is missing"
    for other in actual:
        if not any(_same(one, other) for one in ideal):
            yield f"{where}: {other} should not be there"


def roots(filters: Iterable[K]) -> list[K]:
    """Those that no other covers, of equal ones the first: pair by pair, since the poset is what is under test."""
    found: list[K] = []
    for one in dict.fromkeys(filters):
        if not any(_covers(other, one) for other in found):
            found = [other for other in found if not _covers(one, other)]
            found.append(one)
    return found


def _same(one: K, other: K) -> bool:
    return one == other or (_covers(one, other) and _covers(other, one))


@lru_cache(maxsize=100_000)
def _covers(one: Any, other: Any) -> bool:
    # Tables are looked at often and change little: the same pairs come again.
    return bool(one.covers(other))


def leftovers(simulation: Simulation) -> Iterator[str]:
    """What brokers still hold when nobody wants anything."""
    for broker, core in simulation.cores.items():
        if isinstance(core, SienaCore):
            yield from leftovers_of(broker, core)


def leftovers_of(broker: str, core: SienaCore, besides: Filter | None = None) -> Iterator[str]:
    for filter in core.interest.poset:
        if filter != besides:
            yield f"{broker} still holds {filter}"
    if core.sessions.subscriptions_count:
        yield f"{broker} still has {core.sessions.subscriptions_count} subscriptions"
