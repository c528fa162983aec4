"""Notifications and subscriptions as DataFrames: declared schemas, and the names of columns.

A notification is a row of nullable typed columns, one for each attribute; null means that the attribute is absent. The
envelope has the columns `$id`, `$source`, `$time`, `$seq`, `$payload`. An attribute that has values of several types
has a column for each type: the most common type has the column of the attribute's name, each other type the column
`name:type`.

    price         double      101.25    null      null
    price:string  string      null      "n/a"     null
    price:int     bigint      null      null      101

A column whose name ends in `:type`, and whose values have that type, is read back as the attribute before the colon.
Any other column is read back as an attribute of its own name. So that an attribute called `a:int` is not mistaken for
`a`, its columns always name their type: `a:int:int`.
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
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from catchment.errors import BadNotificationError, InputError, LimitError, shown
from catchment.model.notification import ENVELOPE_TYPES, Notification
from catchment.model.values import Type, Value, checked_name, type_of

# Spark's planning time grows with the columns of a table; past some thousands it takes longer than the matching.
COLUMNS_MAX: Final = 10_000
PAYLOAD: Final = "$payload"
# A column of this name may be a map from attribute names to values.
ATTRIBUTES: Final = "attributes"
# Where a row was read: its file, and its number in that file.
FILE, ROW = "$file", "$row"

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
# The type that the values of a Spark column are read as. Several Spark types are read as one of ours.
_VALUE_TYPES: Final[tuple[tuple[type[DataType], Type], ...]] = (
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
_TYPES_BY_NAME: Final = {kind.value: kind for kind in Type}

ENVELOPE_FIELDS: Final = (
    *(StructField(name, SPARK_TYPES[kind]) for name, kind in ENVELOPE_TYPES.items()),
    StructField(PAYLOAD, BinaryType()),
)

# Attributes of any name and type in one column: a map to structs with a field for each type.
ATTRIBUTES_MAP: Final = StructField(
    ATTRIBUTES,
    MapType(StringType(), StructType([StructField(kind.value, SPARK_TYPES[kind]) for kind in Type])),
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
# `text` is the rejected row itself, as text, so that nothing is lost.
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
    """A column that holds the values that have one type of one attribute."""

    column: str
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A column that holds any number of attributes, in a map from their names. `fields` has, for each type, the field
    of the map's values that holds it; the field is None where the map has plain values of one type."""

    column: str
    fields: tuple[tuple[Type, str | None], ...]


def col(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


# --- from attributes to columns -----------------------------------------------------------------


def _ends_in_type(name: str) -> bool:
    """Whether an attribute's own name could be read as the name of a column that names its type."""
    head, _, word = name.rpartition(":")
    return bool(head) and word in _TYPES_BY_NAME


def attribute_columns(counts: Mapping[tuple[str, Type], int]) -> tuple[AttributeColumn, ...]:
    """The columns for attributes, sorted by name. `counts` says how many values of each type an attribute has: the most
    common type gets the attribute's own name."""
    if len(counts) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, f"{len(counts):,} attributes", "declare those you match on")
    by_name: dict[str, list[Type]] = {}
    for name, kind in sorted(counts, key=lambda typed: (typed[0], -counts[typed], typed[1].value)):
        by_name.setdefault(name, []).append(kind)
    columns = []
    for name, kinds in by_name.items():
        for rank, kind in enumerate(kinds):
            names_type = rank > 0 or _ends_in_type(name)
            columns.append(AttributeColumn(f"{name}:{kind.value}" if names_type else name, name, kind))
    return tuple(columns)


def declared_columns(types: Mapping[str, Type | str]) -> tuple[AttributeColumn, ...]:
    """The columns of attributes with one declared type each."""
    return attribute_columns({(checked_name(name), type_named(kind)): 1 for name, kind in types.items()})


