"""SIENA §5.4: Tables 5 and 6 and Figure 23 step by step, and what brokers say to each other about patterns.

Table 5 prints server 3 as the provider of a1; the prose, Table 6 and Figure 23 need server 2. The drawing of Figure 23
is rebuilt from its caption and the prose.
"""

from datetime import UTC, datetime, timedelta

import pytest

from catchment import Advertisement, Filter, Notification, Pattern
from catchment.errors import RemoteProtocolError
from catchment.routing.messages import (
    Advertise,
    Cancel,
    Client,
    ClientDown,
    DeliverSequence,
    Forward,
    Header,
    Keep,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    Unadvertise,
)
from catchment.routing.siena import delegating, thinning
from catchment.routing.siena.available import Run, runs_of
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.messages import Advertised, Delegated, Held, Interest, Part
from catchment.routing.siena.thinning import Thinner

ONE, TWO, THREE, FOUR, FIVE = map(Neighbor, "12345")
X, Y = Client("x"), Client("y")
START = datetime(2001, 8, 1, tzinfo=UTC)
SECOND = 1_000_000

A1 = Advertisement("string alarm = 'failed-login', int attempts > 0")
A2 = Advertisement("string file any, string operation = 'file-change'")
F = Filter("string alarm = 'failed-login', int attempts = 1")
G = Filter("string alarm = 'failed-login', int attempts = 2")
H = Filter("string file = '/etc/passwd', string operation = 'file-change'")
S = Pattern.of(F, G, H)
S1 = Pattern.of(F, G)


def failed(attempts: int, second: int, **more: object) -> Notification:
    return stamped({"alarm": "failed-login", "attempts": attempts, **more}, second)


def changed(second: int) -> Notification:
    return stamped({"file": "/etc/passwd", "operation": "file-change"}, second)


def stamped(attributes: dict[str, object], second: int) -> Notification:
    return Notification(attributes, source="p", seq=second, time=START + timedelta(seconds=second))


def came(core: DelegatingCore, source: Neighbor | Client, *some: Notification) -> list[object]:
    """What a broker does when these come together, at the time of the last; without what it only keeps."""
    assert some[-1].seq is not None
    batch = [Routed(notification, Header(1)) for notification in some]
    actions = core.on_notifications(batch, source, some[-1].seq * SECOND)
    return [action for action in actions if not isinstance(action, Keep)]


def held(notification: Notification, *steps: int) -> Held:
    assert notification.seq is not None
    return Held(notification, notification.seq * SECOND, steps)


def server_one() -> DelegatingCore:
    """Server 1 of Figure 23, with the advertisements of Table 5."""
    core = DelegatingCore("1")
    for neighbor in (TWO, THREE):
        core.on_message(LinkUp(), neighbor, 0)
    core.on_message(Advertised((), (A1, A2)), TWO, 0)
    core.on_message(Advertised((), (A2,)), THREE, 0)
    return core


def server_two(f_from: Neighbor = FIVE, g_from: Neighbor = FOUR) -> DelegatingCore:
    core = DelegatingCore("2")
    for neighbor in (ONE, FOUR, FIVE):
        core.on_message(LinkUp(), neighbor, 0)
    core.on_message(Advertised((), (Advertisement("string alarm any, int attempts = 1"),)), f_from, 0)
    core.on_message(Advertised((), (Advertisement("string alarm any, int attempts = 2"),)), g_from, 0)
    return core


# --- the tables and the figure ------------------------------------------------------------------


def test_table_5_available_patterns():
    core = server_one()
    assert core.available() == {A1: (TWO,), A2: (TWO, THREE)}
    core.on_message(Subscribe("x", "s", S), X, 0)
    assert core.available() == {A1: (TWO,), A2: (TWO, THREE), S1: (TWO,)}


def test_table_6_factoring():
    """f and g are available as a1, from one server; h as a2, from two."""
    assert [(A1.overlaps(filter), A2.overlaps(filter)) for filter in S.filters] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert runs_of(S, {F: TWO, G: TWO, H: None}.get) == (Run(0, S1, TWO),)


def test_figure_23_server_1():
    core = server_one()
    assert core.on_message(Subscribe("x", "s", S), X, 0) == [
        Send(TWO, Delegated(announced=(S1,), interest=Interest((), (H,)))),
        Send(THREE, Interest((), (H,))),
    ]
    f, g, h = failed(1, 1), failed(2, 2), changed(3)
    assert core.on_message(Part(S1, (held(f, 0), held(g, 1))), TWO, 2 * SECOND) == []
    assert came(core, THREE, h) == [DeliverSequence(X, "x", (f, g, h), "s")]


