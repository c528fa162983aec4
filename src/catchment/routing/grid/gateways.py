"""The gateway propagation protocol: what a broker knows of connections between units (Grid §3.1.1).

A *connection* is a link between two brokers. It has the highest level ℓ at which their contexts differ, and both are
*gatekeepers* of level ℓ. It may be known only within the unit of level ℓ + 1 that both are in, and everybody there sees
its ends as units of its own view.

State: the neighbors with their paths; for each unit that this broker sees, what its *speakers* said about the
connections that leave it; what this broker itself says; the connectivity graph made from all that.

speaking    Every broker speaks for itself, in its cluster: it says all its connections. A gatekeeper of level ℓ ≥ 1
            also speaks for its unit of level ℓ, to the other units of level ℓ: it says all connections of level ℓ or
            more of the brokers in its unit that it can reach inside the unit. So the ends are rewritten where a
            statement leaves a unit: `5 – SC-2` in cluster c is `c – SC-2` outside, and connections of less than level ℓ
            never leave. If several gatekeepers speak for one unit, what they say is put together.
flooding    A statement about a unit of level ℓ goes over links of level ℓ or less, and not into the unit itself. A
            broker passes it on when it is new to it.
believing   Of what it has heard, a broker believes what can be the newest (`believing.py`), and makes the edges of its
            connectivity graph of that.
LinkUp      The broker says who it is (`Context`). The link is used when the neighbor has said that too.
Context     makes the link known, and gives the neighbor all statements that may cross the link. A neighbor is refused
            if its path does not end with its name, has another number of levels, changes while the link is up, or
            would be one unit too many in a full unit (BLOCK_LIMIT).
LinkDown    takes the connection back.
forgetting  Statements that nobody has believed for FORGET_US are forgotten; every CHECK_US the broker looks for them.
            A broker that still has one passes it on once more when it hears it again: others may have forgotten it.

Numbers of statements are times, as in `parts/link_states.py`, so a broker that restarts numbers above what it said
before. If its clock has gone back, the neighbor that knows a greater number says so, and the broker outbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from catchment.errors import LimitError, RemoteProtocolError
from catchment.routing.grid.believing import Key, believed, edges
from catchment.routing.grid.graph import ConnectivityGraph, Ends
from catchment.routing.grid.messages import Context, Gateway, Gateways
from catchment.routing.grid.units import (
    BLOCK_LIMIT,
    Path,
    contains,
    free_context,
    level_of,
    link_level,
    seen_from,
    shown_path,
)
from catchment.routing.messages import Action, BrokerMessage, Neighbor, Send, SetTimer, Time
from catchment.routing.parts.link_states import CHECK_US, FORGET_US, following, implausible, is_plausible

# Statements that a broker keeps: of each unit that it sees, from several speakers.
STATEMENTS_MAX: Final = 20_000
# The timer of the checks.
CHECK_TIMER: Final = "grid statements"


class Link(NamedTuple):
    """A link in use: the neighbor's path, the level of the connection, the cost that the host gives it."""

    path: Path
    level: int
    cost: int


