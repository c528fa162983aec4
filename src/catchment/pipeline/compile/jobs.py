"""Compiling subscriptions: they are parsed, compared, and written as the next version of an index.

    subscriptions ─► parsed ─┬─► rejects
                             └─► with notes, by subscriber ─► catalogue ─► shards, content graph, summaries ─► published

The draft of the version holds the tables `parsed` and `subscriptions` (the catalogue). Each step starts from the table
that the step before wrote there, so nothing is parsed twice, and no step needs all data in memory. Only counts come to
the driver.

The report consists of the column `note` of the catalogue and the counts of the index. It has no effect: a subscription
that another one of the same subscriber covers is matched and delivered like any other. Contradictory and expired
subscriptions are in the catalogue, but not in the shards.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from catchment.errors import InputError, LimitError, UnavailableError
from catchment.pipeline.compile.catalogue import CATALOGUE, COLUMNS_WITHOUT_NOTE, EXPIRED, NOTES, STATUSES
from catchment.pipeline.compile.compare import with_notes
from catchment.pipeline.compile.parse import parsed_subscriptions
from catchment.pipeline.compile.shards import (
    REMOVED,
    SHARD_SUBSCRIPTIONS_MAX,
    shards_for,
    write_empty_shard,
    write_shards,
)
from catchment.pipeline.graph.build import write_graph
from catchment.pipeline.graph.summaries import summaries_of
from catchment.pipeline.index import LIVE, Draft, Index, begin, discard, open_index, publish
from catchment.pipeline.paths import address, readable
from catchment.pipeline.schema import FILE, REJECTS, ROW
from catchment.pipeline.tables import subscription_columns

# Is called with the name of each stage when it begins.
Report = Callable[[str], None]
# A change may fill the shards to this multiple of their size. Then the index must be compiled again, with more shards.
OVERFULL: Final = 2
_MICROSECOND: Final = timedelta(microseconds=1)


def compile_subscriptions(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    now: datetime | None = None,
    shards: int | None = None,
    rejects: DataFrame | None = None,
    graph: bool = True,
    report: Report = lambda stage: None,
) -> Index:
    """Makes the next version of the index at `path` from these subscriptions and no others.

    `now` decides which subscriptions have expired; Spark's clock if it is not given. `rejects` are those that reading
    the subscriptions gave: they are written together with the rejects of parsing. `graph` adds the content graph and
    the summaries. `report` is called with the name of each stage.
    """
    draft = begin(path)
    moment = _moment(subscriptions.sparkSession, now)
    try:
        return _compiled(subscriptions, draft, moment, shards, rejects, graph, report)
    finally:
        discard(draft)


def add_subscriptions(index: Index | str | os.PathLike[str], added: DataFrame, *, now: datetime | None = None) -> Index:
    """Makes the next version of an index, with more subscriptions. If an id is taken already, the row is a reject."""
    return change_subscriptions(index, added=added, now=now)


def remove_subscriptions(
    index: Index | str | os.PathLike[str], removed: DataFrame, *, now: datetime | None = None
) -> Index:
    """Makes the next version of an index, without the ids in the column `id`. An id that it lacks is a reject."""
    return change_subscriptions(index, removed=removed, now=now)


def _moment(spark: SparkSession, now: datetime | None) -> Column:
    """The time `now`, the same in every job of a compilation."""
    if now is not None and now.tzinfo is None:
        raise InputError("now needs a time zone")
    # Spark's clock is read here, once: in an expression, each job of the compilation would have another time.
    (row,) = spark.sql("select unix_micros(current_timestamp()) as now").collect()
    micros = row["now"] if now is None else (now - datetime.fromtimestamp(0, now.tzinfo)) // _MICROSECOND
    return F.timestamp_micros(F.lit(micros))


# --- a new index --------------------------------------------------------------------------------


def _compiled(
    subscriptions: DataFrame,
    draft: Draft,
    now: Column,
    requested_shards: int | None,
    rejects: DataFrame | None,
    graph: bool,
    report: Report,
) -> Index:
    spark = subscriptions.sparkSession
    report("parsing")
    parsed = _staged(spark, parsed_subscriptions(subscription_columns(subscriptions), now), draft, "parsed")
    report("comparing the filters of each subscriber")
    catalogue = _staged(spark, with_notes(parsed.where(F.col("reason").isNull())), draft, "subscriptions")
    counts = _counts(catalogue) | {"rejected": _write_rejects(_rejects_of(parsed), rejects, draft)}
    report("building the index")
    number = shards_for(counts[LIVE], requested_shards)
    paths = tuple(str(draft.directory / "shards" / f"{shard:04}") for shard in range(number))
    live = catalogue.where(F.col("status") == LIVE).withColumn(REMOVED, F.lit(False))
    written = write_shards(live, (), paths)
    for missing in set(range(number)) - set(written):
        write_empty_shard(paths[missing])
    counts |= _graph_counts(catalogue, draft, counts["filters"], report) if graph else {}
    return _published(draft, tuple(map(draft.shard, range(number))), counts)


def _graph_counts(catalogue: DataFrame, draft: Draft, filters: int, report: Report) -> dict[str, int]:
    """Writes the content graph and the summaries, and returns their counts. If a limit is passed, there is no graph,
    and the counts say so."""
    report("building the content graph")
    counts = write_graph(catalogue.where(F.col("status") == LIVE), draft.directory, filters)
    if isinstance(counts, str):
        report(f"no content graph: {counts} was passed")
        return {"graph_skipped": 1}
    report("summarizing what brokers propagate")
    return counts | summaries_of(draft.directory, catalogue.sparkSession)


def _staged(spark: SparkSession, df: DataFrame, draft: Draft, name: str) -> DataFrame:
    """Writes a table of the draft, and reads it back."""
    path = draft.directory / name
    df.write.parquet(address(path))
    if not path.is_dir():
        raise UnavailableError(
            f"Spark wrote {path} where this process does not see it: an index must be at a path that the driver, all "
            "workers and, with Spark Connect, the client share"
        )
    return spark.read.schema(df.schema).parquet(readable(path))


def _published(draft: Draft, shards: tuple[str, ...], counts: Mapping[str, int]) -> Index:
    shutil.rmtree(draft.directory / "parsed", ignore_errors=True)
    return publish(draft, shards, counts)


def _rejects_of(parsed: DataFrame) -> DataFrame:
    origin = [F.col(FILE).alias("file"), F.col(ROW).alias("row")]
    return parsed.where(F.col("reason").isNotNull()).select(*origin, "reason", "text")


def _write_rejects(rejects: DataFrame, others: DataFrame | None, draft: Draft) -> int:
    named = rejects.select(*REJECTS.names)
    return _staged(rejects.sparkSession, named if others is None else named.union(others), draft, "rejects").count()


def _counts(catalogue: DataFrame) -> dict[str, int]:
    """The number of subscriptions by status and by note, and of distinct live filters."""
    counts = dict.fromkeys((*STATUSES, *NOTES), 0)
    # `collect` brings a row for each pair of status and note: a few.
    for row in catalogue.groupBy("status", "note").count().collect():
        counts[row["status"]] += row["count"]
        if row["note"] is not None:
            counts[row["note"]] += row["count"]
    distinct = catalogue.where(F.col("status") == LIVE).select("dialect", "filter").distinct().count()
    return counts | {"filters": distinct}


# --- a changed index ----------------------------------------------------------------------------


def change_subscriptions(
    index: Index | str | os.PathLike[str],
    *,
    added: DataFrame | None = None,
    removed: DataFrame | None = None,
    now: datetime | None = None,
    rejects: DataFrame | None = None,
    graph: bool = True,
    report: Report = lambda stage: None,
) -> Index:
    """Makes the next version of an index: removes ids first, then adds subscriptions, then drops those that have
    expired. Only shards with a change are written, and only subscribers with a change are compared again. With `graph`
    the content graph is built again from all filters; without it the next version has none."""
    given = added if added is not None else removed
    if given is None:
        raise InputError("a change adds or removes subscriptions")
    old = open_index(index)
    draft = begin(old.path)
    try:
        return _changed(given.sparkSession, old, draft, added, removed, now, rejects, graph, report)
    finally:
        discard(draft)


def _changed(
    spark: SparkSession,
    old: Index,
    draft: Draft,
    added: DataFrame | None,
    removed: DataFrame | None,
    now: datetime | None,
    rejects: DataFrame | None,
    graph: bool,
    report: Report,
) -> Index:
    moment = _moment(spark, now)
    report("parsing")
    before = spark.read.schema(CATALOGUE).parquet(old.subscriptions)
    removed_ids = _removed_ids(spark, removed)
    kept = before.join(removed_ids, "id", "left_anti")
    parsed = _staged(spark, _parsed_additions(spark, added, kept, moment), draft, "parsed")
    additions = parsed.where(F.col("reason").isNull())
    report("comparing the filters of each subscriber")
    next_catalogue = _next_catalogue(before, kept, additions, removed_ids, moment)
    catalogue = _staged(spark, next_catalogue, draft, "subscriptions")
    unknown_ids = removed_ids.join(before, "id", "left_anti").select(*_unknown_id_reject())
    all_rejects = _rejects_of(parsed).union(unknown_ids)
    counts = _counts(catalogue) | {"rejected": _write_rejects(all_rejects, rejects, draft)}
    refuse_overfull(counts[LIVE], len(old.shards))
    report("building the index")
    shards = _changed_shards(old, draft, before, catalogue)
    counts |= _graph_counts(catalogue, draft, counts["filters"], report) if graph else {}
    return _published(draft, shards, counts)


def _removed_ids(spark: SparkSession, removed: DataFrame | None) -> DataFrame:
    if removed is None:
        return spark.createDataFrame([], "id string")
    if "id" not in removed.columns:
        raise InputError("the ids to remove must be in a column id")
    return removed.select(F.col("id").cast("string")).where(F.col("id").isNotNull()).distinct()


def _unknown_id_reject() -> list[Column]:
    """The columns of a reject, for an id that is to be removed and that the index lacks."""
    return [
        F.lit(None).cast("string").alias("file"),
        F.lit(None).cast("bigint").alias("row"),
        F.concat(F.lit("no subscription has the id "), F.col("id")).alias("reason"),
        F.col("id").alias("text"),
    ]


def _parsed_additions(spark: SparkSession, added: DataFrame | None, kept: DataFrame, now: Column) -> DataFrame:
    """The added subscriptions, parsed; a row is a reject if a kept subscription has its id."""
    given = spark.createDataFrame([], CATALOGUE) if added is None else added
    parsed = parsed_subscriptions(subscription_columns(given), now)
    taken = kept.select("id", F.lit(True).alias("$taken"))
    reason = F.concat(F.lit("the id "), F.col("id"), F.lit(" is taken: remove it first"))
    joined = parsed.join(taken, "id", "left").withColumns(
        {
            "text": F.when(F.col("$taken"), F.coalesce("text", "filter")).otherwise(F.col("text")),
            "reason": F.coalesce("reason", F.when(F.col("$taken"), reason)),
        }
    )
    return joined.select(*parsed.columns)


def _next_catalogue(
    before: DataFrame, kept: DataFrame, additions: DataFrame, removed_ids: DataFrame, now: Column
) -> DataFrame:
    """The catalogue after a change. Only subscribers with a change are compared again: the other notes still hold."""
    expires_now = (F.col("status") == LIVE) & (F.col("expires") <= now)
    aged = kept.withColumn("status", F.when(expires_now, EXPIRED).otherwise(F.col("status")))
    with_removals = before.join(removed_ids, "id", "left_semi").select("subscriber")
    with_expiries = kept.where(expires_now).select("subscriber")
    changed = additions.select("subscriber").union(with_removals).union(with_expiries).distinct()
    columns = COLUMNS_WITHOUT_NOTE
    again = aged.join(changed, "subscriber", "left_semi").select(*columns).union(additions.select(*columns))
    unchanged = aged.join(changed, "subscriber", "left_anti").select(*CATALOGUE.names)
    return with_notes(again).union(unchanged)


def refuse_overfull(count: int, shards: int) -> None:
    """Raises LimitError if a change would put too many subscriptions into the shards that an index has."""
    limit = OVERFULL * SHARD_SUBSCRIPTIONS_MAX * shards
    if count > limit:
        raise LimitError("SHARD_SUBSCRIPTIONS_MAX", limit, f"{count:,}", "compile the index again: it gets more shards")


def _changed_shards(old: Index, draft: Draft, before: DataFrame, after: DataFrame) -> tuple[str, ...]:
    """The paths of the shards of the next version: new ones where there is a change, the old ones elsewhere."""
    columns = ("id", "filter", "conjunction", "dialect")
    live_before = before.where(F.col("status") == LIVE).select(*columns)
    live_after = after.where(F.col("status") == LIVE).select(*columns)
    # Compared by filter too, not only by id: an id may have been removed and added with another filter.
    same = ["id", "filter", "dialect"]
    leaving = live_before.join(live_after, same, "left_anti").select(*columns).withColumn(REMOVED, F.lit(True))
    coming = live_after.join(live_before, same, "left_anti").select(*columns).withColumn(REMOVED, F.lit(False))
    new = tuple(str(draft.directory / "shards" / f"{shard:04}") for shard in range(len(old.shards)))
    written = write_shards(leaving.union(coming), old.shard_paths, new)
    return tuple(draft.shard(shard) if shard in written else path for shard, path in enumerate(old.shards))
