"""Samples: for a filter as it was written, a notification that it matches.

If A covers B, A matches every notification that B matches, so also a sample of B. An A that does not match it covers
nothing of that kind, and to find that out takes neither a normal form nor a comparison of sets. `witness.py` makes
notifications that decide more, from filters whose sets are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from catchment.model.constraint import Constraint
from catchment.model.explanation import example_of
from catchment.model.expression import And, Expression, Not, Or, is_value
from catchment.model.values import Value
from catchment.model.witness import JUNK

# Of a string that must contain several texts, what stands between them: no other filter is likely to ask for it.
_BETWEEN: Final = JUNK[0]


def sample_of(expression: Expression) -> dict[str, Value] | None:
    """A notification that an expression in positive form matches; None if the first parts of its `or`s contradict each
    other, or if it is not obvious."""
    by_name: dict[str, list[Constraint]] = {}
    for constraint in _chosen(expression):
        by_name.setdefault(constraint.name, []).append(constraint)
    sample: dict[str, Value] = {}
    for name, constraints in by_name.items():
        value = _value(constraints)
        if value is not None:
            sample[name] = value
    return sample if is_value(expression, sample, True) else None


def _chosen(expression: Expression) -> Iterator[Constraint]:
    """The constraints of the first part of each `or`, and of all parts of each `and`."""
    match expression:
        case Constraint():
            yield expression
        case And(parts):
            for part in parts:
                yield from _chosen(part)
        case Or(parts):
            yield from _chosen(parts[0])
        case Not():
            raise AssertionError("a positive form has no `not`")


def _value(constraints: Sequence[Constraint]) -> Value | None:
    """A value that satisfies constraints on one attribute, in the usual cases; None for absence and where none is
    known."""
    texts: dict[str, list[str]] = {"prefix": [], "substring": [], "suffix": []}
    for constraint in constraints:
        operator, value = constraint.operator.removesuffix(" nocase"), constraint.value
        if operator in texts:
            texts[operator].append(str(value))
        elif operator in ("=", "in"):
            return value[0] if isinstance(value, tuple) else value
        elif not operator.startswith("not "):
            return example_of((constraint,))
    return _BETWEEN.join([max(texts["prefix"], key=len, default=""), *texts["substring"], *texts["suffix"][-1:]])
