"""What is known of a CESQL expression before any notification arrives: which parts are constant, their types, and what
they need of each attribute."""

from __future__ import annotations

from typing import Final

from catchment.model import domain
from catchment.model.box import Box
from catchment.model.cesql.conditions import CASTABLE, attribute_values
from catchment.model.cesql.expression import (
    LOGIC,
    OPERATORS,
    REQUIRED_ATTRIBUTES,
    Attribute,
    Call,
    Exists,
    Expression,
    In,
    Infix,
    Like,
    Literal,
    Minus,
    Not,
)
from catchment.model.cesql.values import CesqlType, CesqlValue, Faults, cast, type_of
from catchment.model.domain import Values
from catchment.model.values import NAME_CODEPOINTS_MAX

# The needs of so many attributes are gathered. Further ones would rule out few notifications more.
CESQL_NEEDS_MAX: Final = 64

EQUALITY: Final = ("=", "!=")
_CASTS: Final = ("INT", "BOOL", "STRING")


def attribute_box(name: str, values: Values) -> Box:
    return Box({name: values_of_name(name, values)})


def values_of_name(name: str, values: Values) -> Values:
    """The values, unless the name is too long for an attribute: such an attribute is absent from every notification."""
    if len(name) <= NAME_CODEPOINTS_MAX:
        return values
    return domain.EVERYTHING if values.absent else domain.NOTHING


def is_constant(node: Expression) -> bool:
    """Whether its value depends on no attribute."""
    match node:
        case Attribute():
            return False
        case Exists(name):
            return name in REQUIRED_ATTRIBUTES
        case Minus(operand) | Not(operand) | Like(operand, _):
            return is_constant(operand)
        case In(operand, elements):
            return is_constant(operand) and all(map(is_constant, elements))
        case Call(_, arguments):
            return all(map(is_constant, arguments))
        case Infix(first, rest):
            return is_constant(first) and all(is_constant(operand) for _, operand in rest)
    return True


def constant_value(node: Expression) -> CesqlValue | None:
    """The value of a constant expression; None if its evaluation has a fault."""
    faults = Faults()
    value = node.evaluate({}, faults)
    return None if faults.reported else value


def static_type(node: Expression) -> CesqlType | None:
    """The type of its value; None where it depends on the notification."""
    match node:
        case Literal(value):
            return type_of(value)
        case Attribute():
            return None
        case Minus():
            return CesqlType.INTEGER
        case Call():
            return CesqlType.BOOLEAN if node.function is None else node.function.returns
        case Infix():
            return OPERATORS[node.rest[0][0]].returns
    return CesqlType.BOOLEAN


def needs(node: Expression, wanted: CesqlType | None) -> Box | None:
    """The notifications for which it can be evaluated, and cast to a type, without a fault; None if there are none. The
    box may be too large."""
    sets: dict[str, Values] = {}
    return Box(sets) if _gather(node, wanted, sets) else None


def _gather(node: Expression, wanted: CesqlType | None, sets: dict[str, Values]) -> bool:
    """Adds what a node needs of each attribute to `sets`. False if evaluating the node always has a fault."""
    if is_constant(node):
        return _is_castable(constant_value(node), wanted)
    if isinstance(node, Attribute):
        if node.name in sets or len(sets) < CESQL_NEEDS_MAX:
            values = values_of_name(node.name, attribute_values(CASTABLE[wanted], None))
            sets[node.name] = sets[node.name] & values if node.name in sets else values
        return True
    if isinstance(node, Call) and node.function is None:
        return False
    return all(_gather(operand, cast_to, sets) for operand, cast_to in _certain_operands(node))


def _is_castable(value: CesqlValue | None, wanted: CesqlType | None) -> bool:
    if value is None:
        return False
    faults = Faults()
    if wanted is not None:
        cast(value, wanted, faults)
    return not faults.reported


def _certain_operands(node: Expression) -> list[tuple[Expression, CesqlType | None]]:
    """The operands that are evaluated for every notification, each with the type it is cast to."""
    match node:
        case Minus(operand):
            return [(operand, CesqlType.INTEGER)]
        case Not(operand):
            return [(operand, CesqlType.BOOLEAN)]
        case Like(operand, _):
            return [(operand, CesqlType.STRING)]
        case In(operand, elements):
            return [(operand, None), (elements[0], None)]
        case Call(_, arguments) if node.function is not None:
            cast_to = node.function.returns if node.name in _CASTS else None
            return [(argument, node.function.parameter(i) or cast_to) for i, argument in enumerate(arguments)]
        case Infix():
            return _certain_operands_of_chain(node)
    return []


def _certain_operands_of_chain(chain: Infix) -> list[tuple[Expression, CesqlType | None]]:
    symbol, second = chain.rest[0]
    if symbol in LOGIC:
        return [(chain.first, CesqlType.BOOLEAN)]
    wanted = static_type(second) if symbol in EQUALITY else CesqlType.INTEGER
    others: list[tuple[Expression, CesqlType | None]] = [
        (operand, None if symbol in EQUALITY else CesqlType.INTEGER) for symbol, operand in chain.rest
    ]
    return [(chain.first, wanted), *others]
