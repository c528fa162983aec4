"""`matches` and `cidr`: filters with them mean what the oracle says, in the model and in the matcher."""

import re
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from catchment.matching import Matcher
from catchment.model.expression import Expression
from catchment.model.filter import Filter
from catchment.model.opaque import required_text
from tests import oracle, strategies

TRIED = list(oracle.assignments(strategies.OPAQUE_DOMAIN))
NAME = st.just("s")
leaves = (
    strategies.opaque_constraints(NAME) | strategies.opaque_constraints(NAME) | strategies.small_string_constraints()
)
expressions = strategies.expressions(leaves, 5) | strategies.deep_expressions(leaves)


@given(strategies.regexes, st.sampled_from(strategies.OPAQUE_STRINGS))
@example(r"(a|b)x", "ax")
@example(r"ab*", "a")
@example(r"\x61b", "ab")
@example(r"[]a]b", "]b")
def test_what_a_regular_expression_requires_stands_in_whatever_it_matches(pattern: str, text: str) -> None:
    if re.search(pattern, text):
        assert required_text(pattern) in text


@given(expressions)
def test_filters_match_what_the_oracle_matches(expression: Expression) -> None:
    filter = Filter.of_expression(expression)
    again = Filter(str(filter))
    from_json = Filter.from_json(filter.to_json())
    for values in TRIED:
        expected = oracle.truth(expression, values) is True
        assert filter.matches(values) is again.matches(values) is from_json.matches(values) is expected
        assert filter.routed.matches(values) or not expected
    assert filter == again == from_json
    assert filter.is_normal or filter.is_opaque or not filter.routed.is_empty


@given(expressions, expressions)
def test_relations_are_sound(first: Expression, second: Expression) -> None:
    f, g = Filter.of_expression(first), Filter.of_expression(second)
    in_f = [oracle.truth(first, values) is True for values in TRIED]
    in_g = [oracle.truth(second, values) is True for values in TRIED]
    pairs = list(zip(in_f, in_g, strict=True))
    assert f.covers(f)
    assert not f.covers(g) or all(a for a, b in pairs if b)
    assert f.overlaps(g) or not any(a and b for a, b in pairs)
    assert not f.is_empty or not any(in_f)
    assert f != g or in_f == in_g


@given(
    st.lists(expressions, min_size=1, max_size=8), st.lists(st.sampled_from(TRIED), min_size=1, max_size=6), st.data()
)
def test_the_matcher_finds_what_the_oracle_finds(listed: list[Expression], notifications, data: st.DataObject) -> None:
    matcher = Matcher()
    matcher.add_many(list(range(len(listed))), [Filter.of_expression(expression) for expression in listed])
    removed = data.draw(st.sets(st.sampled_from(range(len(listed)))))
    for id in sorted(removed):
        matcher.remove(id)
    for id in sorted(data.draw(st.sets(st.sampled_from(sorted(removed)))) if removed else ()):
        matcher.add(id, Filter.of_expression(listed[id]))
        removed -= {id}
    given = [{name: value for name, value in values.items() if value is not None} for values in notifications]
    expected = [
        [i for i, expression in enumerate(listed) if i not in removed and oracle.truth(expression, values) is True]
        for values in given
    ]
    assert [sorted(ids) for ids in matcher.match_batch(given)] == expected
    assert [sorted(matcher.match(values)) for values in given] == expected
    with tempfile.TemporaryDirectory() as directory:
        matcher.save(Path(directory) / "index")
        opened = Matcher.open(Path(directory) / "index")
        assert [sorted(map(int, ids)) for ids in opened.match_batch(given)] == expected
