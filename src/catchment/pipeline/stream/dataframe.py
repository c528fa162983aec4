"""Files that arrive in a directory, as a streaming DataFrame of wide columns: for patterns, and for users' own queries.

The columns of a stream are fixed when it starts, so attributes must be declared; for Parquet the columns are those of
the files in the directory. Rejects have a row number only in the first block of a file (128 MiB by default).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.errors import InputError
from catchment.model.values import Type
from catchment.pipeline.bad_rows import split
from catchment.pipeline.inputs import (
    BLOCK,
    NOTIFICATION_DECODERS,
    ORIGIN_FIELDS,
    REASON,
    Input,
    NotificationFormat,
    NotificationRows,
)
from catchment.pipeline.paths import readable
from catchment.pipeline.schema import (
    ATTRIBUTES,
    FILE,
    REJECTS,
    ROW,
    declared_columns,
    notification_schema,
    refuse_case_twins,
    type_named,
)
from catchment.pipeline.stream.files import FILE_AGE_MAX, FILES_MAX, WHOLE_FILES, require_directory
from catchment.pipeline.tables import read_parquet, widened


def stream_notifications(
    spark: SparkSession,
    directory: str,
    format: NotificationFormat = "json",
    types: Mapping[str, Type | str] | None = None,
    files_max: int = FILES_MAX,
) -> Input:
    """The good rows and the rejects, both streaming, of files in JSON Lines, CloudEvents or Parquet."""
    require_directory(directory)
    if format == "csv":
        raise InputError("CSV files of a stream may differ in their headers: match_stream reads them, or write JSON")
    if format == "parquet":
        return _parquet(spark, directory, files_max)
    if types is None:
        raise InputError("the columns of a stream are fixed when it starts: declare the types of its attributes")
    columns = declared_columns({name: type_named(kind) for name, kind in types.items()})
    schema = notification_schema(columns)
    refuse_case_twins(spark, schema)
    rows = NotificationRows(NOTIFICATION_DECODERS[format], columns, True)
    records = _records(spark, directory, format, files_max)
    decoded = records.mapInArrow(rows, StructType([*schema.fields, *ORIGIN_FIELDS]))
    good = decoded.where(F.col(REASON).isNull()).drop(*(field.name for field in ORIGIN_FIELDS))
    # Rows are numbered within their block, and a stream cannot count the rows of the blocks before.
    row = F.when(F.col(BLOCK) == 0, F.col(ROW) + 1).alias(ROW)
    bad = decoded.where(F.col(REASON).isNotNull()).withColumn(ROW, row)
    return Input(good, bad.select(*(F.col(f"${name}").alias(name) for name in REJECTS.names)))


def _records(spark: SparkSession, directory: str, format: str, files_max: int) -> DataFrame:
    reader = spark.readStream.option("maxFilesPerTrigger", files_max).option("maxFileAge", FILE_AGE_MAX)
    reader = reader.option("recursiveFileLookup", True)
    if format == "cloudevents":
        files = reader.format("binaryFile").schema(WHOLE_FILES).load(readable(directory))
        return files.select(F.col("path").alias(FILE), F.lit(0).cast("bigint").alias(BLOCK), "content")
    lines = reader.format("text").option("lineSep", "\n").load(readable(directory))
    return lines.select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.col("value").cast("binary").alias("content"),
    )


def _parquet(spark: SparkSession, directory: str, files_max: int) -> Input:
    present = read_parquet(spark, readable(directory))
    schema = StructType([field for field in present.schema.fields if field.name not in (FILE, ROW)])
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_max)
    rows = reader.option("maxFileAge", FILE_AGE_MAX).parquet(readable(directory))
    if ATTRIBUTES in rows.columns:
        raise InputError(f"a stream has columns for its attributes, not a map {ATTRIBUTES}: match_stream reads it")
    with_origin = rows.select("*", F.col("_metadata.file_path").alias(FILE), F.lit(None).alias(ROW))
    return Input(*split(widened(with_origin)))
