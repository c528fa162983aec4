"""Parses text into filters, advertisements and patterns. `str()` of these prints the text again.

The grammar is in `language.lark` beside this file. Parsing is LALR(1) and builds expressions as it reads, without
recursion. So its time is linear in the text, and no nesting can exhaust the stack. The depth and size of an expression
are checked while it grows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, VisitError

from catchment.errors import BadFilterError, CatchmentError, LimitError, ParseError, shown
from catchment.model.constraint import OPERATORS, Constraint, Kind, constraint
from catchment.model.expression import FILTER_CONSTRAINTS_MAX, FILTER_DEPTH_MAX, And, Expression, Not, Or
from catchment.model.fast_path import (
    parsed_advertisement_fast,
    parsed_expression_fast,
    parsed_fast,
    parsed_pattern_fast,
)
from catchment.model.values import INT_MAX, Value, parse_duration, parse_time

# Any filter within `filter.FILTER_SIZE_MAX` prints to a shorter text, which must parse again.
FILTER_TEXT_CODEPOINTS_MAX: Final = 262_144

__all__ = ["And", "Expression", "Not", "Or", "parse_advertisement", "parse_duration", "parse_filter", "parse_pattern"]


def parse_filter(text: str) -> Expression:
    constraints = parsed_fast(text)
    if constraints is not None:
        return constraints[0] if len(constraints) == 1 else And(constraints)
    expression = parsed_expression_fast(text)
    return parse_any_filter(text) if expression is None else expression


def parse_any_filter(text: str) -> Expression:
    """The same, always by the grammar."""
    expression: Expression = _parsed(text, "filter")
    return expression


def parse_advertisement(text: str) -> list[Constraint]:
    constraints = parsed_advertisement_fast(text)
    if constraints is None:
        return parse_any_advertisement(text)
    return [_negated(constraint) if is_negated else constraint for constraint, is_negated in constraints]


def parse_any_advertisement(text: str) -> list[Constraint]:
    """The same, always by the grammar."""
    constraints: list[Constraint] = _parsed(text, "advertisement")
    return constraints


def parse_pattern(text: str) -> tuple[list[Expression], timedelta | None, list[str]]:
    """The filters of the sequence, `within` and `by`."""
    parts = parsed_pattern_fast(text)
    if parts is None:
        return parse_any_pattern(text)
    steps, within, by = parts
    try:
        return steps, None if within is None else parse_duration(within), by
    except CatchmentError:
        return parse_any_pattern(text)  # it says where the duration is


def parse_any_pattern(text: str) -> tuple[list[Expression], timedelta | None, list[str]]:
    """The same, always by the grammar."""
    parts: tuple[list[Expression], timedelta | None, list[str]] = _parsed(text, "pattern")
    return parts


def _parsed(text: str, what: str) -> Any:
    if not isinstance(text, str):
        raise BadFilterError(f"a {what} is text, found {type(text).__name__} {shown(text)}")
    if len(text) > FILTER_TEXT_CODEPOINTS_MAX:
        raise LimitError("FILTER_TEXT_CODEPOINTS_MAX", FILTER_TEXT_CODEPOINTS_MAX, f"{len(text):,} characters")
    try:
        return _parser().parse(text, start=what)
    except UnexpectedInput as problem:
        raise _explained(problem, text, what) from None
    except VisitError as problem:
        if isinstance(problem.orig_exc, CatchmentError):
            raise problem.orig_exc from None
        raise


@cache
def _parser() -> Lark:
    grammar = (files(__package__) / "language.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["filter", "advertisement", "pattern"],
        transformer=_Builder(),
        maybe_placeholders=True,
        propagate_positions=False,
    )


# --- building -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sized:
    """An expression while it is being built, with its depth and its number of constraints."""

    expression: Expression
    depth: int
    size: int


def _combined(kind: type[And] | type[Or], parts: Sequence[_Sized]) -> _Sized:
    size = sum(part.size for part in parts)
    if size > FILTER_CONSTRAINTS_MAX:
        raise LimitError("FILTER_CONSTRAINTS_MAX", FILTER_CONSTRAINTS_MAX, f"{size:,} constraints")
    if len(parts) == 1:
        return parts[0]
    return _bounded(_Sized(kind(tuple(part.expression for part in parts)), _depth(parts), size))


def _depth(parts: Sequence[_Sized]) -> int:
    return 1 + max(part.depth for part in parts)


def _bounded(sized: _Sized) -> _Sized:
    if sized.depth > FILTER_DEPTH_MAX:
        raise LimitError("FILTER_DEPTH_MAX", FILTER_DEPTH_MAX, "deeper nesting", "flatten the expression")
    return sized


class _Builder(Transformer[Token, Any]):
    """Called by the parser bottom-up, one method for each rule of the grammar."""

    def filter(self, clauses: list[_Sized]) -> Expression:
        return _combined(And, clauses).expression

    def advertisement(self, constraints: list[_Sized]) -> list[Expression]:
        _combined(And, constraints)
        return [constraint.expression for constraint in constraints]

    def advertised_not(self, parts: list[_Sized]) -> _Sized:
        advertised = parts[0].expression
        assert isinstance(advertised, Constraint)
        return _Sized(_negated(advertised), 0, 1)

    def pattern(self, parts: list[Any]) -> tuple[list[Expression], timedelta | None, list[str]]:
        steps = [part.expression for part in parts if isinstance(part, _Sized)]
        tokens = [part for part in parts if isinstance(part, Token)]
        within = [_located(token, parse_duration) for token in tokens if token.type == "DURATION"]
        return steps, within[0] if within else None, [str(token) for token in tokens if token.type == "NAME"]

    def step(self, clauses: list[_Sized]) -> _Sized:
        return _combined(And, clauses)

    parenthesis = step

    def disjunction(self, parts: list[_Sized]) -> _Sized:
        return _combined(Or, parts)

    def conjunction(self, parts: list[_Sized]) -> _Sized:
        return _combined(And, parts)

    def negated(self, parts: list[_Sized]) -> _Sized:
        return _bounded(_Sized(Not(parts[0].expression), parts[0].depth + 1, parts[0].size))

    def truth(self, tokens: list[Token]) -> _Sized:
        return _Sized(_is_true(tokens[0]), 0, 1)

    def existence(self, names: list[Token]) -> _Sized:
        return _Sized(Not(_constrained(names[0], "absent", None, None).expression), 0, 1)

    def comparison(self, parts: list[Any]) -> _Sized:
        kind, name, operator, value = parts
        return _constrained(name, operator.lower(), value, kind)

    def membership(self, parts: list[Any]) -> _Sized:
        kind, name, *values = parts
        return _constrained(name, "in", values, kind)

    def comparison_nocase(self, parts: list[Any]) -> _Sized:
        kind, name, operator, value = parts
        return _constrained(name, f"{operator.lower()} nocase", value, kind)

    def membership_nocase(self, parts: list[Any]) -> _Sized:
        kind, name, *values = parts
        return _constrained(name, "in nocase", values, kind)

    def presence(self, parts: list[Any]) -> _Sized:
        kind, name = parts
        return _constrained(name, "any", None, kind or Kind.ANY)

    def name(self, tokens: list[Token]) -> Token:
        token = tokens[0]
        text = _unescaped(token) if token.type == "QUOTED_NAME" else str(token)
        return Token.new_borrow_pos("NAME", text, token)

    def type(self, tokens: list[Token]) -> Kind:
        return Kind(str(tokens[0]))

    def string(self, tokens: list[Token]) -> str:
        return _unescaped(tokens[0])

    def value(self, parts: list[Any]) -> Value:
        part = parts[0]
        if not isinstance(part, Token):
            return str(part)
        match part.type:
            case "NUMBER":
                return _number(part)
            case "TIME":
                time: Value = _located(part, parse_time)
                return time
            case _:
                return _is_true(part)


def _negated(advertised: Constraint) -> Constraint:
    if f"not {advertised.operator}" not in OPERATORS:
        raise BadFilterError(f"not {advertised}: an advertisement says what may appear; use != or another operator")
    return constraint(advertised.name, f"not {advertised.operator}", advertised.value, advertised.kind)


def _constrained(name: Token, operator: str, value: object, kind: Kind | None) -> _Sized:
    return _Sized(_located(name, lambda text: constraint(text, operator, value, kind)), 0, 1)


def _is_true(token: Token) -> bool:
    return token.lower() == "true"


def _located(token: Token, convert: Any) -> Any:
    """`convert` applied to a token. An error becomes a ParseError that says where the token is."""
    try:
        return convert(str(token))
    except LimitError:
        raise
    except CatchmentError as problem:
        raise ParseError("text", token.line or 1, token.column or 1, str(problem), ()) from None


def _number(token: Token) -> int | float:
    if token.lstrip("+-").isdigit():
        if len(token) > len(str(INT_MAX)) + 1 or not -INT_MAX - 1 <= int(token) <= INT_MAX:
            raise _misplaced(
                token, f"the integer {shown(str(token))}", "an integer of 64 bits, or a float such as 1e30"
            )
        return int(token)
    number = float(token)
    if number in (float("inf"), float("-inf")):
        raise _misplaced(token, f"the number {shown(str(token))}", "a number below 1.8e308")
    return number


def _misplaced(token: Token, found: str, expected: str) -> ParseError:
    return ParseError("text", token.line or 1, token.column or 1, found, (expected,))


_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "`": "`"}


def _unescaped(token: Token) -> str:
    inner = token[1:-1]
    if "\\" not in inner:
        return inner

    def character(escape: re.Match[str]) -> str:
        code, simple = escape[1] or escape[2], escape[3]
        if code is None and simple in _ESCAPED:
            return _ESCAPED[simple]
        if code is not None and int(code, 16) <= 0x10FFFF:
            return chr(int(code, 16))
        wanted = r"\\, \", \', \`, \n, \r, \t, \u0041 or \u{1f600}; a backslash itself is \\"
        raise _misplaced(token, f"the escape {shown(escape[0])}", wanted)

    return _ESCAPE.sub(character, inner)


# --- errors -------------------------------------------------------------------------------------

_NAMES: Final = {
    "NAME": "an attribute name",
    "QUOTED_NAME": "a `quoted name`",
    "TYPE": "a type (string, number, int, float, bool, time)",
    "EQUALITY": "= !=",
    "ORDER": "< <= > >=",
    "STRING_OPERATOR": ">* (prefix) *< (suffix) * (contains) glob matches cidr",
    "_NOCASE": "nocase",
    "STRING": "a string in quotes",
    "NUMBER": "a number",
    "TIME": "a time such as 2026-11-15T10:30:00Z",
    "DURATION": "a duration such as 10m",
    "TRUE": "true",
    "FALSE": "false",
    "COMMA": "a comma",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "__ANON_0": "->",
    "$END": "the end",
}


def _explained(problem: UnexpectedInput, text: str, what: str) -> ParseError:
    if isinstance(problem, UnexpectedCharacters):
        expected, found = set(problem.allowed), shown(text[problem.pos_in_stream :][:12])
    else:
        token = getattr(problem, "token", None)
        ended = isinstance(problem, UnexpectedEOF) or token is None or token.type == "$END"
        found = "the end" if ended else shown(str(token))
        expected = getattr(problem, "accepts", None) or getattr(problem, "expected", None) or set()
        if ended:
            line = text.count("\n") + 1
            return ParseError(what, line, len(text) - text.rfind("\n"), found, _named(expected))
    return ParseError(what, problem.line, problem.column, found, _named(expected))


def _named(terminals: Sequence[str] | set[str]) -> list[str]:
    known = [name for name in _NAMES if name in terminals]
    words = sorted(name.lstrip("_").lower() for name in terminals if name not in _NAMES and name != "WHITESPACE")
    return [_NAMES[name] for name in known] + words
