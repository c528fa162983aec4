"""Fast paths for the filters that nearly all subscriptions are: constraints joined by one kind of `and`.

The functions `parsed_…` do the work of the parser of `language.py`; `spelled_fast` does the work of the sets of
`domain.py` and their spelling. Each has the same result as the slower way, and the tests compare the two. For anything
unusual, errors above all, they return None; then the caller takes the slower way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeGuard

from catchment.errors import BadFilterError, CatchmentError
from catchment.model.constraint import NAME_PATTERN, ORDER, RESERVED_WORDS, Constraint, Kind, constraint
from catchment.model.expression import FILTER_DEPTH_MAX, And, Expression, Not, Or
from catchment.model.globs import GLOB_CODEPOINTS_MAX
from catchment.model.spelling import spelled
from catchment.model.values import TIME_PATTERN, Value, parse_time

# A longer text takes the slower way. So a filter on the fast path is too small to reach a limit on the size of filters.
FAST_CODEPOINTS_MAX: Final = 1_024
# A longer text is left to the parser, which checks the number of constraints as it reads; so is one with so many open
# parentheses.
FAST_EXPRESSION_CODEPOINTS_MAX: Final = 32_768
FAST_PARENTHESES_MAX: Final = 1_024
# The same constraint occurs in many filters: so many are cached.
_CONSTRAINTS_KEPT_MAX: Final = 65_536
_NAMES_KEPT_MAX: Final = 4_096

# The quantifiers are possessive (`*+`, `++`, `?+`) and the groups atomic: each token takes all characters it can and
# gives none back, as in the lexer of the language.
_SPACE: Final = r"[ \t\r\n\f]*+"
_STRING: Final = r"""(?>"(?>[^"\\]++|\\.)*+"|'(?>[^'\\]++|\\.)*+')"""
_NUMBER: Final = r"[+-]?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_TIME: Final = TIME_PATTERN.replace(r"\d", "[0-9]")
_VALUE: Final = rf"(?>{_STRING}|{_TIME}|{_NUMBER}|(?i:true|false)(?![\w.]))"
_NAME: Final = rf"(?>{NAME_PATTERN}|`(?>[^`\\]++|\\.)*+`)"
_WORD_END: Final = r"(?![\w.])"
_CONSTRAINT: Final = re.compile(
    rf"""{_SPACE}(?:(?P<type>string|number|int|float|bool|time)[ \t\r\n\f]++)?(?P<name>{_NAME}){_SPACE}
    (?:(?P<order>(?>==?|!=|<>|<=|>=|<|>(?!\*))){_SPACE}(?P<value>{_VALUE})
    |(?P<operator>(?>==?|!=|<>|>\*|\*<|\*|(?i:prefix|suffix|contains|glob|matches|cidr){_WORD_END}))
    {_SPACE}(?P<nocase>(?i:nocase){_WORD_END}{_SPACE})?+(?P<text>{_STRING})
    |(?i:in){_WORD_END}{_SPACE}(?P<in_nocase>(?i:nocase){_WORD_END}{_SPACE})?+
    \({_SPACE}(?P<members>{_VALUE}{_SPACE}(?:,{_SPACE}{_VALUE}{_SPACE})*+)\)
    |(?P<any>(?i:any){_WORD_END}))
    {_SPACE}""".replace("\n    ", ""),
    re.DOTALL,
)
_MEMBER: Final = re.compile(_VALUE, re.DOTALL)
# What stands between constraints, and what stands for one.
_BETWEEN: Final = re.compile(
    rf"""{_SPACE}(?:(?P<sign>[(),])|(?P<word>(?i:and|or|not|true|false))(?![\w.])
    |(?i:exists){_SPACE}\({_SPACE}(?P<exists>{_NAME}){_SPACE}\)){_SPACE}""".replace("\n    ", ""),
    re.DOTALL,
)
# What stands around the filters of a pattern, and before a constraint of an advertisement.
_BRACKET: Final = re.compile(rf"{_SPACE}\[")
_CLOSING: Final = re.compile(rf"{_SPACE}\]{_SPACE}")
_ARROW: Final = re.compile(rf"{_SPACE}->")
_TAIL: Final = re.compile(
    rf"""{_SPACE}(?:(?i:within){_WORD_END}{_SPACE}(?P<within>(?:[0-9]{{1,18}}(?:ms|us|w|d|h|m|s))+){_SPACE})?
    (?:(?i:by){_WORD_END}{_SPACE}(?P<by>{_NAME}{_SPACE}(?:,{_SPACE}{_NAME}{_SPACE})*+))?""".replace("\n    ", ""),
    re.DOTALL,
)
_EACH_NAME: Final = re.compile(_NAME, re.DOTALL)
_NEGATION: Final = re.compile(rf"{_SPACE}(?i:not){_WORD_END}")


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


