"""Questions about sets of strings, decided by running ranges and globs side by side as one automaton.

A `Piece` is the set of strings that lie in some ranges, that its wanted globs all match and that none of its unwanted
globs matches. To compare two unions of pieces, all range sets and globs that occur in either are run at once, as one
automaton. Its alphabet is the characters that occur in them, and one stand-in for each gap between those characters: no
range or glob can tell the characters of a gap apart. A breadth-first search through the joint states finds the least of
the shortest strings that decides the question, or finds that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from catchment.model import ranges as rng
from catchment.model.budget import charge, counted_cache
from catchment.model.globs import Glob, glob_order
from catchment.model.ranges import Ranges

# A question may take this many steps of single globs or ranges, some 20 ms; real filters need hundreds.
AUTOMATON_STEPS_MAX: Final = 20_000
# A language that is a union of at most this many ranges is stored as ranges.
AUTOMATON_RANGES_MAX: Final = 1_024
# So many answers are cached: the filters of a system repeat the same few questions.
ANSWERS_MAX: Final = 16_384

LAST_CHARACTER: Final = "\U0010ffff"
_SURROGATES: Final = ("\ud800", "\udfff")

ALL: Final[Ranges[str]] = (("", None),)


def successor(text: str) -> str:
    """The next string in code point order."""
    return text + "\0"


def next_character(character: str) -> str:
    """The next code point that is a character: surrogates are left out."""
    following = chr(ord(character) + 1)
    return chr(ord(_SURROGATES[1]) + 1) if following == _SURROGATES[0] else following


def after_prefix(prefix: str) -> str | None:
    """The least string above all that start with `prefix`; None if there is none."""
    stem = prefix.rstrip(LAST_CHARACTER)
    return stem[:-1] + next_character(stem[-1]) if stem else None


def prefix_ranges(prefix: str) -> Ranges[str]:
    return ((prefix, after_prefix(prefix)),)


def is_points(ranges: Ranges[str]) -> bool:
    """Whether the ranges hold single strings only."""
    return all(high == successor(low) for low, high in ranges)


@dataclass(frozen=True, slots=True)
class Piece:
    """Strings within `ranges` that all globs of `wanted` match and no glob of `unwanted` matches."""

    ranges: Ranges[str]
    wanted: frozenset[Glob] = frozenset()
    unwanted: frozenset[Glob] = frozenset()

    @property
    def is_ranges(self) -> bool:
        """Whether it has no globs."""
        return not self.wanted and not self.unwanted

    def contains(self, text: str) -> bool:
        return (
            rng.contains(self.ranges, text)
            and all(glob.matches(text) for glob in self.wanted)
            and not any(glob.matches(text) for glob in self.unwanted)
        )

    def __and__(self, other: Piece) -> Piece:
        return Piece(
            rng.intersection(self.ranges, other.ranges), self.wanted | other.wanted, self.unwanted | other.unwanted
        )

    @property
    def size(self) -> int:
        bounds = sum(
            1 + len(low) if high == successor(low) else 2 + len(low) + len(high or "") for low, high in self.ranges
        )
        return bounds + sum(1 + len(glob.wanted) for glob in self.wanted | self.unwanted)

    @property
    def parts(self) -> list[Piece]:
        """Pieces with a single condition each, whose intersection is this piece. They are sorted: how many steps a
        question takes must not depend on the order of a set."""
        globs = [Piece(ALL, wanted=frozenset([glob])) for glob in sorted(self.wanted, key=glob_order)]
        globs += [Piece(ALL, unwanted=frozenset([glob])) for glob in sorted(self.unwanted, key=glob_order)]
        return globs if self.ranges == ALL else [*globs, Piece(self.ranges)]


# --- the automaton ------------------------------------------------------------------------------


class _Place:
    """Where a string lies among sorted boundaries, read character by character.

    The boundaries are the lower and upper ends of the ranges, in order: a string lies in a range if an odd number of
    boundaries is at or below it. A state is (first, last, depth). The boundaries before `first` are at or below the
    string, whatever characters follow; those from `last` on are above it; those between begin with the `depth`
    characters read so far, so the next character decides about them.
    """

    def __init__(self, ranges: Ranges[str]) -> None:
        ends = [end for part in ranges for end in part if end is not None]
        self.boundaries = ends
        self.start = (0, len(ends), 0)

    def step(self, state: tuple[int, int, int], character: str) -> tuple[int, int, int]:
        first, last, depth = state
        if first == last:
            return state  # no boundary is undecided any more
        while first < last and (len(self.boundaries[first]) == depth or self.boundaries[first][depth] < character):
            first += 1
        until = first
        while until < last and self.boundaries[until][depth] == character:
            until += 1
        return (first, until, depth + 1) if first < until else (first, first, 0)

    def accepts(self, state: tuple[int, int, int]) -> bool:
        first, last, depth = state
        # A boundary that equals the string read is at or below it too.
        passed = first + (first < last and len(self.boundaries[first]) == depth)
        return passed % 2 == 1


_State = tuple[object, ...]


class _Automaton:
    """Unions of pieces as a deterministic automaton. Its state holds a state of each range set and of each glob."""

    def __init__(self, *unions: tuple[Piece, ...]) -> None:
        self._parts: dict[object, int] = {}
        self._machines: list[Glob | _Place] = []
        self._unions = [[self._indexed(piece) for piece in pieces] for pieces in unions]
        self.alphabet = _alphabet(self._machines)
        self.steps_per_state = len(self.alphabet) * len(self._machines)

    def _indexed(self, piece: Piece) -> tuple[list[int], list[int]]:
        wanted = [self._index(glob) for glob in piece.wanted]
        if piece.ranges != ALL:
            wanted.append(self._index(piece.ranges))
        return wanted, [self._index(glob) for glob in piece.unwanted]

    def _index(self, part: Glob | Ranges[str]) -> int:
        if part not in self._parts:
            self._parts[part] = len(self._machines)
            self._machines.append(part if isinstance(part, Glob) else _Place(part))
        return self._parts[part]

    @property
    def start(self) -> _State:
        return tuple(machine.start for machine in self._machines)

    def step(self, state: _State, character: str) -> _State:
        return tuple(
            machine.step(part, character)  # type: ignore[arg-type]
            for machine, part in zip(self._machines, state, strict=True)
        )

    def accepts(self, state: _State) -> tuple[bool, ...]:
        """For each union of pieces, whether the string read is in it."""
        holds = [machine.accepts(part) for machine, part in zip(self._machines, state, strict=True)]  # type: ignore[arg-type]
        return tuple(
            any(all(holds[i] for i in wanted) and not any(holds[i] for i in unwanted) for wanted, unwanted in pieces)
            for pieces in self._unions
        )


def _alphabet(machines: Iterable[Glob | _Place]) -> list[str]:
    """Every character mentioned, and the least character of each gap between them, in order."""
    mentioned = {character for machine in machines for character in _mentioned(machine)}
    starts = {"\0"} | mentioned | {next_character(character) for character in mentioned if character != LAST_CHARACTER}
    return sorted(starts)


def _mentioned(machine: Glob | _Place) -> Iterator[str]:
    if isinstance(machine, Glob):
        yield from machine.characters
    else:
        for boundary in machine.boundaries:
            yield from boundary


def in_both(first: bool, second: bool) -> bool:
    return first and second


def in_first_only(first: bool, second: bool) -> bool:
    return first and not second


# A lone surrogate, which no string holds. It stands for: the limit was reached, and there may be such a string.
UNDECIDED: Final = "\ud800"


@counted_cache(ANSWERS_MAX)
def some_string(
    first: tuple[Piece, ...], second: tuple[Piece, ...], wanted: Callable[[bool, bool], bool]
) -> str | None:
    """The least of the shortest strings for which `wanted` holds; None if there is none. `wanted` gets whether the
    string is in the first union, and whether it is in the second."""
    automaton = _Automaton(first, second)
    states: dict[_State, str] = {automaton.start: ""}
    queue, steps = [automaton.start], 0
    for state in queue:  # the queue grows while it is read: a breadth-first search
        if wanted(*automaton.accepts(state)):
            return states[state]
        steps += automaton.steps_per_state
        charge(automaton.steps_per_state)
        if steps > AUTOMATON_STEPS_MAX:
            return UNDECIDED
        for character in automaton.alphabet:
            reached = automaton.step(state, character)
            if reached not in states:
                states[reached] = states[state] + character
                queue.append(reached)
    return None


def extremes(pieces: tuple[Piece, ...]) -> tuple[str | None, str | None]:
    return some_string(pieces, (), in_first_only), some_string((Piece(ALL),), pieces, in_first_only)


# --- back to ranges -----------------------------------------------------------------------------


def as_ranges(pieces: tuple[Piece, ...]) -> Ranges[str] | None:
    """The language as ranges; None where it is no small union of ranges.

    An *open* state is one from which both accepting and refusing states can be reached. The language is a finite union
    of ranges if and only if no open state lies on a cycle: then membership changes at finitely many places in code
    point order, and a walk in that order lists them.
    """
    automaton = _Automaton(pieces)
    arrows = _explored(automaton)
    if arrows is None:
        return None
    accepting = {state for state in arrows if automaton.accepts(state)[0]}
    alive = _leading_to(arrows, accepting)
    open_states = alive & _leading_to(arrows, set(arrows) - accepting)
    if _has_cycle(arrows, open_states):
        return None
    return _listed(automaton, arrows, accepting, open_states)


def _explored(automaton: _Automaton) -> dict[_State, list[_State]] | None:
    arrows: dict[_State, list[_State]] = {}
    queue = [automaton.start]
    seen = {automaton.start}
    for state in queue:
        if len(queue) * automaton.steps_per_state > AUTOMATON_STEPS_MAX:
            return None
        charge(automaton.steps_per_state)
        arrows[state] = [automaton.step(state, character) for character in automaton.alphabet]
        fresh = [reached for reached in dict.fromkeys(arrows[state]) if reached not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return arrows


def _leading_to(arrows: dict[_State, list[_State]], goals: set[_State]) -> set[_State]:
    """The states from which some goal can be reached."""
    sources: dict[_State, set[_State]] = {state: set() for state in arrows}
    for state, targets in arrows.items():
        for target in targets:
            sources[target].add(state)
    reached, queue = set(goals), list(goals)
    while queue:
        fresh = sources[queue.pop()] - reached
        reached |= fresh
        queue.extend(fresh)
    return reached


def _has_cycle(arrows: dict[_State, list[_State]], among: set[_State]) -> bool:
    """Whether the arrows between some states form a cycle: a topological sort then cannot finish."""
    waiting = dict.fromkeys(among, 0)
    for state in among:
        for target in set(arrows[state]) & among:
            waiting[target] += 1
    ready = [state for state, count in waiting.items() if not count]
    done = 0
    while ready:
        state = ready.pop()
        done += 1
        for target in set(arrows[state]) & among:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return done < len(among)


def _listed(
    automaton: _Automaton, arrows: dict[_State, list[_State]], accepting: set[_State], open_states: set[_State]
) -> Ranges[str] | None:
    """Walks the open states in code point order and lists the ranges of accepted strings."""
    parts: list[tuple[str, str | None]] = []
    stack: list[tuple[_State, str, str | None]] = [(automaton.start, "", None)]  # state, string, end of its subtree
    while stack:
        state, text, end = stack.pop()
        if len(parts) + len(stack) > AUTOMATON_RANGES_MAX * 2:
            return None
        if state not in open_states:  # all strings that begin with `text` are in, or all are out
            if state in accepting:
                parts.append((text, end))
            continue
        if state in accepting:
            parts.append((text, successor(text)))
        inner = _inner_parts(automaton, arrows[state], open_states, text, end)
        if inner is None:
            return None
        stack.extend(reversed(inner))
    listed = rng.union(parts)
    return listed if len(listed) <= AUTOMATON_RANGES_MAX else None


def _inner_parts(
    automaton: _Automaton, targets: list[_State], open_states: set[_State], text: str, end: str | None
) -> list[tuple[_State, str, str | None]] | None:
    """The strings that continue `text`, by their next character: a part for each character or gap."""
    parts: list[tuple[_State, str, str | None]] = []
    alphabet = automaton.alphabet
    for i, (character, target) in enumerate(zip(alphabet, targets, strict=True)):
        last = i + 1 == len(alphabet)
        is_one_character = character == LAST_CHARACTER if last else next_character(character) == alphabet[i + 1]
        if target in open_states and not is_one_character:
            return None  # a gap of many characters, each with ranges of its own
        parts.append((target, text + character, end if last else text + alphabet[i + 1]))
    return parts