class GatewayStatements:
    """What the broker at `path` knows. `forgotten` is called with each speaker whose statement is forgotten."""

    def __init__(self, path: Path, forgotten: Callable[[Key], None]) -> None:
        self.path = path
        self.name = path[-1]
        self.levels = len(path) - 1
        self.graph = ConnectivityGraph(path)
        self.links: dict[Neighbor, Link] = {}
        # Links that are up, whose other end has not said who it is: their costs.
        self._waiting: dict[Neighbor, int] = {}
        self._said: dict[Key, Gateways] = {}
        self._own: dict[int, Gateways] = {}
        self._believed: set[Key] = set()
        self._forgotten = forgotten
        # Statements that nobody has believed, since when.
        self._doubted: dict[Key, Time] = {}
        self._repeated: set[tuple[type, Key]] = set()
        self._is_checking = False
        # Statements that found no room, or made no sense.
        self.dropped = 0

    # --- what is known ---

    @property
    def believed(self) -> set[Key]:
        """The speakers that this broker believes. Not a copy."""
        return self._believed

    @property
    def cut_off(self) -> list[Path]:
        """The units of which this broker has heard and that it cannot reach now: a partition, or they are gone."""
        reached = self.graph.reached()
        return sorted({said.unit for said in self._said.values() if said.unit not in reached})

    def statement(self, key: Key) -> Gateways | None:
        return self._said.get(key)

    def speaks_at(self, level: int) -> bool:
        """Whether this broker speaks for its unit of this level: all do for themselves, gatekeepers for more."""
        return level == 0 or any(link.level == level for link in self.links.values())

    def level(self, unit: Path) -> int:
        return level_of(unit, self.levels)

    # --- links ---

    def up(self, neighbor: Neighbor, cost: int) -> list[Action]:
        self._waiting[neighbor] = cost
        return [Send(neighbor, Context(self.path))]

    def down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        self._waiting.pop(neighbor, None)
        return self.settled(now) if self.links.pop(neighbor, None) is not None else []

    def introduced(self, neighbor: Neighbor, path: Path) -> list[Action]:
        """A neighbor says who it is. Returns what it must be told; `settled` has to follow."""
        if neighbor in self.links:
            if path == self.links[neighbor].path:
                return []
            raise RemoteProtocolError(neighbor.name, f"changed its context to {shown_path(path)} on a link that is up")
        self._check_context(neighbor, path)
        self.links[neighbor] = Link(path, link_level(self.path, path), self._waiting.pop(neighbor, 1))
        known = [*self._own.values(), *(self._said[key] for key in sorted(self._said))]
        return [Send(neighbor, said) for said in known if self.may_cross(said.unit, neighbor)]

    def _check_context(self, neighbor: Neighbor, path: Path) -> None:
        here = f"this broker is {shown_path(self.path)}"
        if len(path) != len(self.path):
            what = f"is in a system of {len(path) - 1} levels, {here}: give both contexts of the same length"
            raise RemoteProtocolError(neighbor.name, what)
        if path[-1] != neighbor.name or path == self.path:
            raise RemoteProtocolError(neighbor.name, f"says that it is {shown_path(path)}, {here}")
        if not self.has_room(seen := seen_from(path, self.path) or path):
            free = free_context(path[:-1], [*self._units(), self.path])
            advice = f"give {neighbor.name} another context, such as {shown_path(free)}"
            around = shown_path(seen[:-1]) or "the system"
            raise LimitError("BLOCK_LIMIT", BLOCK_LIMIT, f"one more unit in {around}", advice)

    def _units(self) -> set[Path]:
        return {self._said[key].unit for key in self._believed} | {
            seen for link in self.links.values() if (seen := seen_from(link.path, self.path))
        }

    def has_room(self, unit: Path) -> bool:
        """Whether the unit around `unit` has a place for it, or it has one already."""
        siblings = {known for known in self._units() if len(known) == len(unit)}
        # This broker is in a unit of that level too.
        return unit in siblings or len(siblings) + 1 < BLOCK_LIMIT

    def may_cross(self, unit: Path, neighbor: Neighbor) -> bool:
        """Whether what is said about a unit may go over a link: within the unit around it, and not into itself."""
        link = self.links[neighbor]
        return link.level <= self.level(unit) and not contains(unit, link.path)

    def flooded(self, message: BrokerMessage, unit: Path, source: Neighbor | None = None) -> list[Action]:
        """Sends what is said about a unit to all neighbors that may hear it, except the one that it came from."""
        return [
            Send(neighbor, message)
            for neighbor in sorted(self.links)
            if neighbor != source and self.may_cross(unit, neighbor)
        ]

    # --- statements ---

    def is_for_us(self, unit: Path, speaker: str, source: Neighbor) -> bool:
        """Whether a statement about a unit concerns this broker: not one about a unit that it is in itself.
        RemoteProtocolError if it should not have come here."""
        if source not in self.links:
            raise RemoteProtocolError(source.name, "made a statement before it said its context")
        around = unit[:-1]
        if len(unit) > len(self.path) or not contains(around, self.path):
            what = f"told of {shown_path(unit)}, which only those in {shown_path(around)} may hear"
            raise RemoteProtocolError(source.name, what)
        if len(unit) == len(self.path) and unit[-1] != speaker:
            raise RemoteProtocolError(source.name, f"told of {shown_path(unit)} in the name of {speaker}")
        return not contains(unit, self.path)

    def heard(self, said: Gateways, source: Neighbor, now: Time) -> list[Action]:
        """A neighbor passes on a statement."""
        if not self.is_for_us(said.unit, said.speaker, source):
            return self._outbid(said, now) if said.speaker == self.name else []
        if not is_plausible(said.seq, now):
            self.dropped += 1
            return implausible(said.speaker, said.seq, source, now)
        level = self.level(said.unit)
        low = next((gateway for gateway in said.gateways if gateway.level < level), None)
        if low is not None:
            what = f"told of a connection of level {low.level} of {shown_path(said.unit)}, which never leaves the unit"
            raise RemoteProtocolError(source.name, what)
        key = level, said.speaker
        known = self._said.get(key)
        if known is not None and known.seq >= said.seq:
            return self._on_known(key, known, said, source)
        if known is None and not self._has_place(said.unit):
            self.dropped += 1
            return []
        self._said[key] = said
        is_news = known is None or (known.unit, known.gateways) != (said.unit, said.gateways)
        return self.flooded(said, said.unit, source) + (self.settled(now) if is_news else [])

    def _on_known(self, key: Key, known: Gateways, said: Gateways, source: Neighbor) -> list[Action]:
        if said.seq < known.seq:
            # The speaker's clock has gone back: it hears what it said before, and outbids it.
            return [Send(source, known)] if source.name == said.speaker else []
        return self.flooded(said, said.unit, source) if self.may_repeat(Gateways, key) else []

    def may_repeat(self, kind: type, key: Key) -> bool:
        """Whether a statement that is known already is passed on, once for each kind: this broker has doubted it for a
        while, and others may have forgotten it."""
        if key not in self._doubted or (kind, key) in self._repeated:
            return False
        self._repeated.add((kind, key))
        return True

    def _has_place(self, unit: Path) -> bool:
        if len(self._said) >= STATEMENTS_MAX:
            for key in sorted(set(self._said) - self._believed):
                self._forget(key)
        return len(self._said) < STATEMENTS_MAX and self.has_room(unit)

    def _outbid(self, said: Gateways, now: Time) -> list[Action]:
        """A neighbor knows something newer that this broker has said, before it lost its memory."""
        level = self.level(said.unit)
        own = self._own.get(level)
        if own is None or said.seq < own.seq:
            return []
        return self._state(level, own.gateways, following(said.seq, now))

    # --- believing ---

    def settled(self, now: Time) -> list[Action]:
        """After a change: whom to believe, what to say, which edges there are."""
        self._believed = believed(self.path, self._own_gateways(), self._said)
        actions: list[Action] = []
        for level in range(self.levels + 1):
            if not self.speaks_at(level):
                self._own.pop(level, None)
                continue
            gateways, own = self._gateways(level), self._own.get(level)
            if own is None or own.gateways != gateways:
                seq = following(0 if own is None else own.seq, now)
                actions += self._state(level, gateways, seq)
        trusted = [self._said[key] for key in sorted(self._believed)]
        self.graph.replace(edges(self.path, self._own_gateways(), trusted))
        return actions + self._checking(now)

    def _state(self, level: int, gateways: tuple[Gateway, ...], seq: int) -> list[Action]:
        unit = self.path[: len(self.path) - level]
        said = self._own[level] = Gateways(unit, self.name, seq, gateways)
        return self.flooded(said, unit)

    def _own_gateways(self) -> Iterator[Gateway]:
        for neighbor, link in self.links.items():
            to = link.path[: len(link.path) - link.level]
            yield Gateway(_ends(self.name, neighbor.name), link.level, link.cost, to)

    def _gateways(self, level: int) -> tuple[Gateway, ...]:
        """The connections of at least this level that leave this broker's unit of this level."""
        inside = [self._said[key] for key in self._believed if key[0] < level]
        by_ends: dict[Ends, Gateway] = {}
        for gateway in [*self._own_gateways(), *(each for said in inside for each in said.gateways)]:
            known = by_ends.get(gateway.ends)
            if gateway.level >= level and (known is None or known < gateway):
                by_ends[gateway.ends] = gateway
        return tuple(by_ends[ends] for ends in sorted(by_ends))

    # --- forgetting ---

    def _checking(self, now: Time) -> list[Action]:
        if self._is_checking or len(self._believed) == len(self._said):
            return []
        self._is_checking = True
        return [SetTimer(CHECK_TIMER, now + CHECK_US, is_idle=True)]

    def on_timer(self, name: str, now: Time) -> list[Action]:
        if name != CHECK_TIMER:
            return []
        self._is_checking = False
        doubted = [key for key in self._said if key not in self._believed]
        before, self._doubted = self._doubted, {key: self._doubted.get(key, now) for key in doubted}
        # What is doubted anew may be repeated anew.
        self._repeated = {each for each in self._repeated if each[1] in before and each[1] in self._doubted}
        for key in doubted:
            if now - self._doubted[key] >= FORGET_US:
                self._forget(key)
        return self._checking(now)

    def _forget(self, key: Key) -> None:
        del self._said[key]
        self._doubted.pop(key, None)
        self._forgotten(key)

    def forget_doubted(self) -> None:
        """Forgets all that nobody believes: room is needed."""
        for key in [key for key in self._said if key not in self._believed]:
            self._forget(key)


def _ends(name: str, other: str) -> Ends:
    return (name, other) if name < other else (other, name)
