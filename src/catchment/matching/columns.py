"""Arrow columns as entries for the kernels: of each attribute a column, or of many a map.

A column holds one attribute, null where it is absent; several may hold one attribute, each the values of one type. A
map from names to values, or to structs with a field for each type, holds any number: what costs is the entries there
are, where a table with a column for each of a thousand names costs each of them.
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
    """Notifications as any Matcher takes them: made once, cut without copying, matched by many one after another
    (not by two threads at once: kernels have their room in it).

    `bad` marks rows that are no notification. They match as one without attributes would, which means nothing.
    """

    entries: Entries
    bad: Array

    @classmethod
    def of_columns(cls, columns: Sequence[tuple[str, pa.Array]], rows: int) -> Encoded:
        """Rows of columns, each with the name of its attribute; the name of a map means nothing."""
        return cls(*_entries(columns, rows))

    def __len__(self) -> int:
        return len(self.bad)

    def slice(self, start: int, count: int) -> Encoded:
        end = min(start + count, len(self))
        return Encoded(self.entries._replace(starts=self.entries.starts[start : end + 1]), self.bad[start:end])

    def row(self, i: int) -> dict[str, Value]:
        """One notification, for who evaluates more than the kernels do."""
        found = self.entries
        places = range(int(found.starts[i]), int(found.starts[i + 1]))
        return {_text(found, *found.names[found.name_of[at]]): _value(found, at) for at in places}


def encoded_arrow(batch: pa.RecordBatch) -> Encoded:
    """The rows of a batch; BadNotificationError names the first that is none."""
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise BadNotificationError("two columns have one name: a notification holds each name once")
    columns = [(checked_name(name), batch.column(name)) for name in names]
    found = Encoded.of_columns(columns, batch.num_rows)
    if found.bad.any():
        raise _refusal(columns, int(np.argmax(found.bad)))
    return found


# --- back to values, for few of them ------------------------------------------------------------


def _text(found: Entries, start: int, length: int) -> str:
    return found.buffer[start : start + length].tobytes().decode()


def _value(found: Entries, at: int) -> Value:
    kind, key = int(found.type_of[at]), int(found.key_of[at])
    if kind == STRING:
        return _text(found, int(found.place_of[at]), key)
    if kind == FLOAT:
        (value,) = struct.unpack("<d", struct.pack("<Q", key if key >= 0 else _SIGN | -key))
        return float(value)
    if kind == TIME:
        return EPOCH + timedelta(microseconds=key)
    return bool(key) if kind == BOOL else key


def _refusal(columns: Sequence[tuple[str, pa.Array]], row: int) -> BadNotificationError:
    """What is wrong with a row that a kernel marked."""
    seen: set[str] = set()
    for column, array in columns:
        for name, value in _pairs(column, array, row):
            try:
                if checked_name(name) in seen:
                    raise InputError("it stands twice")
                if _is_map(array.type) and name.startswith("$"):
                    raise InputError("what begins with $ is the envelope, which has columns of its own")
                checked(value)
            except InputError as problem:
                return BadNotificationError(f"row {row}, attribute {shown(name)}: {problem}")
            seen.add(name)
    return BadNotificationError(f"row {row}: more than {NOTIFICATION_ATTRIBUTES_MAX} attributes")


def _pairs(column: str, array: pa.Array, row: int) -> list[tuple[str, Any]]:
    try:
        value = array[row].as_py()
    except (ValueError, OverflowError) as problem:
        return [(column, _Unreadable(problem))]
    pairs = [(column, value)] if not _is_map(array.type) else value or []
    fields = [(name, found) for name, one in pairs for found in (one.values() if isinstance(one, Mapping) else (one,))]
    return [(name, found) for name, found in fields if found is not None]


class _Unreadable:
    """Stands for a value that Python cannot hold, a time past its years."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def __repr__(self) -> str:
        return f"a value out of range ({self._problem})"


# --- entries ------------------------------------------------------------------------------------


