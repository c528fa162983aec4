"""Building the content graph of an index: filters ordered by covering, immediate edges, what each broker propagates.

    catalogue ─► coded ─► parts ─► covers ─► forest ─► edges ─► graph ─► filters, edges, reduced
                 rows     by       by        one       by       one      tables, by part
                          skeleton part      task      part     task

The content graph text (§3.3) defines it: a filter is above another one if it covers it, and an edge leads from a filter
to the next ones below. `parts`, `covers` and `forest` say how the edges are found; `docs/content-graph.md` has the
picture. Each step leaves flat files for the next one in a scratch directory of the draft, which tasks map into memory.
Only counts come to the driver. One task holds the trees and edges of all filters, some 150 bytes each.
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
from catchment.pipeline.graph.covers import (
    Lists,
    PartMatcher,
    TooManyPairs,
    boxes_at,
    groups_above,
    hard_above,
)
from catchment.pipeline.graph.forest import (
    BROKERS_MAX,
    Graph,
    PartCovers,
    forest_of,
    free_junk,
    graph_of,
    graph_of_rows,
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
    coded,
    hard_matcher,
    part_of,
    skeleton_matcher,
    skeleton_of,
)
from catchment.pipeline.session import parallelism

Array = np.ndarray[Any, Any]
# Distinct filters of a part. One task holds them as rows, with about a kilobyte each.
PART_FILTERS: Final = 500_000
# Up to so many filters one task does all steps: starting more tasks would take longer.
SMALL_FILTERS: Final = 25_000
# Each witness is looked up in every part, so more parts than this gain little, however many cores there are.
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
# The answer of a task, as JSON. A task that passed a limit answers with its name under the key `exceeded`.
_ANSWER: Final = "part int, answer string"
Answer = dict[str, Any]


def write_graph(live: DataFrame, directory: Path, filters: int) -> dict[str, int] | str:
    """Writes the tables of the content graph of the live subscriptions into a directory. `filters` is the number of
    their distinct filters. Returns the counts of edges, of roots, of pairs of broker and filter, of those pairs that
    the brokers need, and the greatest depth. If a limit is passed, it writes nothing and returns the name of the
    limit."""
    spark, scratch = live.sparkSession, directory / "graph"
    coded_rows = live.select(*CODED.names[:4]).mapInArrow(coded, from_arrow_schema(CODED))
    try:
        return _written(spark, coded_rows, scratch, directory, parts_for(filters, parallelism(spark)))
    except TooManyPairs as limit:
        for name in (FILTERS, EDGES, REDUCED):
            shutil.rmtree(directory / name, ignore_errors=True)
        return str(limit)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def parts_for(filters: int, cores: int) -> int:
    """The number of parts for so many filters."""
    spread = max(1, min(cores, PARTS_SPREAD_MAX, ceil(filters / SMALL_FILTERS)))
    # A multiple of the cores in use, so that no core waits for the last part.
    rounds = max(1, ceil(filters / PART_FILTERS / spread))
    return min(rounds * spread, PARTS_MAX)


def _written(spark: SparkSession, coded_rows: DataFrame, scratch: Path, target: Path, parts: int) -> dict[str, int]:
    if parts == 1:
        # Without any rows there may be no task, and no answer.
        (answer,) = _answers(coded_rows.repartition(1).mapInArrow(_AllSteps(target), _ANSWER)) or [{}]
        return _counts(answer or all_steps(target, CODED.empty_table()))
    rows = coded_rows.repartition(parts, "skeleton")
    answers = _answers(rows.mapInArrow(_PartWriter(scratch), _ANSWER))
    # Nor is there a task for a part without rows.
    missing = [part for part in range(parts) if not _is_complete(scratch, part)]
    answers += [write_part(scratch, part, CODED.empty_table()) for part in missing]
    junk = free_junk({character for answer in answers for character in answer["junk"]})
    _counts(*_for_each(spark, parts, lambda part: find_covers(scratch, part, junk)))
    _for_each(spark, 1, lambda _: join_parts(scratch))
    _for_each(spark, parts, lambda part: find_edges(scratch, part, target))
    counts = _counts(*_for_each(spark, 1, lambda _: finish_graph(scratch)))
    _for_each(spark, parts, lambda part: write_tables(scratch, part, target))
    return counts


def _answers(answers: DataFrame) -> list[Answer]:
    """The answers of tasks; each gives one."""
    return [json.loads(row["answer"]) for row in answers.collect()]


def _for_each(spark: SparkSession, count: int, step: Callable[[int], Answer]) -> list[Answer]:
    """Runs a step for each number up to `count`, each in a task of its own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _answer_batch(number, step(number))

    return _answers(spark.range(0, count, 1, count).mapInArrow(run, _ANSWER))


