"""Notifications matched as they arrive: Structured Streaming into files, with each notification in the output once.

    files ─► names, by batch ─► read ─┬─► rows ─► match ─┬─► matched: columns + subscriptions
    or a streaming DataFrame ─────┘   │                  └─► late: the same, for rows behind the watermark
                                      └─► rejects

Spark cuts the stream into batches. It writes to its checkpoint what is in batch N before the batch begins, and that the
batch is done after our handler returned. `stream/output.py` makes the output of a batch appear by renames, of which the
first is the commit.

**Exactly once, killed at any moment.** Suppose the process dies and is started again with the same checkpoint.
(1) Spark gives our handler again each batch that it has not recorded as done, with the same content, and only those;
batches come in order, one at a time. (2) If such a batch was not committed, its staging directory is garbage, nobody
saw anything of it, and it is done from the start. (3) If it was committed, the start of the process completes its
publication, so it has a record, and the handler returns at once. (4) If Spark has recorded a batch as done, the handler
had returned, so the batch was committed and published. Hence each batch is committed once. Each row of the input is in
one batch, and within a batch in one of the tables.

**Which version of the index.** An attempt at a batch takes the newest version when it begins, uses it for all its rows,
and records it. A repeated attempt may find a newer version. That is right, because nobody saw anything of the earlier
attempt. From the commit on, the version of the batch is fixed, whatever happens to the index. So versions never mix
within a batch, and the path (`$version=3`) and the record of each batch name the version it was matched with.

**Late.** With `late`, the watermark of a batch is the latest time in all batches before, minus `late`. It is kept in
the records, so a batch that is done again has the same watermark. Rows behind it are matched too, but written to the
table `late`: a reader who has finished with a period need not read it again, and nothing is lost. Rows without a time
are never late.
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
from catchment.pipeline.bad_rows import reject_reason
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.inputs import Input
from catchment.pipeline.match.jobs import match
from catchment.pipeline.match.worker import IDS_COLUMN, AnyIndex
from catchment.pipeline.paths import address, readable
from catchment.pipeline.rows import TIME
from catchment.pipeline.schema import REJECTS, col, matched_columns, refuse_taken_names
from catchment.pipeline.stream.files import FAILURES, NotificationFiles
from catchment.pipeline.stream.output import (
    BATCH,
    LATE_TABLE,
    MATCHED_TABLE,
    REJECTS_TABLE,
    TABLES,
    VERSION,
    BatchRecord,
    StreamOutput,
    open_output,
)

# How often to look for files by default. A batch takes some tenths of a second, however little is in it.
EVERY: Final = timedelta(seconds=1)
_TABLE: Final = "$table"
_QUERY_ID: Final = "sql.streaming.queryId"
# Otherwise Spark leaves an empty file in each directory to mark it complete. Ours always are.
_NO_MARK: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
_IDS_FIELD: Final = StructField(IDS_COLUMN, ArrayType(StringType()))

# Is called with the record of each batch when it is written.
Report = Callable[[BatchRecord], None]


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
    """Starts a stream and returns Spark's handle of it: `awaitTermination()` waits for its end, `stop()` ends it.

    `notifications` are files that arrive, or a streaming DataFrame of wide columns. With `once` the stream takes what
    is there and ends; otherwise a batch begins `every` so often. Each batch takes the newest version of the index; with
    `follow=False` all batches take the given one. `checkpoint` is a directory in `output` if it is not given. `report`
    is called with the record of each batch when it is written.
    """
    source: _FilesSource | _RowsSource
    if isinstance(notifications, NotificationFiles):
        session = _required_session(spark or SparkSession.getActiveSession())
        source = _FilesSource(session, notifications)
        stream = notifications.stream(session)
    else:
        _check_stream(notifications, attributes, late is not None, time)
        session = _required_session(notifications.sparkSession)
        source, stream = _RowsSource(attributes), notifications
    target, opened = StreamOutput(output), open_index(index)
    target.prepare()
    handler = _BatchHandler(session, source, opened, follow, target, _Lateness(late, time), attributes, report)
    location = target.checkpoint if checkpoint is None else checkpoint
    writer = stream.writeStream.foreachBatch(handler).option("checkpointLocation", address(location))
    triggered = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_interval(every))
    return triggered.queryName(f"catchment stream {target.root}").start()


def read_stream_output(spark: SparkSession, path: str | os.PathLike[str], table: str = MATCHED_TABLE) -> DataFrame:
    """A table of a stream (`matched`, `late`, `rejects`), with `$version` and `$batch`. It has only batches that have a
    record, so that the tables agree, and every column that was ever written."""
    if table not in TABLES:
        raise InputError(f"{shown(table)} is not a table of a stream: there are {', '.join(TABLES)}")
    output, last, schema = open_output(path)
    fields = REJECTS.fields if table == REJECTS_TABLE else [*StructType.fromJson(schema).fields, _IDS_FIELD]
    with_batch = StructType([*fields, StructField(VERSION, LongType()), StructField(BATCH, LongType())])
    if last is None or not output.table(table).is_dir():
        return spark.createDataFrame([], with_batch)
    rows = spark.read.schema(with_batch).parquet(readable(output.table(table)))
    return rows.where(col(BATCH) <= last.batch)


def _required_session(session: SparkSession | None) -> SparkSession:
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise UnavailableError(
            "match_stream writes its batches in the driver, which with Spark Connect is in the server: run it with a "
            "master (local[*], spark://…), and without SPARK_REMOTE"
        )
    if session is None:
        raise InputError("there is no Spark session: make one with spark_session(), or give it as spark=")
    return session


def _check_stream(notifications: DataFrame, attributes: Sequence[str] | None, needs_time: bool, time: str) -> None:
    """Raises InputError for a streaming DataFrame that cannot be matched, before anything starts."""
    if not notifications.isStreaming:
        raise InputError("this DataFrame is not a stream: read it with spark.readStream, or use match")
    refuse_taken_names(notifications.columns, [IDS_COLUMN])
    matched_columns(notifications.schema, attributes)
    if needs_time and _time_column(notifications.schema, time) is None:
        raise InputError(f"whether a row is late is decided by a column of times, and {shown(time)} is none: name one")


def _time_column(schema: StructType, attribute: str) -> str | None:
    """The column that holds the times of an attribute; its values of other types are in other columns."""
    columns = [name for name in (attribute, f"{attribute}:{Type.TIME}") if name in schema.names]
    return next((name for name in columns if isinstance(schema[name].dataType, TimestampType)), None)


def _interval(every: timedelta) -> str:
    if every < timedelta(0):
        raise InputError(f"batches cannot begin every {every}: give a time that is not negative")
    return f"{every // timedelta(milliseconds=1)} milliseconds"


# --- what a batch reads -------------------------------------------------------------------------


@dataclass(frozen=True)
class _BatchInput:
    """The rows of a batch, the schema of the output with their columns, and a function that gives the rejects once the
    rows were read."""

    rows: DataFrame
    schema: StructType
    rejects: Callable[[], DataFrame | None]


# Writes a batch and commits it.
_Attempt = Callable[[_BatchInput], BatchRecord]


@dataclass(frozen=True)
class _FilesSource:
    """A stream of names of files."""

    spark: SparkSession
    files: NotificationFiles

    def process(self, batch: DataFrame, known: StructType, attempt: _Attempt) -> BatchRecord:
        """Makes an attempt with the files of a batch; if it fails because of some files, another one without them."""
        # `collect` brings at most `files_max` names.
        paths = sorted(row["path"] for row in batch.collect())
        read = self.files.read(self.spark, paths, known)
        try:
            return attempt(_BatchInput(read.rows, read.schema, read.rejects))
        except FAILURES:
            bad = read.unreadable(paths)
            if not bad:
                raise
        readable_files = self.files.read(self.spark, [path for path in paths if path not in bad], known)
        for path, problem in bad.items():
            readable_files.refuse(path, problem)
        return attempt(_BatchInput(readable_files.rows, readable_files.schema, readable_files.rejects))


@dataclass(frozen=True)
class _RowsSource:
    """A streaming DataFrame of notifications."""

    attributes: Sequence[str] | None

    def process(self, batch: DataFrame, known: StructType, attempt: _Attempt) -> BatchRecord:
        columns = matched_columns(batch.schema, self.attributes)
        reason = reject_reason(StructType([batch.schema[column.column] for column in columns]))
        counted = Observation()
        observed = batch.observe(counted, F.count_if(reason.isNotNull()).alias("rejected"))
        given = Input(observed.where(reason.isNull()), _as_rejects(batch, reason))
        schema = _grown(batch.schema, known)
        return attempt(_BatchInput(given.rows, schema, lambda: given.rejects if counted.get["rejected"] else None))


def _as_rejects(rows: DataFrame, reason: Column) -> DataFrame:
    text = F.to_json(F.struct(*map(col, rows.columns)))
    values = (F.lit(None), F.lit(None), reason, text)
    bad = rows.where(reason.isNotNull())
    return bad.select(
        *(value.cast(field.dataType).alias(field.name) for value, field in zip(values, REJECTS, strict=True))
    )


def _grown(given: StructType, known: StructType) -> StructType:
    """The known schema with the columns that are new; a column must keep its type."""
    fields = {field.name: field for field in known.fields}
    for field in given.fields:
        if fields.setdefault(field.name, field).dataType != field.dataType:
            types = f"{fields[field.name].dataType.simpleString()}, now {field.dataType.simpleString()}"
            raise InputError(f"column {shown(field.name)} was {types}: cast it, or give a new output")
    return StructType(list(fields.values()))


# --- what a batch writes ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lateness:
    """How far a row may be behind the latest time, if rows can be late at all; and the attribute that has its time."""

    late: timedelta | None
    time: str

    def time_max(self, rows: DataFrame) -> Column:
        column = None if self.late is None else _time_column(rows.schema, self.time)
        latest = F.lit(None).cast("bigint") if column is None else F.max(F.unix_micros(col(column)))
        return latest.alias("time_max")

    def is_late(self, rows: DataFrame, before: BatchRecord | None) -> Column | None:
        """Whether a row is late; None if no row can be."""
        if self.late is None or before is None or before.time_max is None:
            return None
        column = _time_column(rows.schema, self.time)
        watermark = before.time_max - self.late // MICROSECOND
        return None if column is None else F.coalesce(F.unix_micros(col(column)) < watermark, F.lit(False))


@dataclass(frozen=True)
class _BatchHandler:
    """For foreachBatch: it runs in the driver."""

    spark: SparkSession
    source: _FilesSource | _RowsSource
    index: Index
    follow: bool
    output: StreamOutput
    lateness: _Lateness
    attributes: Sequence[str] | None
    report: Report | None

    def __call__(self, rows: DataFrame, number: int) -> None:
        with self.output.locked():
            stream = self.spark.sparkContext.getLocalProperty(_QUERY_ID)
            assert stream is not None
            self.output.claim(stream)
            # Spark repeats a batch that it has not recorded as done. If the batch has a record, it was published.
            if self.output.record(number) is not None:
                return
            text = self.output.schema_text()
            known = StructType() if text is None else StructType.fromJson(json.loads(text))
            record = self.source.process(rows, known, lambda batch: self._attempt(batch, number))
        if self.report is not None:
            self.report(record)

    def _attempt(self, batch: _BatchInput, number: int) -> BatchRecord:
        """Stages a batch, with the newest version of the index, and commits it."""
        index = open_index(self.index.path) if self.follow else self.index
        before, staged = self._record_before(number), self.output.stage(number)
        # The schema only grows, so it does no harm if this attempt is not committed.
        if self.output.schema_text() != (text := batch.schema.json()):
            self.output.write_schema(text)
        counts = self._write_rows(batch.rows, index, before, staged)
        rejected = _write_rejects(batch.rejects(), staged)
        times = [counts.pop("time_max"), None if before is None else before.time_max]
        time_max = max((time for time in times if time is not None), default=None)
        named_counts = {name: int(value or 0) for name, value in counts.items()}
        record = BatchRecord(number, index.version, **named_counts, rejected=rejected, time_max=time_max)
        self.output.commit(record, staged)
        return record

    def _record_before(self, number: int) -> BatchRecord | None:
        return self.output.record(number - 1) or self.output.last_record()

    def _write_rows(self, rows: DataFrame, index: Index, before: BatchRecord | None, staged: Path) -> dict[str, Any]:
        """Writes the rows in time and the late ones, in one job. Returns the counts of the batch and its latest
        time."""
        is_late, size, counts = self.lateness.is_late(rows, before), F.size(IDS_COLUMN), Observation()
        matched = match(rows, index, self.attributes).observe(
            counts,
            F.count(F.lit(1)).alias("notifications"),
            F.count_if(size > 0).alias("matched"),
            F.sum(F.when(size > 0, size)).alias("matches"),
            F.count_if(F.lit(False) if is_late is None else is_late).alias("late"),
            self.lateness.time_max(rows),
        )
        if is_late is None:
            matched.write.options(**_NO_MARK).parquet(address(staged / MATCHED_TABLE))
        else:
            # Spark makes a directory for each value of the column, `$table=late`; renamed, it is the table.
            with_table = matched.withColumn(_TABLE, F.when(is_late, LATE_TABLE).otherwise(MATCHED_TABLE))
            with_table.write.options(**_NO_MARK).partitionBy(_TABLE).mode("append").parquet(address(staged))
            for name in (LATE_TABLE, MATCHED_TABLE):
                if (directory := staged / f"{_TABLE}={name}").exists():
                    directory.rename(staged / name)
        return dict(counts.get)


def _write_rejects(rejects: DataFrame | None, staged: Path) -> int:
    if rejects is None:
        return 0
    counted = Observation()
    observed = rejects.observe(counted, F.count(F.lit(1)).alias("rejected"))
    observed.write.options(**_NO_MARK).parquet(address(staged / REJECTS_TABLE))
    return int(counted.get["rejected"])
