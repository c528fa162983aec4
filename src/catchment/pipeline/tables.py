"""Tables that have columns already: Parquet, and DataFrames of the user's own. No Python touches their rows.

Attributes come as columns of their own or in one column `attributes`, a map from names to values; its values are of
one type, or structs with a field for each type (`string`, `int`, `float`, `bool`, `time`) of which one is set.
"""

from __future__ import annotations

from functools import partial, reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.errors import InputError, LimitError, UnavailableError, shown
from catchment.model.notification import ENVELOPE_TYPES, NOTIFICATION_ATTRIBUTES_MAX, PAYLOAD_BYTES_MAX
from catchment.model.values import NAME_CODEPOINTS_MAX, STRING_CODEPOINTS_MAX, Type
from catchment.pipeline.schema import (
    ATTRIBUTES,
    COLUMNS_MAX,
    ENVELOPE_FIELDS,
    PAYLOAD,
    REJECTS,
    SPARK_TYPES,
    SUBSCRIPTIONS,
    AttributeColumn,
    MapColumn,
    attribute_columns,
    attributes_of,
    col,
    map_column,
    refuse_case_twins,
)

FILE, ROW = "$file", "$row"
# The instants of years 1 to 9999.
_TIME_MIN, _TIME_MAX = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def read_parquet(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """The columns of the files, and the file and row of each."""
    try:
        found = spark.read.parquet(*([path] if isinstance(path, str) else path))
        found.columns  # noqa: B018  # Spark Connect looks for the files only when it is asked something
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise UnavailableError(f"there is no file at {path if isinstance(path, str) else ', '.join(path)}") from None
    return found.select("*", F.col("_metadata.file_path").alias(FILE), (F.col("_metadata.row_index") + 1).alias(ROW))


def from_parquet(spark: SparkSession, path: str | list[str], as_map: bool = False) -> DataFrame:
    """Wide columns, and `$file` and `$row`; a map of attributes as it is, if asked."""
    return widened(read_parquet(spark, path), as_map)


def widened(df: DataFrame, as_map: bool = False) -> DataFrame:
    """The table with wide columns of exactly the declared types, the envelope first; `$file`, `$row` stay, and so
    does a map of attributes, if asked."""
    folded = map_column(df.schema[ATTRIBUTES]) if ATTRIBUTES in df.columns else None
    kept = [name for name in (FILE, ROW) if name in df.columns]
    kept += [folded.column] if folded and as_map else []
    found = _unfolded(df, folded) if folded and not as_map else df
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


def _unfolded(df: DataFrame, folded: MapColumn) -> DataFrame:
    """A column for each key of the map and type of its values."""
    types = dict(folded.fields)
    columns = _map_columns(df, types)
    others = [name for name in df.columns if name != ATTRIBUTES]
    if twice := sorted({one.column for one in columns} & set(others)):
        raise InputError(f"{shown(twice[0])} is a column and a key of {ATTRIBUTES}: which is the attribute?")
    values = [_map_value(one.name, types[one.type]).alias(one.column) for one in columns]
    return df.select(*map(col, others), *values)


def _map_value(name: str, field: str | None) -> Column:
    # The key is a literal of its own: a name is any text.
    return _field(F.try_element_at(col(ATTRIBUTES), F.lit(name)), field)


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
    columns = attributes_of(schema, [one.name for one in schema.fields if not map_column(one)])
    checks = [_value_check(one) for one in columns if one.type not in (Type.INT, Type.BOOL)]
    checks += _twice_checks(columns)
    if PAYLOAD in schema.names:
        longer = F.length(col(PAYLOAD)) > PAYLOAD_BYTES_MAX
        checks.append(F.when(longer, F.lit(f"PAYLOAD_BYTES_MAX is {PAYLOAD_BYTES_MAX:,}, the payload is longer")))
    if len(columns) > NOTIFICATION_ATTRIBUTES_MAX:
        checks.append(_count_check(columns))
    for one in filter(None, map(map_column, schema.fields)):
        checks += _map_checks(one, {column.name for column in columns})
    return F.coalesce(F.lit(None).cast("string"), *checks)


def _value_check(one: AttributeColumn) -> Column:
    bad, why = _bad_value(col(one.column), one.type)
    return F.when(bad, F.lit(f"attribute {shown(one.name)}: {why}"))


def _bad_value(value: Column, kind: Type) -> tuple[Column, str]:
    match kind:
        case Type.FLOAT:
            # Spark takes NaN for the largest of all.
            return ~(F.abs(value) < float("inf")), "a float is finite and not NaN"
        case Type.TIME:
            first, last = F.lit(_TIME_MIN).cast("timestamp"), F.lit(_TIME_MAX).cast("timestamp")
            return ~value.between(first, last), "a time is in the years 1 to 9999"
        case _:
            longer = F.length(value) > STRING_CODEPOINTS_MAX
            return longer, f"STRING_CODEPOINTS_MAX is {STRING_CODEPOINTS_MAX:,}, it is longer"


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
    return _too_many(F.size(F.filter(present, lambda one: one)))


def _too_many(count: Column) -> Column:
    reason = F.lit(f"NOTIFICATION_ATTRIBUTES_MAX is {NOTIFICATION_ATTRIBUTES_MAX:,}, there are more")
    return F.when(count > NOTIFICATION_ATTRIBUTES_MAX, reason)


def _map_checks(one: MapColumn, columns: set[str]) -> list[Column]:
    names, values = F.map_keys(col(one.column)), F.map_values(col(one.column))
    # A file may hold a key twice, which Spark does not mind.
    is_twice = F.size(F.array_distinct(names)) < F.size(names)
    taken = F.array(*map(F.lit, sorted(columns))).cast("array<string>")
    found = [
        (F.exists(names, _is_no_name), f"a name has 1 to {NAME_CODEPOINTS_MAX} characters, the first of which is no $"),
        (is_twice | F.arrays_overlap(names, taken), "a name stands twice"),
        (F.exists(values, partial(_has_several, [field for _, field in one.fields])), "an attribute has two types"),
    ]
    for kind, field in one.fields:
        if kind not in (Type.INT, Type.BOOL):
            _, why = _bad_value(F.lit(None), kind)
            found.append((F.exists(values, partial(_is_bad, kind, field)), why))
    return [_too_many(F.size(names)), *(F.when(bad, F.lit(f"{one.column}: {why}")) for bad, why in found)]


def _is_no_name(name: Column) -> Column:
    return (F.length(name) == 0) | (F.length(name) > NAME_CODEPOINTS_MAX) | name.startswith("$")


def _has_several(fields: list[str | None], value: Column) -> Column:
    present = [_field(value, field).isNotNull().cast("int") for field in fields]
    return reduce(Column.__add__, present) > 1


def _is_bad(kind: Type, field: str | None, value: Column) -> Column:
    return _bad_value(_field(value, field), kind)[0]


def _field(value: Column, field: str | None) -> Column:
    return value if field is None else value[field]


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
