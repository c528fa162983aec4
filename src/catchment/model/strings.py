"""Sets of strings, exact under every string operator.

Order, equality and prefix constraints are ranges in code point order (`ranges.py`). Suffix, substring
and glob constraints, and their negations, are globs. A set is a union of *pieces* (`automaton.py`). A
joint automaton answers questions about pieces that hold globs.

A set that is a small union of ranges is always stored as ranges. So the common case needs no automaton, and equal
sets are equal objects however they were written. Past `automaton.AUTOMATON_STEPS_MAX` a question gets the sound
answer: not empty, not contained, not equal.
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

# Up to this many conditions on one attribute are simplified together. More are simplified only two by two: a
# contradiction between three of them is then not detected.
JOINT_PARTS_MAX: Final = 5
# A union of more pieces stays as it was written: its normal form would take too many questions to the automaton.
PIECES_MAX: Final = 12


def after_prefix(prefix: str) -> str | None:
    """The least string above all that start with `prefix`; None if there is none."""
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
        """The set as ranges; None where globs are needed to write it."""
        if not self.pieces:
            return ()
        return self.pieces[0].ranges if len(self.pieces) == 1 and self.pieces[0].is_ranges else None

    @property
    def size(self) -> int:
        """How long the set is to write: its characters and bounds."""
        return sum(piece.size for piece in self.pieces)

    def __contains__(self, text: str) -> bool:
        return any(piece.contains(text) for piece in self.pieces)

    def __bool__(self) -> bool:
        """Whether any string is in the set (or, past the limit, may be)."""
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
        # De Morgan: a string is outside the union if it is outside every piece, and outside a piece if it breaks any
        # of the piece's conditions.
        inverse = EVERY_STRING
        for piece in self.pieces:
            parts = [Piece(rng.complement(piece.ranges, ""))]
            parts += [Piece(ALL, unwanted=frozenset([glob])) for glob in piece.wanted]
            parts += [Piece(ALL, wanted=frozenset([glob])) for glob in piece.unwanted]
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
        if self.is_ranges and other.is_ranges:
            return False  # ranges are canonical, and the pieces differ
        return self.identity == other.identity and some_string(self.pieces, other.pieces, in_one_only) is None

    def __hash__(self) -> int:
        return hash(self.ranges) if self.is_ranges else hash(self.identity)

    def __reduce__(self) -> tuple[object, ...]:
        return Strings, (self.pieces,)

    def __repr__(self) -> str:
        return f"Strings({self.pieces!r})"

    @property
    def is_ranges(self) -> bool:
        """Whether the set is a union of ranges, written without globs."""
        return self.ranges is not None

    @property
    def extremes(self) -> tuple[str | None, str | None]:
        """The least of the shortest strings inside the set, and the least of the shortest outside. None where there
        is no such string, UNDECIDED where the search takes too many steps."""
        if self._extremes is None:
            self._extremes = extremes(self.pieces)
        return self._extremes

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is the same for equal sets: their extremes. Where those are undecided, it is the pieces: then
        only sets that were written alike are equal."""
        return self.pieces if UNDECIDED in self.extremes else self.extremes


def of_ranges(ranges: Ranges[str]) -> Strings:
    if ranges == ALL:
        return EVERY_STRING
    return Strings((Piece(ranges),)) if ranges else NO_STRING


def of_glob(glob: Glob) -> Strings:
    """The strings that a glob matches; as ranges where its operator is `=`, a prefix, `*` or `?*`."""
    operator, operand = glob.simplest_operator
    if operator == "=":
        return of_ranges(((operand, successor(operand)),))
    if operator == "prefix":
        return of_ranges(prefix_ranges(operand))
    if not glob.characters and glob.waiting and len(glob.wanted) <= 1:
        return of_ranges(((glob.least, None),))  # `*` and `?*`: every string from "" or from "\0" on
    return Strings((Piece(ALL, wanted=frozenset([glob])),))


def not_glob(glob: Glob) -> Strings:
    """The strings that a glob does not match."""
    matched = of_glob(glob)
    if matched.ranges is not None:
        return matched.inverse
    return Strings((Piece(ALL, unwanted=frozenset([glob])),))


