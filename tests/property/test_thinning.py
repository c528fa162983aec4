"""Thinning upstream changes nothing for the monitor downstream, and tracks chains as a list of them would."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.monitor import HeldMonitor, Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.siena.messages import Held
from catchment.routing.siena.thinning import Thinner
from tests import oracle
from tests.strategies import EDGE_TIMES

START = EDGE_TIMES[2]
SECOND = timedelta(seconds=1)
KINDS = "ABCD"

steps = st.sampled_from(
    [Filter(f"kind = '{kind}'") for kind in KINDS] + [Filter("kind in ('A', 'B')"), Filter("x > 1")]
)
patterns = st.builds(
    lambda filters, within, by: Pattern.of(*filters, within=within, by=by),
    st.lists(steps, min_size=2, max_size=4),
    st.none() | st.integers(1, 9).map(lambda seconds: seconds * SECOND),
    st.sampled_from(((), ("host",))),
)
contents = st.builds(
    lambda kind, x, host: {"kind": kind, "x": x, "host": host},
    st.sampled_from(KINDS),
    st.sampled_from((0, 0, 2)),
    st.sampled_from("abc"),
)
# Pauses of at least a second: nothing is published at the same time as something else.
streams = st.lists(st.tuples(contents, st.integers(1, 3)), max_size=30)
Drawn = Sequence[tuple[dict[str, object], int]]
Sequences = list[tuple[Notification, ...]]


def stream_of(drawn: Drawn) -> list[Notification]:
    seconds, notifications = 0, []
    for seq, (content, pause) in enumerate(drawn):
        seconds += pause
        notifications.append(Notification(content, source="p", seq=seq, time=START + seconds * SECOND))
    return notifications


def split(pattern: Pattern, places: Sequence[int]) -> list[range]:
    """Parts of a pattern between places; those of one filter come by themselves."""
    cuts = sorted({0, len(pattern.filters), *(place for place in places if place < len(pattern.filters))})
    return [range(first, after) for first, after in pairwise(cuts) if after - first > 1]


def matched(pattern: Pattern, notification: Notification) -> list[int]:
    return [step for step, filter in enumerate(pattern.filters) if filter.matches(notification)]


def through_thinners(pattern: Pattern, parts: Sequence[range], stream: Sequence[Notification]) -> tuple[Sequences, int]:
    """What a monitor finds that gets the parts from thinners and the rest as it comes; and how much it got."""
    monitor, sequences, count = HeldMonitor(pattern), [], 0
    thinners = [(part, Thinner(part_of(pattern, part))) for part in parts]
    plain = [step for step in range(len(pattern.filters)) if not any(step in part for part in parts)]
    for now, notification in enumerate(stream):
        places = matched(pattern, notification)
        if by_itself := [step for step in places if step in plain]:
            count += 1
            sequences += monitor.on_notification(notification, START, by_itself)
        for part, thinner in thinners:
            mine = tuple(step - part.start for step in places if step in part)
            sent = thinner.on_notification(Held(notification, now, mine)) if mine else []
            count += len(sent)
            for held in sent:
                sequences += monitor.on_held(held.notification, START, [step + part.start for step in held.steps])
    return [tuple(match.notification for match in sequence) for sequence in sequences], count


def at_once(pattern: Pattern, stream: Sequence[Notification]) -> Sequences:
    monitor = Monitor(pattern)
    sequences = [sequence for notification in stream for sequence in monitor.on_notification(notification, START)]
    return [tuple(match.notification for match in sequence) for sequence in sequences]


@given(patterns, st.lists(st.integers(1, 3), max_size=2), streams)
def test_the_monitor_downstream_finds_the_same(pattern: Pattern, places: list[int], drawn: Drawn) -> None:
    stream = stream_of(drawn)
    sequences, _ = through_thinners(pattern, split(pattern, places), stream)
    assert sequences == at_once(pattern, stream) == oracle.sequences(pattern, stream)


def part_of(pattern: Pattern, steps: range) -> Pattern:
    return Pattern.of(*(pattern.filters[i] for i in steps), within=pattern.within, by=pattern.by)


# The second A is ignored, and held upstream when a late C ends the wait of the first: it must not be the first then.
LATE = [("A", 1), ("B", 1), ("A", 10), ("C", 12), ("A", 6), ("B", 5), ("C", 8)]


@given(patterns, st.integers(0, 2), st.integers(2, 3), streams)
@example(
    Pattern("[kind = 'A'] -> [kind = 'B'] -> [kind = 'C'] within 20s"),
    0,
    2,
    [({"kind": kind, "x": 0, "host": "a"}, pause) for kind, pause in LATE],
)
def test_thinned_twice_is_the_same(pattern: Pattern, first: int, length: int, drawn: Drawn) -> None:
    """A thinner of the whole that gets a part of it from a thinner further upstream."""
    part = range(min(first, len(pattern.filters) - 2), min(first + length, len(pattern.filters)))
    stream, sequences = stream_of(drawn), []
    monitor, outer, inner = HeldMonitor(pattern), Thinner(pattern), Thinner(part_of(pattern, part))
    for now, notification in enumerate(stream):
        steps = matched(pattern, notification)
        plain = tuple(step for step in steps if step not in part)
        mine = tuple(step - part.start for step in steps if step in part)
        sent = outer.on_notification(Held(notification, now, plain)) if plain else []
        for held in inner.on_notification(Held(notification, now, mine)) if mine else ():
            moved = tuple(step + part.start for step in held.steps)
            sent += outer.on_notification(Held(held.notification, held.arrived, moved))
        for held in sent:
            sequences += monitor.on_held(held.notification, START, held.steps)
    assert [tuple(match.notification for match in sequence) for sequence in sequences] == at_once(pattern, stream)


@given(patterns, streams)
def test_what_is_sent_is_what_whole_chains_say(pattern: Pattern, drawn: Drawn) -> None:
    thinner, stream = Thinner(pattern), stream_of(drawn)
    sent = [
        thinner.on_notification(Held(notification, 0, tuple(matched(pattern, notification)))) for notification in stream
    ]
    assert [[held.notification for held in batch] for batch in sent if batch] == oracle.thinned(pattern, stream)


@given(patterns, st.lists(st.integers(1, 3), max_size=1), streams, st.sets(st.integers(0, 29), max_size=6))
def test_a_part_may_be_delegated_and_withdrawn_at_any_time(
    pattern: Pattern, places: list[int], drawn: Drawn, changes: set[int]
) -> None:
    monitor, sequences, thinner = HeldMonitor(pattern), [], None
    part = (split(pattern, places) or [range(len(pattern.filters))])[-1]
    stream = stream_of(drawn)
    for now, notification in enumerate(stream):
        if now in changes and thinner is None:
            thinner = Thinner(part_of(pattern, part))
            if monitor.is_inside(part.start, part.stop - 1):
                thinner.go_on()
        elif now in changes and thinner is not None:
            for held in thinner.held():
                sequences += monitor.on_held(held.notification, START, [step + part.start for step in held.steps])
            thinner = None
        steps = matched(pattern, notification)
        sequences += monitor.on_notification(
            notification, START, [step for step in steps if thinner is None or step not in part]
        )
        mine = tuple(step - part.start for step in steps if step in part)
        for held in thinner.on_notification(Held(notification, now, mine)) if thinner is not None and mine else ():
            sequences += monitor.on_held(held.notification, START, [step + part.start for step in held.steps])
    assert [tuple(match.notification for match in sequence) for sequence in sequences] == at_once(pattern, stream)


@given(patterns, st.lists(st.integers(1, 3), max_size=2), streams)
def test_out_of_order_sequences_are_still_sequences(pattern: Pattern, places: list[int], drawn: Drawn) -> None:
    sequences, _ = through_thinners(pattern, split(pattern, places), shuffled_stream(drawn))
    for sequence in sequences:
        assert oracle.sequences(pattern, sequence) == [sequence]


def shuffled_stream(drawn: Drawn) -> list[Notification]:
    """Published at times that have nothing to do with the order in which they come."""
    return [
        Notification(content, source="p", seq=seq, time=START + (seq * pause * 7 % 13) * SECOND)
        for seq, (content, pause) in enumerate(drawn)
    ]


def test_something_is_saved():
    """Of f · g · h, with f and g from upstream, neither the g before an f is sent nor what no g follows."""
    pattern = Pattern("[kind = 'A'] -> [kind = 'B'] -> [kind = 'C'] by host")
    drawn = [({"kind": kind, "x": 0, "host": host}, 1) for kind, host in ("Ba", "Ab", "Aa", "Ba", "Ba", "Ca", "Ac")]
    sequences, count = through_thinners(pattern, [range(2)], stream_of(drawn))
    assert len(sequences) == 1
    assert count == 3
