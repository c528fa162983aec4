"""Boxes: products of value sets, one for each attribute. What covering, overlap and merging work on.

A conjunction is a box that says nothing of the attributes it does not name (`others` EVERYTHING). An
advertisement is a box in which attributes it does not name may not appear (`others` ABSENT); the
envelope is nobody's to forbid, so names with `$` stay free. Attributes are independent: a box lies
within another just if it does so in every attribute, and both are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from catchment.model.domain import ABSENT, EVERYTHING, Values
from catchment.model.values import Value


class Box:
    """Immutable; equal boxes are equal objects. `sets` holds only attributes that differ from `others`."""

    __slots__ = ("_hash", "others", "sets")

    def __init__(self, sets: Mapping[str, Values], others: Values = EVERYTHING) -> None:
        self.others = others
        self.sets = {name: sets[name] for name in sorted(sets) if sets[name] != self._default(name)}
        self._hash: int | None = None

    def _default(self, name: str) -> Values:
        return EVERYTHING if name[0] == "$" else self.others

    def of(self, name: str) -> Values:
        found = self.sets.get(name)
        return self._default(name) if found is None else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.sets == other.sets and self.others == other.others

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((tuple(self.sets.items()), self.others is ABSENT))
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Box, (self.sets, EVERYTHING if self.others.keys[0] else ABSENT)

    def __repr__(self) -> str:
        return f"Box({self.sets!r})"

    def __bool__(self) -> bool:
        return all(self.sets.values())

    @property
    def alternatives_max(self) -> int:
        """In how many conjunctions of constraints it could be said at the most."""
        return prod(found.parts for found in self.sets.values())

    @property
    def size(self) -> int:
        """The characters and bounds it takes to say it."""
        return sum(len(name) + found.size for name, found in self.sets.items())

    @property
    def is_plain(self) -> bool:
        """Whether questions about it need no automaton."""
        return all(found.is_plain for found in self.sets.values())

    def contains(self, values: Mapping[str, Value]) -> bool:
        """Whether an assignment of values to names lies inside; names it lacks are absent."""
        return all(values.get(name) in found for name, found in self.sets.items())

    def covers(self, other: Box) -> bool:
        if self.others is ABSENT:
            return all(other.of(name).is_subset(self.of(name)) for name in self.sets.keys() | other.sets.keys())
        sets = other.sets
        if other.others is ABSENT:
            return all(other.of(name).is_subset(found) for name, found in self.sets.items())
        # What a box says of an attribute is never everything: the other must say something of it too.
        return self.sets.keys() <= sets.keys() and all(sets[name].is_subset(found) for name, found in self.sets.items())

    def overlaps(self, other: Box) -> bool:
        """Whether something is in both; neither is empty."""
        if self.others is other.others is EVERYTHING:
            mine, its = self.sets, other.sets
            return all(mine[name].overlaps(its[name]) for name in mine.keys() & its.keys())
        return all(other.of(name).overlaps(found) for name, found in self.sets.items()) and all(
            self.of(name).overlaps(found) for name, found in other.sets.items() if name not in self.sets
        )

    def __and__(self, other: Box) -> Box:
        sets = dict(self.sets)
        for name, found in other.sets.items():
            sets[name] = sets[name] & found if name in sets else found
        return Box(sets)

    def hull(self, other: Box) -> Box:
        """The least box around both."""
        return Box({name: self.of(name) | other.of(name) for name in self.sets.keys() & other.sets.keys()})

    def with_set(self, name: str, found: Values) -> Box:
        return Box({**self.sets, name: found}, self.others)

    def without(self, name: str) -> Box:
        return Box({other: found for other, found in self.sets.items() if other != name}, self.others)

    def minus(self, other: Box) -> Iterator[Box]:
        """What is outside `other`, as disjoint boxes; these are for looking at, not in canonical order."""
        rest = self
        for name, found in other.sets.items():
            mine = rest.of(name)
            if outside := mine - found:
                yield rest._cut(name, outside)
            rest = rest._cut(name, mine & found)

    def _cut(self, name: str, found: Values) -> Box:
        part = Box.__new__(Box)
        part.others, part.sets, part._hash = self.others, {**self.sets, name: found}, None
        return part


WHOLE: Final = Box({})
