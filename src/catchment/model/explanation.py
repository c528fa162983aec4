"""Why a filter matched a notification or did not, clause by clause, with values that would have matched.

A filter is explained as it was written. If it is an `or` of conjunctions, these are its alternatives, without those
that contradict themselves. Otherwise its one alternative is the conjunction that is nearest to holding: of each `or`
the part with the fewest failing clauses. The alternative with the fewest failing clauses is the *nearest*. Each failing
clause has an example: a value that satisfies it and all other clauses of its alternative on the same attribute. So if a
notification gets the examples of an alternative (and loses the attributes that must be absent), the alternative always
holds. A clause goes without an example where no example of a permitted size is known, and where what is nearest to
holding contradicts itself.
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
from catchment.model.expression import And, Expression, Or, positive
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

# So many values of an `in` are listed in a sentence: enough to see what kind of values they are.
LISTED_VALUES_MAX: Final = 8
# So many examples are cached: subscriptions share constraints, and a filter is explained for many notifications.
_EXAMPLES_KEPT_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Clause:
    """A constraint, and the value that the notification has for it: None where the attribute is absent."""

    constraint: Constraint
    value: Value | None
    held: bool
    # The constraints of the same alternative on the same attribute, this one included.
    _same_name: tuple[Constraint, ...] = field(repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Why the clause failed; empty if it held."""
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
        """What the clause asks for, in words."""
        return _wanted(self.constraint)

    @property
    def example(self) -> Value | None:
        """A value that satisfies this clause and the others of its alternative on the same attribute. None where the
        attribute must be absent, or no such value is known."""
        return example_of(self._same_name)

    def __str__(self) -> str:
        """The attribute, why the clause failed and, unless the reason says it, what it asks for."""
        name = quoted_name(self.constraint.name)
        reason = self.reason
        if self.held or reason.startswith("value "):
            return f"{name}: {reason or 'holds'}"
        return f"{name}: {reason}, {'' if self.constraint.operator == 'absent' else 'wanted '}{self.wanted}"

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"clause": str(self.constraint), "constraint": self.constraint.to_json()}
        data |= {"held": self.held, "value": _json_or_none(self.value), "wanted": self.wanted}
        if not self.held:
            data |= {"reason": self.reason, "example": _json_or_none(self.example)}
        return data


