"""Advertisements: what a publisher may publish (SIENA §3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model import covering, language
from catchment.model.box import Box
from catchment.model.budget import BudgetSpent, budget, charge
from catchment.model.conjunction import Matchable, matched_values
from catchment.model.constraint import Constraint, as_constraint
from catchment.model.domain import ABSENT, Values, any_of, collected
from catchment.model.expression import FILTER_CONSTRAINTS_MAX
from catchment.model.filter import RELATION_STEPS_MAX, Filter, are_equal
from catchment.model.values import Json

# Steps of about a microsecond that it may take to leave out superfluous constraints, and to join the others. Past it,
# an advertisement stays as it was written: relations to it may be answered with the sound answer.
ADVERTISEMENT_STEPS_MAX: Final = 4_000


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
        """Whether a publisher that advertised `other` may publish nothing that this one does not allow. Past the budget
        of a relation: no."""
        try:
            with budget(RELATION_STEPS_MAX):
                return self.box.covers(other.box)
        except BudgetSpent:
            return False

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
        return isinstance(other, Advertisement) and are_equal((self.box,), (other.box,))

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
    sets_by_name = {name: (ABSENT, *sets) for name, sets in _sets_by_name(constraints).items()}
    try:
        with budget(ADVERTISEMENT_STEPS_MAX):
            return Box({name: any_of(sets) for name, sets in sets_by_name.items()}, ABSENT)
    except BudgetSpent:
        return Box({name: collected(sets) for name, sets in sets_by_name.items()}, ABSENT)


def _sets_by_name(constraints: Iterable[Constraint]) -> dict[str, list[Values]]:
    sets_by_name: dict[str, list[Values]] = {}
    for given in constraints:
        sets_by_name.setdefault(given.name, []).append(given.satisfied_by)
    return sets_by_name


def _irredundant(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Leaves out each constraint whose values the other constraints on the same name allow too. Those with the most
    comparisons go first. Where that takes more than ADVERTISEMENT_STEPS_MAX, all are kept."""
    distinct = sorted(set(constraints), key=str)
    by_name: dict[str, list[Constraint]] = {}
    for constraint in distinct:
        by_name.setdefault(constraint.name, []).append(constraint)
    try:
        with budget(ADVERTISEMENT_STEPS_MAX):
            redundant = {each for group in by_name.values() for each in _redundant(group)}
    except BudgetSpent:
        return tuple(distinct)
    return tuple(each for each in distinct if each not in redundant)


def _redundant(group: list[Constraint]) -> list[Constraint]:
    """Of constraints on one name, those that the others make superfluous."""
    left = list(group)
    charge(len(group))
    for candidate in sorted(group, key=lambda given: (-given.comparisons, str(given))):
        others = [other.satisfied_by for other in left if other is not candidate]
        if others and candidate.satisfied_by.is_subset(any_of(others)):
            left.remove(candidate)
    return [constraint for constraint in group if constraint not in left]
