"""Turns Arrow columns into entries for the kernels: a column for each attribute, or a map that holds many attributes.

A column has the values of an attribute, null where it is absent. Several columns may have the same attribute, each with
the values of one type. A map from names to values, or from names to structs with a field for each type, may hold any
number of attributes. A map takes time for the entries that are there, a table takes time for each of its columns: with
a thousand names the map is faster.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from catchment.errors import BadNotificationError, InputError, shown
from catchment.matching.kernels import parse as kp
from catchment.matching.kernels.bytes import BOOL, FLOAT, INT, STRING, TIME
from catchment.matching.kernels.tables import Entries
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX
from catchment.model.values import EPOCH, Value, checked, checked_name

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
_NAMES_FEW: Final = 512
_SIGN: Final = 1 << 63
_NONE: Final = np.frombuffer(b"", np.uint8)
_NO_INTS: Final = np.frombuffer(b"", I64)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Notifications in the form that any Matcher takes. They are made once, can be sliced without copying, and may be
    matched by many matchers one after another. Two threads may not match them at once: the kernels work in arrays of
    this object.

    `bad` marks rows that are no notification. Such a row matches like one without attributes; ignore its result.
    """

    entries: Entries
    bad: Array

    @classmethod
    def of_columns(cls, columns: Sequence[tuple[str, pa.Array]], rows: int) -> Encoded:
        """From columns, each with the name of its attribute; the name of a map is ignored."""
        return cls(*_entries(columns, rows))

    def __len__(self) -> int:
        return len(self.bad)

    def slice(self, start: int, count: int) -> Encoded:
        end = min(start + count, len(self))
        return Encoded(self.entries._replace(starts=self.entries.starts[start : end + 1]), self.bad[start:end])

    def row(self, i: int) -> dict[str, Value]:
        """The attributes of a row, for what the kernels do not evaluate."""
        entries = self.entries
        places = range(int(entries.starts[i]), int(entries.starts[i + 1]))
        return {_text(entries, *entries.names[entries.name_of[at]]): _value(entries, at) for at in places}


def encoded_arrow(batch: pa.RecordBatch) -> Encoded:
    """The rows of a batch; BadNotificationError names the first that is no notification."""
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise BadNotificationError("two columns have the same name: a notification holds each name once")
    columns = [(checked_name(name), batch.column(name)) for name in names]
    encoded = Encoded.of_columns(columns, batch.num_rows)
    if encoded.bad.any():
        raise _refusal(columns, int(np.argmax(encoded.bad)))
    return encoded


# --- from entries back to values ----------------------------------------------------------------


def _text(entries: Entries, start: int, length: int) -> str:
    return entries.buffer[start : start + length].tobytes().decode()


def _value(entries: Entries, at: int) -> Value:
    tag, key = int(entries.type_of[at]), int(entries.key_of[at])
    if tag == STRING:
        return _text(entries, int(entries.place_of[at]), key)
    if tag == FLOAT:
        (value,) = struct.unpack("<d", struct.pack("<Q", key if key >= 0 else _SIGN | -key))
        return float(value)
    if tag == TIME:
        return EPOCH + timedelta(microseconds=key)
    return bool(key) if tag == BOOL else key


def _refusal(columns: Sequence[tuple[str, pa.Array]], row: int) -> BadNotificationError:
    """An error that says what is wrong with a row that a kernel marked as bad."""
    seen: set[str] = set()
    for column, array in columns:
        for name, value in _pairs(column, array, row):
            try:
                if checked_name(name) in seen:
                    raise InputError("it appears twice")
                if _is_map(array.type) and name.startswith("$"):
                    raise InputError("names with $ belong to the envelope, which has columns of its own")
                checked(value)
            except InputError as problem:
                return BadNotificationError(f"row {row}, attribute {shown(name)}: {problem}")
            seen.add(name)
    return BadNotificationError(f"row {row}: more than {NOTIFICATION_ATTRIBUTES_MAX} attributes")


