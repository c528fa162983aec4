"""`catchment compile`: makes an index of subscriptions, or changes one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from catchment.cli.arguments import SubscriptionFormat, format_by_name
from catchment.cli.options import OUTPUT_NAMES, JsonFlag, MasterOption, SubscriptionFormatOption
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.rejects import note_rejects
from catchment.cli.spark.session import session
from catchment.cli.terminal import BadUsage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catchment.pipeline.index import Index
    from catchment.pipeline.inputs import Input

SUBSCRIPTIONS_HELP: Final = (
    "A file or directory of subscriptions with the columns id, subscriber, filter and, if you like, broker, dialect, "
    "expires."
)
SHARDS_HELP: Final = "How many shards (parts) the new index has. Default: chosen by the number of subscriptions."
GRAPH_HELP: Final = "Also make the content graph, the reduction by covering and the summaries."

# Subscriptions that an index counts apart, and what they have in common.
COUNTED_APART: Final = {
    "contradictory": "can match nothing",
    "expired": "expired",
    "duplicate": "equal to another of the same subscriber",
    "redundant": "covered by another of the same subscriber",
    "unchecked": "not compared: their subscriber has too many",
}


def compile(
    subscriptions: Annotated[str | None, Parameter(help=SUBSCRIPTIONS_HELP)] = None,
    /,
    *,
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="The directory of the index.", metavar="INDEX")],
    format: SubscriptionFormatOption = None,
    add: Annotated[str | None, Parameter(help="Subscriptions to add to an index.", metavar="FILE")] = None,
    remove: Annotated[
        str | None, Parameter(help="A file with a column id: subscriptions to remove from an index.", metavar="FILE")
    ] = None,
    shards: Annotated[int | None, Parameter(help=SHARDS_HELP)] = None,
    graph: Annotated[bool, Parameter(help=GRAPH_HELP)] = True,
    master: MasterOption = None,
    as_json: JsonFlag = False,
) -> int:
    """Compile subscriptions to an index, or change an index.

    Rows that are not subscriptions go to a table of rejects in the index.
    """
    is_change = add is not None or remove is not None
    if (subscriptions is None) != is_change:
        raise BadUsage(
            "give a file of subscriptions to make an index, or --add or --remove to change one, but not both"
        )
    if is_change and shards is not None:
        raise BadUsage("--shards is for a new index: a change keeps the shards of the index; leave it out")
    # Before Spark starts, which takes seconds: whether the formats are known.
    format_by_path = {path: format or format_by_name(path) for path in (subscriptions, add, remove) if path is not None}
    spark = session(master)
    with StepProgress(spark, as_json) as progress:
        if subscriptions is not None:
            given = _read(spark, subscriptions, format_by_path[subscriptions])
            index = _compiled(given, output, shards, graph, progress)
        else:
            added = None if add is None else _read(spark, add, format_by_path[add])
            removed_ids = None if remove is None else _ids(spark, remove, format_by_path[remove])
            index = _changed(added, removed_ids, output, graph, progress)
    note_rejects(index.counts["rejected"], "a subscription", f"see {index.directory / 'rejects'}")
    _print_summary(index, as_json)
    return 0


def _read(spark: SparkSession, path: str, format: SubscriptionFormat) -> Input:
    from catchment.pipeline import read_subscriptions

    return read_subscriptions(spark, path, format)


def _ids(spark: SparkSession, path: str, format: SubscriptionFormat) -> DataFrame:
    """The rows of a file with a column `id`. It may have other columns too."""
    if format == "json":
        return spark.read.schema("id string").json(path)
    return spark.read.option("header", "true").load(path, format)


def _compiled(given: Input, output: str, shards: int | None, graph: bool, progress: StepProgress) -> Index:
    from catchment.pipeline import compile_subscriptions

    now = datetime.now(UTC)
    return compile_subscriptions(
        given.rows, output, now=now, shards=shards, rejects=given.rejects, graph=graph, report=progress
    )


def _changed(
    added: Input | None, removed_ids: DataFrame | None, output: str, graph: bool, progress: StepProgress
) -> Index:
    from catchment.pipeline import change_subscriptions

    return change_subscriptions(
        output,
        added=None if added is None else added.rows,
        removed=removed_ids,
        now=datetime.now(UTC),
        rejects=None if added is None else added.rejects,
        graph=graph,
        report=progress,
    )


def _print_summary(index: Index, as_json: bool) -> None:
    counts = index.counts
    if as_json:
        print(json.dumps({"index": index.path, "version": index.version, "shards": len(index.shards), **counts}))
        return
    shards = "1 shard" if len(index.shards) == 1 else f"{len(index.shards)} shards"
    print(f"{index.path}, version {index.version}, {shards}")
    print(f"{counts['live']:,} live subscriptions with {counts['filters']:,} different filters")
    for name, meaning in COUNTED_APART.items():
        if count := counts[name]:
            print(f"{count:,} {name}: {meaning}")
    if index.has_graph:
        print(f"content graph: {counts['edges']:,} edges, {counts['roots']:,} roots, {counts['depth']:,} deep")