def parsed_expression_fast(text: object) -> Expression | None:
    """The expression that a text writes."""
    if not _is_walkable(text):
        return None
    read = _expression_at(text, 0)
    return None if read is None or read[1] < len(text) else read[0]


def parsed_advertisement_fast(text: str) -> list[tuple[Constraint, bool]] | None:
    """The constraints of an advertisement, each with whether a `not` stands before it."""
    if not _is_walkable(text):
        return None
    constraints: list[tuple[Constraint, bool]] = []
    at = -1
    while at < len(text):
        at += 1  # behind the comma; at first, at the start
        negation = _NEGATION.match(text, at)
        written = _CONSTRAINT.match(text, negation.end() if negation else at)
        constraint = None if written is None else _usual(written) or _constraint(written.group())
        if written is None or constraint is None or text[written.end() : written.end() + 1] not in (",", ""):
            return None
        constraints.append((constraint, negation is not None))
        at = written.end()
    return constraints


def parsed_pattern_fast(text: str) -> tuple[list[Expression], str | None, list[str]] | None:
    """The filters of a pattern, the text of its duration, and the names after `by`."""
    if not _is_walkable(text):
        return None
    steps: list[Expression] = []
    at = 0
    while True:
        bracket = _BRACKET.match(text, at)
        read = _expression_at(text, bracket.end() if bracket else at)
        if read is None:
            return None
        steps.append(read[0])
        at = read[1]
        closing = _CLOSING.match(text, at) if bracket else None
        if bracket and closing is None:
            return None
        arrow = _ARROW.match(text, closing.end() if closing else at)
        at = closing.end() if closing else at
        if arrow is None:
            break
        at = arrow.end()
    tail = _TAIL.fullmatch(text, at)
    try:
        return None if tail is None else (steps, tail["within"], list(map(_name, _EACH_NAME.findall(tail["by"] or ""))))
    except CatchmentError:
        return None


