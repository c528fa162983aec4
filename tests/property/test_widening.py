"""Merging and approximation: always wider, never wider than said."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.approximation import approximated
from catchment.model.filter import Filter
from catchment.model.measure import Distribution, choice
from catchment.model.merging import imperfect_merge, imperfectly_merged, perfect_merge, perfectly_merged
from catchment.model.values import Value
from tests import oracle, strategies

PAIRS = list(oracle.assignments(strategies.SMALL_PAIR_DOMAIN))
# Every value of the small domain equally likely: shares are counts.
THIN = strategies.SMALL_PAIR_DOMAIN["x"]


def _counted() -> Distribution:
    present = [value for value in THIN if value is not None]
    # Choice weighs by value; bool and int that Python calls equal would fall together, so leave booleans out.
    weights: dict[Value, float] = {value: 1.0 for value in present if not isinstance(value, bool | float)}
    spread = choice(weights, absent=1 / (len(weights) + 1))
    return Distribution({"x": spread, "y": spread})


COUNTED = _counted()
WEIGHTED = [values for values in PAIRS if not any(isinstance(value, bool | float) for value in values.values())]


@given(strategies.small_pair_filters)
def test_shares_are_counts(filter: Filter) -> None:
    expected = sum(oracle.matches(filter, values) for values in WEIGHTED) / len(WEIGHTED)
    assert COUNTED.share(filter.boxes) == pytest.approx(expected, abs=1e-9)


@given(strategies.small_pair_filters, st.integers(0, 6), st.sampled_from((None, COUNTED)))
def test_an_approximation_is_wider_and_within_its_budget(filter: Filter, most: int, distribution) -> None:
    wide = approximated(filter, most, distribution)
    assert wide.comparisons <= most
    assert all(oracle.matches(wide, values) for values in PAIRS if oracle.matches(filter, values))
    if filter.comparisons <= most:
        assert wide == filter


@given(strategies.filters, st.integers(0, 4))
@example(Filter('x != "" and not y *< "0000000" or x != "Ab" or y in ("", "Ab", "aB")'), 0)
def test_approximations_over_all_operators_are_wider(filter: Filter, most: int) -> None:
    wide = approximated(filter, most)
    assert wide.comparisons <= most
    assert wide.covers(filter)


@given(st.lists(strategies.small_pair_filters, min_size=2, max_size=4))
def test_perfect_merging_changes_nothing(filters: list[Filter]) -> None:
    merged = perfectly_merged(filters)
    assert len(merged) <= len(filters)
    for values in PAIRS:
        before = any(oracle.matches(one, values) for one in filters)
        assert any(oracle.matches(one, values) for one in merged) is before


@given(strategies.small_pair_filters, strategies.small_pair_filters)
def test_a_perfect_merge_is_the_union(first: Filter, second: Filter) -> None:
    merged = perfect_merge(first, second)
    if first.covers(second):
        assert merged == first
    if merged is not None:
        assert merged == first | second


@given(st.lists(strategies.small_pair_filters, min_size=1, max_size=3))
def test_the_false_positive_share_is_the_share_of_false_positives(filters: list[Filter]) -> None:
    merge = imperfect_merge(filters, COUNTED)
    assert all(merge.filter.covers(one) for one in filters)
    through = [values for values in WEIGHTED if oracle.matches(merge.filter, values)]
    unwanted = [values for values in through if not any(oracle.matches(one, values) for one in filters)]
    expected = len(unwanted) / len(through) if through else 0.0
    assert merge.false_positive_share == pytest.approx(expected, abs=1e-9)


@given(st.lists(strategies.small_pair_filters, min_size=1, max_size=4), st.sampled_from((0.0, 0.2, 1.0)))
def test_merging_within_a_budget_covers_and_keeps_it(filters: list[Filter], most: float) -> None:
    merges = imperfectly_merged(filters, COUNTED, most)
    assert all(merge.false_positive_share <= most for merge in merges)
    assert all(any(merge.filter.covers(one) for merge in merges) for one in filters if not one.is_empty)
