"""Kernels that add folded values to a batch of notifications, for constraints that ignore case.

Folding maps one character to one (`model/folding.py`). `codes` are the characters that fold to another one, sorted, and
`targets` what they fold to; letters of ASCII need no search.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import STRING, equal_bytes
from catchment.matching.kernels.jit import Bytes, Ints, kernel


@kernel
def find_names(names: Ints, buffer: Bytes, wanted: Ints, wanted_blob: Bytes, fold_of: Ints) -> int:
    """For each name of a batch its place among the wanted names, or -1. Returns how many names are wanted."""
    count = 0
    for name in range(len(names)):
        fold_of[name] = -1
        for i in range(len(wanted)):
            is_as_long = wanted[i, 1] == names[name, 1]
            if is_as_long and equal_bytes(buffer, names[name, 0], wanted_blob, wanted[i, 0], wanted[i, 1]):
                fold_of[name] = i
                count += 1
    return count


@kernel
def count_folded(
    name_of: Ints, type_of: Ints, key_of: Ints, first: int, last: int, fold_of: Ints, totals: Ints
) -> None:
    """How many values are to be folded, and how many bytes they have."""
    for i in range(first, last):
        if type_of[i] == STRING and fold_of[name_of[i]] >= 0:
            totals[0] += 1
            totals[1] += key_of[i]


@kernel
def _fold_code(code: int, codes: Ints, targets: Ints) -> int:
    low, high = 0, len(codes)
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return targets[low] if low < len(codes) and codes[low] == code else code


@kernel
def fold_text(source: Bytes, start: int, end: int, codes: Ints, targets: Ints, target: Bytes, at: int) -> int:
    """Writes the folded characters of a UTF-8 text; returns the position behind them."""
    while start < end:
        lead = np.int64(source[start])
        if lead < 0x80:
            target[at] = lead + 32 if lead >= 65 and lead <= 90 else lead
            start, at = start + 1, at + 1
            continue
        size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        code = lead & (0x7F >> size)
        for i in range(start + 1, start + size):
            code = (code << 6) | (np.int64(source[i]) & 0x3F)
        code = np.int64(_fold_code(code, codes, targets))
        if code < 0x80:
            target[at] = code
            at += 1
        elif code < 0x800:
            target[at], target[at + 1] = 0xC0 | (code >> 6), 0x80 | (code & 0x3F)
            at += 2
        elif code < 0x10000:
            target[at], target[at + 1] = 0xE0 | (code >> 12), 0x80 | ((code >> 6) & 0x3F)
            target[at + 2] = 0x80 | (code & 0x3F)
            at += 3
        else:
            target[at], target[at + 1] = 0xF0 | (code >> 18), 0x80 | ((code >> 12) & 0x3F)
            target[at + 2], target[at + 3] = 0x80 | ((code >> 6) & 0x3F), 0x80 | (code & 0x3F)
            at += 4
        start += size
    return at


@kernel
def add_folded(
    starts: Ints, name_of: Ints, type_of: Ints, key_of: Ints, place_of: Ints, buffer: Bytes, fold_of: Ints,
    first_name: int, codes: Ints, targets: Ints, text_at: int, new_starts: Ints, new_name_of: Ints,
    new_type_of: Ints, new_key_of: Ints, new_place_of: Ints, new_buffer: Bytes
) -> None:
    """Copies the entries of a batch, and behind those of each notification adds its folded values."""
    count = 0
    for row in range(len(starts) - 1):
        new_starts[row] = count
        for i in range(starts[row], starts[row + 1]):
            new_name_of[count], new_type_of[count] = name_of[i], type_of[i]
            new_key_of[count], new_place_of[count] = key_of[i], place_of[i]
            count += 1
        for i in range(starts[row], starts[row + 1]):
            if type_of[i] == STRING and fold_of[name_of[i]] >= 0:
                end = fold_text(buffer, place_of[i], place_of[i] + key_of[i], codes, targets, new_buffer, text_at)
                new_name_of[count], new_type_of[count] = first_name + fold_of[name_of[i]], STRING
                new_key_of[count], new_place_of[count] = end - text_at, text_at
                text_at = end
                count += 1
    new_starts[len(starts) - 1] = count
