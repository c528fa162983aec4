"""How many notifications a filter lets through, as a share of all, under a given distribution.

Attributes are taken as independent. For each attribute the distribution says how often it is absent and how its
values are spread: over single values, or evenly between two numbers or times. An attribute that the distribution does
not name gets a rule of thumb by operator (UNSTATED_SHARES). That ranks constraints sensibly, but it is no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import prod
from typing import Final

from catchment.errors import BadFilterError
from catchment.model.box import Box
from catchment.model.constraint import Constraint
from catchment.model.domain import EVERYTHING, Values
from catchment.model.spelling import spelled
from catchment.model.values import Type, Value, checked, float_from_key, key_of, type_of

# Past so many cuts, the share of a union is an upper bound instead of the exact share.
MEASURE_CUTS_MAX: Final = 2_000

# Shares for attributes that the distribution does not name, by operator; other operators count as HALF.
UNSTATED_SHARES: Final = {
    "=": 0.02,
    "prefix": 0.05,
    "suffix": 0.05,
    "substring": 0.05,
    "glob": 0.05,
    "<": 0.4,
    "<=": 0.4,
    ">": 0.4,
    ">=": 0.4,
    "!=": 0.98,
    "any": 0.99,
}
HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Even:
    """Ints, floats or times spread evenly from `low` to `high`, both included."""

    low: Value
    high: Value

    def __post_init__(self) -> None:
        low, high = checked(self.low), checked(self.high)
        if type(low) is not type(high) or isinstance(low, str | bool) or not low < high:  # type: ignore[operator]
            raise BadFilterError(f"an even spread runs between two ints, floats or times, not {low!r} and {high!r}")

    def share(self, values: Values) -> float:
        value_type = type_of(self.low)
        low, high = int(key_of(self.low)), int(key_of(self.high)) + 1
        covered = 0.0
        for start, end in values.keys_of(value_type):
            first, last = max(start, low), high if end is None else min(end, high)
            if first < last:
                covered += self._length(value_type, first, last)
        return covered / self._length(value_type, low, high)

    def _length(self, value_type: Type, first: int, last: int) -> float:
        return float_from_key(last - 1) - float_from_key(first) if value_type is Type.FLOAT else float(last - first)


@dataclass(frozen=True, slots=True)
class Choice:
    """Single values with their weights."""

    weights: Mapping[Value, float]

    def share(self, values: Values) -> float:
        total = sum(self.weights.values())
        return sum(weight for value, weight in self.weights.items() if value in values) / total


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of an attribute: it is absent in a share `absent` of notifications, and else spread as `present`."""

    present: Even | Choice
    absent: float = 0.0

    def share(self, values: Values) -> float:
        return self.absent * values.absent + (1 - self.absent) * self.present.share(values)


@dataclass(frozen=True, slots=True)
class Distribution:
    """How the values of each attribute are spread."""

    spreads: Mapping[str, Spread] = field(default_factory=dict)

    def share_of_values(self, name: str, values: Values) -> float:
        spread = self.spreads.get(name)
        return _unstated(name, values) if spread is None else spread.share(values)

    def share_of_box(self, box: Box) -> float:
        return prod(self.share_of_values(name, values) for name, values in box.sets.items())

    def share_outside(self, box: Box, boxes: Sequence[Box]) -> float:
        """The share of notifications in `box` and in none of `boxes`."""
        share, cuts = 0.0, 0
        # A part of `box`, and the first of `boxes` that was not yet cut out of it.
        open_parts = [(box, 0)]
        while open_parts:
            part, at = open_parts.pop()
            while at < len(boxes) and not boxes[at].overlaps(part):
                at += 1
            if at == len(boxes) or cuts > MEASURE_CUTS_MAX:
                share += self.share_of_box(part)
                continue
            cuts += 1
            open_parts.extend((rest, at + 1) for rest in part.minus(boxes[at]))
        return share

    def share(self, boxes: Sequence[Box]) -> float:
        """The share of notifications in a union of boxes. Each box counts only what is in none of the boxes before."""
        return sum(self.share_outside(box, boxes[:i]) for i, box in enumerate(boxes))


def _unstated(name: str, values: Values) -> float:
    if values == EVERYTHING:
        return 1.0
    alternatives = spelled(name, values)
    return min(0.99, sum(prod(map(_unstated_constraint, alternative)) for alternative in alternatives))


def _unstated_constraint(constraint: Constraint) -> float:
    share = UNSTATED_SHARES.get("=" if constraint.operator == "in" else constraint.operator, HALF)
    return min(HALF, share * constraint.comparisons) if constraint.operator == "in" else share


def even(low: int | float | datetime, high: int | float | datetime, absent: float = 0.0) -> Spread:
    return Spread(Even(low, high), absent)


def choice(weights: Mapping[Value, float], absent: float = 0.0) -> Spread:
    return Spread(Choice(weights), absent)
