"""Kernels that index substrings and globs by a *gram*: a few bytes of their literal piece.

A glob's literal piece is its longest run without wildcards. Of all grams of the piece, the one is chosen that occurs in
the fewest other patterns. A string can match the pattern only if it contains the gram.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import HASH_FACTOR, HASH_MASK
from catchment.matching.kernels.ingest import C_ATTRIBUTE, C_COUNT, C_OPERATOR, C_START, GLOB
from catchment.matching.kernels.jit import Bytes, Ints, kernel
from catchment.matching.kernels.rank import copy_unescaped
from catchment.matching.kernels.tables import GRAM_SIZES


@kernel
def longest_literal(blob: Bytes, start: int, end: int) -> tuple[int, int]:
    """The longest piece of a glob without wildcards, escapes included: where it starts and ends."""
    best, best_end, piece, at = start, start, start, start
    while at <= end:
        if at == end or blob[at] == 42 or blob[at] == 63:  # the end, * or ?
            if at - piece > best_end - best:
                best, best_end = piece, at
            piece = at + 1
        at += 2 if at < end and blob[at] == 92 else 1  # a backslash takes the next byte along
    return best, best_end


@kernel
def has_literal(blob: Bytes, parsed: Ints, constraints: Ints, has: Ints) -> None:
    """Marks the patterns that have a literal piece."""
    for i in range(len(constraints)):
        c = constraints[i]
        start, end = parsed[c, C_START], parsed[c, C_START] + parsed[c, C_COUNT]
        if parsed[c, C_OPERATOR] == GLOB:
            start, end = longest_literal(blob, start, end)
        has[i] = end > start


@kernel
def list_literals(blob: Bytes, parsed: Ints, constraints: Ints, places: Ints, target: Bytes) -> int:
    """Writes the literal pieces of patterns one after another, unescaped; returns how many bytes."""
    at = 0
    for i in range(len(constraints)):
        c = constraints[i]
        start, end = parsed[c, C_START], parsed[c, C_START] + parsed[c, C_COUNT]
        places[i, 0] = at
        if parsed[c, C_OPERATOR] == GLOB:
            start, end = longest_literal(blob, start, end)
            at = copy_unescaped(blob, start, end, target, at)
        else:
            for j in range(start, end):
                target[at] = blob[j]
                at += 1
        places[i, 1] = at - places[i, 0]
        places[i, 2] = parsed[c, C_ATTRIBUTE]
    return at


@kernel
def gram_hash(attribute: int, size: int, blob: Bytes, at: int) -> int:
    mixed = np.int64(attribute * 16 + size)
    for j in range(at, at + size):
        mixed = (mixed * HASH_FACTOR + np.int64(blob[j])) & HASH_MASK
    return mixed


@kernel
def gram_size(length: int) -> int:
    """The largest size of a gram that fits into a literal."""
    largest = 1
    for size in GRAM_SIZES:
        if size <= length:
            largest = size
    return largest


@kernel
def choose_grams(places: Ints, blob: Bytes, counts: Ints, hashes: Ints, offsets: Ints, sizes: Ints) -> None:
    """Chooses the gram of each literal that is rarest among the grams of all literals. The first round counts them, by
    hash; the second chooses."""
    mask = len(counts) - 1
    for round in range(2):
        for i in range(len(places)):
            size, attribute = gram_size(places[i, 1]), places[i, 2]
            sizes[i] = size
            least = np.int64(1 << 62)
            for offset in range(places[i, 1] - size + 1):
                hashed = gram_hash(attribute, size, blob, places[i, 0] + offset)
                if round == 0:
                    counts[hashed & mask] += 1
                elif counts[hashed & mask] < least:
                    least = counts[hashed & mask]
                    hashes[i] = hashed
                    offsets[i] = offset


@kernel
def fill_slots(hashes: Ints, slots: Ints) -> None:
    mask = len(slots) - 1
    for i in range(len(hashes)):
        at = (hashes[i] ^ (hashes[i] >> 15)) & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = i