def _entries(columns: Sequence[tuple[str, pa.Array]], rows: int) -> tuple[Entries, Array]:
    plain = [found for name, array in columns if not _is_map(array.type) and (found := _Column.of(name, array))]
    maps = [_Map.of(name, array) for name, array in columns if _is_map(array.type)]
    buffer, own = _laid_out(plain, maps)
    names, count = _numbered(buffer, own, maps)
    bad, starts = np.zeros(rows, np.uint8), np.zeros(rows + 1, I64)
    for column in plain:
        kp.count_valid(column.validity, column.offset, starts[1:])
    for one in maps:
        kp.count_in_rows(one.ends, one.counts, starts[1:])
    np.cumsum(starts, out=starts)
    total = int(starts[-1])
    name_of, type_of = np.empty(total, I32), np.empty(total, np.int8)
    key_of, place_of, cursor = np.empty(total, I64), np.zeros(total, I64), starts[:-1].copy()
    target = (name_of, type_of, key_of, place_of)
    for column in plain:
        column.fill(column.number, cursor, bad, *target)
    for one in maps:
        one.fill(cursor, bad, *target)
    _mark_names(buffer, names[len(own) : count], len(own), starts, name_of, bad)
    bad[np.diff(starts) > NOTIFICATION_ATTRIBUTES_MAX + len(ENVELOPE_TYPES)] = 1
    if maps or len(own) < len(plain):
        kp.mark_twice(starts, name_of, np.full(count, -1, I64), bad)
    if bad.any():
        kp.name_bad(starts, bad, name_of, count)
        count += 1  # a name of no bytes, which no attribute has
    scratch = np.empty(count, I32), np.empty(len(buffer), np.uint8)
    return Entries(starts, name_of, type_of, key_of, place_of, names[:count], buffer, *scratch), bad.astype(bool)


def _laid_out(plain: Sequence[_Column], maps: Sequence[_Map]) -> tuple[Array, list[tuple[int, int]]]:
    """All text in one buffer, which the columns are told their place in; and the names of columns, each once."""
    pieces: list[bytes] = []
    own: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}
    end = 0
    for column in plain:
        column.number = numbers.setdefault(column.name, len(own))
        if column.number == len(own):
            name = column.name.encode()
            own.append((end, len(name)))
            pieces.append(name)
            end += len(name)
    for column in (*plain, *(column for one in maps for column in (one.keys, *one.fields))):
        column.base = end - column.text_start
        pieces.append(column.text)
        end += len(column.text)
    return np.frombuffer(b"".join(pieces), np.uint8), own


def _numbered(buffer: Array, own: Sequence[tuple[int, int]], maps: Sequence[_Map]) -> tuple[Array, int]:
    """Places of all names, those of columns first, one empty after the last; the keys of maps get their numbers."""
    if not maps:
        return np.array([*own, (0, 0)], I64).reshape(-1, 2), len(own)
    most = _NAMES_FEW
    while True:
        names, slots = np.zeros((most, 2), I64), np.full(2 * most, -1, I32)
        count = kp.number_own(buffer, np.array(own, I64).reshape(-1, 2), slots, names) if len(own) < most else -1
        for one in maps:
            if count >= 0:
                keys = one.keys
                count = kp.number_keys(buffer, keys.values, keys.offset, keys.base, slots, names, count, one.numbers)
        if count >= 0:
            names[count] = 0
            return names, count
        most *= 8


def _mark_names(buffer: Array, names: Array, first: int, starts: Array, name_of: Array, bad: Array) -> None:
    """Marks rows that have an attribute whose name, the key of a map, is none."""
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
    """One Arrow array as buffers that a kernel reads."""

    def __init__(self, name: str, array: pa.Array, what: int) -> None:
        self.name, self.what, self.offset, self.base, self.number = name, what, array.offset, 0, 0
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
            f"column {shown(name)} of Arrow type {kind}: use string, int64, double, bool, timestamp, or a map of these"
        )

    def fill(
        self, number: int, cursor: Array, bad: Array, name_of: Array, type_of: Array, key_of: Array, place_of: Array
    ) -> None:
        start = (self.validity, self.offset)
        if self.what == kp.BITS:
            kp.fill_bits(*start, self.values, number, cursor, name_of, type_of, key_of)
        elif self.what == STRING:
            kp.fill_strings(
                *start, self.indices, self.values, self.base, number, cursor, name_of, type_of, key_of, place_of
            )
        else:
            kp.fill_keys(*start, self.values, self.what, number, cursor, bad, name_of, type_of, key_of)


