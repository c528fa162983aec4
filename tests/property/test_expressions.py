"""Filters as they were written: their forms, what they mean past the budget of normal forms, and steps that are
counted."""

import contextlib
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model import automaton, filter, strings
from catchment.model import expression as ex
from catchment.model.budget import steps_used
from catchment.model.constraint import Constraint
from catchment.model.expression import And, Expression, Not, Or
from catchment.model.filter import Filter
from tests import oracle, strategies

STRINGS = list(oracle.assignments(strategies.SMALL_STRING_DOMAIN))
PAIRS = list(oracle.assignments(strategies.SMALL_PAIR_DOMAIN))
CASED = list(oracle.assignments(strategies.CASED_DOMAIN))

expressions = strategies.expressions(strategies.constraints) | strategies.deep_expressions(strategies.constraints)
small_expressions = st.one_of(
    st.tuples(strategies.deep_expressions(strategies.small_pair_constraints(), 3), st.just(PAIRS)),
    st.tuples(strategies.expressions(strategies.small_string_constraints(), 6), st.just(STRINGS)),
    st.tuples(strategies.expressions(strategies.cased_constraints(), 5), st.just(CASED)),
)
# Budgets from none to the usual one.
steps = st.sampled_from((0, 20, 100, 500, filter.NORMAL_STEPS_MAX))


@contextlib.contextmanager
def smaller_budget(normal_steps: int, hard_leaves: int = filter.HARD_LEAVES_MAX) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter, "NORMAL_STEPS_MAX", normal_steps)
        patch.setattr(filter, "HARD_LEAVES_MAX", hard_leaves)
        yield


# --- forms --------------------------------------------------------------------------------------


def is_positive(expression: Expression) -> bool:
    """Whether it has neither `not` nor truth values, and no `and` directly within an `and`, no `or` within an `or`."""
    match expression:
        case And(parts) | Or(parts):
            others = (Constraint, Or if isinstance(expression, And) else And)
            return len(parts) > 1 and all(isinstance(part, others) and is_positive(part) for part in parts)
        case Constraint():
            return True
        case _:
            return False


@given(st.data(), expressions)
def test_the_positive_and_the_canonical_form_mean_the_same(data: st.DataObject, expression: Expression) -> None:
    values = data.draw(strategies.near(expression))
    expected = oracle.truth(expression, values) is True
    positive, (canonical, text) = ex.positive(expression), ex.canonical(expression)
    for form in (positive, canonical):
        assert isinstance(form, bool) or is_positive(form)
        # A positive form needs two values only: what is unknown is what does not hold.
        assert (oracle.truth(form, values) is True) is expected
    assert (oracle.truth(ex.positive(expression, False), values) is True) is (oracle.truth(expression, values) is False)
    assert ex.canonical(canonical) == (canonical, text), "it is its own canonical form"


@given(st.data(), expressions)
def test_the_canonical_form_does_not_depend_on_order_and_repetition(
    data: st.DataObject, expression: Expression
) -> None:
    def shuffled(part: Expression) -> Expression:
        match part:
            case And(parts) | Or(parts):
                again = data.draw(st.lists(st.sampled_from(parts), max_size=2))
                order = data.draw(st.permutations([*parts, *again]))
                return type(part)(tuple(map(shuffled, order)))
            case Not(inner):
                return Not(Not(Not(shuffled(inner))))
            case _:
                return part

    assert ex.canonical(shuffled(expression)) == ex.canonical(expression)


@given(expressions, steps)
def test_texts_and_json_say_the_same_within_any_budget(expression: Expression, normal_steps: int) -> None:
    with smaller_budget(normal_steps):
        written = Filter.of_expression(expression)
        for same in (
            Filter(str(written)),
            Filter(oracle.text_of(expression)),
            Filter(ex.text_of(expression)),
            Filter.from_json(json.loads(json.dumps(written.to_json()))),
            Filter.from_json(json.loads(json.dumps(ex.to_json(expression)))),
        ):
            assert same == written
            assert hash(same) == hash(written)
            assert str(same) == str(written)
            assert same.is_normal is written.is_normal


# --- past the budget ----------------------------------------------------------------------------


@given(small_expressions, st.data(), steps, st.sampled_from((0, filter.HARD_LEAVES_MAX)))
def test_relations_are_sound_within_any_budget(drawn, data, normal_steps: int, hard_leaves: int) -> None:
    first, tried = drawn
    second, _ = data.draw(small_expressions.filter(lambda other: other[1] is tried))
    with smaller_budget(normal_steps, hard_leaves):
        f, g = Filter.of_expression(first), Filter.of_expression(second)
        in_f = [oracle.truth(first, values) is True for values in tried]
        in_g = [oracle.truth(second, values) is True for values in tried]
        pairs = list(zip(in_f, in_g, strict=True))
        assert f.covers(f)
        assert not f.covers(g) or all(a for a, b in pairs if b)
        assert not g.covers(f) or all(b for a, b in pairs if a)
        assert f.overlaps(g) or not any(a and b for a, b in pairs)
        assert not f.is_empty or not any(in_f)
        assert f != g or in_f == in_g
        assert f != g or hash(f) == hash(g)
        assert [(f & g).matches(values) for values in tried] == [a and b for a, b in pairs]
        assert [(f | g).matches(values) for values in tried] == [a or b for a, b in pairs]


@given(small_expressions, steps, st.sampled_from((0, filter.HARD_LEAVES_MAX)))
def test_what_brokers_route_by_covers_the_filter_and_has_a_normal_form(drawn, normal_steps: int, hard: int) -> None:
    expression, tried = drawn
    with smaller_budget(normal_steps, hard):
        written = Filter.of_expression(expression)
        routed = written.routed
        assert routed.is_normal
        assert Filter(str(routed)).is_normal, "a neighbor reads its text"
        assert Filter(str(routed)) == routed
        assert routed.covers(written)
        assert all(routed.matches(values) for values in tried if oracle.truth(expression, values) is True)
        if written.is_normal:
            assert routed == written


@given(expressions)
def test_every_filter_is_routed_by_one_with_a_normal_form(expression: Expression) -> None:
    routed = Filter.of_expression(expression).routed
    assert routed.is_normal
    assert Filter(str(routed)) == routed
    assert Filter(str(routed)).is_normal


# --- steps --------------------------------------------------------------------------------------


def forget() -> None:
    """Empties the caches of answers."""
    automaton.some_string.cache_clear()  # type: ignore[attr-defined]
    strings.of_pieces.cache_clear()  # type: ignore[attr-defined]


@given(expressions, expressions)
def test_steps_do_not_depend_on_what_was_asked_before(first: Expression, second: Expression) -> None:
    counts = []
    for is_forgotten in (True, False, True):
        if is_forgotten:
            forget()
        before = steps_used()
        f, g = Filter.of_expression(first), Filter.of_expression(second)
        answers = (f.is_normal, g.is_normal, f.covers(g), f.overlaps(g), str(f.routed), f == g)
        counts.append((steps_used() - before, answers))
    assert counts[0] == counts[1] == counts[2]
