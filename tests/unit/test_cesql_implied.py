"""The filter that a CESQL expression implies."""

import time
from datetime import UTC, datetime

import pytest

from catchment.model.cesql import (
    Cesql,
)
from catchment.model.cesql import implied as cesql_filter
from catchment.model.filter import Filter

# --- the implied filter -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filter_text"),
    [
        ("TRUE", "true"),
        ("FALSE", "false"),
        ("1 = 2", "false"),
        ("1 / 0 = 0", "false"),
        ("a = 1 / 0", "false"),
        ("5", "false"),
        ("'true'", "false"),
        ("-a", "false"),
        ("CONCAT(a)", "false"),
        ("NOSUCH(a)", "false"),
        ("a", "a = true"),
        ("EXISTS a", "exists(a)"),
        ("NOT EXISTS a", "not exists(a)"),
        ("EXISTS id", "true"),
        ("a = 'x'", "a = 'x'"),
        ("a != 'x'", "a != 'x' or number a any or bool a any or time a any"),
        ("NOT (a != 'x')", "a = 'x'"),
        ("a = '5'", "a = '5' or int a = 5"),
        ("a = '+5'", "a = '+5'"),
        ("a = '1.5'", "a = '1.5' or float a = 1.5"),
        ("a = 'true'", "a = 'true' or a = true"),
        ("a = '4294967296'", "a = '4294967296' or int a = 4294967296"),
        ("a = '2026-11-15T10:30:00Z'", "a = '2026-11-15T10:30:00Z' or a = 2026-11-15T10:30:00Z"),
        ("a = '2026-11-15T10:30Z'", "a = '2026-11-15T10:30Z'"),
        ("a IN ('x', 'y')", "a in ('x', 'y')"),
        ("a IN (5, 'x', TRUE)", "a in ('5', 'x', 'true') or int a = 5 or a = true"),
        (
            "a NOT IN (5, 'x')",
            "a != '5' and a != 'x' or float a any or time a any or int a > 2147483647 or int a < -2147483648",
        ),
        ("7 = a", "a = '7' or int a = 7 or a = true"),
        ("'x' = a", "a = 'x'"),
        ("a LIKE 'https://%'", "a prefix 'https://'"),
        ("a LIKE '%.error'", "a suffix '.error'"),
        ("a LIKE '%mid%'", "a contains 'mid'"),
        ("a LIKE 'x_z%'", "a glob 'x?z*'"),
        (r"a LIKE 'x*\%'", "a = 'x*%'"),
        ("a LIKE '%'", "exists(a)"),
        ("a LIKE '1_'", "a glob '1?' or int a >= 10 and int a <= 19"),
        ("a LIKE 'tr%'", "a prefix 'tr' or a = true"),
        ("a NOT LIKE '%x%'", "not a contains 'x' or number a any or bool a any or time a any"),
        ("a LIKE '2026-11-%'", "a prefix '2026-11-' or a >= 2026-11-01T00:00:00Z and a < 2026-12-01T00:00:00Z"),
        ("a > 2147483647", "false"),
        ("a < 'x'", "false"),
        ("a = 'x' AND b = 'y'", "a = 'x' and b = 'y'"),
        ("a = 'x' OR b = 'y'", "a = 'x' or exists(a) and b = 'y'"),
        (
            "NOT (a = 'x' OR b LIKE 'y%')",
            "(a != 'x' or number a any or bool a any or time a any)"
            " and (not b prefix 'y' or number b any or bool b any or time b any)",
        ),
        ("a = 'x' AND a = 'y'", "false"),
        ("EXISTS a OR b = 'y'", "exists(a) or b = 'y'"),
        ("TRUE OR a = 'x'", "true"),
        ("a = 'x' OR TRUE", "exists(a)"),
        ("a = 'x' AND 1 = 1", "a = 'x'"),
        ("a = CONCAT('x', 'y')", "a = 'xy'"),
        ("STRING(a) = 'x'", "a = 'x'"),
        ("LENGTH(a) > 3", "exists(a)"),
        ("LENGTH(a) > 3 AND b = 'y'", "exists(a) and b = 'y'"),
        ("a = b", "exists(a) and exists(b)"),
        ("a IN (b, c)", "exists(a) and exists(b)"),
        ("UPPER(a) = 'X' OR b = 'y'", "exists(a)"),
    ],
)
def test_the_filter(text, filter_text):
    assert Cesql(text).filter == Filter(filter_text)


def test_integers_through_every_cast():
    implied = Cesql("a = 5").filter
    for given in (5, "5", "+5", "05", "+0005"):
        assert implied.matches({"a": given})
    for other in (6, 5.0, True, "15", "55", "-5", "5.0", "x", 2**32 + 5, datetime(2005, 5, 5, tzinfo=UTC)):
        assert not implied.matches({"a": other})
    for given in (1, True, "1", "+01"):
        assert Cesql("a = 1").filter.matches({"a": given})
    order = Cesql("a >= 0").filter
    assert all(order.matches({"a": given}) for given in (0, 9, False, True, "0", "-0", "+7", "12"))
    assert not any(order.matches({"a": given}) for given in (-1, 2**31, 0.5, "-1", "x", ""))


