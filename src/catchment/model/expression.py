"""Filters as people write them: constraints under `and`, `or` and `not`.

Three-valued logic: a constraint on an absent attribute, or on one of a type that does not fit, is unknown. `not` of
what is unknown is unknown; only true matches. De Morgan's laws hold in this logic too. So every expression has a
*positive form*: `and` and `or` over constraints, without `not`, since each operator has an opposite that is true where
it is false. An expression is true if and only if its positive form is, and a positive form needs only two values: a
constraint that is unknown is one that does not hold.

The *canonical form* is the positive form with nested `and`s and `or`s made flat, duplicates left out and parts in the
order of their texts. Its size is linear in the size of what was written: nothing is multiplied out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model.constraint import TYPES_OF_KIND, Constraint, Kind
from catchment.model.values import Json, Value, type_of

# How deep `not`, `and`, `or` may nest: what works on expressions recurses this deep.
FILTER_DEPTH_MAX: Final = 64
# Constraints of a filter: each takes room in the tables of many brokers.
FILTER_CONSTRAINTS_MAX: Final = 8_192


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    inner: Expression


Expression = bool | Constraint | And | Or | Not


# --- meaning ------------------------------------------------------------------------------------


def is_value(expression: Expression, values: Mapping[str, Value], wanted: bool) -> bool:
    """Whether an expression is true (or false, if that is wanted) for attributes of these values."""
    match expression:
        case bool():
            return expression is wanted
        case Constraint():
            return truth(expression, values.get(expression.name)) is wanted
        case Not(inner):
            return is_value(inner, values, not wanted)
        case And(parts) | Or(parts):
            # A conjunction is true if all its parts are, false if one of them is; a disjunction the other way round.
            if isinstance(expression, And) is wanted:
                return all(is_value(part, values, wanted) for part in parts)
            return any(is_value(part, values, wanted) for part in parts)


def truth(constraint: Constraint, value: Value | None) -> bool | None:
    """Whether a constraint holds for a value (None: absent); None if that is unknown."""
    if constraint.operator == "absent":
        return value is None
    if value is None or type_of(value) not in TYPES_OF_KIND[constraint.kind]:
        return None
    return value in constraint.satisfied_by


def leaves(expression: Expression) -> Iterator[Constraint]:
    """All constraints of an expression, from left to right."""
    match expression:
        case bool():
            return
        case Constraint():
            yield expression
        case Not(inner):
            yield from leaves(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)


def names_in(expression: Expression) -> frozenset[str]:
    return frozenset(constraint.name for constraint in leaves(expression))


# --- forms --------------------------------------------------------------------------------------

# Of each operator the one that is true where it is false; both are unknown alike.
_NEGATIONS: Final = {
    "=": "!=",
    "<": ">=",
    ">": "<=",
    "= nocase": "!= nocase",
    **{
        operator: f"not {operator}"
        for base in ("in", "prefix", "suffix", "substring", "glob")
        for operator in (base, f"{base} nocase")
    },
}
_OPPOSITES: Final = {**_NEGATIONS, **{negation: operator for operator, negation in _NEGATIONS.items()}}


def positive(expression: Expression, wanted: bool = True) -> Expression:
    """The positive form of an expression or, if not `wanted`, of its negation."""
    match expression:
        case bool():
            return expression is wanted
        case Constraint():
            return expression if wanted else negated(expression)
        case Not(inner):
            return positive(inner, not wanted)
        case And(parts) | Or(parts):
            kind = And if isinstance(expression, And) is wanted else Or
            return _joined(kind, [positive(part, wanted) for part in parts])


def negated(constraint: Constraint) -> Expression:
    """What is true where a constraint is false."""
    if constraint.operator == "absent":
        return Constraint(constraint.name, "any", None, Kind.ANY)
    if constraint.operator == "any":
        return False  # a present value of a fitting type always satisfies it
    return Constraint(constraint.name, _OPPOSITES[constraint.operator], constraint.value, constraint.kind)


def _joined(kind: type[And] | type[Or], parts: list[Expression]) -> Expression:
    """Parts under one `and` or `or`: flat, each once, without truth values."""
    neutral = kind is And
    flat: dict[Expression, None] = {}
    for part in parts:
        if isinstance(part, bool):
            if part is not neutral:
                return part
        elif isinstance(part, kind):
            flat.update(dict.fromkeys(part.parts))
        else:
            flat[part] = None
    if len(flat) == 1:
        return next(iter(flat))
    return kind(tuple(flat)) if flat else neutral


def canonical(expression: Expression) -> tuple[Expression, str]:
    """The canonical form of an expression, and its text."""
    return _ordered(positive(expression))


def _ordered(expression: Expression) -> tuple[Expression, str]:
    match expression:
        case And(parts) | Or(parts):
            ordered = sorted((_ordered(part) for part in parts), key=lambda pair: pair[1])
            word = " and " if isinstance(expression, And) else " or "
            # `and` binds stronger than `or`, so only an `or` within an `and` needs parentheses.
            texts = [
                f"({text})" if isinstance(expression, And) and isinstance(part, Or) else text for part, text in ordered
            ]
            return type(expression)(tuple(part for part, _ in ordered)), word.join(texts)
        case _:
            return expression, text_of(expression)


def text_of(expression: Expression) -> str:
    """An expression as the filter language writes it, in the order in which it was written."""
    match expression:
        case bool():
            return "true" if expression else "false"
        case Constraint():
            return str(expression)
        case Not(inner):
            is_bare = isinstance(inner, bool) or (isinstance(inner, Constraint) and not str(inner).startswith("not "))
            return f"not {text_of(inner)}" if is_bare else f"not ({text_of(inner)})"
        case And(parts):
            return " and ".join(f"({text_of(part)})" if isinstance(part, Or) else text_of(part) for part in parts)
        case Or(parts):
            return " or ".join(map(text_of, parts))


# --- JSON ---------------------------------------------------------------------------------------


def to_json(expression: Expression) -> Json:
    match expression:
        case bool():
            return {"all": []} if expression else {"any": []}
        case Constraint():
            return dict(expression.to_json())
        case Not(inner):
            return {"not": to_json(inner)}
        case And(parts):
            return {"all": [to_json(part) for part in parts]}
        case Or(parts):
            return {"any": [to_json(part) for part in parts]}


def from_json(data: object, depth: int = 0) -> Expression:
    """From constraints under `{"all": […]}`, `{"any": […]}` and `{"not": …}`."""
    if depth > FILTER_DEPTH_MAX:
        raise LimitError("FILTER_DEPTH_MAX", FILTER_DEPTH_MAX, "deeper nesting", "flatten the expression")
    if isinstance(data, Mapping) and len(data) == 1:
        ((key, inner),) = data.items()
        if key == "not":
            return Not(from_json(inner, depth + 1))
        if key in ("all", "any") and isinstance(inner, list):
            parts = tuple(from_json(part, depth + 1) for part in inner)
            if len(parts) == 1:
                return parts[0]
            return (And(parts) if key == "all" else Or(parts)) if parts else key == "all"
    if not isinstance(data, Mapping) or "name" not in data:
        raise BadFilterError(f'{shown(data)} is not a filter: write text, a constraint, {{"all": […]}}, {{"any": […]}}')
    return Constraint.from_json(data)
