"""What a Sigma rule says, as a tree of comparisons, and the tree as the text of a filter.

Sigma has two truth values: a comparison with a field that an event does not have is false, so its negation is true. Our
language has three: a constraint on an absent attribute is *unknown*, and so is its negation. `with_presence` makes both
agree. It writes `exists(x) and` before a comparison with x that stands under an odd number of negations: if x is
absent, that is false, and the negation true. Elsewhere unknown does the same as false, because only what is true
matches.

Sigma compares texts without regard to case. `LetterCase` says how the filter does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Final

from catchment.model.constraint import literal, quoted_name

Scalar = str | int | float | bool

# As many as the filter language takes (`model.language.FILTER_CONSTRAINTS_MAX`). It also bounds what a rule can make of
# a short text, by aliases in YAML or by naming one selection many times.
COMPARISONS_MAX: Final = 8_192


class Inexpressible(Exception):  # noqa: N818  # a fact about a rule, and no error of a program
    """No filter says exactly what the rule says. `kind` names what is in the way, in a word or two."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class LetterCase(Enum):
    """How filters compare texts without regard to case."""

    NOCASE = "nocase"
    """By operators that ignore case."""
    LOWER = "lower"
    """By literals in lower case, for notifications whose texts are in lower case."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One constraint of the filter. `operator` is that of our language, or `exists`; `in` has several operands."""

    name: str
    operator: str
    operands: tuple[Scalar, ...] = ()
    is_cased: bool = False

    @property
    def size(self) -> int:
        return max(1, len(self.operands))


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Expression, ...]
    size: int


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Expression, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Negation:
    inner: Expression

    @property
    def size(self) -> int:
        return self.inner.size


Expression = Comparison | AllOf | AnyOf | Negation


# --- building -----------------------------------------------------------------------------------


def all_of(parts: Sequence[Expression]) -> Expression:
    return _joined(AllOf, parts)


def any_of(parts: Sequence[Expression]) -> Expression:
    return _joined(AnyOf, parts)


def _joined(kind: type[AllOf] | type[AnyOf], parts: Sequence[Expression]) -> Expression:
    """The parts joined. A part that is joined in the same way is taken apart: `(a and b) and c` is `a and b and c`."""
    size = sum(part.size for part in parts)
    if size > COMPARISONS_MAX:
        raise Inexpressible("size", f"it has more than {COMPARISONS_MAX:,} comparisons")
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    return flat[0] if len(flat) == 1 else kind(tuple(flat), size)


def negation_of(expression: Expression) -> Expression:
    return expression.inner if isinstance(expression, Negation) else Negation(expression)


def exists(name: str) -> Comparison:
    return Comparison(name, "exists")


# --- absence ------------------------------------------------------------------------------------


def with_presence(
    expression: Expression, is_negated: bool = False, present: frozenset[str] = frozenset()
) -> Expression:
    """The same with two truth values in our three. Attributes in `present` need no test, because the expression makes
    no difference where one of them is absent."""
    if is_negated and (name := _only_name(expression)) is not None:
        return expression if name in present else all_of([exists(name), expression])
    match expression:
        case Comparison():
            return expression
        case Negation(inner):
            return negation_of(with_presence(inner, not is_negated, present))
        case AnyOf(parts):
            return any_of([with_presence(part, is_negated, present) for part in parts])
        case AllOf(parts):
            return _all_with_presence(parts, is_negated, present)


def _all_with_presence(parts: tuple[Expression, ...], is_negated: bool, present: frozenset[str]) -> Expression:
    if not is_negated:
        # If a part needs an attribute that is absent, the whole is not true, whatever the other parts are.
        needed = present.union(*(_needed(part) for part in parts))
        return all_of([with_presence(part, is_negated, needed) for part in parts])
    made = []
    for part in parts:
        made.append(with_presence(part, is_negated, present))
        # The part now begins with exists(name), or needs it: where that fails, the whole is false.
        present |= {name} if (name := _only_name(part)) is not None else set()
    return all_of(made)


def _only_name(expression: Expression) -> str | None:
    """The attribute, if the expression is made of comparisons of one attribute and says nothing of its presence."""
    match expression:
        case Comparison(name, operator):
            return None if operator == "exists" else name
        case Negation():
            return None
        case AnyOf(parts) | AllOf(parts):
            names = {_only_name(part) for part in parts}
            return names.pop() if len(names) == 1 else None


def _needed(expression: Expression) -> frozenset[str]:
    """Attributes without which the expression is not true."""
    match expression:
        case Comparison(name):
            return frozenset((name,))
        case Negation():
            return frozenset()
        case AllOf(parts):
            return frozenset().union(*map(_needed, parts))
        case AnyOf(parts):
            return reduce(frozenset.intersection, map(_needed, parts))


# --- text ---------------------------------------------------------------------------------------


def written(expression: Expression, letter_case: LetterCase) -> str:
    """The expression as the filter language writes it. Whatever is joined inside something else has parentheses."""
    match expression:
        case Comparison():
            return _comparison(expression, letter_case)
        case Negation(inner):
            return f"not {_enclosed(inner, letter_case)}"
        case AllOf(parts):
            return " and ".join(_enclosed(part, letter_case) for part in parts)
        case AnyOf(parts):
            return " or ".join(_enclosed(part, letter_case) for part in parts)


def _enclosed(expression: Expression, letter_case: LetterCase) -> str:
    text = written(expression, letter_case)
    return f"({text})" if isinstance(expression, AllOf | AnyOf) else text


def _comparison(comparison: Comparison, letter_case: LetterCase) -> str:
    name = quoted_name(comparison.name)
    if comparison.operator == "exists":
        return f"exists({name})"
    operator, operands = _spelled(comparison, letter_case)
    literals = ", ".join(map(literal, operands))
    return f"{name} {operator} ({literals})" if comparison.operator == "in" else f"{name} {operator} {literals}"


def _spelled(comparison: Comparison, letter_case: LetterCase) -> tuple[str, tuple[Scalar, ...]]:
    """Operator and operands as the filter has them. This function alone decides how case is ignored."""
    operator, operands = comparison.operator, comparison.operands
    if not any(isinstance(operand, str) for operand in operands):
        return operator, operands
    if operator == "cidr" or (operator == "matches" and not (letter_case is LetterCase.LOWER and comparison.is_cased)):
        return operator, operands  # addresses have no case that counts; the flag i is in the regular expression
    if letter_case is LetterCase.NOCASE:
        return operator if comparison.is_cased else f"{operator} nocase", operands
    lowered = tuple(operand.lower() if isinstance(operand, str) else operand for operand in operands)
    if comparison.is_cased and any(
        isinstance(operand, str) and operand.upper() != operand.lower() for operand in operands
    ):
        raise Inexpressible("cased", f"{comparison.name} is compared with case, and --lower is for texts that lost it")
    return operator, lowered
