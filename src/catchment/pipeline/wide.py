"""Tables that have columns already: Parquet, and DataFrames of the user's own. No Python touches their rows.

Attributes come as columns of their own or in one column `attributes`, a map from names to values; its values are of
one type, or structs with a field for each type (`string`, `int`, `float`, `bool`, `time`) of which one is set.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, MapType, StringType, StructType

from catchment.errors import InputError, LimitError, UnavailableError, shown
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX, PAYLOAD_BYTES_MAX
from catchment.model.values import STRING_CODEPOINTS_MAX, Type
from catchment.pipeline.schema import (
    COLUMNS_MAX,
    ENVELOPE_FIELDS,
    PAYLOAD,
    REJECTS,
    SPARK_TYPES,
    SUBSCRIPTIONS,
    AttributeColumn,
    attribute_columns,
    attributes_of,
    col,
    read_as,
    refuse_case_twins,
)

ATTRIBUTES: Final = "attributes"
FILE, ROW = "$file", "$row"
# The instants of years 1 to 9999.
_TIME_MIN, _TIME_MAX = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def read_parquet(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """The columns of the files, and the file and row of each."""
    try:
        found = spark.read.parquet(*([path] if isinstance(path, str) else path))
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise UnavailableError(f"there is no file at {path if isinstance(path, str) else ', '.join(path)}") from None
    return found.select("*", F.col("_metadata.file_path").alias(FILE), (F.col("_metadata.row_index") + 1).alias(ROW))


def from_parquet(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """Wide columns, and `$file` and `$row`."""
    return widened(read_parquet(spark, path))


def widened(df: DataFrame) -> DataFrame:
    """The table with wide columns of exactly the declared types, the envelope first; `$file`, `$row` stay."""
    kept = [name for name in (FILE, ROW) if name in df.columns]
    found = _unfolded(df) if ATTRIBUTES in df.columns and _map_types(df.schema[ATTRIBUTES].dataType) else df
    schema = StructType([one for one in found.schema.fields if one.name not in kept])
    columns = [one for one in attributes_of(schema) if not one.name.startswith("$")]
    refuse_case_twins(df.sparkSession, schema)
    present = set(schema.names)
    envelope = [
        (col(one.name) if one.name in present else F.lit(None)).cast(one.dataType).alias(one.name)
        for one in ENVELOPE_FIELDS
    ]
    attributes = [col(one.column).cast(SPARK_TYPES[one.type]).alias(one.column) for one in columns]
    return found.select(*envelope, *attributes, *map(col, kept))


# --- a map of attributes ------------------------------------------------------------------------


def _map_types(found: DataType) -> dict[Type, str | None]:
    """The types a map of attributes holds, each with the field of its values that has it, if they have fields."""
    if not isinstance(found, MapType) or not isinstance(found.keyType, StringType):
        return {}
    if isinstance(found.valueType, StructType):
        words = {one.value for one in Type}
        fields = {Type(one.name): one.name for one in found.valueType.fields if one.name in words}
        return dict(fields) if len(fields) == len(found.valueType.fields) else {}
    kind = read_as(found.valueType)
    return {} if kind is None else {kind: None}


def _unfolded(df: DataFrame) -> DataFrame:
    """A column for each key of the map and type of its values."""
    types = _map_types(df.schema[ATTRIBUTES].dataType)
    columns = _map_columns(df, types)
    others = [name for name in df.columns if name != ATTRIBUTES]
    if twice := sorted({one.column for one in columns} & set(others)):
        raise InputError(f"{shown(twice[0])} is a column and a key of {ATTRIBUTES}: which is the attribute?")
    values = [_map_value(one.name, types[one.type]).alias(one.column) for one in columns]
    return df.select(*map(col, others), *values)


def _map_value(name: str, field: str | None) -> Column:
    # The key is a literal of its own: a name is any text.
    value = F.try_element_at(col(ATTRIBUTES), F.lit(name))
    return value if field is None else value[field]


def _map_columns(df: DataFrame, types: dict[Type, str | None]) -> tuple[AttributeColumn, ...]:
    entries = df.select(F.explode(col(ATTRIBUTES)).alias("name", "value"))
    counts = [
        F.count("value" if field is None else f"value.`{field}`").alias(kind.value) for kind, field in types.items()
    ]
    found = entries.groupBy("name").agg(*counts).limit(COLUMNS_MAX + 1).collect()
    if len(found) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, "more attributes", "make columns of those you match on")
    return attribute_columns(
        {(row["name"], kind): row[kind.value] for row in found for kind in types if row[kind.value]}
    )


# --- good rows and bad --------------------------------------------------------------------------


def split(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Rows that are notifications, and the rejects, of a table of wide columns."""
    places = [name for name in (FILE, ROW) if name in df.columns]
    schema = StructType([one for one in df.schema.fields if one.name not in places])
    reason = reject_reason(schema)
    good = df.where(reason.isNull()).drop(*places)
    place = [(F.col(name) if name in places else F.lit(None)).alias(name[1:]) for name in (FILE, ROW)]
    text = F.to_json(F.struct(*map(col, schema.names))).alias("text")
    bad = df.where(reason.isNotNull()).select(*place, reason.alias("reason"), text)
    return good, bad.select(*(F.col(one.name).cast(one.dataType) for one in REJECTS.fields))


