"""Kernels that turn notifications into entries: (name, type, key or bytes), whatever form they came in.

A batch is flat: entries of notification i are `starts[i]` to `starts[i + 1]`; a name is numbered within the
batch. Strings are places in the batch's bytes; other values are keys.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

import numpy as np

from catchment.matching.kernels_bytes import (
    ARRAY,
    BAD,
    BOOL,
    FLOAT,
    MAP,
    NIL,
    STRING,
    Bytes,
    Ints,
    kernel,
    name_number,
    read_object,
)

PARSED, BAD_VALUE, BAD_SHAPE, MANY_NAMES = 0, 1, 2, 3
BITS = -2  # a column of booleans, packed
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_INFINITE = 0x7FF0000000000000


@kernel
def parse_rows(
    buffer: Bytes, slots: Ints, starts: Ints, name_of: Ints, type_of: Ints, key_of: Ints, place_of: Ints, names: Ints
) -> tuple[int, int, int]:
    """Entries of a msgpack array of maps; (status, number of names, failing notification)."""
    what, total, _, _, at = read_object(buffer, 0)
    if what != ARRAY:
        return BAD_SHAPE, 0, 0
    for slot in range(len(slots)):
        slots[slot] = -1
    names_count, entry = 0, 0
    for i in range(total):
        starts[i] = entry
        what, fields, _, _, at = read_object(buffer, at)
        if what != MAP:
            return BAD_SHAPE, names_count, i
        for _field in range(fields):
            what, _, start, length, at = read_object(buffer, at)
            if what != STRING or length == 0:
                return BAD_SHAPE, names_count, i
            number = name_number(buffer, start, length, slots, names, names_count)
            if number == names_count:
                names_count += 1
                if names_count == len(names):
                    return MANY_NAMES, names_count, i
            what, key, start, length, at = read_object(buffer, at)
            if what == BAD or what >= NIL:
                return BAD_VALUE, names_count, i
            name_of[entry] = number
            type_of[entry] = what
            key_of[entry] = key if what != STRING else length
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
    """Adds 1 to the count of each row that has a value in this column."""
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
    what: int,
    name: int,
    cursor: Ints,
    name_of: Ints,
    type_of: Ints,
    key_of: Ints,
) -> int:
    """Entries of a column of 64-bit values (ints, times, or the bits of doubles); the row that is bad, or -1."""
    i, rows = 0, len(cursor)
    while i < rows:
        at = offset + i
        if len(validity) > 0 and at & 7 == 0 and validity[at >> 3] == 0:
            i += 8
            continue
        if _is_valid(validity, at):
            key = values[at]
            if what == FLOAT:
                magnitude = key & _MAGNITUDE
                if magnitude >= _INFINITE:
                    return i
                key = -magnitude if key < 0 else magnitude
            entry = cursor[i]
            cursor[i] = entry + 1
            name_of[entry] = name
            type_of[entry] = what
            key_of[entry] = key
        i += 1
    return -1


@kernel
def fill_bits(
    validity: Bytes, offset: int, values: Bytes, name: int, cursor: Ints, name_of: Ints, type_of: Ints, key_of: Ints
) -> None:
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
    """Entries of a string column; `indices` are those of a dictionary column, else empty."""
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
