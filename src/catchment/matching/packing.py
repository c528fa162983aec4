"""Filters as the index takes them in: conjunctions or expressions, in a form that msgspec writes as msgpack.

A filter that is nothing but constraints joined by `and` is an array of one conjunction. Any other filter is its
positive form (`model/expression.py`): `[AND, part, …]` or `[OR, part, …]` over constraints. Nothing is multiplied out.

An opaque constraint becomes a wider one (`model/opaque.py`): the segment asks the filter itself about what that one
lets through.

A constraint that ignores case becomes one on a *folded attribute*: the name with FOLDED before it, which no attribute
has, and the literals folded. Matching adds the folded value of an attribute where some filter wants it (`folded.py`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeGuard

from catchment.errors import BadFilterError, shown
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import NOCASE, NOT_NOCASE, Constraint, Kind
from catchment.model.expression import And, Expression, Not, Or, negated, positive
from catchment.model.filter import Filter
from catchment.model.folding import folded
from catchment.model.opaque import OPAQUE

AnyFilter = Filter | Conjunction | Cesql
# What the index holds a wider filter for, and asks itself.
Residue = Cesql | Filter
# Kinds of nodes of an expression.
LEAF, AND, OR = 0, 1, 2
FOLDED: Final = "$fold."
_NOCASE: Final = " nocase"
# Constraints with these operators are packed as others.
_CHANGED: Final = frozenset((*NOCASE, *NOT_NOCASE, *OPAQUE))


def is_residue(filter: object) -> TypeGuard[Residue]:
    return isinstance(filter, Cesql) or (isinstance(filter, Filter) and filter.conjunction is None and filter.is_opaque)


def packable(filter: object) -> Any:
    """What msgspec writes for a filter."""
    if type(filter) is Conjunction:
        assert not any(constraint.is_opaque for constraint in filter.constraints), "a Filter carries these"
        return (_conjunction(filter),)
    if isinstance(filter, Cesql):
        filter = filter.filter
    if not isinstance(filter, Filter):
        raise BadFilterError(f"{shown(filter)} is no filter: use Filter, Conjunction or Cesql")
    if filter.conjunction is not None:
        return (_conjunction(filter.conjunction),)
    node = _node(filter.expression, True)
    if node is None:
        return _slowly(positive(filter.expression))
    if type(node) is Constraint:
        return (Conjunction((node,)),)
    if node[0] == AND and all(type(part) is Constraint for part in node[1:]):
        return (Conjunction(tuple(node[1:])),)
    return node


def _slowly(expression: Expression) -> Any:
    """Where there are truth values among the parts: they go first."""
    if isinstance(expression, bool):
        return (Conjunction(()),) if expression else ()
    node = _node(expression, True)
    return (Conjunction((node,)),) if type(node) is Constraint else node


def _conjunction(conjunction: Conjunction) -> Conjunction:
    if any(constraint.operator.endswith(_NOCASE) for constraint in conjunction.constraints):
        return Conjunction(tuple(map(_leaf, conjunction.constraints)))
    return conjunction


def _node(expression: Expression, wanted: bool) -> Any:
    """The positive form of an expression or, if not `wanted`, of its negation, as nested lists; None if there is a
    truth value in it."""
    kind = type(expression)
    if kind is Constraint:
        if not wanted:
            expression = negated(expression)  # type: ignore[arg-type]
        return None if isinstance(expression, bool) else _leaf(expression)  # type: ignore[arg-type]
    if kind is Not:
        return _node(expression.inner, not wanted)  # type: ignore[union-attr]
    if kind is bool:
        return None
    node: list[Any] = [AND if (kind is And) is wanted else OR]
    for part in expression.parts:  # type: ignore[union-attr]
        # Most parts are constraints that stay as they are: they go without a call.
        is_as_written = wanted and type(part) is Constraint and part.operator not in _CHANGED
        child = part if is_as_written else _node(part, wanted)
        if child is None:
            return None
        node.append(child)
    return node


def _leaf(constraint: Constraint) -> Constraint:
    if constraint.is_opaque:
        return constraint.around
    if not constraint.operator.endswith(_NOCASE):
        return constraint
    value = constraint.value
    text = tuple(folded(str(each)) for each in value) if isinstance(value, tuple) else folded(str(value))
    return Constraint(FOLDED + constraint.name, constraint.operator.removesuffix(_NOCASE), text, constraint.kind)


# --- and back -----------------------------------------------------------------------------------


def constraint_of(name: str, operator: str, value: Any, kind: str) -> Constraint:
    """The constraint that was packed."""
    operand = tuple(map(_utc, value)) if isinstance(value, list) else _utc(value)
    if name.startswith(FOLDED):
        return Constraint(name.removeprefix(FOLDED), operator + _NOCASE, operand, Kind(kind))
    return Constraint(name, operator, operand, Kind(kind))


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def unpacked(data: Any) -> Filter:
    """The filter that msgspec has read again."""
    if data and isinstance(data[0], int):
        return Filter.of_expression(_expression(data))
    alternatives = [_joined(And, [_expression(each) for each in part["constraints"]]) for part in data]
    return Filter.of_expression(_joined(Or, alternatives))


def _expression(data: Any) -> Expression:
    if isinstance(data, dict):
        return constraint_of(data["name"], data["operator"], data["value"], data["kind"])
    kind, *parts = data
    return _joined(And if kind == AND else Or, [_expression(part) for part in parts])


def _joined(kind: type[And] | type[Or], parts: list[Expression]) -> Expression:
    if len(parts) == 1:
        return parts[0]
    return kind(tuple(parts)) if parts else kind is And
