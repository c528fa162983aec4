"""CESQL's built-in functions (§3.5), chosen by name and number of arguments.

The caller casts the arguments to the types of the signature; `ANY` takes an argument as it is. A function always
returns a value of its return type, and reports faults beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catchment.model.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    CesqlType,
    CesqlValue,
    ErrorKind,
    Faults,
    boolean_from_text,
    integer_from_text,
    to_boolean,
    to_integer,
    to_string,
)

# A short expression can name a long attribute thousands of times. This bounds the text that a broker builds for it.
CONCAT_CODEPOINTS_MAX: Final = 1_048_576

# Unicode's White_Space property. Python's strip() also takes U+001C to U+001F, which do not have it.
WHITE_SPACE: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

ANY: Final = None
_S: Final = CesqlType.STRING
_I: Final = CesqlType.INTEGER
_B: Final = CesqlType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Function:
    """A signature, and what the function computes: `run(faults, *arguments)`."""

    parameters: tuple[CesqlType | None, ...]
    returns: CesqlType
    run: Callable[..., CesqlValue]
    is_variadic: bool = False

    def parameter(self, index: int) -> CesqlType | None:
        """The type of an argument; those past the fixed ones have the type of the last."""
        return self.parameters[min(index, len(self.parameters) - 1)]


def function_named(name: str, arity: int) -> Function | None:
    """The function that a call means; None if there is none. A variadic function takes its fixed arguments or more."""
    for function in _FUNCTIONS.get(name, ()):
        fixed = len(function.parameters) - function.is_variadic
        if arity == fixed or (function.is_variadic and arity > fixed):
            return function
    return None


# --- strings ------------------------------------------------------------------------------------


def _joined(faults: Faults, delimiter: str, parts: Sequence[str]) -> str:
    length = sum(map(len, parts)) + len(delimiter) * max(0, len(parts) - 1)
    if length <= CONCAT_CODEPOINTS_MAX:
        return delimiter.join(parts)
    faults.report(
        ErrorKind.FUNCTION_EVALUATION, f"CONCAT_CODEPOINTS_MAX is {CONCAT_CODEPOINTS_MAX:,}, found {length:,}"
    )
    return ""


def _left(faults: Faults, text: str, length: int) -> str:
    return text if _is_negative(faults, "LEFT", length) else text[:length]


def _right(faults: Faults, text: str, length: int) -> str:
    return text if _is_negative(faults, "RIGHT", length) else text[max(0, len(text) - length) :]


def _is_negative(faults: Faults, name: str, length: int) -> bool:
    if length < 0:
        faults.report(ErrorKind.FUNCTION_EVALUATION, f"{name} of {length} characters")
    return length < 0


def _substring(faults: Faults, text: str, position: int, length: int = INTEGER_MAX) -> str:
    """Positions count from 1; negative positions count back from the end; position 0 gives the empty string."""
    if not -len(text) <= position <= len(text):
        message = f"SUBSTRING from position {position} of {len(text)} characters"
        faults.report(ErrorKind.FUNCTION_EVALUATION, message)
        return ""
    if _is_negative(faults, "SUBSTRING", length) or position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start : start + length]


# --- numbers and casts --------------------------------------------------------------------------


def _absolute(faults: Faults, number: int) -> int:
    if number == INTEGER_MIN:
        faults.report(ErrorKind.MATH, f"ABS({INTEGER_MIN}) is out of 32 bits")
        return INTEGER_MAX
    return abs(number)


def _is_castable(from_text: Callable[[str], Any]) -> Callable[[Faults, CesqlValue], bool]:
    """Integers and booleans can always be cast to each other; only a string may fail."""
    return lambda faults, value: not isinstance(value, str) or from_text(value) is not None


_FUNCTIONS: Final[dict[str, tuple[Function, ...]]] = {
    "LENGTH": (Function((_S,), _I, lambda faults, text: len(text)),),
    "CONCAT": (Function((_S,), _S, lambda faults, *parts: _joined(faults, "", parts), is_variadic=True),),
    "CONCAT_WS": (
        Function((_S, _S), _S, lambda faults, delimiter, *parts: _joined(faults, delimiter, parts), is_variadic=True),
    ),
    "LOWER": (Function((_S,), _S, lambda faults, text: text.lower()),),
    "UPPER": (Function((_S,), _S, lambda faults, text: text.upper()),),
    "TRIM": (Function((_S,), _S, lambda faults, text: text.strip(WHITE_SPACE)),),
    "LEFT": (Function((_S, _I), _S, _left),),
    "RIGHT": (Function((_S, _I), _S, _right),),
    "SUBSTRING": (Function((_S, _I), _S, _substring), Function((_S, _I, _I), _S, _substring)),
    "ABS": (Function((_I,), _I, _absolute),),
    "INT": (Function((ANY,), _I, lambda faults, value: to_integer(value, faults)),),
    "BOOL": (Function((ANY,), _B, lambda faults, value: to_boolean(value, faults)),),
    "STRING": (Function((ANY,), _S, lambda faults, value: to_string(value)),),
    # Not in the specification 1.0.0, but in the drafts before it and in the public engines.
    "IS_INT": (Function((ANY,), _B, _is_castable(integer_from_text)),),
    "IS_BOOL": (Function((ANY,), _B, _is_castable(boolean_from_text)),),
}
