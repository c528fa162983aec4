"""Filters by brute force: which of all notifications that the suite's clients may publish a filter matches.

Clients of the suite draw from few values (`scripts.py`), so all notifications can be tried. A filter becomes a set of
numbers, written as the bits of an int. Two filters are the same here if they match the same notifications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Final

from catchment.model.filter import Filter
from catchment.model.values import Value
from catchment.sim.conformance.scripts import KINDS, LEVELS, PLACES


def _all_attributes() -> list[Mapping[str, Value]]:
    """Each attribute may be left out."""
    choices: list[tuple[str, tuple[Value | None, ...]]] = [
        ("place", (None, *PLACES)),
        ("kind", (None, *KINDS)),
        ("level", (None, *LEVELS)),
    ]
    names = [name for name, _ in choices]
    return [
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in product(*(some for _, some in choices))
    ]


NOTIFICATIONS: Final = tuple(_all_attributes())
EVERY_NOTIFICATION: Final = (1 << len(NOTIFICATIONS)) - 1


def extent(filter: Filter) -> int:
    """The notifications that a filter matches."""
    return _extent(str(filter))


@lru_cache(maxsize=100_000)
def _extent(text: str) -> int:
    filter = Filter(text)
    return sum(1 << number for number, values in enumerate(NOTIFICATIONS) if filter.matches(values))


def extent_of_all(filters: Iterable[Filter]) -> int:
    """The notifications that one of some filters matches."""
    whole = 0
    for filter in filters:
        whole |= extent(filter)
    return whole


def shown_extent(numbers: int) -> str:
    """One notification of a set, for somebody who reads what is wrong."""
    return str(dict(NOTIFICATIONS[(numbers & -numbers).bit_length() - 1])) if numbers else "nothing"
