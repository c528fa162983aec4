"""Parquet files that workers read themselves.

If a DataFrame consists of columns of Parquet files and nothing else, Spark would decode the columns, assemble rows from
them, and take the rows apart again into Arrow's columns for Python. Python can read the same columns from the same
files directly.

    usual:   file ─► columns ─► rows ─► Arrow, in Java ─► socket ─► worker
    here:    a number for each task ─► worker ─► file ─► Arrow

Workers read files themselves only where both ways give the same rows. The driver checks the plan, the settings that
change how Spark reads, and the footer of each file. If anything is not exactly as expected, Spark reads the files as
usual. The setting `WORKERS_READ_PARQUET`, set to `false` in the session, makes Spark read all files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.utils import is_remote

from catchment.errors import InputError
from catchment.pipeline.session import parallelism

WORKERS_READ_PARQUET: Final = "spark.catchment.workersReadParquet"
# Files whose footers the driver reads before a job: a footer takes a third of a millisecond.
FILES_MAX: Final = 1_000
# Rows of a task, as far as the row groups of the files allow. A task then takes some tenths of a second, so no core
# waits long for another.
TASK_ROWS: Final = 1 << 17
# Rows of a batch: as many as Spark sends at once. Fewer if the rows are long, by the sizes in the footer.
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 1 << 26

_PARQUET_FORMAT: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# Options of a reader that only choose files. Any other option may change how they are read.
_FILE_OPTIONS: Final = frozenset(
    ("path", "paths", "mergeschema", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
)
# Settings with which Spark reads a file differently from Arrow.
UNUSUAL_SETTINGS: Final = (
    ("spark.sql.files.ignoreCorruptFiles", "true"),
    ("spark.sql.files.ignoreMissingFiles", "true"),
    ("spark.sql.parquet.fieldId.read.enabled", "true"),
    ("spark.sql.parquet.datetimeRebaseModeInRead", "legacy"),
)
# Spark writes the first into files whose old dates are in the Julian calendar, and its version into every file.
_LEGACY_DATES, _SPARK_VERSION = b"org.apache.spark.legacyDateTime", b"org.apache.spark.version"

Footer = tuple[pa.Schema, pq.FileMetaData]
# A file, and the numbers of some of its row groups.
FilePart = tuple[str, tuple[int, ...]]


class RowGroup(NamedTuple):
    """A row group of a file."""

    path: str
    number: int
    rows: int


@dataclass(frozen=True)
class ParquetScan:
    """What each task of a job reads: the columns, and parts of files."""

    columns: tuple[str, ...]
    tasks: tuple[tuple[FilePart, ...], ...]

    def task_numbers(self, spark: SparkSession) -> DataFrame:
        """A partition for each task, with one row: the number of the task."""
        return spark.range(0, len(self.tasks), 1, len(self.tasks))

    def row_batches(self, task_numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows of its tasks, their columns named c0, c1, …"""
        names = [f"c{number}" for number in range(len(self.columns))]
        for batch in task_numbers:
            for number in batch.column(0).to_pylist():
                for path, groups in self.tasks[number]:
                    for rows in self._rows(path, groups):
                        yield pa.RecordBatch.from_arrays([rows.column(name) for name in self.columns], names)

    def _rows(self, path: str, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                # The caller picks the columns by name: nothing promises that they come in the order of the list.
                size = _batch_rows(file.metadata, groups)
                yield from file.iter_batches(size, list(groups), list(self.columns), use_threads=False)
        except (OSError, pa.ArrowException) as problem:
            raise InputError(f"{path} cannot be read: {problem}") from problem


def scan_of(rows: DataFrame) -> ParquetScan | None:
    """How workers read these rows themselves; None where Spark must read them."""
    if is_remote() or rows.isStreaming or not rows.columns or not _are_settings_usual(rows.sparkSession):
        return None
    paths = _file_paths(rows)
    if not paths:
        return None
    wanted = to_arrow_schema(rows.schema, timezone="UTC")
    groups: list[RowGroup] = []
    with ThreadPoolExecutor() as pool:
        for path, footer in zip(paths, pool.map(_footer, paths), strict=True):
            if footer is None or not _is_as_spark_reads(footer, wanted):
                return None
            metadata = footer[1]
            groups += [RowGroup(path, i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
    tasks = tasks_of(groups, parallelism(rows.sparkSession))
    return ParquetScan(tuple(rows.columns), tasks) if tasks else None


def _are_settings_usual(spark: SparkSession) -> bool:
    is_allowed = (spark.conf.get(WORKERS_READ_PARQUET, "true") or "").lower() != "false"
    return is_allowed and all((spark.conf.get(name) or "").lower() != value for name, value in UNUSUAL_SETTINGS)


# --- the plan -----------------------------------------------------------------------------------


def _file_paths(rows: DataFrame) -> list[str] | None:
    """The paths of the files of a DataFrame, if it consists of columns of local Parquet files and nothing else."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    names = rows.columns
    if _class_name(plan) == "Project":
        chosen = _items(plan.projectList())
        is_plain_choice = all(_class_name(column) == "AttributeReference" for column in chosen)
        if not is_plain_choice or [column.name() for column in chosen] != names:
            return None  # a column is computed or renamed
        plan = plan.child()
    if len(set(names)) < len(names) or _class_name(plan) != "LogicalRelation":
        return None
    relation = plan.relation()
    if not _is_parquet_relation(relation) or len(relation.location().inputFiles()) > FILES_MAX:
        return None
    urls = [urlsplit(url) for url in relation.location().inputFiles()]
    return [unquote(url.path) for url in urls] if all(url.scheme == "file" for url in urls) else None


def _is_parquet_relation(relation: Any) -> bool:
    """Whether a relation of Spark's plan is Parquet files without partitions, buckets or unknown options."""
    return (
        _class_name(relation) == "HadoopFsRelation"
        and relation.fileFormat().getClass().getName() == _PARQUET_FORMAT
        and _class_name(relation.location()) == "InMemoryFileIndex"
        and relation.partitionSchema().isEmpty()
        and relation.bucketSpec().isEmpty()
        and all(name.lower() in _FILE_OPTIONS for name in _items(relation.options().keys().toSeq()))
    )


def _class_name(java_object: Any) -> str:
    return str(java_object.getClass().getSimpleName())


def _items(scala_sequence: Any) -> list[Any]:
    return [scala_sequence.apply(i) for i in range(scala_sequence.size())]


# --- footers ------------------------------------------------------------------------------------


def _footer(path: str) -> Footer | None:
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata
    except (OSError, pa.ArrowException):
        return None  # Spark reads it, and reports what is wrong


def _is_as_spark_reads(footer: Footer, wanted: pa.Schema) -> bool:
    """Whether Arrow reads the wanted columns of a file with exactly the types that Spark gives them."""
    schema, metadata = footer
    return not _has_old_dates(metadata.metadata or {}) and all(
        schema.names.count(field.name) == 1 and is_same_type(schema.field(field.name).type, field.type)
        for field in wanted
    )


def _batch_rows(metadata: pq.FileMetaData, groups: Sequence[int]) -> int:
    chosen = [metadata.row_group(i) for i in groups]
    rows = sum(int(group.num_rows) for group in chosen)
    size = sum(int(group.total_byte_size) for group in chosen)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, size)))


