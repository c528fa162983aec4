"""Rows of notifications: asked of the one Matcher, put into publication order, written as JSON.

The columns are those of `schema`; a job works them out once with `attributes_of` and hands them to its
workers. `$payload` is binary, or text in base64, and is never matched on.
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
from catchment.model.notification import Notification
from catchment.model.values import Type, Value, value_to_json
from catchment.pipeline.schema import PAYLOAD, AttributeColumn, col

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Array = np.ndarray[Any, Any]
Columns = Sequence[AttributeColumn]

TIME: Final = "$time"
# Publication order: by time, ties by publisher and its own count, then by id; what is absent comes last.
ORDER: Final = (TIME, "$source", "$seq", "$id")
# What sorts so in Python: for each of ORDER whether it is absent, then its value.
OrderKey = tuple[tuple[bool, Any], ...]


def publication_order(names: Sequence[str]) -> list[Column]:
    """What to sort a DataFrame of these columns by; one that it lacks orders nothing."""
    return [col(name).asc_nulls_last() for name in ORDER if name in names]


def order_key(values: Sequence[Any]) -> OrderKey:
    """The place of a notification, from its values of ORDER."""
    # An absent value is never compared with a present one; 0 stands where two are absent.
    return tuple((value is None, 0 if value is None else value) for value in values)


def plain(notifications: DataFrame, columns: Columns) -> tuple[DataFrame, tuple[AttributeColumn, ...]]:
    """The same under names that PySpark can hand to Python, which one with a dot or a backtick is not."""
    # No attribute begins with a `$`, and no envelope field is called so.
    names = {name: f"$c{i}" if "." in name or "`" in name else name for i, name in enumerate(notifications.columns)}
    renamed = tuple(replace(one, column=names[one.column]) for one in columns)
    return notifications.toDF(*names.values()), renamed


# --- matching -----------------------------------------------------------------------------------


def matched_rows(matcher: Matcher, batch: pa.RecordBatch, columns: Columns) -> Iterator[tuple[int, list[Id]]]:
    """The rows that match something, in order, each with the ids of what it matches."""
    rows = Encoded.of_columns([(one.name, batch.column(one.column)) for one in columns], batch.num_rows)
    matches = matcher.match_batch(rows)
    for i in np.flatnonzero((matches.counts > 0) & ~rows.bad).tolist():
        yield i, matches[i]


# --- values -------------------------------------------------------------------------------------


def values_of(batch: pa.RecordBatch, name: str, columns: Columns) -> list[Value | None]:
    """The values of one attribute, from whichever of its columns has one."""
    found: list[Value | None] = [None] * batch.num_rows
    for one in columns:
        if one.name == name:
            for i, value in enumerate(_column_values(batch, one)):
                found[i] = found[i] if value is None else value
    return found


def _column_values(batch: pa.RecordBatch, one: AttributeColumn) -> list[Any]:
    """Values of the model: Arrow has checked their type, the Matcher that floats are finite."""
    column = batch.column(one.column)
    match one.type:
        case Type.TIME:
            found = column.cast(pa.timestamp("us", "UTC")).to_pylist()
            return [None if value is None else value.replace(tzinfo=UTC) for value in found]
        case Type.FLOAT:
            return [None if value is None else value + 0.0 for value in column.to_pylist()]
        case _:
            return list(column.to_pylist())


def order_keys(batch: pa.RecordBatch, columns: Columns) -> list[OrderKey]:
    return [order_key(row) for row in zip(*(values_of(batch, name, columns) for name in ORDER), strict=True)]


def notifications_of(batch: pa.RecordBatch, columns: Columns) -> list[Notification]:
    return [Notification.from_json(row) for row in json_rows(batch, columns)]


def json_lines(batch: pa.RecordBatch, columns: Columns) -> list[str]:
    """Each row as the text of one flat JSON object."""
    return [json.dumps(row, allow_nan=False) for row in json_rows(batch, columns)]


def json_rows(batch: pa.RecordBatch, columns: Columns) -> list[dict[str, Any]]:
    """Each row as Notification.to_json gives it: attributes, envelope, payload."""
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for one in sorted(columns, key=lambda one: one.name.startswith("$")):
        for row, value in zip(rows, _column_values(batch, one), strict=True):
            if value is not None:
                row[one.name] = value_to_json(value)
    if PAYLOAD in batch.schema.names:
        for row, payload in zip(rows, batch.column(PAYLOAD).to_pylist(), strict=True):
            if payload:
                row[PAYLOAD] = payload if isinstance(payload, str) else base64.b64encode(payload).decode("ascii")
    return rows
