"""Composites and approximations of filter propagation: they let everything through that is wanted, within the budget;
the text's own heuristic beside ours."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from catchment import Filter, Notification
from catchment.model.approximation import approximated
from catchment.model.dropping import with_operands_dropped, written_comparisons
from catchment.model.measure import Distribution, even
from catchment.routing.propagation.composite import COMPARED_PARTS_MAX, Composer, is_everything, parts_of
from tests import strategies as some

budgets = st.integers(1, 12)
several = st.lists(some.filters, max_size=3)


@given(several, several, budgets, st.sampled_from(("measured", "dropping")), some.notifications)
def test_a_composite_lets_through_what_one_of_its_filters_does(own, child, budget, approximation, notification):
    composer = Composer(budget, approximation)
    parts = [part for filter in (*own, *child) for part in parts_of(filter)]
    composite = composer.composite(parts)
    if any(filter.matches(notification) for filter in (*own, *child)):
        assert composite.matches(notification)
    assert written_comparisons(composite.expression) <= budget
    # The order in which filters came does not matter, and what was composed is composed alike.
    assert str(Composer(budget, approximation).composite(reversed(parts))) == str(composite)
    assert composer.composite(parts) is composite


@given(several, some.notifications)
def test_a_composite_within_the_budget_lets_through_nothing_else(filters, notification):
    composite = Composer(10_000).composite([part for filter in filters for part in parts_of(filter)])
    assert composite.matches(notification) == any(filter.matches(notification) for filter in filters)


@given(some.filters, some.notifications)
def test_the_parts_of_a_filter_are_the_filter(filter, notification):
    assert any(part.matches(notification) for part in parts_of(filter)) == filter.matches(notification)


@given(some.filters, st.integers(0, 12), some.notifications)
def test_dropping_operands_only_widens(filter, comparisons_max, notification):
    wider = with_operands_dropped(filter, comparisons_max)
    assert written_comparisons(wider.expression) <= comparisons_max
    assert wider.matches(notification) or not filter.matches(notification)


# Boxes of two attributes: of such filters the share of evenly spread notifications is exact.
bounds = st.integers(0, 9)
boxes = st.builds(lambda a, b, c, d: f"(a >= {a} and a < {a + b} and b >= {c} and b < {c + d})", *([bounds] * 4))
SPREAD = Distribution({"a": even(0, 10), "b": even(0, 10)})


@given(st.lists(boxes, min_size=2, max_size=3), st.integers(1, 8))
def test_ours_lets_no_more_through_than_the_text_s_twin(texts, comparisons_max):
    """On evenly spread notifications, and where neither gives up."""
    filter = Filter(" or ".join(texts))
    assume(filter.is_normal and filter.boxes)
    ours = approximated(filter, comparisons_max, SPREAD)
    of_the_text = with_operands_dropped(filter, comparisons_max)
    assert ours.covers(filter)
    assert of_the_text.covers(filter)
    # Ours goes step by step, and so does the twin: once in a while the twin is ahead, but never by much.
    assert SPREAD.share(ours.boxes) <= SPREAD.share(of_the_text.boxes) + 0.25


# --- the text's example (§3.4) ------------------------------------------------------------------

ORIGINAL = Filter("(a >= 5 and b <= 5) or (a <= 2 and b >= 10)")


@pytest.mark.parametrize(
    ("comparisons_max", "text"),
    [
        (4, "a <= 2 and b >= 10 or a >= 5 and b <= 5"),
        (3, "a <= 2 and b >= 10 or a >= 5"),
        (2, "a >= 5 or b >= 10"),
        (1, "true"),
        (0, "true"),
    ],
)
def test_section_3_4_step_by_step(comparisons_max: int, text: str):
    assert str(with_operands_dropped(ORIGINAL, comparisons_max)) == text


def test_section_3_4_optimization_of_a_composite():
    below, above = Filter("temperature < 0"), Filter("temperature >= 0")
    assert str(Composer(100).composite([below, above])) == "number temperature any"


def test_duplicates_and_what_others_cover_are_left_out():
    composer = Composer(100)
    texts = ("x > 3", "x > 3", "x > 5", "y = 1", "y = 1 and x = 0", "x > 9 and x < 3")
    assert str(composer.composite(map(Filter, texts))) == "x > 3 or y = 1"
    assert str(composer.composite([])) == "false"


def test_a_composite_of_too_many_parts_is_everything():
    many = [Filter(f"x{number} = 1") for number in range(COMPARED_PARTS_MAX + 1)]
    assert is_everything(Composer(COMPARED_PARTS_MAX).composite(many))
    assert written_comparisons(Composer(1_000).composite(many).expression) == len(many)


def test_a_composite_past_the_size_of_filters_is_everything():
    many = [Filter(f"text = '{number:04}{'x' * 4_000}'") for number in range(5)]
    assert is_everything(Composer(1_000).composite(many))


def test_a_long_composite_is_approximated_by_dropping_operands():
    many = [Filter(f"x = {number} and y{number} = 1") for number in range(40)]
    wider = Composer(70).composite(many)
    assert written_comparisons(wider.expression) == 70
    assert all(wider.matches(Notification({"x": number, f"y{number}": 1})) for number in range(40))
    assert not wider.matches(Notification({"z": 1}))
