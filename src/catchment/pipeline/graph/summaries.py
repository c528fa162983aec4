"""Summaries of what each broker propagates: AACS and SACS as tables (summaries text §3), built by broker and attribute.

    reduced, filters ─► a row for each range or pattern of a filter ─► by broker and attribute ─► summaries

A summary is made of the filters that a broker must propagate (`build.py`). A notification that matches any filter of
the broker matches one of these. The ids in a summary are the numbers of filters. `routing/summary` has the structure,
and explains how it is wider than the filters: it may name a filter that does not match, but never leaves one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.errors import CatchmentError
from catchment.model.box import WHOLE
from catchment.model.values import KEY_BOUNDS, Type, float_from_key, time_from_key
from catchment.pipeline.graph.build import FILTERS, REDUCED
from catchment.pipeline.graph.parts import boxes_of
from catchment.pipeline.paths import address, readable
from catchment.routing.summary.aacs import BOOL, NUMBER, TIME, VALUE_BYTES, Aacs
from catchment.routing.summary.ids import id_sizes
from catchment.routing.summary.sacs import Pattern, Sacs
from catchment.routing.summary.summary import dissolved

SUMMARIES: Final = "summaries"
# Rows for one attribute of one broker. An id stands in many of them, so this bounds the size of the table too.
SUMMARY_ROWS_MAX: Final = 64
STRING, EVERYTHING = "string", "everything"

# What a filter demands of an attribute: a range of keys, `high` not included, or a pattern.
_DEMANDS: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("attribute", pa.string()),
        ("kind", pa.string()),
        ("id", pa.int32()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("operator", pa.string()),
        ("operand", pa.string()),
    ]
)
# A row of a summary: values from low to high, both included, null where there is no bound; or a pattern; or, with the
# kind `everything` and no attribute, the filters that name no attribute. `value_bytes` is the size of the row without
# its ids, as the summaries text counts it.
SUMMARIES_SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("attribute", pa.string()),
        ("kind", pa.string()),
        ("operator", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("low_time", pa.timestamp("us", "UTC")),
        ("high_time", pa.timestamp("us", "UTC")),
        ("operand", pa.string()),
        ("ids", pa.list_(pa.int32())),
        ("value_bytes", pa.int32()),
        ("is_exact", pa.bool_()),
    ]
)
_BATCH_ROWS: Final = 10_000
_TYPES: Final = {NUMBER: Type.FLOAT, TIME: Type.TIME, BOOL: Type.BOOL}
_LEAST_KEY: Final = {kind: KEY_BOUNDS[value_type][0] for kind, value_type in _TYPES.items()}
_GREATEST_KEY: Final = {kind: KEY_BOUNDS[value_type][1] for kind, value_type in _TYPES.items()}
Row = dict[str, Any]


def summaries_of(directory: Path, spark: SparkSession) -> dict[str, int]:
    """Writes the summaries that follow from the tables which `write_graph` left in a directory."""
    reduced = spark.read.parquet(readable(directory / REDUCED))
    filters = spark.read.parquet(readable(directory / FILTERS)).withColumnRenamed("filter", "text")
    return write_summaries(reduced, filters, directory)


def write_summaries(reduced: DataFrame, filters: DataFrame, directory: Path) -> dict[str, int]:
    """Writes the table of summaries. Returns the number of its rows, their bytes as the summaries text counts them
    (§5.1), and the bytes of one id in that count."""
    spark = reduced.sparkSession
    held = reduced.join(filters.select("number", "text", "dialect"), reduced["filter"] == F.col("number"))
    columns = held.select("broker", "number", "text", "dialect")
    demands = columns.mapInArrow(_demand_batches, from_arrow_schema(_DEMANDS))
    keys = ("broker", "attribute", "kind")
    grouped = demands.repartition(*keys).sortWithinPartitions(*keys, "id")
    path = directory / SUMMARIES
    grouped.mapInArrow(_summary_batches, from_arrow_schema(SUMMARIES_SCHEMA)).write.parquet(address(path))
    written = spark.read.schema(from_arrow_schema(SUMMARIES_SCHEMA)).parquet(readable(path))
    (totals,) = written.agg(
        F.count("*").alias("rows"),
        F.coalesce(F.sum("value_bytes"), F.lit(0)).alias("value_bytes"),
        F.coalesce(F.sum(F.size("ids")), F.lit(0)).alias("ids"),
        F.count_distinct("attribute").alias("attributes"),
    ).collect()
    filters_by_broker = reduced.groupBy("broker").count()
    (brokers,) = filters_by_broker.agg(F.count("*").alias("count"), F.max("count").alias("filters_max")).collect()
    id_bytes = id_sizes(brokers["count"] or 1, brokers["filters_max"] or 1, totals["attributes"]).bytes
    return {
        "summary_rows": totals["rows"],
        "summary_bytes": totals["value_bytes"] + totals["ids"] * id_bytes,
        "summary_id_bytes": id_bytes,
    }


# --- what filters demand ------------------------------------------------------------------------


def _demand_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of _DEMANDS."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("broker", "number", "text", "dialect")]
        rows = [demand for filter_row in zip(*columns, strict=True) for demand in _demands(*filter_row)]
        yield _batch(rows, _DEMANDS)


def _demands(broker: str | None, number: int, text: str, dialect: str) -> Iterator[Row]:
    try:
        parts = dissolved(boxes_of(text, dialect))
    except CatchmentError:  # past a limit of the model: the filter may match anything
        parts = dissolved((WHOLE,))
    base = {"broker": broker, "id": number}
    if not parts.names:
        yield base | {"attribute": None, "kind": EVERYTHING}
    for (name, kind), keys in parts.keys.items():
        yield from (base | {"attribute": name, "kind": kind, "low": low, "high": high} for low, high in keys)
    for name, patterns in parts.patterns.items():
        for pattern in patterns:
            yield base | {"attribute": name, "kind": STRING, "operator": pattern.operator, "operand": pattern.operand}


def _batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in schema], schema.names
    )


# --- rows of summaries --------------------------------------------------------------------------


def _summary_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of SUMMARIES_SCHEMA. The demands are sorted by broker, attribute and kind, so a task holds
    those of one attribute of one broker at a time."""
    demands = (row for batch in batches for row in batch.to_pylist())
    rows: list[Row] = []
    for (broker, attribute, kind), group in groupby(
        demands, key=lambda row: (row["broker"], row["attribute"], row["kind"])
    ):
        base = {"broker": broker, "attribute": attribute, "kind": kind}
        rows += [base | row for row in _rows(kind, list(group))]
        if len(rows) >= _BATCH_ROWS:
            yield _batch(rows, SUMMARIES_SCHEMA)
            rows = []
    if rows:
        yield _batch(rows, SUMMARIES_SCHEMA)


