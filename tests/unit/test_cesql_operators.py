"""CESQL rule by rule: logic, arithmetic, LIKE, IN, functions, matching."""

import time

import pytest

from catchment.model.cesql import (
    Cesql,
    ErrorKind,
    Evaluation,
)
from catchment.model.cesql import functions as cesql_functions
from tests.unit.cesql_values import HOP, outcome, value

# --- logic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["FALSE AND gone", "FALSE AND 1 / 0", "'false' AND gone", "0 AND 'x'"])
def test_and_stops_at_false(text):
    assert value(text) is False


@pytest.mark.parametrize("text", ["TRUE OR gone", "TRUE OR 1 / 0", "'true' OR gone", "5 OR 'x'"])
def test_or_stops_at_true(text):
    assert value(text) is True


def test_faults_are_collected_in_order_and_the_first_is_the_error():
    found = Cesql("1 / 0 + ABS('x')").evaluate({})
    assert found == Evaluation(0, found.errors)
    assert [fault.kind for fault in found.errors] == [ErrorKind.MATH, ErrorKind.CAST]
    assert found.error is ErrorKind.MATH
    assert str(found.errors[0]) == "math: 1 divided by zero"
    assert outcome("'x' AND gone") == (False, bool, ["cast"])
    assert outcome("'x' OR gone") == (False, bool, ["cast", "missingAttribute"])
    assert outcome("'x' XOR 'y'") == (False, bool, ["cast", "cast"])
    assert outcome("TRUE AND 1 != 1 / 0") == (False, bool, ["math"])


# --- arithmetic ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 / -2", 3),
        ("7 % 3", 1),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("-7 % -3", -1),
        ("-2147483648 % -1", 0),
        ("2147483647 - 1 + 1", 2**31 - 1),
        ("46340 * 46340", 2147395600),
        ("6 * (1 + 1) / 3", 4),
    ],
)
def test_arithmetic(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "8 / 0",
        "8 % 0",
        "0 / 0",
        "2147483647 + 1",
        "-2147483648 - 1",
        "65536 * 65536",
        "-2147483648 / -1",
        "-(-2147483648)",
        "--2147483648",
        "2147483647 + 1 - 1",
    ],
)
def test_arithmetic_without_a_result_is_zero_with_a_math_error(text):
    assert outcome(text) == (0, int, ["math"])


# --- LIKE, IN -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("", "", True),
        ("", "%", True),
        ("", "_", False),
        ("a", "", False),
        ("river", "river", True),
        ("river", "River", False),
        ("river", "r%", True),
        ("river", "%r", True),
        ("river", "%ive%", True),
        ("river", "r_v_r", True),
        ("river", "r__r", False),
        ("river", "%r%r%", True),
        ("river", "%v%v%", False),
        ("river", "_%_", True),
        ("r", "_%_", False),
        ("r\nr", "r_r", True),
        ("50%", r"50\%", True),
        ("500", r"50\%", False),
        ("a_b", r"a\_b", True),
        ("axb", r"a\_b", False),
        (r"a\b", r"a\b", True),
        (r"a\\b", r"a\b", False),
        (r"\%", r"\\%", True),
        ("a*b?c", "a*b?c", True),
        ("axb?c", "a*b?c", False),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("日本語", "日_語", True),
        ("𝄞", "_", True),
    ],
)
def test_like(text, pattern, expected):
    assert value(f"x LIKE '{pattern}'", {"x": text}) is expected
    assert value(f"x NOT LIKE '{pattern}'", {"x": text}) is not expected


def test_like_casts_its_left_side_to_a_string():
    assert value("1000 LIKE '1%'") is True
    assert value("FALSE LIKE 'f_lse'") is True
    assert value("ratio LIKE '0.%'") is True
    assert value("(4 / 2) LIKE '2'") is True


def test_like_takes_no_time_to_speak_of_over_hostile_text():
    pattern, text = "%" + "a%_" * 300 + "b", "a" * 60_000
    started = time.perf_counter()
    assert value(f"x LIKE '{pattern}'", {"x": text}) is False
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("level IN (1, 2, 3)", True),
        ("level NOT IN (1, 2, 3)", False),
        ("level IN ('3')", True),
        ("level IN ('03')", True),  # to the type of the left side
        ("'3' IN (03)", True),
        ("'03' IN (3)", False),
        ("on IN ('TRUE')", True),
        ("'TRUE' IN (on)", False),
        ("level IN (on, level)", True),
        ("level IN (hop)", False),
        ("level IN (1 + 2)", True),
        ("3 IN (level IN (3), 3)", True),
        ("level IN (3, 1 / 0)", True),  # it stops at the first equal one
    ],
)
def test_in(text, expected):
    assert value(text) is expected


def test_in_with_an_element_that_goes_wrong_before_the_equal_one():
    assert outcome("level IN ('x', 3)") == (False, bool, ["cast"])
    assert outcome("level NOT IN ('x', 3)") == (False, bool, ["cast"])
    assert outcome("level IN (1 / 0, gone, 3)") == (False, bool, ["math", "missingAttribute"])


