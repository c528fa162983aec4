"""Fast paths for the filters that nearly all subscriptions are: constraints joined by one kind of `and`.

`parsed_fast` does the work of the parser of `language.py`; `spelled_fast` does the work of the sets of `domain.py` and
their spelling. Each has the same result as the slower way, and the tests compare the two. For anything unusual, errors
above all, they return None; then the caller takes the slower way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from catchment.errors import CatchmentError
from catchment.model.constraint import NAME_PATTERN, ORDER, RESERVED_WORDS, Constraint, Kind, constraint
from catchment.model.spelling import spelled
from catchment.model.values import TIME_PATTERN, Value, parse_time

# A longer text takes the slower way. So a filter on the fast path is too small to reach a limit on the size of filters.
FAST_CODEPOINTS_MAX: Final = 1_024
# The same constraint occurs in many filters: so many are cached.
_CONSTRAINTS_KEPT_MAX: Final = 65_536

# The quantifiers are possessive (`*+`, `++`, `?+`) and the groups atomic: each token takes all characters it can and
# gives none back, as in the lexer of the language.
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


def parsed_fast(text: object) -> tuple[Constraint, ...] | None:
    """The constraints of a text that is nothing but constraints joined by ` and `, or by `, `."""
    if not isinstance(text, str) or len(text) > FAST_CODEPOINTS_MAX:
        return None
    # A quoted string that holds the separator is cut in two. Neither half is then a constraint, so the result is None.
    constraints = tuple(map(_constraint, text.split(" and ")))
    if None in constraints:
        constraints = tuple(map(_constraint, text.split(", "))) if len(constraints) == 1 else (None,)
    return None if None in constraints else constraints  # type: ignore[return-value]


@lru_cache(_CONSTRAINTS_KEPT_MAX)
def _constraint(text: str) -> Constraint | None:
    tokens = _CONSTRAINT.fullmatch(text)
    if tokens is None or tokens["name"].lower() in RESERVED_WORDS:
        return None
    try:
        return constraint(tokens["name"], *_operation(tokens), tokens["type"] and Kind(tokens["type"]))
    except CatchmentError:
        return None


def _operation(tokens: re.Match[str]) -> tuple[str, object]:
    if tokens["order"]:
        return tokens["order"], _value(tokens["value"])
    if tokens["text"]:
        return tokens["text_operator"].lower(), tokens["text"][1:-1]
    if tokens["members"]:
        return "in", [_value(member) for member in _MEMBER.findall(tokens["members"])]
    return "any", None


def _value(text: str) -> Value:
    first = text[0]
    if first in "\"'":
        return text[1:-1]
    if first in "tTfF":
        return first in "tT"
    if "-" in text[1:] and "e" not in text.lower():
        return parse_time(text)
    # `constraint()` refuses an integer or a float that is too large.
    return int(text) if text.lstrip("+-").isdigit() else float(text)


# --- constraints to their canonical spelling ----------------------------------------------------


def is_small(text: str, constraints: Sequence[Constraint]) -> bool:
    """Whether a conjunction is short, and each name has a single constraint or only bounds on numbers or times. Then
    it has at most one alternative and reaches no limit, so its sets need not be made to check it."""
    if len(text) > FAST_CODEPOINTS_MAX:
        return False
    names = {given.name for given in constraints}
    if len(names) == len(constraints):
        return True
    counts = Counter(given.name for given in constraints)
    repeated = [given for given in constraints if counts[given.name] > 1]
    return all(given.operator in ORDER and given.kind is not Kind.STRING for given in repeated)


def spelled_fast(constraints: Sequence[Constraint]) -> tuple[Constraint, ...] | None:
    """The single alternative of a conjunction, in canonical form, if each name has one constraint or a lower and an
    upper bound. None where that is not so, and where nothing can match."""
    by_name: dict[str, tuple[Constraint, ...]] = {}
    for given in constraints:
        before = by_name.get(given.name)
        canonical = _alone(given) if before is None else _between(before, given)
        if canonical is None:
            return None
        by_name[given.name] = canonical
    return tuple(written for name in sorted(by_name) for written in by_name[name])


@lru_cache(_CONSTRAINTS_KEPT_MAX)
def _alone(given: Constraint) -> tuple[Constraint, ...] | None:
    """A constraint in canonical form, if it is the only one on its name."""
    if given.kind is Kind.NUMBER and given.operator not in ("in", "any") and _is_short(given.value):
        assert isinstance(given.value, int | float)
        number = int(given.value) if given.value == int(given.value) else given.value
        is_canonical = type(number) is type(given.value)
        return (given if is_canonical else Constraint(given.name, given.operator, number, given.kind),)
    if given.operator in ("=", "prefix", "suffix", "substring") and _is_word(given.value):
        return (given,)
    alternatives = spelled(given.name, given.satisfied_by)
    return alternatives[0] if len(alternatives) == 1 else None


def _is_short(value: object) -> bool:
    """Whether the numbers next to this one take longer to write, and no two such numbers are next to each other. Then
    spelling would not replace `> value` by `>=` the number after it."""
    return isinstance(value, int | float) and (value == 0 or 1e-4 <= abs(value) < 1e12) and len(repr(value)) <= 14


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isascii()


_LOWER, _UPPER = (">", ">="), ("<", "<=")


def _between(before: tuple[Constraint, ...], given: Constraint) -> tuple[Constraint, ...] | None:
    """A lower and an upper bound on a name, with numbers between them, in canonical form."""
    if len(before) != 1 or not (before[0].kind is given.kind is Kind.NUMBER and _is_short(before[0].value)):
        return None
    other = _alone(given)
    if other is None or not _is_short(given.value):
        return None
    low, high = (before[0], other[0]) if given.operator in _UPPER else (other[0], before[0])
    is_range = low.operator in _LOWER and high.operator in _UPPER and low.value < high.value  # type: ignore[operator]
    return (low, high) if is_range else None
