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

Parsing is a single LALR pass and takes time linear in the text. No step recurses on the length of the input:
chains of operators are flat, and nesting deeper than CESQL_DEPTH_MAX is refused while the tree is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from catchment.errors import BadFilterError, LimitError, ParseError, shown
from catchment.model.cesql.expression import (
    LOGIC,
    Attribute,
    Attributes,
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
from catchment.model.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    CesqlFault,
    CesqlValue,
    ErrorKind,
    Faults,
    integer_from_text,
)

if TYPE_CHECKING:
    from catchment.model.filter import Filter

__all__ = ["CESQL_DEPTH_MAX", "CESQL_TEXT_CODEPOINTS_MAX", "Cesql", "CesqlFault", "ErrorKind", "Evaluation"]

# As long as the longest string value. It bounds the time and memory of parsing.
CESQL_TEXT_CODEPOINTS_MAX: Final = 65_536
# Evaluation and printing take a few Python stack frames for each level. People nest a handful.
CESQL_DEPTH_MAX: Final = 128

WHAT: Final = "CESQL expression"


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
        object.__setattr__(self, "root", _parsed(_checked_text(text)))
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
        raise _parse_error(text, surrogate.start(), found, ["Unicode text"])
    return text


def _check_size(text: str, what: str) -> None:
    if len(text) > CESQL_TEXT_CODEPOINTS_MAX:
        raise LimitError("CESQL_TEXT_CODEPOINTS_MAX", CESQL_TEXT_CODEPOINTS_MAX, f"{what} of {len(text):,}")


# --- parsing ------------------------------------------------------------------------------------


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("cesql.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True, transformer=_Builder())


def _parsed(text: str) -> Expression:
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
    if depth > CESQL_DEPTH_MAX:
        raise LimitError("CESQL_DEPTH_MAX", CESQL_DEPTH_MAX, "deeper nesting", "use fewer parentheses")
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
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]
            if token.start_pos >= offset:
                break
            parser.feed_token(token)
    return set(parser.accepts())  # type: ignore[no-untyped-call]


def _parse_error(text: str, offset: int, found: str, expected: Sequence[str]) -> ParseError:
    line_start = text.rfind("\n", 0, offset) + 1
    return ParseError(WHAT, text.count("\n", 0, offset) + 1, offset - line_start + 1, found, expected)