# --- functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LENGTH('')", 0),
        ("LENGTH('𝄞é')", 2),  # code points
        ("LENGTH(-10)", 3),
        ("LENGTH(FALSE)", 5),
        ("CONCAT()", ""),
        ("CONCAT('a')", "a"),
        ("CONCAT('a', 1, TRUE)", "a1true"),
        ("CONCAT_WS('-')", ""),
        ("CONCAT_WS('-', 'a')", "a"),
        ("CONCAT_WS('-', 'a', '', 'c')", "a--c"),
        ("CONCAT_WS(0, 1, 2)", "102"),
        ("LOWER('ÀB1')", "àb1"),
        ("UPPER('àß')", "ÀSS"),
        ("lower(UPPER('x'))", "x"),
        ("TRIM('  a b\t\n')", "a b"),
        ("TRIM('\u00a0\u3000a\u2003')", "a"),
        ("TRIM('\u001ca\u200b')", "\u001ca\u200b"),  # neither is white space to Unicode
        ("LEFT('river', 3)", "riv"),
        ("LEFT('river', 5)", "river"),
        ("LEFT('river', 99)", "river"),
        ("LEFT('river', 0)", ""),
        ("LEFT(1234, '2')", "12"),
        ("RIGHT('river', 2)", "er"),
        ("RIGHT('river', 99)", "river"),
        ("RIGHT('river', 0)", ""),
        ("RIGHT('', 3)", ""),
        ("SUBSTRING('river', 1)", "river"),
        ("SUBSTRING('river', 3)", "ver"),
        ("SUBSTRING('river', 5)", "r"),
        ("SUBSTRING('river', -2)", "er"),
        ("SUBSTRING('river', -5)", "river"),
        ("SUBSTRING('river', 0)", ""),
        ("SUBSTRING('', 0)", ""),
        ("SUBSTRING('river', 2, 3)", "ive"),
        ("SUBSTRING('river', 2, 0)", ""),
        ("SUBSTRING('river', 4, 99)", "er"),
        ("SUBSTRING('river', -4, 2)", "iv"),
        ("SUBSTRING('river', 0, 2)", ""),
        ("ABS(0)", 0),
        ("ABS(-7)", 7),
        ("ABS('-7')", 7),
        ("ABS(TRUE)", 1),
    ],
)
def test_functions(text, expected):
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected", "error"),
    [
        ("LEFT('river', -1)", "river", "functionEvaluation"),
        ("RIGHT('river', -1)", "river", "functionEvaluation"),
        ("SUBSTRING('river', 6)", "", "functionEvaluation"),
        ("SUBSTRING('river', -6)", "", "functionEvaluation"),
        ("SUBSTRING('', 1)", "", "functionEvaluation"),
        ("SUBSTRING('river', 6, 1)", "", "functionEvaluation"),
        ("SUBSTRING('river', 2, -1)", "", "functionEvaluation"),
        ("SUBSTRING('river', 0, -1)", "", "functionEvaluation"),
        ("ABS(-2147483648)", 2147483647, "math"),
        ("ABS('x')", 0, "cast"),
        ("LEFT('river', 'x')", "", "cast"),
        ("UPPER(LEFT('river', -1))", "", "functionEvaluation"),  # a fault below makes zero above
        ("NOSUCH()", False, "missingFunction"),
        ("NOSUCH(1 / 0)", False, "missingFunction"),
        ("LENGTH()", False, "missingFunction"),
        ("LENGTH('a', 'b')", False, "missingFunction"),
        ("CONCAT_WS()", False, "missingFunction"),
        ("SUBSTRING('a')", False, "missingFunction"),
        ("NOSUCH() = FALSE", False, "missingFunction"),
    ],
)
def test_functions_that_go_wrong(text, expected, error):
    assert outcome(text) == (expected, type(expected), [error])


def test_concat_is_bounded(monkeypatch):
    monkeypatch.setattr(cesql_functions, "CONCAT_CODEPOINTS_MAX", 10)
    assert value("CONCAT(x, x)", {"x": "12345"}) == "1234512345"
    assert outcome("CONCAT_WS('', x, x, 1)", {"x": "12345"}) == ("", str, ["functionEvaluation"])
    found = Cesql("CONCAT(x, x, x)").evaluate({"x": "12345"})
    assert "CONCAT_CODEPOINTS_MAX is 10, found 15" in found.errors[0].message


# --- matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1", "'true'", "hop", "level", "ABS(1)", "gone", "TRUE AND gone", "(gone = 1) XOR TRUE"]
)
def test_only_a_true_boolean_without_error_matches(text):
    assert Cesql(text).matches(HOP) is False


@pytest.mark.parametrize("text", ["TRUE", "on", "hop = 7", "EXISTS name AND level < hop", "BOOL('true')"])
def test_matches(text):
    assert Cesql(text).matches(HOP) is True
