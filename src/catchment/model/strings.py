"""Sets of strings, exact under every string operator.

Order, equality and prefix constraints are ranges in code point order (`ranges.py`). Suffix, substring
and glob constraints, and their negations, are globs. A set is a union of *pieces* (`automaton.py`). A
joint automaton answers questions about pieces that hold globs.

A set that is a small union of ranges is always stored as ranges. So the common case needs no automaton, and equal
sets are equal objects however they were written. Most other sets are given by literal texts (`loose.py`): those need no
automaton either. Past `automaton.AUTOMATON_STEPS_MAX` a question gets the sound answer: not empty, not contained, not
equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import combinations, product
from math import prod
from operator import and_
from typing import Final

from catchment.model import loose as literals
from catchment.model import ranges as rng
from catchment.model.automaton import (
    ALL,
    ANSWERS_MAX,
    UNDECIDED,
    Piece,
    after_prefix,
    as_ranges,
    extremes,
    in_both,
    in_first_only,
    is_points,
    prefix_ranges,
    some_string,
    successor,
)
from catchment.model.budget import BudgetSpent, charge, counted_cache, share
from catchment.model.folding import unfolded
from catchment.model.globs import Glob, glob_order
from catchment.model.loose import Loose, loose
from catchment.model.ranges import Ranges

__all__ = ["ALL", "UNDECIDED", "Piece", "Strings", "after_prefix", "prefix_ranges", "successor"]

# A comparison that ignores case is stored as ranges if it holds for so few texts, or begins with so few: up to three
# letters. The same limit holds for a set that such a comparison is a part of.
NOCASE_RANGES_MAX: Final = 8
# Up to this many conditions on one attribute are simplified together. More are simplified only two by two: a
# contradiction between three of them is then not detected.
JOINT_PARTS_MAX: Final = 5
# A union of more pieces stays as it was written: its normal form would take too many questions to the automaton.
PIECES_MAX: Final = 12
# A joint automaton of so many steps is always made.
JOINT_STEPS_MAX: Final = 400
# Steps that it may take to find out what a set of strings is the same as. Past it, only sets written alike are equal.
IDENTITY_STEPS_MAX: Final = 2_000
# About pieces that literal texts give, an automaton is asked only if it takes at most so many steps.
LOOSE_STEPS_MAX: Final = 4_000


class Strings:
    """An immutable set of strings. Build it with the functions below; combine with & | and `inverse`."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self.pieces = pieces

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
        charge(len(self.pieces) * len(other.pieces))
        return of_pieces(tuple(a & b for a in self.pieces for b in other.pieces))

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
            parts += [Piece(ALL, unwanted=frozenset([glob])) for glob in sorted(piece.wanted, key=glob_order)]
            parts += [Piece(ALL, wanted=frozenset([glob])) for glob in sorted(piece.unwanted, key=glob_order)]
            inverse &= of_pieces(tuple(parts))
        return inverse

    def is_subset(self, other: Strings) -> bool:
        if self.ranges is not None and other.ranges is not None:
            return rng.is_subset(self.ranges, other.ranges)
        if self.pieces == other.pieces or other.ranges == ALL or not self.pieces:
            return True
        if self.ranges is not None and is_points(self.ranges):
            charge(len(self.ranges) * (1 + len(other.pieces)))
            return all(low in other for low, _ in self.ranges)  # single strings need no automaton
        return _contained(self.pieces, other.pieces)

    def overlaps(self, other: Strings) -> bool:
        if self.ranges is not None and other.ranges is not None:
            return rng.overlap(self.ranges, other.ranges)
        return bool(self and other) and _do_overlap(self.pieces, other.pieces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        if self is other or self.pieces == other.pieces:
            return True
        if self.is_ranges or other.is_ranges:
            return False  # ranges are canonical, and the pieces differ
        if self.identity != other.identity:
            return False
        return _contained(self.pieces, other.pieces) and _contained(other.pieces, self.pieces)

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
    def is_loose(self) -> bool:
        """Whether it is given by literal texts, so that most questions about it need no automaton."""
        return all(loose(piece) is not None for piece in self.pieces)

    @property
    def extremes(self) -> tuple[str | None, str | None]:
        """The least of the shortest strings inside the set, and the least of the shortest outside. None where there
        is no such string, UNDECIDED where the search takes too many steps."""
        # Asked each time, though it was answered before: each question is charged what it costs (`budget.py`).
        forms = list(map(loose, self.pieces))
        known = None if None in forms else literals.extremes(forms)  # type: ignore[arg-type]
        return extremes(self.pieces) if known is None else known

    @property
    def member(self) -> str | None:
        """Some string of the set, if one is known."""
        if self.ranges is not None:
            return self.ranges[0][0] if self.ranges else None
        for piece in self.pieces:
            form = loose(piece)
            if form is not None and piece.contains(text := literals.typical(form)):
                return text
        inside = self.extremes[0]
        return None if inside == UNDECIDED else inside

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is the same for equal sets: the pieces of a set that literal texts give, for these are in normal
        form; else its extremes. If texts are short, a set with other conditions may equal such a set: then that has
        extremes too. Where extremes are undecided, only sets that were written alike are equal."""
        if self.is_loose and not _is_small((), self.pieces):
            return self.pieces
        try:
            with share(IDENTITY_STEPS_MAX):
                both = self.extremes
        except BudgetSpent:
            charge(0)  # it ends here if the budget around it is spent too
            return self.pieces
        return self.pieces if UNDECIDED in both else both


def of_ranges(ranges: Ranges[str]) -> Strings:
    if ranges == ALL:
        return EVERY_STRING
    return Strings((Piece(ranges),)) if ranges else NO_STRING


def of_glob(glob: Glob) -> Strings:
    """The strings that a glob matches; as ranges where its operator is `=`, a prefix, `*` or `?*`."""
    operator, operand = glob.simplest_operator
    if operator in ("= nocase", "prefix nocase") and prod(len(unfolded(each)) for each in operand) <= NOCASE_RANGES_MAX:
        variants = map("".join, product(*map(unfolded, operand)))
        is_equal = operator == "= nocase"
        return of_ranges(rng.union((text, successor(text) if is_equal else after_prefix(text)) for text in variants))
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


def one_of_globs(globs: Iterable[Glob]) -> Strings:
    """The strings that are one of some texts, whatever their case: globs without `*` and `?`. They have no string in
    common, so no question need be asked."""
    sets = [of_glob(glob) for glob in dict.fromkeys(globs)]
    ranges = rng.union(part for strings in sets for part in strings.ranges or ())
    pieces = [strings.pieces[0] for strings in sets if not strings.is_ranges]
    return Strings(tuple(sorted([*([Piece(ranges)] if ranges else []), *pieces], key=_piece_order)))


def none_of_globs(globs: Iterable[Glob]) -> Strings:
    """The strings that are none of some texts, whatever their case."""
    texts = one_of_globs(globs)
    outside = rng.complement(texts.pieces[0].ranges if texts.pieces[0].is_ranges else (), "")
    return Strings((Piece(outside, unwanted=frozenset(_globs(texts.pieces))),))


def all_of(sets: Sequence[Strings]) -> Strings:
    """The intersection of some sets. The normal form is made once, of the result, not after each step."""
    ranges = [strings.ranges for strings in sets if strings.ranges is not None]
    if len(ranges) == len(sets):
        return of_ranges(rng.intersections(ranges))
    return of_pieces(tuple(reduce(and_, chosen) for chosen in product(*(strings.pieces for strings in sets))))


def any_of(sets: Sequence[Strings]) -> Strings:
    """The union of some sets. The normal form is made once, of the result, not after each step."""
    if all(strings.is_ranges for strings in sets):
        return of_ranges(rng.union(part for strings in sets for part in strings.ranges or ()))
    if any(strings.ranges == ALL for strings in sets):
        return EVERY_STRING
    return of_pieces(tuple(piece for strings in sets for piece in strings.pieces))


def collected(sets: Sequence[Strings]) -> Strings:
    """The union of some sets, written as the pieces of them all: no question is asked."""
    if any(strings.ranges == ALL for strings in sets):
        return EVERY_STRING
    pieces = [piece for strings in sets for piece in strings.pieces]
    ranges = rng.union(part for piece in pieces if piece.is_ranges for part in piece.ranges)
    distinct = [piece for piece in dict.fromkeys(pieces) if not piece.is_ranges]
    return Strings(tuple(sorted([*([Piece(ranges)] if ranges else []), *distinct], key=_piece_order)))


NO_STRING: Final = Strings(())
EVERY_STRING: Final = Strings((Piece(ALL),))


# --- normal form --------------------------------------------------------------------------------


@counted_cache(ANSWERS_MAX)
def of_pieces(pieces: tuple[Piece, ...]) -> Strings:
    """The union of pieces in normal form: as ranges where it is a small union of ranges, else simplified pieces in a
    fixed order."""
    charge(4 * len(pieces))
    pieces = tuple(map(_without_globs, pieces))
    joined_ranges = rng.union(part for piece in pieces if piece.is_ranges for part in piece.ranges)
    distinct = [piece for piece in dict.fromkeys(pieces) if piece.ranges and not piece.is_ranges]
    if not distinct:
        return of_ranges(joined_ranges)
    if not joined_ranges and len(distinct) == 1 and len(distinct[0].parts) == 1:
        return Strings(tuple(distinct))  # a single condition is in normal form
    forms = [loose(piece) for piece in distinct]
    if None not in forms and not _is_small(joined_ranges, tuple(distinct)):
        return _of_loose(joined_ranges, forms)  # type: ignore[arg-type]
    if joined_ranges:
        distinct.insert(0, Piece(joined_ranges))
    if len(distinct) > PIECES_MAX or any(len(piece.parts) > PIECES_MAX for piece in distinct):
        return Strings(tuple(sorted(distinct, key=_piece_order)))
    ranges = _as_ranges(tuple(distinct))
    if ranges is not None:
        return of_ranges(ranges)
    return Strings(_irredundant([_simplified(piece) for piece in distinct]))


def _without_globs(piece: Piece) -> Piece:
    """The same piece as ranges, if its ranges are single strings: its globs say which of them are in."""
    if piece.is_ranges or not is_points(piece.ranges):
        return piece
    charge(len(piece.ranges) * len(piece.parts))
    return Piece(tuple(part for part in piece.ranges if piece.contains(part[0])))


def _is_small(ranges: Ranges[str], pieces: tuple[Piece, ...]) -> bool:
    """Whether a joint automaton of these takes few steps. It is the only way to find that "contains a, or does not" is
    every string, and the like."""
    return len(ranges) <= JOINT_PARTS_MAX and _steps((Piece(ranges), *pieces)) <= JOINT_STEPS_MAX


@lru_cache(ANSWERS_MAX)
def _steps(pieces: tuple[Piece, ...]) -> int:
    """About how many steps a joint automaton of some pieces takes: its states, for each character and each condition.
    Once a text was seen, its state remains; so states are few pairs of places, for each set of texts seen."""
    globs = _globs(pieces)
    bounds = {bound for piece in pieces for part in piece.ranges for bound in part}
    texts = [glob.wanted for glob in globs] + [tuple(bound) for bound in bounds if bound]
    characters = {each for glob in globs for each in glob.characters} | {each for text in texts for each in text}
    states: int = min(prod(len(text) + 1 for text in texts), 2 ** len(texts) * (1 + sum(map(len, texts))))
    return states * len(texts) * (2 * len(characters) + 1)


def _of_loose(ranges: Ranges[str], forms: Sequence[Loose]) -> Strings:
    """The union of some ranges and of loose pieces, without what is empty or within another of them."""
    kept: list[Loose] = []
    for form in sorted(map(literals.simplified, forms), key=_form_order):
        if not literals.is_empty(form) and not any(literals.is_within(form, other) for other in kept):
            kept = [*(other for other in kept if not literals.is_within(other, form)), form]
    pieces = [literals.piece_of(form) for form in kept]
    ranges = rng.union((*ranges, *(part for piece in pieces if piece.is_ranges for part in piece.ranges)))
    kept = [form for form, piece in zip(kept, pieces, strict=True) if not piece.is_ranges]
    # What the pieces hold of the gaps between ranges closes these gaps; what they hold of ranges needs no range.
    held = [part for part in rng.complement(ranges, "") if _is_held(part, kept)]
    ranges = rng.union((*ranges, *held))
    kept = [form for form in kept if not _is_in_ranges(form, ranges)]
    if not kept:
        return of_ranges(ranges)
    pieces = list(map(literals.piece_of, kept))
    ranges = tuple(part for part in ranges if not _is_held(part, kept))
    return Strings(tuple(sorted([*([Piece(ranges)] if ranges else []), *pieces], key=_piece_order)))


def _is_in_ranges(form: Loose, ranges: Ranges[str]) -> bool:
    if rng.is_subset(literals.piece_of(form).ranges, ranges):
        return True
    return bool(ranges) and _contained((literals.piece_of(form),), (Piece(ranges),))


def _is_held(part: tuple[str, str | None], forms: Sequence[Loose]) -> bool:
    """Whether a single string, or all strings with a common beginning, are in one of some loose pieces."""
    charge(len(forms))
    return any(literals.holds(form, *part) for form in forms)


def _form_order(form: Loose) -> tuple[object, ...]:
    return len(form.wanted) + len(form.unwanted), sorted(form.wanted), sorted(form.unwanted)


def _as_ranges(pieces: tuple[Piece, ...]) -> Ranges[str] | None:
    if sum(len(piece.parts) for piece in pieces) > JOINT_PARTS_MAX:
        return None
    ranges = as_ranges(pieces)
    is_long = ranges is not None and len(ranges) > NOCASE_RANGES_MAX
    return None if is_long and any(glob.ignores_case for glob in _globs(pieces)) else ranges


def _globs(pieces: Iterable[Piece]) -> set[Glob]:
    return {glob for piece in pieces for glob in piece.wanted | piece.unwanted}


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
    return any(not _do_overlap((a,), (b,)) for a, b in combinations(parts, 2))


def _piece_order(piece: Piece) -> tuple[object, ...]:
    patterns = [sorted(map(glob_order, globs)) for globs in (piece.wanted, piece.unwanted)]
    return len(piece.wanted) + len(piece.unwanted), patterns, [low for low, _ in piece.ranges]


# --- questions ----------------------------------------------------------------------------------


def _contained(pieces: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    """Whether the union of `pieces` lies within the union of `others`. Past the limit: no."""
    forms, other_forms = list(map(loose, pieces)), list(map(loose, others))
    if None not in forms and None not in other_forms:
        answer = literals.are_within(forms, other_forms)  # type: ignore[arg-type]
        if answer is not None:
            return answer
    charge(len(pieces) * (1 + len(others)))
    for piece, form in zip(pieces, forms, strict=True):
        text = _literal(piece) if form is None else literals.typical(form)
        if text is not None and piece.contains(text) and not any(other.contains(text) for other in others):
            return False
    if all(_literal(piece) is not None for piece in pieces) and not any(map(_tells_case, others)):
        return True  # each piece is a text, whatever its case, and the others do not tell case apart
    if None not in forms and _steps(pieces + others) > LOOSE_STEPS_MAX:
        return False  # some pieces together may hold what none of them holds; that is not found
    return some_string(pieces, others, in_first_only) is None


def _literal(piece: Piece) -> str | None:
    """The text that a piece holds, whatever its case, and nothing else, unless the piece is empty."""
    return min((glob.literal for glob in piece.wanted if glob.literal is not None), default=None)


def _tells_case(piece: Piece) -> bool:
    """Whether it may hold a text and lack the same text in another case."""
    return piece.ranges != ALL or any(
        not glob.ignores_case and not all(map(literals.is_caseless, glob.characters))
        for glob in piece.wanted | piece.unwanted
    )


def _do_overlap(pieces: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    """Whether two unions have a string in common. Past the limit: yes."""
    forms, other_forms = list(map(loose, pieces)), list(map(loose, others))
    if None not in forms and None not in other_forms:
        answer = literals.do_overlap(forms, other_forms)  # type: ignore[arg-type]
        if answer is not None:
            return answer
    return some_string(pieces, others, in_both) is not None
