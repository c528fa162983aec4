"""Why a filter matched a notification or did not: clause by clause, with what would have held instead.

A filter is explained through its alternatives, the conjunctions it is printed, indexed and routed as;
the one with the fewest failing clauses is the *nearest*. Each failing clause carries an example: a value
that satisfies it together with all other clauses of its alternative on the same attribute. So putting
the examples of one alternative in place (and removing what must be absent) always makes it hold. Only
where no example of a permitted size is found does a clause go without one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final

from catchment.errors import SHOWN_CHARACTERS_MAX, CatchmentError
from catchment.model import globs
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction, Matchable
from catchment.model.constraint import KIND_OF_LITERAL, TYPES_OF_KIND, Constraint, literal, quoted_name
from catchment.model.domain import EVERYTHING, INTEGER_KEYED, Values
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import (
    KEY_BOUNDS,
    Json,
    Type,
    Value,
    checked,
    from_key,
    time_from_key,
    time_key,
    type_of,
    value_to_json,
)

# A list in a sentence: enough to see what kind of values it holds.
LISTED_VALUES_MAX: Final = 8
# Subscriptions repeat their constraints, and so does one filter against many notifications.
_EXAMPLES_KEPT_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Clause:
    """One constraint against the value seen, None where the attribute is absent."""

    constraint: Constraint
    value: Value | None
    held: bool
    # The constraints of the same alternative on the same attribute, this one included.
    _together: tuple[Constraint, ...] = field(repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Why it failed; nothing when it held."""
        if self.held:
            return ""
        if self.constraint.operator == "absent":
            return "present"
        if self.value is None:
            return "absent"
        if type_of(self.value) not in TYPES_OF_KIND[self.constraint.kind]:
            return f"type {type_of(self.value)} does not fit {self.constraint.kind}"
        return f"value {shown_literal(self.value)} {_failing(self.constraint)}"

    @property
    def wanted(self) -> str:
        """What holds, in words."""
        return _wanted(self.constraint)

    @property
    def example(self) -> Value | None:
        """A value that makes this clause and those beside it hold; None where absence does, or none is found."""
        return example_of(self._together)

    def __str__(self) -> str:
        """The attribute, why it failed and, where the reason does not tell, what was wanted."""
        name = quoted_name(self.constraint.name)
        reason = self.reason
        if self.held or reason.startswith("value "):
            return f"{name}: {reason or 'holds'}"
        return f"{name}: {reason}, {'' if self.constraint.operator == 'absent' else 'wanted '}{self.wanted}"

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"clause": str(self.constraint), "constraint": self.constraint.to_json()}
        found |= {"held": self.held, "value": _json_or_none(self.value), "wanted": self.wanted}
        if not self.held:
            found |= {"reason": self.reason, "example": _json_or_none(self.example)}
        return found


@dataclass(frozen=True, slots=True)
class ExplainedAlternative:
    """One conjunction of the filter, clause by clause."""

    conjunction: Conjunction
    clauses: tuple[Clause, ...]

    @property
    def held(self) -> bool:
        return all(clause.held for clause in self.clauses)

    @property
    def failing(self) -> tuple[Clause, ...]:
        return tuple(clause for clause in self.clauses if not clause.held)

    def to_json(self) -> dict[str, Json]:
        clauses: list[Json] = [clause.to_json() for clause in self.clauses]
        return {"alternative": str(self.conjunction), "held": self.held, "clauses": clauses}


