"""Brokers that merge what they say over a link: siena merging.

Which filters are merged depends on the order in which they came, so there is no one ideal table. What must hold: a
neighbor holds what was said to it; that covers all that is wanted on the sender's side; nothing that was said covers
something else that was said; where merging is perfect, no more is let through than is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, reduce
from itertools import permutations, product
from operator import or_
from typing import Final

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.values import Value
from catchment.routing.messages import Neighbor
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import MergingCore
from catchment.sim.conformance.checkers import side_of
from catchment.sim.conformance.ideals.hop_by_hop import NOTHING, AnyHopByHop, Said, SaidOver, held_by_neighbors
from catchment.sim.conformance.ideals.tables import (
    Checked,
    Ideal,
    alive,
    covers,
    differences,
    filters_wanted,
    offered,
    overlapping,
)
from catchment.sim.conformance.scripts import KINDS, LEVELS, PLACES
from catchment.sim.simulation import Simulation

Around = type[AcyclicCore] | type[HierarchicalCore] | type[AdvertisingCore]


def _ideal(around: Around, *, is_perfect: bool = True) -> Ideal:
    def compare(simulation: Simulation) -> Iterator[str | Checked]:
        said = cache(_said_in(simulation, around))
        for broker, core in alive(simulation, MergingCore):
            # Another architecture inside would be checked as what it is not.
            if type(core.inner) is around:
                for link in simulation.links_of(broker):
                    usable = link.is_usable
                    yield from _link_differences(simulation, core, link.end(broker), usable, said, is_perfect)
                yield Checked(broker, held_by_neighbors(simulation, core.inner))

    return Ideal(compare)


def _said_in(simulation: Simulation, around: Around) -> SaidOver:
    """All that should be covered by what the first broker has said to the second."""
    masters = simulation.topology.masters()

    def said(sender: str, receiver: str) -> Said:
        if around is HierarchicalCore and masters[sender] != receiver:
            return NOTHING
        near, beyond = side_of(simulation, sender, receiver), side_of(simulation, receiver, sender)
        wanted = filters_wanted(simulation, near)
        if around is not AdvertisingCore:
            return Said(wanted, [])
        return Said(overlapping(wanted, offered(simulation, beyond)), offered(simulation, near))

    return said


merging_tables: Final = _ideal(AcyclicCore)
imperfectly_merging_tables: Final = _ideal(AcyclicCore, is_perfect=False)
hierarchical_merging_tables: Final = _ideal(HierarchicalCore)
advertising_merging_tables: Final = _ideal(AdvertisingCore)


def _link_differences(
    simulation: Simulation, core: MergingCore, other: str, is_usable: bool, said: SaidOver, is_perfect: bool
) -> Iterator[str]:
    filters, offers = core.said_to(Neighbor(other))
    ideal = said(core.name, other) if is_usable else NOTHING
    where = f"{core.name} to {other}"
    yield from _missing(where, ideal.wanted, filters)
    yield from _missing(where, ideal.offers, offers)
    yield from _needless(where, filters)
    yield from _needless(where, offers)
    if is_perfect:
        # All that is wanted there, whether it is offered here or not: what a broker further away merged is not parted.
        near = side_of(simulation, core.name, other) if ideal is not NOTHING else set()
        yield from _too_wide(where, filters, filters_wanted(simulation, near))
    yield from _too_wide_offers(where, offers, ideal.offers)
    yield from _held_differences(simulation, core, other, is_usable)


def _held_differences(simulation: Simulation, core: MergingCore, other: str, is_usable: bool) -> Iterator[str]:
    """A broker holds for a neighbor what that has said to it."""
    sender = simulation.cores[other]
    filters, offers = sender.said_to(Neighbor(core.name)) if isinstance(sender, MergingCore) and is_usable else ((), ())
    inner: AnyHopByHop = core.inner
    held = f"{core.name} holds for {other}"
    yield from differences(held, filters, inner.interest.held_by(Neighbor(other)))
    if isinstance(inner, AdvertisingCore):
        yield from differences(held, offers, inner.offers.held_by(Neighbor(other)))


def _missing(
    where: str, wanted: Iterable[Filter | Advertisement], said: Iterable[Filter | Advertisement]
) -> Iterator[str]:
    some = tuple(said)
    for filter in wanted:
        if not any(covers(wider, filter) for wider in some):
            yield f"{where}: {filter} is covered by nothing that was said"


def _needless(where: str, said: Iterable[Filter | Advertisement]) -> Iterator[str]:
    for narrower, wider in permutations(said, 2):
        if covers(wider, narrower):
            yield f"{where}: {narrower} was said, and {wider} covers it"


def _too_wide(where: str, said: Iterable[Filter], wanted: Iterable[Filter]) -> Iterator[str]:
    some = tuple(wanted)
    for filter in said:
        members = [narrower for narrower in some if covers(filter, narrower)]
        if not reduce(or_, members, Filter.nothing()).covers(filter):
            yield f"{where}: {filter} lets more through than is wanted"


# --- advertisements have no union: they are tried with every notification that scripts may publish ----------------


def _too_wide_offers(where: str, said: Iterable[Advertisement], offers: Iterable[Advertisement]) -> Iterator[str]:
    offered_at_all = reduce(or_, map(_matched, offers), 0)
    for offer in said:
        if _matched(offer) & ~offered_at_all:
            yield f"{where}: {offer} offers more than is advertised"


@lru_cache(maxsize=10_000)
def _matched(offer: Advertisement) -> int:
    """The notifications that an advertisement allows, as a set of bits."""
    return sum(1 << number for number, attributes in enumerate(_every_notification()) if offer.matches(attributes))


@cache
def _every_notification() -> tuple[dict[str, Value], ...]:
    domains: dict[str, Iterable[Value | None]] = {
        "place": (None, *PLACES),
        "kind": (None, *KINDS),
        "level": (None, *LEVELS),
    }
    return tuple(
        {name: value for name, value in zip(domains, values, strict=True) if value is not None}
        for values in product(*domains.values())
    )
