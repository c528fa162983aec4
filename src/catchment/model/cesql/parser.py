"""Reads CESQL texts (§2, §3.6): one regular expression cuts the text into tokens, then one walk builds the expression.

The walk is written by hand because a text of 10 kB must take few milliseconds: a parser of a general library took 25.
That one, with the grammar as rules, is in the tests (`tests/cesql_grammar.py`), and they compare the two: the same
expressions, the same errors.

Precedence, weakest first: AND, OR and XOR; comparisons; sums; products; LIKE and IN; NOT and minus. Operators of one
level go left to right and become one flat chain, whatever its length. A sign that touches its digits, where an operand
may stand, is part of the number. So `4 -1` is a subtraction, and `-1` after an operator is one literal.

Each parenthesis, call, list and right operand is one level of recursion. CESQL_DEPTH_MAX bounds it on the way down, and
what it bounds on the way up is the depth of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

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

# Evaluation and printing take a few Python stack frames for each level. People nest a handful.
CESQL_DEPTH_MAX: Final = 128

WHAT: Final = "CESQL expression"

# An expression, and how deep its text nests, parentheses included.
_Parsed = tuple[Expression, int]


# --- tokens -------------------------------------------------------------------------------------

# A token, and the white space after it. Every character is in some token: a string that does not end takes all the
# rest, and a character that begins no token is one by itself. No quantifier gives anything back, so cutting is linear.
_TOKEN: Final = re.compile(
    r"""([A-Za-z0-9_]++|'(?>[^'\\]++|\\[\s\S])*+'|"(?>[^"\\]++|\\[\s\S])*+"|['"][\s\S]*+|!=|<>|<=|>=|[\s\S])"""
    r"([ \t\r\n]*+)"
)
_START: Final = re.compile(r"[ \t\r\n]*+")
_UNDERSCORED: Final = re.compile(r"[A-Za-z]+_[A-Za-z_]*")

_OPERATORS: Final = {
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">="), "COMPARISON"),
    **dict.fromkeys("+-", "SUM"),
    **dict.fromkeys("*/%", "PRODUCT"),
}
_KINDS: Final = {**_OPERATORS, "(": "(", ")": ")", ",": ","}
_KEYWORDS: Final = {
    **dict.fromkeys(("and", "or", "xor"), "LOGIC"),
    **dict.fromkeys(("true", "false"), "BOOLEAN"),
    **{word: word.upper() for word in ("not", "like", "in", "exists")},
}
_LEVELS: Final = {"LOGIC": 0, "COMPARISON": 1, "SUM": 2, "PRODUCT": 3}
_END: Final = "END"
_BAD: Final = "BAD"


def _kind(token: str) -> str:
    """What a token is. Letters name an attribute or a function, with digits only an attribute, with underscores only a
    function."""
    if (known := _KINDS.get(token)) is not None:
        return known
    if token[0] in "'\"":
        return "STRING" if _is_closed(token) else _BAD
    if not token.isascii() or not token.replace("_", "a").isalnum():
        return _BAD
    if token.isalpha():
        return _KEYWORDS.get(token.lower(), "WORD")
    if token.isdigit():
        return "INTEGER"
    if token.isalnum():
        return "NAME"
    return "FUNCTION" if _UNDERSCORED.fullmatch(token) else _BAD


_CLOSED: Final = re.compile(r"""'(?>[^'\\]++|\\[\s\S])*+'|"(?>[^"\\]++|\\[\s\S])*+\"""")


def _is_closed(literal: str) -> bool:
    return _CLOSED.fullmatch(literal) is not None


# --- expressions --------------------------------------------------------------------------------

# What may stand where, in the order in which an error lists it.
_OPERAND: Final = (
    "an integer",
    "a quoted string",
    "TRUE or FALSE",
    "an attribute name",
    "a function name",
    "(",
    "-",
    "EXISTS",
    "NOT",
)
_AFTER_OPERAND: Final = (
    "a comparison such as =",
    "LIKE",
    "IN",
    "NOT",
    "AND, OR, XOR",
    "+, -",
    "*, /, %",
)


def parsed(text: str) -> Expression:
    """The expression that a text writes; ParseError or LimitError if it writes none."""
    return _Walk(text).whole()