def _is_walkable(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= FAST_EXPRESSION_CODEPOINTS_MAX


def _expression_at(text: str, at: int) -> tuple[Expression, int] | None:
    """The expression that begins at a place, and where it ends, by one walk over its tokens. Open parentheses wait on a
    stack, each with what was read before it."""
    end = len(text)
    level, stack, has_operand = _Level(), list[_Level](), False
    while at < end:
        token = _BETWEEN.match(text, at)
        if token is None:
            if has_operand and not stack:
                break  # what follows is no part of an expression
            written = None if has_operand else _CONSTRAINT.match(text, at)
            operand = None if written is None else _usual(written) or _constraint(written.group())
            if written is None or operand is None:
                return None
            at, has_operand = written.end(), True
            level.take(operand, 0)
            continue
        at = token.end()
        sign = token["sign"] or (token["word"] or "").lower()
        if has_operand:
            if sign == ")" and stack:
                inner, level = level, stack.pop()
                level.take(inner.closed(), inner.depth)
            elif sign in ("and", "or", ","):
                level.separated(sign)
                has_operand = False
            else:
                return None
        elif sign == "not":
            level.negations += 1
        elif sign == "(":
            stack.append(level)
            level = _Level()
        else:
            constant = _constant(token, sign)
            if constant is None:
                return None
            level.take(constant, 0)
            has_operand = True
        if level.depth > FILTER_DEPTH_MAX or len(stack) > FAST_PARENTHESES_MAX:
            return None
    if not has_operand or stack:
        return None
    expression = level.closed()
    return (expression, at) if level.depth <= FILTER_DEPTH_MAX else None


def _constant(token: re.Match[str], sign: str) -> Expression | None:
    """`true`, `false` or `exists(name)`; None if the token is another."""
    if sign:
        return sign == "true" if sign in ("true", "false") else None
    try:
        return Not(constraint(_name(token["exists"]), "absent"))
    except CatchmentError:
        return None


class _Level:
    """What was read within one pair of parentheses: clauses, the operands of an `or`, those of an `and`; and how deep
    each of the three nests, as the parser counts it."""

    __slots__ = ("ands", "ands_depth", "clauses", "depth", "negations", "ors", "ors_depth")

    def __init__(self) -> None:
        self.clauses: list[Expression] = []
        self.ors: list[Expression] = []
        self.ands: list[Expression] = []
        self.depth = self.ors_depth = self.ands_depth = 0
        self.negations = 0

    def take(self, operand: Expression, depth: int) -> None:
        for _ in range(self.negations):
            operand = Not(operand)
        self.ands_depth = max(self.ands_depth, depth + self.negations)
        self.negations = 0
        self.ands.append(operand)

    def separated(self, sign: str) -> None:
        if sign == "and":
            return
        self.ors.append(self.ands[0] if len(self.ands) == 1 else And(tuple(self.ands)))
        self.ors_depth = max(self.ors_depth, self.ands_depth + (len(self.ands) > 1))
        self.ands, self.ands_depth = [], 0
        if sign == ",":
            self.clauses.append(self.ors[0] if len(self.ors) == 1 else Or(tuple(self.ors)))
            self.depth = max(self.depth, self.ors_depth + (len(self.ors) > 1))
            self.ors, self.ors_depth = [], 0

    def closed(self) -> Expression:
        self.separated(",")
        if len(self.clauses) == 1:
            return self.clauses[0]
        self.depth += 1
        return And(tuple(self.clauses))


# As they are written: the operators of the constraints on strings that make up most expressions.
_USUAL_OPERATORS: Final = {
    written + nocase: operator + nocase
    for operator, spellings in (
        ("=", ("=", "==")),
        ("prefix", ("prefix", ">*")),
        ("suffix", ("suffix", "*<")),
        ("substring", ("contains", "*")),
    )
    for written in spellings
    for nocase in ("", " nocase")
}


def _usual(tokens: re.Match[str]) -> Constraint | None:
    """A constraint that compares with a short ASCII string, without the checks of `constraint()` that it passes in any
    case; None for every other. Expressions are made of these, with so many different strings that a cache helps
    little."""
    kind, written_name, order, value, operator, nocase, text = tokens.group(*_USUAL_GROUPS)
    if order is not None and value[0] in "\"'":
        operator, text = order, value
    if text is None or kind is not None or not text.isascii() or len(text) > GLOB_CODEPOINTS_MAX:
        return None
    name = _usual_name(written_name)
    canonical = _USUAL_OPERATORS.get(operator + " nocase" if nocase else operator)
    if name is None or canonical is None:
        return None
    string = text[1:-1] if "\\" not in text else _usual_text(text)
    return None if string is None else Constraint(name, canonical, string, Kind.STRING)


_USUAL_GROUPS: Final = ("type", "name", "order", "value", "operator", "nocase", "text")


@lru_cache(_NAMES_KEPT_MAX)
def _usual_name(written: str) -> str | None:
    """The name of an attribute; None if it is none."""
    try:
        return constraint(_name(written), "any").name
    except CatchmentError:
        return None


def _usual_text(quoted: str) -> str | None:
    try:
        text = _text(quoted)
    except CatchmentError:
        return None
    return text if text.isascii() else None


@lru_cache(_CONSTRAINTS_KEPT_MAX)
def _constraint(text: str) -> Constraint | None:
    tokens = _CONSTRAINT.fullmatch(text)
    if tokens is None:
        return None
    try:
        return constraint(_name(tokens["name"]), *_operation(tokens), tokens["type"] and Kind(tokens["type"]))
    except CatchmentError:
        return None


def _name(written: str) -> str:
    if written[0] == "`":
        return _text(written)
    if written.lower() in RESERVED_WORDS:
        raise BadFilterError("a word of the language")
    return written


def _operation(tokens: re.Match[str]) -> tuple[str, object]:
    if tokens["order"]:
        return tokens["order"], _value(tokens["value"])
    if tokens["text"]:
        return tokens["operator"].lower() + (" nocase" if tokens["nocase"] else ""), _text(tokens["text"])
    if tokens["members"]:
        members = [_value(member) for member in _MEMBER.findall(tokens["members"])]
        return "in nocase" if tokens["in_nocase"] else "in", members
    return "any", None


def _value(text: str) -> Value:
    first = text[0]
    if first in "\"'":
        return _text(text)
    if first in "tTfF":
        return first in "tT"
    if "-" in text[1:] and "e" not in text.lower():
        return parse_time(text)
    # `constraint()` refuses an integer or a float that is too large.
    return int(text) if text.lstrip("+-").isdigit() else float(text)


_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "`": "`"}


def _text(quoted: str) -> str:
    """What a string in quotes stands for; BadFilterError for an escape that is none."""
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner
    if "\\" not in inner.replace("\\\\", ""):
        return inner.replace("\\\\", "\\")  # paths of Windows: nothing is escaped but backslashes
    try:
        return _ESCAPE.sub(_character, inner)
    except (KeyError, ValueError):
        raise BadFilterError("an unusual escape") from None


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return _ESCAPED[escape[3]] if code is None else chr(int(code, 16))


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
    # Several constraints, read again, would not be alone.
    return alternatives[0] if len(alternatives) == 1 == len(alternatives[0]) else None


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
