"""Rows of wide tables as mappings against the same rows as columns: the same matches, the same rows refused."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa

from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.model.values import STRING_CODEPOINTS_MAX, Type
from catchment.pipeline import match, pieces
from catchment.pipeline.pieces import Piece
from catchment.pipeline.schema import ARROW_TYPES, AttributeColumn
from tests import strategies

match_module = sys.modules[match.__module__]

NAMES = ("x", "y", "price", "a.b", "é")
# Each attribute has a column for each type.
COLUMNS = (
    *(AttributeColumn(f"{name}:{kind}", name, kind, kind is not Type.STRING) for name in NAMES for kind in Type),
    AttributeColumn("$time", "$time", Type.TIME),
    AttributeColumn("$seq", "$seq", Type.INT),
)
OF_TYPE = {
    Type.STRING: strategies.texts,
    Type.INT: strategies.ints,
    # What is no notification, and a zero that is the other one.
    Type.FLOAT: strategies.floats | st.sampled_from((float("nan"), float("inf"), -float("inf"), -0.0)),
    Type.BOOL: strategies.bools,
    Type.TIME: strategies.times,
}
cells = st.one_of(*(st.tuples(st.just(place), OF_TYPE[one.type]) for place, one in enumerate(COLUMNS)))
rows = st.lists(st.lists(cells, max_size=3).map(dict), min_size=1, max_size=8)
filters = st.lists(
    strategies.constraints_on(st.sampled_from((*NAMES, "$time", "$seq"))).map(Filter.of), min_size=1, max_size=8
)


def batch_of(found, types=ARROW_TYPES):
    arrays = [pa.array([row.get(i) for row in found], types[one.type]) for i, one in enumerate(COLUMNS)]
    return pa.RecordBatch.from_arrays(arrays, [one.column for one in COLUMNS])


def shards_of(given_filters):
    matcher = Matcher()
    for number, one in enumerate(given_filters):
        matcher.add(f"s{number}", one)
    tables = matcher.match_batch([]).tables
    return match_module.Shards((matcher,), match_module.words_of(tables))


def ids_of(piece, shards):
    return [ids for _, found in match_module._pieces(piece, shards) for ids in found.to_pylist()]


def both(batch, given_filters):
    """Lists of ids by way of mappings, and by way of columns; whole and of a part."""
    shards, mappings = shards_of(given_filters), pieces._mappings(batch, COLUMNS)
    assert mappings is not None
    sparse, wide = Piece(batch, COLUMNS, mappings), Piece(batch, COLUMNS, None)
    half = len(wide) // 2
    assert ids_of(sparse.slice(half, 2), shards) == ids_of(wide.slice(half, 2), shards)
    return ids_of(sparse, shards), ids_of(wide, shards)


@given(rows, filters)
@example([{2: float("nan")}], [Filter("x any")])
@example([{2: -0.0}, {}, {0: "a", 1: 1}], [Filter("x = 0"), Filter("not exists(x)")])
@example([{1: 2**53 + 1}, {1: -(2**63)}], [Filter(f"x = {2**53 + 1}"), Filter(f"x > {2**53}")])
def test_mappings_match_what_columns_match(found, given_filters) -> None:
    by_mappings, by_columns = both(batch_of(found), given_filters)
    assert by_mappings == by_columns


def test_every_edge_value_alone() -> None:
    """A table of awkward values, each in a row of its own with a filter for it."""
    edges = {
        Type.STRING: strategies.EDGE_STRINGS,
        Type.INT: strategies.EDGE_INTS,
        Type.FLOAT: (*strategies.EDGE_FLOATS, -0.0, float("nan"), float("inf"), -float("inf")),
        Type.BOOL: (False, True),
        Type.TIME: strategies.EDGE_TIMES,
    }
    found = [{place: value} for place, one in enumerate(COLUMNS[:5]) for value in edges[one.type]]
    values = [value for row in found for value in row.values()]
    values = [value for value in values if not isinstance(value, float) or abs(value) < float("inf")]
    given_filters = [Filter.of(("x", "=", value)) for value in values] + [Filter("x any"), Filter("not exists(x)")]
    by_mappings, by_columns = both(batch_of(found), given_filters)
    assert by_mappings == by_columns
    assert by_columns.count(None) == 3
    assert all(len(ids) > 1 for ids in by_columns if ids is not None)


@pytest.mark.parametrize(("kind", "arrow"), [(Type.INT, pa.int8()), (Type.FLOAT, pa.float32()), (Type.TIME, None)])
def test_types_that_are_read_as_ours(kind, arrow) -> None:
    zone = pa.timestamp("us", "America/New_York")
    value = {Type.INT: 7, Type.FLOAT: 0.1, Type.TIME: datetime(2026, 3, 29, 1, 30, tzinfo=UTC)}[kind]
    place = list(Type).index(kind)
    given_filters = [Filter.of(("x", "=", value)), Filter.of(("x", ">", value)), Filter("x any")]
    by_mappings, by_columns = both(batch_of([{place: value}, {}], {**ARROW_TYPES, kind: arrow or zone}), given_filters)
    assert by_mappings == by_columns


# --- when ---------------------------------------------------------------------------------------


def test_what_no_mapping_may_hold_stays_in_columns() -> None:
    """The Matcher refuses some values in a mapping that it takes from a column: so a batch that has one is wide."""
    long = batch_of([{0: "a" * (STRING_CODEPOINTS_MAX + 1), 4: datetime(2026, 1, 1, tzinfo=UTC)}])
    assert pieces._mappings(long, COLUMNS) is None
    arrays = {one.column: pa.nulls(1, ARROW_TYPES[one.type]) for one in COLUMNS}
    for column, odd in (
        ("x:time", pa.array([2**62], pa.int64()).view(pa.timestamp("us", "UTC"))),
        ("x:string", pa.array([b"\xff"], pa.binary()).view(pa.string())),
    ):
        batch = pa.RecordBatch.from_pydict(arrays | {column: odd})
        assert pieces._mappings(batch, COLUMNS) is None


@pytest.mark.parametrize(("width", "present", "sparse"), [(127, 1, False), (128, 8, True), (128, 9, False)])
def test_only_wide_tables_with_little_in_a_row_are_mappings(width, present, sparse) -> None:
    columns = [AttributeColumn(f"c{i}", f"n{i}", Type.INT) for i in range(width)]
    arrays = [pa.array([1 if i < present else None] * 3, pa.int64()) for i in range(width)]
    batch = pa.RecordBatch.from_arrays(arrays, [one.column for one in columns])
    piece = Piece.of(batch, columns)
    assert (piece.mappings is not None) == sparse
    assert [len(piece), len(piece.slice(1, 2)), len(piece.slice(2, 5))] == [3, 2, 1]
