"""A notification as MessagePack: an array of its attributes, source, number, time, id and payload, the last two left
out where it ends before them.

Nearly all notifications have short strings, numbers and booleans under names that were seen before. These are read by
msgspec alone, with all checks that the model makes, into `Plain`; a time among the attributes, a name that is new, or
anything that is wrong is for `notification_of`, which takes twice as long and says what is wrong.
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

# MessagePack's -0.0: the model has one zero, and msgspec does not tell them apart. Searched as an expression, because
# `in` takes five times as long where a payload has many zeros.
has_negative_zero: Final = re.compile(rb"\xcb\x80\0\0\0\0\0\0\0").search

# How MessagePack begins an array of six, and a map of few entries, less their number.
_ARRAY_OF_6, _SHORT_MAP = 0x96, 0x80

_Text = Annotated[str, Meta(max_length=STRING_CODEPOINTS_MAX)]
_Int = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
_Float = Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
if TYPE_CHECKING:
    _Plain = Value  # of a dictionary, types must be the same
else:
    _Plain = _Text | _Int | _Float | bool
# The id and the payload of a notification that ends before them.
_UNSAID: Final[tuple[Any, ...]] = (None, b"")


class NotPlainError(ValueError):
    """For `notification_of`. Nobody else gets to see it."""


class Plain(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """As it is read, if it is a usual one. A time that msgspec were told of it would also take from text."""

    attributes: Annotated[dict[str, _Plain], Meta(max_length=NOTIFICATION_ATTRIBUTES_MAX)]
    source: _Text | None
    seq: _Int | None
    time: Any
    id: _Text | None = None
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)] = b""

    def notification(self, packed: bytes | None = None) -> Notification:
        """NotPlainError if it is not a usual one after all."""
        attributes, time = self.attributes, self.time
        if KNOWN_NAMES.issuperset(attributes) and (time is None or type(time) is datetime):
            return Notification.of_checked(attributes, self.id, self.source, time, self.seq, self.payload, packed)
        raise NotPlainError


_decode: Final = Decoder(Plain).decode


def kept(raw: Raw) -> Notification:
    """A plain one that keeps what it was read from, to be sent on as it is; unless that leaves out fields or has a name
    twice, of which another reader may take the first."""
    packed = bytes(raw)
    plain = _decode(packed)
    is_whole = packed[0] == _ARRAY_OF_6 and packed[1] == _SHORT_MAP + len(plain.attributes)
    return plain.notification(packed if is_whole else None)


def notification_of(value: object) -> Notification:
    """Of any decoded object; ValueError or CatchmentError if it is no notification."""
    if not isinstance(value, list):
        raise ValueError(f"a notification: expected a list, found {shown(value)}")
    if not 4 <= len(value) <= 6:
        raise ValueError(f"a notification has 4 to 6 fields, found {len(value)}")
    attributes, source, seq, time, id, payload = (*value, *_UNSAID[len(value) - 4 :])
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes: expected a dict, found {shown(attributes)}")
    return Notification(attributes, source=source, seq=seq, time=time, id=id, payload=payload)
