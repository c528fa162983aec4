"""The content graph of an index: filters ordered by covering, with immediate edges, and what each broker propagates.

    catalogue ─► coded ─► parts ─► covers ─► forest ─► edges ─► graph ─► filters, edges, reduced
                 rows     by       by        one       by       one      tables, by part
                          skeleton part      task      part     task

The content graph text (§3.3) says what it is: a filter is above another if it covers it, and an edge leads to the
next ones below. How it is found is in `graph_parts`, `graph_covers` and `graph_forest`; `docs/content-graph.md` has
the picture. What one step leaves to the next is flat files in a scratch directory of the draft, which tasks map; to
the driver come counts. One task holds the trees and edges of all filters, at some 150 bytes each.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.matching import Matcher
from catchment.pipeline.graph.covers import Lists, Shard, TooManyPairs, groups_above, hard_above
from catchment.pipeline.graph.forest import (
    BROKERS_MAX,
    Covers,
    Graph,
    computed,
    forest_of,
    free_junk,
    graph_of,
    open_forest,
    open_graph,
    open_lists,
    predecessors_of,
    save_arrays,
)
from catchment.pipeline.graph.parts import (
    CODED,
    HARD,
    Part,
    boxes_of,
    coded,
    hard_matcher,
    part_of,
    skeleton_matcher,
    skeleton_of,
)
from catchment.pipeline.session import parallelism

Array = np.ndarray[Any, Any]
# So many distinct filters make a part, which one task holds as rows: about a kilobyte each while it does.
PART_FILTERS: Final = 500_000
# Fewer are done by one task, start to end: more tasks would take longer to start.
SMALL_FILTERS: Final = 25_000
# Each witness is looked up in every part, so cores beyond these gain little.
PARTS_SPREAD_MAX: Final = 16
PARTS_MAX: Final = 256

FILTERS, EDGES, REDUCED = "filters", "edges", "reduced"
FILTERS_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int32()),
        ("filter", pa.string()),
        ("dialect", pa.string()),
        ("conjunction", pa.binary()),
        ("signature", pa.list_(pa.string())),
        ("subscriptions", pa.int64()),
        ("same_as", pa.int32()),
        ("depth", pa.int32()),
        ("in_degree", pa.int32()),
        ("out_degree", pa.int32()),
        ("is_root", pa.bool_()),
    ]
)
EDGES_SCHEMA: Final = pa.schema([("predecessor", pa.int32()), ("successor", pa.int32())])
REDUCED_SCHEMA: Final = pa.schema([("broker", pa.string()), ("filter", pa.int32())])
_ANSWER: Final = "part int, found string"
Answer = dict[str, Any]


def write_graph(live: DataFrame, directory: Path, filters: int) -> dict[str, int] | str:
    """Writes the tables of the content graph of the live subscriptions, which have so many distinct filters, into a
    directory. Gives counts of edges, roots, the greatest depth, pairs of broker and filter, and how many of those the
    brokers need; or, where a limit was passed, its name, and writes nothing."""
    spark, scratch = live.sparkSession, directory / "graph"
    given = live.select(*CODED.names[:4]).mapInArrow(coded, from_arrow_schema(CODED))
    try:
        return _written(spark, given, scratch, directory, parts_for(filters, parallelism(spark)))
    except TooManyPairs as limit:
        for name in (FILTERS, EDGES, REDUCED):
            shutil.rmtree(directory / name, ignore_errors=True)
        return str(limit)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def parts_for(filters: int, cores: int) -> int:
    spread = max(1, min(cores, PARTS_SPREAD_MAX, ceil(filters / SMALL_FILTERS)))
    # A multiple: no core waits for the last part of another.
    rounds = max(1, ceil(filters / PART_FILTERS / spread))
    return min(rounds * spread, PARTS_MAX)


def _written(spark: SparkSession, given: DataFrame, scratch: Path, target: Path, parts: int) -> dict[str, int]:
    if parts == 1:
        (found,) = _collected(given.repartition(1).mapInArrow(_Whole(target), _ANSWER)) or [{}]
        return _counts(found or whole(target, CODED.empty_table()))
    rows = given.repartition(parts, "skeleton")
    answers = _collected(rows.mapInArrow(_PartWriter(scratch), _ANSWER))
    answers += [write_part(scratch, one, CODED.empty_table()) for one in range(parts) if not _is_there(scratch, one)]
    junk = free_junk({found for answer in answers for found in answer["junk"]})
    _counts(*_each(spark, parts, lambda one: find_covers(scratch, one, junk)))
    _each(spark, 1, lambda _: join_parts(scratch))
    _each(spark, parts, lambda one: find_edges(scratch, one, target))
    counts = _counts(*_each(spark, 1, lambda _: finish(scratch)))
    _each(spark, parts, lambda one: write_tables(scratch, one, target))
    return counts


def _collected(answers: DataFrame) -> list[Answer]:
    """One row of each task."""
    return [json.loads(row["found"]) for row in answers.collect()]


def _each(spark: SparkSession, count: int, step: Callable[[int], Answer]) -> list[Answer]:
    """Runs a step for each of so many parts, each in a task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.column(0).to_pylist():
                yield _answered(one, step(one))

    return _collected(spark.range(0, count, 1, count).mapInArrow(run, _ANSWER))


