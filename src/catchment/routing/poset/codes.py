"""Sets of values as spans of integers, so that a filter is compared with many others by comparing columns of integers.

Each value has a *position* among the values of its kind. The position of a number is the place of the nearest float; of
a time, its microsecond; of a boolean, 0 or 1; of a string, twice the integer of its first STRING_BYTES bytes of UTF-8
(whose order is that of code points), plus one if more bytes follow. A greater value never has a smaller position. So if
set S contains set T, the span of S contains the span of T. A *span* is a range of positions. Each set has two spans:

wide    No member of the set lies outside it. Its ends are rounded outward.
tight   Each end is the position of a member, or is rounded outward from a member. So a set whose span does not contain
        it does not contain all members. The two spans are the same, except where a set of strings is no union of
        ranges: then `wide` is the span of all strings, and `tight` is the span of a few members that are easy to find.

So wherever S contains T, `wide(S)` contains `tight(T)`. The converse holds too if S is *solid* (it has all values of
its kind between two values whose positions are exact) and T is *plain* (its tight span is its wide span).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from catchment.model.constraint import Kind, edges
from catchment.model.domain import INTEGER_KEYED, Keys, Values, keys_between
from catchment.model.strings import UNDECIDED, Strings
from catchment.model.values import INT_MAX, KEY_BOUNDS, Type, Value, float_from_key, from_key

# Positions are 64-bit: seven bytes and the bit that says "more follows", with room for both ends.
STRING_BYTES: Final = 7
STRING_POSITION_MAX: Final = 1 << (8 * STRING_BYTES + 1)
# Past all positions on either side. The span from LEAST to GREATEST contains every span. The span from GREATEST to
# LEAST is contained in every span.
LEAST: Final = -(2**63) + 1
GREATEST: Final = 2**63 - 1


class Span(NamedTuple):
    """Where the values of one kind lie in a set: the ends of the wide and of the tight span."""

    low: int
    high: int
    tight_low: int
    tight_high: int
    is_solid: bool
    is_plain: bool

    @property
    def is_anywhere(self) -> bool:
        """Whether no member is known: then the tight span is the one that every span contains."""
        return self.tight_low > self.tight_high

    def hull(self, other: Span) -> Span:
        """The span of the union of two sets. It may have gaps, so it is not solid."""
        return Span(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.tight_low, other.tight_low),
            max(self.tight_high, other.tight_high),
            False,
            self.is_plain and other.is_plain,
        )


def spans(values: Values) -> list[tuple[Kind, Span]]:
    """The kinds that `values` has values of, each with its span."""
    ints, floats, bools, times = values.keys
    spans_by_kind: list[tuple[Kind, Span]] = []
    if values.strings:
        spans_by_kind.append((Kind.STRING, _string_span(values.strings)))
    if ints or floats:
        spans_by_kind.append((Kind.NUMBER, _number_span(ints, floats)))
    if bools:
        spans_by_kind.append((Kind.BOOL, _key_span(Type.BOOL, bools)))
    if times:
        spans_by_kind.append((Kind.TIME, _key_span(Type.TIME, times)))
    return spans_by_kind


def member(values: Values) -> Value | None:
    """A member of a set. None if the only member is "absent". UNDECIDED, which is no value, if no member is known."""
    for kind, keys in zip(INTEGER_KEYED, values.keys, strict=True):
        if keys:
            return from_key(kind, keys[0][0])
    if values.strings:
        inside = values.strings.member
        return UNDECIDED if inside is None else inside
    return None if values.absent else UNDECIDED


def _outward(low: int, high: int, is_solid: bool) -> Span:
    """A plain span: the wide and the tight one are the same."""
    return Span(low, high, low, high, is_solid, True)


def _key_span(kind: Type, keys: Keys) -> Span:
    return _outward(keys[0][0], _last(kind, keys), len(keys) == 1)


def _last(kind: Type, keys: Keys) -> int:
    end = keys[-1][1]
    return KEY_BOUNDS[kind][1] if end is None else end - 1


# --- numbers ------------------------------------------------------------------------------------


def _number_span(ints: Keys, floats: Keys) -> Span:
    """The span of numbers. An int has the position of the float that is equal to it or the next one outward, so the
    positions of ints and floats can be compared."""
    if not floats:
        # Not solid: it lacks the floats in this span.
        return _outward(*_int_ends(ints), False)
    low, high = floats[0][0], _last(Type.FLOAT, floats)
    if len(floats) == 1 and ints == _ints_between(low, floats[0][1]):
        return _outward(low, high, True)
    if ints:
        first, last = _int_ends(ints)
        low, high = min(low, first), max(high, last)
    return _outward(low, high, False)


def _int_ends(ints: Keys) -> tuple[int, int]:
    last = ints[-1][1]
    return edges(Type.FLOAT, ints[0][0])[1] - 1, edges(Type.FLOAT, INT_MAX if last is None else last - 1)[0]


def _ints_between(low: int, end: int | None) -> Keys:
    """All ints in a range of floats. `low` and `end` are keys of floats."""
    first = math.ceil(float_from_key(low))
    return keys_between(Type.INT, first, None if end is None else math.floor(float_from_key(end - 1)) + 1)


# --- strings ------------------------------------------------------------------------------------


def _string_span(strings: Strings) -> Span:
    ranges = strings.ranges
    if ranges is None:
        return Span(0, STRING_POSITION_MAX, *_witnessed(strings), False, False)
    low, is_low_exact = _low_position(ranges[0][0])
    high, is_high_exact = _end_position(ranges[-1][1])
    return _outward(low, high, is_low_exact and is_high_exact and len(ranges) == 1)


def _place(text: str) -> tuple[int, bool]:
    """The integer of the first bytes of a string, and whether no other string has the same integer."""
    data = text.encode("utf-8", "surrogatepass")
    place = int.from_bytes(data[:STRING_BYTES].ljust(STRING_BYTES, b"\0"), "big")
    return place, len(data) <= STRING_BYTES and not data.endswith(b"\0")


def _position(text: str) -> int:
    place, is_exact = _place(text)
    return 2 * place + (not is_exact)


def _low_position(low: str) -> tuple[int, bool]:
    place, is_exact = _place(low)
    if is_exact:
        return 2 * place, True
    # The strings above "abc" begin with "abc\0". That is exact too: an odd position means "after the even one".
    return 2 * place + 1, low[-1] == "\0" and _place(low[:-1])[1]


def _end_position(end: str | None) -> tuple[int, bool]:
    """The position of the last string before `end`, and whether it is exact. `end` itself is not in the set."""
    if end is None:
        return STRING_POSITION_MAX, True
    if end[-1] == "\0":
        place, is_exact = _place(end[:-1])
        return 2 * place + (not is_exact), is_exact
    place, is_exact = _place(end)
    return (2 * place - 1, True) if is_exact else (2 * place + 1, False)


_LOWEST: Final = "\0" * STRING_BYTES
_HIGHEST: Final = "\U0010ffff" * 2


def _witnessed(strings: Strings) -> tuple[int, int]:
    """The span of some members; if none is known, the span that every span contains."""
    inside = strings.member
    if inside is None:
        return GREATEST, LEAST
    # A set of strings with a common suffix or substring has members near both ends of the order: try two such strings.
    members = [inside, *(text for text in (_LOWEST + inside, _HIGHEST + inside) if text in strings)]
    positions = [_position(member) for member in members]
    return min(positions), max(positions)