def _validity(array: pa.Array) -> Array:
    found = array.buffers()[0]
    return _NONE if found is None or array.null_count == 0 else np.frombuffer(found, np.uint8)


def _is_string(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_map(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_map(kind))


def _keys_column(name: str, array: pa.Array, what: int) -> _Column:
    found = _Column(name, array, what)
    found.values = np.frombuffer(array.buffers()[1], I64)
    return found


def _bits_column(name: str, array: pa.Array) -> _Column:
    found = _Column(name, array, kp.BITS)
    found.values = np.frombuffer(array.buffers()[1], np.uint8)
    return found


def _set_text(pa: Any, found: _Column, strings: pa.Array) -> None:
    """The ends of strings, and the bytes they lie in: of these strings alone, whatever they were cut from."""
    _, ends, text = strings.buffers()
    if ends is None or not len(strings):  # some producers give no buffers to an array without elements
        return
    found.values = np.frombuffer(ends, I32 if pa.types.is_string(strings.type) else I64)
    first, last = int(found.values[strings.offset]), int(found.values[strings.offset + len(strings)])
    found.text_start, found.text = first, b"" if text is None else text.slice(first, last - first).to_pybytes()


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


# --- maps ---------------------------------------------------------------------------------------


class _Map:
    """A map of each row: its keys as a column of strings, its values as one column or one of each type."""

    def __init__(self, ends: Array, keys: _Column, fields: list[_Column]) -> None:
        self.ends, self.keys, self.fields = ends, keys, fields
        size = int(ends[-1])
        self.counts, self.numbers = np.zeros(size, I64), np.empty(size, I32)
        for one in fields:
            kp.count_valid(one.validity, one.offset, self.counts)

    @classmethod
    def of(cls, name: str, array: pa.MapArray) -> _Map:
        import pyarrow as pa

        if not _is_string(pa, array.type.key_type):
            raise BadNotificationError(f"column {shown(name)} of Arrow type {array.type}: names are strings")
        if array.null_count and np.diff(_ends(array))[np.asarray(array.is_null())].any():
            array = array.take(pa.array(np.arange(len(array))))  # nulls with entries behind them, which nobody reads
        ends = _ends(array)
        first, size = int(ends[0]) if len(ends) else 0, int(ends[-1] - ends[0]) if len(ends) else 0
        keys, items = array.keys.slice(first, size), array.items.slice(first, size)
        values = items.flatten() if pa.types.is_struct(items.type) else [items]
        fields = [found for one in values if (found := _Column.of(name, one))]
        return cls(ends - first, _string_column(pa, name, keys), fields)

    def fill(self, cursor: Array, bad: Array, name_of: Array, *target: Array) -> None:
        places, flat_bad = np.empty(len(self.counts), I64), np.zeros(len(self.counts), np.uint8)
        kp.place_in_rows(self.ends, self.counts, cursor, places)
        after = places.copy()
        for one in self.fields:
            one.fill(0, after, flat_bad, name_of, *target)
        kp.name_entries(places, self.counts, self.numbers, name_of)
        if flat_bad.any():
            bad[np.searchsorted(self.ends, np.flatnonzero(flat_bad), side="right") - 1] = 1


def _ends(array: pa.MapArray) -> Array:
    """Where the entries of each row begin, and the last ones end."""
    if not len(array):
        return np.zeros(1, I64)
    return np.frombuffer(array.buffers()[1], I32)[array.offset : array.offset + len(array) + 1].astype(I64)
