"""Reading notifications and subscriptions from files; what is no such thing goes to a table of rejects.

    files ─► records (file, block, content) ─► decoder, in workers ─► wide typed columns
                                                                └──► rejects: file, row, reason, text

JSON does not say which attributes there are, so it is read twice: once for the attributes and their types (and the
number of bad rows), once for the values. Declared types spare the first. Rows are numbered exactly although large
files are read in blocks: each row is counted within its block, and the counts of the blocks before are added to
the rejects alone.
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
from catchment.pipeline import decoders
from catchment.pipeline import tables as wide
from catchment.pipeline.decoders import Decoder, Item, SubscriptionRow
from catchment.pipeline.schema import (
    COLUMNS_MAX,
    ENVELOPE_FIELDS,
    FOLDED,
    REJECTS,
    SUBSCRIPTIONS,
    AttributeColumn,
    attribute_columns,
    declared_columns,
    folded_arrays,
    notification_arrays,
    notification_schema,
    refuse_case_twins,
    type_named,
)

T = TypeVar("T")
NotificationFormat = Literal["json", "cloudevents", "cloudevents-lines", "parquet", "csv"]
SubscriptionFormat = Literal["json", "parquet", "csv"]

# A CloudEvents batch is one JSON text, parsed whole by one worker; longer files hold one on each line.
CLOUDEVENTS_FILE_BYTES_MAX: Final = 256 * 1_048_576

FILE, ROW, BLOCK, REASON, TEXT = "$file", "$row", "$block", "$reason", "$text"
_CORRUPT: Final = "$corrupt"
PLACES: Final = (
    StructField(FILE, StringType()),
    StructField(BLOCK, LongType()),
    StructField(ROW, LongType()),
    StructField(REASON, StringType()),
    StructField(TEXT, StringType()),
)
_SEEN: Final = StructType(
    [StructField("name", StringType()), StructField("type", StringType()), StructField("count", LongType())]
)
_REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True)
class Input:
    """What was read: good rows, the rejects (schema `REJECTS`), and how many those are if that is known."""

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
    """Notifications as wide columns. `types` declares the attributes: CSV needs that, JSON is then read only once,
    and an attribute that is not declared, or of another type, makes its row a reject. `counted` is told `rejected`
    when the rows have been read to the end, unless the result says it.

    `as_map` puts attributes into one column `attributes`, a map, or leaves them there (columns of Parquet stay): for
    names by the thousand. JSON is then read once in any case. `match` takes both."""
    if format == "parquet":
        return Input(*wide.split(_parquet(spark, path, counted, as_map)))
    named = {name: type_named(kind) for name, kind in (types or {}).items()}
    if format == "csv":
        if types is None:
            raise InputError("CSV does not say what is a number: declare the types of its columns")
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
    """Subscriptions with the columns of `SUBSCRIPTIONS`, and `$file` and `$row`, by which compiling can say where a
    filter that does not parse stands."""
    if format == "parquet":
        return Input(*wide.subscriptions_from_parquet(spark, path))
    if format == "csv":
        records, header = _csv_records(spark, path, options or {})
        _require_columns(header)
        decoder: Decoder[SubscriptionRow] = decoders.SubscriptionCells(tuple(header))
    else:
        records, decoder = _lines(spark, path), decoders.subscription_lines()
    decoded = records.mapInArrow(_SubscriptionRows(decoder), StructType([*SUBSCRIPTIONS.fields, *PLACES]))
    placed = _with_row_of_file(decoded, records)
    good = placed.where(F.col(REASON).isNull()).select(*SUBSCRIPTIONS.names, FILE, ROW)
    return Input(good, _rejects(placed))


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
        found = spark.read.format(format).options(**settings).load(path)
        found.columns  # noqa: B018  # Spark Connect looks for the files only when it is asked something
        return found
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise UnavailableError(f"there is no file at {path if isinstance(path, str) else ', '.join(path)}") from None


def _lines(spark: SparkSession, path: str | list[str]) -> DataFrame:
    # As bytes: what is not UTF-8 is a bad row, not a crash on the way to Python.
    return _load(spark, "text", path, lineSep="\n").select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.col("value").cast("binary").alias("content"),
    )


def _whole_files(spark: SparkSession, path: str | list[str]) -> DataFrame:
    found = _load(spark, "binaryFile", path)
    content = F.when(F.col("length") <= CLOUDEVENTS_FILE_BYTES_MAX, F.col("content"))
    return found.select(F.col("path").alias(FILE), F.lit(0).cast("bigint").alias(BLOCK), content.alias("content"))


def _csv_records(spark: SparkSession, path: str | list[str], options: Mapping[str, str]) -> tuple[DataFrame, list[str]]:
    """Rows as arrays of texts, and the header. Spark reads the syntax; the types are ours to read, which says why a
    cell is none."""
    header = _load(spark, "csv", path, **{**options, "header": "true"}).columns
    schema = StructType([*(StructField(name, StringType()) for name in header), StructField(_CORRUPT, StringType())])
    # A text that no cell has stands for null, so that "" is the empty string and nothing is absence.
    settings = {"nullValue": "\0", **options, "header": "true", "enforceSchema": "false", "mode": "PERMISSIVE"}
    reader = spark.read.schema(schema).options(**settings, columnNameOfCorruptRecord=_CORRUPT)
    found = reader.csv(path)
    cells = F.array(*(F.col("`" + name.replace("`", "``") + "`") for name in schema.names))
    return found.select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        cells.cast(ArrayType(StringType())).alias("content"),
    ), header


# --- decoding, in workers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed(Generic[T]):
    file: str
    block: int
    item: Item[T]


def _decoded(batches: Iterable[pa.RecordBatch], decode: Decoder[T]) -> Iterator[list[_Placed[T]]]:
    """The items of each batch. A task reads its blocks one after another, so rows are counted by counting."""
    place, count = ("", -1), 0
    for batch in batches:
        found = []
        for file, block, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (file, block) != place:
                place, count = (file, block), 0
            for item in decode(content) if content is not None else [_too_long()]:
                found.append(_Placed(file, block, Item(count + item.row, item.value, item.reason, item.text)))
            count += 1
        yield found


def _too_long() -> Item[Any]:
    limit = f"CLOUDEVENTS_FILE_BYTES_MAX is {CLOUDEVENTS_FILE_BYTES_MAX:,}"
    return Item(0, None, f"{limit}, the file is longer: write one CloudEvent on each line", None)


def _place_arrays(found: list[_Placed[T]]) -> list[pa.Array]:
    return [
        pa.array([one.file for one in found], pa.string()),
        pa.array([one.block for one in found], pa.int64()),
        pa.array([one.item.row for one in found], pa.int64()),
        pa.array([one.item.reason for one in found], pa.string()),
        pa.array([one.item.text for one in found], pa.string()),
    ]


@dataclass(frozen=True)
class NotificationRows:
    """For mapInArrow: wide columns, or a map, and the place of each row. Attributes that are not among the columns
    are refused where those are all there may be."""

    decode: Decoder[Notification]
    columns: tuple[AttributeColumn, ...]
    closed: bool
    as_map: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = frozenset((one.name, one.type) for one in self.columns)
        for decoded in _decoded(batches, self.decode):
            found = [_declared(one, known) for one in decoded] if self.closed else decoded
            values = [one.item.value for one in found]
            arrays = folded_arrays(values) if self.as_map else notification_arrays(values, self.columns)
            names = [*arrays, *(field.name for field in PLACES)]
            yield pa.RecordBatch.from_arrays([*arrays.values(), *_place_arrays(found)], names)


def _declared(found: _Placed[Notification], known: frozenset[tuple[str, Type]]) -> _Placed[Notification]:
    """Turns a notification with an attribute that no column can hold into a reject."""
    value = found.item.value
    for name, one in () if value is None else value.items():
        if (name, type_of(one)) not in known:
            reason = f"attribute {shown(name)} of type {type_of(one)} is not declared"
            text = "" if value is None else repr(value)
            return _Placed(found.file, found.block, Item(found.item.row, None, reason, text))
    return found


@dataclass(frozen=True)
class _Attributes:
    """For mapInArrow: the attributes of a partition with their types and counts, and the number of bad rows."""

    decode: Decoder[Notification]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[tuple[str, str]] = Counter()
        for decoded in _decoded(batches, self.decode):
            for one in decoded:
                value = one.item.value
                if value is None:
                    counts["", _REJECTED] += 1
                else:
                    counts.update((name, type_of(found).value) for name, found in value.items())
            if len(counts) > COLUMNS_MAX:
                yield _count_batch(counts)
                counts.clear()
        yield _count_batch(counts)


def _count_batch(counts: Counter[tuple[str, str]]) -> pa.RecordBatch:
    names, kinds = [name for name, _ in counts], [kind for _, kind in counts]
    columns = [pa.array(names, pa.string()), pa.array(kinds, pa.string()), pa.array(counts.values(), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, _SEEN.names)


@dataclass(frozen=True)
class _SubscriptionRows:
    """For mapInArrow: the columns of `SUBSCRIPTIONS` and the place of each row."""

    decode: Decoder[SubscriptionRow]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for found in _decoded(batches, self.decode):
            arrays = [
                pa.array([getattr(one.item.value, name, None) for one in found], _subscription_type(name))
                for name in SUBSCRIPTIONS.names
            ]
            names = [*SUBSCRIPTIONS.names, *(field.name for field in PLACES)]
            yield pa.RecordBatch.from_arrays([*arrays, *_place_arrays(found)], names)


def _subscription_type(name: str) -> pa.DataType:
    return pa.timestamp("us", "UTC") if name == "expires" else pa.string()


# --- joining it up ------------------------------------------------------------------------------


def _discovered(records: DataFrame, decode: Decoder[Notification]) -> tuple[tuple[AttributeColumn, ...], int]:
    """The columns that hold every attribute there is, and the number of rejects."""
    seen = records.mapInArrow(_Attributes(decode), _SEEN).groupBy("name", "type").agg(F.sum("count").alias("count"))
    found = {(row["name"], row["type"]): int(row["count"]) for row in seen.limit(COLUMNS_MAX + 2).collect()}
    rejected = found.pop(("", _REJECTED), 0)
    if len(found) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, "more attributes", "declare the types of those you match on")
    return attribute_columns({(name, Type(kind)): count for (name, kind), count in found.items()}), rejected


def _notifications(
    records: DataFrame,
    decode: Decoder[Notification],
    columns: tuple[AttributeColumn, ...] | None,
    rejected: int | None = None,
    counted: Observation | None = None,
    as_map: bool = False,
) -> Input:
    """`columns` are all that are declared, unless the number of rejects is known; None where none are."""
    schema = StructType([*ENVELOPE_FIELDS, FOLDED]) if as_map else notification_schema(columns or ())
    refuse_case_twins(records.sparkSession, schema)
    rows = NotificationRows(decode, columns or (), rejected is None and columns is not None, as_map)
    decoded = records.mapInArrow(rows, StructType([*schema.fields, *PLACES]))
    counting = decoded if counted is None else decoded.observe(counted, _rejected(F.col(REASON)))
    good = counting.where(F.col(REASON).isNull()).drop(*(field.name for field in PLACES))
    return Input(good, _rejects(_with_row_of_file(decoded.where(F.col(REASON).isNotNull()), records)), rejected)


def _rejected(reason: Column) -> Column:
    return F.count_if(reason.isNotNull()).alias(_REJECTED)


def _parquet(spark: SparkSession, path: str | list[str], counted: Observation | None, as_map: bool) -> DataFrame:
    found = wide.from_parquet(spark, path, as_map)
    if counted is None:
        return found
    schema = StructType([one for one in found.schema.fields if one.name not in (FILE, ROW)])
    return found.observe(counted, _rejected(wide.reject_reason(schema)))


def _with_row_of_file(decoded: DataFrame, records: DataFrame) -> DataFrame:
    """Rows numbered from 1 within their file instead of from 0 within their block."""
    before = Window.partitionBy(FILE).orderBy(BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    bases = records.groupBy(FILE, BLOCK).count().select(FILE, BLOCK, F.sum("count").over(before).alias("$base"))
    row: Column = F.col(ROW) + F.coalesce(F.col("$base"), F.lit(0)) + 1
    return decoded.join(F.broadcast(bases), [FILE, BLOCK], "left").withColumn(ROW, row)


def _rejects(placed: DataFrame) -> DataFrame:
    named = [F.col(f"${name}").alias(name) for name in REJECTS.names]
    return placed.where(F.col(REASON).isNotNull()).select(*named)
