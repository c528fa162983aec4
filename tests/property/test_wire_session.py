"""Two sessions that talk to each other hear what was said, however the bytes are cut; whatever comes, a session ends
with a reason or goes on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.notification import Notification
from catchment.routing.durable.messages import BETWEEN_STORAGES, Taken
from catchment.routing.messages import Beat, Gap, LinkReport, Parting
from catchment.routing.systems import SYSTEMS
from catchment.wire.client_session import ClientSession
from catchment.wire.frames import batch_frame, frame
from catchment.wire.greetings import ThisBroker, request_problem
from catchment.wire.messages import (
    Accepted,
    Batch,
    Confirmed,
    Credit,
    Delivery,
    DurableDelivery,
    Effective,
    Hello,
    Look,
    Lost,
    LostLog,
    Ping,
    Pong,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    Unfit,
)
from catchment.wire.session import BrokerSession, Ended, Event, Published, Session, Write
from catchment.wire.states import ESTABLISHED, State
from tests.property.wire_messages import BATCHES, BY_UNION, KINDS, durable_requests, notifications, requests
from tests.said import TO_BROKER
from tests.unit.wire_sessions import IN_STATE, OURS, ROUTING

CREDIT = 1_000
# How bytes are cut on their way: pieces of these sizes, in turn.
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=5) | st.just([1])
WHOLE: list[int] = []


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    start, turn = 0, 0
    while sizes and start < len(data):
        yield data[start : start + sizes[turn % len(sizes)]]
        start += sizes[turn % len(sizes)]
        turn += 1
    if not sizes:
        yield data


class End:
    """A driver without a socket: it does about each event what a broker or a client must do, and notes it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.heard: list[Any] = []
        self.out = b""

    def take(self, data: bytes, sizes: list[int]) -> None:
        for piece in pieces(data, sizes):
            for event in self.session.receive(piece):
                self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Published():
                # How many come at once depends on the reads.
                self.heard += event.publications
                answered = [each.number for each in event.publications if each.number]
                self.out += b"".join(self.session.say(Accepted(number)) for number in answered)
            case Write():
                self.heard.append(Ping())
                self.out += event.frame
            case Unfit():
                self.heard.append((event.number, event.notifications, str(event.error)))
            case Ended():
                self.heard.append((event.reason, event.is_final))
                self.out += event.goodbye
            case _:
                self.heard.append(event)
                self.out += self._answer(event)

    def _answer(self, event: Event) -> bytes:
        match event:
            case Hello():
                assert isinstance(self.session, BrokerSession)
                return self.session.welcome(CREDIT if event.role == "client" else 0)
            case Request() | PublishStored():
                # Some are refused.
                is_refused = event.number % 3 == 0
                answer = Refused(event.number, "LimitError", "no") if is_refused else Accepted(event.number)
                return self.session.say(answer)
            case Look():
                return self.session.say(Seen(event.number, {"what": event.what}))
            case _:
                return b""


def exchange(first: End, second: End, sizes: list[int]) -> None:
    """Carries what each has said to the other, until both are silent."""
    while first.out or second.out:
        data, first.out = first.out, b""
        second.take(data, sizes)
        data, second.out = second.out, b""
        first.take(data, sizes)


# What an end does in a step; it returns what the other is to hear.
Step = Callable[[End], tuple[bytes, Any]]


def _asks(made: Any) -> Step:
    def step(end: End) -> tuple[bytes, Any]:
        session = end.session
        assert isinstance(session, ClientSession)
        match made:
            case Request():
                number, data = session.ask(made.body)
                return data, Request(number, made.body)
            case Look():
                number, data = session.look(made.what, made.notification)
                return data, Look(number, made.what, made.notification)
            case PublishStored():
                number, data = session.publish_stored(made.notifications, made.after)
                return data, PublishStored(number, made.notifications, made.after)
            case _:
                number, data = session.publish(made.notifications, made.number % 2 == 1)
                return data, Publish(number, made.notifications)

    return step


def _says(message: Any) -> Step:
    return lambda end: (end.session.say(message), message)


def _ticks(end: End) -> tuple[bytes, Any]:
    event = end.session.on_tick(0.0, shows_life=True)
    return (event.frame, Ping()) if isinstance(event, Write) else (b"", None)


def _forwards(batch: Batch[Any]) -> Step:
    """As a broker does: frames of batches are made without the session."""
    routed = batch.routed()
    return lambda end: (batch_frame(routed), routed)


LINK_KINDS: tuple[type, ...] = (*SYSTEMS[ROUTING].messages, *BETWEEN_STORAGES, LinkReport, Beat, Parting, Gap)
CLIENT_KINDS = (Delivery, SequenceDelivery, Lost, Gap, DurableDelivery, Confirmed, Effective, LostLog)

