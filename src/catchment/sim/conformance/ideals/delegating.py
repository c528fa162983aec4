"""Brokers that delegate parts of patterns: siena delegating.

What goes over a link depends on what is wanted on the sender's side of it and offered on either, never on what comes
back over it: so it is computed from the leaves of the network inwards, for one broker at a time.

The rule (SIENA §5.4.1 to §5.4.3). A place of a pattern has a *source*: the one neighbor from which notifications for
its filter may come. It has none if several neighbors, none, or a client here offer something that overlaps the filter;
a neighbor that delegated the pattern is no source of it. Places that follow one another and have the same source are
delegated to it together, if they are two or more. A filter that comes anyway is not delegated: something that covers it
is wanted besides, by somebody other than the source, or at a place that is not delegated. Each place that is taken out
for that reason may break a run and leave more places that are not delegated, so this goes on until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Neighbor, Wanted
from catchment.routing.siena.delegating import DelegatingCore
from catchment.sim.conformance.checkers import side_of, wants_at
from catchment.sim.conformance.ideals.hop_by_hop import NOTHING, Said, held_by_neighbors
from catchment.sim.conformance.ideals.tables import (
    Checked,
    Ideal,
    alive,
    covers,
    differences,
    filters_in,
    offered,
    overlapping,
)
from catchment.sim.simulation import Simulation


@Ideal
def delegating_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Over each link go the roots of what is advertised; the parts of patterns that are delegated; the roots of what
    is wanted besides, among that which overlaps something advertised on the other side."""
    network = _Network(simulation)
    for broker, core in alive(simulation, DelegatingCore):
        for link in simulation.links_of(broker):
            other = link.end(broker)
            outward = network.told(broker, other) if link.is_usable else _Told(NOTHING, set())
            inward = network.told(other, broker) if link.is_usable else _Told(NOTHING, set())
            yield from _link_differences(core, other, outward, inward)
        held = held_by_neighbors(simulation, core)
        yield Checked(broker, {other: (*some, *core.delegated_by(Neighbor(other))) for other, some in held.items()})


@dataclass(frozen=True, slots=True)
class _Told:
    """What a broker should have told a neighbor."""

    said: Said
    parts: set[Pattern]


def _link_differences(core: DelegatingCore, other: str, outward: _Told, inward: _Told) -> Iterator[str]:
    neighbor = Neighbor(other)
    to, held = f"{core.name} to {other}", f"{core.name} holds for {other}"
    yield from differences(to, outward.said.wanted, core.interest.told_to(neighbor))
    yield from differences(held, inward.said.wanted, core.interest.held_by(neighbor))
    yield from differences(to, outward.said.offers, core.offers.told_to(neighbor))
    yield from differences(held, inward.said.offers, core.offers.held_by(neighbor))
    yield from _pattern_differences(to, outward.parts, set(core.delegated_to(neighbor)))
    yield from _pattern_differences(held, inward.parts, set(core.delegated_by(neighbor)))


def _pattern_differences(where: str, ideal: set[Pattern], actual: set[Pattern]) -> Iterator[str]:
    yield from (f"{where}: {pattern} is not delegated" for pattern in sorted(ideal - actual, key=str))
    yield from (f"{where}: {pattern} should not be delegated" for pattern in sorted(actual - ideal, key=str))


# A place in a pattern, from 0.
_Place = tuple[Pattern, int]


