"""Typed values: the five types, how they compare, how they read as text and as JSON.

Every value has a *key* that orders it among the values of its type: a `str` for strings (compared by
code point) and an `int` for the others. Floats take the integer of their bit pattern, so neighboring
floats have neighboring keys and every set of numbers, times or booleans is a set of integers. That is
what makes the relations between filters exact and the matching kernels simple.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from catchment.errors import BadValueError, LimitError, shown

# An attribute is something to route by. Longer text belongs into the payload.
STRING_CODEPOINTS_MAX: Final = 65_536
# Names are repeated in every filter and routing table.
NAME_CODEPOINTS_MAX: Final = 255
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
FLOAT_MAX: Final = math.nextafter(math.inf, 0)

Value = str | int | float | bool | datetime


class Type(StrEnum):
    """The types of attribute values."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIME = "time"


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
TIME_MIN: Final = datetime.min.replace(tzinfo=UTC)
TIME_MAX: Final = datetime.max.replace(tzinfo=UTC)
_FLOAT_MAGNITUDE: Final = 0x7FFF_FFFF_FFFF_FFFF


def float_key(value: float) -> int:
    """The place of a finite float among all floats in numeric order; both zeros have place 0.

    The bits of a positive float, read as an integer, grow with the float. Those of a negative float are its magnitude
    with the sign bit set, so the sign is taken off and the magnitude negated.
    """
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & _FLOAT_MAGNITUDE)


def float_from_key(key: int) -> float:
    magnitude: float = struct.unpack("<d", struct.pack("<q", abs(key)))[0]
    return -magnitude if key < 0 else magnitude


def time_key(value: datetime) -> int:
    """Microseconds since 1970 in UTC."""
    return (value - EPOCH) // MICROSECOND


def time_from_key(key: int) -> datetime:
    return EPOCH + timedelta(microseconds=key)


# The least and greatest key of each type whose keys are integers.
KEY_BOUNDS: Final[dict[Type, tuple[int, int]]] = {
    Type.INT: (INT_MIN, INT_MAX),
    Type.FLOAT: (float_key(-FLOAT_MAX), float_key(FLOAT_MAX)),
    Type.BOOL: (0, 1),
    Type.TIME: (time_key(TIME_MIN), time_key(TIME_MAX)),
}

_TYPE_OF: Final[dict[type, Type]] = {
    str: Type.STRING,
    int: Type.INT,
    float: Type.FLOAT,
    bool: Type.BOOL,
    datetime: Type.TIME,
}


def type_of(value: Value) -> Type:
    """The type of an already checked value."""
    return _TYPE_OF[type(value)]


def key_of(value: Value) -> int | str:
    """The key of an already checked value within its type."""
    python_type = type(value)
    if python_type is str or python_type is int:
        return value  # type: ignore[return-value]
    if python_type is float:
        return float_key(value)  # type: ignore[arg-type]
    return int(value) if python_type is bool else time_key(value)  # type: ignore[arg-type]


def from_key(value_type: Type, key: int | str) -> Value:
    """The value of a type that has this key."""
    match value_type:
        case Type.STRING | Type.INT:
            return key
        case Type.FLOAT:
            return float_from_key(int(key))
        case Type.BOOL:
            return bool(key)
        case Type.TIME:
            return time_from_key(int(key))


# --- checking -----------------------------------------------------------------------------------


def checked(value: object) -> Value:
    """`value` normalized to one of the five types; BadValueError when it is of none of them.

    The exact types come first, because they are nearly all; then the subclasses of `datetime`, `float` and `str`.
    """
    python_type = type(value)
    if python_type is str:
        return checked_string(value)  # type: ignore[arg-type]
    if python_type is bool:
        return value  # type: ignore[return-value]
    if python_type is int:
        return _checked_int(value)  # type: ignore[arg-type]
    if isinstance(value, datetime):
        return _checked_time(value)
    if isinstance(value, float):
        return _checked_float(float(value))
    if isinstance(value, str):
        return checked_string(str(value))
    return _checked_foreign(value)


def _checked_foreign(value: object) -> Value:
    """Accepts integers of other libraries, such as numpy's; refuses everything else."""
    try:
        return _checked_int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        raise BadValueError(
            f"{shown(value)} of type {type(value).__name__} is not a value: "
            "use str, int, float, bool or a datetime with a time zone"
        ) from None


def checked_string(text: str) -> str:
    if len(text) > STRING_CODEPOINTS_MAX:
        raise LimitError(
            "STRING_CODEPOINTS_MAX",
            STRING_CODEPOINTS_MAX,
            f"a string of {len(text):,}",
            "put long content in the payload",
        )
    if not text.isascii() and (at := _surrogate_at(text)) >= 0:
        raise BadValueError(f"lone surrogate U+{ord(text[at]):04X} at position {at} of {shown(text)}: not Unicode text")
    return text


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _surrogate_at(text: str) -> int:
    surrogate = _SURROGATE.search(text)
    return surrogate.start() if surrogate else -1


