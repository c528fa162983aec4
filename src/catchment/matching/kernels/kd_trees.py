"""Kernels that make k-d trees of points, for the search of coverers in `graph.py`.

A node has points first to last, and the lowest and the highest of each of their coordinates (its *bounds*). A leaf has
few points; any other node has two children, which part its points along one coordinate.

`points` holds the coordinates of all points of all groups, one point after another. `width` is how many coordinates a
point of a group has, and `base` where the points of the group begin.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# ruff: noqa: PLR1730 -- plain comparisons compile to the plainest code

from __future__ import annotations

from catchment.matching.kernels.jit import Ints, kernel

# Nodes of so few points are not split.
LEAF_POINTS = 8
# No number of points can be halved more often than this. A split halves a node, or else one of the next two splits
# leaves a half whose points agree in the coordinate. So no tree is deeper than this plus twice the coordinates.
DEPTH_MAX = 64


@kernel
def _write_bounds(points: Ints, first: int, last: int, width: int, base: int, out: Ints, at: int) -> None:
    """Writes the lowest and then the highest of each coordinate of the points of a node."""
    for j in range(width):
        low = high = points[base + first * width + j]
        for i in range(first + 1, last):
            coordinate = points[base + i * width + j]
            if coordinate < low:
                low = coordinate
            if coordinate > high:
                high = coordinate
        out[at + j], out[at + width + j] = low, high


@kernel
def _swap(points: Ints, order: Ints, a: int, b: int, width: int, base: int) -> None:
    order[a], order[b] = order[b], order[a]
    for k in range(width):
        left, right = base + a * width + k, base + b * width + k
        points[left], points[right] = points[right], points[left]


@kernel
def _median(points: Ints, order: Ints, first: int, last: int, width: int, base: int, j: int) -> int:
    """The median along coordinate j. Brings that point to the middle by Hoare's selection: it partitions the points
    around a pivot, again and again, and goes on with the part that holds the middle."""
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
                _swap(points, order, i, k, width, base)
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
def _split(points: Ints, order: Ints, first: int, last: int, width: int, base: int, j: int) -> int:
    """Parts the points of a node along coordinate j, in which some of them differ. Points that agree in it stay in the
    same part. Returns where the higher part begins."""
    median = _median(points, order, first, last, width, base, j)
    cut = first
    for i in range(first, last):
        if points[base + i * width + j] < median:
            _swap(points, order, cut, i, width, base)
            cut += 1
    if cut == first:  # none is below the median: then the lower part is the points at the median
        for i in range(first, last):
            if points[base + i * width + j] == median:
                _swap(points, order, cut, i, width, base)
                cut += 1
    return cut


@kernel
def _coordinate_to_split(
    points: Ints, first: int, last: int, width: int, base: int, bounds: Ints, at: int, turn: int
) -> int:
    """The coordinate with the most differences between points next to each other in a sample; -1 if all points are
    equal. `turn` says with which coordinate to begin, so that ties do not always choose the same one."""
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
    """Makes a tree of each group that has more points than a leaf, and brings the points and `order` into its order.

    A line of `nodes` is (first, last, left, right, place in bounds). Points are numbered through all groups; left is -1
    in a leaf. `roots` gets the root of each group, or -1. Returns the number of nodes.
    """
    count, filled, start, base = 0, 0, 0, 0  # nodes made, bounds written, first point of the group, and its place
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
                _write_bounds(points, first, last, width, base, bounds, filled)
                nodes[node, 0], nodes[node, 1], nodes[node, 2] = start + first, start + last, -1
                nodes[node, 4] = filled
                filled += 2 * width
                if last - first <= LEAF_POINTS:
                    continue
                j = _coordinate_to_split(points, first, last, width, base, bounds, nodes[node, 4], node)
                if j < 0:
                    continue
                middle = _split(points, order[start : start + size], first, last, width, base, j)
                nodes[node, 2], nodes[node, 3] = count, count + 1
                stack[top, 0], stack[top, 1], stack[top, 2] = count, first, middle
                stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = count + 1, middle, last
                top += 2
                count += 2
        start += size
        base += size * width
    return count
