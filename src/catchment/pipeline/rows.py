"""Rows of notifications: matched by the Matcher, put into publication order, written as JSON.

The columns are those of `schema`. A job works them out once, with `attributes_of`, and sends them to its workers.
`$payload` is binary, or base64 text, and is never matched on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from catchment.matching import Encoded, Id, Matcher
from catchment.model.values import Type, Value, value_to_json
from catchment.pipeline.schema import PAYLOAD, AttributeColumn, col

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Array = np.ndarray[Any, Any]
Columns = Sequence[AttributeColumn]

TIME: Final = "$time"
# Publication order: by time, then by publisher and the publisher's own count, then by id; absent values last.
ORDER: Final = (TIME, "$source", "$seq", "$id")
# A key that sorts in publication order in Python: for each field of ORDER whether it is absent, then its value.
OrderKey = tuple[tuple[bool, Any], ...]


def publication_order(names: Sequence[str]) -> list[Column]:
    """The sort order of a DataFrame with columns of these names; a column of ORDER that it lacks is left out."""
    return [col(name).asc_nulls_last() for name in ORDER if name in names]


def order_key(values: Sequence[Any]) -> OrderKey:
    """The order key of a notification, from its values of ORDER."""
    # Two absent values must compare equal, so both are 0. An absent value is never compared with a present one: the
    # flag before it decides.
    return tuple((value is None, 0 if value is None else value) for value in values)


def with_safe_names(notifications: DataFrame, columns: Columns) -> tuple[DataFrame, tuple[AttributeColumn, ...]]:
    """The DataFrame with column names that mapInArrow accepts, and its columns under these names. PySpark cannot send a
    column to Python whose name has a dot or a backtick."""
    # `$c3` can be no other column: no attribute begins with `$`, and no envelope field has such a name.
    names = {name: f"$c{i}" if "." in name or "`" in name else name for i, name in enumerate(notifications.columns)}
    renamed = tuple(replace(column, column=names[column.column]) for column in columns)
    return notifications.toDF(*names.values()), renamed


# --- matching -----------------------------------------------------------------------------------


def matched_rows(matcher: Matcher, batch: pa.RecordBatch, columns: Columns) -> Iterator[tuple[int, list[Id]]]:
    """The rows that match a filter of the matcher, in order, each with the ids of the filters that it matches."""
    rows = Encoded.of_columns([(column.name, batch.column(column.column)) for column in columns], batch.num_rows)
    matches = matcher.match_batch(rows)
    for i in np.flatnonzero((matches.counts > 0) & ~rows.bad).tolist():
        yield i, matches[i]


# --- values -------------------------------------------------------------------------------------


def values_of(batch: pa.RecordBatch, name: str, columns: Columns) -> list[Value | None]:
    """The values of one attribute, row by row, from whichever of its columns has a value."""
    values: list[Value | None] = [None] * batch.num_rows
    for column in columns:
        if column.name == name:
            for i, value in enumerate(_column_values(batch, column)):
                values[i] = values[i] if value is None else value
    return values


def _column_values(batch: pa.RecordBatch, column: AttributeColumn) -> list[Any]:
    """The values of a column as the model has them. Their type is that of the column, and the Matcher has checked that
    floats are finite."""
    array = batch.column(column.column)
    match column.type:
        case Type.TIME:
            times = array.cast(pa.timestamp("us", "UTC")).to_pylist()
            return [None if time is None else time.replace(tzinfo=UTC) for time in times]
        case Type.FLOAT:
            return [None if value is None else value + 0.0 for value in array.to_pylist()]  # turns -0.0 into 0.0
        case _:
            return list(array.to_pylist())


def order_keys(batch: pa.RecordBatch, columns: Columns) -> list[OrderKey]:
    return [order_key(row) for row in zip(*(values_of(batch, name, columns) for name in ORDER), strict=True)]


def json_lines(batch: pa.RecordBatch, columns: Columns) -> list[str]:
    """Each row as the text of one flat JSON object."""
    return [json.dumps(row, allow_nan=False) for row in _json_rows(batch, columns)]


def _json_rows(batch: pa.RecordBatch, columns: Columns) -> list[dict[str, Any]]:
    """Each row as Notification.to_json gives it: attributes, envelope, payload."""
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for column in sorted(columns, key=lambda column: column.name.startswith("$")):
        for row, value in zip(rows, _column_values(batch, column), strict=True):
            if value is not None:
                row[column.name] = value_to_json(value)
    if PAYLOAD in batch.schema.names:
        for row, payload in zip(rows, batch.column(PAYLOAD).to_pylist(), strict=True):
            if payload:
                row[PAYLOAD] = payload if isinstance(payload, str) else base64.b64encode(payload).decode("ascii")
    return rows
