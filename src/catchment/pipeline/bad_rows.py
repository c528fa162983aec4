"""Why a row of a table is not a notification, as an expression of Spark: no row goes to Python for it.

The expression says what `Notification` says of the same values. A row has one reason, that of the first check it fails.
"""

from __future__ import annotations

from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.errors import shown
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX, PAYLOAD_BYTES_MAX
from catchment.model.values import NAME_CODEPOINTS_MAX, STRING_CODEPOINTS_MAX, Type
from catchment.pipeline.schema import (
    FILE,
    PAYLOAD,
    REJECTS,
    ROW,
    AttributeColumn,
    MapColumn,
    attributes_of,
    col,
    map_column,
)
from catchment.pipeline.tables import field_of

# The instants of the years 1 to 9999.
_TIME_MIN, _TIME_MAX = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def split(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The rows of a table of wide columns that are notifications, and the rejects."""
    origin_names = [name for name in (FILE, ROW) if name in df.columns]
    schema = StructType([field for field in df.schema.fields if field.name not in origin_names])
    reason = reject_reason(schema)
    good = df.where(reason.isNull()).drop(*origin_names)
    origin = [(F.col(name) if name in origin_names else F.lit(None)).alias(name[1:]) for name in (FILE, ROW)]
    text = F.to_json(F.struct(*map(col, schema.names))).alias("text")
    bad = df.where(reason.isNotNull()).select(*origin, reason.alias("reason"), text)
    return good, bad.select(*(F.col(field.name).cast(field.dataType) for field in REJECTS.fields))


def reject_reason(schema: StructType) -> Column:
    """Why a row of this schema is not a notification; null if it is one."""
    columns = attributes_of(schema, [field.name for field in schema.fields if not map_column(field)])
    checks = [_value_check(column) for column in columns if column.type not in (Type.INT, Type.BOOL)]
    checks += _two_types_checks(columns)
    if PAYLOAD in schema.names:
        is_longer = F.length(col(PAYLOAD)) > PAYLOAD_BYTES_MAX
        checks.append(F.when(is_longer, F.lit(f"PAYLOAD_BYTES_MAX is {PAYLOAD_BYTES_MAX:,}, the payload is longer")))
    if len(columns) > NOTIFICATION_ATTRIBUTES_MAX:
        checks.append(_count_check(columns))
    for map_of_attributes in filter(None, map(map_column, schema.fields)):
        checks += _map_checks(map_of_attributes, {column.name for column in columns})
    return F.coalesce(F.lit(None).cast("string"), *checks)


# --- columns ------------------------------------------------------------------------------------


def _value_check(column: AttributeColumn) -> Column:
    is_bad, why = _bad_value(col(column.column), column.type)
    return F.when(is_bad, F.lit(f"attribute {shown(column.name)}: {why}"))


def _bad_value(value: Column, kind: Type) -> tuple[Column, str]:
    """Whether a value is one that the model refuses, and why it refuses it."""
    match kind:
        case Type.FLOAT:
            # Spark orders NaN after infinity, so `<` is false for NaN too.
            return ~(F.abs(value) < float("inf")), "a float is finite and not NaN"
        case Type.TIME:
            first, last = F.lit(_TIME_MIN).cast("timestamp"), F.lit(_TIME_MAX).cast("timestamp")
            return ~value.between(first, last), "a time is in the years 1 to 9999"
        case _:
            is_longer = F.length(value) > STRING_CODEPOINTS_MAX
            return is_longer, f"STRING_CODEPOINTS_MAX is {STRING_CODEPOINTS_MAX:,}, it is longer"


def _two_types_checks(columns: tuple[AttributeColumn, ...]) -> list[Column]:
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        by_name.setdefault(column.name, []).append(col(column.column).isNotNull().cast("int"))
    return [
        F.when(reduce(Column.__add__, present) > 1, F.lit(f"attribute {shown(name)} has values of two types"))
        for name, present in by_name.items()
        if len(present) > 1
    ]


def _count_check(columns: tuple[AttributeColumn, ...]) -> Column:
    present = F.array(*(col(column.column).isNotNull() for column in columns if column.name not in ENVELOPE_TYPES))
    return _too_many(F.size(F.filter(present, lambda is_present: is_present)))


def _too_many(count: Column) -> Column:
    reason = F.lit(f"NOTIFICATION_ATTRIBUTES_MAX is {NOTIFICATION_ATTRIBUTES_MAX:,}, there are more")
    return F.when(count > NOTIFICATION_ATTRIBUTES_MAX, reason)


# --- a map of attributes ------------------------------------------------------------------------


def _map_checks(map_of_attributes: MapColumn, column_names: set[str]) -> list[Column]:
    attributes = col(map_of_attributes.column)
    names, values = F.map_keys(attributes), F.map_values(attributes)
    # A Parquet file may hold a key twice. Spark makes no such map, but reads one without an error.
    is_twice = F.size(F.array_distinct(names)) < F.size(names)
    taken = F.array(*map(F.lit, sorted(column_names))).cast("array<string>")
    fields = [field for _, field in map_of_attributes.fields]
    checks = [
        (F.exists(names, _is_bad_name), f"a name has 1 to {NAME_CODEPOINTS_MAX} characters, and does not begin with $"),
        (is_twice | F.arrays_overlap(names, taken), "a name stands twice"),
        (F.exists(values, partial(_has_several_types, fields)), "an attribute has two types"),
    ]
    for kind, field in map_of_attributes.fields:
        if kind not in (Type.INT, Type.BOOL):
            _, why = _bad_value(F.lit(None), kind)
            checks.append((F.exists(values, partial(_is_bad_value, kind, field)), why))
    reasons = [F.when(is_bad, F.lit(f"{map_of_attributes.column}: {why}")) for is_bad, why in checks]
    return [_too_many(F.size(names)), *reasons]


def _is_bad_name(name: Column) -> Column:
    return (F.length(name) == 0) | (F.length(name) > NAME_CODEPOINTS_MAX) | name.startswith("$")


def _has_several_types(fields: list[str | None], value: Column) -> Column:
    present = [field_of(value, field).isNotNull().cast("int") for field in fields]
    return reduce(Column.__add__, present) > 1


def _is_bad_value(kind: Type, field: str | None, value: Column) -> Column:
    return _bad_value(field_of(value, field), kind)[0]
