"""Back from sets of values to the constraints people read.

`spelled(name, values)` gives alternatives, each a tuple of constraints that must all hold, which
together say exactly `values`: few, and always the same for the same set of numbers, times, booleans or
string ranges. Bounds are written with whichever of `>` and `>=` has the plainer literal.

Numbers: a set of ints and a set of floats that agree wherever an int equals a float are one untyped
constraint; otherwise each type gets its own. The *number line* here is every number that is an int or
a float; Python compares the two exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from catchment.model import domain
from catchment.model.constraint import Constraint, Kind, edges, literal
from catchment.model.domain import Keys, Values
from catchment.model.globs import Glob
from catchment.model.ranges import Ranges
from catchment.model.strings import ALL, Piece, Strings, after_prefix
from catchment.model.values import INT_MAX, INT_MIN, KEY_BOUNDS, Type, Value, float_from_key, float_key, from_key

Alternative = tuple[Constraint, ...]
_SPELLINGS_KEPT_MAX: Final = 65_536


@lru_cache(_SPELLINGS_KEPT_MAX)
def spelled(name: str, values: Values) -> tuple[Alternative, ...]:
    """Alternatives that together say `values`; () when it is empty, ((),) when it says nothing."""
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
    for kind in (Type.BOOL, Type.TIME):
        yield from _Writer(name, Kind(kind.value), _KeyLine(kind)).alternatives(values.keys_of(kind))


# --- lines: what the elements of an ordered domain are ------------------------------------------


class Bound(NamedTuple):
    operator: str
    value: Value


class _KeyLine:
    """Ints, floats, booleans or times, by their integer keys."""

    def __init__(self, kind: Type) -> None:
        self._kind = kind
        self._least, self._greatest = KEY_BOUNDS[kind]

    def value(self, key: int) -> Value:
        return from_key(self._kind, key)

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
    """Every number that is an int or a float; a key is the number itself."""

    def value(self, key: int | float) -> Value:
        return _plain_number(key)

    def count(self, low: int | float, high: int | float | None) -> float:
        return 1 if high is not None and _next_number(low) == high else math.inf

    def elements(self, low: int | float, _: int | float | None) -> list[Value]:
        return [_plain_number(low)]

    def is_least(self, low: int | float) -> bool:
        return low == _LEAST_NUMBER

    def before(self, key: int | float) -> int | float | None:
        below = edges(Type.FLOAT, key)[0] - 1
        whole = math.ceil(key) - 1
        return max(float_from_key(below), whole) if INT_MIN <= whole <= INT_MAX else float_from_key(below)


_LEAST_NUMBER: Final = float_from_key(KEY_BOUNDS[Type.FLOAT][0])


def _plain_number(number: int | float) -> int | float:
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
        """Points together as one `in`, then each run of ranges that only points interrupt."""
        points: list[Value] = []
        found: list[Alternative] = []
        for run in self._runs(ranges):  # type: ignore[arg-type]
            bounds, holes = self._bounds(run), len(run) - 1
            if sum(self._line.count(low, high) for low, high in run) <= len(bounds) + holes:
                points += [value for low, high in run for value in self._line.elements(low, high)]
            else:
                found.append(self._run(run, bounds))
        return ([self._points(points)] if points else []) + found

    def _runs(self, ranges: Ranges[int]) -> list[list[tuple[int, int | None]]]:
        runs: list[list[tuple[int, int | None]]] = []
        for one in ranges:
            before = runs[-1][-1][1] if runs else None
            if before is not None and self._line.count(before, one[0]) == 1:
                runs[-1].append(one)
            else:
                runs.append([one])
        return runs

    def _bounds(self, run: list[tuple[int, int | None]]) -> list[Bound]:
        low, high = run[0][0], run[-1][1]
        found = [] if self._line.is_least(low) else [self._plainer(low, ">=", ">")]
        return found if high is None else [*found, self._plainer(high, "<", "<=")]

    def _plainer(self, key: int, at: str, before: str) -> Bound:
        """`>= key` and `> the one before` say the same: the one with the plainer literal."""
        found = [Bound(at, self._line.value(key))]
        if (previous := self._line.before(key)) is not None:
            found.append(Bound(before, self._line.value(previous)))
        return min(found, key=_plainness)

    def _run(self, run: list[tuple[int, int | None]], bounds: list[Bound]) -> Alternative:
        holes = [Bound("!=", self._line.value(before)) for _, before in run[:-1] if before is not None]
        if not bounds and not holes:
            return (Constraint(self._name, "any", None, self._kind),)
        return tuple(Constraint(self._name, bound.operator, bound.value, self._kind) for bound in bounds + holes)

    def _points(self, points: list[Value]) -> Alternative:
        if len(points) == 1:
            return (Constraint(self._name, "=", points[0], self._kind),)
        return (Constraint(self._name, "in", tuple(points), self._kind),)


def _plainness(bound: Bound) -> tuple[int, bool]:
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
    """Both as ranges of the number line, None where they disagree about a number that is both."""
    found: list[tuple[int | float, int | float | None]] = []
    at: int | float | None = _LEAST_NUMBER
    while at is not None:
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
            return None
        found.append((low, high))
        at = high
    return tuple(found)


def _first_in(
    ranges: Keys, number: int | float, key_at: Callable[[int | float], int], to_number: Callable[[int], int | float]
) -> int | float | None:
    key = key_at(number)
    for low, high in ranges:
        if high is None or key < high:
            return to_number(max(low, key))
    return None


def _first_out_int(ints: Keys, number: int | float) -> int | None:
    key = max(math.ceil(number), INT_MIN)
    for low, high in ints:
        if low <= key and (high is None or key < high):
            return high
    return key if key <= INT_MAX else None


def _first_out_float(floats: Keys, number: int | float) -> float | None:
    key = edges(Type.FLOAT, number)[0]
    for low, high in floats:
        if low <= key and (high is None or key < high):
            return None if high is None else float_from_key(high)
    return float_from_key(key) if key <= float_key(-_LEAST_NUMBER) else None


# --- strings ------------------------------------------------------------------------------------


def _strings(name: str, strings: Strings) -> list[Alternative]:
    return [alternative for piece in strings.pieces for alternative in _piece(name, piece)]


def _piece(name: str, piece: Piece) -> list[Alternative]:
    globs = [_glob(name, "", found) for found in piece.wanted] + [
        _glob(name, "not ", found) for found in piece.unwanted
    ]
    globs.sort(key=str)
    if piece.ranges == ALL and globs:
        return [tuple(globs)]
    return [(*ranges, *globs) for ranges in _string_ranges(name, piece.ranges)]


def _glob(name: str, negation: str, found: Glob) -> Constraint:
    operator, operand = found.shape
    if negation and operator not in ("suffix", "substring"):
        operator, operand = "glob", found.pattern
    return Constraint(name, negation + operator, operand, Kind.STRING)


def _string_ranges(name: str, ranges: Ranges[str]) -> list[Alternative]:
    """As `_Writer` has them, but a range that is all strings with some start is a prefix."""
    writer = _Writer(name, Kind.STRING, _StringLine())
    prefixes = [(one, prefix) for one in ranges if (prefix := _prefix_of(one)) is not None]
    rest = tuple(one for one in ranges if one not in [found for found, _ in prefixes])
    return writer.alternatives(rest) + [(Constraint(name, "prefix", prefix, Kind.STRING),) for _, prefix in prefixes]


def _prefix_of(one: tuple[str, str | None]) -> str | None:
    low, high = one
    return low if low and high is not None and after_prefix(low) == high else None