def _answer_batch(part: int, answer: Answer) -> pa.RecordBatch:
    columns = [pa.array([part], pa.int32()), pa.array([json.dumps(answer)])]
    return pa.RecordBatch.from_arrays(columns, ["part", "answer"])


def _counts(*answers: Answer) -> dict[str, int]:
    """The counts of the first answer. Raises TooManyPairs if any task passed a limit."""
    for answer in answers:
        if "exceeded" in answer:
            raise TooManyPairs(answer["exceeded"])
    return {name: int(count) for name, count in answers[0].items()}


@dataclass(frozen=True)
class _PartWriter:
    """For mapInArrow: a partition has the rows of a part."""

    scratch: Path

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        yield _answer_batch(number, write_part(self.scratch, number, pa.Table.from_batches(batches, CODED)))


@dataclass(frozen=True)
class _AllSteps:
    """For mapInArrow: the partition has all rows."""

    target: Path

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _answer_batch(0, all_steps(self.target, pa.Table.from_batches(batches, CODED)))


# --- steps, each in a task ----------------------------------------------------------------------


def all_steps(target: Path, rows: pa.Table) -> Answer:
    """All steps of a graph that has one part."""
    try:
        part, edges, graph = graph_of_rows(rows)
    except TooManyPairs as limit:
        return {"exceeded": str(limit)}
    _write_edges(edges, 0, 0, target)
    _write_filters(part, 0, 0, graph, graph.is_reduced_to, target)
    return _graph_counts(edges, graph, len(part.brokers), len(part.arrays["pairs"]))


def _part_path(scratch: Path, number: int) -> Path:
    return scratch / f"{number:04}"


def _is_complete(scratch: Path, number: int) -> bool:
    return (_part_path(scratch, number) / "complete").exists()


def write_part(scratch: Path, number: int, rows: pa.Table) -> Answer:
    """Writes a part, and the matchers that witnesses are looked up in. Answers with the characters of `witness.JUNK`
    that occur in its filters."""
    path = _part_path(scratch, number)
    shutil.rmtree(path, ignore_errors=True)  # left by an attempt that failed
    part = part_of(rows)
    part.save(path)
    matcher, junk = skeleton_matcher(part)
    matcher.save(path / "skeletons")
    hard_matcher(part).save(path / "hard")
    (path / "complete").touch()
    return {"junk": sorted(junk)}


def open_parts(scratch: Path) -> list[Part]:
    count = sum(1 for entry in scratch.iterdir() if entry.name.isdecimal())
    return [Part.open(_part_path(scratch, number)) for number in range(count)]


def _part_matchers(scratch: Path, parts: list[Part], name: str, sizes: list[int]) -> list[PartMatcher]:
    bases = np.concatenate(([0], np.cumsum(sizes))).tolist()
    paths = [_part_path(scratch, number) / name for number in range(len(parts))]
    return [PartMatcher(Matcher.open(path), base, part) for path, base, part in zip(paths, bases, parts, strict=False)]


def find_covers(scratch: Path, number: int, junk: str | None) -> Answer:
    """Finds the groups and hard filters that are above those of a part."""
    parts = open_parts(scratch)
    part = parts[number]
    skeletons = _part_matchers(scratch, parts, "skeletons", [other.groups for other in parts])
    hard = _part_matchers(scratch, parts, "hard", [other.filters for other in parts])
    try:
        groups = groups_above(part, skeletons[number].base, skeletons, junk)
        filters = hard_above(part, hard[number].base, hard, junk)
    except TooManyPairs as limit:
        return {"exceeded": str(limit)}
    save_arrays(_part_path(scratch, number) / "groups_above", groups)
    save_arrays(_part_path(scratch, number) / "hard_above", filters)
    return {}


def join_parts(scratch: Path) -> Answer:
    """Makes one forest of all parts."""
    parts = open_parts(scratch)
    paths = [_part_path(scratch, number) for number in range(len(parts))]
    covers = [PartCovers(open_lists(path / "groups_above"), open_lists(path / "hard_above")) for path in paths]
    forest, representative = forest_of(parts, covers)
    save_arrays(scratch / "forest", forest)
    np.save(scratch / "representative.npy", representative)
    return {}


def _first_filter(parts: list[Part], number: int) -> int:
    """The number of a part's first filter among all filters."""
    return sum(part.filters for part in parts[:number])


