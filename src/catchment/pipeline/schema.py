"""Notifications and subscriptions as DataFrames: declared schemas, and the naming of columns.

A notification is a row of nullable typed columns, one for each attribute; null is absent. The envelope has the
columns `$id`, `$source`, `$time`, `$seq`, `$payload`. An attribute that has values of several types has a column
for each: the commonest type under the attribute's own name, each other as `name:type`.

    price         double      101.25    null      null
    price:string  string      null      "n/a"     null
    price:int     bigint      null      null      101

A column is read back as `name` of `type` when its name ends in `:type` and its type is that one, and as an
attribute of its own name otherwise. So that this loses nothing, a column of an attribute whose own name ends so
(`a:int`) always says its type (`a:int:int`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's own documentation calls it
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from catchment.errors import BadNotificationError, InputError, LimitError, shown
from catchment.model.notification import ENVELOPE_TYPES, Notification
from catchment.model.values import Type, Value, checked_name, type_of

# Spark plans with each column of a table; past some thousand, planning takes longer than matching.
COLUMNS_MAX: Final = 10_000
PAYLOAD: Final = "$payload"

SPARK_TYPES: Final[dict[Type, DataType]] = {
    Type.STRING: StringType(),
    Type.INT: LongType(),
    Type.FLOAT: DoubleType(),
    Type.BOOL: BooleanType(),
    Type.TIME: TimestampType(),
}
ARROW_TYPES: Final[dict[Type, pa.DataType]] = {
    Type.STRING: pa.string(),
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.TIME: pa.timestamp("us", "UTC"),
}
# What is read as a type besides the type that is written.
_READ_AS: Final[tuple[tuple[type[DataType], Type], ...]] = (
    (StringType, Type.STRING),
    (LongType, Type.INT),
    (IntegerType, Type.INT),
    (ShortType, Type.INT),
    (ByteType, Type.INT),
    (DoubleType, Type.FLOAT),
    (FloatType, Type.FLOAT),
    (BooleanType, Type.BOOL),
    (TimestampType, Type.TIME),
)
_TYPE_WORDS: Final = {one.value: one for one in Type}

ENVELOPE_FIELDS: Final = (
    *(StructField(name, SPARK_TYPES[kind]) for name, kind in ENVELOPE_TYPES.items()),
    StructField(PAYLOAD, BinaryType()),
)

SUBSCRIPTIONS: Final = StructType(
    [
        StructField("id", StringType()),
        StructField("subscriber", StringType()),
        StructField("filter", StringType()),
        StructField("broker", StringType()),
        StructField("dialect", StringType()),
        StructField("expires", TimestampType()),
    ]
)
# `text` is the row itself, as far as it is text: nothing that was refused is lost.
REJECTS: Final = StructType(
    [
        StructField("file", StringType()),
        StructField("row", LongType()),
        StructField("reason", StringType()),
        StructField("text", StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class AttributeColumn:
    """A column that holds the values of one type of one attribute; `extra` if `name:type` says so."""

    column: str
    name: str
    type: Type
    extra: bool = False


def col(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


# --- from attributes to columns -----------------------------------------------------------------


def _says_type(name: str) -> bool:
    head, _, word = name.rpartition(":")
    return bool(head) and word in _TYPE_WORDS


def attribute_columns(counts: Mapping[tuple[str, Type], int]) -> tuple[AttributeColumn, ...]:
    """The columns of attributes of which so many values of each type were seen; sorted by name."""
    if len(counts) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, f"{len(counts):,} attributes", "declare those you match on")
    by_name: dict[str, list[Type]] = {}
    for name, kind in sorted(counts, key=lambda one: (one[0], -counts[one], one[1].value)):
        by_name.setdefault(name, []).append(kind)
    found = []
    for name, kinds in by_name.items():
        for place, kind in enumerate(kinds):
            extra = place > 0 or _says_type(name)
            found.append(AttributeColumn(f"{name}:{kind.value}" if extra else name, name, kind, extra))
    return tuple(found)


def declared_columns(types: Mapping[str, Type | str]) -> tuple[AttributeColumn, ...]:
    """The columns of attributes with one declared type each."""
    return attribute_columns({(checked_name(name), type_named(kind)): 1 for name, kind in types.items()})


def type_named(found: Type | str) -> Type:
    if found not in _TYPE_WORDS:
        raise InputError(f"{shown(found)} is no type: use one of {', '.join(_TYPE_WORDS)}")
    return Type(found)


def notification_schema(columns: Iterable[AttributeColumn]) -> StructType:
    """The envelope, then the attributes."""
    return StructType([*ENVELOPE_FIELDS, *(StructField(one.column, SPARK_TYPES[one.type]) for one in columns)])


def refuse_case_twins(spark: SparkSession, schema: StructType) -> None:
    """InputError where a session that ignores case would mistake one attribute for another."""
    if spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        return
    seen: dict[str, str] = {}
    for name in schema.names:
        if seen.setdefault(name.lower(), name) != name:
            raise InputError(
                f"columns {shown(seen[name.lower()])} and {shown(name)} differ only in case: "
                "set spark.sql.caseSensitive to true in this session"
            )


# --- from columns to attributes -----------------------------------------------------------------


def attributes_of(schema: StructType, only: Sequence[str] | None = None) -> tuple[AttributeColumn, ...]:
    """The columns of a table that are attributes or envelope: all of them but the payload, or those with the names
    in `only`. InputError for a column that cannot be one."""
    if only is not None and (unknown := set(only) - set(schema.names)):
        raise InputError(f"there is no column {shown(sorted(unknown)[0])}")
    fields = [one for one in schema.fields if one.name != PAYLOAD and (only is None or one.name in only)]
    return tuple(_attribute_of(one) for one in fields)


def read_as(found: DataType) -> Type | None:
    """The type of a column's values, or None."""
    return next((kind for spark_type, kind in _READ_AS if isinstance(found, spark_type)), None)


