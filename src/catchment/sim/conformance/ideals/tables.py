"""What all ideals share: the wants of all clients by broker, comparison of tables, and the check of inspections.

An ideal compares the tables of each core with what they should be, and yields what is wrong, as text. It vouches for
each broker that it has looked at (`Checked`), with the filters that the broker holds. `Ideal` then compares those with
what the core says of itself (`RoutingCore.inspect`). A broker that no ideal vouches for is a violation: nothing is
checked by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.core import CLIENTS_TABLE, Inspection, RoutingCore, Table
from catchment.routing.messages import Wanted
from catchment.sim.conformance.checkers import reachable, wants_at
from catchment.sim.simulation import Simulation

# Filters, or advertisements.
F = TypeVar("F", Filter, Advertisement)
C = TypeVar("C")


# --- ideals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """An ideal has compared the tables of a broker. `held` is what the broker holds for others, by holder. Of the
    holders in `unknown` the ideal cannot know what the broker holds. `other` are tables of something else than
    filters, as the broker should state them."""

    broker: str
    held: Mapping[str, Iterable[Wanted]]
    unknown: frozenset[str] = frozenset()
    other: tuple[Table, ...] = ()


class Ideal:
    """`compare` yields what is wrong with the tables of the cores, and `Checked` for each broker that is up."""

    def __init__(self, compare: Callable[[Simulation], Iterator[str | Checked]]) -> None:
        self._compare = compare
        # Where it is written.
        self.module = compare.__module__

    def __call__(self, simulation: Simulation) -> Iterator[str]:
        """What is wrong in a settled network."""
        checked: dict[str, Checked] = {}
        for finding in self._compare(simulation):
            if isinstance(finding, Checked):
                checked[finding.broker] = finding
            else:
                yield finding
        for broker, core in simulation.cores.items():
            if core is None:
                continue
            if broker in checked:
                yield from _inspection_differences(simulation, core, checked[broker])
            else:
                yield f"nothing checks the tables of {broker}, whose core is a {type(core).__name__}"


def alive(simulation: Simulation, kind: type[C]) -> Iterator[tuple[str, C]]:
    """The cores of brokers that are up, of exactly this class: a derived one may have tables that the ideal does not
    know. Cores of other classes are left out, and so nobody vouches for them."""
    for broker, core in simulation.cores.items():
        if type(core) is kind:
            yield broker, core


# --- what a core says of itself -----------------------------------------------------------------


def _inspection_differences(simulation: Simulation, core: RoutingCore[Any], checked: Checked) -> Iterator[str]:
    broker, inspection = checked.broker, core.inspect()
    wants = [wanted for some in wants_at(simulation, {broker}).values() for wanted in some]
    held: dict[str, Iterable[Wanted]] = {CLIENTS_TABLE: wants, **checked.held}
    filters = [table for holder, some in held.items() if (table := _table(holder, some)).filters]
    ideal = sorted([*filters, *checked.other])
    actual = sorted(table for table in inspection.tables if table.holder not in checked.unknown)
    if actual != ideal:
        wrong = [table for table in actual if table not in ideal] or actual
        yield f"{broker} says that it has {wrong}, it has {[table for table in ideal if table not in actual]}"
    if core.clients.subscriptions_count != len(wants):
        yield f"{broker} counts {core.clients.subscriptions_count} subscriptions of its clients, not {len(wants)}"
    yield from _network_differences(simulation, broker, inspection)


def _table(holder: str, held: Iterable[Wanted]) -> Table:
    some = list(held)
    filters = sum(len(filters_in(wanted)) for wanted in some)
    return Table(holder, filters, sum(len(str(wanted).encode()) for wanted in some))


def _network_differences(simulation: Simulation, broker: str, inspection: Inspection) -> Iterator[str]:
    """A broker that says what it knows of the network knows all of it that it reaches."""
    if inspection.brokers is None:
        return
    near = reachable(simulation, broker)
    links = {known.name: known.links for known in inspection.brokers if known.is_reached}
    if set(links) != near:
        yield f"{broker} says that it reaches {sorted(links)}, it should reach {sorted(near)}"
    for other in sorted(near & set(links)):
        usable = [(link.end(other), link.cost) for link in simulation.links_of(other) if link.is_usable]
        if links[other] != tuple(sorted(usable)):
            yield f"{broker} says that {other} has links {links[other]}, it has {sorted(usable)}"


def leftovers(simulation: Simulation) -> Iterator[str]:
    """What brokers still hold when nobody wants anything, by their own account."""
    for broker, core in simulation.cores.items():
        if core is not None:
            yield from (f"{broker} still holds {left}" for left in core.leftovers())


# --- what clients want and offer ----------------------------------------------------------------


def filters_in(wanted: Wanted) -> tuple[Filter, ...]:
    """The filters that a subscription consists of, or stands for, as brokers route them."""
    if isinstance(wanted, Pattern):
        return tuple(filter.routed for filter in wanted.filters)
    return (wanted.filter.routed,) if isinstance(wanted, Cesql) else (wanted.routed,)


def filters_wanted(simulation: Simulation, brokers: Iterable[str]) -> list[Filter]:
    """The filters of all subscriptions at some brokers, without those that match nothing."""
    wants = wants_at(simulation, brokers)
    filters = [filter for some in wants.values() for wanted in some for filter in filters_in(wanted)]
    return [filter for filter in filters if not filter.is_empty]


def offered(simulation: Simulation, brokers: Iterable[str]) -> list[Advertisement]:
    """The advertisements of all clients at some brokers."""
    here = set(brokers)
    clients = [client for client in simulation.clients.values() if client.is_connected and client.home in here]
    return [offer for client in clients for offer in client.advertisements]


def overlapping(wanted: Iterable[Filter], offers: Iterable[Advertisement]) -> list[Filter]:
    """The filters that overlap something offered."""
    some = list(offers)
    return [filter for filter in wanted if any(_overlaps(offer, filter) for offer in some)]


# --- comparison ---------------------------------------------------------------------------------


def differences(where: str, wanted: Iterable[F], actual: Iterable[F]) -> Iterator[str]:
    """Roots of what is wanted that are not there, and filters that are there and are no such root. Equal filters may
    be written differently."""
    ideal, there = roots(wanted), tuple(actual)
    for root in ideal:
        if not any(_is_same(root, filter) for filter in there):
            yield f"{where}: {root} is missing"
    for filter in there:
        if not any(_is_same(root, filter) for root in ideal):
            yield f"{where}: {filter} should not be there"
    if len(there) > len(ideal):
        # Two that say the same would both answer to one root.
        yield f"{where}: {len(there)} filters, {len(ideal)} are enough"


def roots(filters: Iterable[F]) -> list[F]:
    """The filters that no other covers, of equal ones the first: pair by pair, since the poset is under test."""
    maximal: list[F] = []
    for filter in dict.fromkeys(filters):
        if not any(covers(other, filter) for other in maximal):
            maximal = [other for other in maximal if not covers(filter, other)]
            maximal.append(filter)
    return maximal


def _is_same(first: F, second: F) -> bool:
    return first == second or (covers(first, second) and covers(second, first))


# Tables are looked at often and change little: the same pairs come again.


@lru_cache(maxsize=100_000)
def covers(wider: Any, narrower: Any) -> bool:
    return bool(wider.covers(narrower))


@lru_cache(maxsize=100_000)
def _overlaps(offer: Advertisement, filter: Filter) -> bool:
    return offer.overlaps(filter)
