"""What is said over a link, merged: it lets through what is wanted, and nothing else or little else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.merging import perfect_merge_of_advertisements
from catchment.routing.siena import merging
from catchment.routing.siena.forwarding import Change
from catchment.routing.siena.merging import Merged, Merging, join_advertisements
from tests import oracle, strategies
from tests.property.test_widening import COUNTED, PAIRS, WEIGHTED


@st.composite
def changes(draw, elements):
    """Changes one after another, each against what is wanted by then."""
    pool = draw(st.lists(elements, min_size=1, max_size=7, unique=True))
    wanted: set[Any] = set()
    steps = []
    for toggled in draw(st.lists(st.sets(st.sampled_from(pool), min_size=1), min_size=1, max_size=6)):
        steps.append(Change(tuple(wanted & toggled), tuple(toggled - wanted)))
        wanted ^= toggled
    return [*steps, Change(tuple(wanted), ())]


def after_each(merged, steps):
    """What is wanted and what the neighbor holds, which keeps no filter that another covers."""
    wanted: set[Any] = set()
    held: set[Any] = set()
    for change in steps:
        wanted = (wanted - set(change.withdrawn)) | set(change.announced)
        said = merged.update(change)
        assert set(said.withdrawn) <= held
        held = (held - set(said.withdrawn)) | set(said.announced)
        assert held == set(merged.said)
        assert not any(filter is not other and filter.covers(other) for filter in held for other in held)
        yield wanted, held


@pytest.fixture(autouse=True, params=["many", "few"])
def limits(request, monkeypatch):
    if request.param == "few":
        monkeypatch.setattr(merging, "TRIES_MAX", 1)
        monkeypatch.setattr(merging, "MEMBERS_MAX", 3)


@given(changes(strategies.small_pair_filters.filter(lambda filter: not filter.is_empty)))
def test_perfect_merging_says_the_union_in_no_more_filters(steps):
    for wanted, held in after_each(Merged(Merging().join), steps):
        assert len(held) <= len(wanted)
        for values in PAIRS:
            through = any(oracle.matches(filter, values) for filter in held)
            assert through is any(oracle.matches(filter, values) for filter in wanted)


@given(
    changes(strategies.small_pair_filters.filter(lambda filter: not filter.is_empty)), st.sampled_from((0.1, 0.5, 1.0))
)
def test_imperfect_merging_misses_nothing_and_keeps_its_budget(steps, budget):
    for wanted, held in after_each(Merged(Merging(budget, COUNTED).join), steps):
        assert all(any(wide.covers(filter) for wide in held) for filter in wanted)
        for said in held:
            through = [values for values in WEIGHTED if oracle.matches(said, values)]
            unwanted = [values for values in through if not any(oracle.matches(filter, values) for filter in wanted)]
            assert len(unwanted) <= budget * len(through) + 1e-9


@given(changes(strategies.advertisements))
def test_merged_advertisements_say_the_union(steps):
    for wanted, held in after_each(Merged(join_advertisements), steps):
        assert len(held) <= len(wanted)
        assert all(any(wide.covers(advertisement) for wide in held) for advertisement in wanted)


@given(strategies.advertisements, strategies.advertisements, strategies.notifications)
def test_a_perfect_merge_of_advertisements_is_the_union(first, second, notification):
    merged = perfect_merge_of_advertisements(first, second)
    if merged is not None:
        assert merged.matches(notification) is (first.matches(notification) or second.matches(notification))


def test_section_5_3_1_one_subscription_in_reply_to_a_connection():
    merged = Merged(Merging().join)
    wanted = tuple(map(Filter, ("int alarm = 1", "int alarm > 2", "int alarm = 2")))
    assert merged.update(Change((), wanted)) == Change((), (Filter("int alarm > 0"),))
    assert merged.update(Change(wanted[2:], ())) == Change(
        (Filter("int alarm > 0"),), (Filter("int alarm != 2 and int alarm > 0"),)
    )


def test_merged_advertisements_of_one_attribute():
    first, second = Advertisement("what = 'alarm', level any"), Advertisement("what = 'login', level any")
    assert perfect_merge_of_advertisements(first, second) == Advertisement("what = 'alarm', what = 'login', level any")
    assert perfect_merge_of_advertisements(first, Advertisement("what = 'login'")) is None
    assert perfect_merge_of_advertisements(Advertisement("$source = 'a', x any"), Advertisement("x any")) is None