def test_figure_23_server_2():
    core = server_two()
    assert core.on_message(Delegated(announced=(S1,)), ONE, 0) == [
        Send(FOUR, Interest((), (G,))),
        Send(FIVE, Interest((), (F,))),
    ]
    f, early, g = failed(1, 2), failed(2, 1), failed(2, 3)
    assert came(core, FOUR, early) == []
    assert came(core, FIVE, f) == []
    assert came(core, FOUR, g) == [Send(ONE, Part(S1, (held(f, 0), held(g, 1))))]
    assert came(core, FOUR, failed(2, 4)) == []


def test_figure_23_if_both_came_from_server_5():
    """Delegation goes on towards the publishers, and parts come back."""
    core = server_two(FIVE, FIVE)
    assert core.on_message(Delegated(announced=(S1,)), ONE, 0) == [Send(FIVE, Delegated(announced=(S1,)))]
    part = Part(S1, (held(failed(1, 1), 0), held(failed(2, 2), 1)))
    assert core.on_message(part, FIVE, 2 * SECOND) == [Send(ONE, part)]


# --- what is delegated --------------------------------------------------------------------------


def runs(*sources: Neighbor | None) -> list[tuple[int, int, Neighbor]]:
    filters = [Filter(f"x = {i}") for i in range(len(sources))]
    by_filter = dict(zip(filters, sources, strict=True))
    delegated = runs_of(Pattern.of(*filters, within=timedelta(seconds=5), by=("host",)), by_filter.get)
    assert all(run.part.within == timedelta(seconds=5) and run.part.by == ("host",) for run in delegated)
    return [(run.steps.start, run.steps.stop, run.neighbor) for run in delegated]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((TWO, TWO), [(0, 2, TWO)]),
        ((TWO, THREE), []),
        ((TWO, None, TWO), []),
        ((None, TWO, TWO, TWO, THREE, THREE), [(1, 4, TWO), (4, 6, THREE)]),
    ],
)
def test_runs_are_contiguous_and_of_one_source(sources, expected):
    assert runs(*sources) == expected


def test_what_a_client_here_offers_is_not_delegated():
    core = server_one()
    core.on_message(Subscribe("x", "s", S), X, 0)
    offer = Advertisement("string alarm any, int attempts = 1")
    actions = core.on_message(Advertise("y", offer), Y, 0)
    assert Send(TWO, Delegated(withdrawn=(S1,), interest=Interest((), (F, G)))) in actions
    actions = core.on_message(Unadvertise("y", offer), Y, 0)
    # Until the last part has come, x may be about to get the first notifications.
    assert Send(TWO, Delegated((), (S1,), (S1,), Interest((F, G)))) in actions


def test_what_is_wanted_anyway_is_not_delegated():
    core = server_one()
    core.on_message(Subscribe("y", "f", Filter("int attempts > 0")), Y, 0)
    wide = Filter("int attempts > 0")
    assert core.on_message(Subscribe("x", "s", S), X, 0) == [
        Send(neighbor, Interest((), (H,))) for neighbor in (TWO, THREE)
    ]
    assert core.on_message(Cancel("y", "f"), Y, 0) == [Send(TWO, Delegated((), (S1,), (), Interest((wide,))))]


def test_plain_filters_of_one_pattern_keep_those_of_another_plain():
    """g alone is no pattern, so it is plain interest for y; then it is for x, and f alone is no pattern either."""
    core = server_one()
    core.on_message(Subscribe("x", "s", S), X, 0)
    actions = core.on_message(Subscribe("y", "t", Pattern.of(G, H)), Y, 0)
    assert actions == [Send(TWO, Delegated((S1,), (), (), Interest((), (F, G))))]
    actions = core.on_message(Cancel("y", "t"), Y, 0)
    # Until the last part has come, x may be about to get the first notifications.
    assert actions == [Send(TWO, Delegated((), (S1,), (S1,), Interest((F, G))))]


def test_equal_parts_are_shared():
    core = server_one()
    core.on_message(Subscribe("x", "s", S), X, 0)
    assert core.on_message(Subscribe("y", "t", S1), Y, 1 * SECOND) == []
    f, g = failed(1, 2), failed(2, 3)
    delivered = core.on_message(Part(S1, (held(f, 0), held(g, 1))), TWO, 3 * SECOND)
    assert delivered == [DeliverSequence(Y, "y", (f, g), "t")]
    assert core.on_message(Cancel("x", "s"), X, 4 * SECOND) == [
        Send(neighbor, Interest((H,))) for neighbor in (TWO, THREE)
    ]
    assert core.on_message(Cancel("y", "t"), Y, 4 * SECOND) == [Send(TWO, Delegated((S1,)))]
    assert core.on_message(Part(S1, (), True), TWO, 5 * SECOND) == []
    assert list(core.kept_for_patterns()) == []


