"""Files that arrive in a directory, as a stream of notifications.

What Spark streams is only the names of the files: it records which files are in a batch before the batch begins. A
batch then reads its files as `read_notifications` does, with the same decoders and rejects.

A file is read as soon as it has its name. So write it elsewhere on the same file system, or under a name that begins
with `.` or `_`, and rename it when it is complete. A name is read once: what is appended later is not seen. A file that
cannot be read at all (a broken Parquet file, a CSV header that was not declared) becomes a reject without a row number,
and does not stop the stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from catchment.errors import CatchmentError, UnavailableError
from catchment.model.values import Type
from catchment.pipeline.growing_schema import empty_schema, fitted
from catchment.pipeline.inputs import Input, NotificationFormat, read_notifications
from catchment.pipeline.paths import escaped, readable
from catchment.pipeline.schema import REJECTS, refuse_case_twins

# Files of one batch: their names come to the driver, and if a batch is killed, all of it is read again.
FILES_MAX: Final = 100
# Spark ignores files that are so much older than the newest one. Its default, a week, would lose a file that is moved
# in with an old date.
FILE_AGE_MAX: Final = "36500d"
# The schema that Spark wants for whole files.
WHOLE_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
# Words in Spark's error if the file is at fault. If a job was cancelled, the error has none of them.
_UNREADABLE: Final = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_REASON_CHARACTERS_MAX: Final = 300
# Finds Spark's message in the text that py4j and Java put around it.
_SPARK_MESSAGE: Final = re.compile(r"\[[A-Z_.]{4,}\] [^\n]*")
# Errors of a job. PySpark turns Spark's errors into classes of its own where it knows them; the others are py4j's.
FAILURES: Final = (CatchmentError, PySparkException, Py4JError)


@dataclass(frozen=True, slots=True)
class NotificationFiles:
    """A directory that files arrive in. `glob` says which names are read; `types` are as for `read_notifications`."""

    directory: str
    format: NotificationFormat = "json"
    types: Mapping[str, Type | str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    glob: str | None = None
    files_max: int = FILES_MAX

    def stream(self, spark: SparkSession) -> DataFrame:
        """The names of the files as they arrive: a column `path`."""
        require_directory(self.directory)
        reader = spark.readStream.format("binaryFile").schema(WHOLE_FILES).option("recursiveFileLookup", True)
        reader = reader.option("maxFilesPerTrigger", self.files_max).option("maxFileAge", FILE_AGE_MAX)
        if self.glob is not None:
            reader = reader.option("pathGlobFilter", self.glob)
        return reader.load(readable(self.directory)).select("path")

    def read(self, spark: SparkSession, paths: Sequence[str], known: StructType) -> FilesRead:
        """The notifications of some files, in columns that fit those of earlier batches."""
        files_read = FilesRead(spark, self, StructType([*known.fields]))
        for group in self._groups(paths):
            files_read.add(group)
        return files_read

    def input_of(self, spark: SparkSession, paths: Sequence[str], counted: Observation | None = None) -> Input:
        return read_notifications(
            spark, [escaped(path) for path in paths], self.format, self.types, self.options, counted
        )

    def _groups(self, paths: Sequence[str]) -> Iterable[list[str]]:
        """The files in groups that can be read together. For Parquet and CSV, Spark takes the columns of all files from
        one of them, so files with other columns are in another group."""
        if self.format not in ("parquet", "csv"):
            return [list(paths)]
        groups: dict[object, list[str]] = {}
        for path in paths:
            groups.setdefault(_columns_of(path, self.format), []).append(path)
        return groups.values()


def require_directory(directory: str) -> None:
    """Raises UnavailableError if a local directory does not exist."""
    if "://" not in directory and not Path(directory).is_dir():
        raise UnavailableError(f"there is no directory {directory}: make it before files arrive in it")


class FilesRead:
    """The rows of some files, and their rejects: files that cannot be read are among these."""

    def __init__(self, spark: SparkSession, files: NotificationFiles, known: StructType) -> None:
        self._spark, self._files = spark, files
        self._parts: list[DataFrame] = []
        self._rejects: list[DataFrame] = []
        self._unreadable: list[tuple[str, str]] = []
        self._counts: list[int | Observation] = []
        self.schema = known

    def add(self, paths: list[str]) -> None:
        """Adds files. If they cannot be read together, each is read alone, so that only the bad ones are rejects."""
        counted = Observation()
        try:
            given = self._files.input_of(self._spark, paths, counted)
            columns, schema = fitted(given.rows.schema, self.schema)
            refuse_case_twins(self._spark, schema)
        except FAILURES as problem:
            if not _is_unreadable(problem):
                raise
            if len(paths) > 1:
                for path in paths:
                    self.add([path])
            else:
                self.refuse(paths[0], problem)
            return
        self.schema = schema
        self._parts.append(given.rows.select(*columns))
        self._rejects.append(given.rejects)
        self._counts.append(counted if given.rejected is None else given.rejected)

    def refuse(self, path: str, problem: Exception) -> None:
        """Makes a reject of a file that cannot be read."""
        self._unreadable.append((path, _reason(problem)))

    @property
    def rows(self) -> DataFrame:
        if not self._parts:
            return self._spark.createDataFrame([], empty_schema())
        return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), self._parts)

    def rejects(self) -> DataFrame | None:
        """The rejects of these files; None if there are none. Call it when all rows were read: only then are the
        rejects counted."""
        rejects = [bad for bad, count in zip(self._rejects, self._counts, strict=True) if _rejected(count)]
        if self._unreadable:
            rows = [(path, None, reason, None) for path, reason in self._unreadable]
            rejects.append(self._spark.createDataFrame(rows, REJECTS))
        return reduce(DataFrame.unionByName, rejects) if rejects else None

    def unreadable(self, paths: Sequence[str]) -> dict[str, Exception]:
        """The files that a job failed on, each with its error. Each file is read alone to find them."""
        problems: dict[str, Exception] = {}
        for path in paths:
            try:
                self._files.input_of(self._spark, [path]).rows.write.format("noop").mode("overwrite").save()
            except FAILURES as problem:
                if _is_unreadable(problem):
                    problems[path] = problem
        return problems


def _rejected(count: int | Observation) -> int:
    return count if isinstance(count, int) else int(count.get["rejected"] or 0)


def _is_unreadable(problem: Exception) -> bool:
    return isinstance(problem, CatchmentError) or any(word in str(problem) for word in _UNREADABLE)


def _reason(problem: Exception) -> str:
    text = str(problem)
    message = None if isinstance(problem, CatchmentError) else _SPARK_MESSAGE.search(text)
    return f"the file cannot be read: {(text if message is None else message[0])[:_REASON_CHARACTERS_MAX]}"


# --- files with the same columns ------------------------------------------------------------------


def _local(path: str) -> Path:
    return Path("/" + path.removeprefix("file:").lstrip("/"))


def _columns_of(path: str, format: str) -> object:
    """A key that is equal for files with equal columns. For a file that is not local, or is compressed, it is the path,
    so such a file is read alone."""
    if not path.startswith("file:") or path.endswith((".gz", ".bz2", ".zst", ".lz4", ".snappy", ".xz")):
        return path
    try:
        if format == "parquet":
            return str(pq.read_schema(_local(path)).remove_metadata())
        with _local(path).open("rb") as file:
            return file.readline()
    except (OSError, pa.ArrowException):
        return path  # reading it alone will tell what is wrong
