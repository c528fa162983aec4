"""Subscription ids of the summaries text (§3.2): the broker (c1), a number there (c2), and the attributes named (c3).

By c3, Algorithm 1 sees whether a notification satisfies all that a subscription asks for: it counts attributes, not
constraints. The text fixes the attributes of the system beforehand. Here a *schema*, the list of attributes, may grow.
So c3 is a bit set of any length, and a bit never changes its meaning.

A schema belongs to one process. Two processes number attributes, and brokers, differently. So a summary travels with
the names, and the receiver numbers anew (`remapped`; between brokers, `stream.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from catchment.errors import LimitError

# Attributes of a schema: each id has a bit for each of them.
SCHEMA_ATTRIBUTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, order=True)
class SubscriptionId:
    """c1, c2 and c3 of the text. Bit i of `attributes` is for attribute i of the schema, counted from 0."""

    broker: int
    number: int
    attributes: int

    @property
    def count(self) -> int:
        """How many attributes the subscription names."""
        return self.attributes.bit_count()

    def remapped(self, schema: Schema, other: Schema, brokers: Mapping[int, int]) -> SubscriptionId:
        """The id of another process, which has the schema `other`, in the numbers of this one."""
        bits = schema.bits(sorted(other.names_of(self.attributes)))
        return SubscriptionId(brokers.get(self.broker, self.broker), self.number, bits)

    def bits(self, sizes: IdSizes) -> int:
        """The three parts as one number, c1 first."""
        return (self.broker << sizes.number | self.number) << sizes.attributes | self.attributes


@dataclass(frozen=True, slots=True)
class IdSizes:
    """How many bits each part of an id takes."""

    broker: int
    number: int
    attributes: int

    @property
    def bytes(self) -> int:
        """How many bytes an id takes: `sid` of the text's table 1."""
        return (self.broker + self.number + self.attributes + 7) // 8


def id_sizes(brokers: int, subscriptions: int, attributes: int) -> IdSizes:
    """The sizes that the text uses: the logarithms of the counts, rounded up, and one bit for each attribute."""
    return IdSizes((brokers - 1).bit_length(), (subscriptions - 1).bit_length(), attributes)


class Schema:
    """The attributes of a system in the order in which they became known."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._places: dict[str, int] = {}
        for name in names:
            self.place(name)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of their places."""
        return tuple(self._places)

    def names_of(self, bits: int) -> frozenset[str]:
        """The attributes of a bit set. A bit for which there is no attribute is an IndexError."""
        names = self.names
        return frozenset(names[place] for place in range(bits.bit_length()) if bits >> place & 1)

    def place(self, name: str) -> int:
        """The place of an attribute. A new attribute gets the next place."""
        if name not in self._places and len(self._places) >= SCHEMA_ATTRIBUTES_MAX:
            raise LimitError("SCHEMA_ATTRIBUTES_MAX", SCHEMA_ATTRIBUTES_MAX, f"{len(self._places) + 1:,} attributes")
        return self._places.setdefault(name, len(self._places))

    def bits(self, names: Iterable[str]) -> int:
        """The bit set of these attributes."""
        bits = 0
        for name in names:
            bits |= 1 << self.place(name)
        return bits
