"""Conjunctions: constraints that must all hold. An alternative of a filter is a conjunction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from catchment.model.box import Box
from catchment.model.constraint import Constraint
from catchment.model.domain import Values, all_of
from catchment.model.notification import Notification
from catchment.model.values import Value

# What a filter can be matched with.
Matchable = Notification | Mapping[str, Value]


def matched_values(notification: Matchable) -> Mapping[str, Value]:
    """What filters see of a notification: its attributes and its envelope."""
    return notification.matched if isinstance(notification, Notification) else notification


class Conjunction(Struct, frozen=True, gc=False):
    """Constraints that must all hold: SIENA's filter."""

    constraints: tuple[Constraint, ...]

    @property
    def box(self) -> Box:
        return box_of(self.constraints)

    @property
    def comparisons(self) -> int:
        return sum(constraint.comparisons for constraint in self.constraints)

    def matches(self, notification: Matchable) -> bool:
        values = matched_values(notification)
        return all(constraint.matches(values.get(constraint.name)) for constraint in self.constraints)

    def __str__(self) -> str:
        return " and ".join(map(str, self.constraints)) or "true"


def box_of(constraints: Iterable[Constraint]) -> Box:
    """The box of a conjunction: for each name, the values that satisfy all constraints on it."""
    sets: dict[str, list[Values]] = {}
    for given in constraints:
        sets.setdefault(given.name, []).append(given.satisfied_by)
    return Box({name: all_of(sets_of_name) for name, sets_of_name in sets.items()})
