"""Turns mappings into entries for the kernels, by way of msgpack. `columns.py` does the same for Arrow.

Python code handles no single value: msgspec writes all mappings as one msgpack array (about 35 ns for an attribute),
and a kernel reads that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from catchment.errors import BadNotificationError, InputError, shown
from catchment.matching.kernels import parse as kp
from catchment.matching.kernels.tables import Entries
from catchment.model.conjunction import Matchable
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX, Notification
from catchment.model.values import Value, checked, checked_name

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# An entry takes at least so many bytes of msgpack: a name of one byte with its head, and a value.
_ENTRY_BYTES_MIN: Final = 3
_NAMES_FEW: Final = 512
_MSGPACK_TYPES: Final = frozenset((str, int, float, bool))  # msgpack writes these as what they are
_NOTIFICATIONS: Final = frozenset((Notification,))
_ENCODER: Final = msgspec.msgpack.Encoder()
# How a msgpack array begins: that of one object, and that of any number.
_ARRAY_OF_1, _ARRAY_32, _HEAD = b"\x91", 0xDD, Layout(">BI")


def packed(value: object) -> Array:
    """An object as msgpack bytes. The array is read-only, as all input of the kernels is."""
    return np.frombuffer(_ENCODER.encode(value), np.uint8)


# --- mappings -----------------------------------------------------------------------------------


def entries_of_mappings(notifications: Sequence[Matchable], with_envelope: bool = True) -> Entries:
    """The entries of notifications or mappings; InputError names the first that is no notification. If the envelope is
    not needed, the msgpack is the content that each notification keeps."""
    rows: Sequence[Mapping[str, Value]] = notifications
    if not _NOTIFICATIONS.issuperset(map(type, notifications)):
        rows = _packable([row.matched if isinstance(row, Notification) else row for row in notifications])
        buffer = _packed_rows(rows)
    elif with_envelope:
        buffer = _packed_rows([row.matched for row in notifications])  # type: ignore[union-attr]
    else:
        contents = [row.content for row in notifications]  # type: ignore[union-attr]
        buffer = np.frombuffer(_HEAD.pack(_ARRAY_32, len(contents)) + b"".join(contents), np.uint8)
    names_most = _NAMES_FEW
    while True:
        entries, status, failed = _parsed(buffer, len(rows), names_most)
        if status == kp.PARSED:
            return entries
        if status != kp.MANY_NAMES:
            raise refusal(rows[failed], failed)
        names_most *= 8


def _parsed(buffer: Array, rows: int, names_most: int) -> tuple[Entries, int, int]:
    most = len(buffer) // _ENTRY_BYTES_MIN + 1
    starts, name_of, type_of = np.empty(rows + 1, I64), np.empty(most, I32), np.empty(most, np.int8)
    key_of, place_of = np.empty(most, I64), np.empty(most, I64)
    names, slots = np.empty((names_most, 2), I64), np.empty(2 * names_most, I32)
    status, count, failed = kp.parse_rows(buffer, slots, starts, name_of, type_of, key_of, place_of, names)
    text_size = len(buffer) if rows else 0
    parsed = (starts, name_of, type_of, key_of, place_of, names[:count], buffer)
    return Entries(*parsed, np.empty(count, I32), np.empty(text_size, np.uint8)), status, failed


def packed_single(notification: Matchable, with_envelope: bool) -> tuple[bytes, Mapping[str, Value]]:
    """A notification as the msgpack that `match_single` reads, and as a row: a mapping of names to checked values."""
    if type(notification) is Notification and not with_envelope:
        return _ARRAY_OF_1 + notification.content, notification
    if type(notification) is dict and _MSGPACK_TYPES.issuperset(map(type, notification.values())):
        row: Mapping[str, Value] = notification
    elif isinstance(notification, Notification):
        row = notification.matched
    else:
        (row,) = _packable([notification])
    try:
        return _ENCODER.encode((row,)), row
    except (UnicodeEncodeError, OverflowError, TypeError):
        check(row, 0)
        raise


def checked_size(row: Mapping[str, Value]) -> int:
    """How many attributes a row has, envelope included; BadNotificationError if these are too many."""
    if len(row) > NOTIFICATION_ATTRIBUTES_MAX + len(ENVELOPE_TYPES):
        raise refusal(row, 0)
    return len(row)


def _packable(rows: list[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    """The rows with all values checked, unless their types are simple: msgspec would write a date or a UUID as a string
    without complaint."""
    try:
        types = set(map(type, chain.from_iterable(row.values() for row in rows)))
        if types <= _MSGPACK_TYPES and all(type(row) is dict for row in rows):
            return rows
        return [{name: checked(value) for name, value in row.items()} for row in rows]
    except (AttributeError, InputError):
        for i, row in enumerate(rows):
            check(row, i)
        raise


def _packed_rows(rows: Sequence[Mapping[str, Value]]) -> Array:
    try:
        return packed(rows)
    except (UnicodeEncodeError, OverflowError, TypeError):
        for i, row in enumerate(rows):
            check(row, i)
        raise


def check(row: object, place: int) -> None:
    """Raises BadNotificationError if a row is no notification; `place` is its number in the batch."""
    if not isinstance(row, Mapping):
        raise BadNotificationError(f"notification {place}: {shown(row)} is no mapping of names to values")
    if len(row) > NOTIFICATION_ATTRIBUTES_MAX:
        raise BadNotificationError(f"notification {place}: more than {NOTIFICATION_ATTRIBUTES_MAX} attributes")
    for name, value in row.items():
        try:
            checked_name(name)
            checked(value)
        except InputError as problem:
            raise BadNotificationError(f"notification {place}, attribute {shown(name)}: {problem}") from None


def refusal(row: object, place: int) -> InputError:
    """The error for a row that a kernel refused."""
    try:
        check(row, place)
    except InputError as problem:
        return problem
    return BadNotificationError(f"notification {place}: {shown(row)} has a name or value that is not allowed")


# --- Arrow --------------------------------------------------------------------------------------


def is_arrow(given: object) -> bool:
    """Whether an object is an Arrow table or batch. It does not import pyarrow."""
    return type(given).__module__.startswith("pyarrow") and hasattr(given, "schema")


def arrow_batches(given: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [given] if hasattr(given, "to_struct_array") and not hasattr(given, "to_batches") else given.to_batches()
