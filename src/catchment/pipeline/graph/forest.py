"""The content graph from its parts: the forest of all groups' trees, the immediate edges, and what follows from them.

parts, covers ─► forest ─► immediate predecessors, part by part ─► depth, degrees, roots, what brokers propagate
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.matching.kernels import graph as kg
from catchment.matching.kernels import kd_trees
from catchment.matching.kernels.graph import Forest
from catchment.model.witness import JUNK
from catchment.pipeline.graph.covers import Lists, PartMatcher, groups_above, hard_above
from catchment.pipeline.graph.parts import Part, hard_matcher, mapped, part_of, skeleton_matcher

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Brokers that one pass over the edges handles: one bit of an integer each.
_BITS: Final = 63
# This many brokers take a thousand passes, some 20 ms each with a million filters. Past it `reduced` is left empty.
BROKERS_MAX: Final = 65_536
# Predecessors of one filter that there is room for at first.
PREDECESSORS_FEW: Final = 64


class PartCovers(NamedTuple):
    """What covers the filters of a part: the groups above each group, and the hard filters above each filter."""

    groups: Lists
    hard: Lists


class Graph(NamedTuple):
    """The graph, by filter. The representative of a filter is an equal filter, or the filter itself. A filter that is
    not its own representative has no edges, and has the depth of its representative. `is_reduced_to` says for each pair
    of filter and broker whether the broker needs the filter."""

    depth: Array
    in_degree: Array
    out_degree: Array
    representative: Array
    is_reduced_to: Array


# --- the forest ---------------------------------------------------------------------------------


def forest_of(parts: Sequence[Part], covers: Sequence[PartCovers]) -> tuple[Forest, Array]:
    """One forest of all parts, and the representative of each filter."""
    filters, points, nodes, bounds = _bases(parts)
    sizes = np.concatenate([np.diff(part_covers.groups.starts) for part_covers in covers])
    # A group has fewer groups above it than any group that it covers. So in this order what covers comes first, as the
    # kernels need it.
    order = np.argsort(sizes, kind="stable")
    rank = np.empty(len(order), I64)
    rank[order] = np.arange(len(order))
    firsts = np.concatenate([part.firsts[:-1] + base for part, base in zip(parts, filters, strict=False)])
    counts = np.concatenate([part.arrays["sizes"] for part in parts])
    dim_starts, dims = _dims(parts, order)
    above_starts, above = _joined([part_covers.groups for part_covers in covers], order)
    hard_starts, hard = _joined([part_covers.hard for part_covers in covers], None)
    group_of = np.concatenate([part.group_of + base for part, base in zip(parts, _group_bases(parts), strict=False)])
    is_hard = np.concatenate([part.arrays["is_hard"] for part in parts])
    forest = Forest(
        group_of=rank[group_of].astype(I32),
        is_hard=is_hard[group_of],
        is_left_out=np.zeros(int(filters[-1]), np.int8),
        firsts=firsts[order],
        lasts=(firsts + counts)[order],
        bases=np.concatenate([part.bases[:-1] + base for part, base in zip(parts, points, strict=False)])[order],
        points=np.concatenate([part.arrays["points"] for part in parts]),
        dim_starts=dim_starts,
        dims=dims,
        roots=np.concatenate([_shifted(part.arrays["roots"], base) for part, base in zip(parts, nodes, strict=False)])[
            order
        ],
        nodes=np.concatenate([_nodes(part, *base) for part, *base in zip(parts, filters, nodes, bounds, strict=False)]),
        bounds=np.concatenate([part.arrays["bounds"] for part in parts]),
        above_starts=above_starts,
        above=_sorted_lists(above_starts, rank[above].astype(I32)),
        hard_starts=hard_starts,
        hard=hard,
    )
    return _without_equals(forest)


def _bases(parts: Sequence[Part]) -> list[Array]:
    """Where each part begins among all filters, points, nodes and bounds."""
    sizes = [
        (part.filters, len(part.arrays["points"]), len(part.arrays["nodes"]), len(part.arrays["bounds"]))
        for part in parts
    ]
    return list(np.concatenate((np.zeros((1, 4), I64), np.cumsum(sizes, axis=0))).T)


def _group_bases(parts: Sequence[Part]) -> Array:
    """Where each part begins among all groups."""
    return np.concatenate((np.zeros(1, I64), np.cumsum([part.groups for part in parts])))


def _shifted(places: Array, base: int) -> Array:
    """Places in a part as places among all parts; a negative place means none, and stays."""
    return np.where(places < 0, places, places + base)


def _nodes(part: Part, filters: int, nodes: int, bounds: int) -> Array:
    """The nodes of a part's trees: first and last filter, the two children, and the bounds."""
    shifted = part.arrays["nodes"].copy()
    shifted[:, :2] += filters
    shifted[:, 2:4] = _shifted(shifted[:, 2:4], nodes)
    shifted[:, 4] += bounds
    return shifted


