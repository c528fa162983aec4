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

# Spark plans with each column of a table; past some thousand, planning takes longer than matching.
COLUMNS_MAX: Final = 10_000
PAYLOAD: Final = "$payload"
# A column of this name may be a map of attributes.
ATTRIBUTES: Final = "attributes"

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

# Attributes of any name and type in one column.
FOLDED: Final = StructField(
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


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A column that holds any number of attributes, in a map from their names; `fields` says which field of its
    values, if they have fields, holds which type."""

    column: str
    fields: tuple[tuple[Type, str | None], ...]


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


def matched_columns(schema: StructType, only: Sequence[str] | None = None) -> tuple[AttributeColumn | MapColumn, ...]:
    """The same, and a map of attributes as it is."""
    maps = [found for one in schema.fields if (only is None or one.name in only) and (found := map_column(one))]
    names = {one.column for one in maps}
    others = [one.name for one in schema.fields if one.name not in names]
    chosen = attributes_of(schema, others if only is None else [name for name in only if name not in names])
    return *chosen, *maps


def map_column(field: StructField) -> MapColumn | None:
    """A column `attributes` that is a map from names to values of one type, or to structs with a field for each; None
    for any other."""
    kind = field.dataType
    if field.name != ATTRIBUTES or not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return None
    if not isinstance(kind.valueType, StructType):
        single = read_as(kind.valueType)
        return None if single is None else MapColumn(field.name, ((single, None),))
    fields = [(Type(one.name), one.name) for one in kind.valueType.fields if one.name in _TYPE_WORDS]
    is_whole = fields and all(read_as(one.dataType) == one.name for one in kind.valueType.fields)
    return MapColumn(field.name, tuple(fields)) if is_whole else None


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


def folded_arrays(notifications: Sequence[Notification | None]) -> dict[str, pa.Array]:
    """The same with all attributes in one column, a map, as in `FOLDED`."""
    ends: list[int] = [0]
    names: list[str] = []
    values: dict[Type, tuple[list[int], list[Value]]] = {kind: ([], []) for kind in Type}
    for one in notifications:
        for name, value in () if one is None else one.items():
            places, found = values[type_of(value)]
            places.append(len(names))
            found.append(value)
            names.append(name)
        ends.append(len(names))
    fields = [_scattered(values[kind], len(names), kind) for kind in Type]
    held = pa.StructArray.from_arrays(fields, [kind.value for kind in Type])
    folded = pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(names, pa.string()), held)
    return notification_arrays(notifications, ()) | {ATTRIBUTES: folded}


def _scattered(found: tuple[list[int], list[Any]] | None, count: int, kind: Type) -> pa.Array:
    """Values at their rows, null elsewhere: the cost is that of the values that are there."""
    if found is None:
        return pa.nulls(count, ARROW_TYPES[kind])
    rows, values = found
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(values, ARROW_TYPES[kind]).take(pa.array(places, mask=places < 0))


def notifications_of(batch: pa.RecordBatch, columns: Sequence[AttributeColumn | MapColumn]) -> list[Notification]:
    """The rows of a batch as notifications; slow, for few of them. BadNotificationError for a row that is none."""
    return [_notification(row, columns) for row in batch.to_pylist()]


def _notification(row: Mapping[str, Any], columns: Sequence[AttributeColumn | MapColumn]) -> Notification:
    pairs = [pair for one in columns for pair in _pairs(row[one.column], one) if pair[1] is not None]
    envelope = {one.name for one in columns if isinstance(one, AttributeColumn) and one.name.startswith("$")}
    attributes = [(name, value) for name, value in pairs if name not in envelope]
    stamps = {name[1:]: value for name, value in pairs if name in envelope}
    return Notification(attributes, payload=row.get(PAYLOAD) or b"", **stamps)


def _pairs(value: Any, column: AttributeColumn | MapColumn) -> Iterable[tuple[str, Any]]:
    if isinstance(column, AttributeColumn):
        return [(column.name, value)]
    fields = [field for _, field in column.fields]
    return [
        (name, found if field is None else found[field])
        for name, found in value or ()
        if found is not None
        for field in fields
    ]
