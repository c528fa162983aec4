"""Sets of strings that are given by literal texts at the beginning, at the end or anywhere: no automaton is needed.

A piece (`automaton.py`) is *loose* if each of its conditions is a prefix, a suffix or a substring, wanted or unwanted,
or a single string that is unwanted: nothing says in which order the texts of its substrings stand. There are more
characters than any filter names, so some character `#` occurs in no condition. If a loose piece holds any string at
all, it holds `prefix#substring#…#suffix`, and this string meets no condition but those that one of its parts alone
meets. So whether a loose piece is empty, or lies within another, is decided by comparing conditions two by two. It
takes a microsecond where an automaton takes a state for each pair of places in two texts.

Each function returns None where it cannot tell: then the automaton can.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from catchment.model.automaton import ALL, Piece, after_prefix, prefix_ranges, successor
from catchment.model.budget import charge
from catchment.model.folding import folded, unfolded
from catchment.model.globs import Glob, prefix_glob, substring_glob, suffix_glob
from catchment.model.ranges import Ranges, complement, intersection, union

# So many pieces in their loose form are cached.
_LOOSE_MAX: Final = 65_536

# A character that hardly a filter names. Whoever asks for a typical string looks whether it is in the piece.
_APART: Final = "\U0010fffe"

_START, _END, _INNER, _WHOLE = "prefix", "suffix", "substring", "="


class Condition(NamedTuple):
    """A text at a place: the beginning, the end, anywhere, or the whole string. If it ignores case, the text is folded.
    Of whole strings, only those that are unwanted are conditions."""

    place: str
    text: str
    ignores_case: bool


class Loose(NamedTuple):
    """Strings that meet all wanted conditions and no unwanted one."""

    wanted: frozenset[Condition]
    unwanted: frozenset[Condition]

    def __and__(self, other: Loose) -> Loose:
        return Loose(self.wanted | other.wanted, self.unwanted | other.unwanted)


@lru_cache(_LOOSE_MAX)
def loose(piece: Piece) -> Loose | None:
    """A piece as conditions on literal texts; None if it has others."""
    wanted = [_condition(glob) for glob in piece.wanted]
    unwanted = [_condition(glob) for glob in piece.unwanted]
    if piece.ranges != ALL:
        start, holes = _prefix_and_holes(piece.ranges)
        wanted += [] if start == "" else [Condition(_START, start, False)] if start else [None]
        unwanted += holes
    if None in wanted or None in unwanted:
        return None
    return Loose(frozenset(wanted), frozenset(unwanted))  # type: ignore[arg-type]


def _condition(glob: Glob) -> Condition | None:
    operator, text = glob.simplest_operator
    place = operator.removesuffix(" nocase")
    return Condition(place, text, glob.ignores_case) if place in (_START, _END, _INNER) else None


def _prefix_and_holes(ranges: Ranges[str]) -> tuple[str | None, list[Condition | None]]:
    """The text with which all strings of these ranges begin (None if they are no such strings), and what is left out of
    them."""
    low, high = ranges[0][0], ranges[-1][1]
    start = "" if high is None else low
    if high is not None and (not low or after_prefix(low) != high):
        return None, []
    outside = intersection(complement(ranges, ""), prefix_ranges(start))
    return start, [_hole(*part) for part in outside]


def _hole(low: str, high: str | None) -> Condition | None:
    if high == successor(low):
        return Condition(_WHOLE, low, False)
    return Condition(_START, low, False) if low and high is not None and after_prefix(low) == high else None


# --- two conditions -----------------------------------------------------------------------------


def _implies(first: Condition, second: Condition) -> bool:
    """Whether each string that meets the first condition meets the second."""
    text = folded(first.text) if second.ignores_case else first.text
    if first.ignores_case and not second.ignores_case and not is_caseless(second.text):
        return False  # the first holds for texts that differ from the second's in case
    if second.place == _INNER:
        return second.text in text
    if second.place == _WHOLE:
        return first == second
    if first.place not in (second.place, _WHOLE):
        return False
    return text.startswith(second.text) if second.place == _START else text.endswith(second.text)


def is_caseless(text: str) -> bool:
    return all(len(unfolded(folded(character))) == 1 for character in text)


def _excludes(first: Condition, second: Condition) -> bool:
    """Whether no string meets both conditions."""
    if first.place == _WHOLE:
        return not _implies(first, second)
    if first.place != second.place or first.place == _INNER:
        return False
    one, other = first.text, second.text
    if first.ignores_case or second.ignores_case:
        one, other = folded(one), folded(other)
    size = min(len(one), len(other))
    return one[:size] != other[:size] if first.place == _START else one[len(one) - size :] != other[len(other) - size :]


# --- pieces -------------------------------------------------------------------------------------


def is_empty(piece: Loose) -> bool | None:
    """Whether no string is in it."""
    if len(piece.wanted) + len(piece.unwanted) < 2:
        return False
    charge(2 + len(piece.wanted) * (len(piece.wanted) + len(piece.unwanted)))
    wanted = list(piece.wanted)
    if any(_implies(condition, unwanted) for condition in wanted for unwanted in piece.unwanted):
        return True
    if any(_excludes(condition, other) for i, condition in enumerate(wanted) for other in wanted[:i]):
        return True
    return None if _has_mixed_ends(wanted) else False


def _has_mixed_ends(wanted: list[Condition]) -> bool:
    """Whether two conditions on the same end differ in whether case counts, and neither implies the other: together
    they may say what neither says alone."""
    ends = [condition for condition in wanted if condition.place != _INNER]
    return any(
        first.place == second.place and not (_implies(first, second) or _implies(second, first))
        for i, first in enumerate(ends)
        for second in ends[:i]
    )


def is_within(piece: Loose, other: Loose) -> bool | None:
    """Whether each string of a piece is in another."""
    charge(2 + len(piece.wanted) * len(other.wanted))
    emptiness = is_empty(piece)
    if emptiness:
        return True
    if not all(any(_implies(mine, condition) for mine in piece.wanted) for condition in other.wanted):
        return None if emptiness is None else False
    # No string of the piece may meet a condition that the other does not want.
    answers = [_is_outside(condition, piece) for condition in other.unwanted]
    return False if False in answers else None if None in answers else True


def _is_outside(condition: Condition, piece: Loose) -> bool | None:
    """Whether no string of a piece meets a condition."""
    if condition.place == _WHOLE:
        is_in = all(_implies(condition, wanted) for wanted in piece.wanted)
        return not is_in or any(_implies(condition, unwanted) for unwanted in piece.unwanted)
    return is_empty(Loose(piece.wanted | {condition}, piece.unwanted))


def holds(piece: Loose, low: str, high: str | None) -> bool:
    """Whether a range of strings lies in a piece, if it is a single string or a prefix; else the answer is no."""
    condition = _hole(low, high)
    if condition is None:
        return False
    if condition.place == _WHOLE:
        return _is_outside(condition, piece) is False
    return is_within(Loose(frozenset([condition]), frozenset()), piece) is True


def are_within(pieces: list[Loose], others: list[Loose]) -> bool | None:
    """Whether the union of some pieces lies within the union of others."""
    for piece in pieces:
        answers = [is_within(piece, other) for other in others] if others else [is_empty(piece)]
        if any(answers):
            continue
        # Several pieces together may hold what none of them holds, but only where some string is unwanted.
        if None in answers or (len(others) > 1 and any(other.unwanted for other in others)):
            return None
        return False
    return True


def do_overlap(pieces: list[Loose], others: list[Loose]) -> bool | None:
    """Whether two unions have a string in common."""
    answers = [is_empty(piece & other) for piece in pieces for other in others]
    if False in answers:
        return True
    return None if None in answers else False


def simplified(piece: Loose) -> Loose:
    """The same without conditions that another implies."""
    charge((len(piece.wanted) + len(piece.unwanted)) ** 2)
    wanted = frozenset(
        condition
        for condition in piece.wanted
        if not any(other != condition and _implies(other, condition) for other in piece.wanted)
    )
    # A string that must not contain "ab" need not be told not to contain "abc". And one that begins with "a" does not
    # begin with "b".
    unwanted = frozenset(
        condition
        for condition in piece.unwanted
        if not any(other != condition and _implies(condition, other) for other in piece.unwanted)
        and not any(_excludes(condition, other) for other in piece.wanted)
    )
    return Loose(wanted, unwanted)


def piece_of(piece: Loose) -> Piece:
    """Back from conditions to a piece. A prefix whose case counts is a range."""
    prefixes = [condition.text for condition in piece.wanted if _is_range(condition)]
    holes = union(_range_of(condition) for condition in piece.unwanted if _is_range(condition))
    ranges = prefix_ranges(max(prefixes, key=len, default=""))
    return Piece(
        intersection(ranges, complement(holes, "")) if holes else ranges,
        frozenset(_glob(condition) for condition in piece.wanted if not _is_range(condition)),
        frozenset(_glob(condition) for condition in piece.unwanted if not _is_range(condition)),
    )


def _range_of(condition: Condition) -> tuple[str, str | None]:
    text = condition.text
    return text, successor(text) if condition.place == _WHOLE else after_prefix(text)


def _is_range(condition: Condition) -> bool:
    return condition.place in (_START, _WHOLE) and not condition.ignores_case


_GLOB_OF: Final = {_START: prefix_glob, _END: suffix_glob, _INNER: substring_glob}


def _glob(condition: Condition) -> Glob:
    return _GLOB_OF[condition.place](condition.text, condition.ignores_case)


def typical(piece: Loose) -> str:
    """The string `prefix#substring#…#suffix`. It is in the piece, unless the piece is empty or its ends are mixed."""
    # In order of length and text: what is found must not depend on the order of a set.
    wanted = sorted(piece.wanted, key=lambda condition: _length_and_text(condition.text))
    inner = [condition.text for condition in wanted if condition.place == _INNER]
    start, end = (
        next((condition.text for condition in reversed(wanted) if condition.place == place), "")
        for place in (_START, _END)
    )
    return _APART.join([start, *inner, end])


def extremes(pieces: list[Loose]) -> tuple[str, str] | None:
    """The least of the shortest strings in a union of pieces, and of those outside, if each piece is one condition."""
    if any(len(piece.wanted) != 1 or piece.unwanted for piece in pieces):
        return None
    # The empty string meets no condition.
    return min((_least(condition) for piece in pieces for condition in piece.wanted), key=_length_and_text), ""


def _least(condition: Condition) -> str:
    """The least of the shortest strings that meet a condition."""
    if not condition.ignores_case:
        return condition.text
    return "".join(min(unfolded(character)) for character in condition.text)


def _length_and_text(text: str) -> tuple[int, str]:
    return len(text), text
