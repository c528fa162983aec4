"""Reading an archive: its notifications between two times, those that match a filter, and their JSON.

Filters are matched by the Matcher, on Arrow batches. Only the days that can hold an answer are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.values import MICROSECOND, time_key
from catchment.pipeline.archive.files import Archive, File
from catchment.pipeline.growing_schema import empty_schema
from catchment.pipeline.rows import TIME, Columns, json_lines, matched_rows, publication_order, with_safe_names
from catchment.pipeline.schema import attributes_of, col

AnyFilter = Filter | Cesql | str
_LINES: Final = StructType([StructField("line", StringType(), False)])


def archived(spark: SparkSession, path: str, start: datetime | None = None, end: datetime | None = None) -> DataFrame:
    """The notifications published from `start` until before `end`, in no order; other days are not opened.
    Notifications without $time are included only when neither `start` nor `end` is given."""
    archive = Archive(path)
    archive.required_schema_text()
    last_day = None if end is None else (end - MICROSECOND).date()
    rows = read_files(spark, archive, archive.files(archive.days(start and start.date(), last_day)))
    time = col(TIME)
    if start is not None:
        rows = rows.where(time >= F.timestamp_micros(F.lit(time_key(start))))
    return rows if end is None else rows.where(time < F.timestamp_micros(F.lit(time_key(end))))


def read_files(spark: SparkSession, archive: Archive, files: list[File]) -> DataFrame:
    """The notifications of some files of an archive, with every column that the archive has."""
    schema = schema_of(archive.required_schema_text())
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(archive.uri(file.path) for file in files))


def schema_of(text: str | None) -> StructType:
    """The schema of an archive from its text; the empty schema where nothing was archived yet."""
    return empty_schema() if text is None else StructType.fromJson(json.loads(text))


def replay(
    spark: SparkSession,
    path: str,
    filter: AnyFilter | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Notifications in publication order: by $time, then $source, $seq and $id, absent values last."""
    rows = archived(spark, path, start, end)
    chosen = rows if filter is None else matching(rows, filter)
    return chosen.sort(*publication_order(chosen.columns))


# --- filters ------------------------------------------------------------------------------------


def matching(notifications: DataFrame, filter: AnyFilter) -> DataFrame:
    """The notifications that match a filter."""
    rows, columns = with_safe_names(notifications, attributes_of(notifications.schema))
    keep_matching = partial(_matching_rows, parsed_filter(filter), columns, notifications.columns)
    return rows.mapInArrow(keep_matching, notifications.schema)


def parsed_filter(filter: AnyFilter) -> Filter | Cesql:
    return Filter(filter) if isinstance(filter, str) else filter


def matcher_of(filter: Filter | Cesql) -> Matcher:
    """A matcher of this filter alone."""
    matcher = Matcher()
    matcher.add(0, filter)
    return matcher


def _matching_rows(
    filter: Filter | Cesql, columns: Columns, names: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the rows that match, their columns with their own names again."""
    matcher = matcher_of(filter)
    for batch in batches:
        numbers = pa.array([row for row, _ in matched_rows(matcher, batch, columns)], pa.int64())
        yield batch.take(numbers).rename_columns(names)


# --- JSON ---------------------------------------------------------------------------------------


def lines(notifications: DataFrame) -> Iterator[str]:
    """Each notification as a flat JSON object, in the order of the DataFrame; one partition at a time is in memory."""
    rows, columns = with_safe_names(notifications, attributes_of(notifications.schema))
    texts = rows.mapInArrow(partial(_line_batches, columns), _LINES)
    return (row.line for row in texts.toLocalIterator(prefetchPartitions=True))


def _line_batches(columns: Columns, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array(json_lines(batch, columns), pa.string())], ["line"])
