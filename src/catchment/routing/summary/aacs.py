"""AACS: what subscriptions say of one arithmetic attribute (summaries text §3.1).

Rows are sub-ranges that do not overlap, each with the ids of the subscriptions that some value in it satisfies. One
that holds a single value is an equality row; the others are the text's first array. Ranges are of keys (`values.py`):
of numbers the keys of floats, ints taken at the nearest; of times and booleans their own.

Where ranges overlap, rows are cut at their ends, so that each id stands with just its values: the text leaves a value
that lies in a sub-range there, which loses where it was. Past `rows_max` rows the ends are rounded outward to some of
them, evenly chosen. So a summary may say more than was asked for, and never less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final, Generic, NamedTuple, TypeVar

from catchment.model.domain import Values
from catchment.model.ranges import union
from catchment.model.values import INT_MAX, INT_MIN, KEY_BOUNDS, Type, Value, float_from_key, float_key, key_of, type_of
from catchment.model.witness import EXACT_MAX

Id = TypeVar("Id")
Keys = tuple[tuple[int, int], ...]  # from, up to and not including
# Rows of one attribute: each is sent to other brokers, with its ids.
AACS_ROWS_MAX: Final = 1_024

NUMBER, TIME, BOOL = "number", "time", "bool"
_BOUNDS: Final = {NUMBER: KEY_BOUNDS[Type.FLOAT], TIME: KEY_BOUNDS[Type.TIME], BOOL: KEY_BOUNDS[Type.BOOL]}
# Bytes of a value of each kind: `sst` of the text's table 1.
VALUE_BYTES: Final = {NUMBER: 8, TIME: 8, BOOL: 1}


def arithmetic_keys(values: Values) -> dict[str, Keys]:
    """What a set of values holds of each arithmetic kind, as ranges of keys."""
    ints, floats, bools, times = values.keys
    whole = [(_int_key(low), None if high is None else _int_key(high - 1) + 1) for low, high in ints]
    found = {NUMBER: union([*floats, *whole]), TIME: times, BOOL: bools}
    return {
        kind: tuple((low, _BOUNDS[kind][1] + 1 if high is None else high) for low, high in ranges)
        for kind, ranges in found.items()
        if ranges
    }


def _int_key(value: int) -> int:
    return float_key(float(value))


def is_untyped(values: Values) -> bool:
    """Whether of the numbers in its ranges it holds ints and floats alike, as their keys, which do not tell them apart,
    say. Past EXACT_MAX that is not looked at."""
    ints, floats = values.keys[:2]
    between = []
    for low, high in floats:
        first, last = float_from_key(low), float_from_key(_BOUNDS[NUMBER][1] if high is None else high - 1)
        if (low > _BOUNDS[NUMBER][0] and abs(first) >= EXACT_MAX) or (high is not None and abs(last) >= EXACT_MAX):
            return False
        least, greatest = max(ceil(first), INT_MIN), min(floor(last), INT_MAX)
        if least <= greatest:
            between.append((least, None if greatest == INT_MAX else greatest + 1))
    return union(between) == ints


def arithmetic_key(value: Value) -> tuple[str, int]:
    """The kind of a value that is no string, and its key."""
    kind = type_of(value)
    if kind in (Type.INT, Type.FLOAT):
        return NUMBER, float_key(float(value))  # type: ignore[arg-type]
    key = key_of(value)
    assert isinstance(key, int)
    return (TIME if kind is Type.TIME else BOOL), key


class Row(NamedTuple, Generic[Id]):
    """Keys from `low` up to and not including `high`, and whom they satisfy."""

    low: int
    high: int
    ids: frozenset[Id]

    @property
    def is_equality(self) -> bool:
        return self.high == self.low + 1


@dataclass(frozen=True, slots=True)
class Aacs(Generic[Id]):
    """The rows, rising. `is_exact` says that no id stands with a value that it does not ask for."""

    rows: tuple[Row[Id], ...] = ()
    is_exact: bool = True

    @classmethod
    def of(cls, asked: Iterable[tuple[Id, Keys]], rows_max: int = AACS_ROWS_MAX) -> Aacs[Id]:
        """Of what each subscription asks for."""
        ranges = [(low, high, id) for id, keys in asked for low, high in keys]
        ends = sorted({end for low, high, _ in ranges for end in (low, high)})
        is_exact = len(ends) <= rows_max + 1
        if not is_exact:
            # So many cuts leave so many rows between them.
            ends = [ends[i * (len(ends) - 1) // rows_max] for i in range(rows_max + 1)]
        return cls(_swept(ranges, ends), is_exact)

    def match(self, key: int) -> frozenset[Id]:
        """Check_for_a_value_match (type arithmetic): the ids of the row that holds a key."""
        at = bisect_right(self.rows, key, key=lambda row: row.low) - 1
        return self.rows[at].ids if at >= 0 and key < self.rows[at].high else frozenset()

    def merged(self, other: Aacs[Id], rows_max: int = AACS_ROWS_MAX) -> Aacs[Id]:
        """What both say (§4.1)."""
        ranges = [((row.low, row.high), id) for row in (*self.rows, *other.rows) for id in row.ids]
        found = Aacs.of(((id, (keys,)) for keys, id in ranges), rows_max)
        return Aacs(found.rows, found.is_exact and self.is_exact and other.is_exact)

    def kept(self, wanted: Callable[[Id], bool]) -> Aacs[Id]:
        """Only some ids."""
        rows = (Row(row.low, row.high, frozenset(filter(wanted, row.ids))) for row in self.rows)
        return Aacs(tuple(row for row in rows if row.ids), self.is_exact)

    def size_bytes(self, value_bytes: int, id_bytes: int) -> int:
        """Equation (1): two values a sub-range, one an equality, and the ids of all rows."""
        return sum((1 if row.is_equality else 2) * value_bytes + len(row.ids) * id_bytes for row in self.rows)


def _swept(ranges: Iterable[tuple[int, int, Id]], ends: Sequence[int]) -> tuple[Row[Id], ...]:
    """Rows between ends, those with nobody left out and those with the same ids joined."""
    comes: dict[int, list[Id]] = {}
    goes: dict[int, list[Id]] = {}
    for low, high, id in ranges:
        first = bisect_right(ends, low) - 1
        last = max(bisect_right(ends, high - 1), first + 1)
        comes.setdefault(first, []).append(id)
        goes.setdefault(last, []).append(id)
    rows: list[Row[Id]] = []
    count: dict[Id, int] = {}  # an id may have several ranges, and rounding may make them overlap
    ids: frozenset[Id] = frozenset()
    for place in range(len(ends) - 1):
        if place in comes or place in goes:
            for id in comes.get(place, ()):
                count[id] = count.get(id, 0) + 1
            for id in goes.get(place, ()):
                count[id] -= 1
                if not count[id]:
                    del count[id]
            ids = frozenset(count)
        if ids and rows and rows[-1].high == ends[place] and rows[-1].ids == ids:
            rows[-1] = Row(rows[-1].low, ends[place + 1], ids)
        elif ids:
            rows.append(Row(ends[place], ends[place + 1], ids))
    return tuple(rows)