def type_named(name: Type | str) -> Type:
    """The type of this name; raises InputError for any other name."""
    if name not in _TYPES_BY_NAME:
        raise InputError(f"{shown(name)} is not a type: use one of {', '.join(_TYPES_BY_NAME)}")
    return Type(name)


def notification_schema(columns: Iterable[AttributeColumn]) -> StructType:
    """The envelope, then the attributes."""
    attributes = [StructField(column.column, SPARK_TYPES[column.type]) for column in columns]
    return StructType([*ENVELOPE_FIELDS, *attributes])


def refuse_case_twins(spark: SparkSession, schema: StructType) -> None:
    """Raises InputError if names differ only in case and the session ignores case: Spark would mix up the columns."""
    if spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        return
    seen: dict[str, str] = {}
    for name in schema.names:
        if seen.setdefault(name.lower(), name) != name:
            raise InputError(
                f"columns {shown(seen[name.lower()])} and {shown(name)} differ only in case: "
                "set spark.sql.caseSensitive to true in this session"
            )


def refuse_taken_names(names: Sequence[str], added: Iterable[str]) -> None:
    """Raises InputError if a table already has a column that a job would add to it."""
    if taken := [name for name in added if name in names]:
        raise InputError(f"there is a column {taken[0]} already: drop or rename it")


# --- from columns to attributes -----------------------------------------------------------------


def attributes_of(schema: StructType, only: Sequence[str] | None = None) -> tuple[AttributeColumn, ...]:
    """The columns of a table that hold attributes or the envelope: all of them but the payload, or those named in
    `only`. Raises InputError for a column that can be neither."""
    if only is not None and (unknown := set(only) - set(schema.names)):
        raise InputError(f"there is no column {shown(sorted(unknown)[0])}")
    fields = [field for field in schema.fields if field.name != PAYLOAD and (only is None or field.name in only)]
    return tuple(_attribute_of(field) for field in fields)


def matched_columns(schema: StructType, only: Sequence[str] | None = None) -> tuple[AttributeColumn | MapColumn, ...]:
    """The columns that a notification is matched on: those of `attributes_of`, and a map of attributes."""
    fields = [field for field in schema.fields if only is None or field.name in only]
    maps = [column for field in fields if (column := map_column(field))]
    map_names = {column.column for column in maps}
    names = schema.names if only is None else only
    return *attributes_of(schema, [name for name in names if name not in map_names]), *maps


def map_column(field: StructField) -> MapColumn | None:
    """The column `attributes`, if it is a map from names to values of one type, or to structs with a field for each
    type; None for any other column."""
    spark_type = field.dataType
    if (
        field.name != ATTRIBUTES
        or not isinstance(spark_type, MapType)
        or not isinstance(spark_type.keyType, StringType)
    ):
        return None
    if not isinstance(spark_type.valueType, StructType):
        kind = value_type(spark_type.valueType)
        return None if kind is None else MapColumn(field.name, ((kind, None),))
    members = spark_type.valueType.fields
    if not members or any(value_type(member.dataType) != member.name for member in members):
        return None
    return MapColumn(field.name, tuple((Type(member.name), member.name) for member in members))


def value_type(spark_type: DataType) -> Type | None:
    """The type that the values of a column are read as; None if they cannot be read."""
    return next((kind for accepted, kind in _VALUE_TYPES if isinstance(spark_type, accepted)), None)


def _attribute_of(field: StructField) -> AttributeColumn:
    kind = value_type(field.dataType)
    if kind is None:
        raise InputError(
            f"column {shown(field.name)} of type {field.dataType.simpleString()} cannot be an attribute: cast it to "
            "string, bigint, double, boolean or timestamp, or name the columns that are attributes"
        )
    name = checked_name(field.name)
    if name.startswith("$") and ENVELOPE_TYPES.get(name) is not kind:
        known = ", ".join(f"{known_name} ({known_kind})" for known_name, known_kind in ENVELOPE_TYPES.items())
        raise BadNotificationError(f"column {shown(name)} ({kind}) is not a field of the envelope: there are {known}")
    head, _, word = name.rpartition(":")
    if head and _TYPES_BY_NAME.get(word) is kind:
        return AttributeColumn(name, head, kind)
    return AttributeColumn(name, name, kind)