def find_edges(scratch: Path, number: int, target: Path) -> Answer:
    """Finds the edges to the filters of a part, and writes their table."""
    parts = open_parts(scratch)
    first = _first_filter(parts, number)
    edges = predecessors_of(open_forest(scratch / "forest"), first, first + parts[number].filters)
    save_arrays(_part_path(scratch, number) / "predecessors", edges)
    _write_edges(edges, number, first, target)
    return {}


def _write_edges(edges: Lists, number: int, first: int, target: Path) -> None:
    filters = len(edges.starts) - 1
    successor = np.repeat(np.arange(first, first + filters, dtype=np.int32), np.diff(edges.starts))
    _write_table(target / EDGES, number, [edges.values, successor], EDGES_SCHEMA)


def finish_graph(scratch: Path) -> Answer:
    """Derives depth, degrees and what brokers need from the edges of all parts. Answers with the counts."""
    parts = open_parts(scratch)
    lists = [open_lists(_part_path(scratch, number) / "predecessors") for number in range(len(parts))]
    sizes = np.concatenate([np.diff(part_lists.starts) for part_lists in lists])
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    edges = Lists(starts, np.concatenate([part_lists.values for part_lists in lists]))
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
    reduction = {"held": held, "reduced": int(graph.is_reduced_to.sum())} if brokers <= BROKERS_MAX else {}
    return counts | reduction


def _all_pairs(parts: list[Part]) -> tuple[Array, list[str | None]]:
    """The pairs of filter and broker of all parts, and the names of the brokers."""
    names = sorted({name for part in parts for name in part.brokers}, key=lambda name: (name is not None, name))
    number_of = {name: i for i, name in enumerate(names)}
    all_pairs, first = [np.zeros((0, 3), np.int64)], 0
    for part in parts:
        pairs = part.arrays["pairs"].copy()
        broker_numbers = np.array([number_of[name] for name in part.brokers], np.int64)
        pairs[:, 0] += first
        pairs[:, 1] = broker_numbers[pairs[:, 1]]
        all_pairs.append(pairs)
        first += part.filters
    return np.concatenate(all_pairs), names


def write_tables(scratch: Path, number: int, target: Path) -> Answer:
    """Writes the tables of the filters of a part, and of those that brokers need."""
    parts = open_parts(scratch)
    graph = open_graph(scratch / "graph")
    pairs_before = sum(len(part.arrays["pairs"]) for part in parts[:number])
    is_needed = graph.is_reduced_to[pairs_before : pairs_before + len(parts[number].arrays["pairs"])]
    _write_filters(parts[number], number, _first_filter(parts, number), graph, is_needed, target)
    return {}


def _write_filters(part: Part, number: int, first: int, graph: Graph, is_needed: Array, target: Path) -> None:
    own = slice(first, first + part.filters)
    numbers = np.arange(first, first + part.filters, dtype=np.int32)
    representative, pairs = graph.representative[own], part.arrays["pairs"]
    subscriptions = np.bincount(pairs[:, 0], weights=pairs[:, 2], minlength=part.filters).astype(np.int64)
    given = [part.table[name].combine_chunks() for name in ("filter", "dialect", "conjunction")]
    same_as = pa.array(representative.astype(np.int32), mask=representative == numbers)
    is_root = (representative == numbers) & (graph.in_degree[own] == 0)
    derived = [graph.depth[own], graph.in_degree[own], graph.out_degree[own], is_root]
    columns = [numbers, *given, _signatures(part), subscriptions, same_as, *derived]
    _write_table(target / FILTERS, number, columns, FILTERS_SCHEMA)
    needed = pairs[is_needed]
    brokers = pa.array(part.brokers, pa.string()).take(pa.array(needed[:, 1]))
    _write_table(target / REDUCED, number, [brokers, (needed[:, 0] + first).astype(np.int32)], REDUCED_SCHEMA)


def _signatures(part: Part) -> pa.Array:
    """By filter, the names of its attributes."""
    names = [_attribute_names(part, group, text) for group, text in enumerate(part.skeletons.to_pylist())]
    return pa.array(names, pa.list_(pa.string())).take(pa.array(part.group_of))


def _attribute_names(part: Part, group: int, skeleton: str) -> list[str]:
    if not skeleton.startswith(HARD):
        return sorted({name for name, _, _ in skeleton_of(skeleton)})
    return sorted({name for box in boxes_at(part, int(part.firsts[group])) for name in box.sets})


def _write_table(directory: Path, number: int, columns: list[Any], schema: pa.Schema) -> None:
    """Writes a file of a table. It appears when it is complete, and a repeated task replaces it."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    new = directory / f".{number:04}.{os.getpid()}"
    table = pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
    )
    pq.write_table(table, new)
    new.replace(directory / f"{number:04}.parquet")
