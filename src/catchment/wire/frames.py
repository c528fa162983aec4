"""Messages to bytes and back.

A frame is the length of its body in four bytes, the most significant first, and the body: one message as a MessagePack
array that begins with the message's name.

    decoder = Decoder(Request | Publish | Ping)
    for message in decoder.feed(bytes_read): …
    transport.write(frame(message))

Whose fault. A bad frame ends the connection, because what comes after it cannot be trusted: `WireError` says what was
wrong with it. A frame that is too long is refused when its length is read, before memory is taken for it. Within a
frame nothing is larger than the frame, and strings, attributes and filters have the limits of the model.

A client may ask in a good frame for what it cannot have: a filter that does not parse, a notification past a limit.
The decoder gives `Unfit` for that; the broker answers with `Refused`, and the connection goes on. But something that
is no value at all (NaN, an integer of more than 64 bits, a name with `$`) is a bad frame: only a broken client writes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, reduce
from itertools import groupby
from operator import attrgetter, or_
from struct import Struct as Layout
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

from catchment.errors import BadFilterError, CatchmentError, LimitError, ParseError, RemoteProtocolError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.packed import has_negative_zero, notification_of
from catchment.model.pattern import Pattern
from catchment.routing.durable.messages import Offer, Span
from catchment.routing.messages import Header, Routed, Said, Wanted
from catchment.wire.messages import Batch, Publish, PublishStored, Unfit
from catchment.wire.plain import PLAIN_KINDS, plain_kind

# 2: notifications between brokers travel in parcels of one header. 3: durable delivery.
VERSION: Final = 3
# One notification with the largest payload, or some thousand small ones. A receiver holds one frame at a time.
FRAME_BYTES_MAX: Final = 4 * 1_048_576
# Between brokers: one message says all that the clients of a broker want.
LINK_FRAME_BYTES_MAX: Final = 32 * 1_048_576
# The first frame, which comes from somebody unknown. Its largest part is what a client has seen.
HELLO_BYTES_MAX: Final = 2 * 1_048_576
# One notification with envelope and payload. It leaves room in a frame for the subscriptions that it matches.
NOTIFICATION_BYTES_MAX: Final = 2 * 1_048_576
# Notifications of one `Publish` or `Batch`: a receiver handles them in one call.
BATCH_MAX: Final = 4_096
# Of the reason in a `Goodbye`: the rest is neither remembered nor logged.
REASON_CODEPOINTS_MAX: Final = 1_024
# Past this, the next notifications go in another frame, so that the first ones need not wait for the last.
PIECE_BYTES: Final = 1_048_576

_LENGTH: Final = Layout(">I")
# The cache of beginnings of deliveries: how many, and for how many subscriptions each at most. Some megabytes.
_HEADS_MAX, _HEAD_SUBSCRIPTIONS_MAX = 4_096, 8


class WireError(RemoteProtocolError):
    """The other side has sent something that is no message, or not one that was expected: the connection ends.

    `name` is the name that the message begins with, if there is one."""

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__("", what)
        self.name = name

    def __str__(self) -> str:
        return f"bad frame: {self.what}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.name)


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
# The length, the head of an array of two, and the name.
_BATCH_HEAD_SIZE: Final = 4 + 1 + len(_encode("Batch"))


def frame(message: Said, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """A message as it is sent. LimitError if it is too long."""
    return _framed(_encode(message), bytes_max)


def delivery_frame(identity: str, subscriptions: tuple[str, ...], notification: bytes) -> bytes:
    """The frame of a `Delivery` whose notification is encoded already. LimitError if it is too long."""
    are_few = len(subscriptions) <= _HEAD_SUBSCRIPTIONS_MAX
    head = (_recalled_head if are_few else _delivery_head)(identity, subscriptions)
    size = len(head) + len(notification)
    if size > FRAME_BYTES_MAX:
        raise LimitError("FRAME_BYTES_MAX", FRAME_BYTES_MAX, f"{size:,} bytes")
    return b"".join((_LENGTH.pack(size), head, notification))


def _delivery_head(identity: str, subscriptions: tuple[str, ...]) -> bytes:
    """A `Delivery` up to its notification."""
    delivery = _encode(("Delivery", identity, subscriptions, None))
    # The last byte is the None, where the notification goes.
    return delivery[:-1]


# A stream of notifications goes to the same few identities and subscriptions, over and over.
_recalled_head: Final = lru_cache(_HEADS_MAX)(_delivery_head)


def durable_delivery_frame(
    identity: str, subscriptions: tuple[str, ...], notification: bytes, log: str, epoch: int, lost: int
) -> bytes:
    """The same of a `DurableDelivery`."""
    are_few = len(subscriptions) <= _HEAD_SUBSCRIPTIONS_MAX
    head = (_recalled_durable_head if are_few else _durable_delivery_head)(identity, subscriptions)
    # Without the byte that says that there are three.
    tail = _encode((log, epoch, lost))[1:]
    size = len(head) + len(notification) + len(tail)
    if size > FRAME_BYTES_MAX:
        raise LimitError("FRAME_BYTES_MAX", FRAME_BYTES_MAX, f"{size:,} bytes")
    return b"".join((_LENGTH.pack(size), head, notification, tail))


def _durable_delivery_head(identity: str, subscriptions: tuple[str, ...]) -> bytes:
    """A `DurableDelivery` up to its notification."""
    delivery = _encode(("DurableDelivery", identity, subscriptions, None, None, None, None))
    # The last four bytes are the Nones, where the notification and the rest go.
    return delivery[:-4]


_recalled_durable_head: Final = lru_cache(_HEADS_MAX)(_durable_delivery_head)


def batch_frame(batch: Sequence[Routed]) -> bytes:
    """The frame of a `Batch`. Notifications that follow one another with the same header share it."""
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
    """How many bytes MessagePack writes before the elements of an array."""
    return 1 if count < 16 else 3 if count < 65_536 else 5


def _framed(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise LimitError("FRAME_BYTES_MAX", bytes_max, f"{len(body):,} bytes")
    return _LENGTH.pack(len(body)) + body


def bytes_of(notification: Notification) -> int:
    """About the size of a notification on the wire; never less than its attributes and payload."""
    source, id = notification.source, notification.id
    # A code point takes at most four bytes.
    texts = (0 if source is None else len(source)) + (0 if id is None else len(id))
    return len(notification.content) + len(notification.payload) + 4 * texts


def checked_bytes(notification: Notification) -> int:
    """The same. LimitError if the notification is too large to be sent."""
    if (size := bytes_of(notification)) > NOTIFICATION_BYTES_MAX:
        raise LimitError(
            "NOTIFICATION_BYTES_MAX", NOTIFICATION_BYTES_MAX, f"{size:,} bytes", "send a reference instead"
        )
    return size


def pieces(batch: Sequence[T], sizes: Sequence[int], count_max: int) -> Iterator[Sequence[T]]:
    """A batch in parts that each fit a frame, in order. `sizes` are those of its elements."""
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


# --- outlines: what can be read of a message whose content is wrong -------------------------------


class _RequestOutline(Struct, array_like=True, tag="Request"):
    number: int


class _LookOutline(Struct, array_like=True, tag="Look"):
    number: int


class _PublishOutline(Struct, array_like=True, tag="Publish"):
    number: int
    notifications: list[Raw]


class _PublishStoredOutline(_PublishOutline, array_like=True, tag="PublishStored"):
    pass


_outline: Final = msgspec.msgpack.Decoder(
    _RequestOutline | _LookOutline | _PublishOutline | _PublishStoredOutline
).decode


def _unfit(body: bytes, problem: BaseException | None) -> Unfit | None:
    """What a client asked for, if nothing but the content is wrong; else None."""
    if not isinstance(problem, LimitError | ParseError | BadFilterError):
        return None
    try:
        outline = _outline(body)
    except (msgspec.MsgspecError, ValueError):
        return None
    count = len(outline.notifications) if isinstance(outline, _PublishOutline) else 0
    return Unfit(outline.number, count, problem)


class _Named(Struct, array_like=True):
    name: str


_named: Final = msgspec.msgpack.Decoder(_Named).decode


def _name(body: bytes) -> str:
    """The name that a message begins with, or nothing."""
    try:
        return _named(body).name
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # ValueError: it is no UTF-8.
        return ""


# --- decoding -----------------------------------------------------------------------------------


@cache
def _decoders(kinds: Any) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """What reads any message of these kinds, and what reads the plain ones. There are few such sets: one for each
    state of a connection and routing system."""
    plain_kinds = reduce(or_, map(plain_kind, get_args(kinds) or (kinds,)))
    return tuple(msgspec.msgpack.Decoder(each, dec_hook=_decoded).decode for each in (kinds, plain_kinds))  # type: ignore[return-value]


class Decoder(Generic[M]):
    """Bytes, in pieces of any size, to messages of a kind or a union of kinds. From clients also `Unfit`."""

    def __init__(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        # Frames that have come whole. While `unfinished_bytes` is not 0, it is the number of the frame that is coming.
        self.frames_count = 0
        self._buffer = bytearray()
        self.expect(kinds, bytes_max)

    def expect(self, kinds: Any, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """From the next frame on these messages may come."""
        self._decode, self._decode_plain = _decoders(kinds)
        self._bytes_max = bytes_max

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a frame that has not come whole."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[M]:
        """The messages that are complete now. WireError if something else came; nothing may be fed after that."""
        return [self.decoded(body) for body in self.bodies(data)]

    def bodies(self, data: bytes) -> Iterator[bytes]:
        """The bodies of the frames that are complete now. The length of each is checked when those before it have been
        handled: they may have changed what is expected."""
        buffer = self._buffer
        # Most reads begin and end with a frame: those are not copied into the buffer.
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        start, end = 0, len(source)
        try:
            while end - start >= 4:
                # A length that is too large is refused before there is room for it.
                (length,) = _LENGTH.unpack_from(source, start)
                if length > self._bytes_max:
                    raise WireError(f"a frame of {length:,} bytes: FRAME_BYTES_MAX is {self._bytes_max:,}")
                if end - start - 4 < length:
                    break
                start += 4 + length
                self.frames_count += 1
                yield bytes(source[start - length : start])
        finally:
            if source is buffer:
                del buffer[:start]
            else:
                buffer += source[start:]

    def decoded(self, body: bytes) -> M:
        try:
            message = self._plain(body)
            if message is None:
                message = self._decode(body)
            # A notification takes more than a byte, so a shorter frame has not too many of them, nor a large one.
            if len(body) > BATCH_MAX:
                _check_sizes(message, body)
        except WireError:
            raise
        except (msgspec.MsgspecError, CatchmentError, ValueError) as problem:
            cause = problem if isinstance(problem, CatchmentError) else problem.__cause__
            if (unfit := _unfit(body, cause)) is None:
                raise WireError(str(problem), _name(body)) from None
            return unfit  # type: ignore[return-value]
        except RecursionError:
            raise WireError("nesting too deep") from None
        return message

    def _plain(self, body: bytes) -> M | None:
        """A message whose notifications are all plain, or None. If something is wrong, the slow way says what."""
        if has_negative_zero(body):
            return None
        try:
            message: Any = self._decode_plain(body)
            read: M = message.message() if isinstance(message, PLAIN_KINDS) else message
            return read
        except (msgspec.MsgspecError, CatchmentError, ValueError, RecursionError):
            return None


def _check_sizes(message: object, body: bytes) -> None:
    if isinstance(message, Publish | PublishStored):
        _check_count(len(message.notifications))
        # No notification is larger than the frame that it came in.
        if len(body) > NOTIFICATION_BYTES_MAX:
            for notification in message.notifications:
                checked_bytes(notification)
    elif isinstance(message, Batch):
        _check_count(sum(len(parcel.notifications) for parcel in message.parcels))
    elif isinstance(message, Offer):
        _check_count(len(message.notifications))
    elif isinstance(message, Span):
        _check_count(len(message.entries))


def _check_count(count: int) -> None:
    if count > BATCH_MAX:
        raise WireError(f"{count:,} notifications at once: BATCH_MAX is {BATCH_MAX:,}")