def test_who_joins_later_gets_nothing_older():
    core = server_one()
    core.on_message(Subscribe("x", "s", S1), X, 0)
    core.on_message(Subscribe("y", "t", S1), Y, 2 * SECOND)
    old, new, g = failed(1, 1), failed(1, 3), failed(2, 4)
    part = Part(S1, (held(old, 0), held(new, 0), held(g, 1)))
    assert core.on_message(part, TWO, 4 * SECOND) == [
        DeliverSequence(X, "x", (old, g), "s"),
        DeliverSequence(Y, "y", (new, g), "t"),
    ]


def test_too_many_patterns_are_plain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delegating, "DELEGATING_PATTERNS_MAX", 0)
    actions = server_one().on_message(Subscribe("x", "s", S), X, 0)
    assert actions == [Send(TWO, Interest((), (F, G, H))), Send(THREE, Interest((), (H,)))]


# --- what is held -------------------------------------------------------------------------------


def test_a_part_goes_after_the_one_that_completes_it_and_before_the_next():
    core = DelegatingCore("2")
    core.on_message(LinkUp(), ONE, 0)
    core.on_message(Delegated(announced=(S1,), interest=Interest((), (H, G))), ONE, 0)
    core.on_message(Advertise("p", Advertisement("string alarm any, int attempts any")), X, 0)
    core.on_message(Advertise("p", A2), X, 0)
    f, g, h = failed(1, 1), failed(2, 2), changed(3)
    forwarded, part, after = came(core, X, f, g, h)
    assert forwarded == Forward(ONE, (Routed(g, Header(2)),))
    assert part == Send(
        ONE, Part(S1, tuple(Held(notification, 3 * SECOND, (i,)) for i, notification in enumerate((f, g))))
    )
    assert after == Forward(ONE, (Routed(h, Header(2)),))


def test_what_was_not_advertised_is_not_thinned():
    core = DelegatingCore("2")
    core.on_message(LinkUp(), ONE, 0)
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    assert [type(action) for action in came(core, X, failed(1, 1), failed(2, 2))] == [Refuse, Refuse]
    core.on_message(Advertise("p", A1), X, 0)
    assert came(core, X, failed(2, 3)) == []


def test_a_withdrawal_brings_what_is_held():
    core = server_two()
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    f = failed(1, 1)
    came(core, FIVE, f)
    assert core.on_message(Delegated(withdrawn=(S1,), interest=Interest((), (F, G))), ONE, 0) == [
        Send(ONE, Part(S1, (held(f, 0),), True))
    ]
    assert core.delegated_by(ONE) == ()


def test_a_withdrawal_waits_for_what_is_held_further_upstream():
    core = server_two(FIVE, FIVE)
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    assert core.on_message(Delegated(withdrawn=(S1,)), ONE, 0) == [Send(FIVE, Delegated(withdrawn=(S1,)))]
    f = failed(1, 1)
    assert core.on_message(Part(S1, (held(f, 0),), True), FIVE, 0) == [Send(ONE, Part(S1, (held(f, 0),), True))]
    assert list(core.kept_for_patterns()) == []


def test_a_withdrawal_waits_for_what_was_withdrawn_a_moment_ago():
    """The advertisement goes: server 2 withdraws from 5, and server 1, told of it, from 2."""
    core = server_two(FIVE, FIVE)
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    offer = Advertisement("string alarm any, int attempts = 1")
    assert Send(FIVE, Delegated((S1,), (), (), Interest((), (G,)))) in core.on_message(Advertised((offer,)), FIVE, 0)
    assert core.on_message(Delegated(withdrawn=(S1,)), ONE, 0) == [Send(FIVE, Interest((G,)))]
    last = (held(failed(1, 1), 0),)
    assert core.on_message(Part(S1, last, True), FIVE, 0) == [Send(ONE, Part(S1, last, True))]


def test_a_pattern_with_the_same_part_twice_is_answered_once():
    core = server_two(FIVE, FIVE)
    third = Filter("string alarm = 'other'")
    core.on_message(Advertised((), (Advertisement("string alarm = 'other'"),)), FOUR, 0)
    twice = Pattern.of(F, G, third, F, G)
    core.on_message(Delegated(announced=(twice,)), ONE, 0)
    assert core.delegated_to(FIVE) == (S1,)
    core.on_message(Delegated(withdrawn=(twice,)), ONE, 0)
    f = failed(1, 1)
    last = core.on_message(Part(S1, (held(f, 0),), True), FIVE, 0)
    assert last == [Send(ONE, Part(twice, (held(f, 0, 3),), True))]
    assert list(core.kept_for_patterns()) == []


