"""Kernels over lists of byte strings: gathering some of them, and finding one by its bytes."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

from catchment.matching.kernels_bytes import Bytes, Ints, equal_bytes, hash_bytes, kernel


@kernel
def gather_bytes(blob: Bytes, starts: Ints, chosen: Ints, out: Bytes, out_starts: Ints) -> None:
    """The chosen byte strings one after another."""
    end = 0
    for i in range(len(chosen)):
        for j in range(starts[chosen[i]], starts[chosen[i] + 1]):
            out[end] = blob[j]
            end += 1
        out_starts[i + 1] = end


@kernel
def gather_lists(values: Ints, starts: Ints, chosen: Ints, out: Ints, out_starts: Ints) -> None:
    """The chosen lists of numbers one after another."""
    end = 0
    for i in range(len(chosen)):
        for j in range(starts[chosen[i]], starts[chosen[i] + 1]):
            out[end] = values[j]
            end += 1
        out_starts[i + 1] = end


@kernel
def fill_id_slots(blob: Bytes, starts: Ints, slots: Ints) -> int:
    """Makes byte strings findable; the first that stands twice, or -1."""
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
