"""Parsing: what workers run on rows of subscriptions to get canonical filters.

The table `PARSED` has one row for each row given: the subscription with its canonical filter, or the reason why the row
is not a subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from catchment.errors import CatchmentError, InputError, shown
from catchment.matching.bulk import pack_filter
from catchment.matching.ids import id_bytes
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.pipeline.compile.catalogue import CATCHMENT, CESQL, CONTRADICTORY, DIALECTS, EXPIRED
from catchment.pipeline.index import LIVE
from catchment.pipeline.schema import FILE, ROW, SUBSCRIPTIONS

# Many subscriptions have the same text. A worker remembers the filters of so many texts.
_TEXTS_KEPT_MAX: Final = 65_536
_REQUIRED: Final = ("id", "subscriber", "filter")
_NOTHING: Final = pack_filter(Filter("false"))

PARSED: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", BinaryType()),
        StructField("status", StringType()),
        StructField("reason", StringType()),
        StructField("text", StringType()),
        StructField(FILE, StringType()),
        StructField(ROW, LongType()),
    ]
)


class ParsedFilter(NamedTuple):
    """The columns of a row that parsing changes. A reject has a reason, and no status."""

    filter: str | None
    dialect: str | None
    conjunction: bytes | None
    status: str | None
    reason: str | None


def parsed_subscriptions(subscriptions: DataFrame, now: Column) -> DataFrame:
    """Rows of `PARSED`, from the columns of `SUBSCRIPTIONS`, `$file` and `$row`. Of several rows with one id the first
    good one is the subscription, by file and row where these are known; the others are rejects."""
    # Rows with the same id come to the same task. And all cores get work, however few files there are.
    sorted_rows = subscriptions.repartition("id").sortWithinPartitions("id", FILE, ROW, "filter", "subscriber")
    parsed = sorted_rows.mapInArrow(parsed_batches, PARSED)
    is_expired = (F.col("status") == LIVE) & (F.col("expires") <= now)
    return parsed.withColumn("status", F.when(is_expired, EXPIRED).otherwise(F.col("status")))


def parsed_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of `PARSED` from rows that are sorted by id."""
    taken_id: str | None = None  # outlives a batch: rows with one id may be in two batches
    for batch in batches:
        ids, subscribers, texts, dialects = (batch.column(name).to_pylist() for name in (*_REQUIRED, "dialect"))
        rows = list(map(_parsed_row, ids, subscribers, texts, dialects))
        for i, (id, row) in enumerate(zip(ids, rows, strict=True)):
            if row.reason is None:
                if id == taken_id:
                    rows[i] = ParsedFilter(texts[i], dialects[i], None, None, f"the id {id} stands twice")
                taken_id = id
        yield _parsed_batch(batch, rows)


def _parsed_row(id: str | None, subscriber: str | None, text: str | None, dialect: str | None) -> ParsedFilter:
    try:
        if not id or not subscriber or not text:
            missing = next(name for name, value in zip(_REQUIRED, (id, subscriber, text), strict=True) if not value)
            raise InputError(f"a subscription needs {missing} as text, found none")
        if dialect and dialect not in DIALECTS:
            raise InputError(f"unknown dialect {shown(dialect)}: use one of {', '.join(DIALECTS)}")
        id_bytes(id)  # raises if the id is too long
        id_bytes(subscriber)
        return parsed_filter(text, dialect or CATCHMENT)
    except (CatchmentError, RecursionError) as problem:
        return ParsedFilter(text, dialect, None, None, str(problem) or "nesting too deep")


@lru_cache(maxsize=_TEXTS_KEPT_MAX)
def parsed_filter(text: str, dialect: str) -> ParsedFilter:
    """The canonical form of a filter. Raises CatchmentError if it does not parse."""
    if dialect == CESQL:
        expression = Cesql(text)
        status = CONTRADICTORY if expression.filter.is_empty else LIVE
        return ParsedFilter(str(expression), dialect, None, status, None)
    filter = Filter(text)
    if filter.is_opaque:
        return ParsedFilter(str(filter), dialect, None, CONTRADICTORY if filter.is_empty else LIVE, None)
    # Packed in canonical form: so filters with the same text are packed alike.
    packed = pack_filter(Filter.of_expression(filter.canonical))
    # Of a filter that is no conjunction, only truth values are looked at: to find more contradictions takes its normal
    # form, a hundred times as long as to parse it. A filter that nothing matches is one that is never reported.
    is_contradictory = filter.is_empty if filter.conjunction is not None else packed == _NOTHING
    if is_contradictory:
        return ParsedFilter(str(filter), dialect, None, CONTRADICTORY, None)
    return ParsedFilter(str(filter), dialect, packed, LIVE, None)


def _parsed_batch(batch: pa.RecordBatch, rows: Sequence[ParsedFilter]) -> pa.RecordBatch:
    filters, dialects, conjunctions, statuses, reasons = zip(*rows, strict=True) if rows else ((),) * 5
    reason = pa.array(reasons, pa.string())
    changed = {
        "filter": pa.array(filters, pa.string()),
        "dialect": pa.array(dialects, pa.string()),
        "conjunction": pa.array(conjunctions, pa.binary()),
        "status": pa.array(statuses, pa.string()),
        "reason": reason,
        "text": pc.if_else(reason.is_valid(), batch.column("filter"), None),
    }
    arrays = [changed[name] if name in changed else batch.column(name) for name in PARSED.names]
    return pa.RecordBatch.from_arrays(arrays, PARSED.names)