def _answered(part: int, found: Answer) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([part], pa.int32()), pa.array([json.dumps(found)])], ["part", "found"])


def _counts(*answers: Answer) -> dict[str, int]:
    for found in answers:
        if "exceeded" in found:
            raise TooManyPairs(found["exceeded"])
    return {name: int(count) for name, count in answers[0].items()}


@dataclass(frozen=True)
class _PartWriter:
    """For mapInArrow: a partition is the rows of a part."""

    scratch: Path

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        yield _answered(number, write_part(self.scratch, number, pa.Table.from_batches(batches, CODED)))


@dataclass(frozen=True)
class _Whole:
    """For mapInArrow: all rows, start to end."""

    target: Path

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _answered(0, whole(self.target, pa.Table.from_batches(batches, CODED)))


# --- steps, each in a task ----------------------------------------------------------------------


def whole(target: Path, rows: pa.Table) -> Answer:
    """All steps of a graph of one part."""
    try:
        part, edges, graph = computed(rows)
    except TooManyPairs as limit:
        return {"exceeded": str(limit)}
    _write_edges(edges, 0, 0, target)
    _write_filters(part, 0, 0, graph, graph.is_reduced_to, target)
    return _graph_counts(edges, graph, len(part.brokers), len(part.arrays["pairs"]))


def _part(scratch: Path, number: int) -> Path:
    return scratch / f"{number:04}"


def _is_there(scratch: Path, number: int) -> bool:
    return (_part(scratch, number) / "whole").exists()


def write_part(scratch: Path, number: int, rows: pa.Table) -> Answer:
    """A part, with what its filters are looked up in. What it holds of `witness.JUNK` is the answer."""
    path = _part(scratch, number)
    shutil.rmtree(path, ignore_errors=True)  # of an attempt that failed
    part = part_of(rows)
    part.save(path)
    matcher, junk = skeleton_matcher(part)
    matcher.save(path / "skeletons")
    hard_matcher(part).save(path / "hard")
    (path / "whole").touch()
    return {"junk": sorted(junk)}


def open_parts(scratch: Path) -> list[Part]:
    count = sum(1 for one in scratch.iterdir() if one.name.isdecimal())
    return [Part.open(_part(scratch, one)) for one in range(count)]


def _shards(scratch: Path, parts: list[Part], name: str, sizes: list[int]) -> list[Shard]:
    bases = np.concatenate(([0], np.cumsum(sizes))).tolist()
    return [Shard(Matcher.open(_part(scratch, one) / name), bases[one], part) for one, part in enumerate(parts)]


def find_covers(scratch: Path, number: int, junk: str | None) -> Answer:
    """Which groups and hard filters are above those of a part."""
    parts = open_parts(scratch)
    part = parts[number]
    skeletons = _shards(scratch, parts, "skeletons", [one.groups for one in parts])
    hard = _shards(scratch, parts, "hard", [one.filters for one in parts])
    try:
        groups = groups_above(part, skeletons[number].base, skeletons, junk)
        filters = hard_above(part, hard[number].base, hard, junk)
    except TooManyPairs as limit:
        return {"exceeded": str(limit)}
    save_arrays(_part(scratch, number) / "groups_above", groups)
    save_arrays(_part(scratch, number) / "hard_above", filters)
    return {}


def join_parts(scratch: Path) -> Answer:
    """The forest of all parts."""
    parts = open_parts(scratch)
    places = [_part(scratch, one) for one in range(len(parts))]
    covers = [Covers(open_lists(place / "groups_above"), open_lists(place / "hard_above")) for place in places]
    forest, representative = forest_of(parts, covers)
    save_arrays(scratch / "forest", forest)
    np.save(scratch / "representative.npy", representative)
    return {}


def _first(parts: list[Part], number: int) -> int:
    return sum(part.filters for part in parts[:number])


def find_edges(scratch: Path, number: int, target: Path) -> Answer:
    """The edges to the filters of a part, also as a table."""
    parts = open_parts(scratch)
    first = _first(parts, number)
    found = predecessors_of(open_forest(scratch / "forest"), first, first + parts[number].filters)
    save_arrays(_part(scratch, number) / "predecessors", found)
    _write_edges(found, number, first, target)
    return {}


