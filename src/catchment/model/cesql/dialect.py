"""CESQL, the CloudEvents SQL expression language 1.0.0: the second dialect of filters.

A `Cesql` is a parsed expression. `evaluate` computes its value over the attributes of a notification in
*complete* mode (§4.1): both value and errors. `matches` is what a filter makes of that (§1.2): the value
is the Boolean true, and there was no error. `filter` is what brokers route by: a Catchment filter, as narrow as
possible, that matches whenever the expression matches.

Where the specification leaves a choice:

- *Syntax* (§2, §3.6). NOT and minus bind tighter than LIKE, IN and every binary operator, so `NOT a = b`
  is `(NOT a) = b`. AND, OR and XOR have the same precedence and go left to right. Identifiers are lower-cased;
  keywords are reserved. In a string literal, a backslash before the quote of that literal stands for the quote;
  every other backslash stays, together with the character after it.
- *Errors* (§3.3). If an operand of an operator or function has a fault, the result is the zero value of the operator's
  return type. All faults are collected; the first is `Evaluation.error`. So `missing != 2` and `NOT (missing = 2)` are
  both false. A call of an unknown function does not evaluate its arguments.
- *Overflow* of 32-bit arithmetic is a math error with value 0, except for ABS, where the specification gives the value.
- *IN* (§3.4.5) compares with its elements in order and stops at the first equal one.

Parsing (`parser.py`) takes time linear in the text. No step recurses on the length of the input: chains of operators
are flat, and nesting deeper than CESQL_DEPTH_MAX is refused while the tree is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model.cesql.expression import Attributes, Expression
from catchment.model.cesql.parser import CESQL_DEPTH_MAX, WHAT, parse_error, parsed
from catchment.model.cesql.values import CesqlFault, CesqlValue, ErrorKind, Faults

if TYPE_CHECKING:
    from catchment.model.filter import Filter

__all__ = ["CESQL_DEPTH_MAX", "CESQL_TEXT_CODEPOINTS_MAX", "Cesql", "CesqlFault", "ErrorKind", "Evaluation"]

# As long as the longest string value. It bounds the time and memory of parsing.
CESQL_TEXT_CODEPOINTS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation: always a value, and the errors that happened."""

    value: CesqlValue
    errors: tuple[CesqlFault, ...] = ()

    @property
    def error(self) -> ErrorKind | None:
        """The kind of the first error."""
        return self.errors[0].kind if self.errors else None


class Cesql:
    """A CESQL expression. It is immutable. `str()` gives its canonical text; expressions are equal if these are."""

    text: str
    root: Expression

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "root", parsed(_checked_text(text)))
        object.__setattr__(self, "text", str(self.root))
        # The canonical text must parse again, so it must keep the limit too.
        _check_size(self.text, "a canonical text")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Cesql(text={self.text!r})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an expression is immutable: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cesql) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return Cesql, (self.text,)

    def evaluate(self, attributes: Attributes) -> Evaluation:
        """Its value over these attributes; BadValueError if it reads a value of no Catchment type."""
        faults = Faults()
        value = self.root.evaluate(attributes, faults)
        return Evaluation(value, tuple(faults.reported))

    def matches(self, attributes: Attributes) -> bool:
        """Whether a notification with these attributes matches: the value is true and there is no error."""
        faults = Faults()
        return self.root.evaluate(attributes, faults) is True and not faults.reported

    @cached_property
    def filter(self) -> Filter:
        """A filter that matches every notification that the expression matches, as narrow as possible."""
        from catchment.model.cesql.implied import implied_filter  # not above: `filter.py` imports this module

        return implied_filter(self.root)

    def to_json(self) -> dict[str, str]:
        return {"dialect": "cesql", "text": self.text}

    @classmethod
    def from_json(cls, data: object) -> Cesql:
        if not isinstance(data, Mapping) or set(data) != {"dialect", "text"} or data["dialect"] != "cesql":
            raise BadFilterError(f'{shown(data)} is no CESQL filter: write {{"dialect": "cesql", "text": …}}')
        return cls(data["text"])


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise BadFilterError(f"a {WHAT} is a string, not the {type(text).__name__} {shown(text)}")
    _check_size(text, "a text")
    if not text.isascii() and (surrogate := _SURROGATE.search(text)):
        found = f"the lone surrogate U+{ord(surrogate[0]):04X}"
        raise parse_error(text, surrogate.start(), found, ["Unicode text"])
    return text


def _check_size(text: str, what: str) -> None:
    if len(text) > CESQL_TEXT_CODEPOINTS_MAX:
        raise LimitError("CESQL_TEXT_CODEPOINTS_MAX", CESQL_TEXT_CODEPOINTS_MAX, f"{what} of {len(text):,}")
