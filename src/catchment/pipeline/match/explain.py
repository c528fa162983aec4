"""Why a subscription matched a notification, or did not, row by row: for a few subscriptions that somebody asks about.

The driver looks up the filters of the ids once, in the shards of the index. Workers explain each row against each of
these filters with the model's own explanation, which agrees with the matcher.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from catchment.errors import BadIdError, BadNotificationError, LimitError, shown
from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.explanation import explain
from catchment.model.filter import Filter
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match.worker import ID_COLUMN, AnyIndex, numbered_names, with_numbered_columns
from catchment.pipeline.schema import (
    AttributeColumn,
    MapColumn,
    matched_columns,
    notifications_of,
    refuse_taken_names,
)

# Every row is explained against each of them, one by one.
EXPLAINED_MAX: Final = 100
# Rows explained at once: explanations are long texts.
_ROWS_MAX: Final = 500

MATCHED, REASON, EXPLANATION = "matched", "reason", "explanation"
_ADDED_FIELDS: Final = (
    StructField(ID_COLUMN, StringType()),
    StructField(MATCHED, BooleanType()),
    StructField(REASON, StringType()),
    StructField(EXPLANATION, StringType()),
)


def match_explained(
    notifications: DataFrame, index: AnyIndex, ids: Sequence[str], attributes: Sequence[str] | None = None
) -> DataFrame:
    """A row for each notification and each id: the given columns, `subscription`, `matched`, `reason` (one line) and
    `explanation` (JSON: each alternative, clause by clause). For a row that is not a notification `matched` is null."""
    refuse_taken_names(notifications.columns, [field.name for field in _ADDED_FIELDS])
    numbered = numbered_names(notifications.columns)
    columns = [
        replace(column, column=numbered[column.column]) for column in matched_columns(notifications.schema, attributes)
    ]
    explained = _ExplainedRows(filters_of(open_index(index), ids), tuple(columns), tuple(notifications.columns))
    schema = StructType([*notifications.schema.fields, *_ADDED_FIELDS])
    return with_numbered_columns(notifications).mapInArrow(explained, schema)


def filters_of(index: Index, ids: Sequence[str]) -> dict[str, Filter | Cesql]:
    """The filters of some subscriptions. Raises BadIdError for an id that the index does not have."""
    if len(ids) > EXPLAINED_MAX:
        raise LimitError("EXPLAINED_MAX", EXPLAINED_MAX, f"{len(ids):,}", "ask about fewer ids")
    filters: dict[str, Filter | Cesql] = {}
    for path in index.shard_paths:
        matcher = Matcher.open(path)
        for id in ids:
            if id in matcher:
                filter = matcher.filter_of(id)
                assert isinstance(filter, Filter | Cesql), "only a matcher that was not saved has anything else"
                filters[id] = filter
    if missing := [id for id in ids if id not in filters]:
        raise BadIdError(f"no live subscription of version {index.version} has the id {shown(missing[0])}")
    return {id: filters[id] for id in ids}


@dataclass(frozen=True)
class _ExplainedRows:
    """For mapInArrow: each row once for each filter."""

    filters: dict[str, Filter | Cesql]
    columns: tuple[AttributeColumn | MapColumn, ...]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_MAX):
                yield self._explained(batch.slice(start, _ROWS_MAX))

    def _explained(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        explanations = [cells for row in range(piece.num_rows) for cells in self._explanations(piece.slice(row, 1))]
        repeated_rows = pa.array([row for row in range(piece.num_rows) for _ in self.filters], pa.int64())
        added_names = [field.name for field in _ADDED_FIELDS]
        added = [pa.array([cells[name] for cells in explanations], _arrow_type(name)) for name in added_names]
        return pa.RecordBatch.from_arrays([*piece.take(repeated_rows).columns, *added], [*self.names, *added_names])

    def _explanations(self, row: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """The added cells of one row, for each filter."""
        try:
            (notification,) = notifications_of(row.select([column.column for column in self.columns]), self.columns)
        except BadNotificationError as problem:
            for id in self.filters:
                yield {ID_COLUMN: id, MATCHED: None, REASON: f"not a notification: {problem}", EXPLANATION: None}
            return
        for id, filter in self.filters.items():
            explanation = explain(filter, notification)
            text = json.dumps(explanation.to_json())
            yield {ID_COLUMN: id, MATCHED: explanation.matched, REASON: str(explanation), EXPLANATION: text}


def _arrow_type(name: str) -> pa.DataType:
    return pa.bool_() if name == MATCHED else pa.string()
