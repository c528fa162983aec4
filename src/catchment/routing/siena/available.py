"""Which parts of a pattern are available from whom, and which are delegated to whom (SIENA §5.4.1 to §5.4.3).

The table of available patterns is the advertisements of the neighbors with their providers, and the patterns that
were delegated already (Table 5). Factoring finds for each filter of a pattern where notifications for it may come
from (Table 6): advertisements concern a filter that they overlap. Delegation groups contiguous filters that are
available from one and the same neighbor, and from nowhere else, into a *run*; a run of one is no pattern and stays
plain interest.

A filter that is wanted of that neighbor anyway, as plain interest for somebody else, is not delegated: its
notifications come in any case. Filters that are not delegated for that reason are plain interest too and may in turn
cover others, so this is repeated until nothing changes. It begins with all that could be delegated, whatever was
delegated before: what is told depends on what is wanted and advertised, not on the way there.

Pure functions: who asks brings the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from msgspec import Struct

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Neighbor
from catchment.routing.poset import Poset


class Run(Struct, frozen=True):
    """Filters of a pattern, from the place `first`, that are delegated to a neighbor as a pattern of their own."""

    first: int
    part: Pattern
    neighbor: Neighbor

    @property
    def steps(self) -> range:
        """Their places in the whole pattern."""
        return range(self.first, self.first + len(self.part.filters))


# The neighbor that alone offers what a filter of a pattern wants; None if there are several, or none, or a client here.
SourceOf = Callable[[Pattern, Filter], Neighbor | None]
# Whether a filter is wanted of a neighbor for somebody who is no pattern.
IsWanted = Callable[[Filter, Neighbor], bool]
Runs = tuple[Run, ...]


def providers(
    offers: Mapping[Neighbor, Iterable[Advertisement]], delegated: Mapping[Neighbor, Iterable[Pattern]]
) -> dict[Advertisement | Pattern, tuple[Neighbor, ...]]:
    """The table of available patterns: each with the neighbors that it is available from."""
    found: dict[Advertisement | Pattern, tuple[Neighbor, ...]] = {}
    for neighbor in sorted(offers):
        some: list[Advertisement | Pattern] = [*offers[neighbor], *delegated.get(neighbor, ())]
        for one in some:
            found[one] = (*found.get(one, ()), neighbor)
    return found


def runs_of(pattern: Pattern, source_of: Callable[[Filter], Neighbor | None]) -> Runs:
    """The longest runs that can be delegated."""
    found = []
    sources = [(step, source_of(filter)) for step, filter in enumerate(pattern.filters)]
    for neighbor, group in groupby(sources, key=lambda one: one[1]):
        steps = [step for step, _ in group]
        if neighbor is not None and len(steps) > 1:
            filters = pattern.filters[steps[0] : steps[-1] + 1]
            part = Pattern.of(*filters, within=pattern.within, by=pattern.by)
            found.append(Run(steps[0], part, neighbor))
    return tuple(found)


def delegated(patterns: Iterable[Pattern], source_of: SourceOf, is_wanted: IsWanted) -> dict[Pattern, Runs]:
    """For each pattern the runs that are delegated."""
    some = tuple(patterns)
    wanted: set[Filter] = set()
    for pattern in some:
        for filter in pattern.filters:
            if (neighbor := source_of(pattern, filter)) is not None and is_wanted(filter, neighbor):
                wanted.add(filter)
    while True:
        found = {one: _runs(one, source_of, wanted) for one in some}
        plain = Poset({one: None for pattern, runs in found.items() for one in plain_filters(pattern, runs)})
        parts = [filter for runs in found.values() for run in runs for filter in run.part.filters]
        covered = {one for one in parts if plain.covering(one)}
        if not covered:
            return found
        wanted |= covered


def _runs(pattern: Pattern, source_of: SourceOf, wanted: set[Filter]) -> Runs:
    return runs_of(pattern, lambda filter: None if filter in wanted else source_of(pattern, filter))


def plain_filters(pattern: Pattern, runs: Runs) -> list[Filter]:
    """The filters that stay plain interest, in order; without those that match nothing."""
    delegated_steps = {step for run in runs for step in run.steps}
    filters = [one for step, one in enumerate(pattern.filters) if step not in delegated_steps]
    return [one for one in dict.fromkeys(filters) if not one.is_empty]
