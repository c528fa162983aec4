"""Which filters of a pattern are available from which neighbors, and which are delegated (SIENA §5.4.1 to §5.4.3).

The *table of available patterns* (Table 5) has the advertisements of the neighbors and the patterns that were delegated
already, each with the neighbors that provide it. *Factoring* (Table 6) finds for each filter of a pattern the neighbors
that notifications for it may come from: those with an advertisement that overlaps the filter. *Delegation* collects
filters that follow one another in the pattern and that are available from the same neighbor, and from nowhere else, in
a *run*: the broker delegates the run to that neighbor as a pattern. A filter that is in no run is *plain interest*: the
broker subscribes to it, as it does for a client that wants this filter. A single filter is no pattern, so it makes no
run.

A filter is not delegated if the broker wants it of that neighbor anyway, as plain interest for somebody else: its
notifications come in any case. Such a filter of a pattern is then plain interest too, and may cover filters of other
patterns, which are not delegated for the same reason. So the choice is repeated until nothing changes. It always begins
with everything that could be delegated, whatever was delegated before: so what neighbors are told depends only on what
is wanted and advertised now, not on the order in which that came about.

These are pure functions: the caller brings the tables.
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
    """Contiguous filters of a pattern that are delegated to a neighbor as a pattern of their own, `part`. `first` is
    the place in the whole pattern of the first of them."""

    first: int
    part: Pattern
    neighbor: Neighbor

    @property
    def steps(self) -> range:
        """The places of the filters in the whole pattern."""
        return range(self.first, self.first + len(self.part.filters))


# The only neighbor that offers notifications for a filter of a pattern. None if none or several offer them, or if
# a local client does.
SourceOf = Callable[[Pattern, Filter], Neighbor | None]
# Whether a filter is wanted of a neighbor as plain interest, for a client or another neighbor.
IsWanted = Callable[[Filter, Neighbor], bool]
Runs = tuple[Run, ...]


def providers(
    offers: Mapping[Neighbor, Iterable[Advertisement]], delegated: Mapping[Neighbor, Iterable[Pattern]]
) -> dict[Advertisement | Pattern, tuple[Neighbor, ...]]:
    """The table of available patterns: each advertisement and each delegated pattern, with the neighbors that provide
    it."""
    table: dict[Advertisement | Pattern, tuple[Neighbor, ...]] = {}
    for neighbor in sorted(offers):
        provided: list[Advertisement | Pattern] = [*offers[neighbor], *delegated.get(neighbor, ())]
        for available in provided:
            table[available] = (*table.get(available, ()), neighbor)
    return table


def runs_of(pattern: Pattern, source_of: Callable[[Filter], Neighbor | None]) -> Runs:
    """The longest runs of a pattern that can be delegated. `source_of` is None for a filter that must stay."""
    runs = []
    sources = [(step, source_of(filter)) for step, filter in enumerate(pattern.filters)]
    # `groupby` joins steps that follow one another and have the same source.
    for neighbor, group in groupby(sources, key=lambda step_and_source: step_and_source[1]):
        steps = [step for step, _ in group]
        if neighbor is not None and len(steps) > 1:
            filters = pattern.filters[steps[0] : steps[-1] + 1]
            part = Pattern.of(*filters, within=pattern.within, by=pattern.by)
            runs.append(Run(steps[0], part, neighbor))
    return tuple(runs)


def delegated(patterns: Iterable[Pattern], source_of: SourceOf, is_wanted: IsWanted) -> dict[Pattern, Runs]:
    """For each pattern the runs that are delegated."""
    listed = tuple(patterns)
    # Filters that must not be delegated, because they are wanted as plain interest anyway.
    wanted: set[Filter] = set()
    for pattern in listed:
        for filter in pattern.filters:
            if (neighbor := source_of(pattern, filter)) is not None and is_wanted(filter, neighbor):
                wanted.add(filter)
    # This ends: `wanted` grows with each round, and has at most the filters of all patterns.
    while True:
        runs_by_pattern = {pattern: _runs(pattern, source_of, wanted) for pattern in listed}
        interest = Poset(
            {filter: None for pattern, runs in runs_by_pattern.items() for filter in plain_filters(pattern, runs)}
        )
        parts = [filter for runs in runs_by_pattern.values() for run in runs for filter in run.part.filters]
        covered = {filter for filter in parts if interest.covering(filter)}
        if not covered:
            return runs_by_pattern
        wanted |= covered


def _runs(pattern: Pattern, source_of: SourceOf, wanted: set[Filter]) -> Runs:
    return runs_of(pattern, lambda filter: None if filter in wanted else source_of(pattern, filter))


def plain_filters(pattern: Pattern, runs: Runs) -> list[Filter]:
    """The filters of a pattern that are plain interest, each once, in order; without filters that match nothing."""
    delegated_steps = {step for run in runs for step in run.steps}
    filters = [filter for step, filter in enumerate(pattern.filters) if step not in delegated_steps]
    return [filter for filter in dict.fromkeys(filters) if not filter.is_empty]
