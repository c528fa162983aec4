"""Matching against an index that is larger than one worker should hold: each task opens a part of it.

    rows ─► one of each, counted, with a key ─► a copy for each group of shards ─► match, a group in a task
                                                                                        │
         the rows again, as many as there were  ◄─ by key: the ids of all groups, merged ◄──┘

A task has the rows of one group, so that it maps the shards of that group and no others; on a cluster of E executors
an executor maps the parts of the tasks that it runs. It costs two shuffles of the rows and one of their attributes
for each further group: `match` does this only for an index of more than WORKER_SUBSCRIPTIONS_MAX subscriptions.

The key of a row is a hash of what it holds. So it is the same when Spark does a task again, in whatever order rows
come then; numbers given to rows would not be. Rows that are equal have equal matches: one of them is matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType

from catchment.errors import InputError
from catchment.pipeline.compile.parse import LIVE
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match.worker import COUNTS, SUBSCRIPTIONS, AnyIndex, _Counts, _job, _numbered, _Rows
from catchment.pipeline.schema import col, matched_columns
from catchment.pipeline.session import parallelism

# Subscriptions that one worker maps: some hundred bytes each, and some twenty of its own.
WORKER_SUBSCRIPTIONS_MAX: Final = 8_000_000

_LOW, _HIGH, _COUNT, _GROUP = "$low", "$high", "$count", "$group"
_KEY: Final = (_LOW, _HIGH)
_EXTRA: Final = (
    StructField(_LOW, LongType()),
    StructField(_HIGH, LongType()),
    StructField(_COUNT, LongType()),
    StructField(_GROUP, IntegerType()),
)
_FOUND: Final = StructField(SUBSCRIPTIONS, ArrayType(StringType(), False))


def shards_per_task(index: Index) -> int | None:
    """How many shards one worker should hold, which are of like size; None where it can hold them all."""
    live = index.counts.get(LIVE, 0)
    if live <= WORKER_SUBSCRIPTIONS_MAX or len(index.shards) < 2:
        return None
    return max(1, len(index.shards) * WORKER_SUBSCRIPTIONS_MAX // live)


def match_scattered(
    notifications: DataFrame,
    index: AnyIndex,
    attributes: Sequence[str] | None = None,
    shards: int = 1,
) -> DataFrame:
    """What `match` gives, with no task opening more than so many shards. The order of rows is lost."""
    if SUBSCRIPTIONS in notifications.columns:
        raise InputError(f"there is a column {SUBSCRIPTIONS} already: drop or rename it")
    if shards < 1:
        raise InputError(f"{shards} shards in a task: there is at least one")
    opened, names = open_index(index), notifications.columns
    parts = _parts(opened, shards)
    matched_on = [one.column for one in matched_columns(notifications.schema, attributes)]
    copies = _copies(_counted(notifications), names, set(matched_on), len(parts))
    groups = tuple(_Rows(_job(copies, part, matched_on), tuple(copies.columns)) for part in parts)
    schema = StructType([*notifications.schema.fields, *_EXTRA, _FOUND])
    found = _numbered(_placed(copies, len(parts))).mapInArrow(_Groups(groups, len(names) + len(_KEY) + 1), schema)
    return _merged(found, names)


def counts_scattered(
    notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None, shards: int = 1
) -> DataFrame:
    """How many rows of a partition each subscription matches, with no task opening more than so many shards."""
    parts = _parts(open_index(index), shards)
    matched_on = [one.column for one in matched_columns(notifications.schema, attributes)]
    # Counts need no key, but rows of one group must go somewhere: the same way when Spark does a task again.
    place = F.xxhash64(F.lit(0), *map(col, matched_on)).alias(_LOW)
    copies = _copied(notifications.select(*map(col, matched_on), place), len(parts))
    groups = tuple(_Counts(_job(copies, part, matched_on)) for part in parts)
    return _numbered(_placed(copies, len(parts))).mapInArrow(_Groups(groups, len(matched_on) + 1), COUNTS)


def _parts(index: Index, size: int) -> list[Index]:
    """The index in parts of so many shards; one that is empty is a part too."""
    shards = index.shards
    return [replace(index, shards=shards[start : start + size]) for start in range(0, max(1, len(shards)), size)]


# --- before -------------------------------------------------------------------------------------


def _counted(notifications: DataFrame) -> DataFrame:
    """Rows that differ, each with a key and how many there are of it."""
    names = notifications.columns
    row = F.struct(*map(col, names)).alias("row")
    keyed = notifications.select(row, *_keys(notifications.schema))
    counted = keyed.groupBy(*_KEY).agg(F.first("row").alias("row"), F.count(F.lit(1)).alias(_COUNT))
    values = [F.col("row").getField(name).alias(name) for name in names]
    return counted.select(*values, *map(col, (*_KEY, _COUNT)))


def _keys(schema: StructType) -> list[Column]:
    """128 bits of a hash. Spark's skips nulls, so it is told where they are."""
    values = [_hashable(col(one.name), one.dataType) for one in schema.fields]
    nulls = F.concat(F.lit(""), *(F.when(col(name).isNull(), "0").otherwise("1") for name in schema.names))
    return [F.xxhash64(F.lit(seed), nulls, *values).alias(name) for seed, name in enumerate(_KEY)]


