"""Notifications matched against an index: each row with the ids of the subscriptions that match it.

Workers memory-map the shards of one version, fixed when the job is planned: an index that changes meanwhile is for
the next job. A batch of rows is made ready once for all shards, and matched in pieces; ids of all shards are merged,
sorted. Attributes are columns, or the keys of one column `attributes`, a map: for names by the thousand, of which a
row has ten, that takes Spark a twentieth of the time.

A row that is no notification (a float that is NaN, an attribute with values of two types) stops nothing: its
`subscriptions` are null, where those of a notification that nobody asked for are empty.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from catchment.errors import InputError, LimitError
from catchment.matching import Encoded, Matcher, Matches
from catchment.matching.lists import LIST_BYTES_MAX, Words, words_of
from catchment.pipeline.compile.parse import LIVE
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match.parquet_scan import Scan, scan_of
from catchment.pipeline.schema import AttributeColumn, col, matched_columns

Array = np.ndarray[Any, Any]
SUBSCRIPTIONS: Final = "subscriptions"
SUBSCRIPTION: Final = "subscription"

# Rows matched at once: as many as cannot have more matches than this, within reason. A match takes 4 bytes.
MATCHES_MAX: Final = 1 << 26
ROWS_MIN, ROWS_MAX = 64, 8_192
# Matches that one Arrow batch is to have: these stay in the caches of both sides on their way.
PIECE_MATCHES: Final = 1 << 18
# The most that one may have: its offsets have 32 bits.
BATCH_MATCHES_MAX: Final = 1 << 22
# Indexes that one worker process keeps open: their ids in sorted order, some 20 to 36 bytes a subscription, are not
# shared.
INDEXES_OPEN_MAX: Final = 4
# Subscriptions whose counts go into one Arrow batch.
COUNTS_BATCH: Final = 1 << 16

COUNTS: Final = StructType([StructField(SUBSCRIPTION, StringType()), StructField("count", LongType())])
AnyIndex = Index | str | os.PathLike[str]


def match(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The columns given, and `subscriptions`: an array of ids, sorted. `attributes` are the columns to match on;
    unless given, all but `$payload`."""
    if SUBSCRIPTIONS in notifications.columns:
        raise InputError(f"there is a column {SUBSCRIPTIONS} already: drop or rename it")
    from catchment.pipeline.match import scattered  # it matches parts with what is here

    opened = open_index(index)
    shards = None if notifications.isStreaming else scattered.shards_per_task(opened)
    if shards is not None:
        return scattered.match_scattered(notifications, opened, attributes, shards)
    given, job = planned(notifications, opened, attributes)
    # No element is null: Spark then copies them without looking.
    found = StructField(SUBSCRIPTIONS, ArrayType(StringType(), False))
    rows = _Rows(job, tuple(notifications.columns))
    return given.mapInArrow(rows, StructType([*notifications.schema.fields, found]))


