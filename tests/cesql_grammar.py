"""The grammar of CESQL as rules (`cesql.lark`), read by a parser of a general library: what the parser written by hand
(`model/cesql/parser.py`) must agree with, in expressions and in errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from catchment.errors import LimitError, ParseError, shown
from catchment.model.cesql.expression import (
    LOGIC,
    Attribute,
    Call,
    Exists,
    Expression,
    In,
    Infix,
    Like,
    Literal,
    Minus,
    Not,
    unquoted,
)
from catchment.model.cesql.like import like_test
from catchment.model.cesql.values import INTEGER_MAX, INTEGER_MIN, integer_from_text

DEPTH_MAX: Final = 128
WHAT: Final = "CESQL expression"


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("cesql.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True, transformer=_Builder())


def parsed_by_rules(text: str) -> Expression:
    try:
        parsed: _Parsed = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedInput as problem:
        raise _explained(text, problem) from None
    return parsed.expression


class _Parsed(NamedTuple):
    """A subtree, and how deep its text nests, parentheses included."""

    expression: Expression
    depth: int


def _nested(make: Callable[..., Expression], *parts: _Parsed) -> _Parsed:
    """A node over its operands, one level deeper than the deepest."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEPTH_MAX:
        raise LimitError("CESQL_DEPTH_MAX", DEPTH_MAX, "deeper nesting", "use fewer parentheses")
    return _Parsed(make(*(part.expression for part in parts)), depth)


@v_args(inline=True)
class _Builder(Transformer[Token, _Parsed]):
    """Builds the expression while the parser reads, so that no pass over a parse tree is needed."""

    def start(self, whole: _Parsed) -> _Parsed:
        return whole

    def group(self, inner: _Parsed) -> _Parsed:
        return _nested(lambda expression: expression, inner)

    def integer(self, token: Token) -> _Parsed:
        number = integer_from_text(token)
        if number is None:
            accepted = f"an integer from {INTEGER_MIN} to {INTEGER_MAX}"
            raise ParseError(WHAT, token.line or 1, token.column or 1, shown(str(token)), [accepted])
        return _Parsed(Literal(number), 1)

    def boolean(self, token: Token) -> _Parsed:
        return _Parsed(Literal(token.lower() == "true"), 1)

    def string(self, token: Token) -> _Parsed:
        return _Parsed(Literal(unquoted(str(token))), 1)

    def identifier(self, token: Token) -> str:
        return str(token).lower()

    def attribute(self, name: str) -> _Parsed:
        return _Parsed(Attribute(name), 1)

    def exists(self, keyword: Token, name: str) -> _Parsed:
        return _Parsed(Exists(name), 1)

    def call(self, name: Token, *arguments: _Parsed | None) -> _Parsed:
        given = [argument for argument in arguments if argument is not None]
        return _nested(lambda *expressions: Call(str(name).upper(), expressions), *given)

    def negation(self, keyword: Token, operand: _Parsed) -> _Parsed:
        return _nested(Not, operand)

    def minus(self, sign: Token, operand: _Parsed) -> _Parsed:
        return _nested(_minus, operand)

    def like(self, operand: _Parsed, negation: Token | None, keyword: Token, literal: Token) -> _Parsed:
        pattern = unquoted(str(literal))
        like_test(pattern)  # refuses a pattern that is too long now, not at the first notification
        test = _nested(lambda expression: Like(expression, pattern), operand)
        return test if negation is None else _nested(Not, test)

    def membership(self, operand: _Parsed, negation: Token | None, keyword: Token, *elements: _Parsed) -> _Parsed:
        test = _nested(lambda expression, *others: In(expression, others), operand, *elements)
        return test if negation is None else _nested(Not, test)

    def infix(self, first: _Parsed, *rest: Any) -> _Parsed:
        symbols = [_SPELLINGS.get(symbol.upper(), symbol.upper()) for symbol in rest[::2]]
        return _nested(lambda left, *others: _chain(left, tuple(zip(symbols, others, strict=True))), first, *rest[1::2])


_SPELLINGS: Final = {"<>": "!="}


def _minus(operand: Expression) -> Expression:
    """The minus of an integer literal is a literal, unless that overflows."""
    if isinstance(operand, Literal) and type(operand.value) is int and operand.value != INTEGER_MIN:
        return Literal(-operand.value)
    return Minus(operand)


def _chain(first: Expression, rest: tuple[tuple[str, Expression], ...]) -> Expression:
    """Joins `(a + b) - c` to the chain `a + b - c`. Where AND, OR and XOR mix, the parentheses stay for the reader."""
    nested = Infix(first, rest)
    if not isinstance(first, Infix) or first.precedence != nested.precedence:
        return nested
    symbols = {symbol for symbol, _ in first.rest + rest}
    return nested if len(symbols) > 1 and symbols <= LOGIC else Infix(first.first, first.rest + rest)


# --- errors -------------------------------------------------------------------------------------

# The terminals of the grammar as an error message lists them, in this order.
_TERMINALS: Final = {
    "INTEGER": "an integer",
    "STRING": "a quoted string",
    "BOOLEAN": "TRUE or FALSE",
    "WORD_WITH_DIGIT": "an attribute name",
    "UNDERSCORED_WORD": "a function name",
    "LPAR": "(",
    "MINUS": "-",
    "EXISTS": "EXISTS",
    "COMPARISON_OPERATOR": "a comparison such as =",
    "LIKE": "LIKE",
    "IN": "IN",
    "NOT": "NOT",
    "LOGIC_OPERATOR": "AND, OR, XOR",
    "ADDITIVE_OPERATOR": "+, -",
    "MULTIPLICATIVE_OPERATOR": "*, /, %",
    "COMMA": "','",
    "RPAR": ")",
    "$END": "the end of the text",
}


def _explained(text: str, problem: UnexpectedInput) -> ParseError:
    """An error that says where parsing stopped, what is there, and what was expected instead."""
    token = getattr(problem, "token", None)
    at_end = token is not None and token.type == "$END"
    offset: int = len(text) if at_end else getattr(problem, "pos_in_stream", 0)
    found = "the end of the text" if at_end else _found_at(text, offset, token)
    accepted = _accepted_at(text, offset)
    return _parse_error(text, offset, found, [name for terminal, name in _TERMINALS.items() if terminal in accepted])


_WORD: Final = re.compile(r"[A-Za-z0-9_]+|[\s\S]")


def _found_at(text: str, offset: int, token: Token | None) -> str:
    if token is not None:
        return shown(str(token))
    word = _WORD.match(text, offset)
    return "a string that does not end" if word is None or word[0] in "'\"" else shown(word[0])


def _accepted_at(text: str, offset: int) -> set[str]:
    """The terminals that the parser would accept at an offset: it parses the text up to there once more."""
    parser = _parser().parse_interactive(text)
    with suppress(UnexpectedInput):
        for token in parser.lexer_thread.lex(parser.parser_state):
            if token.start_pos >= offset:
                break
            parser.feed_token(token)
    return set(parser.accepts())


def _parse_error(text: str, offset: int, found: str, expected: list[str]) -> ParseError:
    line_start = text.rfind("\n", 0, offset) + 1
    return ParseError(WHAT, text.count("\n", 0, offset) + 1, offset - line_start + 1, found, expected)
