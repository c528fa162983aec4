"""Matching against an index that is too large for one worker: each task opens some of its shards.

    rows ─► distinct rows, counted, with a key ─► a copy for each group of shards ─► match, each task for one group
                                                                                              │
           the rows again, as many as there were ◄─ by key: the ids from all groups, merged ◄─┘

A task has rows for one group of shards, so it maps the shards of that group and no others. On a cluster an executor
maps the groups of the tasks that it runs. This shuffles the rows twice, and their attributes once more for each further
group. So `match` does it only for an index of more than WORKER_SUBSCRIPTIONS_MAX subscriptions.

The key of a row is a hash of its content. So a row has the same key when Spark repeats a task, in whatever order the
rows come then; a number given to each row would not be the same. Equal rows have equal matches, so one of them is
matched for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegerType, LongType, MapType, StructField, StructType

from catchment.errors import InputError
from catchment.pipeline.index import LIVE, Index, open_index
from catchment.pipeline.match.worker import (
    COUNTS,
    IDS_COLUMN,
    IDS_FIELD,
    AnyIndex,
    IdCounts,
    RowsWithIds,
    match_task,
    with_numbered_columns,
)
from catchment.pipeline.schema import col, matched_columns, refuse_taken_names
from catchment.pipeline.session import parallelism

# Subscriptions that one worker maps: some hundred bytes each, which workers share, and some twenty of its own.
WORKER_SUBSCRIPTIONS_MAX: Final = 8_000_000

_LOW, _HIGH, _COUNT, _GROUP = "$low", "$high", "$count", "$group"
_KEY: Final = (_LOW, _HIGH)
_ADDED_FIELDS: Final = (
    StructField(_LOW, LongType()),
    StructField(_HIGH, LongType()),
    StructField(_COUNT, LongType()),
    StructField(_GROUP, IntegerType()),
)


def shards_per_task(index: Index) -> int | None:
    """How many shards, which are of about the same size, one worker should hold; None if it can hold them all."""
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
    """The same as `match`, but no task opens more than so many shards. The order of rows is lost."""
    refuse_taken_names(notifications.columns, [IDS_COLUMN])
    if shards < 1:
        raise InputError(f"{shards} shards in a task: there is at least one")
    names = notifications.columns
    parts = index_parts(open_index(index), shards)
    matched_on = [column.column for column in matched_columns(notifications.schema, attributes)]
    copies = _copies(_distinct_rows(notifications), names, set(matched_on), len(parts))
    by_group = tuple(RowsWithIds(match_task(copies, part, matched_on), tuple(copies.columns)) for part in parts)
    schema = StructType([*notifications.schema.fields, *_ADDED_FIELDS, IDS_FIELD])
    group_column = len(names) + len(_KEY) + 1
    rows = with_numbered_columns(_partitioned(copies, len(parts)))
    return _merged(rows.mapInArrow(_ByGroup(by_group, group_column), schema), names)


def counts_scattered(
    notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None, shards: int = 1
) -> DataFrame:
    """How many rows of a partition each subscription matches; no task opens more than so many shards."""
    parts = index_parts(open_index(index), shards)
    matched_on = [column.column for column in matched_columns(notifications.schema, attributes)]
    # Counting needs no key, but the rows of a group are spread over partitions by one: by a hash of the row, so that
    # Spark spreads them in the same way when it repeats a task.
    hashed = F.xxhash64(F.lit(0), *map(col, matched_on)).alias(_LOW)
    copies = _for_each_group(notifications.select(*map(col, matched_on), hashed), len(parts))
    by_group = tuple(IdCounts(match_task(copies, part, matched_on)) for part in parts)
    rows = with_numbered_columns(_partitioned(copies, len(parts)))
    return rows.mapInArrow(_ByGroup(by_group, len(matched_on) + 1), COUNTS)


def index_parts(index: Index, size: int) -> list[Index]:
    """The index in parts of at most so many shards; an index without shards is one part."""
    shards = index.shards
    return [replace(index, shards=shards[start : start + size]) for start in range(0, max(1, len(shards)), size)]


# --- before matching ----------------------------------------------------------------------------


def _distinct_rows(notifications: DataFrame) -> DataFrame:
    """The distinct rows, each with its key and how many there are of it."""
    names = notifications.columns
    row = F.struct(*map(col, names)).alias("row")
    keyed = notifications.select(row, *_key_columns(notifications.schema))
    counted = keyed.groupBy(*_KEY).agg(F.first("row").alias("row"), F.count(F.lit(1)).alias(_COUNT))
    values = [F.col("row").getField(name).alias(name) for name in names]
    return counted.select(*values, *map(col, (*_KEY, _COUNT)))


def _key_columns(schema: StructType) -> list[Column]:
    """128 bits of a hash of the row. Spark's hash skips nulls, so a text of where they are is hashed too."""
    values = [_hashable(col(field.name), field.dataType) for field in schema.fields]
    nulls = F.concat(F.lit(""), *(F.when(col(name).isNull(), "0").otherwise("1") for name in schema.names))
    return [F.xxhash64(F.lit(seed), nulls, *values).alias(name) for seed, name in enumerate(_KEY)]


