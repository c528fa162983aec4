"""Parquet files that workers read themselves.

Of a DataFrame that is columns of files and nothing else, Spark would decode the columns, put rows together from them,
and take the rows apart into Arrow's columns for Python. Python reads the same columns from the same files as Arrow has
them.

    usual:   file ─► columns ─► rows ─► Arrow, in Java ─► socket ─► worker
    here:    a number for each task ─► worker ─► file ─► Arrow

It is done only where both ways give the same: the driver looks at the plan, at the settings that change how Spark
reads, and at the footer of each file; whatever is not exactly as expected goes the usual way. `READS` set to `false` in
the session sends everything there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.utils import is_remote

from catchment.errors import InputError
from catchment.pipeline.session import parallelism

READS: Final = "spark.catchment.workersReadParquet"
# Footers that the driver reads before a job: a third of a millisecond each.
FILES_MAX: Final = 1_000
# Rows of a task, as far as groups of rows allow: some tenths of a second, so that no core waits long for another.
TASK_ROWS: Final = 1 << 17
# Rows handed on at once, as many as Spark hands over; fewer where they are long, by what the footer says of them.
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 1 << 26

_FORMAT: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# Options of a reader that say which files there are; any other may say how they are read.
_OPTIONS: Final = frozenset(
    ("path", "paths", "mergeschema", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
)
# Settings of a session with which Spark reads a file as Arrow does not.
_UNUSUAL: Final = (
    ("spark.sql.files.ignoreCorruptFiles", "true"),
    ("spark.sql.files.ignoreMissingFiles", "true"),
    ("spark.sql.parquet.fieldId.read.enabled", "true"),
    ("spark.sql.parquet.datetimeRebaseModeInRead", "legacy"),
)
# Written by Spark into files whose old dates are of another calendar.
_LEGACY_DATES, _SPARK_VERSION = b"org.apache.spark.legacyDateTime", b"org.apache.spark.version"

Piece = tuple[str, tuple[int, ...]]  # a file, and groups of its rows


@dataclass(frozen=True)
class Scan:
    """What each task of a job reads: columns, and pieces of files."""

    columns: tuple[str, ...]
    tasks: tuple[tuple[Piece, ...], ...]

    def numbers(self, spark: SparkSession) -> DataFrame:
        """A row for each task, with its number: what `batches` is to be given."""
        return spark.range(0, len(self.tasks), 1, len(self.tasks))

    def batches(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows of its task, the columns named c0, c1, …"""
        names = [f"c{number}" for number in range(len(self.columns))]
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for path, groups in self.tasks[number]:
                    for rows in self._rows(path, groups):
                        yield pa.RecordBatch.from_arrays([rows.column(name) for name in self.columns], names)

    def _rows(self, path: str, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                # Its caller picks columns by name: nothing promises that they come in the order asked for.
                size = _batch_rows(file.metadata, groups)
                yield from file.iter_batches(size, list(groups), list(self.columns), use_threads=False)
        except (OSError, pa.ArrowException) as problem:
            raise InputError(f"{path} cannot be read: {problem}") from problem


def scan_of(rows: DataFrame) -> Scan | None:
    """How workers read these rows themselves; None where Spark is to."""
    if is_remote() or rows.isStreaming or not rows.columns or not _is_usual(rows.sparkSession):
        return None
    files = _files(rows)
    if not files:
        return None
    wanted = to_arrow_schema(rows.schema, timezone="UTC")
    with ThreadPoolExecutor() as pool:
        found = [_groups(path, footer, wanted) for path, footer in zip(files, pool.map(_footer, files), strict=True)]
    if None in found:
        return None
    groups = [one for some in found if some is not None for one in some]
    tasks = _tasks(groups, parallelism(rows.sparkSession))
    return Scan(tuple(rows.columns), tasks) if tasks else None


def _is_usual(spark: SparkSession) -> bool:
    asked = (spark.conf.get(READS, "true") or "").lower() != "false"
    return asked and all((spark.conf.get(name) or "").lower() != value for name, value in _UNUSUAL)


# --- the plan -----------------------------------------------------------------------------------


def _files(rows: DataFrame) -> list[str] | None:
    """The paths of its files, if these columns of local Parquet files are all that the DataFrame is."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    names = rows.columns
    if _class(plan) == "Project":
        chosen = _items(plan.projectList())
        if any(_class(one) != "AttributeReference" for one in chosen) or [one.name() for one in chosen] != names:
            return None
        plan = plan.child()
    if len(set(names)) < len(names) or _class(plan) != "LogicalRelation":
        return None
    relation = plan.relation()
    if not _is_plain(relation) or len(relation.location().inputFiles()) > FILES_MAX:
        return None
    addresses = [urlsplit(one) for one in relation.location().inputFiles()]
    return [unquote(one.path) for one in addresses] if all(one.scheme == "file" for one in addresses) else None


def _is_plain(relation: Any) -> bool:
    return (
        _class(relation) == "HadoopFsRelation"
        and relation.fileFormat().getClass().getName() == _FORMAT
        and _class(relation.location()) == "InMemoryFileIndex"
        and relation.partitionSchema().isEmpty()
        and relation.bucketSpec().isEmpty()
        and all(one.lower() in _OPTIONS for one in _items(relation.options().keys().toSeq()))
    )


def _class(found: Any) -> str:
    return str(found.getClass().getSimpleName())


def _items(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.size())]


# --- footers ------------------------------------------------------------------------------------


def _footer(path: str) -> tuple[pa.Schema, pq.FileMetaData] | None:
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata
    except (OSError, pa.ArrowException):
        return None


def _groups(
    path: str, footer: tuple[pa.Schema, pq.FileMetaData] | None, wanted: pa.Schema
) -> list[tuple[str, int, int]] | None:
    """The groups of rows of a file: path, number, rows. None where it is not as Spark has it."""
    if footer is None:
        return None
    schema, metadata = footer
    if any(schema.names.count(one.name) != 1 or not _is_same(schema.field(one.name).type, one.type) for one in wanted):
        return None
    if _has_old_dates(metadata.metadata or {}):
        return None
    return [(path, i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]


def _batch_rows(metadata: pq.FileMetaData, groups: Sequence[int]) -> int:
    found = [metadata.row_group(i) for i in groups]
    rows, size = sum(int(one.num_rows) for one in found), sum(int(one.total_byte_size) for one in found)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, size)))


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types are the same, whatever may be null and however the parts of lists and maps are called."""
    if found.id != wanted.id or found.num_fields != wanted.num_fields:
        return False
    if not wanted.num_fields:
        return bool(found == wanted)
    if pa.types.is_struct(wanted) and [one.name for one in found] != [one.name for one in wanted]:
        return False
    return all(_is_same(found.field(i).type, wanted.field(i).type) for i in range(wanted.num_fields))


def _has_old_dates(metadata: dict[bytes, bytes]) -> bool:
    return _LEGACY_DATES in metadata or metadata.get(_SPARK_VERSION, b"3").startswith((b"1.", b"2."))


def _tasks(groups: Sequence[tuple[str, int, int]], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The groups cut into tasks of about as many rows each, in their order; those without rows are left out. As many
    for each core: the third of three would leave one of two cores without work."""
    total = sum(rows for _, _, rows in groups)
    count = cores * max(1, -(-total // (TASK_ROWS * cores)))
    tasks: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    before = 0
    for path, group, rows in groups:
        if rows:
            # Where the middle of the group lies.
            tasks[(2 * before + rows) * count // (2 * total)].append((path, group))
            before += rows
    return tuple(_pieces(one) for one in tasks if one)


def _pieces(groups: Sequence[tuple[str, int]]) -> tuple[Piece, ...]:
    return tuple((path, tuple(number for _, number in found)) for path, found in groupby(groups, itemgetter(0)))
