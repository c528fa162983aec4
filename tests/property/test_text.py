"""Text, JSON and pickles say the same thing back; hostile text gets a typed error."""

import contextlib
import json
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import CatchmentError
from catchment.model.advertisement import Advertisement
from catchment.model.constraint import Constraint
from catchment.model.filter import Filter
from catchment.model.language import parse_filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern, Subscription
from catchment.model.values import checked, format_time, from_key, key_of, parse_time, type_of
from tests import oracle, strategies


@given(strategies.constraints)
def test_a_constraint_is_what_its_text_parses_to(constraint: Constraint) -> None:
    assert Filter(str(constraint)) == Filter.of(constraint)
    assert Constraint.from_json(json.loads(json.dumps(constraint.to_json()))) == constraint


@given(strategies.expressions(strategies.constraints))
def test_an_expression_parses_as_it_is_written(expression) -> None:
    assert Filter(oracle.text_of(expression)) == Filter.of_expression(expression)


@given(strategies.filters)
def test_filters_round_trip(filter: Filter) -> None:
    assert Filter(str(filter)) == filter
    assert Filter.from_json(json.loads(json.dumps(filter.to_json()))) == filter
    assert pickle.loads(pickle.dumps(filter)) == filter
    assert hash(Filter(str(filter))) == hash(filter)


@given(strategies.advertisements)
def test_advertisements_round_trip(advertisement: Advertisement) -> None:
    assert Advertisement(str(advertisement)) == advertisement
    assert Advertisement.from_json(json.loads(json.dumps(advertisement.to_json()))) == advertisement
    assert pickle.loads(pickle.dumps(advertisement)) == advertisement


@given(strategies.patterns)
def test_patterns_round_trip(pattern: Pattern) -> None:
    assert Pattern(str(pattern)) == pattern
    assert Pattern.from_json(json.loads(json.dumps(pattern.to_json()))) == pattern
    assert pickle.loads(pickle.dumps(pattern)) == pattern


@given(strategies.subscriptions)
def test_subscriptions_round_trip(subscription: Subscription) -> None:
    assert Subscription.from_json(json.loads(json.dumps(subscription.to_json()))) == subscription


@given(strategies.notifications)
def test_notifications_round_trip(notification: Notification) -> None:
    assert Notification.from_json(notification.to_json()) == notification
    assert Notification.parse(json.dumps(notification.to_json())) == notification
    assert pickle.loads(pickle.dumps(notification)) == notification


@given(strategies.values)
def test_keys_name_values(value) -> None:
    found = checked(value)
    assert from_key(type_of(found), key_of(found)) == found


@given(strategies.times)
def test_times_round_trip(time) -> None:
    assert parse_time(format_time(time)) == time


@given(st.lists(strategies.floats, min_size=2, max_size=2) | st.lists(strategies.ints, min_size=2, max_size=2))
def test_keys_keep_the_order(pair) -> None:
    first: Any
    second: Any
    first, second = map(checked, pair)
    first_key: Any = key_of(first)
    assert (first < second) is (first_key < key_of(second))
    assert (first == second) is (key_of(first) == key_of(second))


WORDS = """
x = != < <= > >= >* *< * ( ) [ ] , -> and or not in any exists glob prefix within by true int time 1 -2.5 1e400
99999999999999999999 'a' "b" `q` 2026-11-15 2026-99-99T00:00:00Z 5m $time $no \\ ' " é \0
"""
tokens = st.sampled_from(WORDS.split())


@given(st.text(max_size=40) | st.lists(tokens, max_size=15).map(" ".join))
def test_any_text_parses_or_gets_a_typed_error(text: str) -> None:
    for parse in (Filter, Advertisement, Pattern, Notification.parse, parse_filter):
        with contextlib.suppress(CatchmentError):  # anything else fails the test
            parse(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("any", "all", "name", "x")), inner),
    max_leaves=6,
)


@given(json_values)
def test_any_json_converts_or_gets_a_typed_error(found) -> None:
    for convert in (Filter, Advertisement, Pattern, Subscription, Notification, Constraint):
        with contextlib.suppress(CatchmentError):
            convert.from_json(found)