def _dims(parts: Sequence[Part], order: Array) -> tuple[Array, Array]:
    """The dimensions of groups, which are their spans, in the given order. Spans of all parts are numbered alike."""
    names = sorted({name for part in parts for name in part.span_names})
    number_of = {name: i for i, name in enumerate(names)}
    renumbered = []
    for part in parts:
        numbers = np.array([number_of[name] for name in part.span_names], I32)
        renumbered.append(Lists(part.arrays["span_starts"], numbers[part.arrays["spans"]]))
    return _joined(renumbered, order)


def _joined(lists: Sequence[Lists], order: Array | None) -> tuple[Array, Array]:
    """The lists of all parts one after another, then in the given order: starts and values."""
    sizes = np.concatenate([np.diff(part_lists.starts) for part_lists in lists])
    values = np.concatenate([part_lists.values for part_lists in lists]).astype(I32)
    starts = np.concatenate((np.zeros(1, I64), np.cumsum(sizes)))
    if order is None:
        return starts, values
    new_starts = np.concatenate((np.zeros(1, I64), np.cumsum(sizes[order])))
    # By new place, the old one: within a list both rise together, so a list has one distance between them.
    places = np.arange(len(values)) + np.repeat(starts[order] - new_starts[:-1], sizes[order])
    return new_starts, values[places]


