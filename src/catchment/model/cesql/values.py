"""CESQL's three types, its casts, and the faults that evaluation reports (§3.1, §3.3, §3.7).

Every cast is total: it returns a value and, where a string cannot be cast, reports a `cast` fault to the `Faults` it is
given. This module also decides how an expression sees an attribute of a notification (§3.2): strings, booleans and
32-bit integers are of the CESQL types of those names; wider integers, floats and times have no CESQL type and become
strings.
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
# No 32-bit integer has more digits, apart from sign and leading zeros: longer texts are not converted at all.
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
    """An error of an evaluation."""

    kind: ErrorKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Faults:
    """The faults of an evaluation, in the order in which they happened."""

    __slots__ = ("reported",)

    def __init__(self) -> None:
        self.reported: list[CesqlFault] = []

    def report(self, kind: ErrorKind, message: str) -> None:
        self.reported.append(CesqlFault(kind, message))

    @property
    def mark(self) -> int:
        """The present moment of the evaluation, for `since`."""
        return len(self.reported)

    def since(self, mark: int) -> bool:
        """Whether a fault was reported after `mark`."""
        return len(self.reported) > mark


def type_of(value: CesqlValue) -> CesqlType:
    if isinstance(value, str):
        return CesqlType.STRING
    return CesqlType.BOOLEAN if isinstance(value, bool) else CesqlType.INTEGER


def in_range(number: int) -> bool:
    return INTEGER_MIN <= number <= INTEGER_MAX


# --- casts --------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"([+-]?)([0-9]+)")


def integer_from_text(text: str) -> int | None:
    """The 32-bit integer that a string writes; None if it writes none."""
    tokens = _INTEGER.fullmatch(text)
    if tokens is None:
        return None
    digits = tokens[2].lstrip("0") or "0"
    number = int(tokens[1] + digits) if len(digits) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    return number if in_range(number) else None


def boolean_from_text(text: str) -> bool | None:
    """The boolean that a string writes in upper or lower case; None if it writes none."""
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
    """The value of an attribute as expressions see it; BadValueError if it is of no Catchment type."""
    if isinstance(value, str | bool):
        return value
    checked_value = checked(value)
    if isinstance(checked_value, datetime):
        assert isinstance(value, datetime)
        return _time_text(value)  # of the value as given: checking converts it to UTC
    if isinstance(checked_value, int) and in_range(checked_value):
        return checked_value
    return repr(checked_value)


def _time_text(value: datetime) -> str:
    """RFC 3339, in the time zone of the value; UTC is written Z."""
    text = value.isoformat()
    return text.removesuffix("+00:00") + "Z" if value.utcoffset() == timedelta(0) else text
