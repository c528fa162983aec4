"""Boxes: products of value sets, one set for each attribute. Covering, overlap and merging work on boxes.

A conjunction is a box that allows anything for the attributes it does not name (`others` is EVERYTHING). An
advertisement is a box that forbids the attributes it does not name (`others` is ABSENT). The envelope cannot be
forbidden, so names with `$` stay free. Attributes are independent: a box lies within another if and only if it does
so in every attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from catchment.model.budget import charge
from catchment.model.domain import ABSENT, EVERYTHING, Values
from catchment.model.values import Value

# Sets that are no ranges and that the hash of a box looks at: each may take IDENTITY_STEPS_MAX. A box with more names
# nearly always differs from others in one of these, or in a name.
HASHED_SETS_MAX: Final = 2


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
        """The values that an attribute may have in this box."""
        values = self.sets.get(name)
        return self._default(name) if values is None else values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.sets == other.sets and self.others == other.others

    def __hash__(self) -> int:
        if self._hash is None:
            hard = [name for name, values in self.sets.items() if not values.is_ranges]
            left_out = dict.fromkeys(hard[HASHED_SETS_MAX:])
            hashed = tuple((name, None if name in left_out else values) for name, values in self.sets.items())
            self._hash = hash((hashed, self.others is ABSENT))
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Box, (self.sets, EVERYTHING if self.others.keys[0] else ABSENT)

    def __repr__(self) -> str:
        return f"Box({self.sets!r})"

    def __bool__(self) -> bool:
        return all(self.sets.values())

    @property
    def alternatives_max(self) -> int:
        """An upper bound on the number of conjunctions that it takes to write this box as constraints."""
        return prod(values.parts for values in self.sets.values())

    @property
    def size(self) -> int:
        """How long the box is to write: its characters and bounds."""
        return sum(len(name) + values.size for name, values in self.sets.items())

    @property
    def is_ranges(self) -> bool:
        """Whether all its sets are unions of ranges: then questions about it need no automaton."""
        return all(values.is_ranges for values in self.sets.values())

    @property
    def is_easy(self) -> bool:
        """Whether most questions about it need no automaton."""
        return all(values.is_easy for values in self.sets.values())

    def contains(self, values: Mapping[str, Value]) -> bool:
        """Whether the notification with these attributes lies inside. A name that `values` lacks is absent."""
        return all(values.get(name) in allowed for name, allowed in self.sets.items())

    def sample(self) -> dict[str, Value] | None:
        """A notification that lies inside; None if it takes an automaton to find one."""
        values_by_name: dict[str, Value] = {}
        for name, values in self.sets.items():
            if not values.absent:
                if (value := values.plain_member) is None:
                    return None
                values_by_name[name] = value
        return values_by_name

    def covers(self, other: Box) -> bool:
        if self.others is ABSENT:
            # In a fixed order, not that of a set of names: the steps until the first "no" must be the same everywhere.
            return all(other.of(name).is_subset(mine) for name, mine in self.sets.items()) and all(
                its.is_subset(self.of(name)) for name, its in other.sets.items() if name not in self.sets
            )
        sets = other.sets
        if other.others is ABSENT:
            return all(other.of(name).is_subset(mine) for name, mine in self.sets.items())
        # A set that a box holds is never EVERYTHING. So a box that leaves the attribute free cannot lie within.
        return self.sets.keys() <= sets.keys() and all(sets[name].is_subset(mine) for name, mine in self.sets.items())

    def overlaps(self, other: Box) -> bool:
        """Whether some notification is in both. Neither box may be empty."""
        if self.others is other.others is EVERYTHING:
            mine, its = self.sets, other.sets
            return all(mine[name].overlaps(its[name]) for name in mine if name in its)
        return all(other.of(name).overlaps(mine) for name, mine in self.sets.items()) and all(
            self.of(name).overlaps(its) for name, its in other.sets.items() if name not in self.sets
        )

    def __and__(self, other: Box) -> Box:
        sets = dict(self.sets)
        for name, values in other.sets.items():
            sets[name] = sets[name] & values if name in sets else values
        charge(len(sets) // 4)  # each name is compared and sorted
        return Box(sets)

    def hull(self, other: Box) -> Box:
        """The least box around both."""
        return Box({name: self.of(name) | other.of(name) for name in self.sets.keys() & other.sets.keys()})

    def with_set(self, name: str, values: Values) -> Box:
        return Box({**self.sets, name: values}, self.others)

    def without(self, name: str) -> Box:
        """The same box, but the attribute is treated like one that the box does not name."""
        return Box({other: values for other, values in self.sets.items() if other != name}, self.others)

    def minus(self, other: Box) -> Iterator[Box]:
        """What is outside `other`, as disjoint boxes. They are for asking questions, not for filters: their names are
        not in sorted order, and they may hold sets that equal `others`."""
        rest = self
        # Cuts off, attribute by attribute, what lies outside `other` there; what remains goes on to the next attribute.
        for name, its in other.sets.items():
            mine = rest.of(name)
            if outside := mine - its:
                yield rest._cut(name, outside)
            rest = rest._cut(name, mine & its)

    def _cut(self, name: str, values: Values) -> Box:
        part = Box.__new__(Box)
        part.others, part.sets, part._hash = self.others, {**self.sets, name: values}, None
        return part


WHOLE: Final = Box({})
