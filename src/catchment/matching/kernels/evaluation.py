"""Kernels that evaluate: whether a test that is no interval holds, and whether an expression is true."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: PLR1714, SIM109, SIM110 -- plain comparisons compile to the plainest code

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import (
    STRING,
    holds_substring,
    matches_glob,
)
from catchment.matching.kernels.compile import (
    T_ABSENT,
    T_GLOB,
    T_IN,
    T_NOT_GLOB,
    T_NOT_SET,
    T_NOT_SUBSTRING,
    T_OUT,
    T_SET,
    T_SUBSTRING,
    T_TYPE,
    TEST_KIND_BITS,
    TEST_KIND_MASK,
)
from catchment.matching.kernels.jit import Bytes, Ints, kernel
from catchment.matching.kernels.nodes import AND, LEAF

Handles = Ints  # see handles.py


@kernel
def holds_other(
    kind: int, rank: int, a: int, b: int, entry: int, type_of: Ints, place_of: Ints, key_of: Ints, buffer: Bytes,
    set_pool: Ints, pattern_places: Ints, blob: Bytes
) -> bool:
    """Whether a test that is not IN holds; `rank` is -1 if the value is absent. See `compile.py` for the tests."""
    if kind == T_ABSENT:
        return rank < 0
    if rank < 0:
        return False
    if kind == T_OUT:
        return rank < a or rank > b
    if kind == T_SET:
        low, high = a, b  # binary search in the sorted ranks of the set
        while low < high:
            middle = (low + high) >> 1
            if set_pool[middle] < rank:
                low = middle + 1
            else:
                high = middle
        return low < b and set_pool[low] == rank
    if kind == T_NOT_SET:
        for i in range(a, b):  # rare, and short
            if set_pool[i] == rank:
                return False
        return True
    if kind == T_TYPE:
        return type_of[entry] == a
    if type_of[entry] != STRING:
        return False
    start, end = place_of[entry], place_of[entry] + key_of[entry]
    pattern, pattern_end = pattern_places[a, 0], pattern_places[a, 0] + pattern_places[a, 1]
    if kind == T_SUBSTRING or kind == T_NOT_SUBSTRING:
        return holds_substring(buffer, start, end, blob, pattern, pattern_end) == (kind == T_SUBSTRING)
    return matches_glob(buffer, start, end, blob, pattern, pattern_end) == (kind == T_GLOB)


@kernel
def _is_leaf_true(
    node: int, stamp: int, leaf_starts: Ints, leaf_tests: Ints, pattern_of: Ints, rank_of: Ints, entry_of: Ints,
    pattern_stamp: Ints, type_of: Ints, place_of: Ints, key_of: Ints, buffer: Bytes, set_pool: Ints,
    pattern_places: Ints, blob: Bytes
) -> bool:
    """Whether the constraint of a leaf holds. The pass over the strings has found which literals occur."""
    for t in range(leaf_starts[node], leaf_starts[node + 1]):
        code = leaf_tests[t, 0]
        kind = code & TEST_KIND_MASK
        rank = rank_of[code >> TEST_KIND_BITS]
        if kind == T_IN:
            if rank < leaf_tests[t, 1] or rank > leaf_tests[t, 2]:
                return False
            continue
        if kind >= T_SUBSTRING and kind <= T_NOT_GLOB and len(pattern_of) > 0:
            pattern = pattern_of[leaf_tests[t, 1]]
            if pattern >= 0:
                occurs = pattern_stamp[pattern] == stamp
                if kind == T_SUBSTRING or kind == T_NOT_SUBSTRING:
                    # The other test of the leaf, which comes first, has seen to it that the value is a string.
                    if occurs != (kind == T_SUBSTRING):
                        return False
                    continue
                if not occurs:  # without its literal piece a glob does not match
                    if kind == T_GLOB:
                        return False
                    continue
        if not holds_other(
            kind, rank, leaf_tests[t, 1], leaf_tests[t, 2], entry_of[code >> TEST_KIND_BITS], type_of, place_of,
            key_of, buffer, set_pool, pattern_places, blob
        ):
            return False
    return True


@kernel
def is_true(
    root: int, stamp: int, node_kind: Ints, node_starts: Ints, children: Ints, node_state: Ints, open_nodes: Ints,
    leaf_starts: Ints, leaf_tests: Ints, pattern_of: Ints, rank_of: Ints, entry_of: Ints, pattern_stamp: Ints,
    type_of: Ints, place_of: Ints, key_of: Ints, buffer: Bytes, set_pool: Ints, pattern_places: Ints, blob: Bytes
) -> bool:
    """Whether an expression is true. What is known of a node is kept for the rest of the notification (`node_state`):
    each constraint and each shared part is looked at once at most."""
    known, depth = 2 * stamp, 0
    if node_state[root] >= known:
        return node_state[root] > known
    if node_kind[root] == LEAF:  # all parts were the same constraint
        return _is_leaf_true(
            root, stamp, leaf_starts, leaf_tests, pattern_of, rank_of, entry_of, pattern_stamp, type_of, place_of,
            key_of, buffer, set_pool, pattern_places, blob
        )
    open_nodes[0, 0], open_nodes[0, 1] = root, node_starts[root]
    while depth >= 0:
        node, at = open_nodes[depth, 0], open_nodes[depth, 1]
        is_and = node_kind[node] == AND
        value, below = is_and, np.int64(-1)  # what it is if no child decides; a child that must be known first
        while at < node_starts[node + 1]:
            child = np.int64(children[at])
            if node_state[child] < known:
                if node_kind[child] != LEAF:
                    below = child
                    break
                holds = _is_leaf_true(
                    child, stamp, leaf_starts, leaf_tests, pattern_of, rank_of, entry_of, pattern_stamp, type_of,
                    place_of, key_of, buffer, set_pool, pattern_places, blob
                )
                node_state[child] = known + (1 if holds else 0)
            if (node_state[child] > known) != is_and:
                value = not is_and
                break
            at += 1
        if below >= 0:
            open_nodes[depth, 1] = at
            depth += 1
            open_nodes[depth, 0], open_nodes[depth, 1] = below, node_starts[below]
        else:
            node_state[node] = known + (1 if value else 0)
            depth -= 1
    return node_state[root] > known
