"""A summary never leaves out a subscription that matches, and is exact where it says so."""

from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.routing.summary.ids import Schema
from catchment.routing.summary.summary import Summary
from tests import oracle
from tests.strategies import constraints, expressions, near, small_texts, values

_plain = st.lists(
    st.one_of(
        st.builds(
            constraint, st.sampled_from("st"), st.sampled_from(("=", "prefix", "suffix", "substring")), small_texts
        ),
        st.builds(constraint, st.sampled_from("xy"), st.sampled_from(("=", "<", "<=", ">", ">=")), st.integers(-2, 3)),
    ),
    max_size=4,
)
_notifications = st.fixed_dictionaries(
    {},
    optional={
        "s": st.text("abc", max_size=3),
        "t": st.text("abc", max_size=3),
        "x": st.integers(-3, 4) | st.sampled_from((0.5, 1.0)),
        "y": st.integers(-3, 4),
    },
)


def check(summary, filters, notification):
    wanted = [number for number, filter in filters.items() if oracle.matches(filter, notification)]
    matched = [id.number for id in summary.matches(notification)]
    assert set(wanted) <= set(matched)
    if summary.is_exact:
        assert wanted == matched


@given(st.lists(_plain, min_size=1, max_size=8), st.lists(_notifications, min_size=1, max_size=8), st.integers(1, 6))
def test_plain(conjunctions, notifications, rows_max):
    filters = {i: Filter.of(*constraints) for i, constraints in enumerate(conjunctions)}
    whole = Summary.of(1, filters, Schema())
    bounded = Summary.of(1, filters, Schema(), rows_max)
    for notification in notifications:
        check(whole, filters, notification)
        check(bounded, filters, notification)


@given(st.data())
@settings(max_examples=150)
def test_anything(data):
    drawn = data.draw(st.lists(expressions(constraints, 4), min_size=1, max_size=4))
    filters = {i: Filter.of_expression(expression) for i, expression in enumerate(drawn)}
    summary = Summary.of(1, filters, Schema())
    for expression in drawn:
        check(summary, filters, data.draw(near(expression)))
    check(summary, filters, data.draw(st.dictionaries(st.sampled_from(("x", "y", "price")), values)))


@given(st.lists(_plain, min_size=2, max_size=8), st.lists(_notifications, min_size=1, max_size=6), st.integers(2, 8))
def test_merged(conjunctions, notifications, rows_max):
    filters = {i: Filter.of(*constraints) for i, constraints in enumerate(conjunctions)}
    schema = Schema()
    first = Summary.of(1, {i: filter for i, filter in filters.items() if i % 2}, schema)
    second = Summary.of(1, {i: filter for i, filter in filters.items() if not i % 2}, schema)
    for notification in notifications:
        check(first.merged(second), filters, notification)
        check(first.merged(second, rows_max), filters, notification)
