"""The content graph from its parts: one forest of all groups, immediate edges, and what follows from them.

parts, lists ─► forest ─► immediate predecessors, part by part ─► depth, degrees, roots, what brokers propagate
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.matching import kernels_graph as kg
from catchment.matching.kernels_graph import Forest
from catchment.model.witness import JUNK
from catchment.pipeline.graph.covers import Lists, Shard, groups_above, hard_above
from catchment.pipeline.graph.parts import Part, hard_matcher, mapped, part_of, skeleton_matcher

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Brokers told apart in one pass over the edges.
_BITS: Final = 63
# A thousand passes over the edges, some 20 ms each with a million filters; past it `reduced` is left empty.
BROKERS_MAX: Final = 65_536
_FOUND_FEW: Final = 64


class Covers(NamedTuple):
    """What was found of one part: groups above its groups, hard filters above its filters."""

    groups: Lists
    hard: Lists


class Graph(NamedTuple):
    """The graph, by filter. `representative` is another filter that says the same, or itself; one that is not its own
    representative has no edges, and the depth of that. `reduced` says of each pair of the parts if it is needed."""

    depth: Array
    in_degree: Array
    out_degree: Array
    representative: Array
    is_reduced_to: Array


# --- the forest ---------------------------------------------------------------------------------


def forest_of(parts: Sequence[Part], covers: Sequence[Covers]) -> tuple[Forest, Array]:
    """One forest of all parts, and the representative of each filter."""
    filters, points, nodes, bounds = _bases(parts)
    sizes = np.concatenate([np.diff(one.groups.starts) for one in covers])
    order = np.argsort(sizes, kind="stable")  # what covers has fewer groups above it
    rank = np.empty(len(order), I64)
    rank[order] = np.arange(len(order))
    firsts = np.concatenate([part.firsts[:-1] + base for part, base in zip(parts, filters, strict=False)])
    counts = np.concatenate([part.arrays["sizes"] for part in parts])
    dim_starts, dims = _dims(parts, order)
    above_starts, above = _joined([one.groups for one in covers], order)
    hard_starts, hard = _joined([one.hard for one in covers], None)
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
        roots=np.concatenate([_raised(part.arrays["roots"], base) for part, base in zip(parts, nodes, strict=False)])[
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
    return np.concatenate((np.zeros(1, I64), np.cumsum([part.groups for part in parts])))


def _raised(places: Array, base: int) -> Array:
    return np.where(places < 0, places, places + base)


def _nodes(part: Part, filters: int, nodes: int, bounds: int) -> Array:
    found = part.arrays["nodes"].copy()
    found[:, :2] += filters
    found[:, 2:4] = _raised(found[:, 2:4], nodes)
    found[:, 4] += bounds
    return found


def _dims(parts: Sequence[Part], order: Array) -> tuple[Array, Array]:
    """The dimensions of groups in the given order, by the place of their names among those of all parts."""
    names = sorted({name for part in parts for name in part.span_names})
    place = {name: i for i, name in enumerate(names)}
    renamed = [
        Lists(part.arrays["span_starts"], _places(part.span_names, place)[part.arrays["spans"]]) for part in parts
    ]
    return _joined(renamed, order)


def _places(names: Sequence[str], place: dict[str, int]) -> Array:
    return np.array([place[name] for name in names], I32)


def _joined(lists: Sequence[Lists], order: Array | None) -> tuple[Array, Array]:
    """Lists one after another, then in another order."""
    sizes = np.concatenate([np.diff(one.starts) for one in lists])
    values = np.concatenate([one.values for one in lists]).astype(I32)
    starts = np.concatenate((np.zeros(1, I64), np.cumsum(sizes)))
    if order is None:
        return starts, values
    moved = np.concatenate((np.zeros(1, I64), np.cumsum(sizes[order])))
    places = np.arange(len(values)) + np.repeat(starts[order] - moved[:-1], sizes[order])
    return moved, values[places]


def _sorted_lists(starts: Array, values: Array) -> Array:
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return values[np.argsort(rows << 32 | values, kind="stable")]


# --- equals -------------------------------------------------------------------------------------


def _without_equals(forest: Forest) -> tuple[Forest, Array]:
    """Takes out hard filters that say the same as another: one with a shape, or the one of the least number."""
    representative = np.arange(len(forest.group_of))
    rows = np.repeat(representative, np.diff(forest.hard_starts))
    if not len(rows):
        return forest, representative
    mutual, width = np.zeros(len(rows), bool), 2 * int(np.diff(forest.dim_starts).max(initial=0))
    kg.mutual(forest, rows, forest.hard, np.empty(width + 1, I64), mutual)
    for row, hard in sorted(zip(rows[mutual].tolist(), forest.hard[mutual].tolist(), strict=True)):
        # The row comes first unless it is hard and the later: of each such pair both ways are listed.
        if not forest.is_hard[row] or row < hard:
            representative[hard] = representative[row]
    left_out = representative != np.arange(len(representative))
    kept = ~left_out[forest.hard]
    lists = Lists.of(len(representative), rows[kept], forest.hard[kept])
    is_left_out = left_out.astype(np.int8)
    return forest._replace(hard_starts=lists.starts, hard=lists.values, is_left_out=is_left_out), representative


# --- edges --------------------------------------------------------------------------------------


def predecessors_of(forest: Forest, first: int, last: int) -> Lists:
    """The immediate predecessors of filters from `first` to `last`."""
    width = 2 * int(np.diff(forest.dim_starts).max(initial=0))
    found_max, parts, sizes, done = _FOUND_FEW, [], [np.zeros(1, I64)], first
    room = np.empty(8 * (last - first) + 4 * _FOUND_FEW, I32)
    while done < last:
        search = kg.Search(
            np.full(len(forest.firsts), -1, I64),
            np.empty(width + 1, I64),
            np.empty((found_max, width + 1), I64),
            np.empty(kg.DEPTH_MAX + 2 * width, I64),
            np.empty(found_max, I64),
            np.empty(found_max, I64),
        )
        ends = np.zeros(last - done + 1, I64)
        until = kg.immediate_edges(forest, done, last, search, room, ends)
        parts.append(room[: ends[until - done]].copy())
        sizes.append(np.diff(ends[: until - done + 1]))
        if until == done:  # not even one: it needs more room
            found_max *= 2
            room = np.empty(max(len(room), 4 * found_max), I32)
        done = until
    return Lists(np.cumsum(np.concatenate(sizes)), np.concatenate(parts) if parts else np.zeros(0, I32))


# --- what follows -------------------------------------------------------------------------------


def graph_of(edges: Lists, representative: Array, pairs: Array, brokers: int) -> Graph:
    """Depth, degrees and what brokers need: `pairs` are of filter and broker, sorted."""
    count = len(representative)
    starts, successors = np.zeros(count + 2, I64), np.empty(len(edges.values), I32)
    kg.successors_of(edges.values, edges.starts, starts, successors)
    starts = starts[:-1]
    order, depth = np.empty(count, I64), np.empty(count, I32)
    ordered = kg.depths(edges.starts, starts, successors, order, depth, np.empty(count, I64))
    assert ordered == count, "the graph has a circle"
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
    """Which pairs a broker needs: nothing else that it holds covers the filter, or is the same with a lesser number."""
    node = representative[pairs[:, 0]]
    found = np.zeros(len(pairs), bool)
    if brokers > BROKERS_MAX:
        return found
    held, above = np.empty(len(representative), I64), np.empty(len(representative), I64)
    by_broker = np.argsort(pairs[:, 1], kind="stable")
    for first in range(0, brokers, _BITS):
        places = by_broker[slice(*np.searchsorted(pairs[by_broker, 1], (first, first + _BITS)))]
        bit = np.left_shift(np.int64(1), pairs[places, 1] - first)
        held[:] = 0
        np.bitwise_or.at(held, node[places], bit)
        kg.held_above(order, starts, successors, held, above)
        found[places] = above[node[places]] & bit == 0
    key = node << 32 | pairs[:, 1]
    _, leaders = np.unique(key, return_index=True)  # pairs are sorted: the first has the least number
    is_leader = np.zeros(len(pairs), bool)
    is_leader[leaders] = True
    return found & is_leader


# --- all at once --------------------------------------------------------------------------------


def computed(rows: pa.Table) -> tuple[Part, Lists, Graph]:
    """The graph of filters that are one part, given as rows of `CODED`: its part, edges by successor, and the rest."""
    part = part_of(rows)
    matcher, used = skeleton_matcher(part)
    junk = free_junk(used)
    groups = groups_above(part, 0, [Shard(matcher, 0, part)], junk)
    hard = hard_above(part, 0, [Shard(hard_matcher(part), 0, part)], junk)
    forest, representative = forest_of([part], [Covers(groups, hard)])
    edges = predecessors_of(forest, 0, part.filters)
    return part, edges, graph_of(edges, representative, part.arrays["pairs"], len(part.brokers))


def free_junk(used: Collection[str]) -> str | None:
    return next((one for one in JUNK if one not in used), None)


# --- files --------------------------------------------------------------------------------------


def save_arrays(path: Path, found: NamedTuple) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, array in found._asdict().items():
        np.save(path / f"{name}.npy", array, allow_pickle=False)


def open_forest(path: Path) -> Forest:
    return Forest(*(mapped(path / f"{name}.npy") for name in Forest._fields))


def open_lists(path: Path) -> Lists:
    return Lists(*(mapped(path / f"{name}.npy") for name in Lists._fields))


def open_graph(path: Path) -> Graph:
    return Graph(*(mapped(path / f"{name}.npy") for name in Graph._fields))