def _hashable(value: Column, spark_type: DataType) -> Column:
    # Spark cannot hash a map, nor a value that contains one.
    has_map = "map<" in spark_type.simpleString() or isinstance(spark_type, MapType)
    return F.to_json(F.struct(value)) if has_map else value


def _copies(rows: DataFrame, names: Sequence[str], matched_on: set[str], groups: int) -> DataFrame:
    """Each row once for each group. Only the copy for the first group has the columns that are not matched on."""
    copied = _for_each_group(rows, groups)
    is_first = col(_GROUP) == 0
    values = [col(name) if name in matched_on else F.when(is_first, col(name)).alias(name) for name in names]
    return copied.select(*values, *map(col, (*_KEY, _COUNT, _GROUP)))


def _for_each_group(rows: DataFrame, groups: int) -> DataFrame:
    return rows.withColumn(_GROUP, F.explode(F.array(*(F.lit(group) for group in range(groups)))))


def _partitioned(copies: DataFrame, groups: int) -> DataFrame:
    """The copies for each group in partitions of their own, so many that all cores have work."""
    partitions_per_group = max(1, -(-parallelism(copies.sparkSession) // groups))
    within_group = F.pmod(col(_LOW), F.lit(partitions_per_group)).cast("int")
    return copies.repartitionById(groups * partitions_per_group, col(_GROUP) * partitions_per_group + within_group)


@dataclass(frozen=True)
class _ByGroup:
    """For mapInArrow: a partition has rows for one group, whose number is in each row in column `group_column`."""

    by_group: tuple[RowsWithIds | IdCounts, ...]
    group_column: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = iter(batches)
        for batch in rest:
            if batch.num_rows:
                group = batch.column(self.group_column)[0].as_py()
                # This takes the other batches too, so the loop ends after it.
                yield from self.by_group[group](chain([batch], rest))


# --- after matching -----------------------------------------------------------------------------


def _merged(matched: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows with the ids from all groups, each row as often as it was given."""
    row = F.when(col(_GROUP) == 0, F.struct(*map(col, names)))
    by_row = matched.groupBy(*_KEY).agg(
        F.first(row, ignorenulls=True).alias("row"),
        F.first(_COUNT).alias(_COUNT),
        F.collect_list(IDS_COLUMN).alias("lists"),
    )
    # `collect_list` leaves out nulls: a row that is not a notification has no list, and must get null again.
    ids = F.when(F.size("lists") > 0, F.sort_array(F.flatten("lists"))).alias(IDS_COLUMN)
    values = [F.col("row").getField(name).alias(name) for name in names]
    repeated = F.explode(F.sequence(F.lit(1).cast("bigint"), col(_COUNT)))
    return by_row.select(*values, ids, repeated).select(*map(col, names), IDS_COLUMN)