@dataclass(frozen=True, slots=True)
class ExplainedAlternative:
    """An alternative of the filter, clause by clause."""

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
    """A CESQL expression as a single clause: it was true, had another value, or met errors."""

    text: str
    value: Value
    faults: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.value is True and not self.faults

    @property
    def reason(self) -> str:
        """Why the expression failed; empty if it held."""
        return "" if self.held else "; ".join(self.faults) or f"gives {shown_literal(self.value)}"

    def __str__(self) -> str:
        return f"expression {self.text}: {self.reason or 'holds'}"

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"clause": self.text, "held": self.held}
        return data if self.held else data | {"reason": self.reason}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a filter matched a notification or did not. For CESQL the alternatives are those of the filter that the
    expression implies: they hold wherever the expression does, but the expression may fail where they hold."""

    alternatives: tuple[ExplainedAlternative, ...]
    expression: ExplainedExpression | None = None

    @property
    def matched(self) -> bool:
        is_implied_matched = any(alternative.held for alternative in self.alternatives)
        return is_implied_matched and (self.expression is None or self.expression.held)

    @property
    def nearest(self) -> ExplainedAlternative | None:
        """The alternative with the fewest failing clauses; of several, the one with the most clauses that held. None
        if the filter has no alternatives."""
        return min(self.alternatives, key=_distance, default=None)

    def __str__(self) -> str:
        """A single line: the alternative that held, or what failed in the nearest."""
        nearest = self.nearest
        if nearest is None:
            return "the filter contradicts itself: nothing can match"
        if nearest.held and self.expression is not None:
            return str(self.expression)
        return "; ".join(map(str, nearest.failing)) or str(nearest.conjunction)

    def to_json(self) -> dict[str, Json]:
        nearest = self.nearest
        data: dict[str, Json] = {
            "matched": self.matched,
            "nearest": None if nearest is None else self.alternatives.index(nearest),
            "alternatives": [alternative.to_json() for alternative in self.alternatives],
        }
        return data if self.expression is None else data | {"expression": self.expression.to_json()}


def explain(filter: Filter | Cesql, notification: Matchable) -> Explanation:
    """Why the filter matches the notification or does not. `matched` always equals `filter.matches(notification)`."""
    values = notification.matched if isinstance(notification, Notification) else notification
    if isinstance(filter, Cesql):
        return replace(explain(filter.filter, values), expression=_expression(filter, values))
    alternatives = [] if filter.is_empty else _alternatives(positive(filter.expression), values)
    return Explanation(tuple(ExplainedAlternative(each, tuple(_clauses(each, values))) for each in alternatives))


def _alternatives(expression: Expression, values: Mapping[str, Value]) -> list[Conjunction]:
    """The conjunctions of a positive form that is an `or` of such, else the nearest one."""
    parts = expression.parts if isinstance(expression, Or) else (expression,)
    written = [_conjunction(part) for part in parts]
    if None in written:
        return [Conjunction(tuple(dict.fromkeys(_nearest(expression, values, ()))))]
    return [each for each in written if each is not None and not Filter.of(*each.constraints).is_empty]


def _conjunction(expression: Expression) -> Conjunction | None:
    if expression is True:
        return Conjunction(())
    parts = expression.parts if isinstance(expression, And) else (expression,)
    constraints = tuple(part for part in parts if isinstance(part, Constraint))
    return Conjunction(constraints) if len(constraints) == len(parts) else None


def _nearest(
    expression: Expression, values: Mapping[str, Value], fixed: tuple[Constraint, ...]
) -> tuple[Constraint, ...]:
    """The clauses of a positive form that would have to hold: of each `or` the part with the fewest that fail, if it
    does not contradict the clauses that are fixed already."""
    match expression:
        case Constraint():
            return (expression,)
        case And(parts):
            clauses = tuple(part for part in parts if isinstance(part, Constraint))
            for part in parts:
                if not isinstance(part, Constraint):
                    clauses += _nearest(part, values, fixed + clauses)
            return clauses
        case Or(parts):
            choices = [_nearest(part, values, fixed) for part in parts]
            choices.sort(key=lambda clauses: sum(not each.matches(values.get(each.name)) for each in clauses))
            return next((clauses for clauses in choices if not _contradict(fixed, clauses)), choices[0])
        case _:
            raise AssertionError("a positive form has neither `not` nor truth values within it")


def _contradict(fixed: tuple[Constraint, ...], clauses: tuple[Constraint, ...]) -> bool:
    """Whether some attribute cannot meet both."""
    names = {clause.name for clause in fixed} & {clause.name for clause in clauses}
    return any(Filter.of(*(each for each in fixed + clauses if each.name == name)).is_empty for name in names)


def _expression(expression: Cesql, values: Mapping[str, Value]) -> ExplainedExpression:
    result = expression.evaluate(values)
    return ExplainedExpression(expression.text, result.value, tuple(map(str, result.errors)))


def _clauses(conjunction: Conjunction, values: Mapping[str, Value]) -> Iterator[Clause]:
    for constraint in conjunction.constraints:
        value = values.get(constraint.name)
        same_name = tuple(other for other in conjunction.constraints if other.name == constraint.name)
        yield Clause(constraint, value, constraint.matches(value), same_name)


def _distance(alternative: ExplainedAlternative) -> tuple[int, int]:
    failing = len(alternative.failing)
    return failing, failing - len(alternative.clauses)  # the second is minus the number of clauses that held


def _json_or_none(value: Value | None) -> Json:
    return None if value is None else value_to_json(value)


# --- words --------------------------------------------------------------------------------------

# For each operator: what it asks for, and what is said about a value that fails it.
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
    "not in": ("none of {}", "is one of {}"),
    "not prefix": ("does not start with {}", "starts with {}"),
    "not suffix": ("does not end with {}", "ends with {}"),
    "not substring": ("does not contain {}", "contains {}"),
    "not glob": ("is not like {}", "is like {}"),
    "matches": ("matches {}", "does not match {}"),
    "cidr": ("an address in {}", "is no address in {}"),
    "not matches": ("does not match {}", "matches {}"),
    "not cidr": ("no address in {}", "is an address in {}"),
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
    text = _words(constraint)[0].format(_operand(constraint))
    if constraint.operator == "any":
        return text if len(TYPES_OF_KIND[constraint.kind]) == len(Type) else f"any {constraint.kind}"
    return f"{constraint.kind} {text}" if _is_typed(constraint) else text


def _is_typed(constraint: Constraint) -> bool:
    """Whether it names a type that its literal alone does not imply."""
    operand = constraint.value[0] if isinstance(constraint.value, tuple) else constraint.value
    return operand is not None and constraint.kind is not KIND_OF_LITERAL[type(operand)]


def _failing(constraint: Constraint) -> str:
    return _words(constraint)[1].format(_operand(constraint))


def _words(constraint: Constraint) -> tuple[str, str]:
    operator = constraint.operator
    if not operator.endswith(" nocase"):
        return _WORDS[operator]
    wanted, failing = _WORDS[operator.removesuffix(" nocase")]
    return f"{wanted}, whatever the case", f"{failing}, whatever the case"


# --- examples -----------------------------------------------------------------------------------


@lru_cache(_EXAMPLES_KEPT_MAX)
def example_of(constraints: tuple[Constraint, ...]) -> Value | None:
    """A simple value that satisfies all these constraints, which are on the same attribute; None if none is known."""
    wanted = EVERYTHING
    for constraint in constraints:
        wanted &= constraint.satisfied_by
    candidates = _candidates(constraints, wanted)
    opaque = [constraint for constraint in constraints if constraint.is_opaque]
    fitting = (candidate for candidate in candidates if candidate in wanted and _is_value(candidate))
    return next((candidate for candidate in fitting if all(each.matches(candidate) for each in opaque)), None)


def _is_value(candidate: Value) -> bool:
    try:
        checked(candidate)
    except CatchmentError:
        return False
    return True


def _candidates(constraints: tuple[Constraint, ...], wanted: Values) -> Iterator[Value]:
    """Values that may satisfy the constraints, the simplest first: their operands, values around and between the
    operands, some samples, and at last the least members of the set itself."""
    operands = [value for constraint in constraints for value in _operands(constraint)]
    yield from _joined_strings(constraints)
    for constraint in constraints:
        for operand in _operands(constraint):
            yield from _strings_near(constraint.operator, operand) if isinstance(operand, str) else _near(operand)
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


# In microseconds. A second comes before the smallest step, because it looks simpler in an example.
_TIME_STEPS: Final = (0, 1_000_000, -1_000_000, 1, -1)


def _between(numbers: list[int | float]) -> Iterator[Value]:
    for low, high in pairwise(sorted(numbers)):
        # Halved before they are added: the sum of two large floats may overflow.
        yield low / 2 + high / 2


def _strings_near(operator: str, operand: str) -> Iterator[Value]:
    match operator:
        case ">":
            yield operand + "a"
        case "<" | "<=":
            yield from (operand, operand[:-1])
        case "!=" | "!= nocase" | _ if operator.startswith(("not ", "!=")):
            yield "other"
        case "glob" | "glob nocase":
            yield globs.glob(operand).least.replace("\0", "x")
        case "cidr":
            yield operand.partition("/")[0]
        case _:
            yield operand


def _joined_strings(constraints: tuple[Constraint, ...]) -> Iterator[Value]:
    """Prefix, substrings and suffix written one after the other."""
    parts = {
        operator: "".join(
            str(constraint.value)
            for constraint in constraints
            if constraint.operator.removesuffix(" nocase") == operator
        )
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
    for value_type in INTEGER_KEYED:
        yield from (from_key(value_type, low) for low, _ in wanted.keys_of(value_type))