def match_pairs(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """A row for each match: the columns given, and `subscription`."""
    found = match(notifications, index, attributes)
    return found.select(*map(col, notifications.columns), F.explode(SUBSCRIPTIONS).alias(SUBSCRIPTION))


def unmatched(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The notifications that nobody asked for."""
    return match(notifications, index, attributes).where(F.size(SUBSCRIPTIONS) == 0).drop(SUBSCRIPTIONS)


def match_counts(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """For each subscription that matched any, how many: `subscription`, `count`."""
    from catchment.pipeline.match import scattered

    opened = open_index(index)
    shards = None if notifications.isStreaming else scattered.shards_per_task(opened)
    if shards is not None:
        partial = scattered.counts_scattered(notifications, opened, attributes, shards)
    else:
        matched_on = [one.column for one in matched_columns(notifications.schema, attributes)]
        given, job = planned(notifications.select(*map(col, matched_on)), opened, matched_on)
        partial = given.mapInArrow(_Counts(job), COUNTS)
    return partial.groupBy(SUBSCRIPTION).agg(F.sum("count").alias("count"))


# --- what a worker needs ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    shards: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]  # column, and the attribute it holds
    rows: int
    scan: Scan | None = None

    def found(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Found]]:
        """Pieces of the batches, each with what matches its rows."""
        shards = opened_shards(self.shards)
        size = min(self.rows, ROWS_MIN)
        for batch in self.given(batches):
            ready, start = self.ready(batch), 0
            while start < len(ready):
                rows, count = min(size, len(ready) - start), 0
                for found in shards.found(ready.slice(start, rows)):
                    count += len(found.ranks)
                    yield batch.slice(start, len(found)), found
                    start += len(found)
                size = min(max(PIECE_MATCHES * rows // max(1, count), ROWS_MIN), self.rows)

    def given(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches if self.scan is None else self.scan.batches(batches)

    def ready(self, batch: pa.RecordBatch) -> Encoded:
        return Encoded.of_columns([(name, batch.column(column)) for column, name in self.columns], batch.num_rows)


def planned(notifications: DataFrame, index: Index, attributes: Sequence[str] | None) -> tuple[DataFrame, _Job]:
    """The job, and what its workers are to be given: the rows, or where they read those themselves."""
    job, scan = _job(notifications, index, attributes), scan_of(notifications)
    if scan is None:
        return _numbered(notifications), job
    return scan.numbers(notifications.sparkSession), replace(job, scan=scan)


def _job(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None) -> _Job:
    opened = open_index(index)
    rows = MATCHES_MAX // max(1, opened.counts[LIVE])
    numbers = {name: f"c{number}" for number, name in enumerate(notifications.columns)}
    found = matched_columns(notifications.schema, attributes)
    columns = tuple((numbers[one.column], one.name if isinstance(one, AttributeColumn) else "") for one in found)
    return _Job(opened.shard_paths, columns, min(max(rows, ROWS_MIN), ROWS_MAX))


def _numbered(notifications: DataFrame) -> DataFrame:
    """The columns as c0, c1, …: PySpark hands no column to Python that has a dot in its name."""
    return notifications.toDF(*(f"c{number}" for number in range(len(notifications.columns))))


@dataclass(frozen=True, slots=True)
class Found:
    """What matches some rows: of each the places of its ids in the sorted order of all, from one offset to the next.
    A row that is no notification is `bad` and has none."""

    offsets: Array
    ranks: Array
    bad: Array

    def __len__(self) -> int:
        return len(self.bad)

    def halves(self) -> tuple[Found, Found]:
        half = len(self) // 2
        at = self.offsets[half]
        return (
            Found(self.offsets[: half + 1], self.ranks[:at], self.bad[:half]),
            Found(self.offsets[half:] - at, self.ranks[at:], self.bad[half:]),
        )


@dataclass(frozen=True)
class Shards:
    """The opened shards of an index."""

    matchers: tuple[Matcher, ...]
    words: Words

    @classmethod
    def of(cls, paths: Sequence[str]) -> Shards:
        matchers = tuple(Matcher.open(path) for path in paths)
        words = words_of([table for one in matchers for table in one.match_batch([]).tables])
        assert words is not None
        return cls(matchers, words)

    @cached_property
    def _views(self) -> Array | None:
        """What is listed for Spark instead of strings, where ids are short enough."""
        return self.words.views()

    def found(self, rows: Encoded) -> Iterator[Found]:
        """Of all shards, sorted; in parts where there is too much for one Arrow batch."""
        parts = [one.match_batch(rows) for one in self.matchers]
        if sum(len(one.ids) for one in parts) > BATCH_MATCHES_MAX and len(rows) > 1:
            half = len(rows) // 2  # before the work of sorting them
            yield from self.found(rows.slice(0, half))
            yield from self.found(rows.slice(half, len(rows) - half))
        else:
            yield self._without_bad(Found(*self.words.ranked(parts), rows.bad))

    def _without_bad(self, found: Found) -> Found:
        if not found.bad.any():
            return found
        counts = np.diff(found.offsets)
        kept = found.ranks[~np.repeat(found.bad, counts)]
        return Found(np.concatenate([[0], np.cumsum(np.where(found.bad, 0, counts))]), kept, found.bad)

    def lists(self, found: Found) -> Iterator[pa.ListArray]:
        """For each row its ids, null for a bad one; in parts where one Arrow batch could not hold them."""
        ids = self.words.listed(found.offsets, found.ranks, self._views)
        if ids is not None:
            yield (
                ids
                if not found.bad.any()
                else pa.ListArray.from_arrays(ids.offsets, ids.values, mask=pa.array(found.bad))
            )
        elif len(found) == 1:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "one notification with longer ids", "use shorter ids")
        else:
            for half in found.halves():
                yield from self.lists(half)


_OPENED: OrderedDict[tuple[tuple[str, int, int], ...], Shards] = OrderedDict()


def opened_shards(paths: tuple[str, ...]) -> Shards:
    """Shards, opened once by each worker process. Their files' own numbers are in the key: somebody may delete an
    index and make another in its place."""
    found = [(path, (Path(path) / "manifest.json").stat()) for path in paths]
    key = tuple((path, one.st_ino, one.st_mtime_ns) for path, one in found)
    if key not in _OPENED:
        _OPENED[key] = Shards.of(paths)
        while len(_OPENED) > INDEXES_OPEN_MAX:
            _OPENED.popitem(last=False)
    return _OPENED[key]


@dataclass(frozen=True)
class _Rows:
    """For mapInArrow: rows with the ids that match, their columns with their names again."""

    job: _Job
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece, found in self.job.found(batches):
            start = 0
            for ids in opened_shards(self.job.shards).lists(found):
                rows = piece.slice(start, len(ids))
                yield pa.RecordBatch.from_arrays([*rows.columns, ids], [*self.names, SUBSCRIPTIONS])
                start += len(ids)


@dataclass(frozen=True)
class _Counts:
    """For mapInArrow: how many rows each id matches, of a partition or a part of it."""

    job: _Job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shards = opened_shards(self.job.shards)
        sizes = [sum(map(len, one.match_batch([]).tables)) for one in shards.matchers]
        counts = [np.zeros(size, np.int64) for size in sizes]
        for batch in self.job.given(batches):
            ready = self.job.ready(batch)
            for start in range(0, len(ready), self.job.rows):
                rows = ready.slice(start, self.job.rows)
                for i, matcher in enumerate(shards.matchers):
                    counts[i] += np.bincount(_good_ids(matcher.match_batch(rows), rows.bad), minlength=sizes[i])
        yield from _count_batches(np.concatenate(counts), shards.words)


def _count_batches(counts: Array, words: Words) -> Iterator[pa.RecordBatch]:
    matched = np.flatnonzero(counts)
    for start in range(0, len(matched), COUNTS_BATCH):
        numbers = matched[start : start + COUNTS_BATCH]
        columns = [words.texts(words.rank_of[numbers]), pa.array(counts[numbers])]
        yield pa.RecordBatch.from_arrays(columns, COUNTS.names)


def _good_ids(found: Matches, bad: Array) -> Array:
    return found.ids[~np.repeat(bad, found.counts)] if bad.any() else found.ids
