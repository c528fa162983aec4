"""The short cuts for plain filters against the ways they avoid: the grammar, and sets spelled out."""

import contextlib

from hypothesis import assume, example, given
from hypothesis import strategies as st

from catchment.errors import CatchmentError
from catchment.model.constraint import Constraint
from catchment.model.filter import FILTER_SIZE_MAX, Conjunction, Filter, union_of
from catchment.model.language import parse_any_filter
from catchment.model.normal import normalized
from catchment.model.plain import plain_constraints, spelled_plainly
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
    lambda found: "".join(part for pair in found for part in pair)
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
def test_the_short_cut_reads_what_the_grammar_reads(text) -> None:
    found = plain_constraints(text)
    if found is not None:
        expression = by_grammar(text)
        assert expression is not None
        assert found == (expression.parts if len(found) > 1 else (expression,))


@given(st.lists(strategies.constraints, min_size=1, max_size=4))
def test_most_that_is_plain_takes_the_short_cut(constraints) -> None:
    """Or nothing is tested above."""
    text = " and ".join(map(str, constraints))
    assume(not set(text) & set("\\`") and all(one.operator in SPOKEN for one in constraints))
    assume(all(" and " not in str(one.value) for one in constraints))
    assert plain_constraints(text) == tuple(constraints)


@given(st.lists(strategies.constraints | strategies.small_scalar_constraints(st.just("x")), max_size=5))
def test_a_plain_spelling_is_the_canonical_one(constraints: list[Constraint]) -> None:
    boxes = normalized([Conjunction(tuple(constraints)).box])
    found = spelled_plainly(constraints)
    if found is not None:
        assert Filter.of_boxes(boxes).alternatives == (Conjunction(found),)
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