def _write_edges(edges: Lists, number: int, first: int, target: Path) -> None:
    filters = len(edges.starts) - 1
    successor = np.repeat(np.arange(first, first + filters, dtype=np.int32), np.diff(edges.starts))
    _write_table(target / EDGES, number, [edges.values, successor], EDGES_SCHEMA)


def finish(scratch: Path) -> Answer:
    """Depth, degrees, and what brokers need."""
    parts = open_parts(scratch)
    lists = [open_lists(_part(scratch, one) / "predecessors") for one in range(len(parts))]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.concatenate([np.diff(one.starts) for one in lists]))))
    edges = Lists(starts, np.concatenate([one.values for one in lists]))
    pairs, brokers = _all_pairs(parts)
    representative = np.load(scratch / "representative.npy")
    graph = graph_of(edges, representative, pairs, len(brokers))
    save_arrays(scratch / "graph", graph)
    return _graph_counts(edges, graph, len(brokers), len(pairs))


def _graph_counts(edges: Lists, graph: Graph, brokers: int, held: int) -> Answer:
    is_node = graph.representative == np.arange(len(graph.representative))
    counts = {
        "edges": len(edges.values),
        "roots": int((is_node & (graph.in_degree == 0)).sum()),
        "depth": int(graph.depth.max(initial=0)),
    }
    known = {"held": held, "reduced": int(graph.is_reduced_to.sum())} if brokers <= BROKERS_MAX else {}
    return counts | known


def _all_pairs(parts: list[Part]) -> tuple[Array, list[str | None]]:
    """The pairs of all parts, and the names of the brokers in them."""
    names = sorted({name for part in parts for name in part.brokers}, key=lambda name: (name is not None, name))
    place = {name: i for i, name in enumerate(names)}
    found, first = [np.zeros((0, 3), np.int64)], 0
    for part in parts:
        pairs = part.arrays["pairs"].copy()
        renamed = np.array([place[name] for name in part.brokers], np.int64)
        pairs[:, 0] += first
        pairs[:, 1] = renamed[pairs[:, 1]]
        found.append(pairs)
        first += part.filters
    return np.concatenate(found), names


def write_tables(scratch: Path, number: int, target: Path) -> Answer:
    """The filters of a part, and which of them brokers need."""
    parts = open_parts(scratch)
    graph = open_graph(scratch / "graph")
    before = sum(len(one.arrays["pairs"]) for one in parts[:number])
    needed = graph.is_reduced_to[before : before + len(parts[number].arrays["pairs"])]
    _write_filters(parts[number], number, _first(parts, number), graph, needed, target)
    return {}


def _write_filters(part: Part, number: int, first: int, graph: Graph, needed: Array, target: Path) -> None:
    own = slice(first, first + part.filters)
    numbers = np.arange(first, first + part.filters, dtype=np.int32)
    same, pairs = graph.representative[own], part.arrays["pairs"]
    counts = np.bincount(pairs[:, 0], weights=pairs[:, 2], minlength=part.filters).astype(np.int64)
    given = [part.table[name].combine_chunks() for name in ("filter", "dialect", "conjunction")]
    same_as = pa.array(same.astype(np.int32), mask=same == numbers)
    is_root = (same == numbers) & (graph.in_degree[own] == 0)
    found = [graph.depth[own], graph.in_degree[own], graph.out_degree[own], is_root]
    _write_table(
        target / FILTERS, number, [numbers, *given, _signatures(part), counts, same_as, *found], FILTERS_SCHEMA
    )
    chosen = pairs[needed]
    brokers = pa.array(part.brokers, pa.string()).take(pa.array(chosen[:, 1]))
    _write_table(target / REDUCED, number, [brokers, (chosen[:, 0] + first).astype(np.int32)], REDUCED_SCHEMA)


def _signatures(part: Part) -> pa.Array:
    """By filter, the names of its attributes."""
    names = [_names(part, group, text) for group, text in enumerate(part.skeletons.to_pylist())]
    return pa.array(names, pa.list_(pa.string())).take(pa.array(part.group_of))


def _names(part: Part, group: int, skeleton: str) -> list[str]:
    if not skeleton.startswith(HARD):
        return sorted({name for name, _, _ in skeleton_of(skeleton)})
    filter = int(part.firsts[group])
    boxes = boxes_of(part.table["filter"][filter].as_py(), part.table["dialect"][filter].as_py())
    return sorted({name for box in boxes for name in box.sets})


def _write_table(directory: Path, number: int, columns: list[Any], schema: pa.Schema) -> None:
    """A file of a table, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in columns]
    fresh = directory / f".{number:04}.{os.getpid()}"
    table = pa.Table.from_arrays(
        [one.cast(field.type) for one, field in zip(arrays, schema, strict=True)], schema=schema
    )
    pq.write_table(table, fresh)
    fresh.replace(directory / f"{number:04}.parquet")