@dataclass(frozen=True, slots=True)
class ExplainedExpression:
    """A CESQL expression as one clause: it held, came to something else than true, or met an error."""

    text: str
    value: Value
    faults: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.value is True and not self.faults

    @property
    def reason(self) -> str:
        """Why it failed; nothing when it held."""
        return "" if self.held else "; ".join(self.faults) or f"gives {shown_literal(self.value)}"

    def __str__(self) -> str:
        return f"expression {self.text}: {self.reason or 'holds'}"

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"clause": self.text, "held": self.held}
        return found if self.held else found | {"reason": self.reason}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A filter against one notification. Of CESQL the alternatives are those of the filter it implies: they hold
    wherever the expression does, and it may fail where they hold."""

    alternatives: tuple[ExplainedAlternative, ...]
    expression: ExplainedExpression | None = None

    @property
    def matched(self) -> bool:
        return any(one.held for one in self.alternatives) and (self.expression is None or self.expression.held)

    @property
    def nearest(self) -> ExplainedAlternative | None:
        """The alternative with the fewest failing clauses, then the most that held; None in an empty filter."""
        return min(self.alternatives, key=_distance, default=None)

    def __str__(self) -> str:
        """One line: the alternative that held, or what failed in the nearest."""
        nearest = self.nearest
        if nearest is None:
            return "the filter contradicts itself: nothing can match"
        if nearest.held and self.expression is not None:
            return str(self.expression)
        return "; ".join(map(str, nearest.failing)) or str(nearest.conjunction)

    def to_json(self) -> dict[str, Json]:
        nearest = self.nearest
        found: dict[str, Json] = {
            "matched": self.matched,
            "nearest": None if nearest is None else self.alternatives.index(nearest),
            "alternatives": [one.to_json() for one in self.alternatives],
        }
        return found if self.expression is None else found | {"expression": self.expression.to_json()}


def explain(filter: Filter | Cesql, notification: Matchable) -> Explanation:
    """Agrees with `filter.matches(notification)` always."""
    values = notification.matched if isinstance(notification, Notification) else notification
    if isinstance(filter, Cesql):
        return replace(explain(filter.filter, values), expression=_expression(filter, values))
    return Explanation(
        tuple(
            ExplainedAlternative(conjunction, tuple(_clauses(conjunction, values)))
            for conjunction in filter.alternatives
        )
    )


def _expression(found: Cesql, values: Mapping[str, Value]) -> ExplainedExpression:
    came_to = found.evaluate(values)
    return ExplainedExpression(found.text, came_to.value, tuple(map(str, came_to.errors)))


def _clauses(conjunction: Conjunction, values: Mapping[str, Value]) -> Iterator[Clause]:
    for one in conjunction.constraints:
        value = values.get(one.name)
        together = tuple(other for other in conjunction.constraints if other.name == one.name)
        yield Clause(one, value, one.matches(value), together)


def _distance(found: ExplainedAlternative) -> tuple[int, int]:
    failing = len(found.failing)
    return failing, failing - len(found.clauses)


def _json_or_none(value: Value | None) -> Json:
    return None if value is None else value_to_json(value)


# --- words --------------------------------------------------------------------------------------

# For each operator what holds, and what is said of a value that fails.
_WORDS: Final = {
    "=": ("= {}", "is not {}"),
    "!=": ("anything but {}", "is {}"),
    "<": ("< {}", "is not < {}"),
    "<=": ("<= {}", "is not <= {}"),
    ">": ("> {}", "is not > {}"),
    ">=": (">= {}", "is not >= {}"),
    "in": ("one of {}", "is not one of {}"),
    "prefix": ("starts with {}", "does not start with {}"),
    "suffix": ("ends with {}", "does not end with {}"),
    "substring": ("contains {}", "does not contain {}"),
    "glob": ("is like {}", "is not like {}"),
    "not suffix": ("does not end with {}", "ends with {}"),
    "not substring": ("does not contain {}", "contains {}"),
    "not glob": ("is not like {}", "is like {}"),
    "any": ("any value", "is not any value"),
    "absent": ("must be absent", "is present"),
}


def shown_literal(value: Value) -> str:
    """A value as the filter language writes it, cut short where it is long."""
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS_MAX:
        return literal(value[: SHOWN_CHARACTERS_MAX - 1]) + "…"
    return literal(value)


def _operand(constraint: Constraint) -> str:
    if not isinstance(constraint.value, tuple):
        return "" if constraint.value is None else shown_literal(constraint.value)
    listed = [shown_literal(value) for value in constraint.value[:LISTED_VALUES_MAX]]
    more = len(constraint.value) - len(listed)
    return ", ".join(listed) + (f" and {more:,} more" if more else "")


def _wanted(constraint: Constraint) -> str:
    text = _WORDS[constraint.operator][0].format(_operand(constraint))
    if constraint.operator == "any":
        return text if len(TYPES_OF_KIND[constraint.kind]) == len(Type) else f"any {constraint.kind}"
    return f"{constraint.kind} {text}" if _is_typed(constraint) else text


def _is_typed(constraint: Constraint) -> bool:
    """Whether it names a type where the literal alone would say less."""
    operand = constraint.value[0] if isinstance(constraint.value, tuple) else constraint.value
    return operand is not None and constraint.kind is not KIND_OF_LITERAL[type(operand)]


def _failing(constraint: Constraint) -> str:
    return _WORDS[constraint.operator][1].format(_operand(constraint))


# --- examples -----------------------------------------------------------------------------------


@lru_cache(_EXAMPLES_KEPT_MAX)
def example_of(constraints: tuple[Constraint, ...]) -> Value | None:
    """A plain value that satisfies all of some constraints on one attribute; None if none is found."""
    wanted = EVERYTHING
    for one in constraints:
        wanted &= one.satisfied_by
    return next((found for found in _candidates(constraints, wanted) if found in wanted and _is_value(found)), None)


def _is_value(candidate: Value) -> bool:
    try:
        checked(candidate)
    except CatchmentError:
        return False
    return True


def _candidates(constraints: tuple[Constraint, ...], wanted: Values) -> Iterator[Value]:
    """The plainest first: what the constraints name, values around and between those, and at last the
    least of the set itself."""
    operands = [value for one in constraints for value in _operands(one)]
    yield from _joined_strings(constraints)
    for one in constraints:
        for operand in _operands(one):
            yield from _strings_near(one.operator, operand) if isinstance(operand, str) else _near(operand)
    yield from _between([value for value in operands if isinstance(value, int | float)])
    yield from _SAMPLES
    yield from _least_of(wanted)


def _operands(constraint: Constraint) -> tuple[Value, ...]:
    if isinstance(constraint.value, tuple):
        return constraint.value
    return () if constraint.value is None else (constraint.value,)


_SAMPLES: Final[tuple[Value, ...]] = ("text", "", 1, 1.5, True, False, datetime(2026, 1, 1, tzinfo=UTC))


def _near(operand: Value) -> Iterator[Value]:
    if isinstance(operand, bool):
        yield operand
    elif isinstance(operand, datetime):
        least, greatest = KEY_BOUNDS[Type.TIME]
        keys = (time_key(operand) + step for step in _TIME_STEPS)
        yield from (time_from_key(key) for key in keys if least <= key <= greatest)
    elif isinstance(operand, int | float):
        whole, near = math.floor(operand), float(operand)
        yield from (operand, whole + 1, whole, whole - 1, near, near + 1.0, near - 1.0)


# In microseconds: a second looks plainer in an example than the smallest step.
_TIME_STEPS: Final = (0, 1_000_000, -1_000_000, 1, -1)


def _between(numbers: list[int | float]) -> Iterator[Value]:
    for low, high in pairwise(sorted(numbers)):
        # Halved before it is added: the sum of two large floats may overflow.
        yield low / 2 + high / 2


def _strings_near(operator: str, operand: str) -> Iterator[Value]:
    match operator:
        case ">":
            yield operand + "a"
        case "<" | "<=":
            yield from (operand, operand[:-1])
        case "!=" | "not suffix" | "not substring" | "not glob":
            yield "other"
        case "glob":
            yield globs.glob(operand).least.replace("\0", "x")
        case _:
            yield operand


def _joined_strings(constraints: tuple[Constraint, ...]) -> Iterator[Value]:
    """Prefix, substrings and suffix written one after the other."""
    parts = {
        operator: "".join(str(one.value) for one in constraints if one.operator == operator)
        for operator in ("prefix", "substring", "suffix")
    }
    if any(parts.values()):
        yield "".join(parts.values())


def _least_of(wanted: Values) -> Iterator[Value]:
    if wanted.strings:
        yield wanted.strings.pieces[0].ranges[0][0]
        shortest = wanted.strings.extremes[0]
        if shortest is not None:
            yield shortest
    for kind in INTEGER_KEYED:
        yield from (from_key(kind, low) for low, _ in wanted.keys_of(kind))