class _Walk:
    """A walk over the tokens of a text: where it is, and how deep."""

    def __init__(self, text: str) -> None:
        start = _START.match(text)
        assert start is not None
        self._text = text
        self._pieces: list[tuple[str, str]] = [(text[: start.end()], ""), *_TOKEN.findall(text, start.end())]
        self._tokens = [token for token, _ in self._pieces] + [""]
        self._kinds = ["", *map(_kind, self._tokens[1:-1]), _END]
        self._at = 1
        self._depth = 0

    def whole(self) -> Expression:
        expression, _ = self._expression(0)
        if self._kinds[self._at] != _END:
            raise self._unexpected_after_operand("the end of the text")
        return expression

    # --- chains of operators ---

    def _expression(self, level: int) -> _Parsed:
        """Operands joined by operators of this level or a stronger one."""
        left = self._tested()
        while (own := _LEVELS.get(self._kinds[self._at], -1)) >= level:
            left = self._chain(left, own)
        return left

    def _chain(self, first: _Parsed, level: int) -> _Parsed:
        """One chain of operators of a level, after its first operand."""
        kinds, rest = self._kinds, []
        expression, depth = first
        self._go_down()
        while _LEVELS.get(kinds[self._at]) == level:
            symbol = self._tokens[self._at].upper()
            self._at += 1
            operand, its_depth = self._expression(level + 1)
            rest.append(("!=" if symbol == "<>" else symbol, operand))
            depth = max(depth, its_depth)
        self._depth -= 1
        return _nested(_chain(expression, tuple(rest)), depth)

    def _tested(self) -> _Parsed:
        """An operand, and the tests LIKE and IN after it."""
        operand = self._operand()
        while (kind := self._kinds[self._at]) in _TESTS:
            self._at += 1
            is_negated = kind == "NOT"
            if is_negated:
                kind = self._kinds[self._at]
                if kind not in ("LIKE", "IN"):
                    raise self._unexpected("LIKE", "IN")
                self._at += 1
            operand = self._like(operand) if kind == "LIKE" else self._membership(operand)
            if is_negated:
                operand = _nested(Not(operand[0]), operand[1])
        return operand

    def _like(self, operand: _Parsed) -> _Parsed:
        pattern = unquoted(self._take("STRING", "a quoted string"))
        like_test(pattern)  # refuses a pattern that is too long now, not at the first notification
        return _nested(Like(operand[0], pattern), operand[1])

    def _membership(self, operand: _Parsed) -> _Parsed:
        self._take("(", "(")
        elements, depth = self._listed()
        return _nested(In(operand[0], elements), max(depth, operand[1]))

    def _listed(self) -> tuple[tuple[Expression, ...], int]:
        """Expressions up to the parenthesis that closes their list, and how deep the deepest nests."""
        self._go_down()
        elements = [self._expression(0)]
        while self._kinds[self._at] == ",":
            self._at += 1
            elements.append(self._expression(0))
        self._close("','")
        return tuple(element for element, _ in elements), max(depth for _, depth in elements)

    # --- operands ---

    def _operand(self) -> _Parsed:
        """NOT and minus, any number of them, and what they stand before."""
        makers: list[Callable[[Expression], Expression]] = []
        while True:
            kind, token = self._kinds[self._at], self._tokens[self._at]
            if kind == "NOT":
                makers.append(Not)
            elif token == "-" and not self._is_sign():
                makers.append(_minus)
            else:
                break
            self._at += 1
        parsed = self._primary(kind, token)
        for make in reversed(makers):
            parsed = _nested(make(parsed[0]), parsed[1])
        return parsed

    def _primary(self, kind: str, token: str) -> _Parsed:
        self._at += 1
        match kind:
            case "WORD" if self._kinds[self._at] != "(":
                return Attribute(token.lower()), 1
            case "WORD" | "FUNCTION":
                return self._call(token.upper())
            case "INTEGER":
                return Literal(self._integer(token)), 1
            case "STRING":
                return Literal(unquoted(token)), 1
            case "NAME":
                return Attribute(token.lower()), 1
            case "BOOLEAN":
                return Literal(token.lower() == "true"), 1
            case "(":
                self._go_down()
                expression, depth = self._expression(0)
                self._close()
                return _nested(expression, depth)
            case "EXISTS":
                # Digits alone are a number elsewhere, but here only a name may stand.
                if self._kinds[self._at] not in ("WORD", "NAME", "INTEGER"):
                    raise self._unexpected("an attribute name")
                self._at += 1
                return Exists(self._tokens[self._at - 1].lower()), 1
            case "SUM" if self._is_sign(self._at - 1):
                self._at += 1
                return Literal(self._integer(token + self._tokens[self._at - 1])), 1
        self._at -= 1
        raise self._unexpected(*_OPERAND)

    def _call(self, name: str) -> _Parsed:
        self._take("(", "(")
        if self._kinds[self._at] == ")":
            self._at += 1
            return Call(name, ()), 1
        if self._kinds[self._at] in _NO_OPERAND or (self._tokens[self._at] == "+" and not self._is_sign()):
            raise self._unexpected(*_OPERAND, ")")
        arguments, depth = self._listed()
        return _nested(Call(name, arguments), depth)

    def _is_sign(self, at: int | None = None) -> bool:
        """Whether the token is a sign that touches the digits after it."""
        at = self._at if at is None else at
        return self._kinds[at + 1] == "INTEGER" and not self._pieces[at][1]

    def _integer(self, written: str) -> int:
        number = integer_from_text(written)
        if number is None:
            self._at -= 1 if written[0].isdigit() else 2
            raise self._error(shown(written), [f"an integer from {INTEGER_MIN} to {INTEGER_MAX}"])
        return number

    # --- steps of the walk ---

    def _take(self, kind: str, name: str) -> str:
        if self._kinds[self._at] != kind:
            raise self._unexpected(name)
        self._at += 1
        return self._tokens[self._at - 1]

    def _close(self, *also: str) -> None:
        if self._kinds[self._at] != ")":
            raise self._unexpected_after_operand(*also, ")")
        self._at += 1
        self._depth -= 1

    def _go_down(self) -> None:
        self._depth += 1
        if self._depth >= CESQL_DEPTH_MAX:
            raise _too_deep()

    # --- errors ---

    def _unexpected_after_operand(self, *closing: str) -> ParseError:
        # A word of letters, where an attribute may stand, is a function if a parenthesis follows.
        is_name = self._kinds[self._at - 1] == "WORD" and self._kinds[self._at - 2] != "EXISTS"
        return self._unexpected(*(["("] if is_name else []), *_AFTER_OPERAND, *closing)

    def _unexpected(self, *expected: str) -> ParseError:
        token, kind = self._tokens[self._at], self._kinds[self._at]
        if kind == _END:
            return self._error("the end of the text", expected)
        if kind == _BAD and token[0] in "'\"":
            return self._error("a string that does not end", expected)
        if kind == "SUM" and self._is_sign():
            token += self._tokens[self._at + 1]
        return self._error(shown(token), expected)

    def _error(self, found: str, expected: Sequence[str]) -> ParseError:
        offset = sum(len(token) + len(space) for token, space in self._pieces[: self._at])
        return parse_error(self._text, offset, found, expected)


_TESTS: Final = frozenset({"LIKE", "IN", "NOT"})
# Where arguments may begin, these begin none.
_NO_OPERAND: Final = frozenset({_END, _BAD, ",", "LOGIC", "COMPARISON", "PRODUCT", "LIKE", "IN"})


def parse_error(text: str, offset: int, found: str, expected: Sequence[str]) -> ParseError:
    line_start = text.rfind("\n", 0, offset) + 1
    return ParseError(WHAT, text.count("\n", 0, offset) + 1, offset - line_start + 1, found, expected)


def _nested(expression: Expression, depth: int) -> _Parsed:
    """A node over operands of which the deepest nests so deep."""
    if depth >= CESQL_DEPTH_MAX:
        raise _too_deep()
    return expression, depth + 1


def _too_deep() -> LimitError:
    return LimitError("CESQL_DEPTH_MAX", CESQL_DEPTH_MAX, "deeper nesting", "use fewer parentheses")


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
