"""CESQL as text: identity, parse errors, limits."""

import copy
import pickle
import time

import pytest

from catchment.errors import BadFilterError, CatchmentError, LimitError, ParseError
from catchment.model.cesql import (
    CESQL_DEPTH_MAX,
    CESQL_TEXT_CODEPOINTS_MAX,
    Cesql,
    CesqlFault,
    ErrorKind,
)
from tests.unit.cesql_values import value

# --- text and identity --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a<>1", "a != 1"),
        ("((A))", "a"),
        ("exists  A", "EXISTS a"),
        ("not(a)and(b or C)", "NOT a AND (b OR c)"),
        ("(a AND b) AND c", "a AND b AND c"),
        ("a AND (b AND c)", "a AND (b AND c)"),
        ("(a OR b) AND c", "(a OR b) AND c"),
        ("(a + b) - c", "a + b - c"),
        ("a - (b + c)", "a - (b + c)"),
        ("(a * b) + c", "a * b + c"),
        ("a * (b + c)", "a * (b + c)"),
        ("not (a like 'x')", "a NOT LIKE 'x'"),
        ("not a like 'x'", "NOT a LIKE 'x'"),
        ("not (not (a in (1, 2)))", "NOT (a NOT IN (1, 2))"),
        ('(a = b) LIKE "t%"', "(a = b) LIKE 't%'"),
        ("-(+5)", "-5"),
        ("-(a)", "-a"),
        ("-(a + 1)", "-(a + 1)"),
        ("--2147483648", "--2147483648"),
        ("concat ( a,'b' )", "CONCAT(a, 'b')"),
        ('"it\'s"', r"'it\'s'"),
        (r'"a\'b"', r'''"a\'b"'''),  # which no single quotes can write
        ("+007", "7"),
        ("tRUE", "TRUE"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(Cesql(text)) == canonical
    assert Cesql(canonical) == Cesql(text)
    assert str(Cesql(canonical)) == canonical


def test_equal_expressions_are_equal_values():
    assert {Cesql("a = 1"), Cesql("A=(1)")} == {Cesql("(a) = +1")}
    assert Cesql("a = 1") != Cesql("1 = a")
    assert Cesql("a = 1") != "a = 1"
    assert repr(Cesql("a=1")) == "Cesql(text='a = 1')"


def test_expressions_and_evaluations_are_immutable():
    expression = Cesql("a")
    for thing, name in ((expression, "text"), (expression, "root"), (expression.evaluate({}), "value")):
        with pytest.raises(AttributeError):
            setattr(thing, name, "b")


def test_copies_pickles_and_json():
    expression = Cesql("a LIKE 'x%' OR b")
    assert copy.deepcopy(expression) == pickle.loads(pickle.dumps(expression)) == expression
    assert expression.to_json() == {"dialect": "cesql", "text": "a LIKE 'x%' OR b"}
    assert Cesql.from_json(expression.to_json()) == expression
    assert pickle.loads(pickle.dumps(CesqlFault(ErrorKind.CAST, "why"))) == CesqlFault(ErrorKind.CAST, "why")


@pytest.mark.parametrize(
    "found", [None, "a", {}, {"text": "a"}, {"dialect": "sql", "text": "a"}, {"dialect": "cesql", "text": 1}]
)
def test_json_that_is_no_expression(found):
    with pytest.raises(BadFilterError):
        Cesql.from_json(found)


def test_the_kinds_of_error_are_those_of_the_conformance_cases():
    names = {"parse", "math", "cast", "missingFunction", "functionEvaluation", "missingAttribute", "generic"}
    assert {kind.value for kind in ErrorKind} == names


# --- parse errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "found"),
    [
        ("", 1, 1, "the end of the text"),
        ("   ", 1, 4, "the end of the text"),
        ("a =", 1, 4, "the end of the text"),
        ("a = = b", 1, 5, "'='"),
        ("(a", 1, 3, "the end of the text"),
        ("a)", 1, 2, "')'"),
        ("a b", 1, 3, "'b'"),
        ("a AND\n  OR b", 2, 3, "'OR'"),
        ("a\n\n\n= 'x", 4, 3, "a string that does not end"),
        ('"x', 1, 1, "a string that does not end"),
        (r"'x\'", 1, 1, "a string that does not end"),
        ("a # b", 1, 3, "'#'"),
        ("a == b", 1, 4, "'='"),
        ("a ! = b", 1, 3, "'!'"),
        ("a LIKE b", 1, 8, "'b'"),
        ("a LIKE CONCAT('b')", 1, 8, "'CONCAT'"),
        ("a NOT b", 1, 7, "'b'"),
        ("a IN ()", 1, 7, "')'"),
        ("a IN 1", 1, 6, "'1'"),
        ("EXISTS (a)", 1, 8, "'('"),
        ("EXISTS 'a'", 1, 8, "\"'a'\""),
        ("a_b", 1, 4, "the end of the text"),
        ("a1_b", 1, 1, "'a1_b'"),
        ("f1(2)", 1, 3, "'('"),
        ("ABS(1,)", 1, 7, "')'"),
        ("+ 5", 1, 1, "'+'"),
        ("+a", 1, 1, "'+'"),
        ("in = 1", 1, 1, "'in'"),
        ("1AND 2", 1, 6, "'2'"),
        ("'it''s'", 1, 5, "\"'s'\""),
        ("2147483648", 1, 1, "'2147483648'"),
        ("a =\n  -2147483649", 2, 3, "'-2147483649'"),
        ("- 2147483648", 1, 3, "'2147483648'"),
        ("9" * 1_000, 1, 1, "'" + "9" * 58 + "…"),
        ("a = 'x\ud800'", 1, 7, "the lone surrogate U+D800"),
        ("é", 1, 1, "'\\xe9'"),
        ("\0", 1, 1, "'\\x00'"),
    ],
)
def test_a_parse_error_says_where_and_what(text, line, column, found):
    with pytest.raises(ParseError) as caught:
        Cesql(text)
    error = caught.value
    assert (error.what, error.line, error.column, error.found) == ("CESQL expression", line, column, found)
    assert error.expected


