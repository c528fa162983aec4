"""Summaries of what each broker propagates: AACS and SACS as tables (summaries text §3), built by broker and attribute.

    reduced, filters ─► one row for each thing a filter says of an attribute ─► by broker and attribute ─► summaries

A summary is made of the filters a broker must propagate (`graph.py`): whatever matches one that these cover matches one
of these. Ids are the numbers of filters. `routing/summary` has the structure, and says in what it is wider than the
filters: it may name a filter that does not match, and never leaves one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.errors import CatchmentError
from catchment.model.box import WHOLE
from catchment.model.values import KEY_BOUNDS, Type, float_from_key, time_from_key
from catchment.pipeline.graph.build import FILTERS, REDUCED
from catchment.pipeline.graph.parts import boxes_of
from catchment.pipeline.paths import address, reading
from catchment.routing.summary.aacs import BOOL, NUMBER, TIME, VALUE_BYTES, Aacs
from catchment.routing.summary.ids import id_sizes
from catchment.routing.summary.sacs import Pattern, Sacs
from catchment.routing.summary.summary import dissolved

SUMMARIES: Final = "summaries"
# Rows of one attribute of one broker. An id stands in many of them, so this bounds the table too.
SUMMARY_ROWS_MAX: Final = 64
STRING, EVERYTHING = "string", "everything"

# What a filter says of an attribute: a range of keys, up to and not including `high`, or a pattern.
_ASKED: Final = pa.schema(
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
# A row of a summary: values from low to high, both included, null where there is no bound; or a pattern; or, of kind
# `everything` and without an attribute, filters that name none. `value_bytes` is what the text counts besides the ids.
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
_END: Final = {kind: KEY_BOUNDS[one][1] for kind, one in ((NUMBER, Type.FLOAT), (TIME, Type.TIME), (BOOL, Type.BOOL))}
_START: Final = {kind: KEY_BOUNDS[one][0] for kind, one in ((NUMBER, Type.FLOAT), (TIME, Type.TIME), (BOOL, Type.BOOL))}
Row = dict[str, Any]


def write_summaries(reduced: DataFrame, filters: DataFrame, directory: Path) -> dict[str, int]:
    """Writes the table of summaries; counts of its rows, of their bytes as the text counts them (§5.1), and of the
    bytes of one id in that."""
    spark = reduced.sparkSession
    held = reduced.join(filters.select("number", "text", "dialect"), reduced["filter"] == F.col("number"))
    asked = held.select("broker", "number", "text", "dialect").mapInArrow(_asked, from_arrow_schema(_ASKED))
    keys = ("broker", "attribute", "kind")
    grouped = asked.repartition(*keys).sortWithinPartitions(*keys, "id")
    place = directory / SUMMARIES
    grouped.mapInArrow(_summarized, from_arrow_schema(SUMMARIES_SCHEMA)).write.parquet(address(place))
    written = spark.read.schema(from_arrow_schema(SUMMARIES_SCHEMA)).parquet(reading(place))
    (of_rows,) = written.agg(
        F.count("*").alias("rows"),
        F.coalesce(F.sum("value_bytes"), F.lit(0)).alias("values"),
        F.coalesce(F.sum(F.size("ids")), F.lit(0)).alias("ids"),
        F.count_distinct("attribute").alias("attributes"),
    ).collect()
    (of_brokers,) = (
        reduced.groupBy("broker").count().agg(F.count("*").alias("brokers"), F.max("count").alias("most")).collect()
    )
    id_bytes = id_sizes(of_brokers["brokers"] or 1, of_brokers["most"] or 1, of_rows["attributes"]).bytes
    return {
        "summary_rows": of_rows["rows"],
        "summary_bytes": of_rows["values"] + of_rows["ids"] * id_bytes,
        "summary_id_bytes": id_bytes,
    }


def summaries_of(directory: Path, spark: Any) -> dict[str, int]:
    """The summaries of the tables that `write_graph` left in a directory."""
    reduced = spark.read.parquet(reading(directory / REDUCED))
    filters = spark.read.parquet(reading(directory / FILTERS)).withColumnRenamed("filter", "text")
    return write_summaries(reduced, filters, directory)


# --- what filters say ---------------------------------------------------------------------------


def _asked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("broker", "number", "text", "dialect")]
        yield _batch([row for one in zip(*columns, strict=True) for row in _asked_rows(*one)], _ASKED)


def _asked_rows(broker: str | None, number: int, text: str, dialect: str) -> Iterator[Row]:
    try:
        found = dissolved(boxes_of(text, dialect))
    except CatchmentError:  # past a limit of the model: it may match anything
        found = dissolved((WHOLE,))
    base = {"broker": broker, "id": number}
    if not found.names:
        yield base | {"attribute": None, "kind": EVERYTHING}
    for (name, kind), keys in found.keys.items():
        yield from (base | {"attribute": name, "kind": kind, "low": low, "high": high} for low, high in keys)
    for name, patterns in found.patterns.items():
        for one in patterns:
            yield base | {"attribute": name, "kind": STRING, "operator": one.operator, "operand": one.operand}


def _batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in schema], schema.names
    )


# --- rows of summaries --------------------------------------------------------------------------


def _summarized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows sorted by broker, attribute and kind: a task holds one of those at a time."""
    rows = (row for batch in batches for row in batch.to_pylist())
    waiting: list[Row] = []
    for (broker, attribute, kind), group in groupby(
        rows, key=lambda row: (row["broker"], row["attribute"], row["kind"])
    ):
        base = {"broker": broker, "attribute": attribute, "kind": kind}
        waiting += [base | row for row in _rows(kind, list(group))]
        if len(waiting) >= _BATCH_ROWS:
            yield _batch(waiting, SUMMARIES_SCHEMA)
            waiting = []
    if waiting:
        yield _batch(waiting, SUMMARIES_SCHEMA)


def _rows(kind: str, asked: list[Row]) -> Iterator[Row]:
    if kind == EVERYTHING:
        yield {"ids": sorted({row["id"] for row in asked}), "value_bytes": 0, "is_exact": True}
    elif kind == STRING:
        patterns = ((row["id"], (Pattern(row["operator"], row["operand"]),)) for row in asked)
        yield from _string_rows(Sacs.of(patterns, SUMMARY_ROWS_MAX))
    else:
        ranges = ((row["id"], ((row["low"], row["high"]),)) for row in asked)
        yield from _arithmetic_rows(kind, Aacs.of(ranges, SUMMARY_ROWS_MAX))


def _string_rows(found: Sacs[int]) -> Iterator[Row]:
    for pattern, ids in sorted(found.rows.items()):
        said = {"operator": pattern.operator, "operand": pattern.operand, "value_bytes": pattern.size_bytes}
        yield said | {"ids": sorted(ids), "is_exact": found.is_exact}


def _arithmetic_rows(kind: str, found: Aacs[int]) -> Iterator[Row]:
    low, high = ("low_time", "high_time") if kind == TIME else ("low", "high")
    for row in found.rows:
        size = VALUE_BYTES[kind] * (1 if row.is_equality else 2)
        said = {"operator": "=" if row.is_equality else "range", "value_bytes": size, "is_exact": found.is_exact}
        ends = {low: _end(kind, row.low, _START[kind]), high: _end(kind, row.high - 1, _END[kind])}
        yield said | ends | {"ids": sorted(row.ids)}


def _end(kind: str, key: int, bound: int) -> float | datetime | None:
    if kind == BOOL:
        return float(key)
    if key == bound:
        return None
    return time_from_key(key) if kind == TIME else float_from_key(key)
