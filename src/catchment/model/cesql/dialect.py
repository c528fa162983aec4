"""CESQL, the CloudEvents SQL expression language 1.0.0: the second dialect of filters.

A `Cesql` is a parsed expression. `evaluate` computes its value over the attributes of a notification in
*complete* mode (§4.1): value and errors both. `matches` is what a filter makes of that (§1.2): the value
is a Boolean, it is true, and nothing went wrong. `filter` is what brokers route by: the tightest Catchment
filter that holds whenever the expression matches.

Where the specification leaves room:

- *Syntax* (§2, §3.6). NOT and minus bind tighter than LIKE, IN and every binary operator, so `NOT a = b`
  is `(NOT a) = b`. AND, OR and XOR have one precedence and go left to right. Identifiers are lower-cased;
  keywords are reserved. In a string literal a backslash before the literal's own quote takes the quote;
  every other backslash stays, together with the character after it.
- *Errors* (§3.3). An operator or function whose operand went wrong yields the zero value of its own
  return type, and faults are collected on the way; the first one is `Evaluation.error`. So `missing != 2`
  and `NOT (missing = 2)` are both false. A call that no function answers leaves its arguments alone.
- *Overflow* of 32-bit arithmetic is a math error with value 0, except ABS, which the text settles.
- *IN* (§3.4.5) looks at its elements in order and stops at the first equal one.

Parsing is one LALR pass and takes time linear in the text. No step recurses on the depth of the input:
chains of operators are flat, and nesting past CESQL_DEPTH_MAX is refused while the tree is built.
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

# As long as the longest string value: a longer expression is data in disguise. Bounds parse time and memory.
CESQL_TEXT_CODEPOINTS_MAX: Final = 65_536
# Evaluation and printing take a few Python frames for each level; people nest a handful.
CESQL_DEPTH_MAX: Final = 128

WHAT: Final = "CESQL expression"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an expression came to: a value always, and whatever went wrong on the way."""

    value: CesqlValue
    errors: tuple[CesqlFault, ...] = ()

    @property
    def error(self) -> ErrorKind | None:
        """The kind of the first error."""
        return self.errors[0].kind if self.errors else None


class Cesql:
    """A CESQL expression. Immutable; equal expressions have equal canonical text, which `str()` gives."""

    text: str
    root: Expression

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "root", _parsed(_checked_text(text)))
        object.__setattr__(self, "text", str(self.root))
        # What prints must parse again, so the canonical text obeys the limit too.
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
        """Its value over these attributes; BadValueError when it meets a value of no Catchment type."""
        faults = Faults()
        value = self.root.evaluate(attributes, faults)
        return Evaluation(value, tuple(faults.found))

    def matches(self, attributes: Attributes) -> bool:
        """Whether a filter of this expression lets a notification of these attributes pass."""
        faults = Faults()
        return self.root.evaluate(attributes, faults) is True and not faults.found

    @cached_property
    def filter(self) -> Filter:
        """The tightest filter found that matches every notification the expression matches."""
        from catchment.model.cesql.implied import implied_filter  # here: filters may come to know of CESQL

        return implied_filter(self.root)

    def to_json(self) -> dict[str, str]:
        return {"dialect": "cesql", "text": self.text}

    @classmethod
    def from_json(cls, found: object) -> Cesql:
        if not isinstance(found, Mapping) or set(found) != {"dialect", "text"} or found["dialect"] != "cesql":
            raise BadFilterError(f'{shown(found)} is no CESQL filter: write {{"dialect": "cesql", "text": …}}')
        return cls(found["text"])


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise BadFilterError(f"a {WHAT} is a string, not the {type(text).__name__} {shown(text)}")
    _check_size(text, "a text")
    if not text.isascii() and (found := _SURROGATE.search(text)):
        raise _parse_error(text, found.start(), f"the lone surrogate U+{ord(found[0]):04X}", ["Unicode text"])
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
        found: _Parsed = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedInput as problem:
        raise _explained(text, problem) from None
    return found.expression


class _Parsed(NamedTuple):
    """A subtree and how deep its text nests, parentheses included."""

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
    """Makes the tree as the parser reduces, so that no pass over a parse tree is needed."""

    def start(self, found: _Parsed) -> _Parsed:
        return found

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
        return _nested(lambda *found: Call(str(name).upper(), found), *given)

    def negation(self, keyword: Token, operand: _Parsed) -> _Parsed:
        return _nested(Not, operand)

    def minus(self, sign: Token, operand: _Parsed) -> _Parsed:
        return _nested(_minus, operand)

    def like(self, operand: _Parsed, negation: Token | None, keyword: Token, literal: Token) -> _Parsed:
        pattern = unquoted(str(literal))
        like_test(pattern)  # refuses a pattern too long now, not at the first notification
        found = _nested(lambda expression: Like(expression, pattern), operand)
        return found if negation is None else _nested(Not, found)

    def membership(self, operand: _Parsed, negation: Token | None, keyword: Token, *elements: _Parsed) -> _Parsed:
        found = _nested(lambda expression, *others: In(expression, others), operand, *elements)
        return found if negation is None else _nested(Not, found)

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
    """`(a + b) - c` is the chain `a + b - c`. Where AND, OR and XOR mix, parentheses help the reader: they stay."""
    found = Infix(first, rest)
    if not isinstance(first, Infix) or first.precedence != found.precedence:
        return found
    symbols = {symbol for symbol, _ in first.rest + rest}
    return found if len(symbols) > 1 and symbols <= LOGIC else Infix(first.first, first.rest + rest)


# --- errors -------------------------------------------------------------------------------------

# In the order in which an error lists them.
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
    """Where parsing stopped, what stands there, and what could stand there instead."""
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
    """The terminals the parser would take at an offset, found by parsing up to there again."""
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
