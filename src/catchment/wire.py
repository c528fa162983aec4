"""What goes over a connection: frames of MessagePack, and nothing that does input or output.

A frame is the length of its body in four bytes, the most significant first, and the body: one message as a MessagePack
array that begins with the message's name. `docs/protocol.md` says it all for those who write a client in another
language.

    decoder = Decoder(ToBroker)
    for message in decoder.feed(bytes_read): …
    transport.write(frame(message))

A connection begins with a `Hello` and is answered with a `Welcome` or a `Goodbye`. A client then sends `Request`,
`Publish` and `Pong`, a broker answers and delivers; two brokers send each other what cores say and `Batch`.

A bad frame ends a connection: what comes after it cannot be trusted. `WireError` says what was wrong with it. A frame
that is too long is refused when its length is read, before there is room for it; within a frame nothing is larger than
the frame, and strings, attributes and filters have the limits of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from struct import Struct as Layout
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from catchment.errors import CatchmentError, RemoteProtocolError, shown
from catchment.model.cesql import Cesql
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification
from catchment.routing.messages import (
    Advertise,
    Advertised,
    Cancel,
    Delegated,
    Interest,
    Links,
    MapIdentity,
    Part,
    Registration,
    Resume,
    Routed,
    Said,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
    Wanted,
    Wants,
    WantsChange,
)

VERSION: Final = 1
# One notification with the largest payload, or some thousand small ones; a receiver holds one frame at a time.
FRAME_BYTES_MAX: Final = 4 * 1_048_576
# Notifications of one `Publish` or `Batch`: a receiver handles them in one go.
BATCH_MAX: Final = 4_096

_LENGTH: Final = Layout(">I")


class WireError(RemoteProtocolError):
    """What came over a connection is no message of this protocol; that connection ends."""

    def __init__(self, what: str) -> None:
        super().__init__("", what)

    def __str__(self) -> str:
        return f"bad frame: {self.what}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what,)


# --- beginning and end --------------------------------------------------------------------------


class Hello(Said, frozen=True):
    """The first message of who has connected. `versions` are the lowest and the highest that it speaks."""

    versions: tuple[int, int]
    role: Literal["client", "broker"]
    # A client's identity, or a broker's name.
    name: str
    # Of a client: what it has been delivered, by source the last number. It is not delivered again.
    seen: Mapping[str, int] = {}
    # Of a broker: the routing system of its network, and what the link costs.
    routing: str = ""
    cost: int = 1
    # Other after each start of the process: tells a broker that came back from one that connects a second time.
    instance: str = ""
    agent: str = ""


class Welcome(Said, frozen=True):
    """The answer: the version that is spoken from here on, and, to a client, how much it may publish at once."""

    version: int
    name: str
    routing: str = ""
    cost: int = 1
    credit: int = 0
    instance: str = ""
    agent: str = ""


class Goodbye(Said, frozen=True):
    """The last message; why the connection ends."""

    reason: str


class Ping(Said, frozen=True):
    pass


class Pong(Said, frozen=True):
    pass


# --- client to broker ---------------------------------------------------------------------------

ClientRequest = Subscribe | Unsubscribe | Cancel | Advertise | Unadvertise | MapIdentity | Suspend | Resume


class Request(Said, frozen=True):
    """Answered with `Accepted` or `Refused` of the same number."""

    number: int
    body: ClientRequest


class Publish(Said, frozen=True):
    """Notifications, in order. With a number other than 0 it is answered as a request."""

    number: int
    notifications: tuple[Notification, ...]


class Look(Said, frozen=True):
    """Asks what a broker is doing; answered with `Seen`. `explain` has a notification and says why what matches it
    and what does not."""

    number: int
    what: Literal["status", "explain"]
    notification: Notification | None = None


# --- broker to client ---------------------------------------------------------------------------


class Accepted(Said, frozen=True):
    number: int


class Refused(Said, frozen=True):
    """`number` is 0 for a notification that nobody waits for the answer of."""

    number: int
    kind: str
    reason: str


class Credit(Said, frozen=True):
    """So many notifications more may be published."""

    notifications: int


class Delivery(Said, frozen=True):
    """A notification, and the ids of the identity's subscriptions that it matches."""

    identity: str
    subscriptions: tuple[str, ...]
    notification: Notification


class SequenceDelivery(Said, frozen=True):
    """A sequence that completes a pattern."""

    identity: str
    subscription: str
    notifications: tuple[Notification, ...]


class Lost(Said, frozen=True):
    """So many notifications for the identity were dropped: it is slow, or was suspended for long."""

    identity: str
    count: int


class Seen(Said, frozen=True):
    """The answer to `Look`."""

    number: int
    found: Any


# --- broker to broker ---------------------------------------------------------------------------


class Batch(Said, frozen=True):
    """Notifications on their way, in order."""

    routed: tuple[Routed, ...]


