"""CESQL expressions as trees: how each is evaluated (§3.2 to §3.7) and printed.

`evaluate` is total: it always returns a value, and reports faults beside it. **If an operand of an operator or function
has a fault, the result is the zero value of the operator's return type.** So a fault never becomes a plausible value
further up. AND and OR evaluate their left operand first, and do not evaluate the right one if the left decides.

Operators of the same precedence form a flat chain, evaluated left to right: a chain of ten thousand terms is as shallow
as a chain of two. Printing adds only the parentheses that the precedence needs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from catchment.model.cesql.functions import Function, function_named
from catchment.model.cesql.like import like_test
from catchment.model.cesql.values import (
    ZERO,
    CesqlType,
    CesqlValue,
    ErrorKind,
    Faults,
    cast,
    in_range,
    represented,
    to_boolean,
    to_integer,
    to_string,
    type_of,
)

Attributes = Mapping[str, object]

# Every valid CloudEvent has these attributes, so EXISTS is true for them (§3.4.4).
REQUIRED_ATTRIBUTES: Final = frozenset({"specversion", "id", "source", "type"})

_ABSENT: Final = object()
_LOGIC, _COMPARISON, _SUM, _PRODUCT, _TEST, _UNARY, _PRIMARY = range(7)


class Expression(ABC):
    """A node of the tree. It is immutable and hashable; `str()` gives its canonical text."""

    __slots__ = ()

    @abstractmethod
    def evaluate(self, attributes: Attributes, faults: Faults) -> CesqlValue: ...

    @property
    def precedence(self) -> int:
        return _PRIMARY

    def text_within(self, precedence: int) -> str:
        """Its text as an operand of an operator that takes operands of at least this precedence."""
        return str(self) if self.precedence >= precedence else f"({self})"


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    value: CesqlValue

    def evaluate(self, attributes: Attributes, faults: Faults) -> CesqlValue:
        return self.value

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return quoted(self.value)
        return to_string(self.value).upper()


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    name: str

    def evaluate(self, attributes: Attributes, faults: Faults) -> CesqlValue:
        value = attributes.get(self.name, _ABSENT)
        if value is _ABSENT:
            faults.report(ErrorKind.MISSING_ATTRIBUTE, f"no attribute {self.name}")
            return False
        return represented(value)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    name: str

    def evaluate(self, attributes: Attributes, faults: Faults) -> bool:
        return self.name in REQUIRED_ATTRIBUTES or self.name in attributes

    def __str__(self) -> str:
        return f"EXISTS {self.name}"


@dataclass(frozen=True, slots=True)
class Minus(Expression):
    operand: Expression

    @property
    def precedence(self) -> int:
        return _UNARY

    def evaluate(self, attributes: Attributes, faults: Faults) -> int:
        mark = faults.mark
        value = self.operand.evaluate(attributes, faults)
        if faults.since(mark):
            return 0
        return _bounded(-to_integer(value, faults), faults)

    def __str__(self) -> str:
        return f"-{self.operand.text_within(_UNARY)}"


@dataclass(frozen=True, slots=True)
class Not(Expression):
    operand: Expression

    @property
    def precedence(self) -> int:
        return _TEST if isinstance(self.operand, Like | In) else _UNARY

    def evaluate(self, attributes: Attributes, faults: Faults) -> bool:
        mark = faults.mark
        value = self.operand.evaluate(attributes, faults)
        truth = not faults.since(mark) and to_boolean(value, faults)
        return not faults.since(mark) and not truth

    def __str__(self) -> str:
        if isinstance(self.operand, Like | In):
            return self.operand.text("NOT ")
        return f"NOT {self.operand.text_within(_UNARY)}"


@dataclass(frozen=True, slots=True)
class Like(Expression):
    operand: Expression
    pattern: str

    @property
    def precedence(self) -> int:
        return _TEST

    def evaluate(self, attributes: Attributes, faults: Faults) -> bool:
        mark = faults.mark
        value = self.operand.evaluate(attributes, faults)
        return not faults.since(mark) and like_test(self.pattern)(to_string(value))

    def text(self, negation: str) -> str:
        return f"{self.operand.text_within(_TEST)} {negation}LIKE {quoted(self.pattern)}"

    def __str__(self) -> str:
        return self.text("")


@dataclass(frozen=True, slots=True)
class In(Expression):
    operand: Expression
    elements: tuple[Expression, ...]

    @property
    def precedence(self) -> int:
        return _TEST

    def evaluate(self, attributes: Attributes, faults: Faults) -> bool:
        """Casts the elements to the operand's type and compares, in order, up to the first equal one."""
        mark = faults.mark
        wanted = self.operand.evaluate(attributes, faults)
        if faults.since(mark):
            return False
        is_in = any(self._is_equal(element, wanted, attributes, faults) for element in self.elements)
        return is_in and not faults.since(mark)

    @staticmethod
    def _is_equal(element: Expression, wanted: CesqlValue, attributes: Attributes, faults: Faults) -> bool:
        mark = faults.mark
        value = element.evaluate(attributes, faults)
        return not faults.since(mark) and cast(value, type_of(wanted), faults) == wanted and not faults.since(mark)

    def text(self, negation: str) -> str:
        return f"{self.operand.text_within(_TEST)} {negation}IN ({', '.join(map(str, self.elements))})"

    def __str__(self) -> str:
        return self.text("")


