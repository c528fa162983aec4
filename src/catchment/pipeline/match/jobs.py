"""Matching notifications against an index: each row gets the ids of the subscriptions that match it.

Workers memory-map the shards of one version of the index. The version is chosen when the job is planned: a version
published later is for the next job. Attributes are columns, or entries of one column `attributes`, a map. For thousands
of names, of which a row has ten, the map takes Spark a twentieth of the time.

A row that is not a notification (a float that is NaN, an attribute with values of two types) does not fail the job: its
`subscriptions` are null. Those of a notification that nobody subscribed to are an empty array.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from catchment.pipeline.index import open_index
from catchment.pipeline.match import scattered
from catchment.pipeline.match.worker import (
    COUNTS,
    ID_COLUMN,
    IDS_COLUMN,
    IDS_FIELD,
    AnyIndex,
    IdCounts,
    RowsWithIds,
    planned,
)
from catchment.pipeline.schema import col, matched_columns, refuse_taken_names


def match(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The given columns, and `subscriptions`: a sorted array of ids. `attributes` names the columns to match on; if it
    is not given, all but `$payload`."""
    refuse_taken_names(notifications.columns, [IDS_COLUMN])
    opened = open_index(index)
    shards = None if notifications.isStreaming else scattered.shards_per_task(opened)
    if shards is not None:
        return scattered.match_scattered(notifications, opened, attributes, shards)
    rows, task = planned(notifications, opened, attributes)
    with_ids = RowsWithIds(task, tuple(notifications.columns))
    return rows.mapInArrow(with_ids, StructType([*notifications.schema.fields, IDS_FIELD]))


def match_pairs(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """A row for each match: the given columns, and `subscription`."""
    matched = match(notifications, index, attributes)
    return matched.select(*map(col, notifications.columns), F.explode(IDS_COLUMN).alias(ID_COLUMN))


def unmatched(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The notifications that no subscription matches."""
    return match(notifications, index, attributes).where(F.size(IDS_COLUMN) == 0).drop(IDS_COLUMN)


def match_counts(notifications: DataFrame, index: AnyIndex, attributes: Sequence[str] | None = None) -> DataFrame:
    """The number of notifications that each subscription matches, if it matches any: `subscription`, `count`."""
    opened = open_index(index)
    shards = None if notifications.isStreaming else scattered.shards_per_task(opened)
    if shards is not None:
        partial_counts = scattered.counts_scattered(notifications, opened, attributes, shards)
    else:
        matched_on = [column.column for column in matched_columns(notifications.schema, attributes)]
        rows, task = planned(notifications.select(*map(col, matched_on)), opened, matched_on)
        partial_counts = rows.mapInArrow(IdCounts(task), COUNTS)
    return partial_counts.groupBy(ID_COLUMN).agg(F.sum("count").alias("count"))
