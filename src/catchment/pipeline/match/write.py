"""The result of `match`, written to Parquet by the workers that matched it.

Spark's own Parquet writer copies each id of each row, which costs more than finding it. Here a worker writes its rows
itself. It has ids as ranks, their places in the sorted order of all ids, and writes them as such: Parquet keeps the
texts in a dictionary, once for each row group.

    OUT/_temporary/TOKEN.parquet      of a task that is running, or whose answer the driver did not take
    OUT/part-00007-TOKEN.parquet      of a task whose answer the driver has: one for each partition
    OUT/_SUCCESS                      all files are there

If Spark runs a task twice, it leaves two files, and the driver gets the answer of one of them. Readers skip names that
begin with `_`. If a job fails, it deletes the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.utils import is_remote

from catchment.errors import InputError, LimitError
from catchment.matching.lists import LIST_BYTES_MAX, IdTexts
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match import scattered
from catchment.pipeline.match.jobs import match
from catchment.pipeline.match.shards import RowMatches, open_shards
from catchment.pipeline.match.worker import IDS_COLUMN, IDS_FIELD, AnyIndex, MatchTask, planned
from catchment.pipeline.paths import address, file_system
from catchment.pipeline.schema import refuse_taken_names

# A row group is written when it has so many matches, of 4 bytes each, or so many rows, or bytes of other columns.
GROUP_MATCHES: Final = 1 << 23
GROUP_ROWS: Final = 1 << 20
GROUP_BYTES: Final = 1 << 27

_TEMPORARY: Final = "_temporary"
_SUCCESS: Final = "_SUCCESS"
# Keys of what Spark writes about itself into a file: its schema, and its version, which tells the calendar of dates.
_SPARK_SCHEMA, _SPARK_VERSION = "org.apache.spark.sql.parquet.row.metadata", "org.apache.spark.version"
# Types that are the same in a file whether Arrow or Spark writes them.
_COMMON_TYPES: Final = (
    StringType(),
    BinaryType(),
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
)
_COUNT_NAMES: Final = ("notifications", "matched", "matches", "bad")
# The answer of a task.
_ANSWER: Final = StructType(
    [
        StructField("partition", LongType()),
        StructField("token", StringType()),
        *(StructField(name, LongType()) for name in _COUNT_NAMES),
    ]
)


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of what was written: rows; rows that match any subscription; matches; and rows that are not notifications,
    whose `subscriptions` are null."""

    notifications: int = 0
    matched: int = 0
    matches: int = 0
    bad: int = 0


