"""The rows of summaries as one thing: a summary is a set of pairs of a row and an id.

A *demand* is what a subscription asks of one attribute: a range of keys, or a pattern of strings. A *row* of an AACS or
SACS is such a constraint too, one that covers all demands in it. So both have the same keys here:

    RangeRow      an attribute, a kind of values (`aacs.py`), and a range of keys
    PatternRow    an attribute and a pattern (`sacs.py`)
    EVERYTHING    the row of subscriptions that name no attribute

Within a process, attributes and brokers have their names; numbers are for the wire (`stream.py`). An id is one number
here, its *code*: c1, as this process numbers brokers, and c2. c3 is kept beside it, as the set of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from catchment.model.filter import Filter
from catchment.routing.summary.ids import Schema
from catchment.routing.summary.sacs import Pattern
from catchment.routing.summary.summary import dissolved

# Of a code: the bits of c2. A broker numbers one subscription after the other, and uses no number again.
NUMBER_BITS: Final = 48
NUMBERS_MAX: Final = 1 << NUMBER_BITS


class RangeRow(NamedTuple):
    """Keys from `low` up to and not including `high`."""

    name: str
    kind: str
    low: int
    high: int


class PatternRow(NamedTuple):
    """Strings that the pattern matches."""

    name: str
    pattern: Pattern


class _Everything(NamedTuple):
    name: str = ""


EVERYTHING: Final = _Everything()
RowKey = RangeRow | PatternRow | _Everything
# An id of a row.
Pair = tuple[RowKey, int]
# c3: the names of the attributes of a subscription.
Names = frozenset[str]


def demands_of(filter: Filter) -> tuple[Names, tuple[RowKey, ...]]:
    """What a filter asks of attributes: their names, and its demands. It must match something."""
    parts = dissolved(filter.routed.boxes)
    if not parts.names:
        return frozenset(), (EVERYTHING,)
    ranges = [RangeRow(name, kind, low, high) for (name, kind), keys in parts.keys.items() for low, high in keys]
    patterns = [PatternRow(name, pattern) for name, some in parts.patterns.items() for pattern in some]
    return frozenset(parts.names), (*ranges, *patterns)


class Brokers:
    """The brokers that ids of this process are of, by number: c1."""

    def __init__(self) -> None:
        self._numbers = Schema()
        self._names: list[str] = []

    def number(self, name: str) -> int:
        """A new broker gets the next number."""
        number = self._numbers.place(name)
        if number == len(self._names):
            self._names.append(name)
        return number

    def code(self, name: str, number: int) -> int:
        """The id of the subscription `number` of a broker."""
        return self.number(name) << NUMBER_BITS | number

    def code_of(self, broker: int, number: int) -> int:
        return broker << NUMBER_BITS | number

    def owner(self, code: int) -> str:
        """The broker that an id belongs to."""
        return self._names[code >> NUMBER_BITS]

    def by_owner(self, codes: Iterable[int]) -> dict[str, list[int]]:
        """The numbers of the subscriptions, by broker."""
        numbers: dict[str, list[int]] = {}
        for code in codes:
            numbers.setdefault(self._names[code >> NUMBER_BITS], []).append(code & NUMBERS_MAX - 1)
        return numbers


def grouped(pairs: Iterable[Pair]) -> dict[RowKey, list[int]]:
    """The ids of each row."""
    codes: dict[RowKey, list[int]] = {}
    for row, code in pairs:
        codes.setdefault(row, []).append(code)
    return codes


def pairs_of(rows: Iterable[tuple[RowKey, Iterable[int]]]) -> Iterator[Pair]:
    for row, codes in rows:
        yield from ((row, code) for code in codes)
