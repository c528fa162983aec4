"""Matching, covering, overlap and emptiness against the oracle."""

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from tests import oracle, strategies

STRINGS = list(oracle.assignments(strategies.SMALL_STRING_DOMAIN))
CASED = list(oracle.assignments(strategies.CASED_DOMAIN))
SCALARS = list(oracle.assignments(strategies.SMALL_SCALAR_DOMAIN))
PAIRS = list(oracle.assignments(strategies.SMALL_PAIR_DOMAIN))


@given(st.data())
def test_a_filter_matches_just_where_its_expression_is_true(data: st.DataObject) -> None:
    leaves = strategies.constraints
    expression = data.draw(strategies.expressions(leaves) | strategies.deep_expressions(leaves))
    values = data.draw(strategies.near(expression))
    filter = Filter.of_expression(expression)
    expected = oracle.truth(expression, values) is True
    assert filter.matches(values) is expected
    assert oracle.matches(filter, values) is expected
    if filter.is_normal:
        assert oracle.alternatives_match(filter, values) is expected, "the normal form says something else"
    assert oracle.disjunctive_matches(oracle.disjunctive(expression), values) is expected
    assert filter.routed.matches(values) or not expected


@given(strategies.constraints, st.data())
def test_satisfied_and_failed_by_split_the_fitting_values(constraint, data) -> None:
    values = data.draw(strategies.near(constraint))
    value = values.get(constraint.name)
    truth = oracle.holds(constraint, values)
    assert (value in constraint.satisfied_by) is (truth is True)
    assert (value in constraint.failed_by) is (truth is False)


@given(strategies.small_string_filters, strategies.small_string_filters)
def test_string_relations_are_exact(first: Filter, second: Filter) -> None:
    _relations_are_exact(first, second, STRINGS)


@given(strategies.cased_filters, strategies.cased_filters)
def test_relations_that_ignore_case_are_exact(first: Filter, second: Filter) -> None:
    _relations_are_exact(first, second, CASED)


@given(strategies.small_scalar_filters, strategies.small_scalar_filters)
def test_scalar_relations_are_exact(first: Filter, second: Filter) -> None:
    _relations_are_exact(first, second, SCALARS)


@given(strategies.small_pair_filters, strategies.small_pair_filters)
def test_relations_across_attributes_are_exact(first: Filter, second: Filter) -> None:
    _relations_are_exact(first, second, PAIRS)


def _relations_are_exact(first: Filter, second: Filter, tried: list[oracle.Values]) -> None:
    assert first.is_normal
    assert second.is_normal
    in_first = [oracle.matches(first, values) for values in tried]
    in_second = [oracle.matches(second, values) for values in tried]
    pairs = list(zip(in_first, in_second, strict=True))
    assert first.covers(second) is all(a for a, b in pairs if b)
    assert second.covers(first) is all(b for a, b in pairs if a)
    assert first.overlaps(second) is any(a and b for a, b in pairs)
    assert first.is_empty is (not any(in_first))
    assert (first == second) is (in_first == in_second), "equal filters are equal objects, and only they"
    if first == second:
        assert hash(first) == hash(second)
    assert [(first & second).matches(values) for values in tried] == [a and b for a, b in pairs]
    assert [(first | second).matches(values) for values in tried] == [a or b for a, b in pairs]


small_advertisements = st.lists(
    strategies.small_pair_constraints().filter(lambda one: one.operator != "absent"), min_size=1, max_size=4
)


@given(small_advertisements, small_advertisements, strategies.small_pair_filters)
def test_advertisement_relations_are_exact(first, second, filter: Filter) -> None:
    a, b = Advertisement.of(*first), Advertisement.of(*second)
    in_a = [oracle.advertises(first, values) for values in PAIRS]
    in_b = [oracle.advertises(second, values) for values in PAIRS]
    wanted = [oracle.matches(filter, values) for values in PAIRS]
    assert [a.matches(values) for values in PAIRS] == in_a
    assert a.covers(b) is all(x for x, y in zip(in_a, in_b, strict=True) if y)
    assert a.overlaps(filter) is any(x and y for x, y in zip(in_a, wanted, strict=True))
    assert a.overlaps(b) is any(x and y for x, y in zip(in_a, in_b, strict=True))
    assert (a == b) is (in_a == in_b)


@given(strategies.filters, strategies.filters, strategies.filters)
def test_covering_is_an_order(f: Filter, g: Filter, h: Filter) -> None:
    assert f.covers(f)
    if f.covers(g) and g.covers(h):
        assert f.covers(h)
    if f.covers(g) and g.covers(f):
        assert f == g


@given(st.data())
def test_wide_relations_are_sound(data: st.DataObject) -> None:
    """Over every operator and Unicode corner: no notification may contradict an answer."""
    first = data.draw(strategies.expressions(strategies.constraints, 3))
    second = data.draw(strategies.expressions(strategies.constraints, 3))
    f, g = Filter.of_expression(first), Filter.of_expression(second)
    for expression in (first, second):
        values = data.draw(strategies.near(expression))
        in_f, in_g = oracle.truth(first, values) is True, oracle.truth(second, values) is True
        assert not (f.covers(g) and in_g and not in_f)
        assert not (g.covers(f) and in_f and not in_g)
        assert f.overlaps(g) or not (in_f and in_g)
        assert not (f.is_empty and in_f)
