"""What a worker does with its rows, and what the driver sends it for that.

A worker encodes a batch of rows once for all shards, and matches it in pieces. It merges the ids from all shards,
sorted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from catchment.matching import Encoded, Matches
from catchment.matching.lists import IdTexts
from catchment.pipeline.index import LIVE, Index, open_index
from catchment.pipeline.match.parquet_scan import ParquetScan, scan_of
from catchment.pipeline.match.shards import Array, RowMatches, open_shards
from catchment.pipeline.schema import AttributeColumn, matched_columns

IDS_COLUMN: Final = "subscriptions"
ID_COLUMN: Final = "subscription"
# No id is null. Spark then copies the elements of an array without checking each.
IDS_FIELD: Final = StructField(IDS_COLUMN, ArrayType(StringType(), False))
COUNTS: Final = StructType([StructField(ID_COLUMN, StringType()), StructField("count", LongType())])

# Rows matched at once: so many that they cannot have more matches than this, of 4 bytes each, but not fewer than
# ROWS_MIN and not more than ROWS_MAX.
MATCHES_MAX: Final = 1 << 26
ROWS_MIN, ROWS_MAX = 64, 8_192
# Matches that one Arrow batch should have. So many stay in the processor's caches on their way to Spark.
PIECE_MATCHES: Final = 1 << 18
# Subscriptions in one Arrow batch of counts.
COUNTS_BATCH: Final = 1 << 16

AnyIndex = Index | str | os.PathLike[str]


@dataclass(frozen=True)
class MatchTask:
    """What a worker needs to match rows: the paths of the shards, the columns to match on, each with the attribute it
    holds (none for a map), the most rows to match at once, and, if it reads the rows itself, where."""

    shards: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    rows_max: int
    scan: ParquetScan | None = None

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, RowMatches]]:
        """Pieces of the batches, each with the matches of its rows."""
        shards = open_shards(self.shards)
        size = min(self.rows_max, ROWS_MIN)
        for batch in self.row_batches(batches):
            encoded, start = self.encoded(batch), 0
            while start < len(encoded):
                rows, count = min(size, len(encoded) - start), 0
                for matches in shards.matches(encoded.slice(start, rows)):
                    count += len(matches.ranks)
                    yield batch.slice(start, len(matches)), matches
                    start += len(matches)
                # The next piece has as many rows as would have PIECE_MATCHES at the rate of this one.
                size = min(max(PIECE_MATCHES * rows // max(1, count), ROWS_MIN), self.rows_max)

    def row_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The rows to match: those that Spark sent, or those of the files that the batches name."""
        return batches if self.scan is None else self.scan.row_batches(batches)

    def encoded(self, batch: pa.RecordBatch) -> Encoded:
        """The rows of a batch as all shards take them."""
        return Encoded.of_columns([(name, batch.column(column)) for column, name in self.columns], batch.num_rows)


def planned(notifications: DataFrame, index: Index, attributes: Sequence[str] | None) -> tuple[DataFrame, MatchTask]:
    """The task of each worker, and the DataFrame that Spark is to send to workers: the rows, or, where workers read the
    files themselves, the numbers of their tasks."""
    task, scan = match_task(notifications, index, attributes), scan_of(notifications)
    if scan is None:
        return with_numbered_columns(notifications), task
    return scan.task_numbers(notifications.sparkSession), replace(task, scan=scan)


def match_task(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None) -> MatchTask:
    """The task of a worker that Spark sends the rows to, with numbered columns."""
    opened = open_index(index)
    rows_max = MATCHES_MAX // max(1, opened.counts[LIVE])
    numbered = numbered_names(notifications.columns)
    columns = tuple(
        (numbered[column.column], column.name if isinstance(column, AttributeColumn) else "")
        for column in matched_columns(notifications.schema, attributes)
    )
    return MatchTask(opened.shard_paths, columns, min(max(rows_max, ROWS_MIN), ROWS_MAX))


def numbered_names(names: Sequence[str]) -> dict[str, str]:
    """The names c0, c1, … for columns of these names."""
    return {name: f"c{number}" for number, name in enumerate(names)}


def with_numbered_columns(notifications: DataFrame) -> DataFrame:
    """The columns as c0, c1, …: PySpark cannot send a column to Python that has a dot in its name."""
    return notifications.toDF(*(f"c{number}" for number in range(len(notifications.columns))))


@dataclass(frozen=True)
class RowsWithIds:
    """For mapInArrow: the rows, their columns with their own names again, and the ids that match each."""

    task: MatchTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece, matches in self.task.pieces(batches):
            start = 0
            for ids in open_shards(self.task.shards).lists(matches):
                rows = piece.slice(start, len(ids))
                yield pa.RecordBatch.from_arrays([*rows.columns, ids], [*self.names, IDS_COLUMN])
                start += len(ids)


@dataclass(frozen=True)
class IdCounts:
    """For mapInArrow: how many rows of a partition each id matches."""

    task: MatchTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shards = open_shards(self.task.shards)
        sizes = [sum(map(len, matcher.match_batch([]).tables)) for matcher in shards.matchers]
        counts = [np.zeros(size, np.int64) for size in sizes]
        for batch in self.task.row_batches(batches):
            encoded = self.task.encoded(batch)
            for start in range(0, len(encoded), self.task.rows_max):
                rows = encoded.slice(start, self.task.rows_max)
                for i, matcher in enumerate(shards.matchers):
                    counts[i] += np.bincount(_good_ids(matcher.match_batch(rows), rows.bad), minlength=sizes[i])
        yield from _count_batches(np.concatenate(counts), shards.words)


def _count_batches(counts: Array, words: IdTexts) -> Iterator[pa.RecordBatch]:
    matched = np.flatnonzero(counts)
    for start in range(0, len(matched), COUNTS_BATCH):
        numbers = matched[start : start + COUNTS_BATCH]
        columns = [words.texts(words.rank_of[numbers]), pa.array(counts[numbers])]
        yield pa.RecordBatch.from_arrays(columns, COUNTS.names)


def _good_ids(matches: Matches, bad: Array) -> Array:
    """The ids of all matches, but for those of bad rows."""
    return matches.ids[~np.repeat(bad, matches.counts)] if bad.any() else matches.ids
