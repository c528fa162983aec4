"""An explanation agrees with the filter it explains, and its examples are true."""

import json

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.explanation import ExplainedAlternative, Explanation, explain
from catchment.model.filter import Filter
from catchment.model.values import Value, checked
from tests import oracle, strategies


@st.composite
def explained(draw: st.DrawFn) -> tuple[Filter, dict[str, Value], Explanation]:
    leaves = strategies.constraints
    expression = draw(strategies.expressions(leaves) | strategies.deep_expressions(leaves))
    values = draw(strategies.near(expression))
    filter = Filter.of_expression(expression)
    return filter, values, explain(filter, values)


def is_contradictory(alternative: ExplainedAlternative) -> bool:
    return Filter.of(*alternative.conjunction.constraints).is_empty


@given(explained())
def test_it_agrees_with_the_filter(found) -> None:
    filter, values, explanation = found
    assert explanation.matched is filter.matches(values)
    assert bool(explanation.alternatives) is not filter.is_empty
    for one in explanation.alternatives:
        assert one.held is one.conjunction.matches(values)
        for clause in one.clauses:
            assert clause.held is (oracle.holds(clause.constraint, values) is True)


@given(strategies.filters, strategies.notifications)
def test_it_agrees_on_any_notification(filter, notification) -> None:
    assert explain(filter, notification).matched is filter.matches(notification)


@given(explained())
def test_every_example_satisfies_its_clause(found) -> None:
    alternatives = [alternative for alternative in found[2].alternatives if not is_contradictory(alternative)]
    for clause in (clause for alternative in alternatives for clause in alternative.failing):
        if clause.constraint.operator == "absent":
            assert clause.example is None
        else:
            assert clause.example is not None
            assert checked(clause.example) == clause.example
            assert clause.constraint.matches(clause.example)


@given(explained())
def test_following_the_hints_of_an_alternative_makes_it_hold(found) -> None:
    filter, values, explanation = found
    for one in explanation.alternatives:
        if is_contradictory(one):
            # An `or` of conjunctions has no such alternative, and a choice of parts only if no other is nearer.
            assert len(explanation.alternatives) == 1
            continue
        mended = dict(values)
        for clause in one.failing:
            mended[clause.constraint.name] = clause.example
            if clause.constraint.operator == "absent":
                del mended[clause.constraint.name]
        assert filter.matches(mended)


@given(explained())
def test_the_nearest_has_the_fewest_failing_clauses(found) -> None:
    explanation = found[2]
    fewest = min((len(one.failing) for one in explanation.alternatives), default=None)
    assert (None if explanation.nearest is None else len(explanation.nearest.failing)) == fewest


@given(explained())
def test_it_is_json_and_one_line_of_text(found) -> None:
    explanation = found[2]
    assert json.loads(json.dumps(explanation.to_json())) == explanation.to_json()
    assert str(explanation).isprintable()