def reject_reason(schema: StructType) -> Column:
    """Why a row is no notification; null if it is one."""
    columns = attributes_of(schema)
    checks = [_value_check(one) for one in columns if one.type not in (Type.INT, Type.BOOL)]
    checks += _twice_checks(columns)
    if PAYLOAD in schema.names:
        longer = F.length(col(PAYLOAD)) > PAYLOAD_BYTES_MAX
        checks.append(F.when(longer, F.lit(f"PAYLOAD_BYTES_MAX is {PAYLOAD_BYTES_MAX:,}, the payload is longer")))
    if len(columns) > NOTIFICATION_ATTRIBUTES_MAX:
        checks.append(_count_check(columns))
    return F.coalesce(F.lit(None).cast("string"), *checks)


def _value_check(one: AttributeColumn) -> Column:
    value, where = col(one.column), f"attribute {shown(one.name)}: "
    match one.type:
        case Type.FLOAT:
            finite = F.abs(value) < float("inf")  # Spark takes NaN for the largest of all
            return F.when(~finite, F.lit(where + "a float is finite and not NaN"))
        case Type.TIME:
            first, last = F.lit(_TIME_MIN).cast("timestamp"), F.lit(_TIME_MAX).cast("timestamp")
            return F.when(~value.between(first, last), F.lit(where + "a time is in the years 1 to 9999"))
        case _:
            longer = F.length(value) > STRING_CODEPOINTS_MAX
            return F.when(longer, F.lit(f"{where}STRING_CODEPOINTS_MAX is {STRING_CODEPOINTS_MAX:,}, it is longer"))


def _twice_checks(columns: tuple[AttributeColumn, ...]) -> list[Column]:
    by_name: dict[str, list[Column]] = {}
    for one in columns:
        by_name.setdefault(one.name, []).append(col(one.column).isNotNull().cast("int"))
    return [
        F.when(reduce(Column.__add__, present) > 1, F.lit(f"attribute {shown(name)} has values of two types"))
        for name, present in by_name.items()
        if len(present) > 1
    ]


def _count_check(columns: tuple[AttributeColumn, ...]) -> Column:
    present = F.array(*(col(one.column).isNotNull() for one in columns if one.name not in ENVELOPE_TYPES))
    count = F.size(F.filter(present, lambda one: one))
    reason = F.lit(f"NOTIFICATION_ATTRIBUTES_MAX is {NOTIFICATION_ATTRIBUTES_MAX:,}, there are more")
    return F.when(count > NOTIFICATION_ATTRIBUTES_MAX, reason)


# --- subscriptions ------------------------------------------------------------------------------


def subscription_columns(df: DataFrame) -> DataFrame:
    """The columns of `SUBSCRIPTIONS` and `$file`, `$row`, those that a table lacks null; InputError without the
    three that each subscription has."""
    if missing := [name for name in ("id", "subscriber", "filter") if name not in df.columns]:
        raise InputError(f"subscriptions have columns id, subscriber and filter: there is no {', '.join(missing)}")
    found = [_or_null(df, one.name).cast(one.dataType).alias(one.name) for one in SUBSCRIPTIONS.fields]
    return df.select(*found, _or_null(df, FILE).cast("string").alias(FILE), _or_null(df, ROW).cast("bigint").alias(ROW))


def _or_null(df: DataFrame, name: str) -> Column:
    return col(name) if name in df.columns else F.lit(None)


def subscriptions_from_parquet(spark: SparkSession, path: str | list[str]) -> tuple[DataFrame, DataFrame]:
    """Rows that have an id, a subscriber and a filter, and the rejects."""
    found = subscription_columns(read_parquet(spark, path))
    lacking = [
        F.when(F.coalesce(F.length(name), F.lit(0)) == 0, F.lit(f"a subscription has a text {name}, found none"))
        for name in ("id", "subscriber", "filter")
    ]
    reason = F.coalesce(*lacking)
    text = F.to_json(F.struct(*SUBSCRIPTIONS.names)).alias("text")
    place = [F.col(name).alias(name[1:]) for name in (FILE, ROW)]
    bad = found.where(reason.isNotNull()).select(*place, reason.alias("reason"), text)
    return found.where(reason.isNull()), bad
