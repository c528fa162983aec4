"""Kernels for the content graph: the immediate predecessors of each filter, and what follows from these edges.

A filter that covers b is a *coverer* of b. The immediate predecessors of b are its *least* coverers: those that cover
no other coverer of b.

Filters with the same skeleton (`model/witness.py`) form a *group*. A filter is a point: its coordinates are, for each
span of its group, the least key and the greatest key negated. So of two filters of a group, f covers h if and only if
no coordinate of f is above that of h. The points of a group with more than a few members are a k-d tree
(`kd_trees.py`). For each group, `above` lists the other groups whose skeleton covers its own. Groups are numbered such
that a group above another has the smaller number.

To find the least coverers of b, the search goes through its own group and the groups above, from the most special to
the most general. In each it looks for points at or below the point of b. It skips what covers a coverer that it has
already; the *shadow* of such a coverer is its point in the dimensions of the group that is searched. A whole node is
skipped if the highest corner of its bounds covers a shadow. So the work grows with the number of least coverers, not
with the number of filters.

A filter without a shape is *hard*. It is a group of its own, with its hull as the only point. Which filters it covers
was decided before and is listed in `hard`.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# ruff: noqa: SIM110 -- plain comparisons compile to the plainest code

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.matching.kernels.jit import Ints, inlined, kernel
from catchment.matching.kernels.kd_trees import DEPTH_MAX, build_trees


class Forest(NamedTuple):
    """All groups and their filters. An array called `starts` has one entry more than there are groups, or filters: list
    i goes from `starts[i]` to `starts[i + 1]`."""

    group_of: Ints  # by filter
    is_hard: Ints  # by filter
    is_left_out: Ints  # by filter: another has the same meaning
    firsts: Ints  # by group: its first filter
    lasts: Ints  # by group: the end of its filters
    bases: Ints  # by group: where its points begin
    points: Ints
    dim_starts: Ints  # by group: its dimensions, rising
    dims: Ints
    roots: Ints  # by group: the root of its tree, or -1
    nodes: Ints
    bounds: Ints
    above_starts: Ints  # by group: the groups above it, rising
    above: Ints
    hard_starts: Ints  # by filter: the hard filters that cover it, rising
    hard: Ints


class Search(NamedTuple):
    """The arrays that a search for the coverers of b works in."""

    marks: Ints  # by group: b, if a coverer of b was found in a group below it
    wanted: Ints  # the point of b in the dimensions of the group that is searched
    shadows: Ints  # the shadows of the coverers in that group
    stack: Ints  # nodes still to be visited
    coverers: Ints  # the coverers so far
    covering: Ints  # by hard coverer: 1 if it covers another coverer


# --- searching ----------------------------------------------------------------------------------


@kernel
def holds(values: Ints, first: int, last: int, wanted: int) -> bool:
    """Whether a sorted part of an array holds a number."""
    end = last
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first < end and values[first] == wanted


@inlined
def project(t: Forest, g: int, f: int, out: Ints) -> None:
    """Writes the coordinates of filter f in the dimensions of group g, which are among those of its own group."""
    own = t.group_of[f]
    at = t.dim_starts[own]
    place = t.bases[own] + (f - t.firsts[own]) * 2 * (t.dim_starts[own + 1] - at)
    for k in range(t.dim_starts[g], t.dim_starts[g + 1]):
        while t.dims[at] != t.dims[k]:
            at += 1
        j = 2 * (at - t.dim_starts[own])
        to = 2 * (k - t.dim_starts[g])
        out[to], out[to + 1] = t.points[place + j], t.points[place + j + 1]


@kernel
def is_below(points: Ints, at: int, bound: Ints, width: int) -> bool:
    """Whether no coordinate of the point at `at` is above that of `bound`: then the point covers it."""
    for j in range(width):
        if points[at + j] > bound[j]:
            return False
    return True


@kernel
def covers_shadow(points: Ints, at: int, shadows: Ints, count: int, width: int) -> bool:
    """Whether a point covers one of the shadows."""
    for i in range(count):
        if is_below(points, at, shadows[i], width):
            return True
    return False


@kernel
def without_covering(
    points: Ints, at: int, coverers: Ints, shadows: Ints, shadow_count: int, before: int, count: int, width: int
) -> int:
    """Leaves out the coverers from `before` on that cover the point at `at`; returns how many coverers are left."""
    kept = before
    for i in range(before, count):
        shadow = shadows[shadow_count + i - before]
        covers = True
        for j in range(width):
            if shadow[j] > points[at + j]:
                covers = False
                break
        if not covers:
            coverers[kept] = coverers[i]
            for j in range(width):
                shadows[shadow_count + kept - before, j] = shadow[j]
            kept += 1
    return kept


@inlined
def scan(
    t: Forest, s: Search, b: int, g: int, first: int, last: int, shadow_count: int, before: int, count: int
) -> int:
    """Adds the filters first to last of group g that cover b and no coverer so far. Those found in this group, from
    `before` on, have their shadows behind the `shadow_count` others. Returns how many coverers there are then, or -1 if
    an array is too short."""
    width = 2 * (t.dim_starts[g + 1] - t.dim_starts[g])
    for f in range(first, last):
        at = t.bases[g] + (f - t.firsts[g]) * width
        if f == b or not is_below(t.points, at, s.wanted, width):
            continue
        if covers_shadow(t.points, at, s.shadows, shadow_count + count - before, width):
            continue
        count = without_covering(t.points, at, s.coverers, s.shadows, shadow_count, before, count, width)
        place = shadow_count + count - before
        if count == len(s.coverers) or place == len(s.shadows):
            return -1
        s.coverers[count] = f
        for j in range(width):
            s.shadows[place, j] = t.points[at + j]
        count += 1
    return count


@inlined
def search_group(t: Forest, s: Search, b: int, g: int, shadow_count: int, count: int) -> int:
    """Adds the least coverers of b in group g. Returns how many coverers there are then, or -1 if an array is too
    short."""
    before, root = count, t.roots[g]
    if root < 0:
        return scan(t, s, b, g, t.firsts[g], t.lasts[g], shadow_count, before, count)
    width = 2 * (t.dim_starts[g + 1] - t.dim_starts[g])
    s.stack[0] = root
    top = 1
    while top > 0 and count >= 0:
        top -= 1
        node = s.stack[top]
        at = t.nodes[node, 4]
        if not is_below(t.bounds, at, s.wanted, width):
            continue  # not even the lowest corner covers b
        if covers_shadow(t.bounds, at + width, s.shadows, shadow_count + count - before, width):
            continue  # the highest corner covers a coverer, so every point here does
        if t.nodes[node, 2] < 0:
            count = scan(t, s, b, g, t.nodes[node, 0], t.nodes[node, 1], shadow_count, before, count)
        else:
            # The higher half is on top of the stack: it is nearer to b, and its coverers rule out more of the other.
            s.stack[top], s.stack[top + 1] = t.nodes[node, 2], t.nodes[node, 3]
            top += 2
    return count


@inlined
def mark(t: Forest, s: Search, g: int, b: int) -> None:
    """Marks the groups above g: a coverer of b was found below them."""
    for k in range(t.above_starts[g], t.above_starts[g + 1]):
        s.marks[t.above[k]] = b


@inlined
def cast_shadows(t: Forest, s: Search, g: int, count: int) -> int:
    """Writes the shadows, in group g, of the coverers from groups below it. Returns how many, or -1 if the array is too
    short."""
    shadow_count = 0
    for i in range(count):
        other = t.group_of[s.coverers[i]]
        if holds(t.above, t.above_starts[other], t.above_starts[other + 1], g):
            if shadow_count == len(s.shadows):
                return -1
            project(t, g, s.coverers[i], s.shadows[shadow_count])
            shadow_count += 1
    return shadow_count


@inlined
def least_coverers(t: Forest, s: Search, b: int) -> int:
    """Writes the least coverers of b to `s.coverers`. Returns how many, or -1 if an array is too short."""
    own, count = t.group_of[b], 0
    for k in range(t.hard_starts[b], t.hard_starts[b + 1]):
        if count == len(s.coverers):
            return -1
        s.coverers[count] = t.hard[k]
        count += 1
        mark(t, s, t.group_of[t.hard[k]], b)
    hards = count
    # First its own group, then the groups above from the largest number down: a group comes before those above it.
    last = t.above_starts[own + 1]
    for k in range(last, t.above_starts[own] - 1, -1):
        g = own if k == last else t.above[k]
        is_marked = s.marks[g] == b
        is_flat = t.dim_starts[g + 1] == t.dim_starts[g]
        # A group without spans has a single meaning. Within its own group, b equals it; a marked one covers a coverer.
        if (g == own and (t.is_hard[b] or is_flat)) or (is_flat and is_marked):
            continue
        shadow_count = cast_shadows(t, s, g, count) if is_marked else 0
        if shadow_count < 0:
            return -1
        project(t, g, b, s.wanted)
        before = count
        count = search_group(t, s, b, g, shadow_count, count)
        if count < 0:
            return -1
        if count > before:
            mark(t, s, g, b)
    return without_covering_hard(t, s, hards, count)


@inlined
def without_covering_hard(t: Forest, s: Search, hards: int, count: int) -> int:
    """Leaves out the hard coverers that cover another coverer; the first `hards` coverers are hard. Returns how many
    are left."""
    if hards == 0:
        return count
    for i in range(hards):
        s.covering[i] = 0
        for k in range(count):
            other = s.coverers[k]
            if k != i and holds(t.hard, t.hard_starts[other], t.hard_starts[other + 1], s.coverers[i]):
                s.covering[i] = 1
                break
    kept = 0
    for i in range(count):
        if i >= hards or not s.covering[i]:
            s.coverers[kept] = s.coverers[i]
            kept += 1
    return kept


@kernel
def immediate_edges(t: Forest, first: int, last: int, s: Search, predecessors: Ints, ends: Ints) -> int:
    """Writes the immediate predecessors of filters first to last, one list after another, and where each list ends. If
    an array is too short it stops. Returns the first filter that is not done, else `last`."""
    filled = 0
    for b in range(first, last):
        count = 0 if t.is_left_out[b] else least_coverers(t, s, b)
        if count < 0 or filled + count > len(predecessors):
            return b
        for i in range(count):
            predecessors[filled + i] = s.coverers[i]
        filled += count
        ends[b - first + 1] = filled
    return last


# --- what follows from the edges ----------------------------------------------------------------


@kernel
def successors_of(predecessors: Ints, ends: Ints, starts: Ints, successors: Ints) -> None:
    """Turns the lists of predecessors into lists of successors; `starts` gets where each list begins.

    `starts` is 0 at first. Entry i + 2 counts the successors of i; summed up, entry i + 1 is where its list begins, and
    filling the list moves that to its end, which is where the next list begins.
    """
    for edge in range(len(predecessors)):
        starts[predecessors[edge] + 2] += 1
    for node in range(2, len(starts)):
        starts[node] += starts[node - 1]
    for node in range(len(ends) - 1):
        for edge in range(ends[node], ends[node + 1]):
            before = predecessors[edge]
            successors[starts[before + 1]] = node
            starts[before + 1] += 1


@kernel
def depths(ends: Ints, starts: Ints, successors: Ints, order: Ints, depth: Ints, waiting: Ints) -> int:
    """Writes the length of the longest path from a root to each filter, and an order in which predecessors come first.
    Returns how many filters are in the order: all of them, if the graph has no cycle."""
    count = len(ends) - 1
    filled = 0
    for node in range(count):
        waiting[node] = ends[node + 1] - ends[node]
        depth[node] = 0
        if waiting[node] == 0:
            order[filled] = node
            filled += 1
    done = 0
    while done < filled:
        node = order[done]
        done += 1
        for k in range(starts[node], starts[node + 1]):
            after = successors[k]
            depth[after] = max(depth[after], depth[node] + 1)
            waiting[after] -= 1
            if waiting[after] == 0:
                order[filled] = after
                filled += 1
    return filled


@kernel
def held_above(order: Ints, starts: Ints, successors: Ints, held: Ints, above: Ints) -> None:
    """Writes for each filter the brokers, as bits, that hold another filter that covers it."""
    above[:] = 0
    for i in range(len(order)):
        node = order[i]
        down = held[node] | above[node]
        if down:
            for k in range(starts[node], starts[node + 1]):
                above[successors[k]] |= down


# --- equals -------------------------------------------------------------------------------------


@kernel
def mutual(t: Forest, rows: Ints, hard: Ints, shadow: Ints, is_mutual: Ints) -> None:
    """For pairs of a filter and a hard filter that covers it: whether the filter covers the hard one too."""
    for i in range(len(rows)):
        f, h = rows[i], hard[i]
        if t.is_hard[f]:
            is_mutual[i] = holds(t.hard, t.hard_starts[h], t.hard_starts[h + 1], f)
            continue
        g, other = t.group_of[f], t.group_of[h]
        if holds(t.above, t.above_starts[other], t.above_starts[other + 1], g):
            width = 2 * (t.dim_starts[g + 1] - t.dim_starts[g])
            project(t, g, h, shadow)
            is_mutual[i] = is_below(t.points, t.bases[g] + (f - t.firsts[g]) * width, shadow, width)


# --- warming ------------------------------------------------------------------------------------


def warm() -> None:
    """Compiles every kernel by calling it, with arrays of the types that the pipeline uses: two filters, one above the
    other."""
    i8, i32, i64 = np.int8, np.int32, np.int64
    points, nodes, bounds = np.array([1, -9, 2, -8], i64), np.empty((5, 5), i64), np.empty(17, i64)
    sizes, widths, order, roots = np.array([2], i64), np.array([2], i64), np.arange(2, dtype=i64), np.empty(1, i64)
    build_trees(sizes, widths, points, order, roots, nodes, bounds, np.empty((DEPTH_MAX + 4, 3), i64))
    lists = np.zeros(2, i64), np.zeros(0, i32)
    forest = Forest(
        np.zeros(2, i32), np.zeros(2, i8), np.zeros(2, i8), np.zeros(1, i64), np.array([2], i64), np.zeros(1, i64),
        points, np.array([0, 1], i64), np.zeros(1, i32), roots, nodes, bounds, *lists, np.zeros(3, i64), lists[1],
    )  # fmt: skip
    few = [np.empty(4, i64) for _ in range(4)]
    search = Search(np.full(1, -1, i64), few[0], np.empty((4, 4), i64), np.empty(DEPTH_MAX + 4, i64), few[1], few[2])
    predecessors, ends = np.empty(8, i32), np.zeros(3, i64)
    immediate_edges(forest, 0, 2, search, predecessors, ends)
    starts, successors, depth = np.zeros(4, i64), np.empty(1, i32), np.empty(2, i32)
    successors_of(predecessors[:1], ends, starts, successors)
    depths(ends, starts[:-1], successors, order, depth, few[3])
    held_above(order, starts[:-1], successors, np.zeros(2, i64), np.zeros(2, i64))
    mutual(forest, np.zeros(0, i64), lists[1], few[0], np.zeros(0, np.bool_))
