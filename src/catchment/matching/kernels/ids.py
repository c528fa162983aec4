"""Kernels over lists of byte strings: gathering some of them, finding a string by its bytes, sorting by place."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import equal_bytes, hash_bytes
from catchment.matching.kernels.jit import Bytes, Ints, kernel

# Up to so many keys are sorted faster by insertion than digit by digit.
_FEW = 40
_DIGIT_BITS_MAX = 11
DIGIT_COUNTS = 1 << _DIGIT_BITS_MAX
_NUMBER_BITS = 32
_SHIFT_MAX = 63
_NUMBER_MASK = 0xFFFFFFFF


@kernel
def gather_bytes(blob: Bytes, starts: Ints, chosen: Ints, out: Bytes, out_starts: Ints) -> None:
    """Writes the chosen byte strings one after another."""
    end = 0
    for i in range(len(chosen)):
        for j in range(starts[chosen[i]], starts[chosen[i] + 1]):
            out[end] = blob[j]
            end += 1
        out_starts[i + 1] = end


@kernel
def gather_lists(values: Ints, starts: Ints, chosen: Ints, out: Ints, out_starts: Ints) -> None:
    """Writes the chosen lists of numbers one after another."""
    end = 0
    for i in range(len(chosen)):
        for j in range(starts[chosen[i]], starts[chosen[i] + 1]):
            out[end] = values[j]
            end += 1
        out_starts[i + 1] = end


@kernel
def fill_id_slots(blob: Bytes, starts: Ints, slots: Ints) -> int:
    """Enters byte strings into a hash table. Returns the first that appears twice, or -1."""
    mask = len(slots) - 1
    for i in range(len(starts) - 1):
        start, length = starts[i], starts[i + 1] - starts[i]
        at = hash_bytes(blob, start, start + length) & mask
        while slots[at] >= 0:
            other = slots[at]
            if starts[other + 1] - starts[other] == length and equal_bytes(blob, starts[other], blob, start, length):
                return i
            at = (at + 1) & mask
        slots[at] = i
    return -1


@kernel
def _find(text: Bytes, start: int, end: int, blob: Bytes, starts: Ints, slots: Ints) -> int:
    mask, length = len(slots) - 1, end - start
    at = hash_bytes(text, start, end) & mask
    while slots[at] >= 0:
        known = slots[at]
        if starts[known + 1] - starts[known] == length and equal_bytes(blob, starts[known], text, start, length):
            return known
        at = (at + 1) & mask
    return -1


@kernel
def find_id(wanted: Bytes, blob: Bytes, starts: Ints, slots: Ints) -> int:
    """The number of a byte string, or -1."""
    return _find(wanted, 0, len(wanted), blob, starts, slots)


@kernel
def find_ids(texts: Bytes, text_starts: Ints, blob: Bytes, starts: Ints, slots: Ints, numbers: Ints) -> None:
    """The numbers of many byte strings, or -1."""
    for i in range(len(numbers)):
        numbers[i] = _find(texts, text_starts[i], text_starts[i + 1], blob, starts, slots)


@kernel
def _insertion_sort(keys: Ints, count: int) -> None:
    for i in range(1, count):
        key, at = keys[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@kernel
def _sort_digit(keys: Ints, out: Ints, count: int, shift: int, digit: int, counts: Ints) -> None:
    """Sorts keys by one digit; those with an equal digit keep their order. A pass of a radix sort."""
    mask, total = (1 << digit) - 1, 0
    for i in range(mask + 1):
        counts[i] = 0
    for i in range(count):
        counts[(keys[i] >> shift) & mask] += 1
    for i in range(mask + 1):
        total += counts[i]
        counts[i] = total - counts[i]
    for i in range(count):
        which = (keys[i] >> shift) & mask
        out[counts[which]] = keys[i]
        counts[which] += 1


@kernel
def _sort_digits(keys: Ints, count: int, most: int, spare: Ints, counts: Ints) -> None:
    """Sorts keys by their bits from _NUMBER_BITS on, which are a number below `most`. Two passes suffice for up to four
    million. Passes come in pairs, so that the result ends up in `keys` again."""
    digit, shift = 1, _NUMBER_BITS
    while digit < _DIGIT_BITS_MAX and most > 1 << (2 * digit):
        digit += 1
    while most > 0:
        _sort_digit(keys, spare, count, shift, digit, counts)
        _sort_digit(spare, keys, count, min(shift + digit, _SHIFT_MAX), digit, counts)
        shift += 2 * digit
        most = (most - 1) >> (2 * digit)


@kernel
def sort_numbers(numbers: Ints, count: int, places: Ints, made: Bytes, out: Ints, spare: Ints, counts: Ints) -> bool:
    """Writes the numbers in the order of their places to `out`. Returns whether the ids of all are made; without
    places, whether there is nothing to sort."""
    if len(places) == 0:
        return count == 0
    ready = True
    # Sorts pairs of (place, number) as one integer each: the place in the high bits, the number in the low ones.
    for i in range(count):
        number = np.int64(numbers[i])
        out[i] = (np.int64(places[number]) << _NUMBER_BITS) | number
        ready = ready and made[number] != 0
    if count <= _FEW:
        _insertion_sort(out, count)
    else:
        _sort_digits(out, count, len(places), spare, counts)
    for i in range(count):
        out[i] &= _NUMBER_MASK
    return ready
