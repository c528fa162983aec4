"""Writing an archive: `archive` appends notifications, `compact` joins small files."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from catchment.errors import InputError
from catchment.pipeline.archive.files import DAY, UNDATED, Archive, Compaction
from catchment.pipeline.archive.read import read_files, schema_of
from catchment.pipeline.growing_schema import fitted
from catchment.pipeline.rows import TIME, publication_order
from catchment.pipeline.schema import col, refuse_case_twins

# So large that opening a file costs nothing beside reading it, and small enough for one task.
FILE_BYTES_TARGET: Final = 128 * 1024 * 1024
_DAY_MICROSECONDS: Final = 86_400_000_000


def archive(notifications: DataFrame, path: str) -> None:
    """Appends notifications to an archive; one writer at a time. To archive a stream, call it in `foreachBatch`."""
    if notifications.isStreaming:
        raise InputError(
            "a stream is archived batch by batch: stream.writeStream.foreachBatch(lambda df, _: archive(…))"
        )
    target = Archive(path)
    known = schema_of(target.schema_text())
    columns, schema = fitted(notifications.schema, known)
    refuse_case_twins(notifications.sparkSession, schema)
    # The schema first: no file ever has a column that the schema lacks.
    if schema != known or target.schema_text() is None:
        target.write_schema(schema.json())
    dated = notifications.select(*columns).withColumn(DAY, _day(TIME in notifications.schema.names))
    # `rebalance` gives each day one task, or several if the day is large: few files, of about the same size.
    balanced = dated.hint("rebalance", col(DAY)).sortWithinPartitions(col(DAY), *publication_order(dated.columns))
    balanced.write.mode("append").partitionBy(DAY).parquet(target.root_uri)


def _day(has_time: bool) -> Column:
    """The UTC day of $time, whatever the time zone of the session."""
    if not has_time:
        return F.lit(UNDATED)
    at = F.unix_micros(col(TIME))
    # pmod rounds down before 1970 too, and the remainder is taken off first, so the division is exact.
    days = ((at - F.pmod(at, F.lit(_DAY_MICROSECONDS))) / _DAY_MICROSECONDS).cast("int")
    return F.coalesce(F.date_from_unix_date(days).cast("string"), F.lit(UNDATED))


# --- compaction ---------------------------------------------------------------------------------


def compact(spark: SparkSession, path: str, target_bytes: int = FILE_BYTES_TARGET) -> list[str]:
    """Joins the small files of each day, one day after the other. Returns the days that changed.

    Killed at any moment, it loses nothing, and a reader sees a day as it was before or after. Run one compaction at a
    time. A replay that began before it may find its files gone, and must be started again."""
    target = Archive(path)
    target.required_schema_text()
    target.recover()
    return [day for day in target.days() if _compact_day(spark, target, day, target_bytes)]


def _compact_day(spark: SparkSession, target: Archive, day: str, target_bytes: int) -> bool:
    small = [file for file in target.files([day]) if file.size < target_bytes // 2]
    if len(small) < 2:
        return False
    token = target.token(day, small)
    parts = -(-sum(file.size for file in small) // target_bytes)
    rows = read_files(spark, target, small)
    order = publication_order(rows.columns)
    joined = rows.repartitionByRange(parts, *order) if parts > 1 else rows.coalesce(1)
    joined.sortWithinPartitions(*order).write.mode("overwrite").parquet(target.staging_uri(token))
    new = tuple(file.name for file in target.staged(token))
    compaction = Compaction(token, day, tuple(file.name for file in small), new)
    # From the commit on, readers take the new files, wherever `finish` has got to.
    target.commit(compaction)
    target.finish(compaction)
    return True
