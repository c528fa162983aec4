"""Sessions in each state, a message of every kind, and what comes of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.durable.messages import Taken
from catchment.routing.messages import Beat, Gap, LinkReport, Parting, Subscribe
from catchment.routing.siena.messages import OriginHeader, Wants
from catchment.wire.client_session import ClientSession
from catchment.wire.frames import (
    VERSION,
    Decoder,
    frame,
)
from catchment.wire.greetings import ThisBroker
from catchment.wire.messages import (
    Accepted,
    Batch,
    Confirmed,
    Credit,
    Delivery,
    DurableDelivery,
    Effective,
    Goodbye,
    Hello,
    Look,
    Lost,
    LostLog,
    Parcel,
    Ping,
    Pong,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    Welcome,
)
from catchment.wire.session import (
    BrokerSession,
    Ended,
    Session,
)
from catchment.wire.states import TABLE, HelloOf, State, What
from tests.said import TO_BROKER, TO_CLIENT, language_of

ROUTING = "siena general"
OURS = ThisBroker("ours", ROUTING, language_of(ROUTING), "i1")

SPOKEN = (VERSION, VERSION)
NOTE = Notification({"x": 1}, source="p", seq=1)
REQUEST = Request(1, Subscribe("alice", "s", Filter("x > 0")))
CLIENT_HELLO = Hello(SPOKEN, "client", "alice")
BROKER_HELLO = Hello(SPOKEN, "broker", "theirs", routing=ROUTING, instance="i2")
BROKER_WELCOME = Welcome(VERSION, "theirs", ROUTING, instance="i2")

# One message of every kind that there is.
MESSAGES: tuple[Any, ...] = (
    CLIENT_HELLO,
    BROKER_HELLO,
    BROKER_WELCOME,
    Goodbye("done"),
    Ping(),
    Pong(),
    REQUEST,
    Publish(2, (NOTE,)),
    PublishStored(4, (NOTE,), 3),
    Taken("alice", "ab12", 5),
    Look(3, "status"),
    Accepted(1),
    Refused(1, "LimitError", "too many"),
    Seen(1, {}),
    Credit(7),
    Delivery("alice", ("s",), NOTE),
    DurableDelivery("alice", ("s",), NOTE, "ab12", 7, 1),
    Confirmed("p", 1, "ours", "ab12", settled=False),
    Effective("alice", "s", ("south",)),
    LostLog("alice", "south", "cd34"),
    SequenceDelivery("alice", "s", (NOTE,)),
    Lost("alice", 3),
    Gap("north/7/1", 2, ("north", "south"), 5, 9, 3),
    LinkReport(7, 6, 10, 20),
    Beat(5, 10, 4),
    Parting(5, is_alone=True),
    Batch((Parcel(OriginHeader(1, "theirs"), (NOTE,)),)),
    Wants("theirs", 1, (Filter("x > 0"),)),
)


# --- sessions in each state ---------------------------------------------------------------------


def accepted() -> BrokerSession:
    session = BrokerSession(OURS)
    assert session.begin(0.0) == b""
    return session


def came(hello: Hello) -> BrokerSession:
    session = accepted()
    assert events(session, hello) == [hello]
    return session


def serving() -> BrokerSession:
    session = came(CLIENT_HELLO)
    assert said(session.welcome(credit=100)) == [Welcome(VERSION, "ours", ROUTING, credit=100)]
    return session


def linked() -> BrokerSession:
    session = came(BROKER_HELLO)
    assert said(session.welcome()) == [Welcome(VERSION, "ours", ROUTING, instance="i1")]
    return session


def dialed() -> BrokerSession:
    return BrokerSession(OURS, is_dialing=True, cost=3)


def broker_waits() -> BrokerSession:
    session = dialed()
    hello = Hello(SPOKEN, "broker", "ours", routing=ROUTING, cost=3, instance="i1")
    assert said(session.begin(0.0)) == [hello]
    return session


def client_waits() -> ClientSession:
    session = ClientSession("alice", {"p": 7})
    assert said(session.begin(0.0)) == [Hello(SPOKEN, "client", "alice", {"p": 7})]
    return session


def served(credit: int = 100) -> ClientSession:
    session = client_waits()
    welcome = Welcome(VERSION, "theirs", ROUTING, credit=credit)
    assert events(session, welcome) == [welcome]
    return session


IN_STATE: dict[State, Callable[[], Session]] = {
    State.ACCEPTED: accepted,
    State.CLIENT_CAME: partial(came, CLIENT_HELLO),
    State.BROKER_CAME: partial(came, BROKER_HELLO),
    State.DIALED: dialed,
    State.CLIENT_WAITS: client_waits,
    State.BROKER_WAITS: broker_waits,
    State.SERVING: serving,
    State.SERVED: served,
    State.LINKED: linked,
}


def framed(*message: Any) -> bytes:
    """A frame as another program might make it."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def events(session: Session, *messages: Any) -> list[Any]:
    """What comes of messages, or of frames, in one read."""
    return list(session.receive(b"".join(each if isinstance(each, bytes) else frame(each) for each in messages)))


def said(data: bytes) -> list[Any]:
    """The messages in these bytes, of whatever kind."""
    decoder: Decoder[Any] = Decoder(TO_BROKER | TO_CLIENT | language_of(ROUTING))
    return decoder.feed(data)


def goodbye_of(ended: Any) -> Goodbye:
    assert isinstance(ended, Ended), ended
    goodbye = Goodbye(ended.reason, ended.is_final)
    assert said(ended.goodbye) == [goodbye]
    return goodbye


def what_of(message: Any) -> What:
    """What the table calls it."""
    if isinstance(message, Hello):
        return HelloOf(message.role)
    return next(kind for kind in type(message).__mro__ if kind in KINDS_IN_TABLE)


KINDS_IN_TABLE = {what for row in TABLE for what in row.what if isinstance(what, type)}
