"""A scenario fitted to its network: the links that its routing system uses, cores with settings, where clients are.

All that can be wrong with a scenario is found here, before anything is played. The same scenario with another routing
system has the same placement: that depends on the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catchment.errors import InputError, shown
from catchment.routing.systems import system_named
from catchment.sim.hybrid import HybridTopology
from catchment.sim.scenarios.groups import Group
from catchment.sim.scenarios.scenario import Fault, Scenario
from catchment.sim.scenarios.settings import setting_types, with_expected
from catchment.sim.simulation import MakeCore
from catchment.sim.topology import Topology

# So many names of brokers are shown to somebody who has named another.
SHOWN_BROKERS: Final = 8
# Distances between all brokers are looked at in networks of up to so many: that takes a second.
FAR_APART_BROKERS_MAX: Final = 1_500


@dataclass(frozen=True)
class ReadyRun:
    """A run that can begin."""

    scenario: Scenario
    # With all links, and with those that the routing system uses.
    whole: Topology
    topology: Topology
    make_core: MakeCore
    # Of the routing system, for all brokers, with what publishers draw.
    settings: Mapping[str, Any]
    # By identity, the broker that each client is at first.
    homes: Mapping[str, str]
    faults: tuple[Fault, ...]
    # What somebody who reads the measures should know.
    notes: tuple[str, ...]

    @property
    def is_on_spanning_tree(self) -> bool:
        return len(self.topology.links) < len(self.whole.links)


def ready_run(scenario: Scenario, directory: Path | None = None) -> ReadyRun:
    """InputError says what is wrong, where, and what to do. `directory` is where files of networks are."""
    whole = scenario.whole_network(directory)
    _check_names(scenario, whole)
    entry = scenario.entry
    if entry.needs_units and not isinstance(whole, HybridTopology):
        raise InputError(
            f"{scenario.routing} needs a network of units, and {shown(scenario.network)} has none: write [[units]] "
            'instead of network, or use network = "hierarchies-in-general 4x6" or "clusters-in-acyclic 3x5"'
        )
    topology = whole.spanning_tree() if entry.needs_tree else whole
    settings = with_expected(scenario.routing, scenario.settings, scenario.publishers)
    _check_places(scenario, topology, entry.places(topology, settings))
    make_core = entry.make_core(topology, settings)
    make_core(topology.brokers[0])  # what only the core itself can find wrong with its settings
    faults = tuple(fault for fault in scenario.faults if _is_within(fault, topology))
    notes = tuple(_notes(scenario, whole, topology, faults))
    return ReadyRun(scenario, whole, topology, make_core, settings, homes_of(scenario, whole), faults, notes)


def _notes(scenario: Scenario, whole: Topology, topology: Topology, faults: tuple[Fault, ...]) -> Iterator[str]:
    if len(topology.links) < len(whole.links):
        yield (
            f"{scenario.routing} is for networks without cycles: it runs on a spanning tree, "
            f"with {len(topology.links):,} of {len(whole.links):,} links"
        )
    yield from _far_apart(scenario, topology)
    for fault in scenario.faults:
        if fault not in faults:
            link = " and ".join(fault.names)
            yield f"{scenario.routing}: the link between {link} is not in its tree, so no {fault.kind} there"


def _far_apart(scenario: Scenario, topology: Topology) -> Iterator[str]:
    """Says so if a system counts links up to `infinity` and there are brokers that are so many apart."""
    if "infinity" not in setting_types(scenario.routing) or len(topology.brokers) > FAR_APART_BROKERS_MAX:
        return
    given = system_named(scenario.routing).settings_of(scenario.settings)
    neighbors = topology.neighbors()
    most = max(_links_to_the_farthest(neighbors, broker) for broker in topology.brokers)
    if most >= given.infinity:
        yield (
            f"{scenario.routing}: brokers that are {given.infinity} links apart or more do not reach each other, and "
            f"some are {most} apart: use --set infinity={most + 1}"
        )


def _links_to_the_farthest(neighbors: Mapping[str, Iterable[str]], start: str) -> int:
    """Of the brokers that can be reached."""
    seen, level, links = {start}, [start], 0
    while level := list({other for here in level for other in neighbors[here]} - seen):
        seen.update(level)
        links += 1
    return links


def _is_within(fault: Fault, topology: Topology) -> bool:
    """Whether the link of a fault is in the network; brokers always are."""
    return len(fault.names) == 1 or any({link.first, link.second} == set(fault.names) for link in topology.links)


# --- names of brokers ---------------------------------------------------------------------------


def _check_names(scenario: Scenario, network: Topology) -> None:
    for name, group in scenario.named_groups():
        _check_brokers(group.at, network, f"clients {name}: at")
    for change in scenario.changes:
        if change.kind == "connect":
            _check_brokers(map(str, change.arguments), network, f"[[changes]] at {change.at_s} s: connect")
    for fault in scenario.faults:
        where = f"[[faults]] at {fault.at_s} s: {fault.kind}"
        _check_brokers(fault.names, network, where)
        if not _is_within(fault, network):
            first, second = fault.names
            links = ", ".join(sorted(network.neighbors()[first]))
            raise InputError(f"{where}: there is no link between {first} and {second}; {first} has links to {links}")


def _check_brokers(names: Iterable[str], network: Topology, where: str) -> None:
    for name in names:
        if name not in network.brokers:
            few, many = network.brokers[:SHOWN_BROKERS], len(network.brokers) > SHOWN_BROKERS
            raise InputError(
                f"{where}: there is no broker {shown(name)}; brokers are {', '.join(few)}{', …' if many else ''}"
            )


def _check_places(scenario: Scenario, network: Topology, by_place: Mapping[str, Mapping[str, Any]]) -> None:
    """What a broker is told by its place cannot be given for all, unless all are told the same."""
    for name, value in scenario.settings.items():
        values = [settings.get(name) for settings in by_place.values()]
        if any(each != values[0] for each in values):
            raise InputError(
                f"[settings]: {name} of {scenario.routing} follows from a broker's place in the network: leave it out"
            )
        if values and values[0] in network.brokers:
            _check_brokers([str(value)], network, f"[settings]: {name} of {scenario.routing}")


# --- placement ----------------------------------------------------------------------------------


def homes_of(scenario: Scenario, network: Topology) -> dict[str, str]:
    """Where each client is at first. Chance alone decides where a group does not say it."""
    rng = random.Random(f"{scenario.seed} placement")
    homes: dict[str, str] = {}
    for name, group in scenario.named_groups():
        homes.update(zip(group.identities(name), _brokers_of(group, name, network, rng), strict=True))
    return homes


def _brokers_of(group: Group, name: str, network: Topology, rng: random.Random) -> list[str]:
    if group.is_distinct:
        allowed = tuple(dict.fromkeys(group.at)) or network.brokers
        if group.count > len(allowed):
            what = "brokers in at" if group.at else "brokers"
            raise InputError(
                f"clients {name}: distinct: {group.count:,} clients cannot each be at another of {len(allowed):,} "
                f"{what}; have fewer clients, or leave distinct out"
            )
        return list(allowed[: group.count]) if group.at else rng.sample(allowed, group.count)
    if group.at:
        return [group.at[number % len(group.at)] for number in range(group.count)]
    return [rng.choice(network.brokers) for _ in range(group.count)]