def test_a_withdrawal_does_not_wait_for_a_link_that_is_down():
    core = server_two(FIVE, FIVE)
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    core.on_message(Delegated(withdrawn=(S1,)), ONE, 0)
    assert Send(ONE, Part(S1, (), True)) in core.on_message(LinkDown(), FIVE, 0)
    assert list(core.kept_for_patterns()) == []


def test_who_has_the_first_already_gets_the_next():
    """The part is delegated when x has f: g alone must be sent."""
    core = server_two()
    core.on_message(Delegated(announced=(S1,), ongoing=(S1,)), ONE, 0)
    g = failed(2, 2)
    assert came(core, FOUR, g) == [Send(ONE, Part(S1, (held(g, 1),)))]
    assert came(core, FOUR, failed(2, 3)) == []


# --- those who leave ----------------------------------------------------------------------------


def test_a_client_that_leaves_takes_its_patterns_along():
    core = server_one()
    core.on_message(Subscribe("x", "s", S), X, 0)
    assert core.on_message(ClientDown(), X, 0) == [
        Send(TWO, Delegated(withdrawn=(S1,), interest=Interest((H,)))),
        Send(THREE, Interest((H,))),
    ]


def test_a_link_that_comes_up_is_told_again():
    core = server_one()
    core.on_message(Subscribe("x", "s", S), X, 0)
    core.on_message(LinkDown(), TWO, 0)
    core.on_message(LinkUp(), TWO, 0)
    assert core.delegated_to(TWO) == ()
    told = core.on_message(Advertised((), (A1, A2)), TWO, 0)
    assert Send(TWO, Delegated(announced=(S1,), interest=Interest((), (H,)))) in told


def test_a_neighbor_that_goes_takes_what_it_delegated_along():
    core = server_two()
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    assert core.on_message(LinkDown(), ONE, 0) == [Send(FOUR, Interest((G,))), Send(FIVE, Interest((F,)))]
    assert list(core.kept_for_patterns()) == []


@pytest.mark.parametrize(
    "message",
    [
        Part(S, ()),
        Part(S1, (), True),
        Part(S1, (held(failed(1, 1), 7),)),
        Part(S1, (Held(Notification({"alarm": "failed-login"}), 0, (0,)),)),
        Delegated(withdrawn=(S1,)),
    ],
)
def test_a_neighbor_that_contradicts_itself_is_refused(message):
    core = server_two(FIVE, FIVE)
    core.on_message(Delegated(announced=(S1,)), ONE, 0)
    assert core.delegated_to(FIVE) == (S1,)
    (refused,) = core.on_message(message, FIVE, 0)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, RemoteProtocolError)


# --- limits of thinning -------------------------------------------------------------------------


def test_past_the_limit_of_what_is_held_it_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thinning, "HELD_MAX", 2)
    thinner = Thinner(S1)
    first = [held(failed(1, second), 0) for second in (1, 2, 3)]
    assert [thinner.on_notification(notification) for notification in first] == [[], [], first]
    last = held(failed(2, 4), 1)
    assert thinner.on_notification(last) == [last]


def test_past_the_limit_of_keys_all_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thinning, "KEYS_MAX", 2)
    thinner = Thinner(Pattern.of(F, G, by=("host",)))
    first = [held(failed(1, second, host=f"h{second}"), 0) for second in (1, 2, 3)]
    assert [thinner.on_notification(notification) for notification in first] == [[], [], first]
    stray = held(failed(2, 4, host="h9"), 1)
    assert thinner.on_notification(stray) == [stray]


def test_keys_too_old_make_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thinning, "KEYS_MAX", 2)
    thinner = Thinner(Pattern.of(F, G, within=timedelta(seconds=2), by=("host",)))
    for second in (1, 2, 5):
        assert thinner.on_notification(held(failed(1, second, host=f"h{second}"), 0)) == []
    assert len(thinner) == 1
    assert thinner.on_notification(held(failed(2, 6, host="h9"), 1)) == []


def test_a_key_that_is_complete_is_forgotten():
    thinner = Thinner(S1)
    f, g = held(failed(1, 1), 0), held(failed(2, 2), 1)
    assert thinner.on_notification(f) == []
    assert thinner.on_notification(g) == [f, g]
    assert len(thinner) == 0
