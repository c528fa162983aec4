"""A sample of a filter is a notification that it matches, and so do all filters that cover it."""

from hypothesis import given

from catchment.model.filter import Filter
from catchment.model.samples import sample_of
from tests import oracle, strategies

filters = strategies.filters


@given(filters, filters)
def test_whatever_covers_a_filter_matches_its_sample(first: Filter, second: Filter) -> None:
    sample = sample_of(second.canonical)
    if sample is not None:
        assert oracle.truth(second.expression, sample) is True
        assert first.matches(sample) or not first.covers(second)


def test_samples_of_filters_as_people_write_them():
    for text in (
        'cmd contains "a" and cmd contains "b" and image suffix ".exe" and not user prefix "x"',
        'a = 1 or b in ("x", "y")',
        'a contains nocase "B" and n > 3',
        "exists(a) and not exists(b)",
        'ip cidr "10.0.0.0/8" or a = 1',
    ):
        sample = sample_of(Filter(text).canonical)
        assert sample is not None, text
        assert Filter(text).matches(sample)