def _rows(kind: str, demands: list[Row]) -> Iterator[Row]:
    if kind == EVERYTHING:
        yield {"ids": sorted({demand["id"] for demand in demands}), "value_bytes": 0, "is_exact": True}
    elif kind == STRING:
        patterns = ((demand["id"], (Pattern(demand["operator"], demand["operand"]),)) for demand in demands)
        yield from _string_rows(Sacs.of(patterns, SUMMARY_ROWS_MAX))
    else:
        ranges = ((demand["id"], ((demand["low"], demand["high"]),)) for demand in demands)
        yield from _arithmetic_rows(kind, Aacs.of(ranges, SUMMARY_ROWS_MAX))


def _string_rows(sacs: Sacs[int]) -> Iterator[Row]:
    for pattern, ids in sorted(sacs.rows.items()):
        cells = {"operator": pattern.operator, "operand": pattern.operand, "value_bytes": pattern.size_bytes}
        yield cells | {"ids": sorted(ids), "is_exact": sacs.is_exact}


def _arithmetic_rows(kind: str, aacs: Aacs[int]) -> Iterator[Row]:
    low, high = ("low_time", "high_time") if kind == TIME else ("low", "high")
    for row in aacs.rows:
        size = VALUE_BYTES[kind] * (1 if row.is_equality else 2)
        cells = {"operator": "=" if row.is_equality else "range", "value_bytes": size, "is_exact": aacs.is_exact}
        ends = {low: _end(kind, row.low, _LEAST_KEY[kind]), high: _end(kind, row.high - 1, _GREATEST_KEY[kind])}
        yield cells | ends | {"ids": sorted(row.ids)}


def _end(kind: str, key: int, bound: int) -> float | datetime | None:
    """The value of a key; None if the key is the bound of all keys, so that there is no end."""
    if kind == BOOL:
        return float(key)
    if key == bound:
        return None
    return time_from_key(key) if kind == TIME else float_from_key(key)