@dataclass(frozen=True, slots=True)
class Call(Expression):
    name: str
    arguments: tuple[Expression, ...]

    @property
    def function(self) -> Function | None:
        return function_named(self.name, len(self.arguments))

    def evaluate(self, attributes: Attributes, faults: Faults) -> CesqlValue:
        function = self.function
        if function is None:
            message = f"no function {self.name} of {len(self.arguments)} arguments"
            faults.report(ErrorKind.MISSING_FUNCTION, message)
            return False
        mark = faults.mark
        values = [argument.evaluate(attributes, faults) for argument in self.arguments]
        if not faults.since(mark):
            values = [_as_parameter(value, function.parameter(i), faults) for i, value in enumerate(values)]
        return ZERO[function.returns] if faults.since(mark) else function.run(faults, *values)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def _as_parameter(value: CesqlValue, wanted: CesqlType | None, faults: Faults) -> CesqlValue:
    return value if wanted is None else cast(value, wanted, faults)


# --- chains of binary operators -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Infix(Expression):
    """A chain of binary operators of the same precedence: `first`, then each operator with its right operand."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]

    @property
    def precedence(self) -> int:
        return OPERATORS[self.rest[0][0]].precedence

    def evaluate(self, attributes: Attributes, faults: Faults) -> CesqlValue:
        mark = faults.mark
        value = self.first.evaluate(attributes, faults)
        for symbol, operand in self.rest:
            operator = OPERATORS[symbol]
            # A left operand with a fault counts as false: AND stops there, OR goes on.
            truth = operator.decides is not None and not faults.since(mark) and to_boolean(value, faults)
            if truth is operator.decides:
                value = truth
            else:
                right = operand.evaluate(attributes, faults)
                value = operator.zero if faults.since(mark) else operator.apply(value, right, faults)
            if faults.since(mark):
                value = operator.zero
        return value

    def __str__(self) -> str:
        above = self.precedence + 1
        parts = [f" {symbol} {operand.text_within(above)}" for symbol, operand in self.rest]
        return self.first.text_within(above) + "".join(parts)


@dataclass(frozen=True, slots=True)
class Operator:
    """A binary operator. `apply` computes it for two values that were evaluated without a fault."""

    precedence: int
    returns: CesqlType
    apply: Callable[[CesqlValue, CesqlValue, Faults], CesqlValue]
    # The value of the left operand that decides the result, so that the right one is not evaluated.
    decides: bool | None = None

    @property
    def zero(self) -> CesqlValue:
        return ZERO[self.returns]


def _bounded(number: int, faults: Faults) -> int:
    """An integer result. A number that needs more than 32 bits becomes 0 with a fault (§3.3)."""
    if in_range(number):
        return number
    faults.report(ErrorKind.MATH, f"{number} is out of 32 bits")
    return 0


def _quotient(x: int, y: int) -> int:
    """The quotient of two integers, rounded towards zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _arithmetic(precedence: int, compute: Callable[[int, int], int]) -> Operator:
    def apply(left: CesqlValue, right: CesqlValue, faults: Faults) -> int:
        mark = faults.mark
        x, y = to_integer(left, faults), to_integer(right, faults)
        if faults.since(mark):
            return 0
        try:
            return _bounded(compute(x, y), faults)
        except ZeroDivisionError:
            faults.report(ErrorKind.MATH, f"{x} divided by zero")
            return 0

    return Operator(precedence, CesqlType.INTEGER, apply)


def _order(compare: Callable[[int, int], bool]) -> Operator:
    def apply(left: CesqlValue, right: CesqlValue, faults: Faults) -> bool:
        return compare(to_integer(left, faults), to_integer(right, faults))

    return Operator(_COMPARISON, CesqlType.BOOLEAN, apply)


def _equality(compare: Callable[[CesqlValue, CesqlValue], bool]) -> Operator:
    def apply(left: CesqlValue, right: CesqlValue, faults: Faults) -> bool:
        return compare(cast(left, type_of(right), faults), right)

    return Operator(_COMPARISON, CesqlType.BOOLEAN, apply)


def _logic(compute: Callable[[bool, bool], bool], decides: bool | None = None) -> Operator:
    def apply(left: CesqlValue, right: CesqlValue, faults: Faults) -> bool:
        return compute(to_boolean(left, faults), to_boolean(right, faults))

    return Operator(_LOGIC, CesqlType.BOOLEAN, apply, decides)


OPERATORS: Final[dict[str, Operator]] = {
    "AND": _logic(lambda x, y: x and y, decides=False),
    "OR": _logic(lambda x, y: x or y, decides=True),
    "XOR": _logic(ne),
    "=": _equality(eq),
    "!=": _equality(ne),
    "<": _order(lt),
    "<=": _order(le),
    ">": _order(gt),
    ">=": _order(ge),
    "+": _arithmetic(_SUM, lambda x, y: x + y),
    "-": _arithmetic(_SUM, lambda x, y: x - y),
    "*": _arithmetic(_PRODUCT, lambda x, y: x * y),
    "/": _arithmetic(_PRODUCT, _quotient),
    "%": _arithmetic(_PRODUCT, lambda x, y: x - y * _quotient(x, y)),
}

LOGIC: Final = frozenset({"AND", "OR", "XOR"})


# --- string literals ----------------------------------------------------------------------------


_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\[\s\S])*'")


def unquoted(literal: str) -> str:
    """The value of a string literal: a backslash before its own quote stands for the quote; any other stays."""
    quote = literal[0]
    return literal[1:-1].replace("\\" + quote, quote)


def quoted(text: str) -> str:
    """A string as a literal: in single quotes if they can write it, else in double quotes. One of the two always can,
    because the string was read from a literal."""
    literal = _in_quotes(text, "'")
    return literal if _LITERAL.fullmatch(literal) else _in_quotes(text, '"')


def _in_quotes(text: str, quote: str) -> str:
    return quote + text.replace(quote, "\\" + quote) + quote