def _pairs(column: str, array: pa.Array, row: int) -> list[tuple[str, Any]]:
    """The attributes that a column, or a map, gives a row, as names and values."""
    try:
        value = array[row].as_py()
    except (ValueError, OverflowError) as problem:
        return [(column, _Unreadable(problem))]
    pairs = [(column, value)] if not _is_map(array.type) else value or []
    fields = [
        (name, field) for name, item in pairs for field in (item.values() if isinstance(item, Mapping) else (item,))
    ]
    return [(name, field) for name, field in fields if field is not None]


class _Unreadable:
    """Stands for a value that Python cannot represent, such as a time after the year 9999."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def __repr__(self) -> str:
        return f"a value out of range ({self._problem})"


# --- entries ------------------------------------------------------------------------------------


def _entries(columns: Sequence[tuple[str, pa.Array]], rows: int) -> tuple[Entries, Array]:
    singles = [column for name, array in columns if not _is_map(array.type) and (column := _Column.of(name, array))]
    maps = [_Map.of(name, array) for name, array in columns if _is_map(array.type)]
    buffer, own = _laid_out(singles, maps)
    names, count = _numbered(buffer, own, maps)
    bad, starts = np.zeros(rows, np.uint8), np.zeros(rows + 1, I64)
    # First how many entries each row has, which says where they begin; then the entries.
    for column in singles:
        kp.count_valid(column.validity, column.offset, starts[1:])
    for map_column in maps:
        kp.count_in_rows(map_column.ends, map_column.counts, starts[1:])
    np.cumsum(starts, out=starts)
    total = int(starts[-1])
    name_of, type_of = np.empty(total, I32), np.empty(total, np.int8)
    key_of, place_of, cursor = np.empty(total, I64), np.zeros(total, I64), starts[:-1].copy()
    target = (name_of, type_of, key_of, place_of)
    for column in singles:
        column.fill(column.number, cursor, bad, *target)
    for map_column in maps:
        map_column.fill(cursor, bad, *target)
    _mark_names(buffer, names[len(own) : count], len(own), starts, name_of, bad)
    bad[np.diff(starts) > NOTIFICATION_ATTRIBUTES_MAX + len(ENVELOPE_TYPES)] = 1
    if maps or len(own) < len(singles):
        kp.mark_twice(starts, name_of, np.full(count, -1, I64), bad)
    if bad.any():
        # All entries of bad rows get a name of no bytes. No attribute has it, so no filter matches them.
        kp.name_bad(starts, bad, name_of, count)
        count += 1
    scratch = np.empty(count, I32), np.empty(len(buffer), np.uint8)
    return Entries(starts, name_of, type_of, key_of, place_of, names[:count], buffer, *scratch), bad.astype(bool)


def _laid_out(singles: Sequence[_Column], maps: Sequence[_Map]) -> tuple[Array, list[tuple[int, int]]]:
    """All text in one buffer, and the places of the names of columns in it, each name once. Sets `base` of each column
    to where its text is, and `number` to the number of its name."""
    pieces: list[bytes] = []
    own: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}
    end = 0
    for column in singles:
        column.number = numbers.setdefault(column.name, len(own))
        if column.number == len(own):
            name = column.name.encode()
            own.append((end, len(name)))
            pieces.append(name)
            end += len(name)
    for column in (*singles, *(column for map_column in maps for column in (map_column.keys, *map_column.fields))):
        column.base = end - column.text_start
        pieces.append(column.text)
        end += len(column.text)
    return np.frombuffer(b"".join(pieces), np.uint8), own


def _numbered(buffer: Array, own: Sequence[tuple[int, int]], maps: Sequence[_Map]) -> tuple[Array, int]:
    """The places of all names, those of columns first, with an empty one behind the last; and how many there are. Gives
    the keys of maps their numbers."""
    if not maps:
        return np.array([*own, (0, 0)], I64).reshape(-1, 2), len(own)
    most = _NAMES_FEW
    while True:
        names, slots = np.zeros((most, 2), I64), np.full(2 * most, -1, I32)
        count = kp.number_own(buffer, np.array(own, I64).reshape(-1, 2), slots, names) if len(own) < most else -1
        for each in maps:
            if count >= 0:
                keys = each.keys
                count = kp.number_keys(buffer, keys.values, keys.offset, keys.base, slots, names, count, each.numbers)
        if count >= 0:
            names[count] = 0
            return names, count
        most *= 8


def _mark_names(buffer: Array, names: Array, first: int, starts: Array, name_of: Array, bad: Array) -> None:
    """Marks rows that have an attribute whose name, the key of a map, is not allowed."""
    refused = [
        number for number, (start, length) in enumerate(names.tolist(), first) if not _is_name(buffer, start, length)
    ]
    if refused:
        places = np.flatnonzero(np.isin(name_of, refused))
        bad[np.searchsorted(starts, places, side="right") - 1] = 1


def _is_name(buffer: Array, start: int, length: int) -> bool:
    try:
        return not checked_name(buffer[start : start + length].tobytes().decode()).startswith("$")
    except (InputError, UnicodeDecodeError):
        return False


# --- columns ------------------------------------------------------------------------------------


class _Column:
    """An Arrow array as buffers that a kernel reads. `tag` is the type of its values, or BITS."""

    def __init__(self, name: str, array: pa.Array, tag: int) -> None:
        self.name, self.tag, self.offset, self.base, self.number = name, tag, array.offset, 0, 0
        self.validity, self.indices = _validity(array), _NO_INTS
        self.values: Array = _NO_INTS
        self.text, self.text_start = b"", 0

    @classmethod
    def of(cls, name: str, array: pa.Array) -> _Column | None:
        """The column of an array; None if it has only nulls."""
        import pyarrow as pa

        arrow_type = array.type
        if pa.types.is_null(arrow_type) or array.null_count == len(array):
            return None
        try:
            if pa.types.is_dictionary(arrow_type) and _is_string(pa, arrow_type.value_type):
                return _dictionary_column(pa, name, array)
            if _is_string(pa, arrow_type):
                return _string_column(pa, name, array)
            if pa.types.is_boolean(arrow_type):
                return _bits_column(name, array)
            if pa.types.is_integer(arrow_type):
                return _keys_column(name, array.cast(pa.int64()), INT)
            if pa.types.is_floating(arrow_type):
                return _keys_column(name, array.cast(pa.float64()), FLOAT)
            if pa.types.is_timestamp(arrow_type):
                return _keys_column(name, array.cast(pa.timestamp("us", arrow_type.tz), safe=False), TIME)
        except pa.ArrowInvalid as problem:
            raise BadNotificationError(f"column {shown(name)}: {problem}") from None
        raise BadNotificationError(
            f"column {shown(name)} of Arrow type {arrow_type}: "
            "use string, int64, double, bool, timestamp, or a map of these"
        )

    def fill(
        self, number: int, cursor: Array, bad: Array, name_of: Array, type_of: Array, key_of: Array, place_of: Array
    ) -> None:
        """Writes the entries of the column, at the cursor of each row."""
        start = (self.validity, self.offset)
        if self.tag == kp.BITS:
            kp.fill_bits(*start, self.values, number, cursor, name_of, type_of, key_of)
        elif self.tag == STRING:
            kp.fill_strings(
                *start, self.indices, self.values, self.base, number, cursor, name_of, type_of, key_of, place_of
            )
        else:
            kp.fill_keys(*start, self.values, self.tag, number, cursor, bad, name_of, type_of, key_of)


def _validity(array: pa.Array) -> Array:
    """The bits that say which elements are not null; empty if none is null."""
    bits = array.buffers()[0]
    return _NONE if bits is None or array.null_count == 0 else np.frombuffer(bits, np.uint8)


def _is_string(pa: Any, arrow_type: Any) -> bool:
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _is_map(arrow_type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_map(arrow_type))


def _keys_column(name: str, array: pa.Array, tag: int) -> _Column:
    column = _Column(name, array, tag)
    column.values = np.frombuffer(array.buffers()[1], I64)
    return column


def _bits_column(name: str, array: pa.Array) -> _Column:
    column = _Column(name, array, kp.BITS)
    column.values = np.frombuffer(array.buffers()[1], np.uint8)
    return column


def _set_text(pa: Any, column: _Column, strings: pa.Array) -> None:
    """Sets the ends of the strings and their bytes. The array may be a slice: only its own bytes are taken."""
    _, ends, text = strings.buffers()
    if ends is None or not len(strings):  # some producers give no buffers to an array without elements
        return
    column.values = np.frombuffer(ends, I32 if pa.types.is_string(strings.type) else I64)
    first, last = int(column.values[strings.offset]), int(column.values[strings.offset + len(strings)])
    column.text_start, column.text = first, b"" if text is None else text.slice(first, last - first).to_pybytes()


def _string_column(pa: Any, name: str, array: pa.Array) -> _Column:
    column = _Column(name, array, STRING)
    _set_text(pa, column, array)
    return column


def _dictionary_column(pa: Any, name: str, array: pa.DictionaryArray) -> _Column:
    words, indices = array.dictionary, array.indices.cast(pa.int64())
    if words.null_count or words.offset:
        return _string_column(pa, name, array.cast(words.type))
    column = _Column(name, indices, STRING)
    column.indices = np.frombuffer(indices.buffers()[1], I64)
    _set_text(pa, column, words)
    return column


# --- maps ---------------------------------------------------------------------------------------


class _Map:
    """A column of maps: the keys of all rows as a column of strings, the values as one column or one for each type."""

    def __init__(self, ends: Array, keys: _Column, fields: list[_Column]) -> None:
        self.ends, self.keys, self.fields = ends, keys, fields
        size = int(ends[-1])
        self.counts, self.numbers = np.zeros(size, I64), np.empty(size, I32)
        for field in fields:
            kp.count_valid(field.validity, field.offset, self.counts)

    @classmethod
    def of(cls, name: str, array: pa.MapArray) -> _Map:
        import pyarrow as pa

        if not _is_string(pa, array.type.key_type):
            raise BadNotificationError(f"column {shown(name)} of Arrow type {array.type}: names are strings")
        if array.null_count and np.diff(_ends(array))[np.asarray(array.is_null())].any():
            # A null may still have items in the buffers; `take` leaves those out.
            array = array.take(pa.array(np.arange(len(array))))
        ends = _ends(array)
        first, size = int(ends[0]) if len(ends) else 0, int(ends[-1] - ends[0]) if len(ends) else 0
        keys, items = array.keys.slice(first, size), array.items.slice(first, size)
        values = items.flatten() if pa.types.is_struct(items.type) else [items]
        fields = [field for value in values if (field := _Column.of(name, value))]
        return cls(ends - first, _string_column(pa, name, keys), fields)

    def fill(self, cursor: Array, bad: Array, name_of: Array, *target: Array) -> None:
        """Writes the entries of all maps, at the cursor of each row."""
        places, flat_bad = np.empty(len(self.counts), I64), np.zeros(len(self.counts), np.uint8)
        kp.place_in_rows(self.ends, self.counts, cursor, places)
        after = places.copy()
        for field in self.fields:
            field.fill(0, after, flat_bad, name_of, *target)  # the name 0 is replaced below
        kp.name_entries(places, self.counts, self.numbers, name_of)
        if flat_bad.any():
            bad[np.searchsorted(self.ends, np.flatnonzero(flat_bad), side="right") - 1] = 1


def _ends(array: pa.MapArray) -> Array:
    """Where the items of each row begin, and at last where those of the last row end."""
    if not len(array):
        return np.zeros(1, I64)
    return np.frombuffer(array.buffers()[1], I32)[array.offset : array.offset + len(array) + 1].astype(I64)
