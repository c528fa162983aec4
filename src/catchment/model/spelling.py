"""Back from sets of values to the constraints people read.

`spelled(name, values)` gives alternatives. Each is a tuple of constraints that must all hold; together the alternatives
mean exactly `values`. They are few, and always the same for the same set of numbers, times, booleans or string ranges.
A bound is written with `>` or `>=` (`<` or `<=`), whichever has the shorter literal.

Numbers: if a set of ints and a set of floats agree wherever an int equals a float, they are written as one untyped
constraint; otherwise each type gets its own. The *number line* is all numbers that are an int or a float, in order;
Python compares the two exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from catchment.model import domain
from catchment.model.constraint import Constraint, Kind, edges, literal
from catchment.model.domain import Keys, Values
from catchment.model.folding import folded, unfolded
from catchment.model.globs import Glob
from catchment.model.ranges import Ranges, complement
from catchment.model.strings import ALL, Piece, Strings, after_prefix, successor
from catchment.model.values import INT_MAX, INT_MIN, KEY_BOUNDS, Type, Value, float_from_key, float_key, from_key

Alternative = tuple[Constraint, ...]
_SPELLINGS_KEPT_MAX: Final = 65_536


def spelled(name: str, values: Values) -> tuple[Alternative, ...]:
    """Alternatives that together mean `values`: () when no value is allowed, ((),) when any is, absence included."""
    # Kept by how the set is written: to compare sets by what they mean may take an automaton.
    return _spelled(name, values.absent, values.keys, values.strings.pieces)


@lru_cache(_SPELLINGS_KEPT_MAX)
def _spelled(name: str, absent: bool, keys: tuple[Keys, ...], pieces: tuple[Piece, ...]) -> tuple[Alternative, ...]:
    values = Values(absent, keys, Strings(pieces))
    if values == domain.EVERYTHING:
        return ((),)
    if values == domain.PRESENT:
        return ((Constraint(name, "any", None, Kind.ANY),),)
    return tuple(_alternatives(name, values))


def _alternatives(name: str, values: Values) -> Iterator[Alternative]:
    if values.absent:
        yield (Constraint(name, "absent", None, Kind.ANY),)
    yield from _strings(name, values.strings)
    yield from _numbers(name, values.keys_of(Type.INT), values.keys_of(Type.FLOAT))
    for value_type in (Type.BOOL, Type.TIME):
        line = _KeyLine(value_type)
        yield from _Writer(name, Kind(value_type.value), line).alternatives(values.keys_of(value_type))


# --- lines: ordered domains ---------------------------------------------------------------------
# A line tells how many elements a range has, which they are, and which element comes before a key.


class Bound(NamedTuple):
    operator: str
    value: Value


class _KeyLine:
    """Ints, floats, booleans or times, by their integer keys."""

    def __init__(self, value_type: Type) -> None:
        self._type = value_type
        self._least, self._greatest = KEY_BOUNDS[value_type]

    def value(self, key: int) -> Value:
        return from_key(self._type, key)

    def count(self, low: int, high: int | None) -> int:
        return (self._greatest + 1 if high is None else high) - low

    def elements(self, low: int, high: int | None) -> list[Value]:
        return [self.value(key) for key in range(low, self._greatest + 1 if high is None else high)]

    def is_least(self, low: int) -> bool:
        return low == self._least

    def before(self, key: int) -> int | None:
        return key - 1


class _StringLine:
    """Strings in code point order."""

    def value(self, key: str) -> Value:
        return key

    def count(self, low: str, high: str | None) -> float:
        # Only the strings `low`, `low + "\0"`, `low + "\0\0"` … follow each other without others between them.
        if high is None or high.rstrip("\0") != low.rstrip("\0"):
            return math.inf
        return len(high) - len(low)

    def elements(self, low: str, high: str | None) -> list[Value]:
        assert high is not None
        return [high[:size] for size in range(len(low), len(high))]

    def is_least(self, low: str) -> bool:
        return low == ""

    def before(self, key: str) -> str | None:
        return key[:-1] if key.endswith("\0") else None


class _NumberLine:
    """Every number that is an int or a float. Its key is the number itself."""

    def value(self, key: int | float) -> Value:
        return _as_int_if_whole(key)

    def count(self, low: int | float, high: int | float | None) -> float:
        return 1 if high is not None and _next_number(low) == high else math.inf

    def elements(self, low: int | float, _: int | float | None) -> list[Value]:
        return [_as_int_if_whole(low)]

    def is_least(self, low: int | float) -> bool:
        return low == _LEAST_NUMBER

    def before(self, key: int | float) -> int | float | None:
        below = edges(Type.FLOAT, key)[0] - 1
        whole = math.ceil(key) - 1
        return max(float_from_key(below), whole) if INT_MIN <= whole <= INT_MAX else float_from_key(below)


_LEAST_NUMBER: Final = float_from_key(KEY_BOUNDS[Type.FLOAT][0])


def _as_int_if_whole(number: int | float) -> int | float:
    return int(number) if INT_MIN <= number <= INT_MAX and number == math.floor(number) else number


def _next_number(number: int | float) -> int | float:
    above = float_from_key(edges(Type.FLOAT, number)[1])
    whole = math.floor(number) + 1
    return min(above, whole) if INT_MIN <= whole <= INT_MAX else above


# --- writing ranges -----------------------------------------------------------------------------


class _Writer:
    """Writes ranges over one line as constraints of one kind."""

    def __init__(self, name: str, kind: Kind, line: _KeyLine | _StringLine | _NumberLine) -> None:
        self._name, self._kind = name, kind
        self._line: _KeyLine = line  # type: ignore[assignment]  # the three lines have one shape

    def alternatives(self, ranges: Ranges[int] | Ranges[str] | _NumberRanges) -> list[Alternative]:
        """A single `in` for all points, then an alternative for each run. A *run* is ranges with gaps of a single
        element between them, which are written as `!=`. A run with few elements counts as points."""
        points: list[Value] = []
        longer: list[Alternative] = []
        for run in self._runs(ranges):  # type: ignore[arg-type]
            bounds, holes = self._bounds(run), len(run) - 1
            # Listing the elements is no longer than writing the bounds and the holes.
            if sum(self._line.count(low, high) for low, high in run) <= len(bounds) + holes:
                points += [value for low, high in run for value in self._line.elements(low, high)]
            else:
                longer.append(self._run(run, bounds))
        return ([self._points(points)] if points else []) + longer

    def _runs(self, ranges: Ranges[int]) -> list[list[tuple[int, int | None]]]:
        runs: list[list[tuple[int, int | None]]] = []
        for part in ranges:
            before = runs[-1][-1][1] if runs else None
            if before is not None and self._line.count(before, part[0]) == 1:
                runs[-1].append(part)
            else:
                runs.append([part])
        return runs

    def _bounds(self, run: list[tuple[int, int | None]]) -> list[Bound]:
        low, high = run[0][0], run[-1][1]
        lower = [] if self._line.is_least(low) else [self._shorter(low, ">=", ">")]
        return lower if high is None else [*lower, self._shorter(high, "<", "<=")]

    def _shorter(self, key: int, at: str, before: str) -> Bound:
        """`>= key` and `> the element before key` mean the same: takes the one with the shorter literal."""
        candidates = [Bound(at, self._line.value(key))]
        if (previous := self._line.before(key)) is not None:
            candidates.append(Bound(before, self._line.value(previous)))
        return min(candidates, key=_literal_length)

    def _run(self, run: list[tuple[int, int | None]], bounds: list[Bound]) -> Alternative:
        holes = tuple(self._line.value(before) for _, before in run[:-1] if before is not None)
        if not bounds and not holes:
            return (Constraint(self._name, "any", None, self._kind),)
        written = tuple(Constraint(self._name, bound.operator, bound.value, self._kind) for bound in bounds)
        if not holes:
            return written
        operator, value = ("!=", holes[0]) if len(holes) == 1 else ("not in", holes)
        return (*written, Constraint(self._name, operator, value, self._kind))

    def _points(self, points: list[Value]) -> Alternative:
        if len(points) == 1:
            return (Constraint(self._name, "=", points[0], self._kind),)
        return (Constraint(self._name, "in", tuple(points), self._kind),)


def _literal_length(bound: Bound) -> tuple[int, bool]:
    return len(literal(bound.value).rstrip("0")), bound.operator in ("<", ">")


# --- numbers ------------------------------------------------------------------------------------

_NumberRanges = tuple[tuple[int | float, int | float | None], ...]


def _numbers(name: str, ints: Keys, floats: Keys) -> list[Alternative]:
    if not ints and not floats:
        return []
    together = _together(ints, floats)
    if together is not None:
        return _Writer(name, Kind.NUMBER, _NumberLine()).alternatives(together)
    return [
        *_Writer(name, Kind.INT, _KeyLine(Type.INT)).alternatives(ints),
        *_Writer(name, Kind.FLOAT, _KeyLine(Type.FLOAT)).alternatives(floats),
    ]


def _together(ints: Keys, floats: Keys) -> _NumberRanges | None:
    """Both as ranges of the number line; None where they disagree about a number that is both an int and a float."""
    ranges: list[tuple[int | float, int | float | None]] = []
    at: int | float | None = _LEAST_NUMBER
    while at is not None:
        # The next range begins at the first number that either set holds, and ends at the first that either lacks.
        first = [
            number
            for number in (
                _first_in(ints, at, lambda number: edges(Type.INT, number)[0], lambda key: key),
                _first_in(floats, at, lambda number: edges(Type.FLOAT, number)[0], float_from_key),
            )
            if number is not None
        ]
        if not first:
            break
        low = min(first)
        ends = [end for end in (_first_out_int(ints, low), _first_out_float(floats, low)) if end is not None]
        high = min(ends) if ends else None
        if high == low:
            return None  # one set holds `low`, and the other has this number and does not hold it
        ranges.append((low, high))
        at = high
    return tuple(ranges)


def _first_in(
    ranges: Keys, number: int | float, key_at: Callable[[int | float], int], to_number: Callable[[int], int | float]
) -> int | float | None:
    """The first number at or above `number` that the ranges hold."""
    key = key_at(number)
    for low, high in ranges:
        if high is None or key < high:
            return to_number(max(low, key))
    return None


def _first_out_int(ints: Keys, number: int | float) -> int | None:
    """The first int at or above `number` that is not in `ints`."""
    key = max(math.ceil(number), INT_MIN)
    for low, high in ints:
        if low <= key and (high is None or key < high):
            return high
    return key if key <= INT_MAX else None


def _first_out_float(floats: Keys, number: int | float) -> float | None:
    """The first float at or above `number` that is not in `floats`."""
    key = edges(Type.FLOAT, number)[0]
    for low, high in floats:
        if low <= key and (high is None or key < high):
            return None if high is None else float_from_key(high)
    return float_from_key(key) if key <= float_key(-_LEAST_NUMBER) else None


# --- strings ------------------------------------------------------------------------------------


def _strings(name: str, strings: Strings) -> list[Alternative]:
    texts = [text for piece in strings.pieces if (text := _text_of(piece)) is not None]
    others = [piece for piece in strings.pieces if _text_of(piece) is None]
    alternatives = [alternative for piece in others for alternative in _piece(name, piece)]
    # The texts whose case does not count are one alternative, with those that were stored as ranges.
    for alternative in alternatives if texts else ():
        if len(alternative) == 1 and alternative[0].operator in ("= nocase", "in nocase"):
            value = alternative[0].value
            texts += map(str, value if isinstance(value, tuple) else (value,))
            alternatives.remove(alternative)
            break
    return [*alternatives, (_nocase(name, "", texts),)] if texts else alternatives


def _text_of(piece: Piece) -> str | None:
    """The text that a piece is, whatever its case; None if it is something else."""
    if piece.ranges != ALL or piece.unwanted or len(piece.wanted) != 1:
        return None
    return next(iter(piece.wanted)).literal


def _piece(name: str, piece: Piece) -> list[Alternative]:
    texts = [glob.literal for glob in piece.unwanted if glob.literal is not None]
    ranges = piece.ranges
    points = [_point_of(part) for part in complement(ranges, "")]
    if texts and None not in points and (any_case := _any_case(points)):  # type: ignore[arg-type]
        texts, ranges = [*texts, *any_case], ALL
    globs = [_glob(name, "", glob) for glob in piece.wanted]
    globs += [_glob(name, "not ", glob) for glob in piece.unwanted if glob.literal is None]
    globs += [_nocase(name, "not ", texts)] if texts else []
    globs.sort(key=str)
    if ranges == ALL and globs:
        return [tuple(globs)]
    return [(*written, *globs) for written in _string_ranges(name, ranges)]


def _glob(name: str, negation: str, glob: Glob) -> Constraint:
    operator, operand = glob.simplest_operator
    return Constraint(name, negation + operator, operand, Kind.STRING)


def _nocase(name: str, negation: str, texts: list[str]) -> Constraint:
    """That a string is one of some texts, whatever its case, or none of them."""
    if len(texts) > 1:
        return Constraint(name, f"{negation}in nocase", tuple(sorted(texts)), Kind.STRING)
    return Constraint(name, "!= nocase" if negation else "= nocase", texts[0], Kind.STRING)


def _string_ranges(name: str, ranges: Ranges[str]) -> list[Alternative]:
    """As `_Writer` writes them, but a range of all strings with a common beginning becomes a prefix. If only such
    ranges and single strings are missing, what is missing is written."""
    outside = complement(ranges, "")
    if any(map(_prefix_of, outside)) and all(map(_is_prefix_or_point, outside)):
        return [tuple(_opposite(constraint) for (constraint,) in _short_ranges(name, outside))]
    points = [point for part in outside if (point := _point_of(part)) is not None]
    if points and len(points) == len(outside) and (texts := _any_case(points)):
        return [(_nocase(name, "not ", texts),)]
    return _short_ranges(name, ranges)


def _short_ranges(name: str, ranges: Ranges[str]) -> list[Alternative]:
    prefixes = [prefix for part in ranges if (prefix := _prefix_of(part)) is not None]
    points = [point for part in ranges if (point := _point_of(part)) is not None]
    alternatives: list[Alternative] = []
    if texts := _any_case(points):
        alternatives.append((_nocase(name, "", texts),))
    rest = tuple(part for part in ranges if not (_prefix_of(part) or (texts and _point_of(part) is not None)))
    alternatives += _Writer(name, Kind.STRING, _StringLine()).alternatives(rest)
    if any_case := _any_case(prefixes):
        return alternatives + [(Constraint(name, "prefix nocase", text, Kind.STRING),) for text in any_case]
    return alternatives + [(Constraint(name, "prefix", prefix, Kind.STRING),) for prefix in prefixes]


_OPPOSITES: Final = {"=": "!=", "= nocase": "!= nocase"}


def _opposite(constraint: Constraint) -> Constraint:
    operator = _OPPOSITES.get(constraint.operator, f"not {constraint.operator}")
    return Constraint(constraint.name, operator, constraint.value, constraint.kind)


def _any_case(texts: list[str]) -> list[str]:
    """If some texts are all the ways to write other texts in any case, those; else none."""
    by_folded: dict[str, int] = {}
    for text in texts:
        by_folded[folded(text)] = by_folded.get(folded(text), 0) + 1
    if len(by_folded) == len(texts):
        return []
    is_whole = all(count == math.prod(len(unfolded(each)) for each in text) for text, count in by_folded.items())
    return list(by_folded) if is_whole else []


def _prefix_of(part: tuple[str, str | None]) -> str | None:
    low, high = part
    return low if low and high is not None and after_prefix(low) == high else None


def _is_prefix_or_point(part: tuple[str, str | None]) -> bool:
    return _prefix_of(part) is not None or _point_of(part) is not None


def _point_of(part: tuple[str, str | None]) -> str | None:
    return part[0] if part[1] == successor(part[0]) else None
