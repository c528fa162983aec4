"""What the tables of a settled network should be, computed from what all clients want: no broker knows that.

Each function yields what is wrong, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.baselines.centralized import CentralizedCore
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.core import CLIENTS_TABLE, Inspection, Table
from catchment.routing.messages import Neighbor, Wanted
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.sim.conformance.checkers import Network, ViolationError, reachable, side_of, wants_at
from catchment.sim.network import LinkState
from catchment.sim.simulation import Simulation

AnyHopByHop = HopByHopCore[Any]
K = TypeVar("K", Filter, Advertisement)


def acyclic_tables(simulation: Simulation) -> Iterator[str]:
    """Equation (1) of the SIENA text: over each link go the roots of what is wanted on the sender's side of it."""
    return _tables(simulation, lambda core, neighbor: True)


def hierarchical_tables(simulation: Simulation) -> Iterator[str]:
    """The same, towards the master alone."""
    return _tables(simulation, lambda core, neighbor: isinstance(core, HierarchicalCore) and core.master == neighbor)


def _tables(simulation: Simulation, is_told: Callable[[AnyHopByHop, Neighbor], bool]) -> Iterator[str]:
    for core, link, neighbor in _ends(simulation, HopByHopCore):
        wanted: Iterable[Filter] = ()
        if link.is_usable and is_told(core, neighbor):
            wanted = filters_wanted(simulation, side_of(simulation, core.name, neighbor.name))
        yield from differences(f"{core.name} to {neighbor}", wanted, core.interest.told_to(neighbor))
        yield from _held(simulation, core, link, neighbor)


def _held(simulation: Simulation, core: AnyHopByHop, link: LinkState, neighbor: Neighbor) -> Iterator[str]:
    """A neighbor holds what it was told, and says so."""
    receiver = simulation.cores[neighbor.name]
    if receiver is None or not link.is_usable:
        return
    assert isinstance(receiver, HopByHopCore)
    held = receiver.interest.held_by(Neighbor(core.name))
    yield from differences(f"{neighbor} of {core.name}", core.interest.told_to(neighbor), held)
    yield from table_differences(neighbor.name, receiver.inspect(), core.name, held)


def table_differences(broker: str, inspection: Inspection, holder: str, held: Iterable[Filter]) -> Iterator[str]:
    """What a broker says of a table is what is in it."""
    filters = list(held)
    ideal = [Table(holder, len(filters), sum(len(str(filter).encode()) for filter in filters))] if filters else []
    actual = [table for table in inspection.tables if table.holder == holder]
    if actual != ideal:
        yield f"{broker} says of {holder} {actual}, it should be {ideal}"


def _ends(simulation: Simulation, kind: Any) -> Iterator[tuple[Any, LinkState, Neighbor]]:
    """The ends of all links that are at a broker which is up."""
    for broker, core in alive(simulation, kind):
        for link in simulation.links_of(broker):
            yield core, link, Neighbor(link.end(broker))


def advertising_tables(simulation: Simulation) -> Iterator[str]:
    """Over each link go the roots of what is advertised on the sender's side, and the roots of what is wanted there
    among that which overlaps something advertised on the other side."""
    for core, link, neighbor in _ends(simulation, AdvertisingCore):
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
        yield from _held(simulation, core, link, neighbor)


def flooding_tables(simulation: Simulation) -> Iterator[str]:
    """A broker that tells its neighbors nothing holds what its own clients want, and nothing else."""
    for broker, core in alive(simulation, FloodingCore):
        for table in core.inspect().tables:
            if table.holder != CLIENTS_TABLE:
                yield f"{broker} holds {table.filters} filters of {table.holder}"


def client_tables(simulation: Simulation) -> Iterator[str]:
    """For every system: the table of a broker's own clients is what those that are connected want."""
    for broker, core in simulation.cores.items():
        if core is None:
            continue
        filters = [filter for wanted in _wants_of_clients(simulation, broker) for filter in filters_in(wanted)]
        texts = [str(wanted).encode() for wanted in _wants_of_clients(simulation, broker)]
        ideal = [Table(CLIENTS_TABLE, len(filters), sum(map(len, texts)))] if filters else []
        actual = [table for table in core.inspect().tables if table.holder == CLIENTS_TABLE]
        if actual != ideal:
            yield f"{broker} says its clients have {actual}, it should be {ideal}"


def _wants_of_clients(simulation: Simulation, broker: str) -> list[Wanted]:
    return [wanted for some in wants_at(simulation, {broker}).values() for wanted in some]


C = TypeVar("C")


def alive(simulation: Simulation, kind: type[C]) -> Iterator[tuple[str, C]]:
    """The cores of brokers that are up. One of another class is checked by nobody: a violation."""
    for broker, core in simulation.cores.items():
        if core is None:
            continue
        if not isinstance(core, kind):
            raise ViolationError(f"the core of {broker} is a {type(core).__name__}, and nothing checks its tables")
        yield broker, core


def general_tables(simulation: Simulation) -> Iterator[str]:
    """Each broker knows what the clients of each broker that it can reach want: the roots of it."""
    for broker, core in alive(simulation, GeneralCore):
        near = reachable(simulation, broker)
        if set(core.origins) != near:
            yield f"{broker} reaches {core.origins}, it should {sorted(near)}"
        inspection = core.inspect()
        for origin in sorted(near):
            yield from differences(f"{broker} of {origin}", filters_wanted(simulation, {origin}), core.wants_of(origin))
            if origin != broker:
                yield from table_differences(broker, inspection, origin, core.wants_of(origin))


def centralized_tables(simulation: Simulation) -> Iterator[str]:
    """The center has the subscriptions of all clients whose broker it reaches; the others have none."""
    for broker, core in alive(simulation, CentralizedCore):
        near = reachable(simulation, broker) if broker == core.center else set()
        tables = {table.holder: table.filters for table in core.inspect().tables if table.holder != CLIENTS_TABLE}
        for origin in simulation.topology.brokers if broker != core.center else sorted(near):
            clients = [
                client for client in simulation.clients.values() if client.is_connected and client.home == origin
            ]
            wanted = sorted((client.identity, id) for client in clients for id in client.wants) if near else []
            if core.registry.of(origin) != wanted:
                yield f"{broker} has {core.registry.of(origin)} of {origin}, it should have {wanted}"
            filters = sum(len(filters_in(one)) for client in clients for one in client.wants.values()) if near else 0
            if tables.get(origin, 0) != filters:
                yield f"{broker} says it has {tables.get(origin, 0)} filters of {origin}, it should have {filters}"


def served_centrally(network: Network, broker: str) -> set[str]:
    """The brokers whose clients get what is published at one: without the center nobody does."""
    near = reachable(network, broker)
    return near if network.topology.brokers[0] in near else set()


def filters_in(wanted: Wanted) -> tuple[Filter, ...]:
    """The filters that a subscription consists of, or stands for."""
    if isinstance(wanted, Pattern):
        return wanted.filters
    return (wanted.filter,) if isinstance(wanted, Cesql) else (wanted,)


def filters_wanted(simulation: Simulation, brokers: Iterable[str]) -> list[Filter]:
    wants = wants_at(simulation, brokers)
    return [filter for some in wants.values() for one in some for filter in filters_in(one) if not filter.is_empty]


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
    """What brokers still hold when nobody wants anything, by their own account."""
    for broker, core in simulation.cores.items():
        if core is not None:
            yield from (f"{broker} still holds {left}" for left in core.leftovers())
