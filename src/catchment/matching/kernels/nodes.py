"""Kernels on expressions as *nodes*, each distinct one stored once; all filters of a segment share them.

A node is a LEAF, whose child is a constraint, or an AND or OR, whose children are nodes with smaller numbers. So one
walk in the order of the numbers meets children before their parents.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import HASH_FACTOR, HASH_MASK
from catchment.matching.kernels.jit import Ints, kernel

LEAF, AND, OR = 0, 1, 2
# Places in `used`: how many nodes and children there are.
NODES, CHILDREN = 0, 1


@kernel
def intern_node(
    kind: int, first: int, last: int, pending: Ints, node_kind: Ints, starts: Ints, children: Ints, hashes: Ints,
    slots: Ints, used: Ints
) -> int:
    """The number of the node with this kind and with the children `pending[first:last]`, in any order, each once."""
    for i in range(first + 1, last):  # insertion sort: the same children in another order are the same node
        at = i
        while at > first and pending[at - 1] > pending[at]:
            pending[at - 1], pending[at] = pending[at], pending[at - 1]
            at -= 1
    start, hashed, length = used[CHILDREN], np.int64(kind), 0
    for i in range(first, last):
        if i > first and pending[i] == pending[i - 1]:
            continue
        children[start + length] = pending[i]
        length += 1
        hashed = (hashed * HASH_FACTOR + np.int64(pending[i])) & HASH_MASK
    if length == 1 and kind != LEAF:
        return children[start]
    mask = len(slots) - 1
    hashed ^= hashed >> 15
    slot = hashed & mask
    while slots[slot] >= 0:
        known = slots[slot]
        if hashes[known] == hashed and node_kind[known] == kind and starts[known + 1] - starts[known] == length:
            same, j = True, 0
            while same and j < length:
                same = children[starts[known] + j] == children[start + j]
                j += 1
            if same:
                return known
        slot = (slot + 1) & mask
    node = used[NODES]
    slots[slot] = node
    hashes[node] = hashed
    node_kind[node] = kind
    starts[node + 1] = start + length
    used[NODES] = node + 1
    used[CHILDREN] = start + length
    return node


@kernel
def absorb_nodes(
    other_kind: Ints, other_starts: Ints, other_children: Ints, constraint_of: Ints, pending: Ints, node_kind: Ints,
    starts: Ints, children: Ints, hashes: Ints, slots: Ints, used: Ints, number_of: Ints
) -> None:
    """Takes over the nodes of another table, whose constraints have the numbers `constraint_of` here. `number_of` gets,
    for each of its nodes, the number here."""
    for node in range(len(other_kind)):
        count = 0
        for i in range(other_starts[node], other_starts[node + 1]):
            child = other_children[i]
            pending[count] = constraint_of[child] if other_kind[node] == LEAF else number_of[child]
            count += 1
        number_of[node] = intern_node(
            other_kind[node], 0, count, pending, node_kind, starts, children, hashes, slots, used
        )


@kernel
def mark_used(kind: Ints, starts: Ints, children: Ints, is_used: Ints) -> None:
    """Marks the nodes below those that are marked."""
    for node in range(len(kind) - 1, -1, -1):
        if is_used[node] and kind[node] != LEAF:
            for i in range(starts[node], starts[node + 1]):
                is_used[children[i]] = 1


# --- access -------------------------------------------------------------------------------------


@kernel
def node_costs(kind: Ints, starts: Ints, children: Ints, constraint_cost: Ints, cost: Ints) -> None:
    """How likely a notification is to meet what leads to a node: of an AND the least likely child, of an OR any, as if
    they did not depend on one another."""
    for node in range(len(kind)):
        least, none = 1.0, 1.0
        for i in range(starts[node], starts[node + 1]):
            share = constraint_cost[children[i]] if kind[node] == LEAF else cost[children[i]]
            least = min(least, share)
            none *= 1.0 - share
        cost[node] = 1.0 - none if kind[node] == OR else least


@kernel
def list_access(
    roots: Ints, kind: Ints, starts: Ints, children: Ints, cost: Ints, stamp: Ints, stack: Ints, writing: bool,
    out_starts: Ints, out: Ints
) -> int:
    """For each filter with a root, constraints of which one is true wherever the filter is. Returns how many in all; a
    first call counts, a second writes."""
    count = 0
    for f in range(len(roots)):
        if roots[f] >= 0:
            depth = 1
            stack[0] = roots[f]
            while depth > 0:
                depth -= 1
                node = stack[depth]
                if kind[node] == LEAF:
                    constraint = children[starts[node]]
                    if stamp[constraint] != f + 1:
                        stamp[constraint] = f + 1
                        if writing:
                            out[count] = constraint
                        count += 1
                elif kind[node] == OR:
                    for i in range(starts[node], starts[node + 1]):
                        stack[depth] = children[i]
                        depth += 1
                else:
                    best = children[starts[node]]
                    for i in range(starts[node] + 1, starts[node + 1]):
                        if cost[children[i]] < cost[best]:
                            best = children[i]
                    stack[depth] = best
                    depth += 1
        if writing:
            out_starts[f + 1] = count
    return count


@kernel
def order_children(kind: Ints, starts: Ints, children: Ints, cost: Ints) -> None:
    """Sorts the children of each AND so that the least likely is tried first, those of each OR the other way round."""
    for node in range(len(kind)):
        if kind[node] == LEAF:
            continue
        sign = 1.0 if kind[node] == AND else -1.0
        for i in range(starts[node] + 1, starts[node + 1]):
            at = i
            while at > starts[node] and sign * cost[children[at - 1]] > sign * cost[children[at]]:
                children[at - 1], children[at] = children[at], children[at - 1]
                at -= 1


@kernel
def count_failing(kind: Ints, starts: Ints, children: Ints, failing: Ints, count: Ints) -> None:
    """For each node the least number of constraints that would have to hold besides those that do."""
    for node in range(len(kind)):
        total = 0
        for i in range(starts[node], starts[node + 1]):
            if kind[node] == LEAF:
                total = failing[children[i]]
            elif kind[node] == AND:
                total += count[children[i]]
            elif i == starts[node] or count[children[i]] < total:
                total = count[children[i]]
        count[node] = total
