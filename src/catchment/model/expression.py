"""Filters as people write them: constraints under `and`, `or` and `not`.

Three-valued logic: a constraint on an absent attribute, or on one of a type that does not fit, is unknown. `not` of
what is unknown is unknown; only true matches. De Morgan's laws hold in this logic too. So every expression has a
*positive form*: `and` and `or` over constraints, without `not`, since each operator has an opposite that is true where
it is false. An expression is true if and only if its positive form is, and a positive form needs only two values: a
constraint that is unknown is one that does not hold.

The *canonical form* is the positive form with nested `and`s and `or`s made flat, duplicates left out and parts in the
order of their first attributes and their texts. Its size is linear in the size of what was written: nothing is
multiplied out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model.constraint import TYPES_OF_KIND, Constraint, Kind
from catchment.model.folding import folded
from catchment.model.values import INT_MAX, INT_MIN, Json, Value, type_of

# How deep `not`, `and`, `or` may nest: what works on expressions recurses this deep.
FILTER_DEPTH_MAX: Final = 64
# Constraints of a filter: each takes room in the tables of many brokers.
FILTER_CONSTRAINTS_MAX: Final = 8_192
# JSON may have lists of a single part, which are no level of the expression: a filter is written as an `any` of `all`s.
_JSON_LEVELS_MAX: Final = 2 * FILTER_DEPTH_MAX


# `gc=False`: an expression is a tree, so none of its parts refers back to it.
class And(Struct, frozen=True, gc=False):
    parts: tuple[Expression, ...]


class Or(Struct, frozen=True, gc=False):
    parts: tuple[Expression, ...]


class Not(Struct, frozen=True, gc=False):
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
    return constraint.matches(value)


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


def has_opaque(expression: Expression) -> bool:
    """Whether a constraint of an expression is opaque. Asked of every filter of an index, so it makes no iterators."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if type(part) is Constraint:
            if part.is_opaque:
                return True
        elif type(part) is Not:
            waiting.append(part.inner)
        elif isinstance(part, And | Or):
            waiting.extend(part.parts)
    return False


def names_in(expression: Expression) -> frozenset[str]:
    return frozenset(constraint.name for constraint in leaves(expression))


# --- forms --------------------------------------------------------------------------------------

# Of each operator the one that is true where it is false; both are unknown alike.
_NEGATIONS: Final = {
    "=": "!=",
    "<": ">=",
    ">": "<=",
    "= nocase": "!= nocase",
    "matches": "not matches",
    "cidr": "not cidr",
    **{
        operator: f"not {operator}"
        for base in ("in", "prefix", "suffix", "substring", "glob")
        for operator in (base, f"{base} nocase")
    },
}
_OPPOSITES: Final = {**_NEGATIONS, **{negation: operator for operator, negation in _NEGATIONS.items()}}


def positive(expression: Expression, wanted: bool = True) -> Expression:
    """The positive form of an expression or, if not `wanted`, of its negation: flat, with each constraint once in an
    `and` or `or`, and without truth values within it."""
    match expression:
        case bool():
            return expression is wanted
        case Constraint():
            return expression if wanted else negated(expression)
        case Not(inner):
            return positive(inner, not wanted)
        case And() | Or():
            kind = And if isinstance(expression, And) is wanted else Or
            parts: list[Expression] = []
            if not _gather(expression, wanted, kind, parts):
                return kind is Or
            flat = _without_repeated(parts)
            return flat[0] if len(flat) == 1 else kind(flat) if flat else kind is And


def _gather(expression: And | Or, wanted: bool, kind: type[And] | type[Or], parts: list[Expression]) -> bool:
    """Adds the parts of an expression whose positive form is an `and` or `or` of that kind. False if one of them
    decides alone: a false part of an `and`, a true part of an `or`."""
    for written in expression.parts:
        part, is_wanted = written, wanted
        while isinstance(part, Not):
            part, is_wanted = part.inner, not is_wanted
        if isinstance(part, And | Or) and (isinstance(part, And) is is_wanted) is (kind is And):
            # The same kind again: its parts go into the same list, so that each is copied once, however deep it was.
            if not _gather(part, is_wanted, kind, parts):
                return False
            continue
        its = positive(part, is_wanted)
        if isinstance(its, bool):
            if its is not (kind is And):
                return False
        elif isinstance(its, kind):
            parts.extend(its.parts)
        else:
            parts.append(its)
    return True


def _without_repeated(parts: list[Expression]) -> tuple[Expression, ...]:
    """Each constraint once. Nested parts are not compared: that would hash each constraint at each level."""
    seen: set[Constraint] = set()
    kept: list[Expression] = []
    for part in parts:
        if isinstance(part, Constraint):
            if part in seen:
                continue
            seen.add(part)
        kept.append(part)
    return tuple(kept)


