"""What `match` gives, written to Parquet by the workers that matched it.

On its way into a file Spark's own writer takes each id of each row in its hands, which costs more than to find it.
Here a worker writes its rows itself. It has their ids as places in the sorted order of all ids, and as such they go
into the file: Parquet keeps texts in a dictionary, once for each group of rows.

    OUT/_temporary/TOKEN.parquet      of a task that runs, or that nobody waits for any more
    OUT/part-00007-TOKEN.parquet      of a task whose answer the driver has: one for each partition
    OUT/_SUCCESS                      all are there

A task that Spark does twice leaves two files, of which the driver hears of one. Readers pass over what begins with
`_`; a job that fails takes the directory away with it.
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
from catchment.matching.lists import LIST_BYTES_MAX, Words
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match import scattered
from catchment.pipeline.match.worker import SUBSCRIPTIONS, AnyIndex, Found, _Job, match, opened_shards, planned
from catchment.pipeline.paths import address, file_system

# A group of rows is written when it has so many matches, of 4 bytes each, or so many rows, or bytes of other columns.
GROUP_MATCHES: Final = 1 << 23
GROUP_ROWS: Final = 1 << 20
GROUP_BYTES: Final = 1 << 27

_TEMPORARY: Final = "_temporary"
_DONE: Final = "_SUCCESS"
# What Spark writes of itself into a file: the schema as it has it, and that its calendar is the usual one.
_SPARK_SCHEMA, _SPARK_VERSION = "org.apache.spark.sql.parquet.row.metadata", "org.apache.spark.version"
# Those that are the same in a file whether Arrow writes them or Spark.
_SCALARS: Final = (
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
_WRITTEN: Final = StructType(
    [
        StructField("partition", LongType()),
        StructField("token", StringType()),
        *(StructField(name, LongType()) for name in ("notifications", "matched", "matches", "bad")),
    ]
)


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows were written; how many of them matched any subscription; the matches; and the rows that are no
    notification, whose `subscriptions` are null."""

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
    """Writes what `match` gives into a new directory of Parquet files.

    On a cluster that must be one that all its machines see. Spark writes the files where workers cannot: on a file
    system that pyarrow does not know, with columns of types that Parquet has only in Spark's spelling, on Spark
    Connect, and where the index is too large for one worker.
    """
    if notifications.isStreaming:
        raise InputError("this is a stream: write its matches with match_stream")
    if SUBSCRIPTIONS in notifications.columns:
        raise InputError(f"there is a column {SUBSCRIPTIONS} already: drop or rename it")
    opened = open_index(index)
    if is_remote() or scattered.shards_per_task(opened) is not None or not _is_common(notifications.schema):
        return _written_by_spark(notifications, opened, path, attributes)
    try:
        files, root = file_system(os.fspath(path).rstrip("/"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return _written_by_spark(notifications, opened, path, attributes)
    if files.get_file_info(root).type != fs.FileType.NotFound:
        raise InputError(f"{os.fspath(path)} is there already: name a new directory")
    schema = StructType(
        [*notifications.schema.fields, StructField(SUBSCRIPTIONS, ArrayType(StringType(), containsNull=False))]
    )
    files.create_dir(f"{root}/{_TEMPORARY}", recursive=True)
    try:
        return _written_by_workers(*planned(notifications, opened, attributes), files, root, schema)
    except BaseException:
        with suppress(OSError):
            files.delete_dir(root)
        raise


def _is_common(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_is_common(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_common(kind.elementType)
        case MapType():
            return _is_common(kind.keyType) and _is_common(kind.valueType)
        case DecimalType():
            return True
        case _:
            return kind in _SCALARS  # a string with a collation is equal to none


def _written_by_spark(
    notifications: DataFrame, index: Index, path: str | os.PathLike[str], attributes: Sequence[str] | None
) -> Written:
    seen, size = Observation(), F.size(SUBSCRIPTIONS)
    found = match(notifications, index, attributes).observe(
        seen,
        F.count(F.lit(1)).alias("notifications"),
        F.count_if(size > 0).alias("matched"),
        F.sum(F.when(size > 0, size)).alias("matches"),
        F.count_if(F.col(SUBSCRIPTIONS).isNull()).alias("bad"),
    )
    found.write.parquet(address(path))
    return Written(**{name: int(value or 0) for name, value in seen.get.items()})


def _written_by_workers(given: DataFrame, job: _Job, files: fs.FileSystem, root: str, schema: StructType) -> Written:
    writer = _Writer(job, tuple(schema.names), schema.json(), files, root)
    # A row for each partition that is not empty.
    rows = given.mapInArrow(writer, _WRITTEN).collect()
    for row in rows:
        place = _temporary(root, row["token"])
        if files.get_file_info(place).type == fs.FileType.NotFound:
            raise InputError(f"a worker wrote {place}, which is not to be seen here: name a directory that both see")
        files.move(place, f"{root}/part-{row['partition']:05}-{row['token']}.parquet")
    if not rows:
        arrow = to_arrow_schema(schema, timezone="UTC").with_metadata(_metadata(schema.json()))
        pq.write_table(arrow.empty_table(), f"{root}/part-00000-{uuid4().hex}.parquet", filesystem=files)
    files.delete_dir(f"{root}/{_TEMPORARY}")
    with files.open_output_stream(f"{root}/{_DONE}"):
        pass
    counted = (sum(row[name] for row in rows) for name in ("notifications", "matched", "matches", "bad"))
    return Written(*counted)


def _temporary(root: str, token: str) -> str:
    return f"{root}/{_TEMPORARY}/{token}.parquet"


def _metadata(schema: str) -> dict[str, str]:
    return {_SPARK_SCHEMA: schema, _SPARK_VERSION: pyspark.__version__}


# --- in a worker --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Writer:
    """For mapInArrow: writes a partition to a file, and says how much was in it."""

    job: _Job
    names: tuple[str, ...]
    schema: str
    files: fs.FileSystem
    root: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context, token = TaskContext.get(), uuid4().hex
        partition = 0 if context is None else context.partitionId()
        group, counts, out = _Group(), np.zeros(4, np.int64), None
        try:
            for piece, found in self.job.found(batches):
                group.add(piece, found)
                matched = np.count_nonzero(np.diff(found.offsets))
                counts += np.array([len(found), matched, len(found.ranks), np.count_nonzero(found.bad)])
                if group.is_full:
                    out, group = self._flushed(out, token, group), _Group()
            if group.pieces:
                out = self._flushed(out, token, group)
        finally:
            if out is not None:
                out.close()
        if out is not None:
            columns = [pa.array([one]) for one in (partition, token, *counts.tolist())]
            yield pa.RecordBatch.from_arrays(columns, _WRITTEN.names)

    def _flushed(self, out: pq.ParquetWriter | None, token: str, group: _Group) -> pq.ParquetWriter:
        for table in group.tables(opened_shards(self.job.shards).words, self.names):
            if out is None:
                out = self._opened(token, table.schema)
            out.write_table(table, row_group_size=table.num_rows)
        assert out is not None
        return out

    def _opened(self, token: str, schema: pa.Schema) -> pq.ParquetWriter:
        try:
            stream = self.files.open_output_stream(_temporary(self.root, token))
        except FileNotFoundError:
            raise InputError(
                f"{self.root} was made by the driver and is not to be seen by this worker: name a directory that all "
                "machines of the cluster see"
            ) from None
        return pq.ParquetWriter(
            stream,
            schema.with_metadata(_metadata(self.schema)),
            # The least and the greatest id of many rows say nothing, and to find them takes longer than to write all.
            write_statistics=list(self.names[:-1]),
            # That is, with Arrow's own: by it a reader would make dictionaries again.
            store_schema=False,
        )


class _Group:
    """Rows that are written at once, with what matches them."""

    def __init__(self) -> None:
        self.pieces: list[tuple[pa.RecordBatch, Found]] = []
        self._rows = self._matches = self._bytes = 0

    def add(self, piece: pa.RecordBatch, found: Found) -> None:
        self.pieces.append((piece, found))
        self._rows += len(found)
        self._matches += len(found.ranks)
        self._bytes += piece.nbytes

    @property
    def is_full(self) -> bool:
        return self._rows >= GROUP_ROWS or self._matches >= GROUP_MATCHES or self._bytes >= GROUP_BYTES

    def tables(self, words: Words, names: Sequence[str]) -> Iterator[pa.Table]:
        """All of it; several where the texts of the ids are too much for one."""
        yield from _tables(self.pieces, words, names)


def _tables(pieces: Sequence[tuple[pa.RecordBatch, Found]], words: Words, names: Sequence[str]) -> Iterator[pa.Table]:
    ranks = np.concatenate([found.ranks for _, found in pieces])
    is_used = np.zeros(len(words.rank_of), bool)
    is_used[ranks] = True
    texts = words.texts(np.flatnonzero(is_used).astype(np.int32))
    if texts is None:
        if len(pieces) == 1:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "more of ids in one batch", "use shorter ids")
        half = len(pieces) // 2
        yield from _tables(pieces[:half], words, names)
        yield from _tables(pieces[half:], words, names)
        return
    places = (np.cumsum(is_used, dtype=np.int32) - np.int32(1))[ranks]
    ids = pa.DictionaryArray.from_arrays(pa.array(places), texts, safe=False)
    rows = pa.Table.from_batches([piece for piece, _ in pieces])
    lists = pa.ListArray.from_arrays(*_ends([found for _, found in pieces], ids))
    yield pa.Table.from_arrays([*rows.columns, lists], list(names))


def _ends(found: Sequence[Found], ids: pa.Array) -> tuple[Any, ...]:
    counts = np.concatenate([np.diff(one.offsets) for one in found])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    bad = np.concatenate([one.bad for one in found])
    return (pa.array(offsets), ids) if not bad.any() else (pa.array(offsets), ids, None, None, pa.array(bad))
