"""Advertisements: what a publisher may publish (SIENA §3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model import covering, language
from catchment.model.box import Box
from catchment.model.budget import BudgetSpent, budget
from catchment.model.conjunction import Matchable, matched_values
from catchment.model.constraint import Constraint, as_constraint
from catchment.model.domain import ABSENT, NOTHING, Values
from catchment.model.expression import FILTER_CONSTRAINTS_MAX
from catchment.model.filter import RELATION_STEPS_MAX, Filter
from catchment.model.values import Json


class Advertisement:
    """What a publisher may publish: every attribute must satisfy some constraint of the advertisement (SIENA §3.5)."""

    __slots__ = ("box", "constraints")

    constraints: tuple[Constraint, ...]

    def __init__(self, text: str) -> None:
        self._set(language.parse_advertisement(text))

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Advertisement:
        advertisement = cls.__new__(cls)
        advertisement._set([as_constraint(given) for given in constraints])
        return advertisement

    def _set(self, constraints: Sequence[Constraint]) -> None:
        if len(constraints) > FILTER_CONSTRAINTS_MAX:
            raise LimitError("FILTER_CONSTRAINTS_MAX", FILTER_CONSTRAINTS_MAX, f"{len(constraints):,}")
        for given in constraints:
            if given.operator == "absent":
                raise BadFilterError(f"an advertisement says what may appear: leave out {given}")
            if given.is_opaque:
                raise BadFilterError(f"an advertisement is compared as a set of values: {given.operator} is none")
        self.constraints = _irredundant(constraints)
        # Of the constraints that are kept: so whoever reads its text gets the same box.
        self.box = _advertised(self.constraints)

    def matches(self, notification: Matchable) -> bool:
        values = matched_values(notification)
        return self.box.contains(values) and all(name in self.box.sets for name in values if not name.startswith("$"))

    def covers(self, other: Advertisement) -> bool:
        return self.box.covers(other.box)

    def overlaps(self, other: Advertisement | Filter) -> bool:
        """Whether some notification could satisfy both."""
        boxes = other.routed.boxes if isinstance(other, Filter) else (other.box,)
        try:
            with budget(RELATION_STEPS_MAX):
                return covering.overlaps((self.box,), boxes)
        except BudgetSpent:
            return True

    def __str__(self) -> str:
        return ", ".join(map(str, self.constraints))

    def __repr__(self) -> str:
        return f"Advertisement({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advertisement) and self.box == other.box

    def __hash__(self) -> int:
        return hash(self.box)

    def __reduce__(self) -> tuple[object, ...]:
        return Advertisement.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        return {"advertised": [constraint.to_json() for constraint in self.constraints]}

    @classmethod
    def from_json(cls, data: object) -> Advertisement:
        """From `{"advertised": [constraint, …]}`, or from text."""
        if isinstance(data, str):
            return cls(data)
        listed = data.get("advertised") if isinstance(data, Mapping) and set(data) == {"advertised"} else None
        if not isinstance(listed, list):
            raise BadFilterError(
                f'{shown(data)} is not an advertisement: write text or {{"advertised": [constraint, …]}}'
            )
        return cls.of(*map(Constraint.from_json, listed))


def _advertised(constraints: Iterable[Constraint]) -> Box:
    """The box of an advertisement: constraints on the same name are alternatives, and every name may be absent."""
    sets: dict[str, Values] = {}
    for given in constraints:
        sets[given.name] = sets.get(given.name, ABSENT) | given.satisfied_by
    return Box(sets, ABSENT)


def _irredundant(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Leaves out each constraint whose values the other constraints on the same name allow too. Those with the most
    comparisons go first."""
    kept = sorted(set(constraints), key=str)
    for candidate in sorted(kept, key=lambda given: (-given.comparisons, str(given))):
        others = NOTHING
        for other in kept:
            if other.name == candidate.name and other is not candidate:
                others |= other.satisfied_by
        if others and candidate.satisfied_by.is_subset(others):
            kept.remove(candidate)
    return tuple(kept)
