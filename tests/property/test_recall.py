"""A matcher that recalls equals the oracle, whatever is added, removed and repeated, also when filters name the
envelope."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.parts import recall
from tests import oracle
from tests import strategies as ours

ENVELOPED = st.sampled_from([constraint("$source", "=", "a"), constraint("$seq", ">", 1)])


@pytest.fixture(autouse=True, params=["large", "small"])
def limits(request, monkeypatch):
    """Small ones are reached within a few notifications."""
    if request.param == "small":
        monkeypatch.setattr(recall, "CONTENTS_MAX", 2)
        monkeypatch.setattr(recall, "CONTENT_IDS_MAX", 1)
        monkeypatch.setattr(recall, "USED_IDS_MAX", 3)
        monkeypatch.setattr(recall, "TRIAL", 3)
        monkeypatch.setattr(recall, "REST_TRIALS", 1)


@st.composite
def scripts(draw):
    """Filters that come and go, and batches of few contents in between."""
    expressions = draw(st.lists(ours.expressions(ours.constraints | ENVELOPED, 3), min_size=1, max_size=6))
    contents = draw(st.lists(st.sampled_from(expressions).flatmap(ours.near), min_size=1, max_size=3))
    plain = [{name: value for name, value in content.items() if name[0] != "$"} for content in contents]
    notifications = st.builds(Notification, st.sampled_from(plain), source=st.sampled_from("ab"), seq=st.integers(1, 2))
    toggles = st.sampled_from(range(len(expressions)))
    batches = st.lists(notifications, min_size=1, max_size=4)
    steps = draw(st.lists(toggles | batches | st.just("prepare"), min_size=1, max_size=20))
    return expressions, steps


@given(scripts(), st.booleans())
def test_recalls_what_the_oracle_finds(script, by_group):
    expressions, steps = script
    matcher, held = recall.RecallingMatcher(list, by_group=by_group), set[int]()
    for step in steps:
        if isinstance(step, list):
            assert matcher.answers(step) == [
                [id for id in sorted(held) if oracle.truth(expressions[id], notification.matched) is True]
                for notification in step
            ]
            assert matcher._by_ids_size == sum(len(ids) + 1 for ids in matcher._by_ids) <= recall.USED_IDS_MAX
        elif step == "prepare":
            matcher.prepare()
        elif step in held:
            held.remove(step)
            matcher.remove(step)
        else:
            held.add(step)
            matcher.add(step, Filter.of_expression(expressions[step]), group=step if by_group else None)


def test_rests_where_nothing_repeats_and_tries_again(monkeypatch):
    monkeypatch.setattr(recall, "CONTENTS_MAX", 100)
    monkeypatch.setattr(recall, "TRIAL", 4)
    monkeypatch.setattr(recall, "REST_TRIALS", 2)
    matcher = recall.RecallingMatcher(tuple)
    matcher.add(1, Filter.of_expression(constraint("x", "any")))
    seen = []
    for x in range(13):
        matcher.answers([Notification({"x": x})])
        seen.append(len(matcher._known))
    assert seen == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5]


def test_groups_of_a_batch_are_told_apart_where_contents_do_not_repeat(monkeypatch):
    monkeypatch.setattr(recall, "TRIAL", 1)
    made = itertools.count()
    matcher = recall.RecallingMatcher(lambda ids: (*ids, next(made)), by_group=True)
    for name in "ab":
        matcher.add(name, Filter.of_expression(constraint(name, "any")), group=name)
    matcher.answers([Notification({"x": 1})])
    assert matcher._resting > 0
    rows = [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {}, {"b": 2}]
    batch = [Notification(row) for row in rows]
    answers = matcher.answers(batch)
    assert [answer[:-1] for answer in answers] == [("a",), ("b",), ("a", "b"), (), ("b",)]
    # Made once, and anew when filters change.
    assert answers[1] is answers[4]
    matcher.remove("a")
    again = matcher.answers(batch)
    assert [answer[:-1] for answer in again] == [(), ("b",), ("b",), (), ("b",)]
    assert again[1] != answers[1]