@dataclass
class _Broker:
    """What the choice at one broker depends on. `offers` are of its neighbors, `wanted` is plain interest with who has
    it: a neighbor, or None for clients here. `patterns` have the neighbors that delegated them."""

    offers: dict[str, list[Advertisement]]
    offers_here: list[Advertisement]
    wanted: list[tuple[str | None, Filter]] = field(default_factory=list)
    patterns: dict[Pattern, set[str]] = field(default_factory=dict)

    def delegated(self) -> dict[_Place, str]:
        """The places that are delegated, with their source."""
        # All that could be delegated, whatever was delegated before: what is told does not depend on the way there.
        candidates = {place: source for place in self._places() if (source := self._source(place)) is not None}
        candidates = {place: source for place, source in candidates.items() if not self._is_wanted(place, source)}
        while True:
            delegated = {place: source for place, source in candidates.items() if _is_in_run(place, candidates)}
            covered = [place for place in delegated if self._is_covered(place, delegated)]
            if not covered:
                return delegated
            for place in covered:
                del candidates[place]

    def kept(self, delegated: dict[_Place, str]) -> list[Filter]:
        """The filters of patterns that stay plain interest."""
        filters = [_filter_at(place) for place in self._places() if place not in delegated]
        return [filter for filter in filters if not filter.is_empty]

    def _places(self) -> list[_Place]:
        return [(pattern, step) for pattern in self.patterns for step in range(len(pattern.filters))]

    def _source(self, place: _Place) -> str | None:
        if overlapping([_filter_at(place)], self.offers_here):
            return None
        neighbors = [neighbor for neighbor in self.offers if neighbor not in self.patterns[place[0]]]
        sources = [neighbor for neighbor in neighbors if overlapping([_filter_at(place)], self.offers[neighbor])]
        return sources[0] if len(sources) == 1 else None

    def _is_wanted(self, place: _Place, source: str) -> bool:
        return any(who != source and covers(filter, _filter_at(place)) for who, filter in self.wanted)

    def _is_covered(self, place: _Place, delegated: dict[_Place, str]) -> bool:
        return any(covers(filter, _filter_at(place)) for filter in self.kept(delegated))


def _filter_at(place: _Place) -> Filter:
    pattern, step = place
    return pattern.filters[step]


def _is_in_run(place: _Place, candidates: dict[_Place, str]) -> bool:
    """Whether the place before or after it has the same source: a run of one is no pattern."""
    pattern, step = place
    return any(candidates.get((pattern, beside)) == candidates[place] for beside in (step - 1, step + 1))


def _parts(delegated: dict[_Place, str], receiver: str) -> Iterator[Pattern]:
    """The runs that one neighbor is told, each as a pattern of its own."""
    for (pattern, first), source in delegated.items():
        if source == receiver and delegated.get((pattern, first - 1)) != receiver:
            end = first
            while delegated.get((pattern, end)) == receiver:
                end += 1
            yield Pattern.of(*pattern.filters[first:end], within=pattern.within, by=pattern.by)


class _Network:
    """What should go over each link, computed once."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._told: dict[tuple[str, str], _Told] = {}

    def told(self, sender: str, receiver: str) -> _Told:
        if (sender, receiver) not in self._told:
            self._told[sender, receiver] = self._computed(sender, receiver)
        return self._told[sender, receiver]

    def _offered_beyond(self, sender: str, receiver: str) -> list[Advertisement]:
        """What is advertised on the sender's side of a link."""
        return offered(self._simulation, side_of(self._simulation, sender, receiver))

    def _computed(self, sender: str, receiver: str) -> _Told:
        neighbors = [link.end(sender) for link in self._simulation.links_of(sender) if link.is_usable]
        broker = _Broker(
            {neighbor: self._offered_beyond(neighbor, sender) for neighbor in neighbors},
            offered(self._simulation, {sender}),
        )
        for wants in wants_at(self._simulation, {sender}).values():
            for wanted in wants:
                _enter(broker, wanted)
        for neighbor in neighbors:
            # What the receiver wants itself does not come back to it.
            if neighbor != receiver:
                told = self.told(neighbor, sender)
                broker.wanted += [(neighbor, filter) for filter in told.said.wanted]
                for part in told.parts:
                    broker.patterns.setdefault(part, set()).add(neighbor)
        delegated = broker.delegated()
        plain = [filter for _, filter in broker.wanted] + broker.kept(delegated)
        told_besides = overlapping(plain, broker.offers[receiver])
        return _Told(
            Said(told_besides, self._offered_beyond(sender, receiver)),
            set(_parts(delegated, receiver)),
        )


def _enter(broker: _Broker, wanted: Wanted) -> None:
    """What a client wants: a pattern of several filters may be delegated, all else is plain interest."""
    if isinstance(wanted, Pattern) and len(wanted.filters) > 1:
        broker.patterns.setdefault(wanted, set())
    else:
        broker.wanted += [(None, filter) for filter in filters_in(wanted) if not filter.is_empty]