def all_of(sets: Sequence[Strings]) -> Strings:
    """The intersection of some sets. The normal form is made once, of the result, not after each step."""
    if all(strings.ranges is not None for strings in sets):
        return reduce(and_, sets)
    return _of_pieces(tuple(reduce(and_, chosen) for chosen in product(*(strings.pieces for strings in sets))))


def any_of(sets: Sequence[Strings]) -> Strings:
    """The union of some sets. The normal form is made once, of the result, not after each step."""
    if all(strings.is_ranges for strings in sets):
        return of_ranges(rng.union(part for strings in sets for part in strings.ranges or ()))
    if any(strings.ranges == ALL for strings in sets):
        return EVERY_STRING
    return _of_pieces(tuple(piece for strings in sets for piece in strings.pieces))


NO_STRING: Final = Strings(())
EVERY_STRING: Final = Strings((Piece(ALL),))


# --- normal form --------------------------------------------------------------------------------


@lru_cache(ANSWERS_MAX)
def _of_pieces(pieces: tuple[Piece, ...]) -> Strings:
    """The union of pieces in normal form: as ranges where it is a small union of ranges, else simplified pieces in a
    fixed order."""
    joined_ranges = rng.union(part for piece in pieces if piece.is_ranges for part in piece.ranges)
    distinct = [Piece(joined_ranges)] if joined_ranges else []
    distinct += [piece for piece in dict.fromkeys(pieces) if piece.ranges and not piece.is_ranges]
    if len(distinct) == 1 and len(distinct[0].parts) == 1:
        return Strings(tuple(distinct))  # a single condition is in normal form
    if len(distinct) > PIECES_MAX or any(len(piece.parts) > PIECES_MAX for piece in distinct):
        return Strings(tuple(sorted(distinct, key=_piece_order)))
    ranges = _as_ranges(tuple(distinct))
    if ranges is not None:
        return of_ranges(ranges)
    return Strings(_irredundant([_simplified(piece) for piece in distinct]))


def _as_ranges(pieces: tuple[Piece, ...]) -> Ranges[str] | None:
    if all(piece.is_ranges for piece in pieces):
        return rng.union(part for piece in pieces for part in piece.ranges)
    if sum(len(piece.parts) for piece in pieces) > JOINT_PARTS_MAX:
        return None
    return as_ranges(pieces)


def _simplified(piece: Piece) -> Piece:
    """Leaves out each condition that the others imply."""
    for part in sorted(piece.parts, key=_piece_order):
        others = [other for other in piece.parts if other != part]
        joint = len(others) < JOINT_PARTS_MAX and others and _contained((reduce(and_, others),), (part,))
        if joint or any(_contained((other,), (part,)) for other in others):
            piece = reduce(and_, others)
    return piece


def _irredundant(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Leaves out empty pieces, and each piece that lies within the others."""
    kept = [piece for piece in dict.fromkeys(pieces) if not _is_empty(piece)]
    for piece in sorted(kept, key=_piece_order, reverse=True):
        others = tuple(other for other in kept if other is not piece)
        joint = len(others) < JOINT_PARTS_MAX and _contained((piece,), others)
        if joint or any(_contained((piece,), (other,)) for other in others):
            kept.remove(piece)
    return tuple(sorted(kept, key=_piece_order))


def _is_empty(piece: Piece) -> bool:
    """Whether no string is in the piece. Of many conditions only pairs are tried, so "no" may be wrong."""
    parts = piece.parts
    if len(parts) <= JOINT_PARTS_MAX:
        return _contained((piece,), ())
    return any(some_string((a,), (b,), in_both) is None for a, b in combinations(parts, 2))


def _piece_order(piece: Piece) -> tuple[object, ...]:
    patterns = [sorted(glob.pattern for glob in globs) for globs in (piece.wanted, piece.unwanted)]
    return len(piece.wanted) + len(piece.unwanted), patterns, [low for low, _ in piece.ranges]


def _contained(pieces: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    """Whether the union of `pieces` lies within the union of `others`. Past the limit: no."""
    return some_string(pieces, others, in_first_only) is None
