"""A session asks and is answered, in time or not: numbers, credit, pings, silence."""

import pytest

from catchment.errors import LimitError
from catchment.model.notification import Notification
from catchment.wire.frames import (
    VERSION,
    frame,
)
from catchment.wire.messages import (
    Accepted,
    Credit,
    Goodbye,
    Look,
    Ping,
    Pong,
    Publish,
    Refused,
    Request,
    Seen,
    Welcome,
)
from catchment.wire.session import (
    ANSWER_S_MAX,
    HANDSHAKE_S,
    SILENT_TICKS_MAX,
    Ended,
    Write,
)
from catchment.wire.states import State
from tests.unit.wire_sessions import (
    NOTE,
    REQUEST,
    accepted,
    broker_waits,
    client_waits,
    events,
    goodbye_of,
    linked,
    said,
    served,
    serving,
)

# --- answers and credit -------------------------------------------------------------------------


def test_answers_fit_what_was_asked():
    session = served()
    subscribed, data = session.ask(REQUEST.body)
    assert said(data) == [Request(subscribed, REQUEST.body)]
    looked, data = session.look("explain", NOTE)
    assert said(data) == [Look(looked, "explain", NOTE)]
    published, data = session.publish((NOTE,), is_answered=True)
    assert said(data) == [Publish(published, (NOTE,))]
    unanswered, data = session.publish((NOTE,), is_answered=False)
    assert said(data) == [Publish(0, (NOTE,))]
    assert (subscribed, looked, published, unanswered) == (1, 2, 3, 0)
    answers = [Seen(looked, {"x": 1}), Refused(published, "LimitError", "no"), Accepted(subscribed)]
    assert events(session, *answers) == answers
    # A publication without a number is answered only if it is refused.
    assert events(session, Refused(0, "LimitError", "no")) == [Refused(0, "LimitError", "no")]


@pytest.mark.parametrize(
    "answer",
    [
        Accepted(0),
        Accepted(2),
        Accepted(-1),
        Refused(2, "LimitError", "no"),
        Refused(-1, "LimitError", "no"),
        Seen(1, {}),
        Seen(0, {}),
        Seen(7, {}),
    ],
    ids=repr,
)
def test_an_answer_to_what_was_never_asked_ends_the_session(answer):
    session = served()
    assert session.ask(REQUEST.body)[0] == 1
    (ended,) = events(session, answer)
    kind = type(answer).__name__
    assert goodbye_of(ended).reason == f"{kind} {answer.number} answers nothing that was asked"


@pytest.mark.parametrize("answer", [Accepted(1), Refused(1, "LimitError", "no")], ids=repr)
def test_a_second_answer_ends_the_session(answer):
    session = served()
    session.ask(REQUEST.body)
    event, ended = events(session, answer, Accepted(1))
    assert event == answer
    assert goodbye_of(ended).reason == "Accepted 1 answers nothing that was asked"


def test_accepted_is_no_answer_to_a_look():
    session = served()
    session.look("status", None)
    (ended,) = events(session, Accepted(1))
    assert goodbye_of(ended).reason == "Accepted 1 answers nothing that was asked"


def test_what_is_too_long_to_be_asked_is_not_waited_for():
    session = served()
    with pytest.raises(LimitError):
        session.publish((Notification({f"n{n}": "x" * 65_536 for n in range(100)}),), is_answered=True)
    assert session.credit == 100
    (ended,) = events(session, Accepted(1))
    assert isinstance(ended, Ended)


def test_credit_is_what_welcome_gave_less_what_was_published_plus_credit():
    session = served(credit=3)
    session.publish((NOTE, NOTE), is_answered=False)
    assert session.credit == 1
    assert events(session, Credit(5)) == [Credit(5)]
    assert session.credit == 6
    session.publish((NOTE,) * 6, is_answered=True)
    assert session.credit == 0
    with pytest.raises(AssertionError):
        session.publish((NOTE,), is_answered=False)


def test_credit_is_never_taken_back():
    (ended,) = events(served(), Credit(-1))
    assert goodbye_of(ended).reason == "a credit of -1"
    (ended,) = events(client_waits(), Welcome(VERSION, "theirs", credit=-1))
    assert goodbye_of(ended).reason == "a credit of -1"


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [accepted, client_waits, broker_waits])
def test_a_handshake_has_a_deadline(made):
    session = made()
    assert session.deadline == HANDSHAKE_S
    assert session.on_tick(HANDSHAKE_S - 0.001) is None
    ended = session.on_tick(HANDSHAKE_S)
    missing = "Hello" if made is accepted else "answer to Hello"
    assert goodbye_of(ended).reason == f"no {missing} within 10 s"


@pytest.mark.parametrize("made", [serving, linked])
def test_a_broker_pings_and_takes_who_is_silent_for_dead(made):
    session = made()
    for tick in range(SILENT_TICKS_MAX):
        assert session.on_tick(5.0 * tick) == Write(frame(Ping()))
    # A goodbye would not be read.
    assert session.on_tick(100.0) == Ended("it is silent")
    assert (session.state, session.reason) == (State.ENDED, "it is silent")


def test_a_client_does_not_ping_and_takes_a_silent_broker_for_dead():
    session = served()
    assert [session.on_tick(5.0 * tick) for tick in range(SILENT_TICKS_MAX)] == [None] * SILENT_TICKS_MAX
    assert session.on_tick(100.0) == Ended("it is silent")


@pytest.mark.parametrize("made", [serving, linked, served])
def test_any_byte_is_a_sign_of_life_and_so_is_what_the_driver_knows(made):
    session = made()
    long = frame(Goodbye("r" * 1_000))
    for tick in range(4 * SILENT_TICKS_MAX):
        assert events(session, long[tick : tick + 1]) == []
        assert not isinstance(session.on_tick(tick), Ended)
    session = made()
    for tick in range(4 * SILENT_TICKS_MAX):
        assert not isinstance(session.on_tick(tick, shows_life=True), Ended)


def test_after_the_end_a_driver_waits_only_so_long_for_the_goodbye_to_be_taken():
    session = serving()
    session.end("enough")
    for tick in range(SILENT_TICKS_MAX):
        assert session.on_tick(tick) is None
    assert session.on_tick(99.0, shows_life=True) is None
    for tick in range(SILENT_TICKS_MAX):
        assert session.on_tick(tick) is None
    assert session.on_tick(100.0) == Ended("enough")


@pytest.mark.parametrize("made", [serving, linked, served])
def test_a_ping_is_answered_and_a_pong_is_not(made):
    answer = Write(frame(Pong()))
    assert events(made(), Ping(), Pong(), Ping()) == [answer, Pong(), answer]


def test_whether_the_other_side_answers():
    session = linked()
    assert session.is_answering(0.0)
    assert session.ask_life(0.0, 500) == frame(Ping())
    assert session.is_answering(ANSWER_S_MAX - 0.1)
    # Asked again in vain.
    assert session.ask_life(ANSWER_S_MAX, 500) == b""
    assert not session.is_answering(ANSWER_S_MAX)
    # It has taken something of what waits for it.
    assert session.ask_life(ANSWER_S_MAX, 499) == frame(Ping())
    assert session.is_answering(ANSWER_S_MAX)
    assert not session.is_answering(2 * ANSWER_S_MAX)
    events(session, Pong())
    assert session.is_answering(9 * ANSWER_S_MAX)
