"""Shards: saved Matchers, built and changed by workers, one task for each.

The hash of a subscription's id decides its shard, so a change knows which shard has it. A task writes the directory of
its shard itself; only the number of subscriptions in the shard comes back to the driver.
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
from catchment.pipeline.compile.catalogue import filter_of

# One task builds a shard in memory, with about half a kilobyte for each subscription.
SHARD_SUBSCRIPTIONS_MAX: Final = 1_000_000
# Every notification is matched against every shard, so more shards cost more time.
SHARDS_MAX: Final = 256

SHARD, REMOVED = "$shard", "$removed"
_BUILT: Final = StructType([StructField("shard", IntegerType()), StructField("count", LongType())])


def shards_for(count: int, requested: int | None) -> int:
    """The number of shards for so many subscriptions: the number requested, or as many as are needed."""
    shards = max(1, ceil(count / SHARD_SUBSCRIPTIONS_MAX)) if requested is None else requested
    if shards < 1:
        raise InputError(f"{shards} shards: an index has at least one")
    if shards > SHARDS_MAX:
        raise LimitError("SHARDS_MAX", SHARDS_MAX, f"{shards:,}", "split the subscriptions into several indexes")
    return shards


def shard_of(shards: int) -> Column:
    """The number of the shard of a row's id, of so many shards."""
    return F.pmod(F.xxhash64("id"), F.lit(shards)).cast("int")


def write_shards(changes: DataFrame, old: tuple[str, ...], new: tuple[str, ...]) -> dict[int, int]:
    """Writes the shards that have changes, from the paths `old` (empty for a new index) to the paths `new`. Returns the
    numbers of the shards written, with their sizes. `changes` has id, filter, conjunction and `$removed`: subscriptions
    to add, and ids to remove."""
    columns = ("id", "filter", "dialect", "conjunction", REMOVED)
    with_shard = changes.select(*columns, shard_of(len(new)).alias(SHARD))
    tasks = with_shard.repartitionById(len(new), F.col(SHARD))
    # `collect` brings at most SHARDS_MAX rows.
    built = tasks.mapInArrow(_ShardWriter(old, new), _BUILT).collect()
    return {row["shard"]: row["count"] for row in built}


def write_empty_shard(path: str) -> None:
    write_index(path, Gathered())


@dataclass(frozen=True)
class _ShardWriter:
    """For mapInArrow: a partition has the changes of one shard."""

    old: tuple[str, ...]
    new: tuple[str, ...]

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
            Path(self.new[number]).parent.mkdir(parents=True, exist_ok=True)
            count = write_index(self.new[number], added, self.old[number] if self.old else None, removed)
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([count], pa.int64())], _BUILT.names
            )


def _gather(batch: pa.RecordBatch, added: Gathered) -> None:
    """Adds the filters of a batch: packed ones as they are, the others from their text."""
    is_packed = batch.column("conjunction").is_valid()
    packed = batch.filter(is_packed)
    added.add(packed.column("id"), packed.column("conjunction"))
    if packed.num_rows < batch.num_rows:
        residues = batch.filter(pc.invert(is_packed))
        ids, texts, dialects = (residues.column(name).to_pylist() for name in ("id", "filter", "dialect"))
        added.add_residues(ids, [filter_of(text, dialect) for text, dialect in zip(texts, dialects, strict=True)])
