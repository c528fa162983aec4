"""Shards: saved Matchers, built and changed by workers, one task for each.

A subscription belongs to the shard that the hash of its id says, so that a change finds it without asking. A task
writes the directory of its shard itself; only the number of subscriptions in it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from catchment.errors import InputError, LimitError
from catchment.matching import Matcher
from catchment.pipeline.parse import loaded

# What one task builds in memory, at about a kilobyte each while it does.
SHARD_SUBSCRIPTIONS_MAX: Final = 1_000_000
# A notification is looked up in every shard.
SHARDS_MAX: Final = 256
# So many are indexed at once; between, their objects are freed.
_CHUNK: Final = 100_000

SHARD, REMOVED = "$shard", "$removed"
_BUILT: Final = StructType([StructField("shard", IntegerType()), StructField("count", LongType())])


def shards_for(count: int, wanted: int | None) -> int:
    """How many shards so many subscriptions make."""
    found = max(1, ceil(count / SHARD_SUBSCRIPTIONS_MAX)) if wanted is None else wanted
    if found < 1:
        raise InputError(f"{found} shards: there is at least one")
    if found > SHARDS_MAX:
        raise LimitError("SHARDS_MAX", SHARDS_MAX, f"{found:,}", "split the subscriptions into several indexes")
    return found


def shard_of(shards: int) -> Column:
    return F.pmod(F.xxhash64("id"), F.lit(shards)).cast("int")


def write_shards(changes: DataFrame, old: tuple[str, ...], fresh: tuple[str, ...]) -> dict[int, int]:
    """Writes the shards that have changes, from `old` (none where an index is built) to `fresh`; the sizes of those
    written. `changes` has id, filter, conjunction, dialect and `$removed`: rows to add, and ids to take out."""
    columns = ("id", "filter", "conjunction", "dialect", REMOVED)
    placed = changes.select(*columns, shard_of(len(fresh)).alias(SHARD))
    # Removals first: an id may be taken out and come back with another filter.
    tasks = placed.repartitionById(len(fresh), F.col(SHARD)).sortWithinPartitions(F.col(REMOVED).desc())
    # At most SHARDS_MAX rows.
    built = tasks.mapInArrow(_ShardWriter(old, fresh), _BUILT).collect()
    return {row["shard"]: row["count"] for row in built}


def write_empty(path: str) -> None:
    Matcher().save(path)


@dataclass(frozen=True)
class _ShardWriter:
    """For mapInArrow: a partition is the changes of one shard."""

    old: tuple[str, ...]
    fresh: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher: Matcher | None = None
        number = -1
        for rows in _chunks(batches):
            if matcher is None:
                number = rows[0][SHARD]
                matcher = Matcher.open(self.old[number]) if self.old else Matcher()
            _apply(matcher, rows)
        if matcher is not None:
            Path(self.fresh[number]).parent.mkdir(parents=True, exist_ok=True)
            matcher.save(self.fresh[number])
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([len(matcher)], pa.int64())], _BUILT.names
            )


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    waiting: list[dict[str, Any]] = []
    for batch in batches:
        waiting += batch.to_pylist()
        if len(waiting) >= _CHUNK:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _apply(matcher: Matcher, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row[REMOVED]:
            matcher.remove(row["id"])
    added = [row for row in rows if not row[REMOVED]]
    matcher.add_many(
        [row["id"] for row in added], [loaded(row["filter"], row["conjunction"], row["dialect"]) for row in added]
    )
