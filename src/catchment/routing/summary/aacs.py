"""AACS: what subscriptions ask of one arithmetic attribute (summaries text §3.1).

An AACS is a list of rows. Each row is a sub-range of values with the ids of the subscriptions that some value in it
satisfies; rows do not overlap. A row of a single value is an *equality row*; the others are the text's first array. The
ranges are ranges of *keys* (`model/values.py`), which are integers: numbers have the keys of floats (an int has that of
the nearest float), times and booleans have their own keys.

Ranges of two subscriptions may overlap. There are two kinds of rows for that:

joined    The text's: ranges that overlap are one row, from the least value to the greatest. A constraint that lies in a
          row only adds its id. So each constraint is in one row, and its id is there once. The row forgets which values
          an id asked for.
cut       Rows end where a range ends, so that each id is in the rows of its own values only. It is exact, and an id
          stands in many rows. If there would be more than `rows_max` rows, the ends are rounded outward to some of the
          ends, chosen evenly.

So a summary may say more than was asked for, but never less. The routing system `summary` has joined rows
(`maintained.py` keeps them while constraints come and go), the pipeline has cut rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final, Generic, NamedTuple, TypeVar

from catchment.model.domain import Values
from catchment.model.ranges import union
from catchment.model.values import INT_MAX, INT_MIN, KEY_BOUNDS, Type, Value, float_from_key, float_key, key_of, type_of
from catchment.model.witness import EXACT_MAX

Id = TypeVar("Id")
Keys = tuple[tuple[int, int], ...]  # from, up to and not including
# Rows of one attribute: each is sent to other brokers with its ids.
AACS_ROWS_MAX: Final = 1_024

NUMBER, TIME, BOOL = "number", "time", "bool"
_BOUNDS: Final = {NUMBER: KEY_BOUNDS[Type.FLOAT], TIME: KEY_BOUNDS[Type.TIME], BOOL: KEY_BOUNDS[Type.BOOL]}
# The bytes of a value of each kind: `sst` of the text's table 1.
VALUE_BYTES: Final = {NUMBER: 8, TIME: 8, BOOL: 1}


def arithmetic_keys(values: Values) -> dict[str, Keys]:
    """The values of a set as ranges of keys, by arithmetic kind; without kinds that it has no values of."""
    ints, floats, bools, times = values.keys
    int_ranges = [(_int_key(low), None if high is None else _int_key(high - 1) + 1) for low, high in ints]
    ranges_by_kind = {NUMBER: union([*floats, *int_ranges]), TIME: times, BOOL: bools}
    return {
        kind: tuple((low, _BOUNDS[kind][1] + 1 if high is None else high) for low, high in ranges)
        for kind, ranges in ranges_by_kind.items()
        if ranges
    }


def _int_key(value: int) -> int:
    """The key of the float nearest to an int."""
    return float_key(float(value))


def is_untyped(values: Values) -> bool:
    """Whether a set has ints and floats alike: exactly the ints that lie in its ranges of floats. Then ranges of keys,
    which do not tell ints from floats, say the same as the set. Answers no if an end is past EXACT_MAX, from where on
    floats do not tell all ints apart."""
    ints, floats = values.keys[:2]
    # The ints that lie in the ranges of floats.
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
    """Keys from `low` up to and not including `high`, with the ids of the subscriptions that they satisfy."""

    low: int
    high: int
    ids: frozenset[Id]

    @property
    def is_equality(self) -> bool:
        return self.high == self.low + 1


@dataclass(frozen=True, slots=True)
class Aacs(Generic[Id]):
    """The rows in rising order. `is_exact` says that no id is in a row with values that its subscription does not ask
    for."""

    rows: tuple[Row[Id], ...] = ()
    is_exact: bool = True

    @classmethod
    def of(cls, asked: Iterable[tuple[Id, Keys]], rows_max: int = AACS_ROWS_MAX) -> Aacs[Id]:
        """Makes an AACS from the ranges that each subscription asks for."""
        ranges = [(low, high, id) for id, keys in asked for low, high in keys]
        ends = sorted({end for low, high, _ in ranges for end in (low, high)})
        is_exact = len(ends) <= rows_max + 1
        if not is_exact:
            # Between rows_max + 1 ends there are rows_max rows.
            ends = [ends[i * (len(ends) - 1) // rows_max] for i in range(rows_max + 1)]
        return cls(_swept(ranges, ends), is_exact)

    @classmethod
    def joined(cls, asked: Iterable[tuple[Id, Keys]]) -> Aacs[Id]:
        """The same with joined rows."""
        ranges = sorted(((low, high, id) for id, keys in asked for low, high in keys), key=lambda row: row[:2])
        rows: list[tuple[int, int, set[Id]]] = []
        is_exact = True
        for low, high, id in ranges:
            # Ranges that only touch stay two rows: `x <= 5` and `x > 5` say more apart.
            if rows and low < rows[-1][1]:
                least, greatest, ids = rows[-1]
                is_exact &= (low, high) == (least, greatest)
                ids.add(id)
                rows[-1] = (least, max(high, greatest), ids)
            else:
                rows.append((low, high, {id}))
        return cls(tuple(Row(low, high, frozenset(ids)) for low, high, ids in rows), is_exact)

    def match(self, key: int) -> frozenset[Id]:
        """The ids of the row that has a key: the text's Check_for_a_value_match (type arithmetic)."""
        at = bisect_right(self.rows, key, key=lambda row: row.low) - 1
        return self.rows[at].ids if at >= 0 and key < self.rows[at].high else frozenset()

    def merged(self, other: Aacs[Id], rows_max: int = AACS_ROWS_MAX) -> Aacs[Id]:
        """What both AACS say together (§4.1)."""
        ranges = [((row.low, row.high), id) for row in (*self.rows, *other.rows) for id in row.ids]
        together = Aacs.of(((id, (keys,)) for keys, id in ranges), rows_max)
        return Aacs(together.rows, together.is_exact and self.is_exact and other.is_exact)

    def size_bytes(self, value_bytes: int, id_bytes: int) -> int:
        """Equation (1): two values for each sub-range, one for each equality, and the ids of all rows."""
        return sum((1 if row.is_equality else 2) * value_bytes + len(row.ids) * id_bytes for row in self.rows)


def _swept(ranges: Iterable[tuple[int, int, Id]], ends: Sequence[int]) -> tuple[Row[Id], ...]:
    """The rows between the ends: without rows that have no ids, and with rows joined that touch and have the same ids.
    A range whose ends are not among `ends` is rounded outward."""
    comes: dict[int, list[Id]] = {}
    goes: dict[int, list[Id]] = {}
    for low, high, id in ranges:
        # The places, among the ends, of the last end that is not above `low` and of the first that is not below `high`.
        first = bisect_right(ends, low) - 1
        last = max(bisect_right(ends, high - 1), first + 1)
        comes.setdefault(first, []).append(id)
        goes.setdefault(last, []).append(id)
    rows: list[Row[Id]] = []
    # How many ranges of each id are open: an id may have several, and rounding may make them overlap.
    count: dict[Id, int] = {}
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
