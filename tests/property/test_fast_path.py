"""The fast paths, compared with what they replace: the grammar, and the spelling of sets."""

import contextlib

from hypothesis import assume, example, given
from hypothesis import strategies as st

from catchment.errors import CatchmentError
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import OPERATORS, Constraint
from catchment.model.expression import text_of
from catchment.model.fast_path import (
    parsed_advertisement_fast,
    parsed_expression_fast,
    parsed_fast,
    parsed_pattern_fast,
    spelled_fast,
)
from catchment.model.filter import FILTER_SIZE_MAX, Filter
from catchment.model.language import (
    parse_advertisement,
    parse_any_advertisement,
    parse_any_filter,
    parse_any_pattern,
    parse_pattern,
)
from catchment.model.normal import normalized
from tests import oracle, strategies

SPOKEN = tuple(operator for operator in OPERATORS if not operator.startswith("not ") and operator != "absent")
PIECES = """
x y price int time string in any x.y $time $no and AND or not by within and.x é ٣ nocase NoCase exists exists(x)
= == != < <= > >= <> >* *< * prefix Contains glob
1 -2.5 +3 1e3 1e400 5. .5 99999999999999999999 2026-11-15 2026-11-15T10:30:00Z 2026-99-99 2026-11-15T10
'a' "b" 'a and b' "a, b" '' "\\n" 'it"s' true FALSE truex ( ) , (1,2) ('a','b') (1,'a') `q`
"\\u{41}" '\\u0041' '\\u{d800}' '\\u{110000}' '\\q' `a\\`b` `` not( (( )) true false
"""
joints = st.sampled_from((" ", " ", " ", "", " and ", ", ", "\n", " and"))
texts = st.lists(st.tuples(st.sampled_from(PIECES.split()), joints), max_size=12).map(
    lambda pairs: "".join(part for pair in pairs for part in pair)
)
constraint_texts = strategies.constraints.map(str)
joined = st.builds(lambda parts, joint: joint.join(parts), st.lists(constraint_texts, min_size=1, max_size=5), joints)


def mutated(text: str, edits: list[tuple[int, str]]) -> str:
    """A text with some characters replaced by pieces of the language."""
    for place, piece in edits:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + place % 3 :]
    return text


written_expressions = (
    strategies.expressions(strategies.constraints) | strategies.deep_expressions(strategies.constraints)
).flatmap(lambda expression: st.sampled_from((oracle.text_of(expression), text_of(expression))))
edits = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from([*PIECES.split(), " ", ""])), max_size=3)
expression_texts = st.builds(mutated, written_expressions, edits)


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


@given(texts | joined | expression_texts)
@example("not not (x = 1, y = 2 or z = 3)")
@example("x = nocase 'a' or x in nocase ('a', 'b') or `a b` contains nocase \"x\"")
@example("exists(`a\\`b`) and not exists(x)")
@example("(" * 70 + "x = 1" + ")" * 70)
@example("not " * 64 + "x = 1")
@example("not " * 65 + "x = 1")
@example("nocase = nocase 'nocase'")
def test_one_walk_reads_what_the_grammar_reads(text) -> None:
    expression = parsed_expression_fast(text)
    if expression is not None:
        assert expression == by_grammar(text)


@given(written_expressions)
def test_one_walk_reads_every_expression(text) -> None:
    """Otherwise the test above would test nothing."""
    assert parsed_expression_fast(text) is not None


def outcome(parse, text):
    """What a parser makes of a text, or what it says."""
    try:
        return parse(text)
    except CatchmentError as problem:
        return str(problem)


written_constraints = st.builds("{}{}".format, st.sampled_from(("", "", "not ")), constraint_texts)
advertisement_texts = st.builds(mutated, st.lists(written_constraints, min_size=1, max_size=4).map(", ".join), edits)


@given(advertisement_texts | texts)
@example("not x = 1, not s prefix 'a'")
@example("x = 1, ")
@example("x = 1 and y = 2")
@example(", x = 1")
@example("")
def test_an_advertisement_is_the_same_by_the_grammar(text) -> None:
    assert outcome(parse_advertisement, text) == outcome(parse_any_advertisement, text)


@given(st.lists(strategies.constraints.filter(lambda given: given.operator != "absent"), min_size=1, max_size=4))
def test_every_advertisement_takes_the_fast_path(constraints) -> None:
    assert parsed_advertisement_fast(", ".join(map(str, constraints))) is not None


steps = st.builds(
    "{}{}{}".format, st.sampled_from(("[", " [ ", "")), written_expressions, st.sampled_from(("]", " ] ", ""))
)
tails = st.sampled_from(
    ("", "", " within 10m", " WITHIN 1h30m by x", "by `a b`, y.z", " within 0s", " within 10q", " by in", "->")
)
pattern_texts = st.builds(
    lambda steps, tail, edits: mutated(" -> ".join(steps) + tail, edits),
    st.lists(steps, min_size=1, max_size=3),
    tails,
    edits,
)


@given(pattern_texts)
@example("x = 1 -> [y = '->' or y = ']'] within 10m by x, `within`")
@example("[x = 1] y = 2")
@example("[x = 1")
@example("x = 1] -> y = 2")
def test_a_pattern_is_the_same_by_the_grammar(text) -> None:
    assert outcome(parse_pattern, text) == outcome(parse_any_pattern, text)


@given(
    st.lists(written_expressions, min_size=1, max_size=3), st.sampled_from(("", " within 10m", " within 1s by x, y"))
)
def test_every_pattern_takes_the_fast_path(steps, tail) -> None:
    assert parsed_pattern_fast(" -> ".join(f"[{step}]" for step in steps) + tail) is not None


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
    slow = Filter.of_boxes(Filter.of_expression(expression).boxes)
    fast = Filter(text)
    assert fast.is_empty == slow.is_empty
    if not fast.is_empty:
        assert str(fast) == str(slow)
    assert fast.alternatives == slow.alternatives
    assert fast == slow
    assert hash(fast) == hash(slow)
    assert fast.size <= FILTER_SIZE_MAX
