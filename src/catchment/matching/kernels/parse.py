"""Kernels that turn notifications, in msgpack or in Arrow columns, into entries: (name, type, key or bytes).

A batch is flat: the entries of notification i are those from `starts[i]` to `starts[i + 1]`. Names are numbered within
the batch. A string is a place in the bytes of the batch; any other value is its key.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import ARRAY, BAD, BOOL, FLOAT, MAP, NIL, STRING, TIME, name_number, read_object
from catchment.matching.kernels.jit import Bytes, Ints, kernel

PARSED, BAD_VALUE, BAD_SHAPE, MANY_NAMES = 0, 1, 2, 3
BITS = -2  # a column of booleans, packed
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_INFINITE = 0x7FF0000000000000
# Microseconds of the first and the last instant of the years 1 to 9999.
_TIME_MIN, _TIME_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999


@kernel
def parse_rows(
    buffer: Bytes, slots: Ints, starts: Ints, name_of: Ints, type_of: Ints, key_of: Ints, place_of: Ints, names: Ints
) -> tuple[int, int, int]:
    """Writes the entries of a msgpack array of maps. Returns (status, number of names, notification that failed)."""
    tag, total, _, _, at = read_object(buffer, 0)
    if tag != ARRAY:
        return BAD_SHAPE, 0, 0
    for slot in range(len(slots)):
        slots[slot] = -1
    names_count, entry = 0, 0
    for i in range(total):
        starts[i] = entry
        tag, fields, _, _, at = read_object(buffer, at)
        if tag != MAP:
            return BAD_SHAPE, names_count, i
        for _field in range(fields):
            tag, _, start, length, at = read_object(buffer, at)
            if tag != STRING or length == 0:
                return BAD_SHAPE, names_count, i
            number = name_number(buffer, start, length, slots, names, names_count)
            if number == names_count:
                names_count += 1
                if names_count == len(names):
                    return MANY_NAMES, names_count, i
            tag, key, start, length, at = read_object(buffer, at)
            if tag == BAD or tag >= NIL:
                return BAD_VALUE, names_count, i
            name_of[entry] = number
            type_of[entry] = tag
            key_of[entry] = key if tag != STRING else length
            place_of[entry] = start
            entry += 1
    starts[total] = entry
    return PARSED, names_count, 0


# --- Arrow columns ------------------------------------------------------------------------------


@kernel
def _is_valid(validity: Bytes, i: int) -> bool:
    return len(validity) == 0 or (validity[i >> 3] >> (i & 7)) & 1 == 1


@kernel
def count_valid(validity: Bytes, offset: int, counts: Ints) -> None:
    """Adds 1 to the count of each row that has a value in this column. Eight rows whose validity bits are all 0 are
    skipped at once, here and below."""
    i, rows = 0, len(counts)
    while i < rows:
        at = offset + i
        if len(validity) > 0 and at & 7 == 0 and validity[at >> 3] == 0:
            i += 8
            continue
        if _is_valid(validity, at):
            counts[i] += 1
        i += 1


@kernel
def fill_keys(
    validity: Bytes,
    offset: int,
    values: Ints,
    tag: int,
    name: int,
    cursor: Ints,
    bad: Bytes,
    name_of: Ints,
    type_of: Ints,
    key_of: Ints,
) -> None:
    """Writes the entries of a column of 64-bit values (ints, times, or the bits of doubles). Marks rows whose value is
    no value of the model: NaN, an infinity, a time out of range."""
    i, rows = 0, len(cursor)
    while i < rows:
        at = offset + i
        if len(validity) > 0 and at & 7 == 0 and validity[at >> 3] == 0:
            i += 8
            continue
        if _is_valid(validity, at):
            key = values[at]
            if tag == FLOAT:
                magnitude = key & _MAGNITUDE
                if magnitude >= _INFINITE:
                    bad[i] = 1
                key = -magnitude if key < 0 else magnitude
            elif tag == TIME and not _TIME_MIN <= key <= _TIME_MAX:
                bad[i] = 1
            entry = cursor[i]
            cursor[i] = entry + 1
            name_of[entry] = name
            type_of[entry] = tag
            key_of[entry] = key
        i += 1


@kernel
def fill_bits(
    validity: Bytes, offset: int, values: Bytes, name: int, cursor: Ints, name_of: Ints, type_of: Ints, key_of: Ints
) -> None:
    """Writes the entries of a column of booleans, which Arrow packs as bits."""
    for i in range(len(cursor)):
        at = offset + i
        if _is_valid(validity, at):
            entry = cursor[i]
            cursor[i] = entry + 1
            name_of[entry] = name
            type_of[entry] = BOOL
            key_of[entry] = (values[at >> 3] >> (at & 7)) & 1


@kernel
def fill_strings(
    validity: Bytes,
    offset: int,
    indices: Ints,
    ends: Ints,
    base: int,
    name: int,
    cursor: Ints,
    name_of: Ints,
    type_of: Ints,
    key_of: Ints,
    place_of: Ints,
) -> None:
    """Writes the entries of a string column. `indices` are those of a dictionary column, else empty; `base` is where
    the bytes of the column begin in the buffer."""
    i, rows = 0, len(cursor)
    while i < rows:
        at = offset + i
        if len(validity) > 0 and at & 7 == 0 and validity[at >> 3] == 0:
            i += 8
            continue
        if _is_valid(validity, at):
            value = np.int64(indices[at]) if len(indices) > 0 else at
            entry = cursor[i]
            cursor[i] = entry + 1
            name_of[entry] = name
            type_of[entry] = STRING
            key_of[entry] = np.int64(ends[value + 1]) - np.int64(ends[value])
            place_of[entry] = base + np.int64(ends[value])
        i += 1


# --- Arrow maps ---------------------------------------------------------------------------------
# Arrow stores the items of all maps one after another, those of row i from ends[i] to ends[i + 1]. An item gives as
# many entries as it has values: 0 or 1, unless its row is bad.


@kernel
def count_in_rows(ends: Ints, counts: Ints, totals: Ints) -> None:
    """Adds to the total of each row the entries that its items give."""
    for i in range(len(totals)):
        for j in range(ends[i], ends[i + 1]):
            totals[i] += counts[j]


@kernel
def place_in_rows(ends: Ints, counts: Ints, cursor: Ints, places: Ints) -> None:
    """Writes where the entries of each item begin, and moves the cursor of its row behind them."""
    for i in range(len(cursor)):
        for j in range(ends[i], ends[i + 1]):
            places[j] = cursor[i]
            cursor[i] += counts[j]


@kernel
def name_entries(places: Ints, counts: Ints, numbers: Ints, name_of: Ints) -> None:
    """Gives the entries of each item the name of its key."""
    for j in range(len(places)):
        for entry in range(places[j], places[j] + counts[j]):
            name_of[entry] = numbers[j]


@kernel
def number_own(buffer: Bytes, own: Ints, slots: Ints, names: Ints) -> int:
    """Enters names that are known to differ, given by (start, length); returns how many."""
    for number in range(len(own)):
        name_number(buffer, own[number, 0], own[number, 1], slots, names, number)
    return len(own)


@kernel
def number_keys(
    buffer: Bytes, ends: Ints, offset: int, base: int, slots: Ints, names: Ints, count: int, numbers: Ints
) -> int:
    """Writes the number of each key's name. Returns how many names there are now, or -1 if `names` is full."""
    for j in range(len(numbers)):
        start, end = np.int64(ends[offset + j]), np.int64(ends[offset + j + 1])
        number = name_number(buffer, base + start, end - start, slots, names, count)
        if number == count:
            count += 1
            if count == len(names):
                return -1
        numbers[j] = number
    return count


# --- bad rows: rows that are no notification ----------------------------------------------------


@kernel
def mark_twice(starts: Ints, name_of: Ints, seen: Ints, bad: Bytes) -> None:
    """Marks rows that have a name twice. `seen` holds, by name, the last row that had it."""
    for i in range(len(bad)):
        for entry in range(starts[i], starts[i + 1]):
            if seen[name_of[entry]] == i:
                bad[i] = 1
            seen[name_of[entry]] = i


@kernel
def name_bad(starts: Ints, bad: Bytes, name_of: Ints, name: int) -> None:
    """Gives all entries of bad rows the same name."""
    for i in range(len(bad)):
        if bad[i] == 1:
            for entry in range(starts[i], starts[i + 1]):
                name_of[entry] = name
