"""Files that arrive in a directory, as a stream of notifications.

The stream itself is only of the names of files: Spark records which of them are in which batch before the batch
begins. A batch then reads its files as `read_notifications` reads any files, with the same decoders and rejects.

A file counts once it has its name, so write it elsewhere on the same file system, or under a name that begins with
`.` or `_`, and rename it. A name is read once: what is written to a file later is not seen. A file that cannot be
read at all (a broken Parquet file, a CSV header that was not declared) is a reject without a row, and stops nothing.
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
from catchment.pipeline.archive.write import fitted
from catchment.pipeline.inputs import Input, NotificationFormat, read_notifications
from catchment.pipeline.paths import quoted, reading
from catchment.pipeline.schema import ENVELOPE_FIELDS, REJECTS, refuse_case_twins

# Files of one batch: their names come to the driver, and a batch that was killed is read again from its start.
FILES_MAX: Final = 100
# Spark forgets, and then ignores, files so much older than the newest one; a week by default, which loses files
# that were moved in with an old date.
FILE_AGE_MAX: Final = "36500d"
_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
# What Spark says when it is the file that is at fault. A job that was cancelled says something else.
_UNREADABLE: Final = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_REASON_CHARACTERS_MAX: Final = 300
# Its message among what py4j and Java put around it.
_SPARK_MESSAGE: Final = re.compile(r"\[[A-Z_.]{4,}\] [^\n]*")
# Spark's errors are of PySpark's classes where PySpark knows them.
FAILURES: Final = (CatchmentError, PySparkException, Py4JError)


@dataclass(frozen=True, slots=True)
class NotificationFiles:
    """A directory of files to come. `glob` says which names count; `types` are as for `read_notifications`."""

    directory: str
    format: NotificationFormat = "json"
    types: Mapping[str, Type | str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    glob: str | None = None
    files_max: int = FILES_MAX

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files, as Spark finds them: a column `path`."""
        if "://" not in self.directory and not Path(self.directory).is_dir():
            raise UnavailableError(f"there is no directory {self.directory}: make it before files arrive in it")
        reader = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", True)
        reader = reader.option("maxFilesPerTrigger", self.files_max).option("maxFileAge", FILE_AGE_MAX)
        if self.glob is not None:
            reader = reader.option("pathGlobFilter", self.glob)
        return reader.load(reading(self.directory)).select("path")

    def read(self, spark: SparkSession, paths: Sequence[str], known: StructType) -> FilesRead:
        """The notifications of some files, in columns that fit those of earlier batches."""
        found = FilesRead(spark, self, StructType([*known.fields]))
        for group in self._groups(paths):
            found.add(group)
        return found

    def input_of(self, spark: SparkSession, paths: Sequence[str], counted: Observation | None = None) -> Input:
        return read_notifications(
            spark, [quoted(path) for path in paths], self.format, self.types, self.options, counted
        )

    def _groups(self, paths: Sequence[str]) -> Iterable[list[str]]:
        """Files that can be read together: Spark takes the columns of Parquet and CSV from one of the files."""
        if self.format not in ("parquet", "csv"):
            return [list(paths)]
        groups: dict[object, list[str]] = {}
        for path in paths:
            groups.setdefault(_columns_of(path, self.format), []).append(path)
        return groups.values()


class FilesRead:
    """The rows of some files and their rejects, as far as they can be read."""

    def __init__(self, spark: SparkSession, files: NotificationFiles, known: StructType) -> None:
        self._spark, self._files = spark, files
        self._parts: list[DataFrame] = []
        self._rejects: list[DataFrame] = []
        self._unread: list[tuple[str, str]] = []
        self._counts: list[int | Observation] = []
        self.schema = known

    def add(self, paths: list[str]) -> None:
        """One by one where they cannot be read together: a bad file is alone in being bad."""
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
                self._unread.append((paths[0], _reason(problem)))
            return
        self.schema = schema
        self._parts.append(given.rows.select(*columns))
        self._rejects.append(given.rejects)
        self._counts.append(counted if given.rejected is None else given.rejected)

    def refuse(self, path: str, problem: Exception) -> None:
        self._unread.append((path, _reason(problem)))

    @property
    def rows(self) -> DataFrame:
        if not self._parts:
            return self._spark.createDataFrame([], StructType(list(ENVELOPE_FIELDS)))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), self._parts)

    def rejects(self) -> DataFrame | None:
        """What is in these files that is no notification, once all rows were read; None if all is."""
        found = [bad for bad, count in zip(self._rejects, self._counts, strict=True) if _rejected(count)]
        if self._unread:
            unread = [(path, None, reason, None) for path, reason in self._unread]
            found.append(self._spark.createDataFrame(unread, REJECTS))
        return reduce(DataFrame.unionByName, found) if found else None

    def unreadable(self, paths: Sequence[str]) -> dict[str, Exception]:
        """The files that a job failed on, found by reading each alone."""
        found: dict[str, Exception] = {}
        for path in paths:
            try:
                self._files.input_of(self._spark, [path]).rows.write.format("noop").mode("overwrite").save()
            except FAILURES as problem:
                if _is_unreadable(problem):
                    found[path] = problem
        return found


def _rejected(count: int | Observation) -> int:
    return count if isinstance(count, int) else int(count.get["rejected"] or 0)


def _is_unreadable(problem: Exception) -> bool:
    return isinstance(problem, CatchmentError) or any(word in str(problem) for word in _UNREADABLE)


def _reason(problem: Exception) -> str:
    text = str(problem)
    found = None if isinstance(problem, CatchmentError) else _SPARK_MESSAGE.search(text)
    return f"the file cannot be read: {(text if found is None else found[0])[:_REASON_CHARACTERS_MAX]}"


# --- what files have in common ------------------------------------------------------------------


def _local(path: str) -> Path:
    return Path("/" + path.removeprefix("file:").lstrip("/"))


def _columns_of(path: str, format: str) -> object:
    """Equal for files with equal columns; of files elsewhere than here the path, so that each is read alone."""
    if not path.startswith("file:") or path.endswith((".gz", ".bz2", ".zst", ".lz4", ".snappy", ".xz")):
        return path
    try:
        if format == "parquet":
            return str(pq.read_schema(_local(path)).remove_metadata())
        with _local(path).open("rb") as file:
            return file.readline()
    except (OSError, pa.ArrowException):
        return path  # whoever reads it says what is wrong
