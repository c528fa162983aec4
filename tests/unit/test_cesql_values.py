"""CESQL rule by rule: literals, precedence, attributes, casts."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from catchment.errors import BadValueError, ParseError
from catchment.model.cesql import (
    Cesql,
)
from catchment.model.notification import Notification
from tests.unit.cesql_values import HOP, outcome, value

# --- literals and lexing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", 42),
        ("+42", 42),
        ("-42", -42),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("tRuE", True),
        ("False", False),
        ("''", ""),
        ('""', ""),
        ("'two words'", "two words"),
        ("'line\nbreak'", "line\nbreak"),
        (r"'it\'s'", "it's"),
        (r'"say \"so\""', 'say "so"'),
        (r"'a\"b'", r"a\"b"),  # only its own quote is escaped
        (r"'back\slash'", r"back\slash"),
        (r"'two\\'", r"two\\"),  # a backslash takes the next character with it and both stay
        ("'日本語'", "日本語"),
    ],
)
def test_literals(text, expected):
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9 -4", 5),
        ("9-4", 5),
        ("9 - -4", 13),
        ("9--4", 13),
        ("--6", 6),
        ("---6", -6),
        ("-(6)", -6),
        ("- 6", -6),
        ("9+4", 13),
        ("9 +4", 13),
        ("9 + +4", 13),
        ("(1)", 1),
        (" \t\r\n 1 ", 1),
        ("TRUE AND(TRUE)", True),
        ("1 IN(1,2)", True),
        ("'a'='a'AND'b'='b'", True),
        ("abs (-3)", 3),
    ],
)
def test_tokens_may_touch_and_signs_find_their_side(text, expected):
    assert value(text) == expected


def test_an_identifier_may_start_with_or_be_digits_where_no_number_may_stand():
    attributes = {"1st": "gold", "2": "two", "x9y": 1}
    assert value("1st", attributes) == "gold"
    assert value("x9y + 1", attributes) == 2
    assert value("EXISTS 2", attributes) is True
    assert value("2", attributes) == 2  # digits alone are a number
    assert value("-1st = 'gold'", {"1st": 5}) is False


@pytest.mark.parametrize("text", ["NAME = 'Ada'", "Name = 'Ada'", "EXISTS NAME"])
def test_identifiers_are_read_in_lower_case(text):
    assert value(text) is True


def test_a_name_in_upper_case_cannot_be_addressed():
    assert outcome("Name", {"Name": "Ada"}) == (False, bool, ["missingAttribute"])


@pytest.mark.parametrize("word", ["and", "OR", "xor", "not", "like", "in", "exists", "true", "false"])
def test_keywords_are_reserved(word):
    with pytest.raises(ParseError):
        Cesql(f"EXISTS {word}")


@pytest.mark.parametrize("text", ["LI\u212aE", "x LI\u212aE 'a'", "ex\u0131sts"])
def test_keywords_are_case_insensitive_in_ascii_only(text):
    with pytest.raises(ParseError):
        Cesql(text)


# --- precedence ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2 + 3 * 4", "2 + (3 * 4)"),
        ("20 / 2 * 3", "(20 / 2) * 3"),
        ("20 - 2 - 3", "(20 - 2) - 3"),
        ("7 % 4 * 2", "(7 % 4) * 2"),
        ("1 + 1 = 2", "(1 + 1) = 2"),
        ("1 < 2 = TRUE", "(1 < 2) = TRUE"),
        ("NOT FALSE = FALSE", "(NOT FALSE) = FALSE"),
        ("NOT on = on", "(NOT on) = on"),
        ("NOT 1 IN (0)", "(NOT 1) IN (0)"),
        ("NOT on LIKE 'f%'", "(NOT on) LIKE 'f%'"),
        ("NOT EXISTS gone", "NOT (EXISTS gone)"),
        ("NOT NOT on", "NOT (NOT on)"),
        ("-level * -2", "(-level) * (-2)"),
        ("-level LIKE '-3'", "(-level) LIKE '-3'"),
        ("2 * 12 LIKE '1_'", "2 * (12 LIKE '1_')"),
        ("1 IN (1) LIKE 'true'", "(1 IN (1)) LIKE 'true'"),
        ("1 NOT IN (2) IN (TRUE)", "(1 NOT IN (2)) IN (TRUE)"),
        ("TRUE OR TRUE AND FALSE", "(TRUE OR TRUE) AND FALSE"),
        ("FALSE AND FALSE OR TRUE", "(FALSE AND FALSE) OR TRUE"),
        ("TRUE XOR TRUE OR TRUE", "(TRUE XOR TRUE) OR TRUE"),
        ("TRUE OR TRUE XOR TRUE", "(TRUE OR TRUE) XOR TRUE"),
    ],
)
def test_precedence(text, same):
    assert Cesql(text).evaluate(HOP) == Cesql(same).evaluate(HOP)


# --- attributes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", "text"),
        (True, True),
        (12, 12),
        (2**31 - 1, 2**31 - 1),
        (2**31, "2147483648"),
        (-(2**31) - 1, "-2147483649"),
        (1.0, "1.0"),
        (1e300, "1e+300"),
        (-0.0, "0.0"),
        (datetime(2026, 11, 15, 10, 30, tzinfo=UTC), "2026-11-15T10:30:00Z"),
        (datetime(2026, 11, 15, 10, 30, 0, 250, tzinfo=UTC), "2026-11-15T10:30:00.000250Z"),
        (datetime(2026, 11, 15, 10, 30, tzinfo=timezone(timedelta(hours=2))), "2026-11-15T10:30:00+02:00"),
    ],
)
def test_what_an_attribute_is_to_an_expression(given, expected):
    assert value("x", {"x": given}) == expected
    assert type(value("x", {"x": given})) is type(expected)


@pytest.mark.parametrize("given", [None, b"", [], float("nan"), float("inf"), 2**63, datetime(2026, 1, 1), object()])
def test_an_attribute_of_no_type_is_refused_when_met(given):
    with pytest.raises(BadValueError):
        Cesql("x = 1").evaluate({"x": given})
    assert value("EXISTS x", {"x": given}) is True  # it need not look


def test_notifications_and_mappings_alike():
    when = datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(hours=2)))
    assert value("time", Notification({"time": when})) == "2026-11-15T10:00:00Z"  # a notification is in UTC
    assert Cesql("name = 'Ada'").matches(Notification(HOP))


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_required_attributes_exist_whatever_is_there(name):
    assert value(f"EXISTS {name}", {}) is True
    assert outcome(name, {})[2] == ["missingAttribute"]


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("gone", False),
        ("-gone", 0),
        ("NOT gone", False),
        ("gone + 1", 0),
        ("1 - gone", 0),
        ("gone * 3", 0),
        ("gone / 0", 0),
        ("gone % 0", 0),
        ("7 / gone", 0),
        ("gone = ''", False),
        ("gone != ''", False),
        ("gone <> 1", False),
        ("1 >= gone", False),
        ("gone LIKE '%'", False),
        ("gone NOT LIKE '%'", False),
        ("gone IN (1)", False),
        ("gone NOT IN (1)", False),
        ("1 IN (gone)", False),
        ("1 IN (gone, 1)", False),
        ("gone AND TRUE", False),
        ("TRUE AND gone", False),
        ("FALSE OR gone", False),
        ("gone OR TRUE", False),
        ("gone XOR TRUE", False),
        ("NOT (gone = 1)", False),
        ("(gone = 1) OR TRUE", False),
        ("ABS(gone)", 0),
        ("LENGTH(gone)", 0),
        ("UPPER(gone)", ""),
        ("CONCAT('a', gone)", ""),
        ("SUBSTRING(gone, 9)", ""),
        ("LEFT(gone, -1)", ""),
        ("INT(gone)", 0),
        ("STRING(gone)", ""),
        ("BOOL(gone)", False),
        ("IS_INT(gone)", False),
    ],
)
def test_a_missing_attribute_makes_zero_of_whatever_contains_it(text, zero):
    assert outcome(text) == (zero, type(zero), ["missingAttribute"])


def test_exists_never_goes_wrong():
    assert value("EXISTS gone") is False
    assert value("EXISTS gone OR EXISTS hop") is True


# --- casts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT('12')", 12),
        ("INT('+12')", 12),
        ("INT('-012')", -12),
        ("INT('-0')", 0),
        ("INT('2147483647')", 2**31 - 1),
        ("INT('000000000000000000002147483647')", 2**31 - 1),
        ("INT(TRUE) + INT(FALSE)", 1),
        ("BOOL('tRUE')", True),
        ("BOOL('FALSE')", False),
        ("BOOL(-3)", True),
        ("BOOL(0)", False),
        ("STRING(-12)", "-12"),
        ("STRING(007)", "7"),
        ("STRING(TRUE)", "true"),
        ("STRING('as is')", "as is"),
        ("IS_INT('12')", True),
        ("IS_INT('x')", False),
        ("IS_INT(TRUE)", True),
        ("IS_BOOL('True')", True),
        ("IS_BOOL('1')", False),
        ("IS_BOOL(1)", True),
    ],
)
def test_explicit_casts(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1.0", "0x1", "1_0", "--1", "+", "٥", "2147483648", "-2147483649", "9" * 5_000]
)
def test_strings_that_write_no_32_bit_integer(text):
    assert outcome("INT(x)", {"x": text}) == (0, int, ["cast"])
    assert outcome("x < 1", {"x": text}) == (False, bool, ["cast"])


@pytest.mark.parametrize("text", ["", "yes", "1", "true ", "TRU"])
def test_strings_that_write_no_boolean(text):
    assert outcome("BOOL(x)", {"x": text}) == (False, bool, ["cast"])
    assert outcome("NOT x", {"x": text}) == (False, bool, ["cast"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'07' = 7", True),  # to the type of the right side
        ("7 = '07'", False),
        ("TRUE = 'true'", True),
        ("TRUE = 'TRUE'", False),
        ("'TRUE' = TRUE", True),
        ("9 = TRUE", True),
        ("TRUE = 9", False),
        ("TRUE = 1", True),
        ("'0' != 0", False),
        ("0 <> FALSE", False),
        ("'10' < '9'", False),  # as integers, always
        ("TRUE < 2", True),
        ("'3' + '4'", 7),
        ("TRUE + TRUE", 2),
        ("-TRUE", -1),
        ("-'5'", -5),
        ("--'5'", 5),
        ("NOT 10", False),
        ("NOT 0", True),
        ("NOT 'false'", True),
        ("1 AND 'true'", True),
        ("'false' OR 0", False),
        ("3 XOR 'TRUE'", False),
    ],
)
def test_implicit_casts(text, expected):
    assert value(text) == expected
    assert type(value(text)) is type(expected)
