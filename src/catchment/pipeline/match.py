"""Notifications matched against an index: each row with the ids of the subscriptions that match it.

Workers memory-map the shards of one version, fixed when the job is planned: an index that changes meanwhile is for
the next job. A batch of rows goes to every shard as Arrow columns; ids of all shards are merged, sorted.

A row that is no notification (a float that is NaN, an attribute with values of two types) stops nothing: its
`subscriptions` are null, where those of a notification that nobody asked for are empty.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from catchment.errors import InputError
from catchment.matching import Matcher
from catchment.matching.matches import Matches
from catchment.model.values import Type
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.parse import LIVE
from catchment.pipeline.schema import AttributeColumn, attributes_of, col

Array = np.ndarray[Any, Any]
SUBSCRIPTIONS: Final = "subscriptions"
SUBSCRIPTION: Final = "subscription"

# Rows matched at once: as many as cannot have more matches than this, within reason. A match takes 4 bytes.
MATCHES_MAX: Final = 1 << 26
ROWS_MIN, ROWS_MAX = 256, 8_192
# Matches written into one Arrow batch, whose offsets have 32 bits.
BATCH_MATCHES_MAX: Final = 1 << 22
# Indexes that one worker process keeps open: their ids, about 20 bytes a subscription, are not shared.
INDEXES_OPEN_MAX: Final = 4
# Distinct subscriptions counted before a worker passes its counts on.
COUNTED_MAX: Final = 1 << 20

_COUNTS: Final = StructType([StructField(SUBSCRIPTION, StringType()), StructField("count", LongType())])
AnyIndex = Index | str | os.PathLike[str]


def match(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The columns given, and `subscriptions`: an array of ids, sorted. `attributes` are the columns to match on;
    unless given, all but `$payload`."""
    if SUBSCRIPTIONS in notifications.columns:
        raise InputError(f"there is a column {SUBSCRIPTIONS} already: drop or rename it")
    job = _job(notifications, index, attributes)
    found = StructField(SUBSCRIPTIONS, ArrayType(StringType()))
    rows = _Rows(job, tuple(notifications.columns))
    return _numbered(notifications).mapInArrow(rows, StructType([*notifications.schema.fields, found]))


