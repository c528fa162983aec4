"""Every error Catchment raises on purpose.

    CatchmentError
    ├── InputError                 the caller passed something wrong (also a ValueError)
    │   ├── ParseError             a text does not parse: line, column, found, expected
    │   ├── BadValueError          a value of no Catchment type: NaN, infinity, lone surrogate, naive time, …
    │   ├── BadNotificationError   an invalid notification: duplicate name, unknown envelope field, …
    │   ├── BadFilterError         an invalid filter, or an operator that does not fit its value or type
    │   ├── BadIdError             a subscription id that is of a wrong type, unknown, or in use
    │   ├── ForeignIdentityError   an identity or a `$source` that belongs to another client
    │   ├── BadNumberError         a `$seq` that goes back or leaps ahead: which number to go on after
    │   ├── BadIndexError          a saved index that is corrupt, truncated or of another version
    │   └── LimitError             input past a named limit: which limit, its size, the size found
    ├── StoreError                 in store/interface.py: a store does not do what it was asked
    │   ├── StoreFullError         there is no room; nothing was written
    │   ├── StoreInUseError        another process has it open
    │   └── StoreBrokenError       the disk has failed, or what is on it is damaged
    │       └── StoreLossError     what was acknowledged is missing: which epochs
    ├── RemoteProtocolError        a neighbor broke the protocol: its link ends
    └── UnavailableError           something that a command needs is not installed or cannot be reached

Each message says what is wrong, where, and what to do. A mistake of our own is an `assert`, never one of these errors.
"""

from __future__ import annotations

from collections.abc import Sequence

# How much of a wrong text an error message quotes: enough to recognize it, bounded for logs.
SHOWN_CHARACTERS_MAX = 60


def shown(value: object) -> str:
    """`value` as an error message quotes it: printable and short."""
    if isinstance(value, str | bytes):
        text = ascii(value[: SHOWN_CHARACTERS_MAX * 2])
    elif isinstance(value, int) and value.bit_length() > SHOWN_CHARACTERS_MAX * 3:
        text = f"an integer of {value.bit_length():,} bits"  # writing it in decimal would take quadratic time
    elif isinstance(value, list | tuple | dict | set | frozenset) and len(value) > SHOWN_CHARACTERS_MAX:
        text = f"a {type(value).__name__} of {len(value):,}"
    elif value is None:
        text = "null"
    else:
        text = _ascii(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"


def _ascii(value: object) -> str:
    try:
        return ascii(value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


class CatchmentError(Exception):
    """The root of the tree: catch it to catch every error that Catchment raises on purpose."""


class InputError(CatchmentError, ValueError):
    """The caller passed something wrong."""


class ParseError(InputError):
    """A text that does not parse."""

    def __init__(self, what: str, line: int, column: int, found: str, expected: Sequence[str]) -> None:
        self.what, self.line, self.column = what, line, column
        self.found, self.expected = found, tuple(expected)
        accepted = f"; expected {', '.join(self.expected)}" if self.expected else ""
        super().__init__(f"{what}, line {line}, column {column}: found {found}{accepted}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.line, self.column, self.found, self.expected)


class BadValueError(InputError):
    """A value of none of Catchment's five types."""


class BadNotificationError(InputError):
    """An invalid notification."""


class BadFilterError(InputError):
    """An invalid constraint, filter, advertisement or pattern."""


class BadIdError(InputError):
    """A subscription id that is invalid, unknown, or in use."""


class ForeignIdentityError(InputError):
    """An identity, or the `$source` of a publication, belongs to another client."""


class BadNumberError(InputError):
    """A `$seq` that is not in the range that the broker takes from this source. Numbers greater than `after` are."""

    def __init__(self, what: str, after: int) -> None:
        self.what, self.after = what, after
        super().__init__(what)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.after)


class BadIndexError(InputError):
    """A saved index that cannot be read: corrupt, truncated, or of another version."""


class LimitError(InputError):
    """Input past a named limit."""

    def __init__(self, limit: str, maximum: int, actual: int | str, advice: str = "") -> None:
        self.limit, self.maximum, self.actual, self.advice = limit, maximum, actual, advice
        super().__init__(f"{limit} is {maximum:,}, found {actual}{'; ' + advice if advice else ''}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.limit, self.maximum, self.actual, self.advice)


class RemoteProtocolError(CatchmentError):
    """A neighbor broke the protocol or contradicted itself."""

    def __init__(self, neighbor: str, what: str) -> None:
        self.neighbor, self.what = neighbor, what
        super().__init__(f"neighbor {shown(neighbor)} {what}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.neighbor, self.what)


class UnavailableError(CatchmentError):
    """Something that a command needs is not installed, or is not where the command expects it."""
