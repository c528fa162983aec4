"""Notifications matched as they come: Structured Streaming into files, each notification in the output once.

    files ─► names, by batch ─► read ──► rows ─► match ─┬► matched: columns + subscriptions
    or a streaming DataFrame ────┘  │    (version of    └► late: the same, behind the watermark
                                    └─► rejects  the index: the newest when the batch begins)

Spark cuts the stream into batches and writes to its checkpoint what is in batch N before it begins it, and that it
is done after our handler returned. `batches` makes the output of a batch appear by renames, commit first.

**Exactly once, killed at any moment.** Let the process die and be started again with the same checkpoint.
(1) Spark hands us again each batch that it has not recorded as done, with the same content, and only those; batches
come in order, one at a time. (2) If such a batch was not committed, its staging is garbage, nothing of it was seen,
and it is done from the start. (3) If it was committed, starting completes its publication, so there is a record, and
the handler returns at once. (4) A batch that Spark recorded as done had returned from the handler, so it was
committed and published. Hence each batch is committed once, and each row of the input is in one batch and, of a
batch, in one of the tables.

**Which version of the index.** The newest when an attempt at a batch begins, used for all rows of that attempt
and recorded with it. An attempt that is repeated may find a newer one: that is right, because nothing of the earlier
attempt was seen. From the commit on the version is a fact, whatever the index does. So versions never mix within a
batch, and the path (`$version=3`) and record of each batch say truly what it was matched with.

**Late.** With `late`, the watermark of a batch is the latest time in all batches before, less `late`; it is kept in
the records, so a batch done again has the same one. Rows behind it are matched too, but written to the table `late`:
who has closed the books on a period need not open them, and nothing is lost. Rows without a time are never late.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from catchment.errors import InputError, UnavailableError, shown
from catchment.model.values import MICROSECOND, Type
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.inputs import Input
from catchment.pipeline.match.worker import SUBSCRIPTIONS, AnyIndex, match
from catchment.pipeline.paths import address, reading
from catchment.pipeline.rows import TIME
from catchment.pipeline.schema import REJECTS as REJECT_SCHEMA
from catchment.pipeline.schema import col, matched_columns
from catchment.pipeline.stream.files import FAILURES, NotificationFiles
from catchment.pipeline.stream.output import BATCH, LATE, MATCHED, REJECTS, TABLES, VERSION, Batch, Output, recorded
from catchment.pipeline.tables import reject_reason

# How often to look for files unless told: a batch costs some tenths of a second, whatever is in it.
EVERY: Final = timedelta(seconds=1)
_TABLE: Final = "$table"
_QUERY_ID: Final = "sql.streaming.queryId"
# Without it Spark leaves an empty file in each directory to say that it is whole, which ours are anyway.
_NO_MARK: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}

Report = Callable[[Batch], None]


def match_stream(
    notifications: DataFrame | NotificationFiles,
    index: AnyIndex,
    output: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    every: timedelta = EVERY,
    once: bool = False,
    follow: bool = True,
    late: timedelta | None = None,
    time: str = TIME,
    attributes: Sequence[str] | None = None,
    report: Report | None = None,
    spark: SparkSession | None = None,
) -> StreamingQuery:
    """Starts a stream and returns Spark's handle of it; `awaitTermination()` waits, `stop()` ends it.

    `notifications` are files that arrive, or a streaming DataFrame of wide columns. `once` takes what is there and
    ends; otherwise batches begin `every` so often. Each batch takes the newest version of the index, unless `follow`
    is off: then all take the one given. `checkpoint` is a directory in `output` unless given. `report` hears of each
    batch when it is written.
    """
    if isinstance(notifications, NotificationFiles):
        session = _classic(spark or SparkSession.getActiveSession())
        source: _Files | _Rows = _Files(session, notifications)
        stream = notifications.stream(session)
    else:
        session, source, stream = _given(notifications, attributes, late is not None, time)
    place, opened = Output(output), open_index(index)
    place.prepare()
    job = _Batches(session, source, opened, follow, place, _Lateness(late, time), attributes, report)
    where = place.checkpoint if checkpoint is None else checkpoint
    writer = stream.writeStream.foreachBatch(job).option("checkpointLocation", address(where))
    triggered = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_interval(every))
    return triggered.queryName(f"catchment stream {place.root}").start()


def read_stream_output(spark: SparkSession, path: str | os.PathLike[str], table: str = MATCHED) -> DataFrame:
    """A table of a stream (`matched`, `late`, `rejects`), with `$version` and `$batch`: the batches there are records
    of, so that tables agree, and every column that there ever was."""
    if table not in TABLES:
        raise InputError(f"{shown(table)} is no table of a stream: there are {', '.join(TABLES)}")
    output, last, schema = recorded(path)
    fields = REJECT_SCHEMA.fields if table == REJECTS else [*StructType.fromJson(schema).fields, _FOUND]
    whole = StructType([*fields, StructField(VERSION, LongType()), StructField(BATCH, LongType())])
    if last is None or not output.table(table).is_dir():
        return spark.createDataFrame([], whole)
    found = spark.read.schema(whole).parquet(reading(output.table(table)))
    return found.where(col(BATCH) <= last.batch)


_FOUND: Final = StructField(SUBSCRIPTIONS, ArrayType(StringType()))


def _classic(session: SparkSession | None) -> SparkSession:
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise UnavailableError(
            "match_stream writes its batches in the driver, which with Spark Connect is the server's: run it with a "
            "master (local[*], spark://…), and without SPARK_REMOTE"
        )
    if session is None:
        raise InputError("there is no Spark session: make one with spark_session(), or give it as spark=")
    return session


def _given(
    notifications: DataFrame, attributes: Sequence[str] | None, is_timed: bool, time: str
) -> tuple[SparkSession, _Rows, DataFrame]:
    """A streaming DataFrame, checked before anything starts."""
    if not notifications.isStreaming:
        raise InputError("this DataFrame is no stream: read it with spark.readStream, or use match")
    if SUBSCRIPTIONS in notifications.columns:
        raise InputError(f"there is a column {SUBSCRIPTIONS} already: drop or rename it")
    matched_columns(notifications.schema, attributes)
    if is_timed and _time_column(notifications.schema, time) is None:
        raise InputError(f"late rows are told by a column of times, and {shown(time)} is none: name another one")
    return _classic(notifications.sparkSession), _Rows(attributes), notifications


def _time_column(schema: StructType, time: str) -> str | None:
    """The column that has the times of an attribute, among those of its other types."""
    columns = [one for one in (time, f"{time}:{Type.TIME}") if one in schema.names]
    return next((one for one in columns if isinstance(schema[one].dataType, TimestampType)), None)


def _interval(every: timedelta) -> str:
    if every < timedelta(0):
        raise InputError(f"batches every {every}: a stream does not run backwards")
    return f"{every // timedelta(milliseconds=1)} milliseconds"


# --- what a batch reads -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """The rows of a batch with the schema they leave behind, and, once they were read, the rejects."""

    rows: DataFrame
    schema: StructType
    rejects: Callable[[], DataFrame | None]


@dataclass(frozen=True)
class _Files:
    spark: SparkSession
    files: NotificationFiles

    def each(self, batch: DataFrame, known: StructType, attempt: Callable[[_Read], Batch]) -> Batch:
        """One attempt, or two: without the files that the first failed on."""
        # At most `files_max` of them.
        paths = sorted(row["path"] for row in batch.collect())
        found = self.files.read(self.spark, paths, known)
        try:
            return attempt(_Read(found.rows, found.schema, found.rejects))
        except FAILURES:
            bad = found.unreadable(paths)
            if not bad:
                raise
        again = self.files.read(self.spark, [path for path in paths if path not in bad], known)
        for path, problem in bad.items():
            again.refuse(path, problem)
        return attempt(_Read(again.rows, again.schema, again.rejects))


@dataclass(frozen=True)
class _Rows:
    attributes: Sequence[str] | None

    def each(self, batch: DataFrame, known: StructType, attempt: Callable[[_Read], Batch]) -> Batch:
        columns = matched_columns(batch.schema, self.attributes)
        reason = reject_reason(StructType([batch.schema[one.column] for one in columns]))
        counted = Observation()
        counting = batch.observe(counted, F.count_if(reason.isNotNull()).alias("rejected"))
        given = Input(counting.where(reason.isNull()), _as_rejects(batch, reason))
        return attempt(
            _Read(given.rows, _grown(batch.schema, known), lambda: given.rejects if counted.get["rejected"] else None)
        )


def _as_rejects(rows: DataFrame, reason: Column) -> DataFrame:
    text = F.to_json(F.struct(*map(col, rows.columns)))
    values = (F.lit(None), F.lit(None), reason, text)
    bad = rows.where(reason.isNotNull())
    return bad.select(*(one.cast(to.dataType).alias(to.name) for one, to in zip(values, REJECT_SCHEMA, strict=True)))


def _grown(given: StructType, known: StructType) -> StructType:
    fields = {one.name: one for one in known.fields}
    for one in given.fields:
        if fields.setdefault(one.name, one).dataType != one.dataType:
            kinds = f"{fields[one.name].dataType.simpleString()}, now {one.dataType.simpleString()}"
            raise InputError(f"column {shown(one.name)} was {kinds}: cast it, or give a new output")
    return StructType(list(fields.values()))


# --- what a batch writes ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lateness:
    late: timedelta | None
    time: str

    def time_max(self, rows: DataFrame) -> Column:
        column = None if self.late is None else _time_column(rows.schema, self.time)
        latest = F.lit(None).cast("bigint") if column is None else F.max(F.unix_micros(col(column)))
        return latest.alias("time_max")

    def is_late(self, rows: DataFrame, before: Batch | None) -> Column | None:
        """None where no row can be."""
        if self.late is None or before is None or before.time_max is None:
            return None
        column = _time_column(rows.schema, self.time)
        watermark = before.time_max - self.late // MICROSECOND
        return None if column is None else F.coalesce(F.unix_micros(col(column)) < watermark, F.lit(False))


@dataclass(frozen=True)
class _Batches:
    """For foreachBatch, in the driver."""

    spark: SparkSession
    source: _Files | _Rows
    index: Index
    follow: bool
    output: Output
    lateness: _Lateness
    attributes: Sequence[str] | None
    report: Report | None

    def __call__(self, rows: DataFrame, number: int) -> None:
        with self.output.turn():
            stream = self.spark.sparkContext.getLocalProperty(_QUERY_ID)
            assert stream is not None
            self.output.claim(stream)
            if self.output.record(number) is not None:
                return
            text = self.output.schema_text()
            known = StructType() if text is None else StructType.fromJson(json.loads(text))
            done = self.source.each(rows, known, lambda read: self._attempt(read, number))
        if self.report is not None:
            self.report(done)

    def _attempt(self, read: _Read, number: int) -> Batch:
        """Writes a batch aside, with the newest version of the index, and commits it."""
        index = open_index(self.index.path) if self.follow else self.index
        before, staged = self._before(number), self.output.stage(number)
        # Columns are only ever added, so that to do so for a batch that is not committed then harms nobody.
        if self.output.schema_text() != (text := read.schema.json()):
            self.output.write_schema(text)
        seen = self._write_rows(read.rows, index, before, staged)
        rejected = _write_rejects(read.rejects(), staged)
        times = [one for one in (seen.pop("time_max"), None if before is None else before.time_max) if one is not None]
        counts = {name: int(value or 0) for name, value in seen.items()}
        batch = Batch(number, index.version, **counts, rejected=rejected, time_max=max(times, default=None))
        self.output.commit(batch, staged)
        return batch

    def _before(self, number: int) -> Batch | None:
        return self.output.record(number - 1) or self.output.last()

    def _write_rows(self, rows: DataFrame, index: Index, before: Batch | None, staged: Path) -> dict[str, Any]:
        """One job for the rows in time and those that are late; what it saw."""
        is_late, size, seen = self.lateness.is_late(rows, before), F.size(SUBSCRIPTIONS), Observation()
        found = match(rows, index, self.attributes).observe(
            seen,
            F.count(F.lit(1)).alias("notifications"),
            F.count_if(size > 0).alias("matched"),
            F.sum(F.when(size > 0, size)).alias("matches"),
            F.count_if(F.lit(False) if is_late is None else is_late).alias("late"),
            self.lateness.time_max(rows),
        )
        if is_late is None:
            found.write.options(**_NO_MARK).parquet(address(staged / MATCHED))
        else:
            split = found.withColumn(_TABLE, F.when(is_late, LATE).otherwise(MATCHED))
            split.write.options(**_NO_MARK).partitionBy(_TABLE).mode("append").parquet(address(staged))
            for name in (LATE, MATCHED):
                if (part := staged / f"{_TABLE}={name}").exists():
                    part.rename(staged / name)
        return dict(seen.get)


def _write_rejects(rejects: DataFrame | None, staged: Path) -> int:
    if rejects is None:
        return 0
    seen = Observation()
    found = rejects.observe(seen, F.count(F.lit(1)).alias("rejected"))
    found.write.options(**_NO_MARK).parquet(address(staged / REJECTS))
    return int(seen.get["rejected"])
