"""A dry run of a filter on an archive: how many notifications of each day it would have matched, and the first of them.

Each task counts the days in its rows, and keeps the first few matches of each day. Only these counts and samples are
shuffled.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType, TimestampType

from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.pipeline.archive.files import UNDATED
from catchment.pipeline.archive.read import AnyFilter, archived, matcher_of, parsed_filter
from catchment.pipeline.rows import (
    TIME,
    Columns,
    OrderKey,
    json_lines,
    matched_rows,
    order_keys,
    values_of,
    with_safe_names,
)
from catchment.pipeline.schema import attributes_of

# Samples of a day: enough to see what kind of notification matches.
DAY_SAMPLES_MAX: Final = 3

_ORDER_TYPES: Final = (TimestampType(), StringType(), LongType(), StringType())


def _sample_fields() -> Iterator[StructField]:
    # The order key of a notification comes first, so that Spark's array_sort puts samples into publication order.
    for i, kind in enumerate(_ORDER_TYPES):
        yield StructField(f"absent_{i}", BooleanType())
        yield StructField(f"order_{i}", kind)
    yield StructField("notification", StringType())


_SAMPLES: Final = ArrayType(StructType(list(_sample_fields())))
_TALLY: Final = StructType(
    [
        StructField("day", StringType()),
        StructField("notifications", LongType()),
        StructField("matched", LongType()),
        StructField("samples", _SAMPLES),
    ]
)
_TALLY_ARROW: Final = to_arrow_schema(_TALLY, timezone="UTC")
DRY_RUN: Final = StructType([*_TALLY.fields[:3], StructField("samples", ArrayType(StringType()))])


def dry_run(
    spark: SparkSession,
    path: str,
    filter: AnyFilter,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Rows of DRY_RUN, one for each day, in order: its notifications, how many match, and the first matches as JSON."""
    notifications = archived(spark, path, start, end)
    rows, columns = with_safe_names(notifications, attributes_of(notifications.schema))
    tallies = rows.mapInArrow(partial(_tallied, parsed_filter(filter), columns), _TALLY)
    first = F.slice(F.array_sort(F.flatten(F.collect_list("samples"))), 1, DAY_SAMPLES_MAX)
    joined = tallies.groupBy("day").agg(
        F.sum("notifications").alias("notifications"),
        F.sum("matched").alias("matched"),
        F.transform(first, lambda sample: sample["notification"]).alias("samples"),
    )
    return joined.sort("day").to(DRY_RUN)


@dataclass(slots=True)
class _Tally:
    """What a task has counted of one day."""

    notifications: int = 0
    matched: int = 0
    samples: list[tuple[OrderKey, str]] = field(default_factory=list)


def _tallied(filter: Filter | Cesql, columns: Columns, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    matcher, tallies = matcher_of(filter), defaultdict[str, _Tally](_Tally)
    for batch in batches:
        _count(matcher, columns, batch, tallies)
    rows = [_tally_row(day, tally) for day, tally in sorted(tallies.items())]
    yield pa.RecordBatch.from_pylist(rows, _TALLY_ARROW)


def _count(matcher: Matcher, columns: Columns, batch: pa.RecordBatch, tallies: dict[str, _Tally]) -> None:
    times = values_of(batch, TIME, columns)
    days = [time.date().isoformat() if isinstance(time, datetime) else UNDATED for time in times]
    for day in days:
        tallies[day].notifications += 1
    matched = [row for row, _ in matched_rows(matcher, batch, columns)]
    keys = order_keys(batch.take(pa.array(matched, pa.int64())), columns)
    rows_by_day = defaultdict[str, list[tuple[OrderKey, int]]](list)
    for key, row in zip(keys, matched, strict=True):
        rows_by_day[days[row]].append((key, row))
    for day, rows in rows_by_day.items():
        tallies[day].matched += len(rows)
        tallies[day].samples = _first_samples(tallies[day].samples, rows, batch, columns)


def _first_samples(
    samples: list[tuple[OrderKey, str]], rows: list[tuple[OrderKey, int]], batch: pa.RecordBatch, columns: Columns
) -> list[tuple[OrderKey, str]]:
    """The samples of a day after one more batch. Only rows that may become samples are turned into JSON."""
    first_rows = heapq.nsmallest(DAY_SAMPLES_MAX, rows)
    texts = json_lines(batch.take(pa.array([row for _, row in first_rows])), columns)
    new = [(key, text) for (key, _), text in zip(first_rows, texts, strict=True)]
    return heapq.nsmallest(DAY_SAMPLES_MAX, samples + new)


def _tally_row(day: str, tally: _Tally) -> dict[str, Any]:
    samples = [_sample(key, text) for key, text in tally.samples]
    return {"day": day, "notifications": tally.notifications, "matched": tally.matched, "samples": samples}


def _sample(key: OrderKey, text: str) -> dict[str, Any]:
    sample: dict[str, Any] = {"notification": text}
    for i, (absent, value) in enumerate(key):
        sample |= {f"absent_{i}": absent, f"order_{i}": None if absent else value}
    return sample
