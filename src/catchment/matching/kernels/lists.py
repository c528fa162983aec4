"""Kernels that write the ids of matches as an Arrow list of strings: the end of each string, and all bytes.

To sort ids, each is replaced by its *id rank*, its place among all ids in sorted order. The texts are stored by rank.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

from catchment.matching.kernels.jit import Bytes, Ints, kernel

# Up to so many ranks insertion is the fastest way to sort. Up to the second limit it is three passes over small digits,
# and beyond that two passes over large digits.
_INSERTED_MAX = 24
_THREE_DIGITS_MAX = 512
DIGIT_COUNTS = 1 << 16


@kernel
def put_ranks(offsets: Ints, numbers: Ints, rank_of: Ints, cursor: Ints, ranks: Ints) -> None:
    """Appends the ranks of the numbers of each row to that row of `ranks`, at its cursor."""
    for row in range(len(offsets) - 1):
        at = cursor[row]
        for i in range(offsets[row], offsets[row + 1]):
            ranks[at] = rank_of[numbers[i]]
            at += 1
        cursor[row] = at


@kernel
def _insert(ranks: Ints, first: int, last: int) -> None:
    for i in range(first + 1, last):
        rank, at = ranks[i], i
        while at > first and ranks[at - 1] > rank:
            ranks[at] = ranks[at - 1]
            at -= 1
        ranks[at] = rank


@kernel
def _place(ranks: Ints, first: int, out: Ints, out_first: int, count: int, shift: int, bits: int, counts: Ints) -> None:
    """Sorts ranks by one digit; those with an equal digit keep their order. A pass of a radix sort."""
    mask = (1 << bits) - 1
    for i in range(mask + 1):
        counts[i] = 0
    for i in range(first, first + count):
        counts[(ranks[i] >> shift) & mask] += 1
    total = out_first
    for i in range(mask + 1):
        total += counts[i]
        counts[i] = total - counts[i]
    for i in range(first, first + count):
        digit = (ranks[i] >> shift) & mask
        out[counts[digit]] = ranks[i]
        counts[digit] += 1


@kernel
def sort_rows(offsets: Ints, ranks: Ints, bits: int, spare: Ints, counts: Ints) -> None:
    """Sorts the ranks of each row; a rank has at most `bits` bits. `spare` must be as long as the longest row."""
    third, half = (bits + 2) // 3, (bits + 1) // 2
    for row in range(len(offsets) - 1):
        first, last = offsets[row], offsets[row + 1]
        count = last - first
        if count <= _INSERTED_MAX:
            _insert(ranks, first, last)
        elif count <= _THREE_DIGITS_MAX:
            _place(ranks, first, spare, 0, count, 0, third, counts)
            _place(spare, 0, ranks, first, count, third, third, counts)
            _place(ranks, first, spare, 0, count, 2 * third, third, counts)
            for i in range(count):
                ranks[first + i] = spare[i]
        else:
            _place(ranks, first, spare, 0, count, 0, half, counts)
            _place(spare, 0, ranks, first, count, half, half, counts)


@kernel
def text_bytes(ranks: Ints, starts: Ints) -> int:
    """How many bytes the texts of all ranks have."""
    size = 0
    for i in range(len(ranks)):
        size += starts[ranks[i] + 1] - starts[ranks[i]]
    return size


@kernel
def put_texts(ranks: Ints, blob: Bytes, starts: Ints, out: Bytes, ends: Ints) -> None:
    """The texts of all ranks, one after another."""
    end = 0
    for i in range(len(ranks)):
        start = starts[ranks[i]]
        size = starts[ranks[i] + 1] - start
        for j in range(size):
            out[end + j] = blob[start + j]
        end += size
        ends[i + 1] = end
