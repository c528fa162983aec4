"""Input that is wrong, huge or hostile gets a typed error, at once. The error says what is wrong and where."""

from datetime import datetime

import pytest

from catchment import Filter, Notification, Pattern
from catchment.errors import BadNotificationError, BadValueError, CatchmentError, LimitError, ParseError
from catchment.model.globs import glob
from catchment.model.values import parse_duration, parse_time

LONG = 10 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "line", "column", "found", "expected"),
    [
        ("x >", 1, 4, "the end", "a number"),
        ("x = 1 y", 1, 7, "'y'", "and"),
        ("x = 1\n  and y ! 2", 2, 9, "'! 2'", "any"),
        ('x = "abc', 1, 5, "'\"abc'", "a string in quotes"),
        ("(x = 1", 1, 7, "the end", ")"),
        ("", 1, 1, "the end", "an attribute name"),
        ("x = 1)", 1, 6, "')'", "the end"),
        ("x = 99999999999999999999", 1, 5, "99999999999999999999", "64 bits"),
        ("x = 1e999", 1, 5, "1e999", "1.8e308"),
        ('x = "\\q"', 1, 5, "\\\\q", "\\\\"),
        ("x = 2026-13-01", 1, 5, "month", ""),
        ("y = 1, x in (1, 'a')", 1, 8, "mixes number and string", ""),
    ],
)
def test_a_parse_error_says_where_what_was_found_and_what_was_expected(
    text: str, line: int, column: int, found: str, expected: str
) -> None:
    with pytest.raises(ParseError) as raised:
        Filter(text)
    assert (raised.value.line, raised.value.column) == (line, column)
    assert found in raised.value.found
    assert expected in ", ".join(raised.value.expected)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "9" * LONG,
        "x = '" + "a" * LONG + "'",
        "(" * 30_000 + "x = 1" + ")" * 30_000,
        "not " * 10_000 + "x = 1",
        "not (" * 10_000 + "x = 1" + ")" * 10_000,
        " or ".join(["x = 1"] * 8_000),
        "x in (" + ", ".join(["1"] * 5_000) + ")",
        "x glob '" + "*a" * 5_000 + "'",
        "x = '" + "\\" * 60_000,
        "`" + "a" * 60_000,
        "x = " + "1." * 20_000,
    ],
    ids=["digits", "string", "parentheses", "nots", "nested nots", "ors", "in", "glob", "escapes", "name", "points"],
)
def test_hostile_filters_are_refused_or_parsed(text: str) -> None:
    for parse in (Filter, Pattern):
        try:
            parse(text)
        except CatchmentError as problem:
            assert len(str(problem)) < 1_000  # noqa: PT017 - some of the texts are allowed


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), BadNotificationError),
        (float("inf"), BadNotificationError),
        (2**63, BadNotificationError),
        (10**5000, BadNotificationError),
        (None, BadNotificationError),
        ([1], BadNotificationError),
        (b"bytes", BadNotificationError),
        ("\ud800", BadNotificationError),
        (datetime(2026, 1, 1), BadNotificationError),
        ("a" * LONG, LimitError),
    ],
    ids=["nan", "inf", "2**63", "10**5000", "None", "list", "bytes", "surrogate", "naive time", "10 MB"],
)
def test_a_value_of_no_type_is_refused_and_its_attribute_named(value: object, error: type[CatchmentError]) -> None:
    with pytest.raises(error, match="'x'"):
        Notification({"x": value})


@pytest.mark.parametrize("name", ["", 3, None, "\udfff", "a" * 300, "$x"])
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(CatchmentError):
        Notification({name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1, "x": 2}',
        '{"x": NaN}',
        '{"x": Infinity}',
        '{"x": 1e400}',
        '{"x": null}',
        '{"x": [1]}',
        '{"x": {"time": "yesterday"}}',
        '{"x": {"float": 9007199254740993}}',
        '{"$when": "now"}',
        '{"$seq": "4"}',
        '{"$payload": "***"}',
        '{"x": "\\ud800"}',
        "[1]",
        '{"x": ',
        "",
        '{"x": ' + "1" * 5_000 + "}",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_bad_notifications_in_json(text: str) -> None:
    with pytest.raises(CatchmentError):
        Notification.parse(text)


def test_envelope_and_payload_are_checked() -> None:
    with pytest.raises(BadNotificationError):
        Notification({}, seq="4")  # type: ignore[arg-type]
    with pytest.raises(BadNotificationError):
        Notification({}, payload="text")  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="PAYLOAD_BYTES_MAX"):
        Notification({}, payload=b"x" * LONG)
    with pytest.raises(LimitError, match="NOTIFICATION_ATTRIBUTES_MAX"):
        Notification({f"a{i}": i for i in range(2_000)})
    with pytest.raises(BadNotificationError, match="twice"):
        Notification([("x", 1), ("x", 2)])


def test_typed_json_values() -> None:
    text = '{"a": {"float": 4}, "b": {"int": "9007199254740993"}, "c": {"string": "x"}, "d": 4.0}'
    notification = Notification.parse(text)
    assert [type(notification[name]) for name in "abcd"] == [float, int, str, float]
    assert notification["b"] == 9007199254740993


@pytest.mark.parametrize(
    "text", ["2026-02-30", "26-1-1", "2026-01-01T10:00", "2026-01-01T25:00Z", "now", "0001-01-01T00:00+05:00"]
)
def test_bad_times(text: str) -> None:
    with pytest.raises(BadValueError):
        parse_time(text)


@pytest.mark.parametrize("text", ["", "5", "m", "5y", "0s", "-1s", "1s ", "9" * 18 + "w"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(BadValueError):
        parse_duration(text)


def test_a_glob_never_backtracks() -> None:
    """With this pattern naive matchers take exponential time."""
    assert not glob("*a" * 500 + "b").matches("a" * 20_000)


def test_relations_of_strings_past_the_limit_get_the_sound_answer() -> None:
    """The joint automaton of many different substrings is huge."""
    parts = [f's contains "{chr(97 + i)}{chr(98 + i)}{chr(97 + i)}"' for i in range(14)]
    large = Filter(" and ".join(parts))
    assert not large.is_empty
    assert large.overlaps(Filter('s contains "zzz"'))
    assert large == Filter(" and ".join(reversed(parts)))
