"""Reading notifications and subscriptions from files. Rows that are neither go to a table of rejects.

    files ─► records (file, block, content) ─► decoder, in workers ─► wide typed columns
                                                                └──► rejects: file, row, reason, text

A JSON file does not declare its attributes, so it is read twice: once for the attributes and their types (and the
number of bad rows), once for the values. If the types are declared, it is read once. Rows are numbered exactly although
Spark reads a large file in blocks: a worker numbers the rows of a block from 0, and for rejects the number of rows in
the blocks before is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from catchment.errors import InputError, LimitError, UnavailableError, shown
from catchment.model.notification import Notification
from catchment.model.values import Type, type_of
from catchment.pipeline import decoders, tables
from catchment.pipeline.bad_rows import reject_reason, split
from catchment.pipeline.decoders import Decoder, Item, SubscriptionRow
from catchment.pipeline.schema import (
    ATTRIBUTES_MAP,
    COLUMNS_MAX,
    ENVELOPE_FIELDS,
    FILE,
    REJECTS,
    ROW,
    SUBSCRIPTIONS,
    AttributeColumn,
    attribute_columns,
    col,
    declared_columns,
    map_arrays,
    notification_arrays,
    notification_schema,
    refuse_case_twins,
    type_named,
)

T = TypeVar("T")
NotificationFormat = Literal["json", "cloudevents", "cloudevents-lines", "parquet", "csv"]
SubscriptionFormat = Literal["json", "parquet", "csv"]

# A worker parses a CloudEvents batch whole, as one JSON text. Longer files must hold one CloudEvent on each line.
CLOUDEVENTS_FILE_BYTES_MAX: Final = 256 * 1_048_576

BLOCK, REASON, TEXT = "$block", "$reason", "$text"
# The column in which Spark puts a CSV row that does not fit the header.
_CORRUPT: Final = "$corrupt"
# Columns that a decoder adds to each row: where it was read and, if it is a reject, why and its text.
ORIGIN_FIELDS: Final = (
    StructField(FILE, StringType()),
    StructField(BLOCK, LongType()),
    StructField(ROW, LongType()),
    StructField(REASON, StringType()),
    StructField(TEXT, StringType()),
)
# How many values of a type an attribute has in some rows; a row with an empty name counts the rejects.
_ATTRIBUTE_COUNTS: Final = StructType(
    [StructField("name", StringType()), StructField("type", StringType()), StructField("count", LongType())]
)
_REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True)
class Input:
    """What was read: the good rows, the rejects (schema `REJECTS`), and the number of rejects if it is known."""

    rows: DataFrame
    rejects: DataFrame
    rejected: int | None = None


def read_notifications(
    spark: SparkSession,
    path: str | list[str],
    format: NotificationFormat = "json",
    types: Mapping[str, Type | str] | None = None,
    options: Mapping[str, str] | None = None,
    counted: Observation | None = None,
    as_map: bool = False,
) -> Input:
    """Notifications as wide columns.

    `types` declares the attributes. CSV needs it. JSON is then read only once, and a row with an attribute that is not
    declared, or has another type, is a reject. `counted` is an observation that gets the count `rejected` once all rows
    have been read, unless `Input.rejected` has it already.

    `as_map` puts all attributes into one column `attributes`, a map; a map in a Parquet file stays one, and columns of
    Parquet stay columns. Use it for thousands of attribute names. JSON is then read only once too. `match` accepts both
    forms."""
    if format == "parquet":
        return Input(*split(_parquet(spark, path, counted, as_map)))
    named = {name: type_named(kind) for name, kind in (types or {}).items()}
    if format == "csv":
        if types is None:
            raise InputError("CSV has no types: declare the types of its columns")
        records, header = _csv_records(spark, path, options or {})
        cells = decoders.NotificationCells(decoders.cell_types(header, named))
        return _notifications(records, cells, declared_columns(named), None, counted, as_map)
    records = _whole_files(spark, path) if format == "cloudevents" else _lines(spark, path)
    decoder = NOTIFICATION_DECODERS[format]
    if types is not None or as_map:
        return _notifications(records, decoder, declared_columns(named) if types else None, None, counted, as_map)
    columns, rejected = _discovered(records, decoder)
    return _notifications(records, decoder, columns, rejected)


def read_subscriptions(
    spark: SparkSession,
    path: str | list[str],
    format: SubscriptionFormat = "json",
    options: Mapping[str, str] | None = None,
) -> Input:
    """Subscriptions with the columns of `SUBSCRIPTIONS`, and `$file` and `$row`. With these the compiler can report
    where a filter stands that does not parse."""
    if format == "parquet":
        return Input(*tables.subscriptions_from_parquet(spark, path))
    if format == "csv":
        records, header = _csv_records(spark, path, options or {})
        _require_columns(header)
        decoder: Decoder[SubscriptionRow] = decoders.SubscriptionCells(tuple(header))
    else:
        records, decoder = _lines(spark, path), decoders.subscription_lines()
    decoded = records.mapInArrow(_SubscriptionRows(decoder), StructType([*SUBSCRIPTIONS.fields, *ORIGIN_FIELDS]))
    numbered = _numbered_in_file(decoded, records)
    good = numbered.where(F.col(REASON).isNull()).select(*SUBSCRIPTIONS.names, FILE, ROW)
    return Input(good, _rejects(numbered))


NOTIFICATION_DECODERS: Final[dict[str, Decoder[Notification]]] = {
    "json": decoders.notification_lines(),
    "cloudevents-lines": decoders.cloudevent_lines(),
    "cloudevents": decoders.cloudevents_file,
}


def _require_columns(header: Iterable[str]) -> None:
    if missing := [name for name in ("id", "subscriber", "filter") if name not in set(header)]:
        raise InputError(f"subscriptions have columns id, subscriber and filter: there is no {', '.join(missing)}")


# --- records ------------------------------------------------------------------------------------


def _load(spark: SparkSession, format: str, path: str | list[str], **settings: Any) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.format(format).options(**settings).load(path)
        rows.columns  # noqa: B018  # Spark Connect looks for the files only when the DataFrame is asked something
        return rows
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise UnavailableError(f"there is no file at {path if isinstance(path, str) else ', '.join(path)}") from None


def _lines(spark: SparkSession, path: str | list[str]) -> DataFrame:
    # As bytes: a line that is not UTF-8 is then a reject, and does not fail the job on its way to Python.
    return _load(spark, "text", path, lineSep="\n").select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.col("value").cast("binary").alias("content"),
    )


def _whole_files(spark: SparkSession, path: str | list[str]) -> DataFrame:
    files = _load(spark, "binaryFile", path)
    # Null if the file is too long; `_decoded_batches` makes a reject of that.
    content = F.when(F.col("length") <= CLOUDEVENTS_FILE_BYTES_MAX, F.col("content"))
    return files.select(F.col("path").alias(FILE), F.lit(0).cast("bigint").alias(BLOCK), content.alias("content"))


def _csv_records(spark: SparkSession, path: str | list[str], options: Mapping[str, str]) -> tuple[DataFrame, list[str]]:
    """Rows as arrays of texts, and the header. Spark parses the syntax. Our decoder parses the values, and so can tell
    why a cell is not of its type."""
    header = _load(spark, "csv", path, **{**options, "header": "true"}).columns
    schema = StructType([*(StructField(name, StringType()) for name in header), StructField(_CORRUPT, StringType())])
    # With a null value that no cell has, `""` is the empty string and an empty cell is absent.
    settings = {"nullValue": "\0", **options, "header": "true", "enforceSchema": "false", "mode": "PERMISSIVE"}
    reader = spark.read.schema(schema).options(**settings, columnNameOfCorruptRecord=_CORRUPT)
    cells = F.array(*map(col, schema.names))
    return reader.csv(path).select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        cells.cast(ArrayType(StringType())).alias("content"),
    ), header


# --- decoding, in workers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decoded(Generic[T]):
    """An item, and the block of a file that it was read from."""

    file: str
    block: int
    item: Item[T]


def _decoded_batches(batches: Iterable[pa.RecordBatch], decode: Decoder[T]) -> Iterator[list[_Decoded[T]]]:
    """The items of each batch, numbered within their block. That needs only a count, because a task reads the records
    of a block in order, and one block after another."""
    current_block, count = ("", -1), 0
    for batch in batches:
        decoded = []
        for file, block, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (file, block) != current_block:
                current_block, count = (file, block), 0
            for item in decode(content) if content is not None else [_too_long()]:
                decoded.append(_Decoded(file, block, Item(count + item.row, item.value, item.reason, item.text)))
            count += 1
        yield decoded


def _too_long() -> Item[Any]:
    limit = f"CLOUDEVENTS_FILE_BYTES_MAX is {CLOUDEVENTS_FILE_BYTES_MAX:,}"
    return Item(0, None, f"{limit}, the file is longer: write one CloudEvent on each line", None)


def _origin_arrays(rows: list[_Decoded[T]]) -> list[pa.Array]:
    """The columns of `ORIGIN_FIELDS`."""
    return [
        pa.array([row.file for row in rows], pa.string()),
        pa.array([row.block for row in rows], pa.int64()),
        pa.array([row.item.row for row in rows], pa.int64()),
        pa.array([row.item.reason for row in rows], pa.string()),
        pa.array([row.item.text for row in rows], pa.string()),
    ]


@dataclass(frozen=True)
class NotificationRows:
    """For mapInArrow: notifications as wide columns, or as a map, and the origin of each row. If `closed`, a
    notification with an attribute that is not among the columns is a reject."""

    decode: Decoder[Notification]
    columns: tuple[AttributeColumn, ...]
    closed: bool
    as_map: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        declared = frozenset((column.name, column.type) for column in self.columns)
        for decoded in _decoded_batches(batches, self.decode):
            rows = [_refused_if_undeclared(row, declared) for row in decoded] if self.closed else decoded
            notifications = [row.item.value for row in rows]
            arrays = map_arrays(notifications) if self.as_map else notification_arrays(notifications, self.columns)
            names = [*arrays, *(field.name for field in ORIGIN_FIELDS)]
            yield pa.RecordBatch.from_arrays([*arrays.values(), *_origin_arrays(rows)], names)


def _refused_if_undeclared(
    row: _Decoded[Notification], declared: frozenset[tuple[str, Type]]
) -> _Decoded[Notification]:
    """The row, or a reject if its notification has an attribute that no declared column can hold."""
    notification = row.item.value
    if notification is None:
        return row
    for name, value in notification.items():
        if (name, type_of(value)) not in declared:
            reason = f"attribute {shown(name)} of type {type_of(value)} is not declared"
            return _Decoded(row.file, row.block, Item(row.item.row, None, reason, repr(notification)))
    return row


@dataclass(frozen=True)
class _AttributeCounts:
    """For mapInArrow: the attributes of a partition with their types and counts, and the number of bad rows."""

    decode: Decoder[Notification]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[tuple[str, str]] = Counter()
        for decoded in _decoded_batches(batches, self.decode):
            for row in decoded:
                if row.item.value is None:
                    counts["", _REJECTED] += 1
                else:
                    counts.update((name, type_of(value).value) for name, value in row.item.value.items())
            if len(counts) > COLUMNS_MAX:  # bounds the worker's memory; Spark adds the counts up
                yield _count_batch(counts)
                counts.clear()
        yield _count_batch(counts)


def _count_batch(counts: Counter[tuple[str, str]]) -> pa.RecordBatch:
    names, kinds = [name for name, _ in counts], [kind for _, kind in counts]
    columns = [pa.array(names, pa.string()), pa.array(kinds, pa.string()), pa.array(counts.values(), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, _ATTRIBUTE_COUNTS.names)


@dataclass(frozen=True)
class _SubscriptionRows:
    """For mapInArrow: the columns of `SUBSCRIPTIONS` and the origin of each row."""

    decode: Decoder[SubscriptionRow]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _decoded_batches(batches, self.decode):
            arrays = [
                pa.array([getattr(row.item.value, name, None) for row in rows], _subscription_type(name))
                for name in SUBSCRIPTIONS.names
            ]
            names = [*SUBSCRIPTIONS.names, *(field.name for field in ORIGIN_FIELDS)]
            yield pa.RecordBatch.from_arrays([*arrays, *_origin_arrays(rows)], names)


def _subscription_type(name: str) -> pa.DataType:
    return pa.timestamp("us", "UTC") if name == "expires" else pa.string()


# --- the DataFrames -----------------------------------------------------------------------------


def _discovered(records: DataFrame, decode: Decoder[Notification]) -> tuple[tuple[AttributeColumn, ...], int]:
    """The columns that hold every attribute in the records, and the number of rejects."""
    counted = records.mapInArrow(_AttributeCounts(decode), _ATTRIBUTE_COUNTS)
    totals = counted.groupBy("name", "type").agg(F.sum("count").alias("count"))
    # One row more than allowed shows that there are too many; one more is the count of rejects.
    rows = totals.limit(COLUMNS_MAX + 2).collect()
    counts = {(row["name"], row["type"]): int(row["count"]) for row in rows}
    rejected = counts.pop(("", _REJECTED), 0)
    if len(counts) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, "more attributes", "declare the types of those you match on")
    return attribute_columns({(name, Type(kind)): count for (name, kind), count in counts.items()}), rejected


def _notifications(
    records: DataFrame,
    decode: Decoder[Notification],
    columns: tuple[AttributeColumn, ...] | None,
    rejected: int | None = None,
    counted: Observation | None = None,
    as_map: bool = False,
) -> Input:
    """Decodes records. If `rejected` is known, `columns` were discovered in the records themselves. Otherwise `columns`
    are those declared, or None if none were."""
    schema = StructType([*ENVELOPE_FIELDS, ATTRIBUTES_MAP]) if as_map else notification_schema(columns or ())
    refuse_case_twins(records.sparkSession, schema)
    rows = NotificationRows(decode, columns or (), rejected is None and columns is not None, as_map)
    decoded = records.mapInArrow(rows, StructType([*schema.fields, *ORIGIN_FIELDS]))
    observed = decoded if counted is None else decoded.observe(counted, _count_rejected(F.col(REASON)))
    good = observed.where(F.col(REASON).isNull()).drop(*(field.name for field in ORIGIN_FIELDS))
    return Input(good, _rejects(_numbered_in_file(decoded.where(F.col(REASON).isNotNull()), records)), rejected)


def _count_rejected(reason: Column) -> Column:
    return F.count_if(reason.isNotNull()).alias(_REJECTED)


def _parquet(spark: SparkSession, path: str | list[str], counted: Observation | None, as_map: bool) -> DataFrame:
    rows = tables.notifications_from_parquet(spark, path, as_map)
    if counted is None:
        return rows
    schema = StructType([field for field in rows.schema.fields if field.name not in (FILE, ROW)])
    return rows.observe(counted, _count_rejected(reject_reason(schema)))


def _numbered_in_file(decoded: DataFrame, records: DataFrame) -> DataFrame:
    """The rows numbered from 1 within their file, instead of from 0 within their block."""
    before = Window.partitionBy(FILE).orderBy(BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    bases = records.groupBy(FILE, BLOCK).count().select(FILE, BLOCK, F.sum("count").over(before).alias("$base"))
    row: Column = F.col(ROW) + F.coalesce(F.col("$base"), F.lit(0)) + 1
    return decoded.join(F.broadcast(bases), [FILE, BLOCK], "left").withColumn(ROW, row)


def _rejects(numbered: DataFrame) -> DataFrame:
    columns = [F.col(f"${name}").alias(name) for name in REJECTS.names]
    return numbered.where(F.col(REASON).isNotNull()).select(*columns)
