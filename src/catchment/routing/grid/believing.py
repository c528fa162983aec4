"""Which statements about units a broker believes, and which edges follow from them (Grid §3.1, §3.3).

A gatekeeper that has failed cannot take back what it said, and what a gatekeeper says now may no longer arrive. So a
broker, the *vertex*, believes a statement about a unit only if it can be the newest of its speaker:

- The speaker has a connection of the unit's level itself, which leaves the unit. Somebody whom the vertex believes, at
  the other end of the connection, states it too.
- From there to the vertex leads a way over edges, past units of that level or less, which does not pass through the
  unit itself: the way that statements take (`gateways.py`).

It begins with the vertex's own connections, and goes on until nothing more is believed. An *edge* needs a statement of
each of its two ends. So statements of the failed, and of those that are only reached through them, are left out at once
when a neighbor of theirs takes back its side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from catchment.routing.grid.graph import Edge, Ends, base_cost, edge_between
from catchment.routing.grid.messages import Gateway, Gateways
from catchment.routing.grid.units import Path
from catchment.routing.messages import LINK_COST_MAX

# A speaker, and the level of the unit that it speaks for.
Key = tuple[int, str]
# By connection: the units that state it, the vertex among them.
_Stated = dict[Ends, dict[Path, Gateway]]


def believed(vertex: Path, own: Iterable[Gateway], said: Mapping[Key, Gateways]) -> set[Key]:
    """The speakers that are believed."""
    stated: _Stated = {gateway.ends: {vertex: gateway} for gateway in own}
    waiting = {key: ends for key in sorted(said) if (ends := _own_ends(key, said[key]))}
    trusted: set[Key] = set()
    while True:
        ways = _Ways(vertex, stated)
        fresh = [key for key, ends in waiting.items() if ways.is_current(said[key].unit, ends)]
        if not fresh:
            return trusted
        for key in fresh:
            del waiting[key]
            trusted.add(key)
            _enter(stated, said[key])


def edges(vertex: Path, own: Iterable[Gateway], trusted: Iterable[Gateways]) -> dict[Edge, dict[Ends, int]]:
    """The edges that both ends state, each with its connections and what they cost."""
    stated: _Stated = {gateway.ends: {vertex: gateway} for gateway in own}
    for each in trusted:
        _enter(stated, each)
    found: dict[Edge, dict[Ends, int]] = {}
    for ends, by_unit in stated.items():
        levels = sorted(len(vertex) - len(unit) for unit in by_unit)
        # A connection of two other units than its level says was made up.
        if len(levels) == 2 and all(gateway.level == levels[1] for gateway in by_unit.values()):
            cost = base_cost(levels[0], levels[1]) * max(gateway.cost for gateway in by_unit.values())
            found.setdefault(edge_between(*by_unit), {})[ends] = min(cost, LINK_COST_MAX)
    return found


def _own_ends(key: Key, said: Gateways) -> list[Ends]:
    """The connections of the unit's level that the speaker has itself."""
    level, speaker = key
    return [gateway.ends for gateway in said.gateways if gateway.level == level and speaker in gateway.ends]


def _enter(stated: _Stated, said: Gateways) -> None:
    for gateway in said.gateways:
        by_unit = stated.setdefault(gateway.ends, {})
        # Of two speakers for one unit the greater cost: the same, in whatever order they are entered.
        by_unit[said.unit] = max(gateway, by_unit.get(said.unit, gateway))


class _Ways:
    """The edges that statements make, and the ways that they offer from the vertex."""

    def __init__(self, vertex: Path, stated: _Stated) -> None:
        self._vertex = vertex
        self._stated = stated
        self._near: dict[Path, set[Path]] = {}
        for by_unit in stated.values():
            if len(by_unit) == 2:
                node, other = by_unit
                self._near.setdefault(node, set()).add(other)
                self._near.setdefault(other, set()).add(node)
        # By length of paths of units: a tree of ways past units of that level or less.
        self._trees: dict[int, dict[Path, Path | None]] = {}

    def is_current(self, unit: Path, ends: Iterable[Ends]) -> bool:
        """Whether what is said about a unit, by a speaker that has these connections, still arrives."""
        witnesses = {other for each in ends for other in self._stated.get(each, ()) if other != unit}
        if not witnesses or self._vertex in witnesses:
            return bool(witnesses)
        tree = self._trees.get(len(unit))
        if tree is None:
            tree = self._trees[len(unit)] = self._tree(len(unit), None)
        reached = [witness for witness in witnesses if witness in tree]
        # Mostly the tree itself has a way that does not pass through the unit. If not, there may be another.
        if not reached or not all(self._passes(tree, witness, unit) for witness in reached):
            return bool(reached)
        return not witnesses.isdisjoint(self._tree(len(unit), unit))

    def _passes(self, tree: Mapping[Path, Path | None], node: Path, unit: Path) -> bool:
        here: Path | None = node
        while here is not None and here != unit:
            here = tree[here]
        return here == unit

    def _tree(self, length: int, without: Path | None) -> dict[Path, Path | None]:
        """For each node that can be reached past units of a level or less, the node before it."""
        before: dict[Path, Path | None] = {self._vertex: None}
        waiting = deque([self._vertex])
        while waiting:
            here = waiting.popleft()
            for other in self._near.get(here, ()):
                if other not in before and len(other) >= length and other != without:
                    before[other] = here
                    waiting.append(other)
        return before
