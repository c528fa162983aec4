"""A greedy connection slows itself: slices, turns, rests, and frames that never come whole. All is counted, nothing is
timed."""

from collections.abc import Callable

import pytest

from catchment.broker.allowance import BURST_S, PINGS_PER_S, REFUSALS_PER_S, Allowance
from catchment.broker.half_sent import HalfSent
from catchment.broker.turns import LONG_READ_BYTES, SLICE_EVENTS, SLICE_S, TURN_S, Slice, Turns
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import Subscribe
from catchment.wire.frames import frame
from catchment.wire.messages import Goodbye, Look, Ping, Pong, Publish, Refused, Request
from catchment.wire.session import FRAME_TICKS_MAX, PUBLISHED_MAX, TICK_S, Ended, Published, Write
from tests.unit.broker_loop import Listener, Loop, Transport
from tests.unit.wire_sessions import NOTE, events, goodbye_of, linked, said, served, serving

PING, PONG, LOOK = frame(Ping()), frame(Pong()), frame(Look(1, "status"))


def request(number: int) -> bytes:
    return frame(Request(number, Subscribe("greedy", f"s{number}", Filter(f"x > {number}"))))


def counts(listener: Listener) -> tuple[int, int]:
    """What was heard from the greedy connection and from the modest one."""
    names = [name for name, _ in listener.heard_events]
    return names.count("greedy"), names.count("modest")


# --- slices -------------------------------------------------------------------------------------


def test_a_read_of_many_frames_is_handled_in_slices_and_others_are_served_in_between():
    loop = Loop()
    listener = Listener(loop)
    (greedy, transport), (modest, _) = listener.client("greedy"), listener.client("modest")
    greedy.data_received(LOOK * 5_000)
    assert counts(listener) == (SLICE_EVENTS, 0)
    assert not transport.is_reading
    for turn in range(1, 5):
        modest.data_received(LOOK)
        assert counts(listener) == (turn * SLICE_EVENTS, turn)
        loop.turn()
    loop.run()
    assert counts(listener) == (5_000, 4)
    assert transport.is_reading


def test_a_slice_ends_with_an_event_that_takes_long():
    loop = Loop()
    listener = Listener(loop, cost_s=2 * SLICE_S)
    greedy, _ = listener.client("greedy")
    greedy.data_received(b"".join(map(request, range(1, 6))))
    # Its Hello took longer than a slice, so it waits for its turn.
    assert counts(listener) == (0, 0)
    loop.turn()
    assert counts(listener) == (1, 0)
    loop.turn()
    assert counts(listener) == (2, 0)
    loop.run()
    numbers = [event.number for _, event in listener.heard_events if isinstance(event, Request)]
    assert numbers == [1, 2, 3, 4, 5]


def test_of_all_greedy_connections_one_slice_is_handled_in_a_turn():
    loop = Loop()
    listener = Listener(loop)
    greedy = [listener.client("greedy")[0] for _ in range(20)]
    for connection in greedy:
        connection.data_received(LOOK * 3 * SLICE_EVENTS)
    before, _ = counts(listener)
    for turn in range(1, 8):
        loop.turn()
        assert counts(listener)[0] == before + turn * SLICE_EVENTS
    loop.run()
    assert counts(listener)[0] == 20 * 3 * SLICE_EVENTS


def test_a_connection_stays_greedy_until_a_read_fits_a_slice():
    loop = Loop()
    listener = Listener(loop)
    greedy, _ = listener.client("greedy")
    greedy.data_received(LOOK * (SLICE_EVENTS + 1))
    loop.run()
    for _ in range(2):
        # It waits for its turn, though nobody else works.
        heard = len(listener.heard_events)
        greedy.data_received(LOOK * 2 * SLICE_EVENTS)
        assert (len(listener.heard_events), listener.turns.greedy_count) == (heard, 1)
        loop.run()
    greedy.data_received(LOOK)
    loop.run()
    assert listener.turns.greedy_count == 0
    heard = len(listener.heard_events)
    greedy.data_received(LOOK)
    assert len(listener.heard_events) == heard + 1


def test_small_reads_wait_for_the_next_turn_when_this_one_is_full():
    now = [0.0]
    soon: list[Callable[[], None]] = []
    served_names = []

    class Small:
        def __init__(self, name):
            self.name = name

        def work(self, slice: Slice) -> bool:
            served_names.append(self.name)
            now[0] += TURN_S
            return False

        def crash(self) -> None:
            pass

    turns = Turns(lambda: now[0], soon.append)
    for name in "abc":
        turns.take(Small(name))
    assert served_names == ["a"]
    while soon:
        soon.pop(0)()
    assert served_names == ["a", "b", "c"]


