"""Archives: notifications as Parquet by UTC day, and what can be asked of them later.

`archive` appends, `compact` joins small files, `replay` gives notifications back in publication order and
`lines` their JSON one by one, `dry_run` says what a filter would have matched. Filters are matched by the
Matcher, on Arrow batches; only days that can hold an answer are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from catchment.errors import InputError
from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.values import MICROSECOND, Type, time_key
from catchment.pipeline.archive.files import DAY, UNDATED, Compaction, File, Place
from catchment.pipeline.rows import TIME, Columns, json_lines, matched_rows, plain, publication_order
from catchment.pipeline.schema import (
    ENVELOPE_FIELDS,
    PAYLOAD,
    SPARK_TYPES,
    attributes_of,
    col,
    refuse_case_twins,
)

# Large enough that opening a file costs nothing beside reading it, small enough for one task.
FILE_BYTES_TARGET: Final = 128 * 1024 * 1024
_DAY_MICROSECONDS: Final = 86_400_000_000

Matched = Filter | Cesql | str

_ENVELOPE: Final = st.StructType(list(ENVELOPE_FIELDS))
_TYPE_NAMES: Final = frozenset(one.value for one in Type)
_LINES: Final = st.StructType([st.StructField("line", st.StringType(), False)])


# --- writing ------------------------------------------------------------------------------------


def archive(notifications: DataFrame, path: str) -> None:
    """Appends notifications; one writer at a time. From a stream: call it in `foreachBatch`."""
    if notifications.isStreaming:
        raise InputError(
            "a stream is archived batch by batch: stream.writeStream.foreachBatch(lambda df, _: archive(…))"
        )
    place = Place(path)
    known = _schema(place.schema_text())
    columns, schema = fitted(notifications.schema, known)
    refuse_case_twins(notifications.sparkSession, schema)
    if schema != known or place.schema_text() is None:
        place.write_schema(schema.json())
    dated = notifications.select(*columns).withColumn(DAY, _day(TIME in _names(notifications)))
    # One task for each day, or several where a day is large: few files, of like size.
    balanced = dated.hint("rebalance", col(DAY)).sortWithinPartitions(col(DAY), *publication_order(dated.columns))
    balanced.write.mode("append").partitionBy(DAY).parquet(place.root_uri)


def _names(notifications: DataFrame) -> list[str]:
    return [field.name for field in notifications.schema]


def _schema(text: str | None) -> st.StructType:
    return st.StructType(list(_ENVELOPE)) if text is None else st.StructType.fromJson(json.loads(text))


def fitted(given: st.StructType, known: st.StructType) -> tuple[list[Column], st.StructType]:
    """The columns as the schema known so far names and types them, and that schema with those that are new."""
    fields = {field.name: field for field in known}
    columns = []
    for field in given:
        fitted = _fitted_field(field, fields)
        fields.setdefault(fitted.name, fitted)
        columns.append(_cast(field, fitted.dataType).alias(fitted.name))
    return columns, st.StructType(list(fields.values()))


def _fitted_field(field: st.StructField, known: dict[str, st.StructField]) -> st.StructField:
    """The first type of an attribute has the column of its name, each other type one that says so."""
    if field.name == PAYLOAD:
        return _ENVELOPE[PAYLOAD]
    (found,) = attributes_of(st.StructType([field]))
    stored = SPARK_TYPES[found.type]
    is_first = not _ends_in_type(found.name) and (found.name not in known or known[found.name].dataType == stored)
    return st.StructField(found.name if is_first else f"{found.name}:{found.type}", stored)


def _ends_in_type(name: str) -> bool:
    return name.rpartition(":")[2] in _TYPE_NAMES


def _cast(field: st.StructField, stored: st.DataType) -> Column:
    found = col(field.name)
    if field.name == PAYLOAD and isinstance(field.dataType, st.StringType):
        return sf.unbase64(found)
    return found if field.dataType == stored else found.cast(stored)


def _day(has_time: bool) -> Column:
    """The UTC day of $time whatever the time zone of the session."""
    if not has_time:
        return sf.lit(UNDATED)
    at = sf.unix_micros(col(TIME))
    # Exact in integers, before 1970 too: what is divided is a whole number of days.
    days = ((at - sf.pmod(at, sf.lit(_DAY_MICROSECONDS))) / _DAY_MICROSECONDS).cast("int")
    return sf.coalesce(sf.date_from_unix_date(days).cast("string"), sf.lit(UNDATED))


# --- compaction ---------------------------------------------------------------------------------


def compact(spark: SparkSession, path: str, target_bytes: int = FILE_BYTES_TARGET) -> list[str]:
    """Joins the small files of each day, one day after the other; the days that changed.

    Nothing is lost whenever it is killed, and a reader sees a day before or after. Run one at a time: a
    replay that began before may find its files gone, and must be started again."""
    place = Place(path)
    place.needed_schema_text()
    place.tidy()
    return [day for day in place.days() if _compact_day(spark, place, day, target_bytes)]


def _compact_day(spark: SparkSession, place: Place, day: str, target_bytes: int) -> bool:
    small = [file for file in place.files([day]) if file.size < target_bytes // 2]
    if len(small) < 2:
        return False
    token = place.token(day, small)
    parts = -(-sum(file.size for file in small) // target_bytes)
    found = _read(spark, place, small)
    order = publication_order(found.columns)
    joined = found.repartitionByRange(parts, *order) if parts > 1 else found.coalesce(1)
    joined.sortWithinPartitions(*order).write.mode("overwrite").parquet(place.staging_uri(token))
    new = tuple(file.name for file in place.staged(token))
    compaction = Compaction(token, day, tuple(file.name for file in small), new)
    place.commit(compaction)
    place.finish(compaction)
    return True


# --- reading ------------------------------------------------------------------------------------


def _read(spark: SparkSession, place: Place, files: list[File]) -> DataFrame:
    schema = _schema(place.needed_schema_text())
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(place.uri(file.path) for file in files))


def archived(spark: SparkSession, path: str, start: datetime | None = None, end: datetime | None = None) -> DataFrame:
    """What was published from `start` until before `end`, in no order; other days are not opened.
    Notifications without $time are part of it only when neither is given."""
    place = Place(path)
    place.needed_schema_text()
    last = None if end is None else (end - MICROSECOND).date()
    found = _read(spark, place, place.files(place.days(start and start.date(), last)))
    time = col(TIME)
    if start is not None:
        found = found.where(time >= sf.timestamp_micros(sf.lit(time_key(start))))
    return found if end is None else found.where(time < sf.timestamp_micros(sf.lit(time_key(end))))


def matching(notifications: DataFrame, filter: Matched) -> DataFrame:
    """The notifications that match."""
    rows, columns = plain(notifications, attributes_of(notifications.schema))
    chosen = partial(_matching, parsed_filter(filter), columns, notifications.columns)
    return rows.mapInArrow(chosen, notifications.schema)


def parsed_filter(filter: Matched) -> Filter | Cesql:
    return Filter(filter) if isinstance(filter, str) else filter


def _matching(
    filter: Filter | Cesql, columns: Columns, names: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    matcher = matcher_of(filter)
    for batch in batches:
        found = batch.take(pa.array([row for row, _ in matched_rows(matcher, batch, columns)], pa.int64()))
        yield found.rename_columns(names)


def matcher_of(filter: Filter | Cesql) -> Matcher:
    matcher = Matcher()
    matcher.add(0, filter)
    return matcher


def replay(
    spark: SparkSession,
    path: str,
    filter: Matched | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Notifications in publication order: by $time, then $source, $seq and $id, the absent last."""
    found = archived(spark, path, start, end)
    wanted = found if filter is None else matching(found, filter)
    return wanted.sort(*publication_order(wanted.columns))


def lines(notifications: DataFrame) -> Iterator[str]:
    """Their JSON, one flat object each, in the order of the DataFrame; one partition at a time is in memory."""
    rows, columns = plain(notifications, attributes_of(notifications.schema))
    found = rows.mapInArrow(partial(_as_lines, columns), _LINES)
    return (row.line for row in found.toLocalIterator(prefetchPartitions=True))


def _as_lines(columns: Columns, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array(json_lines(batch, columns), pa.string())], ["line"])
