"""Sessions without sockets: every row of the table of states, and everything that is not in it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from catchment.errors import LimitError, ParseError
from catchment.model.filter import Filter
from catchment.routing.messages import Header, Routed, Said
from catchment.routing.siena.messages import Advertised, Interest, OriginHeader, Wants
from catchment.routing.systems import SYSTEMS
from catchment.wire.client_session import ClientSession
from catchment.wire.frames import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    batch_frame,
    delivery_frame,
    frame,
)
from catchment.wire.greetings import ThisBroker
from catchment.wire.messages import (
    Batch,
    Credit,
    Delivery,
    Goodbye,
    Hello,
    Look,
    Parcel,
    Ping,
    Pong,
    Publish,
    Request,
    Seen,
    Unfit,
    Welcome,
)
from catchment.wire.session import (
    HANDSHAKE_S,
    SILENT_TICKS_MAX,
    BrokerSession,
    Ended,
    Published,
    Session,
    Write,
)
from catchment.wire.states import ESTABLISHED, HANDSHAKE, TABLE, Happening, HelloOf, Row, State, next_state
from tests.said import language_of
from tests.unit.wire_sessions import (
    BROKER_HELLO,
    BROKER_WELCOME,
    CLIENT_HELLO,
    IN_STATE,
    MESSAGES,
    NOTE,
    REQUEST,
    accepted,
    broker_waits,
    came,
    client_waits,
    dialed,
    events,
    framed,
    goodbye_of,
    linked,
    said,
    served,
    serving,
    what_of,
)

# --- the table ----------------------------------------------------------------------------------


def test_every_state_can_be_reached_and_left():
    reached = {State.ACCEPTED, State.DIALED, *(row.then for row in TABLE)}
    left = {state for row in TABLE for state in row.states}
    assert reached == set(State)
    assert left == set(State) - {State.ENDED} == set(IN_STATE) == {*HANDSHAKE, *ESTABLISHED}


@pytest.mark.parametrize("state", IN_STATE)
def test_sessions_are_in_the_state_that_they_are_said_to_be(state):
    assert IN_STATE[state]().state is state
    assert IN_STATE[state]().is_established == (state in ESTABLISHED)


def test_nothing_stands_in_the_table_twice():
    keys = [(state, row.does, what) for row in TABLE for state in row.states for what in row.what]
    assert len(keys) == len(set(keys))


def test_what_both_ends_say_fits():
    """What an end may send in a state, the other end may receive in the state that it is in."""
    other = {State.SERVING: State.SERVED, State.SERVED: State.SERVING, State.LINKED: State.LINKED}
    for row in TABLE:
        for state in row.states:
            if row.does == "sends" and state in other:
                for what in row.what:
                    then = next_state(other[state], "receives", what)
                    assert then is other.get(row.then, State.ENDED)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("state", IN_STATE)
def test_what_comes_leads_where_the_table_says_and_what_is_not_in_it_ends_the_session(state, message):
    session = IN_STATE[state]()
    if state is State.SERVED:
        # So that there is something to answer.
        assert isinstance(session, ClientSession)
        _ = session.look("status", None) if isinstance(message, Seen) else session.ask(REQUEST.body)
    then = next_state(state, "receives", what_of(message))
    came_of = events(session, message)
    if then is None:
        (ended,) = came_of
        assert goodbye_of(ended).reason.startswith(f"'{type(message).__name__}' is out of place in {state.value}: ")
        assert session.state is State.ENDED
    else:
        assert session.state is then
        assert (session.state is State.ENDED) == any(isinstance(event, Ended) for event in came_of)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("state", ESTABLISHED)
def test_what_is_not_in_the_table_is_not_sent(state, message):
    session = IN_STATE[state]()
    may_send = next_state(state, "sends", what_of(message)) is state
    assert session.may_send(type(message)) == may_send
    if may_send:
        assert said(session.say(message)) == [message]
    else:
        with pytest.raises(AssertionError):
            session.say(message)
    assert session.state is state


@pytest.mark.parametrize("state", IN_STATE)
def test_every_state_ends_with_a_goodbye_by_either_side_and_when_the_connection_is_lost(state):
    session = IN_STATE[state]()
    assert said(session.end("enough", is_final=True)) == [Goodbye("enough", True)]
    assert (session.state, session.reason) == (State.ENDED, "enough")
    assert session.end("again") == b""
    session = IN_STATE[state]()
    assert events(session, Goodbye("enough", True)) == [Ended("enough", True)]
    assert (session.state, session.reason, session.is_final) == (State.ENDED, "enough", True)
    session = IN_STATE[state]()
    session.lose("reset")
    assert (session.state, session.reason, session.is_final) == (State.ENDED, "reset", False)


def test_every_row_is_taken_by_one_of_these_tests():
    """What is received, sent and noticed above and below, in all states, is all that is in the table."""
    covered = {*HelloOf, *Happening, *(what_of(message) for message in MESSAGES)}
    assert {what for row in TABLE for what in row.what} == covered


def _moves(row: Row) -> Iterator[tuple[Callable[[], Session], Callable[[Any], object]]]:
    """Sessions in the states of a row, and how to do what the row says."""
    for state in row.states:
        for what in row.what:
            match row.does, what:
                case "sends", HelloOf.CLIENT:
                    yield partial(ClientSession, "alice"), lambda session: session.begin(0.0)
                case "sends", HelloOf.BROKER:
                    yield dialed, lambda session: session.begin(0.0)
                case "sends", _ if what is Welcome:
                    yield IN_STATE[state], lambda session: session.welcome()
                case "sends", _ if what is Goodbye:
                    yield IN_STATE[state], lambda session: session.end("done")
                case "sends", _:
                    (message,) = [each for each in MESSAGES if what_of(each) is what]
                    yield IN_STATE[state], partial(_say, message)
                case "notices", Happening.LATE:
                    yield partial(begun, state), lambda session: session.on_tick(HANDSHAKE_S)
                case "notices", Happening.SILENT:
                    yield IN_STATE[state], lambda session: [session.on_tick(n) for n in range(SILENT_TICKS_MAX + 1)]
                case "notices", Happening.LOST:
                    yield IN_STATE[state], lambda session: session.lose("reset")


def _say(message: Said, session: Session) -> None:
    session.say(message)


def begun(state: State) -> Session:
    """A dialer that has not said Hello yet is late too, if it never does."""
    session = IN_STATE[state]()
    session.deadline = HANDSHAKE_S
    return session


@pytest.mark.parametrize("row", [row for row in TABLE if row.does != "receives"], ids=str)
def test_what_is_sent_or_noticed_leads_where_the_table_says(row):
    moves = list(_moves(row))
    assert len(moves) == len(row.states) * len(row.what)
    for made, move in moves:
        session = made()
        move(session)
        assert session.state is row.then


# --- roles --------------------------------------------------------------------------------------

BY_BROKERS_ONLY = [message for message in MESSAGES if isinstance(message, Batch | Wants | Welcome | Delivery | Credit)]
BY_CLIENTS_ONLY = [message for message in MESSAGES if isinstance(message, Request | Publish | Look)]


@pytest.mark.parametrize("message", [*BY_BROKERS_ONLY, CLIENT_HELLO, BROKER_HELLO], ids=repr)
def test_a_client_cannot_say_what_only_a_broker_may_nor_hello_twice(message):
    """What came before is good, what comes after is not seen."""
    session = serving()
    before, after = Publish(1, (NOTE,)), Publish(2, (NOTE,))
    published, ended = events(session, before, message, after)
    assert published == Published((before,))
    assert "is out of place in SERVING" in goodbye_of(ended).reason
    assert events(session, after) == []


@pytest.mark.parametrize("message", [*BY_CLIENTS_ONLY, CLIENT_HELLO, BROKER_HELLO, BROKER_WELCOME], ids=repr)
def test_a_neighbor_cannot_say_what_only_a_client_may_nor_greet_twice(message):
    session = linked()
    before = Wants("theirs", 1, ())
    event, ended = events(session, before, message, before)
    assert event == before
    assert "is out of place in LINKED" in goodbye_of(ended).reason


@pytest.mark.parametrize("message", [*BY_CLIENTS_ONLY, Batch(()), Wants("theirs", 1, ()), CLIENT_HELLO], ids=repr)
def test_a_broker_cannot_say_to_a_client_what_only_others_may(message):
    (ended,) = events(served(), message)
    assert "is out of place in SERVED" in goodbye_of(ended).reason


@pytest.mark.parametrize("message", [REQUEST, Publish(1, (NOTE,)), Batch(()), Ping()], ids=repr)
def test_nothing_is_said_before_hello(message):
    (ended,) = events(accepted(), message, CLIENT_HELLO)
    assert goodbye_of(ended).reason.startswith(f"'{type(message).__name__}' is out of place in ACCEPTED: Hello or")


def test_nothing_is_said_between_hello_and_welcome():
    session = came(CLIENT_HELLO)
    (ended,) = events(session, REQUEST)
    assert goodbye_of(ended).reason == "'Request' is out of place in CLIENT_CAME: Goodbye may come"


# --- what the routing system knows --------------------------------------------------------------


@pytest.mark.parametrize("message", [Interest(), Advertised(), Interest((), (Filter("x > 0"),))], ids=repr)
def test_a_message_of_another_routing_system_ends_the_link_and_is_no_event(message):
    (ended,) = events(linked(), message)
    assert goodbye_of(ended).reason.startswith(f"'{type(message).__name__}' is out of place in LINKED: Batch,")


@pytest.mark.parametrize("header", [Header(1), OriginHeader(1, "a")], ids=repr)
@pytest.mark.parametrize("routing", sorted(SYSTEMS))
def test_a_header_of_another_routing_system_ends_the_link_and_is_no_event(routing, header):
    broker = ThisBroker("ours", routing, language_of(routing))
    session = BrokerSession(broker)
    session.begin(0.0)
    events(session, msgspec.structs.replace(BROKER_HELLO, routing=routing))
    session.welcome()
    assert session.state is State.LINKED
    (event,) = events(session, batch_frame([Routed(NOTE, header)]))
    if type(header) is SYSTEMS[routing].header:
        assert event.routed() == [Routed(NOTE, header)]
    else:
        assert goodbye_of(event).reason.startswith("bad frame: ")


def test_a_broker_sends_no_message_of_another_routing_system():
    session = linked()
    assert session.may_send(Wants, Batch)
    assert not session.may_send(Interest)
    with pytest.raises(AssertionError):
        session.say(Interest())


# --- decoders follow the state ------------------------------------------------------------------


def test_what_follows_a_welcome_in_the_same_read_is_read_in_the_new_state():
    delivery = Delivery("alice", ("s",), NOTE)
    assert events(client_waits(), BROKER_WELCOME, delivery) == [BROKER_WELCOME, delivery]
    batch = Batch((Parcel(OriginHeader(1, "theirs"), (NOTE,)),))
    assert events(broker_waits(), BROKER_WELCOME, batch) == [BROKER_WELCOME, batch]


def test_what_follows_a_hello_in_the_same_read_is_read_when_that_is_answered():
    """A client that does not wait for the Welcome is served all the same, if the broker answers at once."""
    session, came_of = accepted(), []
    for event in session.receive(frame(CLIENT_HELLO) + frame(REQUEST)):
        came_of.append(event)
        if isinstance(event, Hello):
            session.welcome()
    assert came_of == [CLIENT_HELLO, REQUEST]


def test_frames_have_the_limit_of_the_state():
    long = (HELLO_BYTES_MAX + 1).to_bytes(4, "big")
    for session in (accepted(), client_waits(), broker_waits()):
        (ended,) = events(session, long)
        assert "FRAME_BYTES_MAX" in goodbye_of(ended).reason
    assert events(serving(), long) == events(served(), long) == events(linked(), long) == []
    longer = (FRAME_BYTES_MAX + 1).to_bytes(4, "big")
    (ended,) = events(serving(), longer)
    assert "FRAME_BYTES_MAX" in goodbye_of(ended).reason
    assert events(linked(), longer) == []


def test_a_hello_that_is_too_long_is_not_made():
    with pytest.raises(LimitError, match="FRAME_BYTES_MAX"):
        ClientSession("x" * HELLO_BYTES_MAX)


# --- publications -------------------------------------------------------------------------------


def test_publications_of_one_read_come_together_up_to_what_is_between_them():
    session = serving()
    first, second, third = (Publish(n, (NOTE,)) for n in (1, 2, 3))
    assert events(session, first, second, REQUEST, third, Ping()) == [
        Published((first, second)),
        REQUEST,
        Published((third,)),
        Write(frame(Pong())),
    ]


def test_publications_before_a_bad_frame_are_good():
    session = serving()
    published, ended = events(session, Publish(1, (NOTE,)), Publish(2, (NOTE,)), b"\0\0\0\1\xc1", Publish(3, (NOTE,)))
    assert published == Published((Publish(1, (NOTE,)), Publish(2, (NOTE,))))
    assert goodbye_of(ended).reason.startswith("bad frame: ")


def test_nothing_comes_after_the_driver_has_ended_it():
    for stop_at in (Published, Request):
        session, came_of = serving(), []
        for event in session.receive(b"".join(map(frame, (Publish(1, (NOTE,)), REQUEST, Publish(2, (NOTE,)))))):
            came_of.append(type(event))
            if isinstance(event, stop_at):
                session.end("past its credit")
        assert came_of == [Published, Request][: [Published, Request].index(stop_at) + 1]
        assert session.reason == "past its credit"


def test_what_cannot_be_had_is_no_reason_to_end():
    session = serving()
    unfit, request = events(session, framed("Request", 5, ("Subscribe", "alice", "s", "x = = 3")), REQUEST)
    assert isinstance(unfit, Unfit)
    assert (unfit.number, type(unfit.error)) == (5, ParseError)
    assert request == REQUEST


# --- the end ------------------------------------------------------------------------------------


def test_the_reason_of_a_goodbye_is_bounded():
    session = serving()
    (ended,) = events(session, Goodbye("r" * 100_000))
    assert ended.reason == session.reason == "r" * 1_024


def test_what_comes_after_the_end_is_dropped_and_takes_no_memory():
    session = serving()
    session.end("enough")
    for _ in range(10):
        assert events(session, Publish(1, (NOTE,)), b"\xff\xff\xff\xff") == []
    assert len(session._decoder._buffer) == 0


def test_the_first_end_counts():
    session = serving()
    session.end("enough")
    session.lose("reset")
    assert session.reason == "enough"


def test_fast_frames_are_what_the_session_would_say():
    assert serving().say(Delivery("alice", ("s",), NOTE)) == delivery_frame("alice", ("s",), NOTE.packed)
    header = OriginHeader(1, "ours")
    assert linked().say(Batch((Parcel(header, (NOTE,)),))) == batch_frame([Routed(NOTE, header)])
