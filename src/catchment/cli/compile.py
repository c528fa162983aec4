"""`catchment compile`: subscriptions to an index, or changes to one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from catchment.cli.jobs import Stages, format_of, note, session
from catchment.cli.terminal import BadUsage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catchment.pipeline.index import Index
    from catchment.pipeline.inputs import Input

NOTES = {
    "contradictory": "can match nothing",
    "expired": "expired",
    "duplicate": "equal to another of the same subscriber",
    "redundant": "covered by another of the same subscriber",
    "unchecked": "not compared: their subscriber has too many",
}


def run_compile(
    subscriptions: str | None,
    output: str,
    format: str | None,
    add: str | None,
    remove: str | None,
    shards: int | None,
    graph: bool,
    master: str | None,
    as_json: bool,
) -> int:
    changes = add is not None or remove is not None
    if (subscriptions is None) != changes:
        raise BadUsage("give a file of subscriptions, or --add or --remove with one to change an index")
    if changes and shards is not None:
        raise BadUsage("--shards is for a new index: a change keeps the shards there are")
    formats = [None if path is None else format_of(path, format) for path in (subscriptions, add, remove)]
    spark = session(master)
    with Stages(spark, as_json) as stages:
        if subscriptions is not None:
            index = _compiled(spark, subscriptions, str(formats[0]), output, shards, graph, stages)
        else:
            index = _changed(spark, (add, formats[1]), (remove, formats[2]), output, graph, stages)
    return _summary(index, as_json)


def _compiled(
    spark: SparkSession, path: str, format: str, output: str, shards: int | None, graph: bool, stages: Stages
) -> Index:
    from catchment.pipeline import compile_subscriptions

    given = _read(spark, path, format)
    now = datetime.now(UTC)
    return compile_subscriptions(
        given.rows, output, now=now, shards=shards, rejects=given.rejects, graph=graph, report=stages
    )


# A file and its format; neither where there is nothing to add or remove.
Given = tuple[str | None, str | None]


def _changed(spark: SparkSession, add: Given, remove: Given, output: str, graph: bool, stages: Stages) -> Index:
    from catchment.pipeline import change_subscriptions

    added = None if add[0] is None else _read(spark, add[0], str(add[1]))
    return change_subscriptions(
        output,
        added=None if added is None else added.rows,
        removed=None if remove[0] is None else _ids(spark, remove[0], str(remove[1])),
        now=datetime.now(UTC),
        rejects=None if added is None else added.rejects,
        graph=graph,
        report=stages,
    )


def _read(spark: SparkSession, path: str, format: str) -> Input:
    from catchment.pipeline import read_subscriptions

    return read_subscriptions(spark, path, format)  # type: ignore[arg-type]


def _ids(spark: SparkSession, path: str, format: str) -> DataFrame:
    """A file with a column `id`; other columns may be there."""
    if format == "json":
        return spark.read.schema("id string").json(path)
    return spark.read.option("header", "true").load(path, format)


def _summary(index: Index, as_json: bool) -> int:
    rejected = index.counts["rejected"]
    if rejected:
        rows = "1 row is" if rejected == 1 else f"{rejected:,} rows are"
        note(f"{rows} no subscription: see {index.directory / 'rejects'}")
    if as_json:
        print(json.dumps({"index": index.path, "version": index.version, "shards": len(index.shards), **index.counts}))
        return 0
    shards = "1 shard" if len(index.shards) == 1 else f"{len(index.shards)} shards"
    print(f"{index.path}, version {index.version}, {shards}")
    print(f"{index.counts['live']:,} live subscriptions with {index.counts['filters']:,} different filters")
    for name, meaning in NOTES.items():
        if count := index.counts[name]:
            print(f"{count:,} {name}: {meaning}")
    if index.has_graph:
        counts = index.counts
        print(f"content graph: {counts['edges']:,} edges, {counts['roots']:,} roots, {counts['depth']:,} deep")
    return 0