CoreMessage = Interest | Advertised | Delegated | Part | Links | Wants | WantsChange | Registration
ToBroker = Hello | Goodbye | Ping | Pong | Request | Publish | Look
ToClient = Welcome | Goodbye | Ping | Pong | Accepted | Refused | Credit | Delivery | SequenceDelivery | Lost | Seen
BetweenBrokers = Hello | Welcome | Goodbye | Ping | Pong | Batch | CoreMessage
# What may come over a connection before it is known who it is.
Beginning = Hello | Goodbye

M = TypeVar("M")


# --- values of the model ------------------------------------------------------------------------


class _Note(Struct, frozen=True, array_like=True, gc=False):
    """A notification: attributes, then its envelope and payload, as far as there are any."""

    attributes: Raw
    source: str | None
    seq: int | None
    time: datetime | None
    id: str | None = None
    payload: bytes = b""


def _encoded(value: object) -> object:
    match value:
        case Notification():
            return _Note(Raw(value.content), value.source, value.seq, value.time, value.id, value.payload)
        case Filter() | Advertisement():
            return str(value)
        case Pattern():
            return "pattern", str(value)
        case Cesql():
            return "cesql", str(value)
        case _:
            raise NotImplementedError(f"{type(value).__name__} does not travel")


def _decoded(kind: Any, value: Any) -> Any:
    match value:
        case _ if kind is Notification:
            return _notification(value)
        case str() if kind is Filter or kind is Advertisement:
            return kind(value)
        case str() if kind is Wanted:
            return Filter(value)
        case ["pattern", str(text)] if kind is Pattern or kind is Wanted:
            return Pattern(text)
        case ["cesql", str(text)] if kind is Wanted:
            return Cesql(text)
        case _:
            raise ValueError(f"{shown(value)} is no {kind.__name__}")


def _notification(value: Any) -> Notification:
    fields = _checked(value, list)
    if not 4 <= len(fields) <= 6:
        raise ValueError(f"a notification has 4 to 6 fields, found {len(fields)}")
    attributes, source, seq, time, *rest = fields
    id, payload = (*rest, None, b"")[:2] if len(rest) < 2 else rest
    return Notification(_checked(attributes, dict), source=source, seq=seq, time=time, id=id, payload=payload)


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected a {kind.__name__}, found {shown(value)}")
    return value


# --- frames -------------------------------------------------------------------------------------

_encode: Final = msgspec.msgpack.Encoder(enc_hook=_encoded).encode


def frame(message: Said) -> bytes:
    """A message as it is sent; LimitError past FRAME_BYTES_MAX is the caller's to avoid."""
    body = _encode(message)
    assert len(body) <= FRAME_BYTES_MAX, f"{type(message).__name__} of {len(body):,} bytes"
    return _LENGTH.pack(len(body)) + body


def encoded(value: object) -> bytes:
    """A value as it stands in a message: what goes to many is encoded once."""
    return _encode(value)


def delivery_frame(identity: str, subscriptions: tuple[str, ...], notification: bytes) -> bytes:
    """The frame of a `Delivery` whose notification is encoded already."""
    body = _encode(("Delivery", identity, subscriptions, Raw(notification)))
    return _LENGTH.pack(len(body)) + body


class Decoder(Generic[M]):
    """Bytes, in pieces of any size, to messages of a union of kinds."""

    def __init__(self, kinds: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds, dec_hook=_decoded).decode
        self._buffer = bytearray()

    def expect(self, kinds: Any) -> None:
        """From the next frame on other messages may come: it is known who is there."""
        self._decode = msgspec.msgpack.Decoder(kinds, dec_hook=_decoded).decode

    def feed(self, data: bytes) -> list[M]:
        """The messages that are complete now. WireError for what is none, after which nothing more is fed."""
        found: list[M] = []
        for body in self.bodies(data):
            found.append(self.decoded(body))
        return found

    def bodies(self, data: bytes) -> list[bytes]:
        """The frames that are complete now."""
        buffer = self._buffer
        buffer += data
        found, start, end = [], 0, len(buffer)
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > FRAME_BYTES_MAX:
                raise WireError(f"a frame of {length:,} bytes: FRAME_BYTES_MAX is {FRAME_BYTES_MAX:,}")
            if end - start - 4 < length:
                break
            found.append(bytes(buffer[start + 4 : start + 4 + length]))
            start += 4 + length
        del buffer[:start]
        return found

    def decoded(self, body: bytes) -> M:
        try:
            message: M = self._decode(body)
        except (msgspec.ValidationError, msgspec.DecodeError, CatchmentError, ValueError) as problem:
            raise WireError(str(problem)) from None
        except RecursionError:
            raise WireError("nesting too deep") from None
        if isinstance(message, Publish) and len(message.notifications) > BATCH_MAX:
            raise WireError(f"{len(message.notifications):,} notifications at once: BATCH_MAX is {BATCH_MAX:,}")
        return message