# --- rows as Arrow ------------------------------------------------------------------------------


def notification_arrays(
    notifications: Sequence[Notification | None], columns: Iterable[AttributeColumn]
) -> dict[str, pa.Array]:
    """The columns of some notifications, by name, the envelope first; a None becomes a row of nulls."""
    sparse: dict[tuple[str, Type], tuple[list[int], list[Value]]] = {}
    for row, notification in enumerate(notifications):
        for name, value in () if notification is None else notification.matched.items():
            rows, values = sparse.setdefault((name, type_of(value)), ([], []))
            rows.append(row)
            values.append(value)
    count = len(notifications)
    envelope = {name: _dense_array(sparse.get((name, kind)), count, kind) for name, kind in ENVELOPE_TYPES.items()}
    payloads = [None if notification is None else notification.payload or None for notification in notifications]
    attributes = {
        column.column: _dense_array(sparse.get((column.name, column.type)), count, column.type) for column in columns
    }
    return envelope | {PAYLOAD: pa.array(payloads, pa.binary())} | attributes


def map_arrays(notifications: Sequence[Notification | None]) -> dict[str, pa.Array]:
    """The same with all attributes in one column, a map as in `ATTRIBUTES_MAP`."""
    ends: list[int] = [0]
    names: list[str] = []
    sparse: dict[Type, tuple[list[int], list[Value]]] = {kind: ([], []) for kind in Type}
    for notification in notifications:
        for name, value in () if notification is None else notification.items():
            entries, values = sparse[type_of(value)]
            entries.append(len(names))
            values.append(value)
            names.append(name)
        ends.append(len(names))
    fields = [_dense_array(sparse[kind], len(names), kind) for kind in Type]
    structs = pa.StructArray.from_arrays(fields, [kind.value for kind in Type])
    maps = pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(names, pa.string()), structs)
    return notification_arrays(notifications, ()) | {ATTRIBUTES: maps}


def _dense_array(sparse: tuple[list[int], list[Any]] | None, count: int, kind: Type) -> pa.Array:
    """An array of `count` rows from rows and their values, null elsewhere. Python handles only the values that are
    there, not each null."""
    if sparse is None:
        return pa.nulls(count, ARROW_TYPES[kind])
    rows, values = sparse
    # By row, where its value is in `values`. `take` makes null of a place that is masked.
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(values, ARROW_TYPES[kind]).take(pa.array(places, mask=places < 0))


def notifications_of(batch: pa.RecordBatch, columns: Sequence[AttributeColumn | MapColumn]) -> list[Notification]:
    """The rows of a batch as notifications. It is slow, so only for few rows. Raises BadNotificationError for a row
    that is not a notification."""
    return [_notification(row, columns) for row in batch.to_pylist()]


def _notification(row: Mapping[str, Any], columns: Sequence[AttributeColumn | MapColumn]) -> Notification:
    pairs = [pair for column in columns for pair in _pairs(row[column.column], column) if pair[1] is not None]
    envelope = {
        column.name for column in columns if isinstance(column, AttributeColumn) and column.name.startswith("$")
    }
    attributes = [(name, value) for name, value in pairs if name not in envelope]
    stamps = {name[1:]: value for name, value in pairs if name in envelope}
    return Notification(attributes, payload=row.get(PAYLOAD) or b"", **stamps)


def _pairs(cell: Any, column: AttributeColumn | MapColumn) -> Iterable[tuple[str, Any]]:
    """The names and values in one cell; a value may be None."""
    if isinstance(column, AttributeColumn):
        return [(column.name, cell)]
    fields = [field for _, field in column.fields]
    return [
        (name, value if field is None else value[field])
        for name, value in cell or ()
        if value is not None
        for field in fields
    ]
