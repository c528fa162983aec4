"""Subscriptions compiled to an index: parsed, compared, and written as the next version of it.

    subscriptions ─► parsed ─┬─► rejects
                             └─► noted, by subscriber ─► catalogue ─► shards, content graph, summaries ─► published

Each arrow to the right of `parsed` starts from a table that the one before wrote into the draft of the version, so
that nothing is parsed twice and no step needs what does not fit in memory. To the driver come counts alone.

The report is the column `note` of the catalogue and the counts of the index. It changes nothing: a subscription that
another of the same subscriber covers is matched and delivered like any other. Contradictory and expired ones are in
the catalogue, not in the shards.
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
from catchment.pipeline.compile.parse import CATALOGUE, EXPIRED, LIVE, noted, parsed
from catchment.pipeline.compile.shards import REMOVED, SHARD_SUBSCRIPTIONS_MAX, shards_for, write_empty, write_shards
from catchment.pipeline.graph.build import write_graph
from catchment.pipeline.graph.summaries import summaries_of
from catchment.pipeline.index import Draft, Index, begin, discard, open_index, publish
from catchment.pipeline.paths import address, reading
from catchment.pipeline.schema import REJECTS
from catchment.pipeline.tables import FILE, ROW, subscription_columns

Report = Callable[[str], None]
# A change may fill shards to this multiple of their size; then the index wants to be compiled anew, with more.
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
    """Makes the next version of the index at `path` of these subscriptions and no others.

    `now` decides what is expired (unless given, Spark's clock); `rejects` are those of reading, which then stand
    beside those of parsing; `graph` adds the content graph and the summaries; `report` is told what is being done.
    """
    draft = begin(path)
    moment = _instant(subscriptions.sparkSession, now)
    try:
        return _compiled(subscriptions, draft, moment, shards, rejects, graph, report)
    finally:
        discard(draft)


def add_subscriptions(index: Index | str | os.PathLike[str], added: DataFrame, *, now: datetime | None = None) -> Index:
    """The next version of an index, with more subscriptions; an id that is taken is a reject."""
    return change_subscriptions(index, added=added, now=now)


def remove_subscriptions(
    index: Index | str | os.PathLike[str], removed: DataFrame, *, now: datetime | None = None
) -> Index:
    """The next version of an index, without the ids in the column `id`; one that nobody has is a reject."""
    return change_subscriptions(index, removed=removed, now=now)


def _instant(spark: SparkSession, now: datetime | None) -> Column:
    """A moment that is the same in every job of a compilation."""
    if now is not None and now.tzinfo is None:
        raise InputError("now is a time with its zone")
    # Read once: each action of Spark has a now of its own.
    (row,) = spark.sql("select unix_micros(current_timestamp()) as now").collect()
    micros = row["now"] if now is None else (now - datetime.fromtimestamp(0, now.tzinfo)) // _MICROSECOND
    return F.timestamp_micros(F.lit(micros))


# --- from nothing -------------------------------------------------------------------------------


def _compiled(
    given: DataFrame,
    draft: Draft,
    now: Column,
    wanted: int | None,
    rejects: DataFrame | None,
    graph: bool,
    report: Report,
) -> Index:
    spark = given.sparkSession
    report("parsing")
    staged = _staged(spark, parsed(subscription_columns(given), now), draft, "parsed")
    report("comparing the filters of each subscriber")
    catalogue = _staged(spark, noted(staged.where(F.col("reason").isNull())), draft, "subscriptions")
    counts = _counts(catalogue) | {"rejected": _write_rejects(_rejects(staged), rejects, draft)}
    report("building the index")
    number = shards_for(counts[LIVE], wanted)
    paths = tuple(str(draft.directory / "shards" / f"{one:04}") for one in range(number))
    live = catalogue.where(F.col("status") == LIVE).withColumn(REMOVED, F.lit(False))
    written = write_shards(live, (), paths)
    for missing in set(range(number)) - set(written):
        write_empty(paths[missing])
    counts |= _graph(catalogue, draft, counts["filters"], report) if graph else {}
    return _published(draft, tuple(map(draft.shard, range(number))), counts)


def _graph(catalogue: DataFrame, draft: Draft, filters: int, report: Report) -> dict[str, int]:
    """The content graph and the summaries, and their counts; past a limit there is none, and the counts say so."""
    report("building the content graph")
    found = write_graph(catalogue.where(F.col("status") == LIVE), draft.directory, filters)
    if isinstance(found, str):
        report(f"no content graph: {found} was passed")
        return {"graph_skipped": 1}
    report("summarizing what brokers propagate")
    return found | summaries_of(draft.directory, catalogue.sparkSession)


def _staged(spark: SparkSession, df: DataFrame, draft: Draft, name: str) -> DataFrame:
    """A table of the draft, written and read back."""
    place = draft.directory / name
    df.write.parquet(address(place))
    if not place.is_dir():
        raise UnavailableError(
            f"Spark wrote {place} where this process does not see it: an index lies at a path that the driver, all "
            "workers and, with Spark Connect, the client share"
        )
    return spark.read.schema(df.schema).parquet(reading(place))


def _published(draft: Draft, shards: tuple[str, ...], counts: Mapping[str, int]) -> Index:
    for scratch in ("parsed", "changed"):
        shutil.rmtree(draft.directory / scratch, ignore_errors=True)
    return publish(draft, shards, counts)


def _rejects(staged: DataFrame) -> DataFrame:
    place = [F.col(FILE).alias("file"), F.col(ROW).alias("row")]
    return staged.where(F.col("reason").isNotNull()).select(*place, "reason", "text")


def _write_rejects(found: DataFrame, others: DataFrame | None, draft: Draft) -> int:
    whole = found.select(*REJECTS.names) if others is None else found.select(*REJECTS.names).union(others)
    return _staged(found.sparkSession, whole, draft, "rejects").count()


def _counts(catalogue: DataFrame) -> dict[str, int]:
    """By status and by note, of which there are few."""
    found = dict.fromkeys(("live", "contradictory", "expired", "duplicate", "redundant", "unchecked"), 0)
    for row in catalogue.groupBy("status", "note").count().collect():
        found[row["status"]] += row["count"]
        if row["note"] is not None:
            found[row["note"]] += row["count"]
    distinct = catalogue.where(F.col("status") == LIVE).select("dialect", "filter").distinct().count()
    return found | {"filters": distinct}


# --- from the version before --------------------------------------------------------------------


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
    """The next version of an index: ids taken out first, then subscriptions added, then what has expired dropped.
    Only shards that have a change are written; only subscribers who have one are compared again. With `graph` the
    content graph is made anew, of all filters; without, the next version has none."""
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
    moment = _instant(spark, now)
    report("parsing")
    before = spark.read.schema(CATALOGUE).parquet(old.subscriptions)
    leaving = _ids(spark, removed)
    kept = before.join(leaving, "id", "left_anti")
    fresh = _staged(spark, _parsed_beside(spark, added, kept, moment), draft, "parsed")
    good = fresh.where(F.col("reason").isNull())
    report("comparing the filters of each subscriber")
    catalogue = _staged(spark, _renoted(before, kept, good, leaving, moment), draft, "subscriptions")
    unknown = leaving.join(before, "id", "left_anti").select(*_unknown_reject())
    counts = _counts(catalogue) | {"rejected": _write_rejects(_rejects(fresh).union(unknown), rejects, draft)}
    _refuse_overfull(counts[LIVE], len(old.shards))
    report("building the index")
    shards = _changed_shards(old, draft, before, catalogue)
    counts |= _graph(catalogue, draft, counts["filters"], report) if graph else {}
    return _published(draft, shards, counts)


def _ids(spark: SparkSession, removed: DataFrame | None) -> DataFrame:
    if removed is None:
        return spark.createDataFrame([], "id string")
    if "id" not in removed.columns:
        raise InputError("what is removed is named in a column id")
    return removed.select(F.col("id").cast("string")).where(F.col("id").isNotNull()).distinct()


def _unknown_reject() -> list[Column]:
    reason = F.concat(F.lit("no subscription has the id "), F.col("id")).alias("reason")
    nothing = F.lit(None)
    return [
        nothing.cast("string").alias("file"),
        nothing.cast("bigint").alias("row"),
        reason,
        F.col("id").alias("text"),
    ]


def _parsed_beside(spark: SparkSession, added: DataFrame | None, kept: DataFrame, now: Column) -> DataFrame:
    """What is added, parsed; a reject where its id is taken."""
    given = spark.createDataFrame([], CATALOGUE) if added is None else added
    found = parsed(subscription_columns(given), now)
    taken = kept.select("id", F.lit(True).alias("$taken"))
    reason = F.concat(F.lit("the id "), F.col("id"), F.lit(" is taken: remove it first"))
    joined = found.join(taken, "id", "left").withColumns(
        {
            "text": F.when(F.col("$taken"), F.coalesce("text", "filter")).otherwise(F.col("text")),
            "reason": F.coalesce("reason", F.when(F.col("$taken"), reason)),
        }
    )
    return joined.select(*found.columns)


def _renoted(before: DataFrame, kept: DataFrame, good: DataFrame, leaving: DataFrame, now: Column) -> DataFrame:
    """The next catalogue. The notes of subscribers without a change are still right."""
    late = (F.col("status") == LIVE) & (F.col("expires") <= now)
    aged = kept.withColumn("status", F.when(late, EXPIRED).otherwise(F.col("status")))
    gone = before.join(leaving, "id", "left_semi").select("subscriber")
    touched = good.select("subscriber").union(gone).union(kept.where(late).select("subscriber")).distinct()
    columns = [name for name in CATALOGUE.names if name not in ("note", "other")]
    again = aged.join(touched, "subscriber", "left_semi").select(*columns).union(good.select(*columns))
    rest = aged.join(touched, "subscriber", "left_anti").select(*CATALOGUE.names)
    return noted(again).union(rest)


def _refuse_overfull(count: int, shards: int) -> None:
    most = OVERFULL * SHARD_SUBSCRIPTIONS_MAX * shards
    if count > most:
        raise LimitError("SHARD_SUBSCRIPTIONS_MAX", most, f"{count:,}", "compile the index anew: it gets more shards")


def _changed_shards(old: Index, draft: Draft, before: DataFrame, after: DataFrame) -> tuple[str, ...]:
    """Where the shards of the next version lie: written anew where they differ."""
    columns = ("id", "filter", "conjunction", "dialect")
    was = before.where(F.col("status") == LIVE).select(*columns)
    now = after.where(F.col("status") == LIVE).select(*columns)
    same = ["id", "filter", "dialect"]
    # Compared by value: an id may have come back with another filter.
    out = was.join(now, same, "left_anti").select(*columns).withColumn(REMOVED, F.lit(True))
    come = now.join(was, same, "left_anti").select(*columns).withColumn(REMOVED, F.lit(False))
    fresh = tuple(str(draft.directory / "shards" / f"{one:04}") for one in range(len(old.shards)))
    written = write_shards(out.union(come), old.shard_paths, fresh)
    return tuple(draft.shard(one) if one in written else old.shards[one] for one in range(len(old.shards)))