def _checked_int(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        size = f"{value.bit_length()} bits" if abs(value) > 10**30 else f"{value}"
        raise BadValueError(f"integer out of range: {size}; an int has 64 bits, {INT_MIN} to {INT_MAX}")
    return value


def _checked_float(value: float) -> float:
    if not math.isfinite(value):
        raise BadValueError(f"{value} is not a value: a float is finite and not NaN; leave the attribute out instead")
    return value + 0.0  # -0.0 + 0.0 is 0.0: the model has one zero


def _checked_time(value: datetime) -> datetime:
    if type(value) is datetime and value.tzinfo is UTC and not value.fold:
        return value
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadValueError(f"time {value.isoformat()} has no time zone: give it one, such as datetime.UTC")
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise BadValueError(f"time {value.isoformat()} is outside the years 1 to 9999 in UTC") from None


def checked_name(name: object) -> str:
    """An attribute name: any Unicode text that is not empty."""
    if not isinstance(name, str):
        raise BadValueError(f"attribute name {shown(name)} is a {type(name).__name__}, not a string")
    if not name:
        raise BadValueError("an attribute name is empty")
    if len(name) > NAME_CODEPOINTS_MAX:
        raise LimitError("NAME_CODEPOINTS_MAX", NAME_CODEPOINTS_MAX, f"a name of {len(name):,}: {shown(name)}")
    if not name.isascii() and _surrogate_at(name) >= 0:
        raise BadValueError(f"attribute name {shown(name)} holds a lone surrogate: not Unicode text")
    return name


# --- times and durations as text ----------------------------------------------------------------

TIME_PATTERN: Final = r"\d{4}-\d{2}-\d{2}(?:[Tt]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:[Zz]|[+-]\d{2}:\d{2}))?"
_TIME: Final = re.compile(TIME_PATTERN)


def parse_time(text: str) -> datetime:
    """An RFC 3339 time with its zone, or a date, which is its midnight in UTC."""
    if not _TIME.fullmatch(text):
        raise BadValueError(f"{shown(text)} is not a time: write 2026-11-15T10:30:00Z, or a date such as 2026-11-15")
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError as problem:
        raise BadValueError(f"{shown(text)} is not a time: {problem}") from None
    return _checked_time(time if time.tzinfo else time.replace(tzinfo=UTC))


def format_time(value: datetime) -> str:
    text = value.isoformat()  # a checked time is already in UTC
    return text.removesuffix("+00:00") + "Z"


DURATION_UNITS: Final = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_DURATION_PART: Final = re.compile(r"(\d{1,18})(ms|us|w|d|h|m|s)")


def parse_duration(text: str) -> timedelta:
    """A sum of parts, each a number and a unit: `10m`, `1h30m`, `250ms`."""
    parts = _DURATION_PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise BadValueError(f"{shown(text)} is not a duration: write 10m, 1h30m, 250ms (units w d h m s ms us)")
    return checked_duration(sum(int(number) * DURATION_UNITS[unit] for number, unit in parts))


def checked_duration(microseconds: int) -> timedelta:
    if not 0 < microseconds <= INT_MAX // 1000:
        raise BadValueError(f"a duration of {microseconds} microseconds: it must be above 0 and below about 292 years")
    return timedelta(microseconds=microseconds)


def format_duration(duration: timedelta) -> str:
    rest, parts = duration // MICROSECOND, []
    for unit, size in DURATION_UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


# --- JSON ---------------------------------------------------------------------------------------
# A string, number or boolean is the JSON value of that type; a number with a fraction or exponent is a float. A time
# is {"time": "…Z"}. A writer that cannot tell 4.0 from 4 may write {"float": 4}; every type may be named that way.

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def value_to_json(value: Value) -> Json:
    return {"time": format_time(value)} if isinstance(value, datetime) else value


def _typed_int(value: object) -> Value:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value) else _only(int, value)


def _typed_float(value: object) -> Value:
    # Compared before it is converted, so that no integer is silently rounded to a float.
    if type(value) is int and not (INT_MIN <= value <= INT_MAX and float(value) == value):
        raise BadValueError(f"{shown(value)} is not exactly a float")
    return float(value) if type(value) is int else _only(float, value)


def _only(wanted: type, value: object) -> Value:
    if type(value) is not wanted:
        raise BadValueError(f"{shown(value)} is not of JSON type {wanted.__name__}")
    return value  # type: ignore[return-value]


def _typed_time(value: object) -> Value:
    return parse_time(str(_only(str, value)))


_FROM_TYPED_JSON: Final[dict[str, Callable[[object], Value]]] = {
    "string": lambda value: _only(str, value),
    "int": _typed_int,
    "float": _typed_float,
    "bool": lambda value: _only(bool, value),
    "time": _typed_time,
}


def value_from_json(data: object) -> Value:
    if isinstance(data, dict):
        if len(data) != 1 or next(iter(data)) not in _FROM_TYPED_JSON:
            raise BadValueError(f'{shown(data)} is not a typed value: write {{"time": "2026-11-15T10:30:00Z"}}')
        ((name, inner),) = data.items()
        return checked(_FROM_TYPED_JSON[name](inner))
    if data is None or isinstance(data, list):
        raise BadValueError(f'{shown(data)} is not a value: use a string, number, boolean or {{"time": …}}')
    return checked(data)
