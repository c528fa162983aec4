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
        near = _neighbors(stated)
        fresh = [key for key, ends in waiting.items() if _is_current(said[key].unit, ends, stated, near, vertex)]
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


def _neighbors(stated: _Stated) -> dict[Path, set[Path]]:
    near: dict[Path, set[Path]] = {}
    for by_unit in stated.values():
        if len(by_unit) == 2:
            node, other = by_unit
            near.setdefault(node, set()).add(other)
            near.setdefault(other, set()).add(node)
    return near


def _is_current(
    unit: Path, ends: Iterable[Ends], stated: _Stated, near: Mapping[Path, set[Path]], vertex: Path
) -> bool:
    witnesses = {other for each in ends for other in stated.get(each, ()) if other != unit}
    if not witnesses or vertex in witnesses:
        return bool(witnesses)
    # From the vertex to a witness, past nodes of the unit's level or less, and not through the unit.
    seen, waiting = {vertex, unit}, [vertex]
    while waiting:
        for other in near.get(waiting.pop(), ()):
            if other in witnesses:
                return True
            if other not in seen and len(other) >= len(unit):
                seen.add(other)
                waiting.append(other)
    return False
