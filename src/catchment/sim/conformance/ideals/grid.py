"""The Grid Event Service: which units a broker sees, over which edges, and what each of them wants.

By brute force from the links that are usable and from what all clients want. A *unit* here is a prefix of the paths of
brokers. It is *whole* if its brokers, as far as they can be reached at all, reach each other inside of it. The text
calls everything else a partition, and promises nothing across it: so `served_by_units` and the tables look only at the
largest unit around a broker that is whole with all units inside of it. If all are, that is the whole network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from catchment.model.filter import Filter
from catchment.routing.grid.core import GridCore
from catchment.sim.conformance.checkers import Network, reachable
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, filters_wanted
from catchment.sim.grid import contexts_of
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology

Path = tuple[str, ...]
Edge = frozenset[Path]


# --- which units hold together ------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def _paths(topology: Topology, levels: int) -> dict[str, Path]:
    return {broker: (*text.split("."), broker) for broker, text in contexts_of(topology, levels).items()}


def _largest_sound(network: Network, paths: Mapping[str, Path], broker: str) -> Path | None:
    """The largest unit around a broker that is whole with all units inside; None if the broker stands alone. The empty
    path is the whole network."""
    near = reachable(network, broker)
    split = {
        unit
        for other in near
        for length in range(1, len(paths[other]))
        if not _holds_together(network, paths, near, unit := paths[other][:length])
    }
    for length in range(len(paths[broker])):
        around = paths[broker][:length]
        if not any(unit[:length] == around for unit in split):
            return around
    return None


def _holds_together(network: Network, paths: Mapping[str, Path], near: set[str], unit: Path) -> bool:
    members = {broker for broker in near if paths[broker][: len(unit)] == unit}
    return _connected(network, min(members), members) == members


def _connected(network: Network, start: str, members: set[str]) -> set[str]:
    """The brokers among some that one of them reaches without leaving them."""
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for link in network.links_of(here):
            other = link.end(here)
            if link.is_usable and other in members and other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def served_by_units(levels: int) -> Callable[[Network, str], set[str]]:
    """For a broker, the brokers whose clients must get what is published at it."""

    def served(network: Network, broker: str) -> set[str]:
        paths = _paths(network.topology, levels)
        around = _largest_sound(network, paths, broker)
        if around is None:
            return {broker}
        return {other for other in reachable(network, broker) if paths[other][: len(around)] == around}

    return served


def is_whole(levels: int) -> Callable[[Network], bool]:
    """Whether no unit of a network is split."""

    def whole(network: Network) -> bool:
        paths = _paths(network.topology, levels)
        return all(_largest_sound(network, paths, broker) == () for broker in network.topology.brokers)

    return whole


# --- tables -------------------------------------------------------------------------------------


@Ideal
def grid_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Each broker sees the units around it, edges with counts and costs, and what each unit wants, counted."""
    cores = dict(alive(simulation, GridCore))
    paths = {broker: core.path for broker, core in cores.items()}
    for broker, core in cores.items():
        around = _largest_sound(simulation, paths, broker)
        if around is not None:
            inside = {each for each in reachable(simulation, broker) if paths[each][: len(around)] == around}
            yield from _edge_differences(simulation, core, paths, inside, around)
            yield from _profile_differences(simulation, core, paths, inside)
            yield from _speaker_differences(simulation, core, paths, inside, around)
        yield Checked(broker, core.profiles.held())


def _seen(path: Path, vertex: Path) -> Path:
    """As what the vertex sees a broker."""
    for length in range(1, len(path) + 1):
        if path[:length] != vertex[:length]:
            return path[:length]
    return vertex


def _edge_differences(
    simulation: Simulation, core: GridCore, paths: Mapping[str, Path], inside: set[str], around: Path
) -> Iterator[str]:
    connections: dict[Edge, dict[tuple[str, str], int]] = {}
    for broker in inside:
        for link in simulation.links_of(broker):
            if not link.is_usable or not {link.first, link.second} <= inside:
                continue
            ends = frozenset({_seen(paths[link.first], core.path), _seen(paths[link.second], core.path)})
            if len(ends) == 2:
                levels = sorted(len(core.path) - len(end) for end in ends)
                cost = max(1, levels[0] + levels[1]) * link.cost
                connections.setdefault(ends, {})[link.first, link.second] = cost
    actual = {
        frozenset(edge): dict(some)
        for edge, some in core.graph.edges.items()
        if all(end[: len(around)] == around for end in edge)
    }
    if actual != connections:
        yield f"{core.name} has the edges {_shown(actual)}, they should be {_shown(connections)}"
    units = {_seen(paths[broker], core.path) for broker in inside} - {core.path}
    reached = {unit for unit in core.graph.reached() if unit[: len(around)] == around}
    if reached != units:
        yield f"{core.name} reaches {sorted(reached)}, it should reach {sorted(units)}"


def _shown(edges: Mapping[Edge, Mapping[tuple[str, str], int]]) -> list[str]:
    return sorted(f"{sorted('.'.join(end) for end in edge)}: {dict(some)}" for edge, some in edges.items())


def _profile_differences(
    simulation: Simulation, core: GridCore, paths: Mapping[str, Path], inside: set[str]
) -> Iterator[str]:
    units = {_seen(paths[broker], core.path) for broker in inside} - {core.path}
    for unit in sorted(units):
        members = [broker for broker in inside if paths[broker][: len(unit)] == unit]
        wanted: Counter[tuple[str, Filter]] = Counter()
        for broker in members:
            # Of units of the highest level, also which units inside want it.
            within = paths[broker][1] if len(unit) == 1 else ""
            wanted.update((within, filter) for filter in filters_wanted(simulation, {broker}))
        actual = core.profiles.of(unit)
        if actual != wanted:
            yield f"{core.name} counts {_listed(actual)} of {'.'.join(unit)}, there are {_listed(wanted)}"


def _listed(counts: Mapping[tuple[str, Filter], int]) -> list[str]:
    return sorted(f"{count} of {filter} {within}" for (within, filter), count in counts.items())


def _speaker_differences(
    simulation: Simulation, core: GridCore, paths: Mapping[str, Path], inside: set[str], around: Path
) -> Iterator[str]:
    """A broker believes each broker of its cluster, and each gatekeeper of another unit that it sees, unless all that
    this one says would have to pass through the unit that it speaks for."""
    speakers = set()
    for unit in {_seen(paths[broker], core.path) for broker in inside} - {core.path}:
        # Those that hear of the unit: in the unit around it, on a way that does not lead through it.
        near = {each for each in inside if paths[each][: len(unit) - 1] == unit[:-1]}
        outside = {each for each in near if paths[each][: len(unit)] != unit}
        hearing = _connected(simulation, core.name, outside)
        for broker in near - outside:
            others = [link.end(broker) for link in simulation.links_of(broker) if link.is_usable]
            if hearing.intersection(others):
                speakers.add((len(core.path) - len(unit), broker))
    statements = {key: core.gateways.statement(key) for key in core.gateways.believed}
    actual = {key for key, said in statements.items() if said is not None and said.unit[: len(around)] == around}
    if actual != speakers:
        yield f"{core.name} believes {sorted(actual)}, it should believe {sorted(speakers)}"
