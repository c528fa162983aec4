"""Rows of a table as the Matcher takes them: each attribute once, and no row that is no notification.

Mostly they are the columns that Spark sent. The Matcher looks at each column of each piece, whether it holds anything
or not, which costs some 10 µs: nothing in a table of ten columns, most of the time in one of a thousand of which a row
has ten. Rows of such a table become mappings, all of a batch at once, and pieces are cut from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.values import STRING_CODEPOINTS_MAX, Type, Value
from catchment.pipeline.schema import ARROW_TYPES, AttributeColumn

Array = np.ndarray[Any, Any]
# None for a row that is no notification.
Mappings = list[dict[str, Value] | None]

# Tables with fewer attributes are matched as columns.
SPARSE_COLUMNS_MIN: Final = 128
# So are those with more than one value in so many places: a value in a mapping costs more than one in a column.
SPARSE_PLACES: Final = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows: all their columns, which of these are attributes, and the attributes as mappings if they are few."""

    batch: pa.RecordBatch
    columns: Sequence[AttributeColumn]
    mappings: Mappings | None

    @classmethod
    def of(cls, batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> Piece:
        return cls(batch, columns, _mappings(batch, columns) if _is_sparse(batch, columns) else None)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, count: int) -> Piece:
        mappings = None if self.mappings is None else self.mappings[start : start + count]
        return Piece(self.batch.slice(start, count), self.columns, mappings)

    def groups(self) -> Iterator[tuple[Array | None, Any]]:
        """What the Matcher takes, and of which rows; None for all rows at once, which is nearly always."""
        if self.mappings is None:
            yield from _uniform(self.batch, self.columns)
        elif None not in self.mappings:
            yield None, self.mappings
        else:
            rows = [row for row, one in enumerate(self.mappings) if one is not None]
            yield np.array(rows, np.int64), [self.mappings[row] for row in rows]


# --- tables of which each row has little --------------------------------------------------------


def _is_sparse(batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> bool:
    if len(columns) < SPARSE_COLUMNS_MIN:
        return False
    absent = sum(batch.column(one.column).null_count for one in columns)
    return bool(len(columns) * batch.num_rows - absent <= len(columns) * batch.num_rows // SPARSE_PLACES)


def _mappings(batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> Mappings | None:
    """None where a value is one that the Matcher takes from a column and in no mapping."""
    rows: list[dict[str, Value]] = [{} for _ in range(batch.num_rows)]
    for one in columns:
        array = batch.column(one.column)
        if array.null_count < len(array):
            try:
                values = _values(array, one.type)
            except (ValueError, OverflowError):  # a time in no year of Python's, a string that is no UTF-8
                return None
            if one.type is Type.STRING and max(map(len, values)) > STRING_CODEPOINTS_MAX:
                return None
            for row, value in zip(np.flatnonzero(_valid(array)).tolist(), values, strict=True):
                rows[row][one.name] = value
    bad = _bad_rows(batch, columns)
    return [*rows] if bad is None else [None if out else row for row, out in zip(rows, bad.tolist(), strict=True)]


def _values(array: pa.Array, kind: Type) -> list[Any]:
    """The values that are there. A zone other than UTC would only make the years end earlier."""
    found = array.drop_null()
    values: list[Any] = (found.cast(ARROW_TYPES[kind]) if kind is Type.TIME else found).to_pylist()
    return values


# --- attributes with columns of several types ---------------------------------------------------


def _uniform(
    batch: pa.RecordBatch, columns: Sequence[AttributeColumn]
) -> Iterator[tuple[Array | None, pa.RecordBatch]]:
    """Rows by the columns that hold their attributes, so that each attribute is one column to the matcher."""
    bad = _bad_rows(batch, columns)
    extra = [one for one in columns if one.extra and batch.column(one.column).null_count < batch.num_rows]
    if not extra:
        usual = _named(batch, [one for one in columns if not one.extra])
        rows = None if bad is None else np.flatnonzero(~bad)
        yield rows, usual if rows is None else usual.take(pa.array(rows))
        return
    present = np.stack([_valid(batch.column(one.column)) for one in extra], axis=1)
    patterns, pattern_of = np.unique(present, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        chosen = pattern_of.reshape(-1) == number
        rows = np.flatnonzero(chosen if bad is None else chosen & ~bad)
        held = {one.name: one for one in columns if not one.extra}
        held |= {one.name: one for one, here in zip(extra, pattern.tolist(), strict=True) if here}
        yield rows, _named(batch, list(held.values())).take(pa.array(rows))


def _named(batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> pa.RecordBatch:
    """Columns under the names of their attributes."""
    if not columns:
        # A batch without columns would have no rows either.
        return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], ["_"])
    arrays = [batch.column(one.column) for one in columns]
    return pa.RecordBatch.from_arrays(arrays, [one.name for one in columns])


def _valid(array: pa.Array) -> Array:
    found: Array = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _bad_rows(batch: pa.RecordBatch, columns: Sequence[AttributeColumn]) -> Array | None:
    """The rows that are no notification; None where there are none."""
    bad = np.zeros(batch.num_rows, bool)
    by_name: dict[str, list[AttributeColumn]] = {}
    for one in columns:
        by_name.setdefault(one.name, []).append(one)
        if one.type is Type.FLOAT:
            finite = pc.fill_null(pc.is_finite(batch.column(one.column)), True)
            bad |= ~finite.to_numpy(zero_copy_only=False)
    for several in by_name.values():
        if len(several) > 1:
            bad |= np.sum([_valid(batch.column(one.column)) for one in several], axis=0) > 1
    return bad if bad.any() else None
