"""A filter tried on history: how many notifications of each day it would have matched, and which first.

Each task counts its own days and keeps the few first matches of each; only those are shuffled.
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
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.pipeline.archive.files import UNDATED
from catchment.pipeline.archive.write import Matched, archived, matcher_of, parsed_filter
from catchment.pipeline.rows import TIME, Columns, OrderKey, json_lines, matched_rows, order_keys, plain, values_of
from catchment.pipeline.schema import attributes_of

# Enough to see what kind of notification matches.
DAY_SAMPLES_MAX: Final = 3

_ORDER_TYPES: Final = (st.TimestampType(), st.StringType(), st.LongType(), st.StringType())


def _sample_fields() -> Iterator[st.StructField]:
    for i, kind in enumerate(_ORDER_TYPES):
        yield st.StructField(f"absent_{i}", st.BooleanType())
        yield st.StructField(f"order_{i}", kind)
    yield st.StructField("notification", st.StringType())


_SAMPLES: Final = st.ArrayType(st.StructType(list(_sample_fields())))
_TALLY: Final = st.StructType(
    [
        st.StructField("day", st.StringType()),
        st.StructField("notifications", st.LongType()),
        st.StructField("matched", st.LongType()),
        st.StructField("samples", _SAMPLES),
    ]
)
_TALLY_ARROW: Final = to_arrow_schema(_TALLY, timezone="UTC")
DRY_RUN: Final = st.StructType([*_TALLY.fields[:3], st.StructField("samples", st.ArrayType(st.StringType()))])


def dry_run(
    spark: SparkSession,
    path: str,
    filter: Matched,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """DRY_RUN: for each day, in order, its notifications, how many match, and the first of those as JSON."""
    notifications = archived(spark, path, start, end)
    rows, columns = plain(notifications, attributes_of(notifications.schema))
    tallies = rows.mapInArrow(partial(_tallied, parsed_filter(filter), columns), _TALLY)
    first = sf.slice(sf.array_sort(sf.flatten(sf.collect_list("samples"))), 1, DAY_SAMPLES_MAX)
    joined = tallies.groupBy("day").agg(
        sf.sum("notifications").alias("notifications"),
        sf.sum("matched").alias("matched"),
        sf.transform(first, lambda sample: sample["notification"]).alias("samples"),
    )
    return joined.sort("day").to(DRY_RUN)


@dataclass(slots=True)
class _Tally:
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
        tallies[day].samples = _first(tallies[day].samples, rows, batch, columns)


def _first(
    samples: list[tuple[OrderKey, str]], rows: list[tuple[OrderKey, int]], batch: pa.RecordBatch, columns: Columns
) -> list[tuple[OrderKey, str]]:
    """The samples of a day after one more batch: only what may be shown is made JSON."""
    likely = heapq.nsmallest(DAY_SAMPLES_MAX, rows)
    texts = json_lines(batch.take(pa.array([row for _, row in likely])), columns)
    fresh = [(key, text) for (key, _), text in zip(likely, texts, strict=True)]
    return heapq.nsmallest(DAY_SAMPLES_MAX, samples + fresh)


def _tally_row(day: str, tally: _Tally) -> dict[str, Any]:
    samples = [_sample(key, text) for key, text in tally.samples]
    return {"day": day, "notifications": tally.notifications, "matched": tally.matched, "samples": samples}


def _sample(key: OrderKey, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"notification": text}
    for i, (absent, value) in enumerate(key):
        found |= {f"absent_{i}": absent, f"order_{i}": None if absent else value}
    return found
