"""Records as bytes, and the hash that goes with each.

A body is a MessagePack array: when the record was made, who is due, and the notification as it travels. Who is due is a
list of *dues*: identity, the epoch of the record before that it was due (0 if there was none), how many it was due with
this one, and the ids of its subscriptions. These two numbers make a chain through the records of each identity. Whoever
reads them in order knows whether one is missing in between, whatever has happened to the index.

The hash is of the log's id, the epoch and the body: neither a body of another epoch nor one of another file fits it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.model.packed import has_negative_zero, notification_of, plain_of_raw
from catchment.routing.messages import Time

HASH_BYTES: Final = 16

_encode: Final = msgspec.msgpack.Encoder().encode


class Due(Struct, frozen=True, array_like=True, gc=False):
    """What a body says of an identity."""

    identity: str
    # The epoch of the record before that it was due, and how many it was due up to this one.
    before: int
    count: int
    ids: tuple[str, ...]


class Body(Struct, frozen=True, array_like=True, gc=False):
    """A body that was read."""

    at: Time
    dues: tuple[Due, ...]
    notification: Raw

    def due(self, identity: str) -> Due | None:
        for due in self.dues:
            if due.identity == identity:
                return due
        return None

    @property
    def size(self) -> int:
        """What the record counts, in bytes: its notification."""
        return len(memoryview(self.notification))


_decode: Final = msgspec.msgpack.Decoder(Body).decode
_decode_any: Final = msgspec.msgpack.Decoder().decode


def body_of(at: Time, dues: list[tuple[str, int, int, tuple[str, ...]]], notification: Notification) -> bytes:
    return _encode((at, dues, Raw(notification.packed)))


class Hasher:
    """Hashes what belongs to one log."""

    def __init__(self, log: str) -> None:
        self._start = blake2b(log.encode(), digest_size=HASH_BYTES)

    def of_body(self, epoch: int, body: bytes) -> bytes:
        digest = self._start.copy()
        digest.update(epoch.to_bytes(8, "big") + body)
        return digest.digest()

    def of_row(self, table: str, row: tuple[Any, ...]) -> bytes:
        """Of a row of a small table."""
        digest = self._start.copy()
        # No epoch begins like a name: what is of a row never fits a body.
        digest.update(_encode((table, row)))
        return digest.digest()

    def read(self, epoch: int, digest: object, body: object) -> Body | None:
        """The body, or None if it is damaged."""
        if not isinstance(body, bytes) or self.of_body(epoch, body) != digest:
            return None
        return _decode(body)


def size_of(body: bytes) -> int | None:
    """The size of a body that may be damaged."""
    try:
        return _decode(body).size
    except (msgspec.MsgspecError, ValueError):
        return None


def notification_from(raw: Raw) -> Notification:
    """The notification of a body. It was checked when it came, and its hash says that it has not changed."""
    try:
        # A plain notification with -0.0 is the model's only in the slow way.
        if not has_negative_zero(raw):
            return plain_of_raw(raw)
    except (msgspec.MsgspecError, CatchmentError, ValueError):
        pass  # it is not plain
    return notification_of(_decode_any(raw))
