"""What an explanation says, operator by operator."""

import json
import pickle
from typing import Any

import pytest

from catchment.model.constraint import constraint
from catchment.model.explanation import Clause, ExplainedAlternative, Explanation, example_of, explain
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import parse_time


def nearest(explanation: Explanation) -> ExplainedAlternative:
    assert explanation.nearest is not None
    return explanation.nearest


def only_clause(text: str, **values: Any) -> Clause:
    explanation = explain(Filter(text), values)
    (alternative,) = explanation.alternatives
    (clause,) = alternative.clauses
    return clause


NOON = parse_time("2026-11-15T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "value", "reason", "wanted", "example"),
    [
        ("x > 5", 3, "value 3 is not > 5", "> 5", 6),
        ("x >= 5", 4.5, "value 4.5 is not >= 5", ">= 5", 5),
        ("x < 5", 5, "value 5 is not < 5", "< 5", 4),
        ("x <= 5", 5.5, "value 5.5 is not <= 5", "<= 5", 5),
        ("x = 5", 3, "value 3 is not 5", "= 5", 5),
        ("x != 5", 5.0, "value 5.0 is 5", "anything but 5", 6),
        ("int x = 5", 5.0, "type float does not fit int", "int = 5", 5),
        ("float x > 5", 7, "type int does not fit float", "float > 5", 6.0),
        ("int x any", "a", "type string does not fit int", "any int", 1),
        ("x any", None, "absent", "any value", "text"),
        ("x > 5", "a", "type string does not fit number", "> 5", 6),
        ("x > 5", None, "absent", "> 5", 6),
        ("x in ('NYSE', 'AMEX')", "LSE", 'value "LSE" is not one of "NYSE", "AMEX"', 'one of "NYSE", "AMEX"', "NYSE"),
        ("x prefix 'abc'", "ab", 'value "ab" does not start with "abc"', 'starts with "abc"', "abc"),
        ("x suffix 'abc'", "bc", 'value "bc" does not end with "abc"', 'ends with "abc"', "abc"),
        ("x contains 'abc'", "ab", 'value "ab" does not contain "abc"', 'contains "abc"', "abc"),
        ("x glob 'N?S*E'", "AMEX", 'value "AMEX" is not like "N?S*E"', 'is like "N?S*E"', "NxSE"),
        ("not x suffix '.tmp'", "a.tmp", 'value "a.tmp" ends with ".tmp"', 'does not end with ".tmp"', "other"),
        ("not x contains 'a'", "ab", 'value "ab" contains "a"', 'does not contain "a"', "other"),
        ("not x glob 'a*b'", "ab", 'value "ab" is like "a*b"', 'is not like "a*b"', "other"),
        ("x = true", False, "value false is not true", "= true", True),
        ("x > 2026-11-15T11:59:59Z", parse_time("2026-11-01"), None, "> 2026-11-15T11:59:59Z", NOON),
        ("not exists(x)", 1, "present", "must be absent", None),
    ],
)
def test_a_failing_clause_says_why_and_what_would_hold(text, value, reason, wanted, example) -> None:
    clause = only_clause(text, **({} if value is None else {"x": value}))
    assert not clause.held
    assert clause.value == value
    assert reason is None or clause.reason == reason
    assert clause.wanted == wanted
    assert clause.example == example
    assert type(clause.example) is type(example)


def test_a_clause_that_held_gives_no_reason() -> None:
    clause = only_clause("x > 5", x=7)
    assert clause.held
    assert clause.reason == ""
    assert clause.to_json() == {
        "clause": "x > 5",
        "constraint": {"name": "x", "operator": ">", "value": 5},
        "held": True,
        "value": 7,
        "wanted": "> 5",
    }


def test_the_nearest_alternative_has_the_fewest_failing_clauses() -> None:
    found = explain(Filter("a = 1 and b = 1 or a = 2 and b = 2 and c = 2"), {"b": 2, "c": 2})
    assert not found.matched
    assert str(nearest(found).conjunction) == "a = 2 and b = 2 and c = 2"
    assert str(found) == "a: absent, wanted = 2"


def test_among_equally_near_ones_more_that_held_is_nearer() -> None:
    found = explain(Filter("a = 1 or b = 2 and c = 2"), {"a": 3, "b": 2, "c": 3})
    assert str(found) == "c: value 3 is not 2"


def test_a_match_names_the_alternative_that_held() -> None:
    found = explain(Filter("a = 1 or b = 2"), {"a": 5, "b": 2})
    assert found.matched
    assert nearest(found).held
    assert str(found) == "b = 2"


def test_everything_and_nothing() -> None:
    everything = explain(Filter("true"), {})
    assert everything.matched
    assert nearest(everything).clauses == ()
    nothing = explain(Filter("x > 5 and x < 3"), {"x": 4})
    assert not nothing.matched
    assert nothing.nearest is None
    assert nothing.to_json() == {"matched": False, "nearest": None, "alternatives": []}
    assert "contradicts" in str(nothing)


def test_the_example_fits_the_clauses_beside_it() -> None:
    found = explain(Filter("x > 5 and x < 6"), {"x": 1})
    assert [clause.example for clause in nearest(found).failing] == [5.5]
    found = explain(Filter("int x > 5 and int x != 6"), {"x": 1})
    assert [clause.example for clause in nearest(found).failing] == [7]


def test_envelope_is_seen_where_it_is_named() -> None:
    notification = Notification({"x": 1}, source="probe-7")
    assert explain(Filter("$source prefix 'probe'"), notification).matched
    assert str(explain(Filter("$seq > 3"), notification)) == "$seq: absent, wanted > 3"


def test_long_values_and_lists_are_cut_short() -> None:
    clause = only_clause("x = 'a'", x="b" * 60_000)
    assert len(clause.reason) < 100
    members = ", ".join(str(found) for found in range(0, 200, 2))
    clause = only_clause(f"x in ({members})", x=1)
    assert clause.wanted == "one of 0, 2, 4, 6, 8, 10, 12, 14 and 92 more"


def test_contradictory_constraints_have_no_example() -> None:
    assert example_of((constraint("x", ">", 5), constraint("x", "<", 5))) is None


def test_an_example_is_itself_a_value() -> None:
    """The successor of the longest string is too long to be one."""
    longest = "a" * 65_536
    assert example_of((constraint("x", ">", longest),)) == "text"
    assert example_of((constraint("x", ">=", longest), constraint("x", "prefix", "a" * 65_536))) == longest
    assert example_of((constraint("x", ">", longest), constraint("x", "prefix", longest))) is None


def test_explanations_are_values() -> None:
    one, other = (explain(Filter("x > 5 and y = 'a'"), {"x": 3}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert json.loads(json.dumps(one.to_json())) == one.to_json()
