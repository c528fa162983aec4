"""Kernels that take filters into the tables of a source; each distinct constraint and conjunction is stored once.

A filter arrives as msgpack (`packing.py`): an array of conjunctions `{"constraints": [...]}`, or an expression
`[AND or OR, part, …]`. A constraint is `{"name", "operator", "value", "kind"}`. A stored constraint is the same
without the field names: `[name, operator, value, kind]`.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: SIM102 -- plain comparisons compile to the plainest code

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import (
    ARRAY,
    BOOL,
    FLOAT,
    HASH_FACTOR,
    HASH_MASK,
    INT,
    STRING,
    TIME,
    equal_bytes,
    hash_bytes,
    name_number,
    read_object,
    skip_object,
)
from catchment.matching.kernels.jit import Bytes, Ints, kernel
from catchment.matching.kernels.nodes import LEAF, intern_node

# Places in `state`: how many entries of each growing table are in use.
CONSTRAINTS, BLOB, ALTERNATIVES, MEMBERS, FILTERS = 0, 1, 2, 3, 4

# Operators and kinds as numbers. ANY_KIND and NUMBER follow the five types.
EQ, NE, LT, LE, GT, GE, IN, PREFIX, SUFFIX, SUBSTRING, GLOB, PRESENT, ABSENT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
NOT = 16  # added to a string operator that is negated
NUMBER, ANY_KIND = 6, 7

# Columns of a parsed constraint.
C_ATTRIBUTE, C_KIND, C_OPERATOR, C_TYPE, C_KEY, C_START, C_COUNT, C_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7


@kernel
def intern_tail(blob: Bytes, starts: Ints, hashes: Ints, slots: Ints, state: Ints, end: int) -> int:
    """The number of the constraint whose bytes were just written behind the blob, up to `end`. Only if it is new do the
    bytes become part of the blob; else the next constraint overwrites them."""
    start, mask = state[BLOB], len(slots) - 1
    hashed = hash_bytes(blob, start, end)
    at = hashed & mask
    while slots[at] >= 0:
        known = slots[at]
        if hashes[known] == hashed and starts[known + 1] - starts[known] == end - start:
            if equal_bytes(blob, starts[known], blob, start, end - start):
                return known
        at = (at + 1) & mask
    known = state[CONSTRAINTS]
    slots[at] = known
    hashes[known] = hashed
    starts[known + 1] = end
    state[CONSTRAINTS] = known + 1
    state[BLOB] = end
    return known


@kernel
def _copy(source: Bytes, start: int, end: int, target: Bytes, at: int) -> int:
    for i in range(start, end):
        target[at + i - start] = source[i]
    return at + end - start


@kernel
def _copy_constraint(buffer: Bytes, at: int, blob: Bytes, end: int) -> tuple[int, int]:
    """Writes the constraint at `at` behind the blob, without its field names. Returns (position behind it, new end)."""
    _, fields, _, _, at = read_object(buffer, at)
    blob[end] = 0x90 + fields  # the head of a short array
    end += 1
    for _field in range(fields):
        _, _, _, _, value = read_object(buffer, at)
        at = skip_object(buffer, value)
        end = _copy(buffer, value, at, blob, end)
    return at, end


@kernel
def ingest(
    buffer: Bytes, blob: Bytes, starts: Ints, hashes: Ints, slots: Ints, state: Ints, members: Ints,
    alternative_starts: Ints, filter_starts: Ints, roots: Ints, pending: Ints, frames: Ints, node_kind: Ints,
    node_starts: Ints, children: Ints, node_hashes: Ints, node_slots: Ints, node_used: Ints
) -> None:
    """Appends the filters of a msgpack array to the tables. A filter that is an expression gets a root node and no
    conjunctions."""
    _, filters, _, _, at = read_object(buffer, 0)
    for _filter in range(filters):
        _, alternatives, _, _, at = read_object(buffer, at)
        roots[state[FILTERS]] = -1
        if alternatives > 0 and read_object(buffer, at)[0] == INT:
            at, roots[state[FILTERS]] = _ingest_expression(
                buffer, at, alternatives, blob, starts, hashes, slots, state, pending, frames, node_kind, node_starts,
                children, node_hashes, node_slots, node_used
            )
            alternatives = 0
        for _alternative in range(alternatives):
            _, _, _, _, at = read_object(buffer, at)  # the head of {"constraints": …}
            at = skip_object(buffer, at)  # the word "constraints"
            _, constraints, _, _, at = read_object(buffer, at)
            for _constraint in range(constraints):
                at, end = _copy_constraint(buffer, at, blob, state[BLOB])
                members[state[MEMBERS]] = intern_tail(blob, starts, hashes, slots, state, end)
                state[MEMBERS] += 1
            state[ALTERNATIVES] += 1
            alternative_starts[state[ALTERNATIVES]] = state[MEMBERS]
        state[FILTERS] += 1
        filter_starts[state[FILTERS]] = state[ALTERNATIVES]


# Columns of `frames`, the expressions that are being read: kind, parts still to come, first part in `pending`.
_KIND, _LEFT, _BASE, FRAME_COLUMNS = 0, 1, 2, 3


@kernel
def _ingest_expression(
    buffer: Bytes, at: int, count: int, blob: Bytes, starts: Ints, hashes: Ints, slots: Ints, state: Ints,
    pending: Ints, frames: Ints, node_kind: Ints, node_starts: Ints, children: Ints, node_hashes: Ints,
    node_slots: Ints, node_used: Ints
) -> tuple[int, int]:
    """Reads the expression whose kind is at `at`. Returns (position behind it, its root)."""
    _, kind, _, _, at = read_object(buffer, at)
    frames[0, _KIND], frames[0, _LEFT], frames[0, _BASE] = kind, count - 1, 0
    depth, waiting = 0, 0
    while True:
        if frames[depth, _LEFT] == 0:  # all parts are read: they are the last of `pending`
            base = frames[depth, _BASE]
            node = intern_node(
                frames[depth, _KIND], base, waiting, pending, node_kind, node_starts, children, node_hashes,
                node_slots, node_used
            )
            if depth == 0:
                return at, node
            pending[base] = node
            waiting = base + 1
            depth -= 1
            continue
        frames[depth, _LEFT] -= 1
        tag, count, _, _, behind = read_object(buffer, at)
        if tag == ARRAY:
            _, kind, _, _, at = read_object(buffer, behind)
            depth += 1
            frames[depth, _KIND], frames[depth, _LEFT], frames[depth, _BASE] = kind, count - 1, waiting
        else:
            at, end = _copy_constraint(buffer, at, blob, state[BLOB])
            pending[waiting] = intern_tail(blob, starts, hashes, slots, state, end)
            pending[waiting] = intern_node(
                LEAF, waiting, waiting + 1, pending, node_kind, node_starts, children, node_hashes, node_slots,
                node_used
            )
            waiting += 1


@kernel
def absorb(
    other_blob: Bytes, other_starts: Ints, blob: Bytes, starts: Ints, hashes: Ints, slots: Ints, state: Ints,
    number_of: Ints
) -> None:
    """Takes over another table of constraints. `number_of` gets, for each of its numbers, the number here."""
    for i in range(len(other_starts) - 1):
        end = _copy(other_blob, other_starts[i], other_starts[i + 1], blob, state[BLOB])
        number_of[i] = intern_tail(blob, starts, hashes, slots, state, end)


@kernel
def intern_lists(members: Ints, starts: Ints, slots: Ints, hashes: Ints, firsts: Ints, number_of: Ints) -> int:
    """Gives equal lists the same number; `firsts[number]` is the first list with that number. Returns how many numbers
    there are."""
    count, mask = 0, len(slots) - 1
    for i in range(len(starts) - 1):
        start, length = starts[i], starts[i + 1] - starts[i]
        hashed = np.int64(length)
        for j in range(start, start + length):
            hashed = (hashed * HASH_FACTOR + np.int64(members[j])) & HASH_MASK
        hashed ^= hashed >> 15
        at = hashed & mask
        number = -1
        while slots[at] >= 0 and number < 0:
            known = slots[at]
            other = starts[firsts[known]]
            same = hashes[known] == hashed and starts[firsts[known] + 1] - other == length
            j = 0
            while same and j < length:
                same = members[other + j] == members[start + j]
                j += 1
            if same:
                number = known
            at = (at + 1) & mask
        if number < 0:
            number = count
            slots[at] = count
            hashes[count] = hashed
            firsts[count] = i
            count += 1
        number_of[i] = number
    return count


# --- parsing ------------------------------------------------------------------------------------


@kernel
def _operator(buffer: Bytes, start: int, length: int) -> int:
    """The number of an operator, told by its first byte and its length."""
    first = buffer[start]
    if first == 110:  # not …
        return NOT + _operator_word(buffer, start + 4, length - 4)
    if first == 61:
        return EQ
    if first == 33:
        return NE
    if first == 60:
        return LT if length == 1 else LE
    if first == 62:
        return GT if length == 1 else GE
    return _operator_word(buffer, start, length)


@kernel
def _operator_word(buffer: Bytes, start: int, length: int) -> int:
    first = buffer[start]
    if first == 105:
        return IN
    if first == 112:
        return PREFIX
    if first == 103:
        return GLOB
    if first == 97:
        return PRESENT if length == 3 else ABSENT
    return SUFFIX if length == 6 else SUBSTRING


@kernel
def _kind(buffer: Bytes, start: int) -> int:
    """The number of a kind, told by its first letter."""
    first = buffer[start]
    if first == 115:
        return STRING
    if first == 110:
        return NUMBER
    if first == 105:
        return INT
    if first == 102:
        return FLOAT
    if first == 98:
        return BOOL
    return TIME if first == 116 else ANY_KIND


@kernel
def fill_name_slots(blob: Bytes, names: Ints, slots: Ints) -> None:
    """Enters distinct names into a hash table."""
    mask = len(slots) - 1
    for number in range(len(names)):
        at = hash_bytes(blob, names[number, 0], names[number, 0] + names[number, 1]) & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = number


@kernel
def parse_constraints(blob: Bytes, starts: Ints, slots: Ints, names: Ints, parsed: Ints) -> int:
    """Writes the columns of every constraint; returns how many attributes there are. For an `in`, C_START is the first
    member and C_COUNT their number; for a string, C_START and C_COUNT are its place and length."""
    count = 0
    for i in range(len(starts) - 1):
        _, _, _, _, at = read_object(blob, starts[i])
        _, _, start, length, at = read_object(blob, at)
        number = name_number(blob, start, length, slots, names, count)
        count = max(count, number + 1)
        _, _, start, length, at = read_object(blob, at)
        parsed[i, C_ATTRIBUTE] = number
        parsed[i, C_OPERATOR] = _operator(blob, start, length)
        tag, key, start, length, behind = read_object(blob, at)
        if tag == ARRAY:
            parsed[i, C_START] = behind
            parsed[i, C_COUNT] = key
        else:
            parsed[i, C_TYPE] = tag
            parsed[i, C_KEY] = key
            parsed[i, C_START] = start
            parsed[i, C_COUNT] = length
        at = skip_object(blob, at)
        _, _, start, _, _ = read_object(blob, at)
        parsed[i, C_KIND] = _kind(blob, start)
    return count
