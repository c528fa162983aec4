"""CESQL's three types, its casts, and the faults that evaluation reports (§3.1, §3.3, §3.7).

Every cast is total: it returns a value and, where the text forces it, reports a `cast` fault to the
`Faults` it is given. What an attribute of a notification is to an expression (§3.2) is decided here
too: strings, booleans and 32-bit integers are themselves; wider integers, floats and times are no CESQL
types and are represented as strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from catchment.errors import shown
from catchment.model.values import checked

INTEGER_MIN: Final = -(2**31)
INTEGER_MAX: Final = 2**31 - 1
# Sign and leading zeros aside, no 32-bit integer has more digits: longer texts are not even converted.
INTEGER_DIGITS_MAX: Final = 10

CesqlValue = str | int | bool


class CesqlType(StrEnum):
    """The primitive types."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"


ZERO: Final[dict[CesqlType, CesqlValue]] = {
    CesqlType.STRING: "",
    CesqlType.INTEGER: 0,
    CesqlType.BOOLEAN: False,
}


class ErrorKind(StrEnum):
    """The kinds of error that a CESQL engine distinguishes."""

    PARSE = "parse"
    MATH = "math"
    CAST = "cast"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    MISSING_ATTRIBUTE = "missingAttribute"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class CesqlFault:
    """One error of one evaluation."""

    kind: ErrorKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Faults:
    """The faults of one evaluation, in the order in which they happened."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[CesqlFault] = []

    def report(self, kind: ErrorKind, message: str) -> None:
        self.found.append(CesqlFault(kind, message))

    @property
    def mark(self) -> int:
        """A moment of the evaluation, to ask about later."""
        return len(self.found)

    def since(self, mark: int) -> bool:
        """Whether anything went wrong since that moment."""
        return len(self.found) > mark


def type_of(value: CesqlValue) -> CesqlType:
    if isinstance(value, str):
        return CesqlType.STRING
    return CesqlType.BOOLEAN if isinstance(value, bool) else CesqlType.INTEGER


def in_range(number: int) -> bool:
    return INTEGER_MIN <= number <= INTEGER_MAX


# --- casts --------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"([+-]?)([0-9]+)")


def integer_from_text(text: str) -> int | None:
    """The 32-bit integer a string writes, None when it writes none."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    digits = found[2].lstrip("0") or "0"
    number = int(found[1] + digits) if len(digits) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    return number if in_range(number) else None


def boolean_from_text(text: str) -> bool | None:
    """The boolean a string writes in any case, None when it writes none."""
    return {"true": True, "false": False}.get(text.lower())


def to_string(value: CesqlValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def to_integer(value: CesqlValue, faults: Faults) -> int:
    if not isinstance(value, str):
        return int(value)
    number = integer_from_text(value)
    if number is None:
        faults.report(ErrorKind.CAST, f"the String {shown(value)} is no 32-bit Integer")
    return number or 0


def to_boolean(value: CesqlValue, faults: Faults) -> bool:
    if not isinstance(value, str):
        return bool(value)
    truth = boolean_from_text(value)
    if truth is None:
        faults.report(ErrorKind.CAST, f"the String {shown(value)} is no Boolean")
    return bool(truth)


_CASTS: Final[dict[CesqlType, Callable[[CesqlValue, Faults], CesqlValue]]] = {
    CesqlType.STRING: lambda value, faults: to_string(value),
    CesqlType.INTEGER: to_integer,
    CesqlType.BOOLEAN: to_boolean,
}


def cast(value: CesqlValue, wanted: CesqlType, faults: Faults) -> CesqlValue:
    return _CASTS[wanted](value, faults)


# --- attributes ---------------------------------------------------------------------------------


def represented(value: object) -> CesqlValue:
    """An attribute's value as expressions see it; BadValueError when it is of no Catchment type."""
    if isinstance(value, str | bool):
        return value
    found = checked(value)
    if isinstance(found, datetime):
        assert isinstance(value, datetime)
        return _time_text(value)
    if isinstance(found, int) and in_range(found):
        return found
    return repr(found)


def _time_text(value: datetime) -> str:
    """RFC 3339, in the zone the value has; UTC is written Z."""
    text = value.isoformat()
    return text.removesuffix("+00:00") + "Z" if value.utcoffset() == timedelta(0) else text
