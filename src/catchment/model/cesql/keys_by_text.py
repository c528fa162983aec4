"""From a set of strings to the numbers and times whose text is in it.

An expression sees wide integers, floats and times as text (§3.2), and casts any integer to text where an
operator wants a string. Given a set of strings, `keys_with_text` returns the keys of the values whose text is in it.
The result is exact for integers if the set is a union of ranges: equality, prefixes and their negations are. Otherwise
it may hold too many keys, never too few. The texts of integers with the same sign and length are in numeric order, and
so are the texts of times in whole seconds. So a range of strings is a range of each of these.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from catchment.errors import BadValueError
from catchment.model import ranges as rng
from catchment.model.cesql.values import represented
from catchment.model.domain import ALL_KEYS, INTEGER_KEYED, Keys, keys_between
from catchment.model.globs import Glob
from catchment.model.ranges import Ranges
from catchment.model.strings import ALL, Piece, Strings, after_prefix, prefix_ranges, successor
from catchment.model.values import INT_MAX, KEY_BOUNDS, Type, float_key, parse_time, time_from_key, time_key

_EVERY_KEY: Final[dict[Type, Keys]] = dict(zip(INTEGER_KEYED, ALL_KEYS, strict=True))
_ALPHABET: Final[dict[Type, frozenset[str]]] = {
    Type.INT: frozenset("-0123456789"),
    Type.FLOAT: frozenset("-+.0123456789e"),
    Type.TIME: frozenset("-:.0123456789TZ"),
}
# The lengths of their texts: up to `-9223372036854775808`, `-2.2250738585072014e-308`, and a time with microseconds.
_LENGTHS: Final[dict[Type, range]] = {Type.INT: range(1, 21), Type.FLOAT: range(3, 25), Type.TIME: range(20, 28)}


def keys_with_text(value_type: Type, strings: Strings) -> Keys:
    """The keys of the ints, floats or times whose text is in `strings`, and perhaps more."""
    outside = None if strings.ranges is None else rng.complement(strings.ranges, "")
    excluded = _points(outside or ())
    if outside is not None and len(excluded) == len(outside):
        # All strings but some single ones.
        keys = _EVERY_KEY[value_type]
    else:
        keys = rng.union(part for piece in strings.pieces for part in _of_piece(value_type, piece))
    return _without(keys, _KEYS_OF_POINTS[value_type](excluded)) if excluded else keys


def _of_piece(value_type: Type, piece: Piece) -> Iterator[tuple[int, int | None]]:
    """Ranges of keys of the values whose text is in a piece. Of its wanted globs only the characters, the beginning and
    the length are used; unwanted globs are ignored, which makes the set larger."""
    ranges, lengths = piece.ranges, _LENGTHS[value_type]
    for glob in piece.wanted:
        if not glob.characters <= _ALPHABET[value_type]:
            return
        ranges = rng.intersection(ranges, _ranges_around(glob))
        longest = lengths.stop if glob.waiting else len(glob.wanted) + 1
        lengths = range(max(lengths.start, len(glob.wanted)), min(lengths.stop, longest))
    if not lengths:
        return
    yield from _KEYS_OF_POINTS[value_type](_points(ranges))
    for low, high in ranges:
        if high != successor(low):
            yield from _KEYS_OF_RANGE[value_type](low, high, lengths)


def _ranges_around(glob: Glob) -> Ranges[str]:
    """All strings that begin with the literal characters with which the glob begins."""
    start = ""
    for i, character in enumerate(glob.wanted):
        if character is None or glob.waiting >> i & 1:
            break
        start += character
    return prefix_ranges(start) if start else ALL


def _points(ranges: Ranges[str]) -> list[str]:
    return [low for low, high in ranges if high == successor(low)]


def _without(keys: Keys, holes: Iterable[tuple[int, int | None]]) -> Keys:
    least = -(2**64)  # below the keys of every type
    return rng.intersection(keys, rng.complement(rng.union(holes), least))


# --- integers -----------------------------------------------------------------------------------

_INT: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
# The absolute values of 1 digit, of 2 digits, and so on: the texts of each range are in numeric order.
_BY_DIGITS: Final = [range(10**n if n else 1, min(10 ** (n + 1), INT_MAX + 2)) for n in range(19)]


def _ints_of_points(texts: Sequence[str]) -> Iterator[tuple[int, int | None]]:
    for text in texts:
        if _INT.fullmatch(text):
            yield from keys_between(Type.INT, int(text), int(text) + 1)


def _ints_of_range(low: str, high: str | None, lengths: range) -> Iterator[tuple[int, int | None]]:
    if 1 in lengths and low <= "0" and (high is None or high > "0"):
        yield 0, 1
    for digits, sizes in enumerate(_BY_DIGITS, start=1):
        if digits in lengths:
            first, end = _bisected(sizes, low, high, str)
            yield from keys_between(Type.INT, first, end)
        if digits + 1 in lengths:
            first, end = _bisected(sizes, low, high, lambda size: f"-{size}")
            # The numbers -first, -(first + 1), … -(end - 1), as a range from the least up.
            yield from keys_between(Type.INT, 1 - end, 1 - first)


def _bisected(numbers: range, low: str, high: str | None, text: Callable[[int], str]) -> tuple[int, int]:
    """The first and the end of those numbers whose texts are from `low` up to `high`; `text` must keep their order."""
    start = bisect_left(numbers, low, key=text)
    end = len(numbers) if high is None else bisect_left(numbers, high, key=text)
    return numbers.start + start, numbers.start + max(start, end)


# --- floats -------------------------------------------------------------------------------------

_FLOAT_START: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?(e([+-][0-9]*)?)?)?")
_DIGITS_FIRST: Final[Ranges[str]] = (("0", ":"),)


def _floats_of_points(texts: Sequence[str]) -> Iterator[tuple[int, int | None]]:
    for text in texts:
        try:
            number = float(text)
            if represented(number) == text:
                yield from keys_between(Type.FLOAT, float_key(number), float_key(number) + 1)
        except (ValueError, BadValueError):
            continue


def _floats_of_range(low: str, high: str | None, lengths: range) -> Iterator[tuple[int, int | None]]:
    """The texts of floats are in no numeric order. Only the sign helps, and whether a float can begin with a prefix."""
    if high == after_prefix(low) and not _FLOAT_START.fullmatch(low):
        return
    if rng.intersection(((low, high),), prefix_ranges("-")):
        yield from keys_between(Type.FLOAT, None, 0)
    if rng.intersection(((low, high),), _DIGITS_FIRST):
        yield from keys_between(Type.FLOAT, 0, None)


# --- times --------------------------------------------------------------------------------------

_SECOND: Final = 1_000_000
_SECONDS: Final = range(KEY_BOUNDS[Type.TIME][0] // _SECOND, KEY_BOUNDS[Type.TIME][1] // _SECOND + 1)


def _times_of_points(texts: Sequence[str]) -> Iterator[tuple[int, int | None]]:
    for text in texts:
        try:
            time = parse_time(text)
        except BadValueError:
            continue
        if represented(time) == text:
            yield from keys_between(Type.TIME, time_key(time), time_key(time) + 1)


def _times_of_range(low: str, high: str | None, lengths: range) -> Iterator[tuple[int, int | None]]:
    """Whole seconds that may lie in the range. Within a second the text without fraction is the greatest, because `Z`
    sorts behind the `.` of the fractions."""
    first, _ = _bisected(_SECONDS, low, None, lambda second: _second_text(second) + "Z")
    _, end = _bisected(_SECONDS, "", high, lambda second: _second_text(second) + ".000001Z")
    yield from keys_between(Type.TIME, first * _SECOND, end * _SECOND)


def _second_text(second: int) -> str:
    return time_from_key(second * _SECOND).isoformat(timespec="seconds").removesuffix("+00:00")


_KeysOfPoints = Callable[[Sequence[str]], Iterator[tuple[int, int | None]]]
_KEYS_OF_POINTS: Final[dict[Type, _KeysOfPoints]] = {
    Type.INT: _ints_of_points,
    Type.FLOAT: _floats_of_points,
    Type.TIME: _times_of_points,
}
_KeysOfRange = Callable[[str, str | None, range], Iterator[tuple[int, int | None]]]
_KEYS_OF_RANGE: Final[dict[Type, _KeysOfRange]] = {
    Type.INT: _ints_of_range,
    Type.FLOAT: _floats_of_range,
    Type.TIME: _times_of_range,
}
