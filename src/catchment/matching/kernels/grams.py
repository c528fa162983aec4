"""Kernels that index substrings and globs by a *gram*: a few bytes of their literal piece.

A glob's literal piece is its longest run without wildcards. Of all grams of the piece, the one is chosen that occurs in
the fewest other patterns. A string can match the pattern only if it contains the gram.

A gram of up to eight bytes is an integer: then the hash of the gram behind each position of a string takes one shift
and two multiplications. A bit set of hashes (`gram_bits`) tells at most positions that no pattern has such a gram. It
is small enough to stay in the processor's cache.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.ingest import C_ATTRIBUTE, C_COUNT, C_OPERATOR, C_START, GLOB, NOT
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
        if parsed[c, C_OPERATOR] & (NOT - 1) == GLOB:
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
        if parsed[c, C_OPERATOR] & (NOT - 1) == GLOB:
            start, end = longest_literal(blob, start, end)
            at = copy_unescaped(blob, start, end, target, at)
        else:
            for j in range(start, end):
                target[at] = blob[j]
                at += 1
        places[i, 1] = at - places[i, 0]
        places[i, 2] = parsed[c, C_ATTRIBUTE]
    return at


# Numbers of 30 bits: a product with 32 bits stays below 2**63.
_HIGH_FACTOR, _HASH_FACTOR, _SEED_FACTOR = 0x2C1B3C6D, 0x35297A2D, 0x1B56C4E9


@kernel
def gram_seed(attribute: int, size: int) -> int:
    """What tells the grams of different attributes and sizes apart."""
    return ((attribute * 16 + size) * _SEED_FACTOR) & 0xFFFFFFFF


@kernel
def hash_of_gram(gram: int, seed: int) -> int:
    """A hash of 31 bits of the bytes of a gram, as an integer."""
    mixed = (gram & 0xFFFFFFFF) ^ ((((gram >> 32) & 0xFFFFFFFF) * _HIGH_FACTOR) >> 20) ^ seed
    return (((mixed & 0xFFFFFFFF) * _HASH_FACTOR) >> 29) & 0x7FFFFFFF


@kernel
def gram_hash(attribute: int, size: int, blob: Bytes, at: int) -> int:
    gram = np.int64(0)
    for j in range(at, at + size):
        gram = (gram << 8) | np.int64(blob[j])
    return hash_of_gram(gram, gram_seed(attribute, size))


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
def fill_slots(hashes: Ints, slots: Ints, bits: Bytes) -> None:
    mask, bit_mask = len(slots) - 1, 8 * len(bits) - 1
    for i in range(len(hashes)):
        bit = hashes[i] & bit_mask
        bits[bit >> 3] |= np.uint8(1 << (bit & 7))
        at = hashes[i] & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = i