def _attribute_of(field: StructField) -> AttributeColumn:
    kind = read_as(field.dataType)
    if kind is None:
        raise InputError(
            f"column {shown(field.name)} of type {field.dataType.simpleString()} is no attribute: cast it to string, "
            "bigint, double, boolean or timestamp, or name the columns that are attributes"
        )
    name = checked_name(field.name)
    if name.startswith("$") and ENVELOPE_TYPES.get(name) is not kind:
        known = ", ".join(f"{one} ({kind})" for one, kind in ENVELOPE_TYPES.items())
        raise BadNotificationError(f"column {shown(name)} ({kind}) is no envelope field: there are {known}")
    head, _, word = name.rpartition(":")
    if head and _TYPE_WORDS.get(word) is kind:
        return AttributeColumn(name, head, kind, True)
    return AttributeColumn(name, name, kind)


# --- rows as Arrow ------------------------------------------------------------------------------


def notification_arrays(
    notifications: Sequence[Notification | None], columns: Iterable[AttributeColumn]
) -> dict[str, pa.Array]:
    """The columns of some notifications, by name, envelope first; a None is a row of nulls."""
    places: dict[tuple[str, Type], tuple[list[int], list[Value]]] = {}
    for row, one in enumerate(notifications):
        for name, value in () if one is None else one.matched.items():
            rows, values = places.setdefault((name, type_of(value)), ([], []))
            rows.append(row)
            values.append(value)
    count = len(notifications)
    envelope = {name: _scattered(places.get((name, kind)), count, kind) for name, kind in ENVELOPE_TYPES.items()}
    payloads = pa.array([None if one is None else one.payload or None for one in notifications], pa.binary())
    attributes = {one.column: _scattered(places.get((one.name, one.type)), count, one.type) for one in columns}
    return envelope | {PAYLOAD: payloads} | attributes


def _scattered(found: tuple[list[int], list[Any]] | None, count: int, kind: Type) -> pa.Array:
    """Values at their rows, null elsewhere: the cost is that of the values that are there."""
    if found is None:
        return pa.nulls(count, ARROW_TYPES[kind])
    rows, values = found
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(values, ARROW_TYPES[kind]).take(pa.array(places, mask=places < 0))


def notifications_of(batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> list[Notification]:
    """The rows of a batch as notifications; slow, for few of them. BadNotificationError for a row that is none."""
    return [_notification(row, columns) for row in batch.to_pylist()]


def _notification(row: Mapping[str, Any], columns: Sequence[AttributeColumn]) -> Notification:
    pairs = [(one.name, row[one.column]) for one in columns if row[one.column] is not None]
    attributes = [(name, value) for name, value in pairs if not name.startswith("$")]
    envelope = {name[1:]: value for name, value in pairs if name.startswith("$")}
    return Notification(attributes, payload=row.get(PAYLOAD) or b"", **envelope)
