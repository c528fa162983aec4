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

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, reduce
from itertools import groupby
from operator import attrgetter, or_
from struct import Struct as Layout
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from catchment.errors import BadFilterError, CatchmentError, LimitError, ParseError, RemoteProtocolError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.packed import PlainNotification, has_negative_zero, notification_of, plain_of_raw
from catchment.model.pattern import Pattern
from catchment.routing.messages import Header, Routed, Said, Wanted
from catchment.wire.messages import Batch, Delivery, H, Parcel, Publish, Unfit

# 2: notifications between brokers travel in parcels of one header.
VERSION: Final = 2
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
_HEADER: Final = attrgetter("header")
# A length, and an array of two that begins with the name.
_BATCH_HEAD_SIZE: Final = 4 + 1 + len(_encode("Batch"))


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
    """The frame of a `Batch`, of notifications mostly encoded already; headers are shared by many of them."""
    parcels: list[tuple[Header, list[Raw]]] = []
    for header, group in groupby(batch, _HEADER):
        parcels.append((header, [Raw(routed.notification.packed) for routed in group]))
    return _framed(_encode(("Batch", parcels)), LINK_FRAME_BYTES_MAX)


def batch_size(batch: Sequence[Routed]) -> int:
    """The length of that frame, without making it."""
    size, count = 0, 0
    for header, group in groupby(batch, _HEADER):
        sizes = [len(routed.notification.packed) for routed in group]
        size += 1 + _header_size(header) + _array_size(len(sizes)) + sum(sizes)
        count += 1
    return _BATCH_HEAD_SIZE + _array_size(count) + size


@lru_cache(_HEADS_MAX)
def _header_size(header: Header) -> int:
    return len(_encode(header))


def _array_size(count: int) -> int:
    """MessagePack's bytes before the elements of an array."""
    return 1 if count < 16 else 3 if count < 65_536 else 5


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


class _PlainParcel(Struct, Generic[H], array_like=True, gc=False):
    header: H
    notifications: list[Raw]


class _PlainBatch(Struct, Generic[H], array_like=True, tag="Batch", gc=False):
    parcels: list[_PlainParcel[H]]

    def message(self) -> Batch[H]:
        return Batch(
            tuple([Parcel(each.header, tuple(map(plain_of_raw, each.notifications))) for each in self.parcels])
        )


def _plain(kind: Any) -> Any:
    """The type that the usual messages of a kind are read as."""
    if get_origin(kind) is Batch:
        header: Any = get_args(kind)[0]
        batch: Any = _PlainBatch
        return batch[header]
    return {Publish: _PlainPublish, Delivery: _PlainDelivery}.get(kind, kind)


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


@cache
def _decoders(kinds: Any) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """What reads any message of these kinds, and what reads the usual ones quickly. There are few such sets."""
    plain_kinds = reduce(or_, map(_plain, get_args(kinds)))
    return tuple(msgspec.msgpack.Decoder(each, dec_hook=_decoded).decode for each in (kinds, plain_kinds))  # type: ignore[return-value]


class Decoder(Generic[M]):
    """Bytes, in pieces of any size, to messages of a union of kinds; from clients also `Unfit`."""

    def __init__(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self.expect(kinds, bytes_max)

    def expect(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """From the next frame on other messages may come: it is known who is there."""
        self._decode, self._decode_plain = _decoders(kinds)
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
        _check_count(sum(len(parcel.notifications) for parcel in message.parcels))


def _check_count(count: int) -> None:
    if count > BATCH_MAX:
        raise WireError(f"{count:,} notifications at once: BATCH_MAX is {BATCH_MAX:,}")