def negated(constraint: Constraint) -> Expression:
    """What is true where a constraint is false."""
    if constraint.operator == "absent":
        return Constraint(constraint.name, "any", None, Kind.ANY)
    if constraint.operator == "any":
        return False  # a present value of a fitting type always satisfies it
    return Constraint(constraint.name, _OPPOSITES[constraint.operator], constraint.value, constraint.kind)


def canonical(expression: Expression) -> tuple[Expression, str]:
    """The canonical form of an expression, and its text."""
    ordered = _ordered(positive(expression))
    return ordered.expression, ordered.text


class _Ordered(NamedTuple):
    """An expression in canonical form, its first name and its text and, of an `and` or `or`, its parts by their
    texts."""

    name: str
    text: str
    expression: Expression
    parts: dict[str, _Ordered]


def _ordered(expression: Expression) -> _Ordered:
    match expression:
        case And(parts) | Or(parts):
            by_text: dict[str, _Ordered] = {}
            for part in map(_ordered, parts):
                # An `or` whose parts turn out to be the same is that part, which may be an `and`, as this may be.
                by_text.update(part.parts if isinstance(part.expression, type(expression)) else {part.text: part})
            return _joined(type(expression), by_text)
        case Constraint():
            leaf = plain(expression)
            return _Ordered(leaf.name, str(leaf), leaf, {})
        case _:
            return _Ordered("", text_of(expression), expression, {})


def _joined(kind: type[And] | type[Or], by_text: dict[str, _Ordered]) -> _Ordered:
    parts = sorted(by_text.values(), key=_name_and_text)
    if len(parts) == 1:
        return parts[0]
    # `and` binds stronger than `or`, so only an `or` within an `and` needs parentheses.
    texts = [f"({part.text})" if kind is And and isinstance(part.expression, Or) else part.text for part in parts]
    text = (" and " if kind is And else " or ").join(texts)
    return _Ordered(parts[0].name, text, kind(tuple(part.expression for part in parts)), by_text)


def _name_and_text(part: _Ordered) -> tuple[str, str]:
    return part.name, part.text


def plain(constraint: Constraint) -> Constraint:
    """The same constraint, with its operand written in one way: whole numbers as ints (as floats, if only floats fit),
    values of a list in order and each once, text that is compared without case folded."""
    value, operator = constraint.value, constraint.operator
    if isinstance(value, tuple):
        members = sorted({_plain_value(constraint, each) for each in value})
        if len(members) == 1:
            return Constraint(constraint.name, _OF_ONE[operator], members[0], constraint.kind)
        return Constraint(constraint.name, operator, tuple(members), constraint.kind)
    if value is None or (same := _plain_value(constraint, value)) is value:
        return constraint
    return Constraint(constraint.name, operator, same, constraint.kind)


# The operators of a list with a single value.
_OF_ONE: Final = {"in": "=", "not in": "!=", "in nocase": "= nocase", "not in nocase": "!= nocase"}


def _plain_value(constraint: Constraint, value: Value) -> Value:
    if isinstance(value, str):
        return folded(value) if constraint.operator.endswith(" nocase") else value
    if constraint.kind is Kind.FLOAT:
        return float(value) if isinstance(value, int) and float(value) == value else value
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    return value


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


def from_json(data: object) -> Expression:
    """From constraints under `{"all": […]}`, `{"any": […]}` and `{"not": …}`."""
    expression = _from_json(data, 0)
    if depth(expression) > FILTER_DEPTH_MAX:
        raise _too_deep()
    return expression


def depth(expression: Expression) -> int:
    """How deep `and`, `or` and `not` nest in its text."""
    match expression:
        case bool():
            return 0
        case Constraint(operator=operator):
            return int(operator == "absent" or operator.startswith("not "))
        case Not(inner):
            return 1 + depth(inner)
        case And(parts) | Or(parts):
            return 1 + max(map(depth, parts))


def _too_deep() -> LimitError:
    return LimitError("FILTER_DEPTH_MAX", FILTER_DEPTH_MAX, "deeper nesting", "flatten the expression")


def _from_json(data: object, level: int) -> Expression:
    if level > _JSON_LEVELS_MAX:
        raise _too_deep()
    if isinstance(data, Mapping) and len(data) == 1:
        ((key, inner),) = data.items()
        if key == "not":
            return Not(_from_json(inner, level + 1))
        if key in ("all", "any") and isinstance(inner, list):
            parts = tuple(_from_json(part, level + 1) for part in inner)
            if len(parts) == 1:
                return parts[0]
            return (And(parts) if key == "all" else Or(parts)) if parts else key == "all"
    if not isinstance(data, Mapping) or "name" not in data:
        raise BadFilterError(f'{shown(data)} is not a filter: write text, a constraint, {{"all": […]}}, {{"any": […]}}')
    return Constraint.from_json(data)
