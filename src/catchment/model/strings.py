"""Sets of strings, exact under every string operator.

Order, equality and prefix constraints are ranges in code point order (`ranges.py`). Suffix, substring
and glob constraints, and their negations, are globs. A set is a union of *pieces* (`automaton.py`), and
questions about pieces that hold globs are asked of a joint automaton.

A set that is a small union of ranges is always held as ranges, so the common case never meets an
automaton, and equal sets are equal objects whichever way they were written. Past
`automaton.AUTOMATON_STEPS_MAX` a question gets the sound answer: not empty, not contained, not equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import combinations, product
from operator import and_
from typing import Final

from catchment.model import ranges as rng
from catchment.model.automaton import (
    ALL,
    ANSWERS_MAX,
    LAST_CHARACTER,
    UNDECIDED,
    Piece,
    as_ranges,
    extremes,
    in_both,
    in_first_only,
    in_one_only,
    next_character,
    some_string,
    successor,
)
from catchment.model.globs import Glob
from catchment.model.ranges import Ranges

__all__ = ["ALL", "UNDECIDED", "Piece", "Strings", "successor"]

# Up to this many conditions on one attribute are simplified together, beyond that only two by two: then
# a contradiction that takes three of them is not found.
JOINT_PARTS_MAX: Final = 5
# A union of more pieces is kept as it was written: its normal form would take too many questions.
PIECES_MAX: Final = 12


def after_prefix(prefix: str) -> str | None:
    """The least string above all that start with `prefix`."""
    stem = prefix.rstrip(LAST_CHARACTER)
    return stem[:-1] + next_character(stem[-1]) if stem else None


def prefix_ranges(prefix: str) -> Ranges[str]:
    return ((prefix, after_prefix(prefix)),)


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
        if self.ranges is not None and all(high == successor(low) for low, high in self.ranges):
            return all(low in other for low, _ in self.ranges)  # single strings need no automaton
        return some_string(self.pieces, other.pieces, in_first_only) is None

    def overlaps(self, other: Strings) -> bool:
        if self.ranges is not None and other.ranges is not None:
            return rng.overlap(self.ranges, other.ranges)
        return bool(self and other) and some_string(self.pieces, other.pieces, in_both) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        if self is other or self.pieces == other.pieces:
            return True
        if self.is_plain and other.is_plain:
            return False
        return self.identity == other.identity and some_string(self.pieces, other.pieces, in_one_only) is None

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
            self._extremes = extremes(self.pieces)
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
    if any(found.ranges == ALL for found in sets):
        return EVERY_STRING
    return _of_pieces(tuple(piece for found in sets for piece in found.pieces))


NO_STRING: Final = Strings(())
EVERY_STRING: Final = Strings((Piece(ALL),))


# --- normal form --------------------------------------------------------------------------------


@lru_cache(ANSWERS_MAX)
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
    return as_ranges(pieces)


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
    return any(some_string((a,), (b,), in_both) is None for a, b in combinations(parts, 2))


def _piece_order(piece: Piece) -> tuple[object, ...]:
    patterns = [sorted(found.pattern for found in globs) for globs in (piece.wanted, piece.unwanted)]
    return len(piece.wanted) + len(piece.unwanted), patterns, [low for low, _ in piece.ranges]


def _contained(pieces: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    return some_string(pieces, others, in_first_only) is None