def is_same_type(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are the same, apart from what may be null and from the names of the parts of lists and maps."""
    if actual.id != wanted.id or actual.num_fields != wanted.num_fields:
        return False
    if not wanted.num_fields:
        return bool(actual == wanted)
    if pa.types.is_struct(wanted) and [field.name for field in actual] != [field.name for field in wanted]:
        return False
    return all(is_same_type(actual.field(i).type, wanted.field(i).type) for i in range(wanted.num_fields))


def _has_old_dates(metadata: dict[bytes, bytes]) -> bool:
    return _LEGACY_DATES in metadata or metadata.get(_SPARK_VERSION, b"3").startswith((b"1.", b"2."))


# --- tasks --------------------------------------------------------------------------------------


def tasks_of(groups: Sequence[RowGroup], cores: int) -> tuple[tuple[FilePart, ...], ...]:
    """The row groups in order, cut into tasks of about the same number of rows. The number of tasks is a multiple of
    the cores: of three tasks on two cores, the third would leave a core idle. Groups and tasks without rows are left
    out."""
    total = sum(group.rows for group in groups)
    count = cores * max(1, -(-total // (TASK_ROWS * cores)))
    tasks: list[list[RowGroup]] = [[] for _ in range(count)]
    before = 0
    for group in groups:
        if group.rows:
            # The task that the middle row of the group falls into.
            tasks[(2 * before + group.rows) * count // (2 * total)].append(group)
            before += group.rows
    return tuple(_file_parts(task) for task in tasks if task)


def _file_parts(groups: Sequence[RowGroup]) -> tuple[FilePart, ...]:
    return tuple((path, tuple(group.number for group in some)) for path, some in groupby(groups, attrgetter("path")))
