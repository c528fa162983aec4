"""What the tables of brokers that delegate parts of patterns should be, computed from what all clients want.

What goes over a link depends on what is wanted on the sender's side of it and offered on either, never on what comes
back over it: so it is computed from the leaves inwards, with the choice that the brokers make (`available.py`) for one
broker at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Neighbor
from catchment.routing.parts.wanted import filters_for
from catchment.routing.poset import Poset
from catchment.routing.siena.available import delegated, plain_filters
from catchment.routing.siena.delegating import DelegatingCore
from catchment.sim.conformance.checkers import side_of, wants_at
from catchment.sim.conformance.ideal import alive, differences, offered
from catchment.sim.simulation import Simulation

_Told = tuple[list[Filter], set[Pattern]]


def delegating_tables(simulation: Simulation) -> Iterator[str]:
    """Over each link go the roots of what is advertised; the parts of patterns that can be delegated; the roots of
    what is wanted besides among that which overlaps something advertised on the other side."""
    ideal = _Ideal(simulation)
    for broker, core in alive(simulation, DelegatingCore):
        for link in simulation.links_of(broker):
            neighbor = Neighbor(link.end(broker))
            filters, parts = ideal.told(broker, neighbor.name) if link.is_usable else ([], set())
            where = f"{broker} to {neighbor}"
            yield from differences(where, filters, core.interest.told_to(neighbor))
            yield from _different(where, parts, set(core.delegated_to(neighbor)))
            offers = ideal.offered(broker, neighbor.name) if link.is_usable else []
            yield from differences(where, offers, core.offers.told_to(neighbor))
            receiver = simulation.cores[neighbor.name]
            if isinstance(receiver, DelegatingCore):
                yield from _different(f"{neighbor} of {broker}", parts, set(receiver.delegated_by(Neighbor(broker))))


def _different(where: str, wanted: set[Pattern], found: set[Pattern]) -> Iterator[str]:
    yield from (f"{where}: {one} is not delegated" for one in sorted(wanted - found, key=str))
    yield from (f"{where}: {one} should not be delegated" for one in sorted(found - wanted, key=str))


class _Ideal:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._told: dict[tuple[str, str], _Told] = {}
        self._offered: dict[tuple[str, str], list[Advertisement]] = {}

    def offered(self, broker: str, without: str) -> list[Advertisement]:
        """What is advertised on a broker's side of a link."""
        if (broker, without) not in self._offered:
            found = offered(self.simulation, side_of(self.simulation, broker, without))
            self._offered[broker, without] = found
        return self._offered[broker, without]

    def told(self, broker: str, to: str) -> _Told:
        if (broker, to) not in self._told:
            self._told[broker, to] = self._computed(broker, to)
        return self._told[broker, to]

    def _computed(self, broker: str, to: str) -> _Told:
        neighbors = [one.end(broker) for one in self.simulation.links_of(broker) if one.is_usable]
        wants = [one for some in wants_at(self.simulation, {broker}).values() for one in some]
        needs: dict[Pattern, set[str]] = {one: set() for one in wants if isinstance(one, Pattern) and not one.is_simple}
        plain = [filter for one in wants if one not in needs for filter in filters_for(one) if not filter.is_empty]
        for other in neighbors:
            if other != to:
                filters, parts = self.told(other, broker)
                plain += Poset(filters).roots
                for part in parts:
                    needs.setdefault(part, set()).add(other)
        here = offered(self.simulation, {broker})

        def source_of(pattern: Pattern, filter: Filter) -> Neighbor | None:
            sources = [
                one
                for one in neighbors
                if one not in needs[pattern] and any(offer.overlaps(filter) for offer in self.offered(one, broker))
            ]
            is_local = any(offer.overlaps(filter) for offer in here)
            return Neighbor(sources[0]) if len(sources) == 1 and not is_local else None

        runs = delegated(needs, source_of, lambda filter, neighbor: any(one.covers(filter) for one in plain))
        plain += [filter for pattern, some in runs.items() for filter in plain_filters(pattern, some)]
        beyond = self.offered(to, broker)
        told = [one for one in plain if any(offer.overlaps(one) for offer in beyond)]
        return told, {run.part for some in runs.values() for run in some if run.neighbor.name == to}
