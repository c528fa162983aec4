"""Files that arrive in a directory, as a streaming DataFrame of wide columns: for patterns, and queries of one's own.

The columns of a stream are fixed when it starts, so attributes are declared; of Parquet they are those of the files
that are there. Rows of rejects are numbered within the first block of a file (128 MiB unless set otherwise), and
have none after.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.errors import InputError, UnavailableError
from catchment.model.values import Type
from catchment.pipeline import tables as wide
from catchment.pipeline.inputs import (
    BLOCK,
    FILE,
    NOTIFICATION_DECODERS,
    PLACES,
    REASON,
    ROW,
    Input,
    NotificationFormat,
    NotificationRows,
)
from catchment.pipeline.paths import reading
from catchment.pipeline.schema import (
    ATTRIBUTES,
    REJECTS,
    declared_columns,
    notification_schema,
    refuse_case_twins,
    type_named,
)
from catchment.pipeline.stream.files import FILE_AGE_MAX, FILES_MAX

_WHOLE: Final = "path string, modificationTime timestamp, length long, content binary"


def stream_notifications(
    spark: SparkSession,
    directory: str,
    format: NotificationFormat = "json",
    types: Mapping[str, Type | str] | None = None,
    files_max: int = FILES_MAX,
) -> Input:
    """Good rows and rejects, both streaming, of JSON Lines, CloudEvents and Parquet."""
    if "://" not in directory and not Path(directory).is_dir():
        raise UnavailableError(f"there is no directory {directory}: make it before files arrive in it")
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
    decoded = _records(spark, directory, format, files_max).mapInArrow(rows, StructType([*schema.fields, *PLACES]))
    good = decoded.where(F.col(REASON).isNull()).drop(*(field.name for field in PLACES))
    row = F.when(F.col(BLOCK) == 0, F.col(ROW) + 1).alias(ROW)
    bad = decoded.where(F.col(REASON).isNotNull()).withColumn(ROW, row)
    return Input(good, bad.select(*(F.col(f"${name}").alias(name) for name in REJECTS.names)))


def _records(spark: SparkSession, directory: str, format: str, files_max: int) -> DataFrame:
    reader = spark.readStream.option("maxFilesPerTrigger", files_max).option("maxFileAge", FILE_AGE_MAX)
    reader = reader.option("recursiveFileLookup", True)
    if format == "cloudevents":
        found = reader.format("binaryFile").schema(_WHOLE).load(reading(directory))
        return found.select(F.col("path").alias(FILE), F.lit(0).cast("bigint").alias(BLOCK), "content")
    found = reader.format("text").option("lineSep", "\n").load(reading(directory))
    return found.select(
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
        F.col("value").cast("binary").alias("content"),
    )


def _parquet(spark: SparkSession, directory: str, files_max: int) -> Input:
    there = wide.read_parquet(spark, reading(directory))
    schema = StructType([one for one in there.schema.fields if one.name not in (wide.FILE, wide.ROW)])
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_max)
    found = reader.option("maxFileAge", FILE_AGE_MAX).parquet(reading(directory))
    if ATTRIBUTES in found.columns:
        raise InputError(f"a stream has columns for its attributes, not a map {ATTRIBUTES}: match_stream reads it")
    placed = found.select("*", F.col("_metadata.file_path").alias(wide.FILE), F.lit(None).alias(wide.ROW))
    return Input(*wide.split(wide.widened(placed)))
