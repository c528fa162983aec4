"""A notification as MessagePack: an array of its attributes, source, sequence number, time, id and payload. The last
two may be left out.

A *plain* notification has only strings, numbers and booleans as attributes, under names that were checked before.
Nearly all are plain. msgspec alone reads these into `PlainNotification`, with all checks that the model makes. Any
other (with a time among the attributes, a new name, or a mistake) is read by `notification_of`, which takes twice as
long and says what is wrong.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder

from catchment.errors import shown
from catchment.model.notification import (
    KNOWN_NAMES,
    NOTIFICATION_ATTRIBUTES_MAX,
    PAYLOAD_BYTES_MAX,
    Notification,
)
from catchment.model.values import FLOAT_MAX, INT_MAX, INT_MIN, STRING_CODEPOINTS_MAX, Value

# Finds the bytes of -0.0. The model has a single zero, and the limits that msgspec checks do not tell the two apart. A
# regular expression, because `in` takes five times as long where a payload has many zeros.
has_negative_zero: Final = re.compile(rb"\xcb\x80\0\0\0\0\0\0\0").search

# The first byte of an array of six elements, and that of a short map without its number of entries.
_ARRAY_OF_6, _SHORT_MAP = 0x96, 0x80

_Text = Annotated[str, Meta(max_length=STRING_CODEPOINTS_MAX)]
_Int = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
_Float = Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
if TYPE_CHECKING:
    _PlainValue = Value  # dict is invariant: its values must have exactly the type that Notification wants
else:
    _PlainValue = _Text | _Int | _Float | bool
# The id and the payload of a notification that leaves them out.
_LEFT_OUT: Final[tuple[Any, ...]] = (None, b"")


class NotPlainError(ValueError):
    """The notification is not plain: `notification_of` must read it. Callers catch this; no user sees it."""


class PlainNotification(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The fields of a plain notification as msgspec reads them. `time` has no type here: a `datetime` field would also
    accept text."""

    attributes: Annotated[dict[str, _PlainValue], Meta(max_length=NOTIFICATION_ATTRIBUTES_MAX)]
    source: _Text | None
    seq: _Int | None
    time: Any
    id: _Text | None = None
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)] = b""

    def notification(self, packed: bytes | None = None) -> Notification:
        """The notification; NotPlainError if a name is new or the time is none. `packed` is what it was read from."""
        attributes, time = self.attributes, self.time
        if KNOWN_NAMES.issuperset(attributes) and (time is None or type(time) is datetime):
            return Notification.of_checked(attributes, self.id, self.source, time, self.seq, self.payload, packed)
        raise NotPlainError


_decode: Final = Decoder(PlainNotification).decode


def plain_of_raw(raw: Raw) -> Notification:
    """A plain notification that keeps the bytes it was read from, so that they can be sent on as they are.

    The bytes are not kept if fields are left out, or if the map has more entries than names: then a name appears twice,
    and another reader may take the first value where this one takes the last.
    """
    packed = bytes(raw)
    plain = _decode(packed)
    is_whole = packed[0] == _ARRAY_OF_6 and packed[1] == _SHORT_MAP + len(plain.attributes)
    return plain.notification(packed if is_whole else None)


def notification_of(value: object) -> Notification:
    """The notification that a decoded object is; ValueError or CatchmentError if it is none."""
    if not isinstance(value, list):
        raise ValueError(f"a notification: expected a list, found {shown(value)}")
    if not 4 <= len(value) <= 6:
        raise ValueError(f"a notification has 4 to 6 fields, found {len(value)}")
    attributes, source, seq, time, id, payload = (*value, *_LEFT_OUT[len(value) - 4 :])
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes: expected a dict, found {shown(attributes)}")
    return Notification(attributes, source=source, seq=seq, time=time, id=id, payload=payload)
