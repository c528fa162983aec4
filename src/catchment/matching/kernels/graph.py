"""Kernels for the content graph: which of many filters are the least that cover one, and what follows from the edges.

Filters come in *groups* of one skeleton (`model/witness.py`). A filter of group g is a point: of each span of g the
least key, and the greatest negated, so that f covers g's other member h just if no coordinate of f is above h's. A
group that has more than a few members is a k-d tree of such points; of a node the lowest and the highest coordinates
are known. `above` lists for each group those whose skeleton covers its own, itself not included; groups are numbered
so that what covers has the smaller number.

To find the least coverers of b, its groups are searched from the most special to the most general, for points at or
below b's. What covers a filter that was found already is not looked at: a node is left out as a whole if its highest
corner covers one. So the search costs what it finds, not what there is. Filters without a shape (*hard* ones) are
groups of one point, their hull; which of them cover what was decided before and is listed in `hard`.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# ruff: noqa: SIM110, PLR1730 -- plain comparisons compile to the plainest code

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.matching.kernels.jit import Ints, inlined, kernel

# Nodes of so few points are not split.
LEAF_POINTS = 8
# Halvings of any number of points. A split halves a node, or else one of the next two leaves a half constant in one
# coordinate: no tree is deeper than this and twice the coordinates.
DEPTH_MAX = 64


class Forest(NamedTuple):
    """All groups and their filters. What is listed by group, or by filter, has one place more where it is `starts`."""

    group_of: Ints  # by filter
    is_hard: Ints
    is_left_out: Ints  # it says the same as another
    firsts: Ints  # by group: its filters
    lasts: Ints
    bases: Ints  # by group: its points
    points: Ints
    dim_starts: Ints  # by group: its dimensions, rising
    dims: Ints
    roots: Ints  # by group: its tree
    nodes: Ints
    bounds: Ints
    above_starts: Ints  # by group: groups above it, rising
    above: Ints
    hard_starts: Ints  # by filter: hard filters that cover it, rising
    hard: Ints


class Search(NamedTuple):
    """Room to search with."""

    marks: Ints
    wanted: Ints
    shadows: Ints
    stack: Ints
    found: Ints
    covering: Ints


# --- trees --------------------------------------------------------------------------------------


@kernel
def bounds_of(points: Ints, first: int, last: int, width: int, base: int, out: Ints, at: int) -> None:
    """The lowest and the highest coordinates of the points of a node."""
    for j in range(width):
        low = high = points[base + first * width + j]
        for i in range(first + 1, last):
            found = points[base + i * width + j]
            if found < low:
                low = found
            if found > high:
                high = found
        out[at + j], out[at + width + j] = low, high


@kernel
def swap(points: Ints, order: Ints, a: int, b: int, width: int, base: int) -> None:
    order[a], order[b] = order[b], order[a]
    for k in range(width):
        left, right = base + a * width + k, base + b * width + k
        points[left], points[right] = points[right], points[left]


@kernel
def select(points: Ints, order: Ints, first: int, last: int, width: int, base: int, j: int) -> int:
    """Brings the median along coordinate j to the middle (Hoare); the median."""
    low, high, middle = first, last - 1, (first + last) >> 1
    while low < high:
        pivot = points[base + ((low + high) >> 1) * width + j]
        i, k = low, high
        while i <= k:
            while points[base + i * width + j] < pivot:
                i += 1
            while points[base + k * width + j] > pivot:
                k -= 1
            if i <= k:
                swap(points, order, i, k, width, base)
                i += 1
                k -= 1
        if middle <= k:
            high = k
        elif middle >= i:
            low = i
        else:
            break
    return points[base + middle * width + j]


@kernel
def split(points: Ints, order: Ints, first: int, last: int, width: int, base: int, j: int) -> int:
    """Parts the points of a node along coordinate j, in which they differ, without cutting equal ones apart: where the
    higher half begins."""
    median = select(points, order, first, last, width, base, j)
    cut = first
    for i in range(first, last):
        if points[base + i * width + j] < median:
            swap(points, order, cut, i, width, base)
            cut += 1
    if cut == first:
        for i in range(first, last):
            if points[base + i * width + j] == median:
                swap(points, order, cut, i, width, base)
                cut += 1
    return cut


@kernel
def widest(points: Ints, first: int, last: int, width: int, base: int, bounds: Ints, at: int, turn: int) -> int:
    """The coordinate to split along: that in which most points differ from the one before, of some of them."""
    best, most = -1, -1
    for shift in range(width):
        j = (turn + shift) % width
        if bounds[at + j] == bounds[at + width + j]:
            continue
        differ = 0
        step = max(1, (last - first) // 32)
        for i in range(first + step, last, step):
            if points[base + i * width + j] != points[base + (i - step) * width + j]:
                differ += 1
        if differ > most:
            best, most = j, differ
    return best


@kernel
def build_trees(
    sizes: Ints, widths: Ints, points: Ints, order: Ints, roots: Ints, nodes: Ints, bounds: Ints, stack: Ints
) -> int:
    """Makes a tree of each group with more than a leaf's points, and brings the points and `order` into its order.

    `nodes` has rows (first, last, left, right, place in bounds) with points numbered from the first of all groups;
    left is -1 in a leaf. `roots` gets the node of each group, or -1. Gives the number of nodes."""
    count, filled, start, base = 0, 0, 0, 0
    for group in range(len(sizes)):
        size, width = sizes[group], widths[group]
        roots[group] = -1
        if size > LEAF_POINTS and width > 0:
            roots[group] = count
            stack[0, 0], stack[0, 1], stack[0, 2] = count, 0, size
            count += 1
            top = 1
            while top > 0:
                top -= 1
                node, first, last = stack[top, 0], stack[top, 1], stack[top, 2]
                bounds_of(points, first, last, width, base, bounds, filled)
                nodes[node, 0], nodes[node, 1], nodes[node, 2] = start + first, start + last, -1
                nodes[node, 4] = filled
                filled += 2 * width
                if last - first <= LEAF_POINTS:
                    continue
                j = widest(points, first, last, width, base, bounds, nodes[node, 4], node)
                if j < 0:
                    continue
                middle = split(points, order[start : start + size], first, last, width, base, j)
                nodes[node, 2], nodes[node, 3] = count, count + 1
                stack[top, 0], stack[top, 1], stack[top, 2] = count, first, middle
                stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = count + 1, middle, last
                top += 2
                count += 2
        start += size
        base += size * width
    return count


# --- searching ----------------------------------------------------------------------------------


@kernel
def holds(values: Ints, first: int, last: int, wanted: int) -> bool:
    """Whether a sorted part of an array has a number."""
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
    """The coordinates of filter f in the dimensions of group g, which are among its own."""
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
    for j in range(width):
        if points[at + j] > bound[j]:
            return False
    return True


@kernel
def covers_found(points: Ints, at: int, shadows: Ints, count: int, width: int) -> bool:
    """Whether a point covers one of the filters found, by their shadows in its dimensions."""
    for i in range(count):
        if is_below(points, at, shadows[i], width):
            return True
    return False


@kernel
def without_covering(
    points: Ints, at: int, found: Ints, shadows: Ints, shadow_count: int, before: int, count: int, width: int
) -> int:
    """Leaves out those found since `before` that cover the point; how many are left."""
    kept = before
    for i in range(before, count):
        shadow = shadows[shadow_count + i - before]
        covers = True
        for j in range(width):
            if shadow[j] > points[at + j]:
                covers = False
                break
        if not covers:
            found[kept] = found[i]
            for j in range(width):
                shadows[shadow_count + kept - before, j] = shadow[j]
            kept += 1
    return kept


@inlined
def scan(
    t: Forest, s: Search, b: int, g: int, first: int, last: int, shadow_count: int, before: int, count: int
) -> int:
    """Takes in filters of group g that cover b and nothing found. The shadows of those found in this group, since
    `before`, stand after the others. How many are found then, or -1 for want of room."""
    width = 2 * (t.dim_starts[g + 1] - t.dim_starts[g])
    for f in range(first, last):
        at = t.bases[g] + (f - t.firsts[g]) * width
        if f == b or not is_below(t.points, at, s.wanted, width):
            continue
        if covers_found(t.points, at, s.shadows, shadow_count + count - before, width):
            continue
        count = without_covering(t.points, at, s.found, s.shadows, shadow_count, before, count, width)
        place = shadow_count + count - before
        if count == len(s.found) or place == len(s.shadows):
            return -1
        s.found[count] = f
        for j in range(width):
            s.shadows[place, j] = t.points[at + j]
        count += 1
    return count


@inlined
def search_group(t: Forest, s: Search, b: int, g: int, shadow_count: int, count: int) -> int:
    """Adds the least coverers of b in group g to those found; how many are found then, or -1 for want of room."""
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
            continue
        if covers_found(t.bounds, at + width, s.shadows, shadow_count + count - before, width):
            continue
        if t.nodes[node, 2] < 0:
            count = scan(t, s, b, g, t.nodes[node, 0], t.nodes[node, 1], shadow_count, before, count)
        else:
            # The higher half is nearer to b, and what is found there makes the other one smaller.
            s.stack[top], s.stack[top + 1] = t.nodes[node, 2], t.nodes[node, 3]
            top += 2
    return count


@inlined
def mark(t: Forest, s: Search, g: int, b: int) -> None:
    """Says of the groups above g that something found lies below them."""
    for k in range(t.above_starts[g], t.above_starts[g + 1]):
        s.marks[t.above[k]] = b


@inlined
def cast_shadows(t: Forest, s: Search, g: int, count: int) -> int:
    """The shadows in group g of what was found in groups below it; how many, or -1 for want of room."""
    shadow_count = 0
    for i in range(count):
        other = t.group_of[s.found[i]]
        if holds(t.above, t.above_starts[other], t.above_starts[other + 1], g):
            if shadow_count == len(s.shadows):
                return -1
            project(t, g, s.found[i], s.shadows[shadow_count])
            shadow_count += 1
    return shadow_count


@inlined
def least_coverers(t: Forest, s: Search, b: int) -> int:
    """Writes the least of the filters that cover b into `found`; their number, or -1 for want of room."""
    own, count = t.group_of[b], 0
    for k in range(t.hard_starts[b], t.hard_starts[b + 1]):
        if count == len(s.found):
            return -1
        s.found[count] = t.hard[k]
        count += 1
        mark(t, s, t.group_of[t.hard[k]], b)
    hards = count
    # Its own group first, then from the largest number down: what covers has the smaller one.
    last = t.above_starts[own + 1]
    for k in range(last, t.above_starts[own] - 1, -1):
        g = own if k == last else t.above[k]
        is_marked = s.marks[g] == b
        is_flat = t.dim_starts[g + 1] == t.dim_starts[g]
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
    """Leaves out hard filters that cover another of those found."""
    if hards == 0:
        return count
    for i in range(hards):
        s.covering[i] = 0
        for k in range(count):
            other = s.found[k]
            if k != i and holds(t.hard, t.hard_starts[other], t.hard_starts[other + 1], s.found[i]):
                s.covering[i] = 1
                break
    kept = 0
    for i in range(count):
        if i >= hards or not s.covering[i]:
            s.found[kept] = s.found[i]
            kept += 1
    return kept


@kernel
def immediate_edges(t: Forest, first: int, last: int, s: Search, predecessors: Ints, ends: Ints) -> int:
    """The immediate predecessors of filters from `first` to `last`, one list after another, and where each ends. Stops
    where `predecessors`, or what is to search with, has no room: gives the first filter not done."""
    filled = 0
    for b in range(first, last):
        count = 0 if t.is_left_out[b] else least_coverers(t, s, b)
        if count < 0 or filled + count > len(predecessors):
            return b
        for i in range(count):
            predecessors[filled + i] = s.found[i]
        filled += count
        ends[b - first + 1] = filled
    return last


# --- what follows from the edges ----------------------------------------------------------------


@kernel
def successors_of(predecessors: Ints, ends: Ints, starts: Ints, successors: Ints) -> None:
    """Edges by predecessor, from lists by successor: `starts` gets where each list begins."""
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
    """The longest way from a root to each filter, and an order in which predecessors come first; how many have one,
    which is all of them in a graph without circles."""
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
            if depth[node] + 1 > depth[after]:
                depth[after] = depth[node] + 1
            waiting[after] -= 1
            if waiting[after] == 0:
                order[filled] = after
                filled += 1
    return filled


@kernel
def held_above(order: Ints, starts: Ints, successors: Ints, held: Ints, above: Ints) -> None:
    """For each filter, the brokers (bits) that hold something that covers it."""
    above[:] = 0
    for i in range(len(order)):
        node = order[i]
        down = held[node] | above[node]
        if down:
            for k in range(starts[node], starts[node + 1]):
                above[successors[k]] |= down


# --- equals -------------------------------------------------------------------------------------


@kernel
def mutual(t: Forest, rows: Ints, hard: Ints, shadow: Ints, found: Ints) -> None:
    """Of pairs of a filter and a hard one that covers it, which are covered the other way too."""
    for i in range(len(rows)):
        f, h = rows[i], hard[i]
        if t.is_hard[f]:
            found[i] = holds(t.hard, t.hard_starts[h], t.hard_starts[h + 1], f)
            continue
        g, other = t.group_of[f], t.group_of[h]
        if holds(t.above, t.above_starts[other], t.above_starts[other + 1], g):
            width = 2 * (t.dim_starts[g + 1] - t.dim_starts[g])
            project(t, g, h, shadow)
            found[i] = is_below(t.points, t.bases[g] + (f - t.firsts[g]) * width, shadow, width)


# --- warming ------------------------------------------------------------------------------------


def warm() -> None:
    """Takes every kernel once, with arrays of the types that the pipeline has: two filters, one above the other."""
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
