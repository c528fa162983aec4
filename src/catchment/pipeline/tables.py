"""Tables that have columns already: Parquet files, and DataFrames of the user's own. Spark alone handles their rows.

Attributes are columns of their own, or entries of one column `attributes`, a map from names to values. The values of
the map have one type, or are structs with a field for each type (`string`, `int`, `float`, `bool`, `time`), of which
one is set.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.errors import InputError, LimitError, UnavailableError, shown
from catchment.model.values import Type
from catchment.pipeline.schema import (
    ATTRIBUTES,
    COLUMNS_MAX,
    ENVELOPE_FIELDS,
    FILE,
    ROW,
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


def read_parquet(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """The columns of the files, and the `$file` and `$row` of each row."""
    try:
        rows = spark.read.parquet(*([path] if isinstance(path, str) else path))
        rows.columns  # noqa: B018  # Spark Connect looks for the files only when the DataFrame is asked something
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise UnavailableError(f"there is no file at {path if isinstance(path, str) else ', '.join(path)}") from None
    return rows.select("*", F.col("_metadata.file_path").alias(FILE), (F.col("_metadata.row_index") + 1).alias(ROW))


def notifications_from_parquet(spark: SparkSession, path: str | list[str], as_map: bool = False) -> DataFrame:
    """Wide columns, and `$file` and `$row`; with `as_map` a map of attributes stays a map."""
    return widened(read_parquet(spark, path), as_map)


def widened(df: DataFrame, as_map: bool = False) -> DataFrame:
    """The table with wide columns of exactly the declared types, the envelope first. `$file` and `$row` are kept, and
    with `as_map` a map of attributes too."""
    map_of_attributes = map_column(df.schema[ATTRIBUTES]) if ATTRIBUTES in df.columns else None
    kept = [name for name in (FILE, ROW) if name in df.columns]
    kept += [map_of_attributes.column] if map_of_attributes and as_map else []
    unfolded = _with_map_as_columns(df, map_of_attributes) if map_of_attributes and not as_map else df
    schema = StructType([field for field in unfolded.schema.fields if field.name not in kept])
    columns = [column for column in attributes_of(schema) if not column.name.startswith("$")]
    refuse_case_twins(df.sparkSession, schema)
    present = set(schema.names)
    envelope = [
        (col(field.name) if field.name in present else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in ENVELOPE_FIELDS
    ]
    attributes = [col(column.column).cast(SPARK_TYPES[column.type]).alias(column.column) for column in columns]
    return unfolded.select(*envelope, *attributes, *map(col, kept))


# --- a map of attributes ------------------------------------------------------------------------


def _with_map_as_columns(df: DataFrame, map_of_attributes: MapColumn) -> DataFrame:
    """The table with a column for each key of the map and type of its values, instead of the map."""
    types = dict(map_of_attributes.fields)
    columns = _columns_of_keys(df, types)
    others = [name for name in df.columns if name != ATTRIBUTES]
    if twice := sorted({column.column for column in columns} & set(others)):
        raise InputError(f"{shown(twice[0])} is a column and also a key of {ATTRIBUTES}: which is the attribute?")
    values = [_value_of_key(column.name, types[column.type]).alias(column.column) for column in columns]
    return df.select(*map(col, others), *values)


def _value_of_key(name: str, field: str | None) -> Column:
    # The key is given as a literal, not in a column path: a name may have any characters.
    return field_of(F.try_element_at(col(ATTRIBUTES), F.lit(name)), field)


def field_of(value: Column, field: str | None) -> Column:
    """The field of a map's value that holds one type; the value itself where the map has one type."""
    return value if field is None else value[field]


def _columns_of_keys(df: DataFrame, types: dict[Type, str | None]) -> tuple[AttributeColumn, ...]:
    entries = df.select(F.explode(col(ATTRIBUTES)).alias("name", "value"))
    counts = [
        F.count("value" if field is None else f"value.`{field}`").alias(kind.value) for kind, field in types.items()
    ]
    rows = entries.groupBy("name").agg(*counts).limit(COLUMNS_MAX + 1).collect()
    if len(rows) > COLUMNS_MAX:
        raise LimitError("COLUMNS_MAX", COLUMNS_MAX, "more attributes", "make columns of those you match on")
    return attribute_columns(
        {(row["name"], kind): row[kind.value] for row in rows for kind in types if row[kind.value]}
    )


# --- subscriptions ------------------------------------------------------------------------------


def subscription_columns(df: DataFrame) -> DataFrame:
    """The columns of `SUBSCRIPTIONS`, and `$file` and `$row`; a column that the table lacks is null. Raises InputError
    if the table lacks a column that every subscription needs."""
    if missing := [name for name in ("id", "subscriber", "filter") if name not in df.columns]:
        raise InputError(f"subscriptions have columns id, subscriber and filter: there is no {', '.join(missing)}")
    columns = [_or_null(df, field.name).cast(field.dataType).alias(field.name) for field in SUBSCRIPTIONS.fields]
    file, row = _or_null(df, FILE).cast("string").alias(FILE), _or_null(df, ROW).cast("bigint").alias(ROW)
    return df.select(*columns, file, row)


def _or_null(df: DataFrame, name: str) -> Column:
    return col(name) if name in df.columns else F.lit(None)


def subscriptions_from_parquet(spark: SparkSession, path: str | list[str]) -> tuple[DataFrame, DataFrame]:
    """The rows that have an id, a subscriber and a filter; and the rejects."""
    rows = subscription_columns(read_parquet(spark, path))
    reasons = [
        F.when(F.coalesce(F.length(name), F.lit(0)) == 0, F.lit(f"a subscription needs {name} as text, found none"))
        for name in ("id", "subscriber", "filter")
    ]
    reason = F.coalesce(*reasons)
    text = F.to_json(F.struct(*SUBSCRIPTIONS.names)).alias("text")
    origin = [F.col(name).alias(name[1:]) for name in (FILE, ROW)]
    rejects = rows.where(reason.isNotNull()).select(*origin, reason.alias("reason"), text)
    return rows.where(reason.isNull()), rejects