def _hashable(value: Column, kind: DataType) -> Column:
    # Spark hashes no map, nor what holds one.
    return F.to_json(F.struct(value)) if "map<" in kind.simpleString() or isinstance(kind, MapType) else value


def _copies(counted: DataFrame, names: Sequence[str], matched_on: set[str], groups: int) -> DataFrame:
    """Each row once for each group; only the first has the columns that are not matched on."""
    copied = _copied(counted, groups)
    first = col(_GROUP) == 0
    values = [col(name) if name in matched_on else F.when(first, col(name)).alias(name) for name in names]
    return copied.select(*values, *map(col, (*_KEY, _COUNT, _GROUP)))


def _copied(rows: DataFrame, groups: int) -> DataFrame:
    return rows.withColumn(_GROUP, F.explode(F.array(*(F.lit(group) for group in range(groups)))))


def _placed(copies: DataFrame, groups: int) -> DataFrame:
    """The copies of each group in partitions of its own, as many as run at once."""
    spread = max(1, -(-parallelism(copies.sparkSession) // groups))
    place = col(_GROUP) * spread + F.pmod(col(_LOW), F.lit(spread)).cast("int")
    return copies.repartitionById(groups * spread, place)


@dataclass(frozen=True)
class _Groups:
    """For mapInArrow: a partition holds the rows of one group, whose number is in column `place`."""

    groups: tuple[_Rows | _Counts, ...]
    place: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = iter(batches)
        for batch in rest:
            if batch.num_rows:
                yield from self.groups[batch.column(self.place)[0].as_py()](chain([batch], rest))


# --- after --------------------------------------------------------------------------------------


def _merged(found: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows with the ids of all groups, each as often as it was given."""
    row = F.when(col(_GROUP) == 0, F.struct(*map(col, names)))
    lists = F.collect_list(SUBSCRIPTIONS)
    whole = found.groupBy(*_KEY).agg(
        F.first(row, ignorenulls=True).alias("row"), F.first(_COUNT).alias(_COUNT), lists.alias("lists")
    )
    # A row that is no notification has no list at all.
    ids = F.when(F.size("lists") > 0, F.sort_array(F.flatten("lists"))).alias(SUBSCRIPTIONS)
    values = [F.col("row").getField(name).alias(name) for name in names]
    again = F.explode(F.sequence(F.lit(1).cast("bigint"), col(_COUNT)))
    return whole.select(*values, ids, again).select(*map(col, names), SUBSCRIPTIONS)