def write_matches(
    notifications: DataFrame,
    index: AnyIndex,
    path: str | os.PathLike[str],
    attributes: Sequence[str] | None = None,
) -> Written:
    """Writes the result of `match` into a new directory of Parquet files.

    On a cluster all machines must see that directory. Spark writes the files where workers cannot: on a file system
    that pyarrow does not know; with column types that Arrow and Spark write differently; with Spark Connect; and where
    the index is too large for one worker.
    """
    if notifications.isStreaming:
        raise InputError("this is a stream: write its matches with match_stream")
    refuse_taken_names(notifications.columns, [IDS_COLUMN])
    opened = open_index(index)
    if is_remote() or scattered.shards_per_task(opened) is not None or not _is_common(notifications.schema):
        return _written_by_spark(notifications, opened, path, attributes)
    try:
        files, root = file_system(os.fspath(path).rstrip("/"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return _written_by_spark(notifications, opened, path, attributes)
    if files.get_file_info(root).type != fs.FileType.NotFound:
        raise InputError(f"{os.fspath(path)} is there already: name a new directory")
    schema = StructType([*notifications.schema.fields, IDS_FIELD])
    files.create_dir(f"{root}/{_TEMPORARY}", recursive=True)
    try:
        return _written_by_workers(*planned(notifications, opened, attributes), files, root, schema)
    except BaseException:
        with suppress(OSError):
            files.delete_dir(root)
        raise


def _is_common(spark_type: DataType) -> bool:
    """Whether Arrow and Spark write this type in the same way."""
    match spark_type:
        case StructType():
            return all(_is_common(field.dataType) for field in spark_type.fields)
        case ArrayType():
            return _is_common(spark_type.elementType)
        case MapType():
            return _is_common(spark_type.keyType) and _is_common(spark_type.valueType)
        case DecimalType():
            return True
        case _:
            return spark_type in _COMMON_TYPES  # a string with a collation is not equal to StringType()


def _written_by_spark(
    notifications: DataFrame, index: Index, path: str | os.PathLike[str], attributes: Sequence[str] | None
) -> Written:
    counts, size = Observation(), F.size(IDS_COLUMN)
    matched = match(notifications, index, attributes).observe(
        counts,
        F.count(F.lit(1)).alias("notifications"),
        F.count_if(size > 0).alias("matched"),
        F.sum(F.when(size > 0, size)).alias("matches"),
        F.count_if(F.col(IDS_COLUMN).isNull()).alias("bad"),
    )
    matched.write.parquet(address(path))
    return Written(**{name: int(value or 0) for name, value in counts.get.items()})


def _written_by_workers(
    rows: DataFrame, task: MatchTask, files: fs.FileSystem, root: str, schema: StructType
) -> Written:
    writer = PartitionWriter(task, tuple(schema.names), schema.json(), files, root)
    # One answer from each partition that is not empty.
    answers = rows.mapInArrow(writer, _ANSWER).collect()
    for answer in answers:
        temporary = _temporary_path(root, answer["token"])
        if files.get_file_info(temporary).type == fs.FileType.NotFound:
            raise InputError(
                f"a worker wrote {temporary}, which the driver does not see: name a directory that both see"
            )
        files.move(temporary, f"{root}/part-{answer['partition']:05}-{answer['token']}.parquet")
    if not answers:
        arrow = to_arrow_schema(schema, timezone="UTC").with_metadata(_metadata(schema.json()))
        pq.write_table(arrow.empty_table(), f"{root}/part-00000-{uuid4().hex}.parquet", filesystem=files)
    # The files that are still there come from tasks that Spark ran twice.
    files.delete_dir(f"{root}/{_TEMPORARY}")
    with files.open_output_stream(f"{root}/{_SUCCESS}"):
        pass
    return Written(*(sum(answer[name] for answer in answers) for name in _COUNT_NAMES))


def _temporary_path(root: str, token: str) -> str:
    return f"{root}/{_TEMPORARY}/{token}.parquet"


def _metadata(schema: str) -> dict[str, str]:
    return {_SPARK_SCHEMA: schema, _SPARK_VERSION: pyspark.__version__}


# --- in a worker --------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionWriter:
    """For mapInArrow: writes the rows of a partition and their ids to a file, and answers with counts."""

    task: MatchTask
    names: tuple[str, ...]
    schema: str
    files: fs.FileSystem
    root: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context, token = TaskContext.get(), uuid4().hex
        partition = 0 if context is None else context.partitionId()
        group, counts, out = _RowGroup(), np.zeros(len(_COUNT_NAMES), np.int64), None
        try:
            for piece, matches in self.task.pieces(batches):
                group.add(piece, matches)
                matched = np.count_nonzero(np.diff(matches.offsets))
                counts += np.array([len(matches), matched, len(matches.ranks), np.count_nonzero(matches.bad)])
                if group.is_full:
                    out, group = self._written(group, out, token), _RowGroup()
            if group.pieces:
                out = self._written(group, out, token)
        finally:
            if out is not None:
                out.close()
        # The answer comes after the file is closed, so the driver never moves a file that is not complete.
        if out is not None:
            columns = [pa.array([value]) for value in (partition, token, *counts.tolist())]
            yield pa.RecordBatch.from_arrays(columns, _ANSWER.names)

    def _written(self, group: _RowGroup, out: pq.ParquetWriter | None, token: str) -> pq.ParquetWriter:
        """The writer after it has written a row group; opened with the first one, whose schema it needs."""
        for table in group.tables(open_shards(self.task.shards).words, self.names):
            if out is None:
                out = self._opened(token, table.schema)
            out.write_table(table, row_group_size=table.num_rows)
        assert out is not None
        return out

    def _opened(self, token: str, schema: pa.Schema) -> pq.ParquetWriter:
        try:
            stream = self.files.open_output_stream(_temporary_path(self.root, token))
        except FileNotFoundError:
            raise InputError(
                f"the driver made {self.root}, which this worker does not see: name a directory that all machines of "
                "the cluster see"
            ) from None
        return pq.ParquetWriter(
            stream,
            schema.with_metadata(_metadata(self.schema)),
            # No statistics of ids: their least and greatest say nothing, and finding them takes longer than writing.
            write_statistics=list(self.names[:-1]),
            # Without Arrow's schema: a reader that finds it makes dictionaries of the ids again.
            store_schema=False,
        )


class _RowGroup:
    """Rows that are written at once, with their matches."""

    def __init__(self) -> None:
        self.pieces: list[tuple[pa.RecordBatch, RowMatches]] = []
        self._rows = self._matches = self._bytes = 0

    def add(self, piece: pa.RecordBatch, matches: RowMatches) -> None:
        self.pieces.append((piece, matches))
        self._rows += len(matches)
        self._matches += len(matches.ranks)
        self._bytes += piece.nbytes

    @property
    def is_full(self) -> bool:
        return self._rows >= GROUP_ROWS or self._matches >= GROUP_MATCHES or self._bytes >= GROUP_BYTES

    def tables(self, words: IdTexts, names: Sequence[str]) -> Iterator[pa.Table]:
        """The rows as a table; as several if the texts of the ids are too long for one dictionary."""
        yield from _tables(self.pieces, words, names)


def _tables(
    pieces: Sequence[tuple[pa.RecordBatch, RowMatches]], words: IdTexts, names: Sequence[str]
) -> Iterator[pa.Table]:
    ranks = np.concatenate([matches.ranks for _, matches in pieces])
    is_used = np.zeros(len(words.rank_of), bool)
    is_used[ranks] = True
    texts = words.texts(np.flatnonzero(is_used).astype(np.int32))
    if texts is None:
        if len(pieces) == 1:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "more bytes of ids in one batch", "use shorter ids")
        half = len(pieces) // 2
        yield from _tables(pieces[:half], words, names)
        yield from _tables(pieces[half:], words, names)
        return
    # The dictionary has only the ids that are used: an id's place in it is the number of used ranks before its own.
    places = (np.cumsum(is_used, dtype=np.int32) - np.int32(1))[ranks]
    ids = pa.DictionaryArray.from_arrays(pa.array(places), texts, safe=False)
    rows = pa.Table.from_batches([piece for piece, _ in pieces])
    lists = pa.ListArray.from_arrays(*_list_arguments([matches for _, matches in pieces], ids))
    yield pa.Table.from_arrays([*rows.columns, lists], list(names))


def _list_arguments(parts: Sequence[RowMatches], ids: pa.Array) -> tuple[Any, ...]:
    """The offsets and values of a list array, and a mask if there are bad rows."""
    counts = np.concatenate([np.diff(matches.offsets) for matches in parts])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    bad = np.concatenate([matches.bad for matches in parts])
    return (pa.array(offsets), ids) if not bad.any() else (pa.array(offsets), ids, None, None, pa.array(bad))