def test_a_long_read_waits_for_the_next_turn_and_nothing_more_is_read_until_then():
    loop = Loop()
    listener = Listener(loop)
    greedy, transport = listener.client("greedy")
    long_read = frame(Publish(0, (Notification({"x": 1}, payload=bytes(LONG_READ_BYTES)),)))
    greedy.data_received(long_read)
    assert (counts(listener), transport.is_reading) == ((0, 0), False)
    loop.turn()
    assert (counts(listener), transport.is_reading) == ((1, 0), True)


def test_pings_and_pongs_and_empty_publications_are_work_too():
    """No number of frames passes without the driver having a say."""
    session = serving()
    for flood in (PING, PONG, frame(Publish(0, ()))):
        taken = 0
        for _ in session.receive(flood * 10 * PUBLISHED_MAX):
            taken += 1
        assert taken >= 10


def test_publications_of_one_read_come_together_up_to_a_count():
    came = events(serving(), *[Publish(n, (NOTE,) * 10) for n in range(200)])
    assert {type(event) for event in came} == {Published}
    assert [publication.number for event in came for publication in event.publications] == [*range(200)]
    for event in came[:-1]:
        assert PUBLISHED_MAX <= sum(len(each.notifications) for each in event.publications) < PUBLISHED_MAX + 10


def test_what_was_read_before_the_connection_was_lost_is_handled_in_slices_too():
    loop = Loop()
    listener = Listener(loop)
    greedy, transport = listener.client("greedy")
    greedy.data_received(LOOK * 3 * SLICE_EVENTS)
    transport.close()
    greedy.connection_lost(ConnectionResetError("reset"))
    assert counts(listener) == (SLICE_EVENTS, 0)
    assert not greedy.is_open
    assert listener.closed_reasons == {}
    loop.run()
    assert counts(listener) == (3 * SLICE_EVENTS, 0)
    assert listener.closed_reasons == {"greedy": "reset"}


def test_nothing_is_handled_after_the_end_though_it_was_read():
    for finish in ("end", "leave", "abort", "lost and aborted"):
        loop = Loop()
        listener = Listener(loop)
        greedy, transport = listener.client("greedy")
        transport.write_eof = lambda: None  # type: ignore[attr-defined]
        greedy.data_received(LOOK * 3 * SLICE_EVENTS)
        if finish.startswith("lost"):
            greedy.connection_lost(None)
            greedy.abort("closed at once")
        else:
            getattr(greedy, finish)("enough")
            greedy.connection_lost(None)
        loop.run()
        assert counts(listener) == (SLICE_EVENTS, 0), finish
        assert list(listener.closed_reasons) == ["greedy"]


def test_a_bug_ends_the_connection_that_led_to_it_and_no_other():
    loop = Loop()
    listener = Listener(loop)
    (greedy, transport), (other, _) = listener.client("greedy"), listener.client("other")
    greedy.data_received(LOOK * 3 * SLICE_EVENTS)
    other.data_received(LOOK * 3 * SLICE_EVENTS)
    heard = listener.heard

    def failing(connection, event):
        if connection is greedy:
            raise ZeroDivisionError("planted")
        heard(connection, event)

    listener.heard = failing  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert transport.is_closed
    greedy.connection_lost(None)
    loop.run()
    names = [name for name, _ in listener.heard_events]
    assert (names.count("greedy"), names.count("other")) == (SLICE_EVENTS, 3 * SLICE_EVENTS)


def test_a_goodbye_among_what_was_read_is_the_last_thing_heard():
    loop = Loop()
    listener = Listener(loop)
    greedy, transport = listener.client("greedy")
    greedy.data_received(LOOK * 2 * SLICE_EVENTS + frame(Goodbye("done")) + LOOK)
    loop.run()
    assert counts(listener) == (2 * SLICE_EVENTS, 0)
    assert transport.is_closed


# --- rests --------------------------------------------------------------------------------------


def pongs(transport: Transport) -> int:
    return transport.written.count(PONG)


def test_who_pings_too_often_rests_and_is_answered_later():
    loop = Loop()
    listener = Listener(loop)
    connection, transport = listener.client("greedy")
    burst = int(PINGS_PER_S * BURST_S)
    connection.data_received(PING * 10_000)
    loop.run()
    assert pongs(transport) == burst + 1
    assert not transport.is_reading
    loop.pass_time(10.0)
    assert pongs(transport) <= burst + 11 * PINGS_PER_S
    loop.pass_time(90.0)
    assert pongs(transport) == 10_000
    loop.pass_time(1.0)
    assert transport.is_reading


