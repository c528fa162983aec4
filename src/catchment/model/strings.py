"""Sets of strings, exact under every string operator.

Order, equality and prefix constraints are ranges in code point order (`ranges.py`). Suffix, substring
and glob constraints, and their negations, are globs. A set is a union of *pieces*, each the strings
inside some ranges that every one of its globs accepts (or, negated, refuses). Questions about such sets
run the ranges and globs side by side as one automaton over the characters that anything mentions, with
one stand-in for each gap between them, and look for a string that decides the question.

A set that is a small union of ranges is always held as ranges, so the common case never meets an
automaton, and equal sets are equal objects whichever way they were written. Past
AUTOMATON_STEPS_MAX a question gets the sound answer: not empty, not contained, not equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations, product
from operator import and_
from typing import Final

from catchment.model import ranges as rng
from catchment.model.globs import Glob
from catchment.model.ranges import Ranges

# One question may take this many steps of single globs or ranges, some 20 ms; real filters need hundreds.
AUTOMATON_STEPS_MAX: Final = 20_000
# Up to this many conditions on one attribute are simplified together, beyond that only two by two: then
# a contradiction that takes three of them is not found.
JOINT_PARTS_MAX: Final = 5
# A union of more pieces is kept as it was written: its normal form would take too many questions.
PIECES_MAX: Final = 12
# A language that is a union of at most this many ranges is held as ranges.
AUTOMATON_RANGES_MAX: Final = 1_024
# Answers kept: filters of one system repeat the same few questions.
_ANSWERS_MAX: Final = 16_384

_LAST: Final = "\U0010ffff"
_SURROGATES: Final = ("\ud800", "\udfff")

ALL: Final[Ranges[str]] = (("", None),)


def successor(text: str) -> str:
    """The next string in code point order."""
    return text + "\0"


def after_prefix(prefix: str) -> str | None:
    """The least string above all that start with `prefix`."""
    stem = prefix.rstrip(_LAST)
    return stem[:-1] + _next_character(stem[-1]) if stem else None


def _next_character(character: str) -> str:
    found = chr(ord(character) + 1)
    return chr(ord(_SURROGATES[1]) + 1) if found == _SURROGATES[0] else found


def prefix_ranges(prefix: str) -> Ranges[str]:
    return ((prefix, after_prefix(prefix)),)


@dataclass(frozen=True, slots=True)
class Piece:
    """Strings within `ranges` that all of `wanted` accept and none of `unwanted` does."""

    ranges: Ranges[str]
    wanted: frozenset[Glob] = frozenset()
    unwanted: frozenset[Glob] = frozenset()

    @property
    def is_plain(self) -> bool:
        return not self.wanted and not self.unwanted

    def contains(self, text: str) -> bool:
        return (
            rng.contains(self.ranges, text)
            and all(found.matches(text) for found in self.wanted)
            and not any(found.matches(text) for found in self.unwanted)
        )

    def __and__(self, other: Piece) -> Piece:
        return Piece(
            rng.intersection(self.ranges, other.ranges), self.wanted | other.wanted, self.unwanted | other.unwanted
        )

    @property
    def size(self) -> int:
        bounds = sum(2 + len(low) + len(high or "") for low, high in self.ranges)
        return bounds + sum(1 + len(found.wanted) for found in self.wanted | self.unwanted)

    @property
    def parts(self) -> list[Piece]:
        """Pieces of one condition each that together say the same."""
        found = [Piece(ALL, wanted=frozenset([one])) for one in self.wanted]
        found += [Piece(ALL, unwanted=frozenset([one])) for one in self.unwanted]
        return found if self.ranges == ALL else [*found, Piece(self.ranges)]


class Strings:
    """An immutable set of strings. Build it with the functions below; combine with & | and `inverse`."""

    __slots__ = ("_extremes", "pieces")

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self.pieces = pieces
        self._extremes: tuple[str | None, str | None] | None = None

    @property
    def ranges(self) -> Ranges[str] | None:
        """The set as ranges, when it is that plain."""
        if not self.pieces:
            return ()
        return self.pieces[0].ranges if len(self.pieces) == 1 and self.pieces[0].is_plain else None

    @property
    def size(self) -> int:
        """The characters and bounds it takes to say it."""
        return sum(piece.size for piece in self.pieces)

    def __contains__(self, text: str) -> bool:
        return any(piece.contains(text) for piece in self.pieces)

    def __bool__(self) -> bool:
        """Whether any string is in it (or, past the limit, may be)."""
        return bool(self.pieces)

    def __and__(self, other: Strings) -> Strings:
        if self.ranges is not None and other.ranges is not None:
            return of_ranges(rng.intersection(self.ranges, other.ranges))
        if self.ranges == ALL:
            return other
        if other.ranges == ALL:
            return self
        return _of_pieces(tuple(a & b for a in self.pieces for b in other.pieces))

    def __or__(self, other: Strings) -> Strings:
        return any_of((self, other))

    @property
    def inverse(self) -> Strings:
        if self.ranges is not None:
            return of_ranges(rng.complement(self.ranges, ""))
        inverse = EVERY_STRING
        for piece in self.pieces:
            parts = [Piece(rng.complement(piece.ranges, ""))]
            parts += [Piece(ALL, unwanted=frozenset([found])) for found in piece.wanted]
            parts += [Piece(ALL, wanted=frozenset([found])) for found in piece.unwanted]
            inverse &= _of_pieces(tuple(parts))
        return inverse

    def is_subset(self, other: Strings) -> bool:
        if self.ranges is not None and other.ranges is not None:
            return rng.is_subset(self.ranges, other.ranges)
        if self.pieces == other.pieces or other.ranges == ALL or not self.pieces:
            return True
        return _some_string(self.pieces, other.pieces, _in_first_only) is None

    def overlaps(self, other: Strings) -> bool:
        if self.ranges is not None and other.ranges is not None:
            return rng.overlap(self.ranges, other.ranges)
        return bool(self and other) and _some_string(self.pieces, other.pieces, _in_both) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        if self is other or self.pieces == other.pieces:
            return True
        if self.is_plain and other.is_plain:
            return False
        return self.identity == other.identity and _some_string(self.pieces, other.pieces, _in_one_only) is None

    def __hash__(self) -> int:
        return hash(self.ranges) if self.is_plain else hash(self.identity)

    def __reduce__(self) -> tuple[object, ...]:
        return Strings, (self.pieces,)

    def __repr__(self) -> str:
        return f"Strings({self.pieces!r})"

    @property
    def is_plain(self) -> bool:
        """Whether it is a union of ranges."""
        return self.ranges is not None

    @property
    def extremes(self) -> tuple[str | None, str | None]:
        """The least of the shortest strings inside and outside; UNDECIDED where it is too hard to find."""
        if self._extremes is None:
            self._extremes = _extremes(self.pieces)
        return self._extremes

    @property
    def identity(self) -> tuple[object, ...]:
        """What equal sets agree on: their extremes. Where those are too hard to find, what it was
        written as: then only sets written alike are equal."""
        return self.pieces if UNDECIDED in self.extremes else self.extremes


def of_ranges(found: Ranges[str]) -> Strings:
    if found == ALL:
        return EVERY_STRING
    return Strings((Piece(found),)) if found else NO_STRING


def of_glob(found: Glob) -> Strings:
    operator, operand = found.shape
    if operator == "=":
        return of_ranges(((operand, successor(operand)),))
    if operator == "prefix":
        return of_ranges(prefix_ranges(operand))
    if not found.characters and found.waiting and len(found.wanted) <= 1:
        return of_ranges(((found.least, None),))  # `*` and `?*`
    return Strings((Piece(ALL, wanted=frozenset([found])),))


def not_glob(found: Glob) -> Strings:
    plain = of_glob(found)
    if plain.ranges is not None:
        return plain.inverse
    return Strings((Piece(ALL, unwanted=frozenset([found])),))


def all_of(sets: Sequence[Strings]) -> Strings:
    """What is in every one of them, brought into normal form once."""
    if all(found.ranges is not None for found in sets):
        return reduce(and_, sets)
    return _of_pieces(tuple(reduce(and_, chosen) for chosen in product(*(found.pieces for found in sets))))


def any_of(sets: Sequence[Strings]) -> Strings:
    """What is in some of them, brought into normal form once."""
    if all(found.is_plain for found in sets):
        return of_ranges(rng.union(part for found in sets for part in found.ranges or ()))
    return _of_pieces(tuple(piece for found in sets for piece in found.pieces))


NO_STRING: Final = Strings(())
EVERY_STRING: Final = Strings((Piece(ALL),))


# --- normal form --------------------------------------------------------------------------------


@lru_cache(_ANSWERS_MAX)
def _of_pieces(pieces: tuple[Piece, ...]) -> Strings:
    plain_parts = rng.union(part for piece in pieces if piece.is_plain for part in piece.ranges)
    found = [Piece(plain_parts)] if plain_parts else []
    found += [piece for piece in dict.fromkeys(pieces) if piece.ranges and not piece.is_plain]
    if len(found) == 1 and len(found[0].parts) == 1:
        return Strings(tuple(found))
    if len(found) > PIECES_MAX or any(len(piece.parts) > PIECES_MAX for piece in found):
        return Strings(tuple(sorted(found, key=_piece_order)))
    plain = _as_ranges(tuple(found))
    if plain is not None:
        return of_ranges(plain)
    return Strings(_irredundant([_simplified(piece) for piece in found]))


def _as_ranges(pieces: tuple[Piece, ...]) -> Ranges[str] | None:
    if all(piece.is_plain for piece in pieces):
        return rng.union(part for piece in pieces for part in piece.ranges)
    if sum(len(piece.parts) for piece in pieces) > JOINT_PARTS_MAX:
        return None
    return _ranges_of_graph(_Automaton(pieces))


def _simplified(piece: Piece) -> Piece:
    """Leaves out each part that the others imply."""
    for part in sorted(piece.parts, key=_piece_order):
        others = [one for one in piece.parts if one != part]
        joint = len(others) < JOINT_PARTS_MAX and others and _contained((reduce(and_, others),), (part,))
        if joint or any(_contained((one,), (part,)) for one in others):
            piece = reduce(and_, others)
    return piece


def _irredundant(pieces: list[Piece]) -> tuple[Piece, ...]:
    kept = [piece for piece in dict.fromkeys(pieces) if not _is_empty(piece)]
    for piece in sorted(kept, key=_piece_order, reverse=True):
        others = tuple(other for other in kept if other is not piece)
        joint = len(others) < JOINT_PARTS_MAX and _contained((piece,), others)
        if joint or any(_contained((piece,), (other,)) for other in others):
            kept.remove(piece)
    return tuple(sorted(kept, key=_piece_order))


def _is_empty(piece: Piece) -> bool:
    parts = piece.parts
    if len(parts) <= JOINT_PARTS_MAX:
        return _contained((piece,), ())
    return any(_some_string((a,), (b,), _in_both) is None for a, b in combinations(parts, 2))


def _piece_order(piece: Piece) -> tuple[object, ...]:
    patterns = [sorted(found.pattern for found in globs) for globs in (piece.wanted, piece.unwanted)]
    return len(piece.wanted) + len(piece.unwanted), patterns, [low for low, _ in piece.ranges]


def _contained(pieces: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    return _some_string(pieces, others, _in_first_only) is None


# --- the automaton ------------------------------------------------------------------------------


class _Place:
    """Where a string lies among sorted boundaries, read character by character.

    A state (first, last, depth) says: boundaries before `first` are at or below the string read so far
    and whatever may follow, those from `last` on are above, those between start with the string read.
    """

    def __init__(self, ranges: Ranges[str]) -> None:
        ends = [end for one in ranges for end in one if end is not None]
        self.boundaries = ends
        self.start = (0, len(ends), 0)

    def step(self, state: tuple[int, int, int], character: str) -> tuple[int, int, int]:
        first, last, depth = state
        if first == last:
            return state
        while first < last and (len(self.boundaries[first]) == depth or self.boundaries[first][depth] < character):
            first += 1
        until = first
        while until < last and self.boundaries[until][depth] == character:
            until += 1
        return (first, until, depth + 1) if first < until else (first, first, 0)

    def accepts(self, state: tuple[int, int, int]) -> bool:
        first, last, depth = state
        passed = first + (first < last and len(self.boundaries[first]) == depth)
        return passed % 2 == 1


_State = tuple[object, ...]


class _Automaton:
    """Pieces as one deterministic automaton; a state is a state of each range set and glob."""

    def __init__(self, *unions: tuple[Piece, ...]) -> None:
        self._parts: dict[object, int] = {}
        self._machines: list[Glob | _Place] = []
        self._unions = [[self._indexed(piece) for piece in pieces] for pieces in unions]
        self.alphabet = _alphabet(self._machines)
        self.steps_per_state = len(self.alphabet) * len(self._machines)

    def _indexed(self, piece: Piece) -> tuple[list[int], list[int]]:
        wanted = [self._index(found) for found in piece.wanted]
        if piece.ranges != ALL:
            wanted.append(self._index(piece.ranges))
        return wanted, [self._index(found) for found in piece.unwanted]

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
    """Every character mentioned, and the least of each gap between them, in order."""
    mentioned = {character for machine in machines for character in _mentioned(machine)}
    starts = {"\0"} | mentioned | {_next_character(character) for character in mentioned if character != _LAST}
    return sorted(starts)


def _mentioned(machine: Glob | _Place) -> Iterator[str]:
    if isinstance(machine, Glob):
        yield from machine.characters
    else:
        for boundary in machine.boundaries:
            yield from boundary


def _in_both(first: bool, second: bool) -> bool:
    return first and second


def _in_first_only(first: bool, second: bool) -> bool:
    return first and not second


def _in_one_only(first: bool, second: bool) -> bool:
    return first != second


UNDECIDED: Final = "\ud800"  # no string: stands for "the limit was reached, there may be one"


@lru_cache(_ANSWERS_MAX)
def _some_string(
    first: tuple[Piece, ...], second: tuple[Piece, ...], wanted: Callable[[bool, bool], bool]
) -> str | None:
    """The least of the shortest strings for which `wanted` holds, None if there is none."""
    automaton = _Automaton(first, second)
    states: dict[_State, str] = {automaton.start: ""}
    queue, steps = [automaton.start], 0
    for state in queue:  # grows while it is read
        if wanted(*automaton.accepts(state)):
            return states[state]
        steps += automaton.steps_per_state
        if steps > AUTOMATON_STEPS_MAX:
            return UNDECIDED
        for character in automaton.alphabet:
            reached = automaton.step(state, character)
            if reached not in states:
                states[reached] = states[state] + character
                queue.append(reached)
    return None


def _extremes(pieces: tuple[Piece, ...]) -> tuple[str | None, str | None]:
    return _some_string(pieces, (), _in_first_only), _some_string((Piece(ALL),), pieces, _in_first_only)


# --- back to ranges -----------------------------------------------------------------------------


def _ranges_of_graph(automaton: _Automaton) -> Ranges[str] | None:
    """The language as ranges, None where it is no small union of them.

    It is one just if no state that could still go either way lies on a cycle: then membership changes
    at finitely many places in code point order, which a walk in that order lists.
    """
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
        arrows[state] = [automaton.step(state, character) for character in automaton.alphabet]
        fresh = [reached for reached in dict.fromkeys(arrows[state]) if reached not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return arrows


def _leading_to(arrows: dict[_State, list[_State]], goals: set[_State]) -> set[_State]:
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
    """Walks the open states in code point order and notes where membership changes."""
    found: list[tuple[str, str | None]] = []
    stack: list[tuple[_State, str, str | None]] = [(automaton.start, "", None)]  # state, string, end of its subtree
    while stack:
        state, text, end = stack.pop()
        if len(found) + len(stack) > AUTOMATON_RANGES_MAX * 2:
            return None
        if state not in open_states:
            if state in accepting:
                found.append((text, end))
            continue
        if state in accepting:
            found.append((text, successor(text)))
        inner = _inner_parts(automaton, arrows[state], open_states, text, end)
        if inner is None:
            return None
        stack.extend(reversed(inner))
    listed = rng.union(found)
    return listed if len(listed) <= AUTOMATON_RANGES_MAX else None


def _inner_parts(
    automaton: _Automaton, targets: list[_State], open_states: set[_State], text: str, end: str | None
) -> list[tuple[_State, str, str | None]] | None:
    """The strings below `text` by next character: one part for each character or gap."""
    parts: list[tuple[_State, str, str | None]] = []
    alphabet = automaton.alphabet
    for i, (character, target) in enumerate(zip(alphabet, targets, strict=True)):
        last = i + 1 == len(alphabet)
        is_one_character = character == _LAST if last else _next_character(character) == alphabet[i + 1]
        if target in open_states and not is_one_character:
            return None  # a gap of many characters, each with boundaries of its own
        parts.append((target, text + character, end if last else text + alphabet[i + 1]))
    return parts