note = st.builds(Notification, st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)))
# Those with names that nobody may use are answered otherwise.
allowed_requests = (requests | durable_requests).filter(lambda request: request_problem(request) is None)
by_client = st.one_of(
    st.builds(_asks, st.builds(Request, st.just(0), allowed_requests)),
    st.builds(_asks, KINDS[Look]),
    st.builds(_says, KINDS[Taken]),
    st.builds(
        _asks,
        st.builds(PublishStored, st.just(0), st.lists(note | notifications, max_size=3).map(tuple), st.integers(0, 9)),
    ),
    st.builds(_asks, st.builds(Publish, st.integers(0, 1), st.lists(note | notifications, max_size=3).map(tuple))),
)
to_client = st.one_of(
    st.just(_ticks),
    st.builds(_says, st.builds(Credit, st.integers(0, 5))),
    *(st.builds(_says, KINDS[kind]) for kind in CLIENT_KINDS),
)
between_brokers = st.one_of(
    st.just(_ticks),
    st.builds(_forwards, BATCHES[SYSTEMS[ROUTING].header]),
    *(st.builds(_says, KINDS[kind]) for kind in LINK_KINDS),
)
THEIRS = ThisBroker("theirs", ROUTING, OURS.language, "i2")
PAIRS: dict[str, tuple[Callable[[], Session], Any, Any]] = {
    "client": (lambda: ClientSession("alice", {"p": 3}), by_client, to_client),
    "broker": (lambda: BrokerSession(THEIRS, is_dialing=True), between_brokers, between_brokers),
}


def talk(dialing: Session, script: list[tuple[bool, Step]], sizes: list[int]) -> tuple[End, End, list[Any], list[Any]]:
    """Both ends, and what each was to hear besides answers."""
    ends = End(dialing), End(BrokerSession(OURS))
    ends[0].out, _ = dialing.begin(0.0), ends[1].session.begin(0.0)
    exchange(*ends, sizes)
    meant: tuple[list[Any], list[Any]] = [], []
    for is_dialer, step in script:
        speaker = 0 if is_dialer else 1
        data, message = step(ends[speaker])
        ends[speaker].out += data
        if message is not None:
            meant[1 - speaker].append(message)
        exchange(*ends, sizes)
    return *ends, *meant


@pytest.mark.parametrize("dialer", PAIRS)
@given(st.data(), cuts)
def test_byte_by_byte_is_the_same_as_whole_and_is_what_was_said(dialer, data, sizes):
    made, by_dialer, by_accepting = PAIRS[dialer]
    steps = st.tuples(st.just(True), by_dialer) | st.tuples(st.just(False), by_accepting)
    script = data.draw(st.lists(steps, max_size=8))
    # Credit is enough for all that is published.
    cut, whole = talk(made(), script, sizes), talk(made(), script, WHOLE)
    for at_end, at_whole_end, meant in zip(cut[:2], whole[:2], cut[2:], strict=True):
        assert at_end.heard == at_whole_end.heard
        assert at_end.session.state is at_whole_end.session.state
        assert at_end.session.state in ESTABLISHED
        heard = [each.routed() if isinstance(each, Batch) else each for each in at_end.heard[1:]]
        answers = (Accepted, Refused, Seen, Pong)
        assert [each for each in heard if not isinstance(each, answers)] == meant
    client = cut[0].session
    if isinstance(client, ClientSession):
        # Everything was answered.
        assert client._unanswered == {}


# --- anything may come --------------------------------------------------------------------------

any_message = st.one_of(*BY_UNION.values())


@st.composite
def streams(draw: Any) -> bytes:
    """Frames of any kind, some of them damaged, and bytes that are no frames."""
    data = bytearray()
    for part in draw(st.lists(any_message | st.binary(max_size=30), max_size=5)):
        data += part if isinstance(part, bytes) else frame(part)
    for _ in range(draw(st.integers(0, 2)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@pytest.mark.parametrize("state", IN_STATE)
@given(streams(), cuts)
def test_whatever_comes_is_an_event_or_the_end_and_the_same_however_it_is_cut(state, data, sizes):
    cut, whole = End(IN_STATE[state]()), End(IN_STATE[state]())
    cut.take(data, sizes)
    whole.take(data, WHOLE)
    assert cut.heard == whole.heard
    assert cut.out == whole.out
    assert (cut.session.state, cut.session.reason) == (whole.session.state, whole.session.reason)
    for end in (cut, whole):
        # The end is the last that is heard, and nothing else looks like it.
        is_ended = end.session.state is State.ENDED
        assert is_ended == bool(end.heard and end.heard[-1] == (end.session.reason, end.session.is_final))


@given(streams())
def test_a_client_never_makes_a_broker_hear_a_broker(data):
    end = End(IN_STATE[State.SERVING]())
    end.take(data, WHOLE)
    kinds = {kind.__name__ for kind in TO_BROKER.__args__} - {"Hello", "Goodbye"}
    assert {type(each).__name__ for each in end.heard} <= kinds | {"tuple"}
