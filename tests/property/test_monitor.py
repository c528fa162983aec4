"""The pattern monitor against a reading of the whole stream."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from tests import oracle
from tests.strategies import EDGE_TIMES

START = EDGE_TIMES[2]
SECOND = timedelta(seconds=1)

steps = st.sampled_from(('kind = "A"', 'kind = "B"', 'kind in ("A", "B")', "level > 1", 'kind = "C" or level = 1')).map(
    Filter
)
patterns = st.builds(
    lambda filters, within, by: Pattern.of(*filters, within=within, by=by),
    st.lists(steps, min_size=1, max_size=4),
    st.none() | st.integers(1, 8).map(lambda seconds: seconds * SECOND),
    st.sampled_from(((), ("host",), ("host", "level"))),
)
notifications = st.builds(
    lambda kind, level, host, second: Notification(
        {name: value for name, value in (("kind", kind), ("level", level), ("host", host)) if value is not None},
        time=START + second * SECOND,
    ),
    st.sampled_from("ABCD"),
    st.sampled_from((None, 0, 1, 2, 2.0, True)),
    st.sampled_from((None, "a", "b", 1, 1.0, True)),
    st.integers(0, 12),
)
streams = st.lists(notifications, max_size=14)


@given(patterns, streams)
def test_a_monitor_finds_what_re_reading_finds(pattern: Pattern, stream: list[Notification]) -> None:
    monitor = Monitor(pattern)
    found = [
        tuple(match.notification for match in sequence)
        for i, one in enumerate(stream)
        for sequence in monitor.on_notification(one, START + i * SECOND)
    ]
    assert found == oracle.sequences(pattern, stream)


@given(patterns, streams, st.integers(0, 14))
def test_a_monitor_saved_midway_goes_on_as_before(pattern: Pattern, stream: list[Notification], at: int) -> None:
    whole, halves = Monitor(pattern), Monitor(pattern)
    for i, one in enumerate(stream):
        if i == at:
            halves = Monitor.from_json(pattern, halves.to_json())
        expected = whole.on_notification(one, START + i * SECOND)
        assert halves.on_notification(one, START + i * SECOND) == expected


def published(notification: Notification) -> datetime:
    assert notification.time is not None
    return notification.time


@given(patterns, st.lists(notifications, max_size=14).map(lambda stream: sorted(stream, key=published)))
def test_forgetting_what_is_too_late_changes_nothing(pattern: Pattern, stream: list[Notification]) -> None:
    forgetful, plain = Monitor(pattern), Monitor(pattern)
    for i, one in enumerate(stream):
        forgetful.forget(published(one) - timedelta(microseconds=1))
        expected = plain.on_notification(one, START + i * SECOND)
        assert forgetful.on_notification(one, START + i * SECOND) == expected
        assert len(forgetful) <= len(plain)