def match_pairs(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """A row for each match: the columns given, and `subscription`."""
    found = match(notifications, index, attributes)
    return found.select(*map(col, notifications.columns), F.explode(SUBSCRIPTIONS).alias(SUBSCRIPTION))


def unmatched(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The notifications that nobody asked for."""
    return match(notifications, index, attributes).where(F.size(SUBSCRIPTIONS) == 0).drop(SUBSCRIPTIONS)


def match_counts(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """For each subscription that matched any, how many: `subscription`, `count`."""
    job = _job(notifications, index, attributes)
    needed = _numbered(notifications).select(*(one.column for one in job.columns))
    partial = needed.mapInArrow(_Counts(job), _COUNTS)
    return partial.groupBy(SUBSCRIPTION).agg(F.sum("count").alias("count"))


# --- what a worker needs ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    shards: tuple[str, ...]
    columns: tuple[AttributeColumn, ...]
    rows: int

    def found(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.ListArray]]:
        """Pieces of a batch, each with the ids that match its rows."""
        shards = _opened(self.shards)
        for start in range(0, batch.num_rows, self.rows):
            yield from _pieces(batch.slice(start, self.rows), self.columns, shards)


def _job(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None) -> _Job:
    opened = open_index(index)
    rows = MATCHES_MAX // max(1, opened.counts[LIVE])
    numbers = {name: f"c{number}" for number, name in enumerate(notifications.columns)}
    columns = [replace(one, column=numbers[one.column]) for one in attributes_of(notifications.schema, attributes)]
    return _Job(opened.shard_paths, tuple(columns), min(max(rows, ROWS_MIN), ROWS_MAX))


def _numbered(notifications: DataFrame) -> DataFrame:
    """The columns as c0, c1, …: PySpark hands no column to Python that has a dot in its name."""
    return notifications.toDF(*(f"c{number}" for number in range(len(notifications.columns))))


@dataclass(frozen=True, slots=True)
class Shards:
    """The opened shards of an index."""

    matchers: tuple[Matcher, ...]
    words: Words


_OPENED: OrderedDict[tuple[tuple[str, int, int], ...], Shards] = OrderedDict()


def _opened(paths: tuple[str, ...]) -> Shards:
    """Shards, opened once by each worker process. Their files' own numbers are in the key: somebody may delete an
    index and make another in its place."""
    found = [(path, (Path(path) / "manifest.json").stat()) for path in paths]
    key = tuple((path, one.st_ino, one.st_mtime_ns) for path, one in found)
    if key not in _OPENED:
        matchers = tuple(Matcher.open(path) for path in paths)
        _OPENED[key] = Shards(matchers, Words.of(matchers))
        while len(_OPENED) > INDEXES_OPEN_MAX:
            _OPENED.popitem(last=False)
    return _OPENED[key]


@dataclass(frozen=True)
class _Rows:
    """For mapInArrow: rows with the ids that match, their columns with their names again."""

    job: _Job
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece, ids in self.job.found(batch):
                yield pa.RecordBatch.from_arrays([*piece.columns, ids], [*self.names, SUBSCRIPTIONS])


@dataclass(frozen=True)
class _Counts:
    """For mapInArrow: how many rows each id matches, of a partition or a part of it."""

    job: _Job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[str] = Counter()
        for batch in batches:
            for _, ids in self.job.found(batch):
                found = ids.flatten().value_counts()
                counts.update(dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)))
            if len(counts) > COUNTED_MAX:
                yield _count_batch(counts)
                counts.clear()
        yield _count_batch(counts)


def _count_batch(counts: Counter[str]) -> pa.RecordBatch:
    columns = [pa.array(list(counts), pa.string()), pa.array(list(counts.values()), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, _COUNTS.names)


# --- one piece of a batch -----------------------------------------------------------------------


def _pieces(
    piece: pa.RecordBatch, columns: Sequence[AttributeColumn], shards: Shards
) -> Iterator[tuple[pa.RecordBatch, pa.ListArray]]:
    """A piece and its ids; in parts where one Arrow batch could not hold them."""
    good, ids = matched_ids(piece, columns, shards)
    if ids is not None:
        yield piece, ids if good is None else ids.take(good)
        return
    half = piece.num_rows // 2
    yield from _pieces(piece.slice(0, half), columns, shards)
    yield from _pieces(piece.slice(half), columns, shards)


def matched_ids(
    piece: pa.RecordBatch, columns: Sequence[AttributeColumn], shards: Shards
) -> tuple[pa.Array | None, pa.ListArray | None]:
    """Lists of ids, and for each row which of the lists is its own (null for a row that is no notification; None
    where they are in order). No lists where they would be too long."""
    groups = list(_uniform(piece, columns))
    assert groups
    lists, total = [], 0
    for _, batch in groups:
        found = [one.match_batch(batch) for one in shards.matchers]
        total += sum(len(one.ids) for one in found)
        if total > BATCH_MATCHES_MAX and piece.num_rows > 1:
            return None, None
        lists.append(_id_lists(found, batch.num_rows, shards.words))
    if len(groups) == 1 and groups[0][0] is None:
        return None, lists[0]
    return _order([rows for rows, _ in groups], piece.num_rows), pa.concat_arrays(lists)


def _order(groups: Sequence[Array | None], count: int) -> pa.Array:
    """For each row its place in the groups, one after another."""
    rows = np.concatenate([np.zeros(0, np.int64), *(one for one in groups if one is not None)])
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(places, mask=places < 0)


def _id_lists(found: Sequence[Matches], rows: int, words: Words) -> pa.ListArray:
    """The ids of each row from all shards, sorted."""
    row = np.concatenate([np.zeros(0, np.int64), *(np.repeat(np.arange(rows), one.counts) for one in found)])
    ranks = [rank[one.ids] for rank, one in zip(words.ranks, found, strict=False) if len(one.ids)]
    # Row and rank in one number: a single sort puts the ids of each row in order.
    width = max(1, len(words.ids))
    keys = row * width + np.concatenate([np.zeros(0, np.int64), *ranks])
    keys.sort()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), words.ids.take(pa.array(keys % width)))


@dataclass(frozen=True, slots=True)
class Words:
    """The ids of all shards, sorted, and for each shard the place of each of its numbers among them."""

    ids: pa.StringArray
    ranks: tuple[Array, ...]

    @classmethod
    def of(cls, matchers: Sequence[Matcher]) -> Words:
        parts = [_ids_of(one) for one in matchers]
        whole = pa.concat_arrays([pa.array([], pa.string()), *parts])
        order = pc.array_sort_indices(whole).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return cls(whole.take(pa.array(order)), tuple(np.split(rank, np.cumsum([len(one) for one in parts])[:-1])))


def _ids_of(matcher: Matcher) -> pa.StringArray:
    """The ids of a shard by number, without an object for each: a saved index has one table of them, or none."""
    tables = matcher.match_batch([])._tables
    if not tables:
        return pa.array([], pa.string())
    (table,) = tables
    starts = np.asarray(table.starts)
    # Each begins with a byte that says it is a string.
    text = np.delete(np.asarray(table.blob), starts[:-1])
    ends = (starts - np.arange(len(starts))).astype(np.int32)
    return pa.StringArray.from_buffers(len(table), pa.py_buffer(ends), pa.py_buffer(text))


# --- attributes with columns of several types ---------------------------------------------------


def _uniform(
    piece: pa.RecordBatch, columns: Sequence[AttributeColumn]
) -> Iterator[tuple[Array | None, pa.RecordBatch]]:
    """Rows by the columns that hold their attributes, so that each attribute is one column to the matcher; None for
    all rows at once, which is nearly always."""
    bad = _bad_rows(piece, columns)
    extra = [one for one in columns if one.extra and piece.column(one.column).null_count < piece.num_rows]
    if not extra:
        usual = _named(piece, [one for one in columns if not one.extra])
        rows = None if bad is None else np.flatnonzero(~bad)
        yield rows, usual if rows is None else usual.take(pa.array(rows))
        return
    present = np.stack([_valid(piece, one) for one in extra], axis=1)
    patterns, pattern_of = np.unique(present, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        chosen = pattern_of.reshape(-1) == number
        rows = np.flatnonzero(chosen if bad is None else chosen & ~bad)
        held = {one.name: one for one in columns if not one.extra}
        held |= {one.name: one for one, here in zip(extra, pattern.tolist(), strict=True) if here}
        yield rows, _named(piece, list(held.values())).take(pa.array(rows))


def _named(piece: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> pa.RecordBatch:
    """Columns under the names of their attributes."""
    if not columns:
        # A batch without columns would have no rows either.
        return pa.RecordBatch.from_arrays([pa.nulls(piece.num_rows)], ["_"])
    arrays = [piece.column(one.column) for one in columns]
    return pa.RecordBatch.from_arrays(arrays, [one.name for one in columns])


def _valid(piece: pa.RecordBatch, one: AttributeColumn) -> Array:
    found: Array = piece.column(one.column).is_valid().to_numpy(zero_copy_only=False)
    return found


def _bad_rows(piece: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> Array | None:
    """The rows that are no notification; None where there are none."""
    bad = np.zeros(piece.num_rows, bool)
    by_name: dict[str, list[AttributeColumn]] = {}
    for one in columns:
        by_name.setdefault(one.name, []).append(one)
        if one.type is Type.FLOAT:
            finite = pc.fill_null(pc.is_finite(piece.column(one.column)), True)
            bad |= ~finite.to_numpy(zero_copy_only=False)
    for several in by_name.values():
        if len(several) > 1:
            bad |= np.sum([_valid(piece, one) for one in several], axis=0) > 1
    return bad if bad.any() else None
