"""Plain filters, fast: constraints joined by one kind of `and`, as nearly all of millions of subscriptions are.

Two short cuts past slower ways that say the same, which the tests compare with them: `plain_constraints` past the
parser of `language.py`, `spelled_plainly` past the sets of `domain.py` and their spelling. Whatever is unusual in any
way gets None from them, errors above all, and goes the slow way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from catchment.errors import CatchmentError
from catchment.model.constraint import NAME_PATTERN, ORDER, RESERVED_WORDS, Constraint, Kind, constraint
from catchment.model.spelling import spelled
from catchment.model.values import TIME_PATTERN, Value, parse_time

# A longer text takes the slow way; so no limit on the size of a filter can be met in a plain one.
PLAIN_CODEPOINTS_MAX: Final = 1_024
# Constraints come again and again in other filters: so many are remembered.
_CONSTRAINTS_KEPT_MAX: Final = 65_536

# Each token takes all it can and gives nothing back, as in the lexer of the language.
_SPACE: Final = r"[ \t\r\n\f]*+"
_STRING: Final = r"""(?>"[^"\\]*"|'[^'\\]*')"""
_NUMBER: Final = r"[+-]?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_TIME: Final = TIME_PATTERN.replace(r"\d", "[0-9]")
_VALUE: Final = rf"(?>{_STRING}|{_TIME}|{_NUMBER}|(?i:true|false)(?![\w.]))"
_CONSTRAINT: Final = re.compile(
    rf"""{_SPACE}(?:(?P<type>string|number|int|float|bool|time)[ \t\r\n\f]++)?(?P<name>(?>{NAME_PATTERN})){_SPACE}
    (?:(?P<order>(?>==?|!=|<>|<=|>=|<|>(?!\*))){_SPACE}(?P<value>{_VALUE})
    |(?P<text_operator>(?>>\*|\*<|\*|(?i:prefix|suffix|contains|glob)(?![\w.]))){_SPACE}(?P<text>{_STRING})
    |(?i:in)(?![\w.]){_SPACE}\({_SPACE}(?P<members>{_VALUE}{_SPACE}(?:,{_SPACE}{_VALUE}{_SPACE})*+)\)
    |(?P<any>(?i:any)(?![\w.])))
    {_SPACE}""".replace("\n    ", "")
)
_MEMBER: Final = re.compile(_VALUE)


# --- text to constraints ------------------------------------------------------------------------


def plain_constraints(text: object) -> tuple[Constraint, ...] | None:
    """The constraints of a text that is nothing but constraints joined by ` and `, or by `, `."""
    if not isinstance(text, str) or len(text) > PLAIN_CODEPOINTS_MAX:
        return None
    # A string that holds the joint is cut in two; neither half is a constraint then.
    found = tuple(map(_constraint, text.split(" and ")))
    if None in found:
        found = tuple(map(_constraint, text.split(", "))) if len(found) == 1 else (None,)
    return None if None in found else found  # type: ignore[return-value]


@lru_cache(_CONSTRAINTS_KEPT_MAX)
def _constraint(text: str) -> Constraint | None:
    found = _CONSTRAINT.fullmatch(text)
    if found is None or found["name"].lower() in RESERVED_WORDS:
        return None
    try:
        return constraint(found["name"], *_operation(found), found["type"] and Kind(found["type"]))
    except CatchmentError:
        return None


def _operation(found: re.Match[str]) -> tuple[str, object]:
    if found["order"]:
        return found["order"], _value(found["value"])
    if found["text"]:
        return found["text_operator"].lower(), found["text"][1:-1]
    if found["members"]:
        return "in", [_value(one) for one in _MEMBER.findall(found["members"])]
    return "any", None


def _value(text: str) -> Value:
    first = text[0]
    if first in "\"'":
        return text[1:-1]
    if first in "tTfF":
        return first in "tT"
    if "-" in text[1:] and "e" not in text.lower():
        return parse_time(text)
    # An integer or a float that is too large is refused by the constraint.
    return int(text) if text.lstrip("+-").isdigit() else float(text)


# --- constraints to their canonical spelling ----------------------------------------------------


def is_plain(text: str, constraints: Sequence[Constraint]) -> bool:
    """Whether a conjunction is short and has each name once, or bounds on numbers or times alone: then it is one
    alternative at the most, and no limit can be met."""
    if len(text) > PLAIN_CODEPOINTS_MAX:
        return False
    names = {one.name for one in constraints}
    if len(names) == len(constraints):
        return True
    seen: set[str] = set()
    twice = {one.name for one in constraints if one.name in seen or seen.add(one.name)}  # type: ignore[func-returns-value]
    return all(one.operator in ORDER and one.kind is not Kind.STRING for one in constraints if one.name in twice)


def spelled_plainly(constraints: Sequence[Constraint]) -> tuple[Constraint, ...] | None:
    """The one alternative of a conjunction in canonical form, where each name has one constraint or a lower and an
    upper bound; None where that is not so, or nothing can match."""
    by_name: dict[str, tuple[Constraint, ...]] = {}
    for one in constraints:
        before = by_name.get(one.name)
        found = _alone(one) if before is None else _between(before, one)
        if found is None:
            return None
        by_name[one.name] = found
    return tuple(one for name in sorted(by_name) for one in by_name[name])


@lru_cache(_CONSTRAINTS_KEPT_MAX)
def _alone(one: Constraint) -> tuple[Constraint, ...] | None:
    """A single constraint in canonical form."""
    if one.kind is Kind.NUMBER and one.operator not in ("in", "any") and _is_short(one.value):
        assert isinstance(one.value, int | float)
        number = int(one.value) if one.value == int(one.value) else one.value
        return (one if type(number) is type(one.value) else Constraint(one.name, one.operator, number, one.kind),)
    if one.operator in ("=", "prefix", "suffix", "substring") and _is_word(one.value):
        return (one,)
    alternatives = spelled(one.name, one.satisfied_by)
    return alternatives[0] if len(alternatives) == 1 else None


def _is_short(value: object) -> bool:
    """A number whose neighbors all take longer to write, and of which two never are neighbors."""
    return isinstance(value, int | float) and (value == 0 or 1e-4 <= abs(value) < 1e12) and len(repr(value)) <= 14


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isascii()


_LOWER, _UPPER = (">", ">="), ("<", "<=")


def _between(before: tuple[Constraint, ...], one: Constraint) -> tuple[Constraint, ...] | None:
    """A lower and an upper bound on one name, with numbers between."""
    if len(before) != 1 or not (before[0].kind is one.kind is Kind.NUMBER and _is_short(before[0].value)):
        return None
    other = _alone(one)
    if other is None or not _is_short(one.value):
        return None
    low, high = (before[0], other[0]) if one.operator in _UPPER else (other[0], before[0])
    is_range = low.operator in _LOWER and high.operator in _UPPER and low.value < high.value  # type: ignore[operator]
    return (low, high) if is_range else None
