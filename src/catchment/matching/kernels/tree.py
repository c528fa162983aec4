"""Kernels that arrange rows in the tree: each node has rows to verify and groups of edges to children.

The tests of a row are ordered once, the best to index first. Rows with the same first tests share a path, and a node of
few rows stays a leaf. An *edge* is a distinct interval (or a pattern, out of the root): a notification follows it if
its rank lies in the interval. The edges out of a node are grouped by dimension and by the class of their interval, and
sorted within the group. So a binary search gives those that hold a rank.

Nodes are numbered level by level: the children of a group have consecutive numbers. Rows are numbered in the order of
the tree: the rows of a node, those of its children included, are consecutive.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: PLR1714, SIM102, SIM109 -- plain comparisons compile to the plainest code

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import HASH_FACTOR, HASH_MASK
from catchment.matching.kernels.compile import T_GLOB, T_IN, T_SUBSTRING, TEST_KIND_MASK
from catchment.matching.kernels.jit import Ints, kernel

# Classes of groups. POINT: intervals of a single rank. FROM: intervals up to the end of a section. UPTO: intervals from
# the beginning of a section. SCAN: a few intervals of any class, tried one by one. PATTERN: substrings and globs.
# RANGE + k: intervals of at least 2**k and under 2**(k+1) ranks.
POINT, FROM, UPTO, SCAN, PATTERN, RANGE = 0, 1, 2, 3, 4, 8
# Classes of edges: like those of groups, but with a FROM and an UPTO for each section of numbers, times and strings.
FROM_FIRST, UPTO_FIRST = 1, 5
# Columns of `groups`: dimension, class, first child, and whether a matching edge is already a match.
G_DIMENSION, G_CLASS, G_NODE, G_FLAT, G_COLUMNS = 0, 1, 2, 3, 4
# Places in `used`.
NODES, GROUPS = 0, 1


@kernel
def intern_intervals(tests: Ints, slots: Ints, intervals: Ints, interval_of: Ints) -> int:
    """Gives equal IN tests the same number, and other tests -1. Returns how many differ."""
    count, mask = 0, len(slots) - 1
    for t in range(len(tests)):
        interval_of[t] = -1
        if tests[t, 0] & TEST_KIND_MASK != T_IN:
            continue
        hashed = np.int64(tests[t, 0])
        for column in range(1, 3):
            hashed = (hashed * HASH_FACTOR + np.int64(tests[t, column])) & HASH_MASK
        at = (hashed ^ (hashed >> 15)) & mask
        while slots[at] >= 0 and interval_of[t] < 0:
            i = slots[at]
            if intervals[i, 0] == tests[t, 0] and intervals[i, 1] == tests[t, 1] and intervals[i, 2] == tests[t, 2]:
                interval_of[t] = i
            at = (at + 1) & mask
        if interval_of[t] < 0:
            slots[at] = count
            for column in range(3):
                intervals[count, column] = tests[t, column]
            interval_of[t] = count
            count += 1
    return count


@kernel
def _swap(tests: Ints, edge_of: Ints, a: int, b: int) -> None:
    for column in range(3):
        kept = tests[a, column]
        tests[a, column] = tests[b, column]
        tests[b, column] = kept
    kept = edge_of[a]
    edge_of[a] = edge_of[b]
    edge_of[b] = kept


@kernel
def order_tests(
    row_starts: Ints, tests: Ints, edge_of: Ints, score: Ints, estimate: Ints, pattern_count: Ints, patterns: int
) -> None:
    """Sorts the tests of each row by the score of their edge; tests that are no edges come last. If a rare pattern is
    more selective than the first interval, it becomes an edge (number `patterns` + its constraint) and comes first."""
    last_score = np.int64(1 << 62)
    for row in range(len(row_starts) - 1):
        start, end = row_starts[row], row_starts[row + 1]
        for t in range(start + 1, end):
            at = t
            while at > start:
                mine, its = last_score + np.int64(tests[at, 0] & TEST_KIND_MASK), last_score
                if edge_of[at] >= 0:
                    mine = score[edge_of[at]]
                if edge_of[at - 1] >= 0:
                    its = score[edge_of[at - 1]]
                else:
                    its += np.int64(tests[at - 1, 0] & TEST_KIND_MASK)
                if its <= mine:
                    break
                _swap(tests, edge_of, at, at - 1)
                at -= 1
        best, least = -1, last_score  # the pattern that the fewest rows have
        for t in range(start, end):
            kind = tests[t, 0] & TEST_KIND_MASK
            if (kind == T_SUBSTRING or kind == T_GLOB) and pattern_count[tests[t, 1]] > 0:
                if pattern_count[tests[t, 1]] < least:
                    best, least = t, pattern_count[tests[t, 1]]
        if best >= 0 and (edge_of[start] < 0 or 4 * least < estimate[edge_of[start]]):
            edge_of[best] = patterns + tests[best, 1]
            for at in range(best, start, -1):
                _swap(tests, edge_of, at, at - 1)


@kernel
def gather_level(
    first: int, last: int, node_row: Ints, node_end: Ints, leaf_rows: int, row_order: Ints, row_starts: Ints,
    edge_of: Ints, depth: int, rows: Ints, keys: Ints
) -> int:
    """For each row of the nodes of a level that are to be split: a key of (node, next edge + 1), so that sorting the
    keys brings the rows of a child together. A row without a next edge has 0 there. Returns how many rows."""
    count = 0
    for node in range(first, last):
        if node_end[node] - node_row[node] <= leaf_rows:
            continue
        for i in range(node_row[node], node_end[node]):
            row = row_order[i]
            t = row_starts[row] + depth
            edge = edge_of[t] if t < row_starts[row + 1] else -1
            rows[count] = row
            keys[count] = ((node - first) << 32) | (edge + 1)
            count += 1
    return count


@kernel
def scatter_level(
    first: int, last: int, node_row: Ints, node_end: Ints, leaf_rows: int, rows: Ints, row_order: Ints
) -> None:
    """Puts the sorted rows of a level back into the places of their nodes."""
    count = 0
    for node in range(first, last):
        if node_end[node] - node_row[node] > leaf_rows:
            for i in range(node_row[node], node_end[node]):
                row_order[i] = rows[count]
                count += 1


@kernel
def _group_end(keys: Ints, at: int, end: int, edges: Ints, merged: bool) -> int:
    """Where the group that begins at `at` ends. It has edges of the same dimension and class or, if `merged`, of the
    same dimension."""
    first = (keys[at] & 0xFFFFFFFF) - 1
    i = at
    while i < end:
        edge = (keys[i] & 0xFFFFFFFF) - 1
        if edge >= len(edges):  # a pattern: these come behind all intervals
            break
        if edges[edge, 0] != edges[first, 0] or (not merged and edges[edge, 3] != edges[first, 3]):
            break
        i += 1
    return i


@kernel
def _count_distinct(keys: Ints, at: int, end: int, most: int) -> int:
    """How many distinct keys a sorted part has; it stops counting at `most` + 1."""
    count = 0
    for i in range(at, end):
        if i == at or keys[i] != keys[i - 1]:
            count += 1
            if count > most:
                break
    return count


@kernel
def _class_of_group(edge_class: int) -> int:
    if edge_class == POINT or edge_class >= RANGE:
        return edge_class
    return FROM if edge_class < UPTO_FIRST else UPTO


@kernel
def split_level(
    first: int, last: int, leaf_rows: int, scan_edges: int, depth: int, keys: Ints, edges: Ints, intervals: int,
    node_low: Ints, node_high: Ints, node_row: Ints, node_own: Ints, node_end: Ints, node_group: Ints, groups: Ints,
    row_depth: Ints, used: Ints
) -> None:
    """Makes the groups and children of the nodes of a level. `keys` are those of `gather_level`, sorted. The columns of
    `edges` are dimension, low, high, class. A node keeps the rows that have no next edge, and a leaf keeps all."""
    at = 0
    for node in range(first, last):
        node_group[node] = used[GROUPS]
        start, end = node_row[node], node_end[node]
        own = end
        if end - start > leaf_rows:
            stop = at + end - start
            own = start
            while at < stop and keys[at] & 0xFFFFFFFF == 0:
                at, own = at + 1, own + 1
            row = own
            while at < stop:
                edge = (keys[at] & 0xFFFFFFFF) - 1
                merged = False
                group_end = stop
                group_class = PATTERN
                if edge < intervals:
                    group_end = _group_end(keys, at, stop, edges, False)
                    group_class = _class_of_group(edges[edge, 3])
                    if group_class != POINT:
                        # If the dimension has only a few intervals besides points, all of them become one SCAN group.
                        wide_end = _group_end(keys, at, stop, edges, True)
                        merged = _count_distinct(keys, at, wide_end, scan_edges) <= scan_edges
                        if merged:
                            group_end, group_class = wide_end, SCAN
                # Groups are searched by dimension, so the group of patterns, which stands last, has the greatest.
                last = min(edge, intervals - 1)
                groups[used[GROUPS], G_DIMENSION] = edges[last, 0] if last >= 0 else 0
                groups[used[GROUPS], G_CLASS] = group_class
                groups[used[GROUPS], G_NODE] = used[NODES]
                used[GROUPS] += 1
                while at < group_end:
                    edge = (keys[at] & 0xFFFFFFFF) - 1
                    child = used[NODES]
                    used[NODES] += 1
                    node_low[child] = edges[edge, 1] if edge < intervals else edge - intervals
                    node_high[child] = edges[edge, 2] if edge < intervals else 0
                    node_row[child] = row
                    before = keys[at]
                    while at < group_end and keys[at] == before:
                        at, row = at + 1, row + 1
                    node_end[child] = row
        node_own[node] = own
        for i in range(start, own):
            row_depth[i] = depth


@kernel
def write_rows(
    row_order: Ints, row_depth: Ints, row_starts: Ints, tests: Ints, edge_of: Ints, intervals: int, writing: bool,
    out_starts: Ints, out_tests: Ints
) -> int:
    """Writes the tests of each row that its path in the tree has not settled, in the order of the tree; returns how
    many. The path has settled the first `row_depth` tests."""
    count = 0
    for i in range(len(row_order)):
        row = row_order[i]
        start = row_starts[row] + row_depth[i]
        # A path through the literal piece of a pattern settles a substring. A glob must still be verified.
        again = row_depth[i] > 0 and edge_of[row_starts[row]] >= intervals
        again = again and tests[row_starts[row], 0] & TEST_KIND_MASK == T_GLOB
        for t in range(start - (1 if again else 0), row_starts[row + 1]):
            source = row_starts[row] if again and t == start - 1 else t
            if writing:
                for column in range(3):
                    out_tests[count, column] = tests[source, column]
            count += 1
        out_starts[i + 1] = count
    return count


@kernel
def mark_flat(groups: Ints, node_row: Ints, node_own: Ints, node_group: Ints, row_tests: Ints) -> None:
    """Marks groups whose children are leaves without tests left: a rank on such an edge is already a match."""
    for g in range(len(groups) - 1):
        flat = groups[g, G_CLASS] <= UPTO
        for node in range(groups[g, G_NODE], groups[g + 1, G_NODE]):
            if not flat:
                break
            own, end = node_row[node], node_own[node]
            flat = node_group[node] == node_group[node + 1] and row_tests[own] == row_tests[end]
        groups[g, G_FLAT] = 1 if flat else 0