def test_pongs_that_nobody_asked_for_are_counted_like_pings():
    loop = Loop()
    listener = Listener(loop)
    connection, transport = listener.client("greedy")
    connection.data_received(PONG * 10_000)
    loop.run()
    assert not transport.is_reading


def test_who_is_refused_too_often_rests():
    loop = Loop()
    listener = Listener(loop)
    connection, transport = listener.client("greedy")
    answered = []

    def refuse(connection, event):
        answered.append(event)
        connection.send(Refused(event.number, "LimitError", "no"))

    listener.heard = refuse  # type: ignore[method-assign]
    connection.data_received(LOOK * 10_000)
    loop.run()
    assert len(answered) == REFUSALS_PER_S * BURST_S + 1
    assert not transport.is_reading
    loop.pass_time(10.0)
    assert len(answered) == 10_000


def test_who_rests_is_not_taken_for_dead():
    loop = Loop()
    connection, transport = Listener(loop).client("greedy")
    connection.data_received(PING * 10_000)
    for _ in range(10):
        loop.pass_time(TICK_S)
        connection.tick(loop.now)
    assert not transport.is_closed


def test_an_allowance_fills_up_to_a_burst():
    now = [0.0]
    allowance = Allowance(10, lambda: now[0])
    assert [allowance.take() > 0 for _ in range(21)] == [False] * 20 + [True]
    now[0] += 1_000.0
    assert [allowance.take() > 0 for _ in range(21)] == [False] * 20 + [True]
    now[0] += 0.5
    assert allowance.take(3) == 0.0
    assert allowance.take(50) > 4.0


# --- frames that do not come whole --------------------------------------------------------------


def test_a_frame_that_drips_ends_the_session():
    for session in (serving(), linked(), served()):
        assert events(session, LOOK[:5]) == []
        for _ in range(FRAME_TICKS_MAX + 1):
            assert not isinstance(session.on_tick(0.0), Ended)
            assert events(session, b"\x01") == []
        assert "FRAME_TICKS_MAX is 12" in goodbye_of(session.on_tick(0.0)).reason


def test_frames_that_come_whole_in_time_do_not():
    session = serving()
    # At each tick a frame is coming, but each time another one.
    session_events = events(session, PING + PING[:3])
    for _ in range(5 * FRAME_TICKS_MAX):
        assert isinstance(session.on_tick(0.0), Write)
        session_events += events(session, PING[3:] + PING[:3])
    assert len(session_events) == 5 * FRAME_TICKS_MAX + 1


def test_a_frame_that_we_did_not_read_is_not_late():
    session = serving()
    events(session, PING[:3])
    for _ in range(5 * FRAME_TICKS_MAX):
        assert not isinstance(session.on_tick(0.0, shows_life=True, was_read=False), Ended)


class Dripping:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_beginnings_of_all_connections_are_bounded_and_the_oldest_is_given_up():
    half_sent = HalfSent(bytes_max=100)
    first, second, third = Dripping(), Dripping(), Dripping()
    half_sent.has(first, 0, 40)
    half_sent.has(second, 0, 40)
    half_sent.has(first, 1, 30)  # another frame: it is the younger one now
    half_sent.has(third, 0, 20)
    assert half_sent.bytes == 90
    half_sent.has(third, 0, 40)
    assert (first.reasons, third.reasons, half_sent.bytes, half_sent.given_up) == ([], [], 70, 1)
    assert second.reasons[0].startswith("HALF_SENT_BYTES_MAX is 100")
    half_sent.has(third, 1, 0)
    half_sent.gone(first)
    half_sent.gone(first)
    assert half_sent.bytes == 0
    half_sent.has(third, 0, 101)
    assert (third.reasons != [], half_sent.bytes) == (True, 0)


def test_connections_that_drip_are_given_up_by_the_broker():
    loop = Loop()
    listener = Listener(loop)
    listener.half_sent = HalfSent(bytes_max=3_000)
    drips = [listener.client(f"drip {n}") for n in range(5)]
    begun = (4_000).to_bytes(4, "big") + bytes(996)
    for connection, _ in drips:
        connection.data_received(begun)
        loop.run()
    assert [transport.is_closed for _, transport in drips] == [True, True, False, False, False]
    assert "HALF_SENT_BYTES_MAX" in said(drips[0][1].written)[-1].reason
    assert listener.half_sent.bytes == 3_000
    for connection, _ in drips:
        connection.connection_lost(None)
    assert listener.half_sent.bytes == 0