def test_booleans_through_every_cast():
    found = Cesql("a = TRUE").filter
    assert all(found.matches({"a": given}) for given in (True, 1, -7, 2**31 - 1, "true", "TRUE", "tRuE"))
    assert not any(found.matches({"a": given}) for given in (False, 0, 2**31, 1.0, "1", "true ", "yes"))
    assert Cesql("a = FALSE").filter == Cesql("NOT a").filter
    assert Cesql("BOOL(a)").filter == found
    assert Cesql("a AND EXISTS b").filter == Filter("exists(b)") & found


def test_short_circuits_reach_the_filter():
    """What stands behind a false AND need not exist, and what went wrong before it rejects."""
    found = Cesql("NOT (a = 'x' AND b = 'y')").filter
    assert found.matches({"a": "z"})
    assert not found.matches({"a": "x"})
    assert found.matches({"a": "x", "b": "z"})
    assert not found.matches({"b": "z"})


def test_integers_by_their_digits():
    found = Cesql("a LIKE '12%'").filter
    assert all(found.matches({"a": given}) for given in (12, 120, 129, 12_345_678, 12 * 10**17, "12x"))
    assert not any(found.matches({"a": given}) for given in (1, 2, 13, 112, -12, 119, 130, "1", 5.5e300 - 5.6e300))


def test_a_name_no_notification_can_have():
    name = "n" * 300
    assert Cesql(f"{name} = 'x'").filter.is_empty
    assert Cesql(f"NOT EXISTS {name}").filter == Filter.everything()
    assert Cesql(f"LENGTH({name}) = 1").filter.is_empty


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        (" AND ".join(f"a{i} != 'x'" for i in range(9)), {f"a{i}": "y" for i in range(9)}),
        (" OR ".join(f"a{i} = 'x'" for i in range(60)), dict.fromkeys([f"a{i}" for i in range(60)], "x")),
        (" OR ".join(f"(a = 'x{i}' AND b = 'y{i}')" for i in range(200)), {"a": "x7", "b": "y7"}),
        (" AND ".join(f"a{i} LIKE '{i + 1}%'" for i in range(9)), {f"a{i}": i + 1 for i in range(9)}),
        (f"a IN ({', '.join(map(str, range(4_000)))})", {"a": 77}),
        (f"a NOT IN ({', '.join(map(str, range(4_000)))})", {"a": 4_001}),
        (" OR ".join(f"a = '{i}x'" for i in range(1_000)), {"a": "999x"}),
        (" AND ".join(f"a LIKE '%{i}%'" for i in range(10)), {"a": "0123456789"}),
        (" OR ".join(f"a LIKE '%{i}x%'" for i in range(300)), {"a": "299x"}),
        (" XOR ".join(f"a{i}" for i in range(101)), {f"a{i}": True for i in range(101)}),
        (f"a LIKE '%{'x_' * 100}%' AND a != 'x'", {"a": "xy" * 100}),
        (f"a = '{'x' * 60_000}'", {"a": "x" * 60_000}),
        (
            " AND ".join("(" + " OR ".join(f"{name}{i} = 'x'" for i in range(17)) + ")" for name in "ab"),
            {f"{name}{i}": "x" for name in "ab" for i in range(17)},
        ),
        (
            " AND ".join(f"{'n' * 240}{i} = 'x'" for i in range(200)),
            {f"{'n' * 240}{i}": "x" for i in range(200)},
        ),
        (f"CONCAT({', '.join(f'a{i}' for i in range(500))}) LIKE '%'", {f"a{i}": 1 for i in range(500)}),
        ("NOT (" * 30 + "a = 'x'" + " AND b = 'y')" * 30, {"a": "x", "b": "y"}),
    ],
)
def test_large_expressions_are_widened_never_refused(text, matched):
    expression = Cesql(text)
    started = time.perf_counter()
    assert expression.filter.matches(matched)
    assert time.perf_counter() - started < 20
    assert expression.matches(matched)
    assert Filter.from_json(expression.filter.to_json()) == expression.filter


def test_a_filter_widens_when_its_work_is_spent(monkeypatch):
    text = "(a = 'x' OR b = 'y') AND (c = 'z' OR d = 'w') AND NOT (e = 'v' XOR f = 'u')"
    exact = Cesql(text).filter
    for work in (0, 10, 100):
        monkeypatch.setattr(cesql_filter, "CESQL_FILTER_STEPS_MAX", work)
        assert Cesql(text).filter.covers(exact)
    monkeypatch.setattr(cesql_filter, "CESQL_FILTER_TESTS_MAX", 1)
    assert Cesql(text).filter.covers(exact)


def test_the_filter_is_computed_once():
    expression = Cesql("a = 'x'")
    assert expression.filter is expression.filter