def test_a_parse_error_says_what_would_do():
    with pytest.raises(ParseError) as caught:
        Cesql("a LIKE 5")
    assert caught.value.expected == ("a quoted string",)
    assert str(caught.value) == "CESQL expression, line 1, column 8: found '5'; expected a quoted string"
    with pytest.raises(ParseError) as caught:
        Cesql("EXISTS 5 5")
    assert ")" not in caught.value.expected  # no parenthesis is open
    assert "the end of the text" in caught.value.expected
    with pytest.raises(ParseError) as caught:
        Cesql("EXISTS")
    assert caught.value.expected == ("an attribute name",)
    with pytest.raises(ParseError) as caught:
        Cesql("3000000000")
    assert caught.value.expected == ("an integer from -2147483648 to 2147483647",)


@pytest.mark.parametrize("text", [None, 5, b"a", ["a"]])
def test_text_that_is_no_text(text):
    with pytest.raises(BadFilterError):
        Cesql(text)


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "NOT " * 10_000 + "a",
        "-" * 10_000 + "a",
        "ABS(" * 10_000 + "1" + ")" * 10_000,
        "a IN (" * 9_000 + "1" + ")" * 9_000,
        "a" + " LIKE 'a'" * 5_000,
        "a" + " NOT IN (1)" * 5_000,
        "1 + (" * 10_000 + "1" + ")" * 10_000,
        "(a AND (" * 5_000 + "1" + "))" * 5_000,
    ],
)
def test_deep_nesting_is_refused_quickly(text):
    started = time.perf_counter()
    with pytest.raises(LimitError, match="CESQL_DEPTH_MAX"):
        Cesql(text)
    assert time.perf_counter() - started < 5


def test_nesting_up_to_the_limit_parses_evaluates_and_prints():
    for open_, close in (("(", ")"), ("ABS(", ")"), ("NOT ", ""), ("1 + ABS(2 * ", ")")):
        depth = (CESQL_DEPTH_MAX - 1) // (1 + open_.count("+") * 2)
        expression = Cesql(open_ * depth + "1" + close * depth)
        expression.evaluate({})
        assert Cesql(str(expression)) == expression
        assert expression.filter.boxes is not None
    with pytest.raises(LimitError):
        Cesql("(" * CESQL_DEPTH_MAX + "1" + ")" * CESQL_DEPTH_MAX)


def test_chains_are_flat_however_long():
    terms = 8_000
    assert value(" + ".join(["1"] * terms)) == terms
    assert value(" AND ".join(["on"] * terms)) is True
    assert value(f"7 IN ({', '.join(map(str, range(terms)))})") is True
    expression = Cesql(" OR ".join(f"x = {i}" for i in range(4_000)))
    assert expression.matches({"x": 3_999})
    assert Cesql(str(expression)) == expression


def test_text_up_to_the_limit():
    assert value("'" + "x" * (CESQL_TEXT_CODEPOINTS_MAX - 2) + "'") == "x" * (CESQL_TEXT_CODEPOINTS_MAX - 2)
    with pytest.raises(LimitError, match="CESQL_TEXT_CODEPOINTS_MAX is 65,536, found a text of 65,537"):
        Cesql(" " * (CESQL_TEXT_CODEPOINTS_MAX + 1))
    with pytest.raises(LimitError, match="a canonical text of"):
        Cesql("1" + "+1" * (CESQL_TEXT_CODEPOINTS_MAX // 2 - 1))


def test_a_pattern_too_long_is_refused_at_once():
    with pytest.raises(LimitError, match="GLOB_CODEPOINTS_MAX"):
        Cesql(f"a LIKE '%{'x' * 5_000}'")


@pytest.mark.parametrize(
    "text",
    [
        "'" * 65_000,
        "'" + "\\'" * 32_000,
        "\\" * 65_000,
        "a1" * 32_000 + "_",
        "_" * 65_000,
        "(" * 65_000,
        ")" * 65_000,
        "NOT " * 16_000,
        "EXISTS " * 9_000,
        "a." * 30_000,
        "0" * 60_000 + "x_",
        "\n" * 65_000 + "!",
        "x LIKE 'a' AND " * 4_000,
        "\ud800" * 60_000,
        "𝄞" * 65_000,
    ],
)
def test_hostile_text_gets_a_typed_error_in_time(text):
    started = time.perf_counter()
    with pytest.raises(CatchmentError):
        Cesql(text)
    assert time.perf_counter() - started < 5
