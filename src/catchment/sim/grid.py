"""Contexts for the brokers of any network, so that the system `grid` can run in it.

Brokers are put into units level by level: neighbors that have no unit yet are gathered around the first of them, until
the unit is full. So every unit holds together by itself. Then units are gathered in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catchment.errors import InputError
from catchment.sim.topology import Topology

# Levels, unless a scenario says how many.
LEVELS: Final = 2
# The size of units where the network is small: so even a small network has several of each level.
UNIT_SIZE_MIN: Final = 3
# As in the routing system.
UNIT_SIZE_MAX: Final = 64
# The first letter of the names of units, by level.
_LETTERS: Final = "cstuvwxy"


def contexts_of(topology: Topology, levels: int) -> dict[str, str]:
    """For each broker its context. InputError if the network is too large for so many levels."""
    for size in range(UNIT_SIZE_MIN, UNIT_SIZE_MAX + 1):
        names = _names(topology, levels, size)
        if set(names.values()) and len({path[0] for path in names.values()}) <= UNIT_SIZE_MAX:
            return {broker: ".".join(path) for broker, path in names.items()}
    raise InputError(f"a grid of {levels} levels has no room for {len(topology.brokers):,} brokers: use more levels")


def _names(topology: Topology, levels: int, size: int) -> dict[str, tuple[str, ...]]:
    """For each broker the names of its units, from the highest level down."""
    near: dict[str, set[str]] = {broker: set(others) for broker, others in topology.neighbors().items()}
    # By broker, the unit of the level reached so far.
    unit_of = {broker: broker for broker in topology.brokers}
    names: dict[str, tuple[str, ...]] = dict.fromkeys(topology.brokers, ())
    for level in range(levels):
        groups = _groups(near, size)
        label = {member: f"{_LETTERS[level]}{groups[member]}" for member in near}
        around: dict[str, set[str]] = {label[member]: set() for member in near}
        for member, others in near.items():
            around[label[member]] |= {label[other] for other in others} - {label[member]}
        unit_of = {broker: label[unit] for broker, unit in unit_of.items()}
        names = {broker: (unit_of[broker], *path) for broker, path in names.items()}
        near = around
    return names


def _groups(near: Mapping[str, set[str]], size: int) -> dict[str, int]:
    """Puts neighbors together, at most so many in a group. For each member the number of its group."""
    groups: dict[str, int] = {}
    count = 0
    for first in sorted(near):
        if first in groups:
            continue
        count += 1
        members, place = [first], 0
        groups[first] = count
        while place < len(members):
            for other in sorted(near[members[place]]):
                if other not in groups and len(members) < size:
                    groups[other] = count
                    members.append(other)
            place += 1
    return groups
