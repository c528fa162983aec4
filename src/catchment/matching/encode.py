"""Notifications as entries for the kernels: from mappings by way of msgpack, from Arrow column by column.

Python touches no single value: msgspec writes all mappings as one msgpack text (about 35 ns an attribute) and a
kernel reads that; of an Arrow batch the kernels read the buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from catchment.errors import BadNotificationError, InputError, shown
from catchment.matching import kernels_parse as kp
from catchment.matching.kernels_bytes import FLOAT, INT, STRING, TIME
from catchment.matching.kernels_tables import Entries
from catchment.model.filter import Matchable
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX, Notification
from catchment.model.values import Value, checked, checked_name

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# An entry takes at least this much msgpack: a name of one byte with its head, and a value.
_ENTRY_BYTES_MIN: Final = 3
_NAMES_FEW: Final = 512
_PLAIN_TYPES: Final = frozenset((str, int, float, bool))  # what msgpack shows as it is
_ENCODER: Final = msgspec.msgpack.Encoder()


def packed(value: object) -> Array:
    """An object as msgpack bytes, read-only as all input of the kernels."""
    return np.frombuffer(_ENCODER.encode(value), np.uint8)


# --- mappings -----------------------------------------------------------------------------------


def entries_of_mappings(notifications: Sequence[Matchable]) -> Entries:
    """Entries of notifications or plain mappings; InputError names the first that is none."""
    rows = [one.matched if isinstance(one, Notification) else one for one in notifications]
    if not all(isinstance(one, Notification) for one in notifications):
        rows = _plain_rows(rows)
    buffer = _packed_rows(rows)
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
    room = len(buffer) if rows else 0
    found = (starts, name_of, type_of, key_of, place_of, names[:count], buffer)
    return Entries(*found, np.empty(count, I32), np.empty(room, np.uint8)), status, failed


def packed_one(notification: Matchable) -> tuple[bytes, Mapping[str, Value]]:
    """One notification as msgpack that `match_one` reads, and as a row of values of our own."""
    if type(notification) is dict and _PLAIN_TYPES.issuperset(map(type, notification.values())):
        row: Mapping[str, Value] = notification
    elif isinstance(notification, Notification):
        row = notification.matched
    else:
        (row,) = _plain_rows([notification])
    try:
        return _ENCODER.encode((row,)), row
    except (UnicodeEncodeError, OverflowError, TypeError):
        check(row, 0)
        raise


def checked_size(row: Mapping[str, Value]) -> int:
    """How many attributes a row has, its envelope among them, if not too many."""
    if len(row) > NOTIFICATION_ATTRIBUTES_MAX + len(ENVELOPE_TYPES):
        raise refusal(row, 0)
    return len(row)


def _plain_rows(rows: list[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    """Mappings that msgpack shows as they are: it would write a date or a UUID as a string."""
    try:
        types = set(map(type, chain.from_iterable(row.values() for row in rows)))
        if types <= _PLAIN_TYPES and all(type(row) is dict for row in rows):
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
    """BadNotificationError if it is no notification."""
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
    try:
        check(row, place)
    except InputError as problem:
        return problem
    return BadNotificationError(f"notification {place}: {shown(row)} has a name or value that is none of the model")


# --- Arrow --------------------------------------------------------------------------------------


def is_arrow(found: object) -> bool:
    """Whether it is an Arrow table or batch; tells without importing pyarrow."""
    return type(found).__module__.startswith("pyarrow") and hasattr(found, "schema")


def arrow_batches(found: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [found] if hasattr(found, "to_struct_array") and not hasattr(found, "to_batches") else found.to_batches()


def entries_of_arrow(batch: pa.RecordBatch) -> Entries:
    """Entries of a batch of nullable columns, one for each attribute; a null is an absent attribute."""
    rows = batch.num_rows
    columns = [column for name in _column_names(batch) if (column := _Column.of(name, batch.column(name)))]
    names, pieces, end = np.empty((len(columns), 2), I64), [], 0
    for number, column in enumerate(columns):
        name = column.name.encode()
        names[number] = end, len(name)
        pieces += [name, column.text]
        column.base = end + len(name) - column.text_start
        end += len(name) + len(column.text)
    starts = np.zeros(rows + 1, I64)
    for column in columns:
        kp.count_valid(column.validity, column.offset, starts[1:])
    np.cumsum(starts, out=starts)
    total = int(starts[-1])
    name_of, type_of = np.empty(total, I32), np.empty(total, np.int8)
    key_of, place_of, cursor = np.empty(total, I64), np.zeros(total, I64), starts[:-1].copy()
    for number, column in enumerate(columns):
        column.fill(number, cursor, name_of, type_of, key_of, place_of)
    buffer = np.frombuffer(b"".join(pieces), np.uint8)
    scratch = np.empty(len(columns), I32), np.empty(len(buffer), np.uint8)
    return Entries(starts, name_of, type_of, key_of, place_of, names, buffer, *scratch)


def _column_names(batch: pa.RecordBatch) -> list[str]:
    found: list[str] = batch.schema.names
    if len(set(found)) < len(found):
        raise BadNotificationError("two columns have one name: a notification holds each name once")
    return [checked_name(name) for name in found]


_NONE: Final = np.frombuffer(b"", np.uint8)
_NO_INTS: Final = np.frombuffer(b"", I64)


class _Column:
    """One Arrow column as buffers that a kernel reads."""

    def __init__(self, name: str, array: pa.Array, what: int) -> None:
        self.name, self.what, self.offset, self.base = name, what, array.offset, 0
        self.validity, self.indices = _validity(array), _NO_INTS
        self.values: Array = _NO_INTS
        self.text, self.text_start = b"", 0

    @classmethod
    def of(cls, name: str, array: pa.Array) -> _Column | None:
        import pyarrow as pa

        kind = array.type
        if pa.types.is_null(kind) or array.null_count == len(array):
            return None
        try:
            if pa.types.is_dictionary(kind) and _is_string(pa, kind.value_type):
                return _dictionary_column(pa, name, array)
            if _is_string(pa, kind):
                return _string_column(pa, name, array)
            if pa.types.is_boolean(kind):
                return _bits_column(name, array)
            if pa.types.is_integer(kind):
                return _keys_column(name, array.cast(pa.int64()), INT)
            if pa.types.is_floating(kind):
                return _keys_column(name, array.cast(pa.float64()), FLOAT)
            if pa.types.is_timestamp(kind):
                return _keys_column(name, array.cast(pa.timestamp("us", kind.tz), safe=False), TIME)
        except pa.ArrowInvalid as problem:
            raise BadNotificationError(f"column {shown(name)}: {problem}") from None
        raise BadNotificationError(
            f"column {shown(name)} of Arrow type {kind}: use string, int64, double, bool or timestamp"
        )

    def fill(self, number: int, cursor: Array, name_of: Array, type_of: Array, key_of: Array, place_of: Array) -> None:
        start = (self.validity, self.offset)
        if self.what == kp.BITS:
            kp.fill_bits(*start, self.values, number, cursor, name_of, type_of, key_of)
        elif self.what == STRING:
            kp.fill_strings(
                *start, self.indices, self.values, self.base, number, cursor, name_of, type_of, key_of, place_of
            )
        else:
            bad = kp.fill_keys(*start, self.values, self.what, number, cursor, name_of, type_of, key_of)
            if bad >= 0:
                raise BadNotificationError(f"column {shown(self.name)}, row {bad}: a float is finite and not NaN")


def _validity(array: pa.Array) -> Array:
    found = array.buffers()[0]
    return _NONE if found is None or array.null_count == 0 else np.frombuffer(found, np.uint8)


def _is_string(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _keys_column(name: str, array: pa.Array, what: int) -> _Column:
    found = _Column(name, array, what)
    found.values = np.frombuffer(array.buffers()[1], I64)
    return found


def _bits_column(name: str, array: pa.Array) -> _Column:
    found = _Column(name, array, kp.BITS)
    found.values = np.frombuffer(array.buffers()[1], np.uint8)
    return found


def _set_text(pa: Any, found: _Column, strings: pa.Array) -> None:
    """The ends of strings as int64, and the bytes they lie in."""
    _, ends, text = strings.buffers()
    width = I32 if pa.types.is_string(strings.type) else I64
    found.values = np.frombuffer(ends, width).astype(I64)
    found.values.flags.writeable = False
    first, last = found.values[strings.offset], found.values[strings.offset + len(strings)]
    found.text_start = int(first)
    found.text = b"" if text is None else text.slice(int(first), int(last - first)).to_pybytes()


def _string_column(pa: Any, name: str, array: pa.Array) -> _Column:
    found = _Column(name, array, STRING)
    _set_text(pa, found, array)
    return found


def _dictionary_column(pa: Any, name: str, array: pa.DictionaryArray) -> _Column:
    words, indices = array.dictionary, array.indices.cast(pa.int64())
    if words.null_count or words.offset:
        return _string_column(pa, name, array.cast(words.type))
    found = _Column(name, indices, STRING)
    found.indices = np.frombuffer(indices.buffers()[1], I64)
    _set_text(pa, found, words)
    return found