def _sorted_lists(starts: Array, values: Array) -> Array:
    """The values, those of each list in rising order."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return values[np.argsort(rows << 32 | values, kind="stable")]


# --- equals -------------------------------------------------------------------------------------


def _without_equals(forest: Forest) -> tuple[Forest, Array]:
    """The forest without hard filters that are equal to another filter, and the representative of each filter: an equal
    filter with a shape, or else the equal hard filter with the least number."""
    representative = np.arange(len(forest.group_of))
    rows = np.repeat(representative, np.diff(forest.hard_starts))
    if not len(rows):
        return forest, representative
    mutual, width = np.zeros(len(rows), bool), 2 * int(np.diff(forest.dim_starts).max(initial=0))
    kg.mutual(forest, rows, forest.hard, np.empty(width + 1, I64), mutual)
    for row, hard in sorted(zip(rows[mutual].tolist(), forest.hard[mutual].tolist(), strict=True)):
        # A filter with a shape represents an equal hard one. Two equal hard filters are listed both ways: of these the
        # one with the smaller number represents the other.
        if not forest.is_hard[row] or row < hard:
            representative[hard] = representative[row]
    left_out = representative != np.arange(len(representative))
    kept = ~left_out[forest.hard]
    lists = Lists.of(len(representative), rows[kept], forest.hard[kept])
    is_left_out = left_out.astype(np.int8)
    return forest._replace(hard_starts=lists.starts, hard=lists.values, is_left_out=is_left_out), representative


# --- edges --------------------------------------------------------------------------------------


def predecessors_of(forest: Forest, first: int, last: int) -> Lists:
    """The immediate predecessors of the filters from `first` to before `last`."""
    width = 2 * int(np.diff(forest.dim_starts).max(initial=0))
    predecessors_max, parts, sizes, done = PREDECESSORS_FEW, [], [np.zeros(1, I64)], first
    room = np.empty(8 * (last - first) + 4 * PREDECESSORS_FEW, I32)
    while done < last:
        search = kg.Search(
            np.full(len(forest.firsts), -1, I64),
            np.empty(width + 1, I64),
            np.empty((predecessors_max, width + 1), I64),
            np.empty(kd_trees.DEPTH_MAX + 2 * width, I64),
            np.empty(predecessors_max, I64),
            np.empty(predecessors_max, I64),
        )
        ends = np.zeros(last - done + 1, I64)
        until = kg.immediate_edges(forest, done, last, search, room, ends)
        parts.append(room[: ends[until - done]].copy())
        sizes.append(np.diff(ends[: until - done + 1]))
        if until == done:  # not even one filter was done: its predecessors need more room
            predecessors_max *= 2
            room = np.empty(max(len(room), 4 * predecessors_max), I32)
        done = until
    return Lists(np.cumsum(np.concatenate(sizes)), np.concatenate(parts) if parts else np.zeros(0, I32))


# --- what follows from the edges ----------------------------------------------------------------


def graph_of(edges: Lists, representative: Array, pairs: Array, brokers: int) -> Graph:
    """Depth, degrees, and what brokers need. `pairs` of filter and broker are sorted."""
    count = len(representative)
    starts, successors = np.zeros(count + 2, I64), np.empty(len(edges.values), I32)
    kg.successors_of(edges.values, edges.starts, starts, successors)
    starts = starts[:-1]
    order, depth = np.empty(count, I64), np.empty(count, I32)
    ordered = kg.depths(edges.starts, starts, successors, order, depth, np.empty(count, I64))
    assert ordered == count, "the graph has a cycle"
    return Graph(
        depth[representative],
        np.diff(edges.starts).astype(I32),
        np.diff(starts).astype(I32),
        representative,
        _reduced(pairs, representative, brokers, order, starts, successors),
    )


def _reduced(
    pairs: Array, representative: Array, brokers: int, order: Array, starts: Array, successors: Array
) -> Array:
    """Which pairs a broker needs: no other filter that the broker holds covers the filter, or is equal to it and has a
    smaller number."""
    node = representative[pairs[:, 0]]
    is_uncovered = np.zeros(len(pairs), bool)
    if brokers > BROKERS_MAX:
        return is_uncovered
    # By filter, one bit for each broker of a pass: which brokers hold it, and which hold something above it. The bits
    # go down the edges, from a filter to its successors.
    held, above = np.empty(len(representative), I64), np.empty(len(representative), I64)
    by_broker = np.argsort(pairs[:, 1], kind="stable")
    for first in range(0, brokers, _BITS):
        places = by_broker[slice(*np.searchsorted(pairs[by_broker, 1], (first, first + _BITS)))]
        bit = np.left_shift(np.int64(1), pairs[places, 1] - first)
        held[:] = 0
        np.bitwise_or.at(held, node[places], bit)
        kg.held_above(order, starts, successors, held, above)
        is_uncovered[places] = above[node[places]] & bit == 0
    # Of equal filters that a broker holds, the first pair is kept: pairs are sorted, so it has the smallest number.
    key = node << 32 | pairs[:, 1]
    _, first_places = np.unique(key, return_index=True)
    is_first = np.zeros(len(pairs), bool)
    is_first[first_places] = True
    return is_uncovered & is_first


# --- all steps at once --------------------------------------------------------------------------


def graph_of_rows(rows: pa.Table) -> tuple[Part, Lists, Graph]:
    """The graph of filters that make one part, from rows of `CODED`: the part, its edges by successor, and the rest."""
    part = part_of(rows)
    matcher, used = skeleton_matcher(part)
    junk = free_junk(used)
    groups = groups_above(part, 0, [PartMatcher(matcher, 0, part)], junk)
    hard = hard_above(part, 0, [PartMatcher(hard_matcher(part), 0, part)], junk)
    forest, representative = forest_of([part], [PartCovers(groups, hard)])
    edges = predecessors_of(forest, 0, part.filters)
    return part, edges, graph_of(edges, representative, part.arrays["pairs"], len(part.brokers))


def free_junk(used: Collection[str]) -> str | None:
    """A character that no filter has, for witnesses; None if all that are tried are used."""
    return next((character for character in JUNK if character not in used), None)


# --- files --------------------------------------------------------------------------------------


def save_arrays(path: Path, arrays: NamedTuple) -> None:
    """Saves each array of a named tuple to a file of its own."""
    path.mkdir(parents=True, exist_ok=True)
    for name, array in arrays._asdict().items():
        np.save(path / f"{name}.npy", array, allow_pickle=False)


def open_forest(path: Path) -> Forest:
    return Forest(*(mapped(path / f"{name}.npy") for name in Forest._fields))


def open_lists(path: Path) -> Lists:
    return Lists(*(mapped(path / f"{name}.npy") for name in Lists._fields))


def open_graph(path: Path) -> Graph:
    return Graph(*(mapped(path / f"{name}.npy") for name in Graph._fields))
