"""The fast paths for conjunctions, compared with what they replace: the grammar, and the spelling of sets."""

import contextlib

from hypothesis import assume, example, given
from hypothesis import strategies as st

from catchment.errors import CatchmentError
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import Constraint
from catchment.model.fast_path import parsed_fast, spelled_fast
from catchment.model.filter import FILTER_SIZE_MAX, Filter, union_of
from catchment.model.language import parse_any_filter
from catchment.model.normal import normalized
from tests import strategies

SPOKEN = ("=", "!=", "<", "<=", ">", ">=", "prefix", "suffix", "substring", "glob", "in", "any")
PIECES = """
x y price int time string in any x.y $time $no and AND or not by within and.x é ٣
= == != < <= > >= <> >* *< * prefix Contains glob
1 -2.5 +3 1e3 1e400 5. .5 99999999999999999999 2026-11-15 2026-11-15T10:30:00Z 2026-99-99 2026-11-15T10
'a' "b" 'a and b' "a, b" '' "\\n" 'it"s' true FALSE truex ( ) , (1,2) ('a','b') (1,'a') `q`
"""
joints = st.sampled_from((" ", " ", " ", "", " and ", ", ", "\n", " and"))
texts = st.lists(st.tuples(st.sampled_from(PIECES.split()), joints), max_size=12).map(
    lambda pairs: "".join(part for pair in pairs for part in pair)
)
constraint_texts = strategies.constraints.map(str)
joined = st.builds(lambda parts, joint: joint.join(parts), st.lists(constraint_texts, min_size=1, max_size=5), joints)


def by_grammar(text):
    with contextlib.suppress(CatchmentError):
        return parse_any_filter(text)
    return None


@given(texts | joined)
@example("xin (5)")
@example("x > *'a'")
@example("x = 'a and y = 'b'")
@example("x = 2026-11-15T10 and y = 1")
@example("int int > 3 and time any")
@example("x = 1 and y = 2, z = 3")
def test_the_fast_path_reads_what_the_grammar_reads(text) -> None:
    constraints = parsed_fast(text)
    if constraints is not None:
        expression = by_grammar(text)
        assert expression is not None
        assert constraints == (expression.parts if len(constraints) > 1 else (expression,))


@given(st.lists(strategies.constraints, min_size=1, max_size=4))
def test_most_conjunctions_take_the_fast_path(constraints) -> None:
    """Otherwise the test above would test nothing."""
    text = " and ".join(map(str, constraints))
    assume(not set(text) & set("\\`") and all(constraint.operator in SPOKEN for constraint in constraints))
    assume(all(" and " not in str(constraint.value) for constraint in constraints))
    assert parsed_fast(text) == tuple(constraints)


@given(st.lists(strategies.constraints | strategies.small_scalar_constraints(st.just("x")), max_size=5))
def test_the_fast_spelling_is_the_canonical_one(constraints: list[Constraint]) -> None:
    boxes = normalized([Conjunction(tuple(constraints)).box])
    spelling = spelled_fast(constraints)
    if spelling is not None:
        assert Filter.of_boxes(boxes).alternatives == (Conjunction(spelling),)
    assert Filter.of(*constraints).is_empty is (not boxes)


@given(joined)
def test_a_filter_is_the_same_either_way(text) -> None:
    expression = by_grammar(text)
    if expression is None:
        return
    slow = Filter.of_boxes(union_of(expression).boxes)
    fast = Filter(text)
    assert (str(fast), fast.is_empty) == (str(slow), slow.is_empty)
    assert fast.alternatives == slow.alternatives
    assert fast == slow
    assert hash(fast) == hash(slow)
    assert fast.size <= FILTER_SIZE_MAX
