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

What a client asks may be well said and still not be had: a filter that does not parse, a notification past a limit.
That is no bad frame: it comes as `Unfit`, to be answered with `Refused`, and the connection goes on. A value that is no
value (NaN, an integer of more than 64 bits, a name with `$`) is a bad frame: no client writes it but a broken one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from struct import Struct as Layout
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

from catchment.errors import BadFilterError, CatchmentError, LimitError, ParseError, RemoteProtocolError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.packed import PlainNotification, has_negative_zero, notification_of, plain_of_raw
from catchment.model.pattern import Pattern
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
# Between brokers: all that the clients of one want is one message.
LINK_FRAME_BYTES_MAX: Final = 32 * 1_048_576
# The first frame, of who is not known yet: its greatest part is what a client has seen.
HELLO_BYTES_MAX: Final = 2 * 1_048_576
# One notification with envelope and payload: leaves room in a frame for whom it is for.
NOTIFICATION_BYTES_MAX: Final = 2 * 1_048_576
# Notifications of one `Publish` or `Batch`: a receiver handles them in one go.
BATCH_MAX: Final = 4_096
# Of what the other side gives as its reason to end: what is remembered and logged.
REASON_CODEPOINTS_MAX: Final = 1_024
# Past so many bytes the next notifications go in another frame: they need not wait for each other.
PIECE_BYTES: Final = 1_048_576

_LENGTH: Final = Layout(">I")
# Beginnings of deliveries that are kept, each for so many subscriptions at most: some megabytes.
_HEADS_MAX, _HEAD_SUBSCRIPTIONS_MAX = 4_096, 8


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
    """The last message; why the connection ends. Who connects again after one that `is_final` has the same again."""

    reason: str
    is_final: bool = False


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


class Unfit(Struct, frozen=True):
    """What a client has asked for in a good frame and cannot be had. It does not travel: a decoder finds it."""

    number: int
    # So many were to be published: none was.
    notifications: int
    error: CatchmentError


CoreMessage = Interest | Advertised | Delegated | Part | Links | Wants | WantsChange | Registration
ToBroker = Hello | Goodbye | Ping | Pong | Request | Publish | Look
ToClient = Welcome | Goodbye | Ping | Pong | Accepted | Refused | Credit | Delivery | SequenceDelivery | Lost | Seen
BetweenBrokers = Hello | Welcome | Goodbye | Ping | Pong | Batch | CoreMessage
# What may come over a connection before it is known who it is.
Beginning = Hello | Goodbye

M = TypeVar("M")
T = TypeVar("T")


# --- values of the model ------------------------------------------------------------------------


def _encoded(value: object) -> object:
    match value:
        case Notification():
            return Raw(value.packed)
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
            return notification_of(value)
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


# --- frames -------------------------------------------------------------------------------------

_encode: Final = msgspec.msgpack.Encoder(enc_hook=_encoded).encode


