"""Why a subscription matched a notification or did not, row by row: for the few that somebody asks about.

The filters of the ids are looked up once, by the driver, in the shards of the index; workers explain each row against
each of them with the model's own explanation, which agrees with the matcher.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from catchment.errors import BadIdError, BadNotificationError, InputError, LimitError, shown
from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.explanation import explain
from catchment.model.filter import Filter
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.match.worker import SUBSCRIPTION, AnyIndex, _numbered
from catchment.pipeline.schema import AttributeColumn, MapColumn, matched_columns, notifications_of

# Each is explained against each row, one by one.
EXPLAINED_MAX: Final = 100
# So many rows of explanations at once: they are texts.
_ROWS: Final = 500

MATCHED, REASON, EXPLANATION = "matched", "reason", "explanation"
_FOUND: Final = (
    StructField(SUBSCRIPTION, StringType()),
    StructField(MATCHED, BooleanType()),
    StructField(REASON, StringType()),
    StructField(EXPLANATION, StringType()),
)


def match_explained(
    notifications: DataFrame, index: AnyIndex, ids: Sequence[str], attributes: Sequence[str] | None = None
) -> DataFrame:
    """For each notification and each id: the columns given, `subscription`, `matched`, `reason` (a line) and
    `explanation` (JSON: each alternative, clause by clause). A row that is no notification has null for `matched`."""
    if taken := [one.name for one in _FOUND if one.name in notifications.columns]:
        raise InputError(f"there is a column {taken[0]} already: drop or rename it")
    numbers = {name: f"c{number}" for number, name in enumerate(notifications.columns)}
    columns = [replace(one, column=numbers[one.column]) for one in matched_columns(notifications.schema, attributes)]
    rows = _Explained(filters_of(open_index(index), ids), tuple(columns), tuple(notifications.columns))
    return _numbered(notifications).mapInArrow(rows, StructType([*notifications.schema.fields, *_FOUND]))


def filters_of(index: Index, ids: Sequence[str]) -> dict[str, Filter | Cesql]:
    """The filters of some subscriptions; BadIdError for one that is not in the index."""
    if len(ids) > EXPLAINED_MAX:
        raise LimitError("EXPLAINED_MAX", EXPLAINED_MAX, f"{len(ids):,}", "ask about fewer ids")
    found: dict[str, Filter | Cesql] = {}
    for path in index.shard_paths:
        matcher = Matcher.open(path)
        for id in ids:
            if id in matcher:
                filter = matcher.filter_of(id)
                assert isinstance(filter, Filter | Cesql), "only a matcher that was not saved has anything else"
                found[id] = filter
    if missing := [id for id in ids if id not in found]:
        raise BadIdError(f"no live subscription of version {index.version} has the id {shown(missing[0])}")
    return {id: found[id] for id in ids}


@dataclass(frozen=True)
class _Explained:
    """For mapInArrow: each row once for each filter."""

    filters: dict[str, Filter | Cesql]
    columns: tuple[AttributeColumn | MapColumn, ...]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                yield self._explained(batch.slice(start, _ROWS))

    def _explained(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        found = [one for row in range(piece.num_rows) for one in self._row(piece.slice(row, 1))]
        places = pa.array([row for row in range(piece.num_rows) for _ in self.filters], pa.int64())
        added = [pa.array([one[name] for one in found], _arrow(name)) for name in (field.name for field in _FOUND)]
        names = [*self.names, *(field.name for field in _FOUND)]
        return pa.RecordBatch.from_arrays([*piece.take(places).columns, *added], names)

    def _row(self, row: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        try:
            (notification,) = notifications_of(row.select([one.column for one in self.columns]), self.columns)
        except BadNotificationError as problem:
            for id in self.filters:
                yield {SUBSCRIPTION: id, MATCHED: None, REASON: f"no notification: {problem}", EXPLANATION: None}
            return
        for id, filter in self.filters.items():
            why = explain(filter, notification)
            text = json.dumps(why.to_json())
            yield {SUBSCRIPTION: id, MATCHED: why.matched, REASON: str(why), EXPLANATION: text}


def _arrow(name: str) -> pa.DataType:
    return pa.bool_() if name == MATCHED else pa.string()
