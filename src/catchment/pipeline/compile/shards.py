"""Shards: saved Matchers, built and changed by workers, one task for each.

A subscription belongs to the shard that the hash of its id says, so that a change finds it without asking. A task
writes the directory of its shard itself; only the number of subscriptions in it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from catchment.errors import InputError, LimitError
from catchment.matching.bulk import Gathered, write_index
from catchment.model.cesql import Cesql

# What one task builds in memory, at about half a kilobyte each while it does.
SHARD_SUBSCRIPTIONS_MAX: Final = 1_000_000
# A notification is looked up in every shard.
SHARDS_MAX: Final = 256

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
    written. `changes` has id, filter, conjunction and `$removed`: rows to add, and ids to take out."""
    columns = ("id", "filter", "conjunction", REMOVED)
    placed = changes.select(*columns, shard_of(len(fresh)).alias(SHARD))
    tasks = placed.repartitionById(len(fresh), F.col(SHARD))
    # At most SHARDS_MAX rows.
    built = tasks.mapInArrow(_ShardWriter(old, fresh), _BUILT).collect()
    return {row["shard"]: row["count"] for row in built}


def write_empty(path: str) -> None:
    write_index(path, Gathered())


@dataclass(frozen=True)
class _ShardWriter:
    """For mapInArrow: a partition is the changes of one shard."""

    old: tuple[str, ...]
    fresh: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, removed, added = -1, list[str](), Gathered()
        for batch in batches:
            if not batch.num_rows:
                continue
            number = batch.column(SHARD)[0].as_py()
            is_removed = batch.column(REMOVED)
            removed += batch.column("id").filter(is_removed).to_pylist()
            _gather(batch.filter(pc.invert(is_removed)), added)
        if number >= 0:
            Path(self.fresh[number]).parent.mkdir(parents=True, exist_ok=True)
            count = write_index(self.fresh[number], added, self.old[number] if self.old else None, removed)
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([count], pa.int64())], _BUILT.names
            )


def _gather(batch: pa.RecordBatch, added: Gathered) -> None:
    """Filters as they are stored; those of the other dialect from their text."""
    is_packed = batch.column("conjunction").is_valid()
    packed = batch.filter(is_packed)
    added.add(packed.column("id"), packed.column("conjunction"))
    if packed.num_rows < batch.num_rows:
        others = batch.filter(pc.invert(is_packed))
        added.add_expressions(others.column("id").to_pylist(), list(map(Cesql, others.column("filter").to_pylist())))