def frame(message: Said, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """A message as it is sent; LimitError if it is too long for that."""
    return _framed(_encode(message), bytes_max)


def delivery_frame(identity: str, subscriptions: tuple[str, ...], notification: bytes) -> bytes:
    """The frame of a `Delivery` whose notification is encoded already."""
    few = len(subscriptions) <= _HEAD_SUBSCRIPTIONS_MAX
    head = (_recalled_head if few else _delivery_head)(identity, subscriptions)
    size = len(head) + len(notification)
    if size > FRAME_BYTES_MAX:
        raise LimitError("FRAME_BYTES_MAX", FRAME_BYTES_MAX, f"{size:,} bytes")
    return b"".join((_LENGTH.pack(size), head, notification))


def _delivery_head(identity: str, subscriptions: tuple[str, ...]) -> bytes:
    """A `Delivery` up to its notification."""
    whole = _encode(("Delivery", identity, subscriptions, None))
    return whole[:-1]


# A stream of notifications is for the same few, over and over.
_recalled_head: Final = lru_cache(_HEADS_MAX)(_delivery_head)


def batch_frame(batch: Sequence[Routed]) -> bytes:
    """The frame of a `Batch`, of notifications mostly encoded already; each an array of four, from few origins."""
    ends = {end: _encode(end)[1:] for end in {(one.origin, one.hops, one.addressee) for one in batch}}
    found = [b"\x94" + one.notification.packed + ends[one.origin, one.hops, one.addressee] for one in batch]
    return _framed(_encode(("Batch", list(map(Raw, found)))), LINK_FRAME_BYTES_MAX)


def _framed(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise LimitError("FRAME_BYTES_MAX", bytes_max, f"{len(body):,} bytes")
    return _LENGTH.pack(len(body)) + body


def bytes_of(notification: Notification) -> int:
    """About as many as it has on the wire; never fewer than its attributes and payload."""
    source, id = notification.source, notification.id
    texts = (0 if source is None else len(source)) + (0 if id is None else len(id))
    return len(notification.content) + len(notification.payload) + 4 * texts


def checked_bytes(notification: Notification) -> int:
    """How many it has; LimitError for one that is too large to be sent."""
    if (found := bytes_of(notification)) > NOTIFICATION_BYTES_MAX:
        raise LimitError(
            "NOTIFICATION_BYTES_MAX", NOTIFICATION_BYTES_MAX, f"{found:,} bytes", "send a reference instead"
        )
    return found


def pieces(batch: Sequence[T], sizes: Sequence[int], count_max: int) -> Iterator[Sequence[T]]:
    """A batch in parts that each fit a frame, in order."""
    if 0 < len(batch) <= count_max and sum(sizes) <= PIECE_BYTES:
        yield batch
        return
    start, size = 0, 0
    for end, bytes_count in enumerate(sizes):
        if end - start >= count_max or size >= PIECE_BYTES:
            yield batch[start:end]
            start, size = end, 0
        size += bytes_count
    if start < len(batch):
        yield batch[start:]


# --- the usual, read in one go ------------------------------------------------------------------


class _PlainPublish(Struct, array_like=True, tag="Publish", gc=False):
    number: int
    notifications: list[Raw]

    def message(self) -> Publish:
        return Publish(self.number, tuple(map(plain_of_raw, self.notifications)))


class _PlainDelivery(Struct, array_like=True, tag="Delivery", gc=False):
    identity: str
    subscriptions: tuple[str, ...]
    notification: PlainNotification

    def message(self) -> Delivery:
        return Delivery(self.identity, self.subscriptions, self.notification.notification())


class _PlainRouted(Struct, array_like=True, gc=False):
    notification: Raw
    origin: str = ""
    hops: int = 0
    addressee: tuple[str, str] | None = None


class _PlainBatch(Struct, array_like=True, tag="Batch", gc=False):
    routed: list[_PlainRouted]

    def message(self) -> Batch:
        return Batch(tuple([Routed(plain_of_raw(a.notification), a.origin, a.hops, a.addressee) for a in self.routed]))


_PLAIN: Final[dict[Any, Any]] = {Publish: _PlainPublish, Delivery: _PlainDelivery, Batch: _PlainBatch}
_PLAIN_KINDS: Final = (_PlainPublish, _PlainDelivery, _PlainBatch)


# The beginning of what a client asks, whatever is wrong with the rest.
class _RequestOutline(Struct, array_like=True, tag="Request"):
    number: int


class _LookOutline(Struct, array_like=True, tag="Look"):
    number: int


class _PublishOutline(Struct, array_like=True, tag="Publish"):
    number: int
    notifications: list[Raw]


_outline: Final = msgspec.msgpack.Decoder(_RequestOutline | _LookOutline | _PublishOutline).decode


def _unfit(body: bytes, problem: BaseException | None) -> Unfit | None:
    """What a client asked, if it was well said: only its content is wrong."""
    if not isinstance(problem, LimitError | ParseError | BadFilterError):
        return None
    try:
        found = _outline(body)
    except msgspec.MsgspecError:
        return None
    count = len(found.notifications) if isinstance(found, _PublishOutline) else 0
    return Unfit(found.number, count, problem)


class Decoder(Generic[M]):
    """Bytes, in pieces of any size, to messages of a union of kinds; from clients also `Unfit`."""

    def __init__(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self.expect(kinds, bytes_max)

    def expect(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """From the next frame on other messages may come: it is known who is there."""
        self._decode = msgspec.msgpack.Decoder(kinds, dec_hook=_decoded).decode
        plain_kinds = reduce(or_, [_PLAIN.get(one, one) for one in get_args(kinds)])
        self._decode_plain = msgspec.msgpack.Decoder(plain_kinds, dec_hook=_decoded).decode
        self._bytes_max = bytes_max

    def feed(self, data: bytes) -> list[M]:
        """The messages that are complete now. WireError for what is none, after which nothing more is fed."""
        return [self.decoded(body) for body in self.bodies(data)]

    def bodies(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete now; of each the length is checked when those before it are dealt with."""
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        try:
            while end - start >= 4:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > self._bytes_max:
                    raise WireError(f"a frame of {length:,} bytes: FRAME_BYTES_MAX is {self._bytes_max:,}")
                if end - start - 4 < length:
                    break
                start += 4 + length
                yield bytes(buffer[start - length : start])
        finally:
            del buffer[:start]

    def decoded(self, body: bytes) -> M:
        try:
            message = self._plain(body)
            if message is None:
                message = self._decode(body)
            _check_sizes(message, body)
        except WireError:
            raise
        except (msgspec.MsgspecError, CatchmentError, ValueError) as problem:
            cause = problem if isinstance(problem, CatchmentError) else problem.__cause__
            if (unfit := _unfit(body, cause)) is None:
                raise WireError(str(problem)) from None
            return unfit  # type: ignore[return-value]
        except RecursionError:
            raise WireError("nesting too deep") from None
        return message

    def _plain(self, body: bytes) -> M | None:
        """A message whose notifications are all plain; whatever it is that is wrong with others, the model says it."""
        if has_negative_zero(body):
            return None
        try:
            found: Any = self._decode_plain(body)
            return found.message() if isinstance(found, _PLAIN_KINDS) else found  # type: ignore[return-value]
        except (msgspec.MsgspecError, CatchmentError, ValueError, RecursionError):
            return None


def _check_sizes(message: object, body: bytes) -> None:
    if isinstance(message, Publish):
        _check_count(len(message.notifications))
        # In a shorter frame there is none that is too large.
        if len(body) > NOTIFICATION_BYTES_MAX:
            for one in message.notifications:
                checked_bytes(one)
    elif isinstance(message, Batch):
        _check_count(len(message.routed))


def _check_count(count: int) -> None:
    if count > BATCH_MAX:
        raise WireError(f"{count:,} notifications at once: BATCH_MAX is {BATCH_MAX:,}")
