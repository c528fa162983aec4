"""Arrow columns and maps as the Matcher reads them, against the model's own reading of each row."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.errors import BadNotificationError
from catchment.matching import Encoded, Matcher
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import NOTIFICATION_ATTRIBUTES_MAX
from catchment.model.values import NAME_CODEPOINTS_MAX, Type
from tests import oracle, strategies

NAMES = ("x", "y", "price", "a.b", "é")
ENVELOPE = (("$time", Type.TIME), ("$seq", Type.INT))
# Each attribute has a column for each type.
PLACES = (*((name, kind) for kind in Type for name in NAMES), *ENVELOPE)
INT_X, FLOAT_X = PLACES.index(("x", Type.INT)), PLACES.index(("x", Type.FLOAT))
ARROW_TYPES = {
    Type.STRING: pa.string(),
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.TIME: pa.timestamp("us", "UTC"),
}
OF_TYPE = {
    Type.STRING: strategies.texts,
    Type.INT: strategies.ints,
    # What is no notification, and a zero that is the other one.
    Type.FLOAT: strategies.floats | st.sampled_from((float("nan"), float("inf"), -float("inf"), -0.0)),
    Type.BOOL: strategies.bools,
    Type.TIME: strategies.times,
}
cells = st.one_of(*(st.tuples(st.just(place), OF_TYPE[kind]) for place, (_, kind) in enumerate(PLACES)))
rows = st.lists(st.lists(cells, max_size=4).map(dict), min_size=1, max_size=8)
filters = st.lists(
    strategies.constraints_on(st.sampled_from((*NAMES, "$time", "$seq"))).map(Filter.of), min_size=1, max_size=8
)


def column(found, place):
    return pa.array([row.get(place) for row in found], ARROW_TYPES[PLACES[place][1]])


def wide(found):
    return [(name, column(found, place)) for place, (name, _) in enumerate(PLACES)]


def structs(found, places, nulls=()):
    """A map of the attributes at some places; the rows of `nulls` that have none of them are null, not empty."""
    kinds = pa.struct([(kind.value, ARROW_TYPES[kind]) for kind in Type])
    values = []
    for i, row in enumerate(found):
        pairs = [(PLACES[place][0], {PLACES[place][1].value: row[place]}) for place in places if place in row]
        values.append(None if i in nulls and not pairs else pairs)
    return pa.array(values, pa.map_(pa.string(), kinds))


def mixed(found, split):
    """Some attributes in a map, the others and the envelope in columns."""
    split = min(split, len(PLACES) - len(ENVELOPE))
    return [
        *((PLACES[place][0], column(found, place)) for place in range(split, len(PLACES))),
        ("", structs(found, range(split), nulls=(0, 2))),
    ]


def is_bad(row):
    names = [PLACES[place][0] for place in row]
    floats = [value for value in row.values() if isinstance(value, float)]
    return len(set(names)) < len(names) or any(not abs(value) < float("inf") for value in floats)


def matcher_of(given_filters):
    matcher = Matcher()
    for number, one in enumerate(given_filters):
        matcher.add(number, one)
    return matcher


def check(columns, found, given_filters):
    encoded = Encoded.of_columns(columns, len(found))
    assert encoded.bad.tolist() == [is_bad(row) for row in found]
    matches = matcher_of(given_filters).match_batch(encoded)
    assert len(matches) == len(encoded) == len(found)
    for i, row in enumerate(found):
        if is_bad(row):
            assert matches[i] == [k for k, one in enumerate(given_filters) if oracle.matches(one, {})]
        else:
            values = {PLACES[place][0]: value for place, value in row.items()}
            assert encoded.row(i) == values
            assert {name: type(value) for name, value in encoded.row(i).items()} == {
                name: type(value) for name, value in values.items()
            }
            assert matches[i] == [k for k, one in enumerate(given_filters) if oracle.matches(one, values)]
    return matches


@given(rows, filters, st.data())
@example([{FLOAT_X: float("nan")}], [Filter("x any")], None)
@example([{FLOAT_X: -0.0}, {}, {0: "a", INT_X: 1}], [Filter("x = 0"), Filter("not exists(x)")], None)
@example([{INT_X: 2**53 + 1}, {INT_X: -(2**63)}], [Filter(f"x = {2**53 + 1}"), Filter(f"x > {2**53}")], None)
def test_columns_and_maps_match_as_their_rows(found, given_filters, data) -> None:
    split = len(PLACES) if data is None else data.draw(st.integers(0, len(PLACES)))
    whole = check(wide(found), found, given_filters)
    assert check(mixed(found, split), found, given_filters).ids.tolist() == whole.ids.tolist()


@given(rows, filters, st.integers(0, 8), st.integers(0, 8))
def test_parts_are_parts_of_the_whole(found, given_filters, start, count) -> None:
    """Cut before they are made ready, and after."""
    start = min(start, len(found))
    part = found[start : start + count]
    for columns in (wide(found), mixed(found, 10)):
        check([(name, array.slice(start, count)) for name, array in columns], part, given_filters)
        cut = Encoded.of_columns(columns, len(found)).slice(start, count)
        matches, again = matcher_of(given_filters).match_batch(cut), check(wide(part), part, given_filters)
        assert cut.bad.tolist() == [is_bad(row) for row in part]
        assert [one for one, bad in zip(matches, cut.bad, strict=True) if not bad] == [
            one for one, row in zip(again, part, strict=True) if not is_bad(row)
        ]


# --- edges --------------------------------------------------------------------------------------


def test_every_edge_value_alone() -> None:
    """Awkward values, each in a row of its own with a filter for it."""
    edges = {
        Type.STRING: strategies.EDGE_STRINGS,
        Type.INT: strategies.EDGE_INTS,
        Type.FLOAT: (*strategies.EDGE_FLOATS, -0.0, float("nan"), float("inf"), -float("inf")),
        Type.BOOL: (False, True),
        Type.TIME: strategies.EDGE_TIMES,
    }
    found = [{place: value} for place, (name, kind) in enumerate(PLACES) if name == "x" for value in edges[kind]]
    values = [value for row in found for value in row.values() if not is_bad(row)]
    given_filters = [Filter.of(("x", "=", value)) for value in values] + [Filter("x any"), Filter("not exists(x)")]
    for columns in (wide(found), mixed(found, len(PLACES))):
        check(columns, found, given_filters)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 7),
        (pa.float32(), 0.5),
        (pa.timestamp("ms", "America/New_York"), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (pa.large_string(), "a"),
        (pa.bool_(), True),
    ],
)
def test_types_that_are_read_as_ours(kind, value) -> None:
    matcher = matcher_of([Filter.of(("x", "=", value)), Filter("x any"), Filter("not exists(x)")])
    for array in (pa.array([value, None], kind), pa.array([[("x", value)], [("x", None)]], pa.map_(pa.string(), kind))):
        assert list(matcher.match_batch(Encoded.of_columns([("x", array)], 2))) == [[0, 1], [2]]


def test_keys_of_any_length_and_thousands_of_them() -> None:
    names = [f"n{i}" for i in range(5_000)]
    matcher = matcher_of([Filter.of((names[-1], "=", 4_999)), Filter.of((names[0], "=", 0))])
    array = pa.array([[(name, i)] for i, name in enumerate(names)], pa.map_(pa.large_string(), pa.int64()))
    matches = matcher.match_batch(Encoded.of_columns([("", array)], len(names)))
    assert [i for i, one in enumerate(matches) if one] == [0, 4_999]


@pytest.mark.parametrize("name", ["", "$id", "a" * (NAME_CODEPOINTS_MAX + 1)])
def test_a_key_that_is_no_name_makes_its_row_bad(name) -> None:
    array = pa.array([[("x", 1)], [("x", 1), (name, 2)], [("x", 1)]], pa.map_(pa.string(), pa.int64()))
    encoded = Encoded.of_columns([("", array)], 3)
    assert encoded.bad.tolist() == [False, True, False]
    matcher = matcher_of([Filter("x = 1")])
    with pytest.raises(BadNotificationError, match="row 1, attribute"):
        matcher.match_batch(pa.record_batch({"attributes": array}))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": pa.array([1.0, float("nan")])}, "row 1, attribute 'x'.*finite"),
        ({"x": pa.array([0, 2**62]).cast(pa.timestamp("us", "UTC"))}, "row 1, attribute 'x'"),
        ({"m": pa.array([[], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))}, "row 1, attribute 'a'.*twice"),
        (
            {"a": pa.array([1, 1]), "m": pa.array([[("b", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64()))},
            "row 1, attribute 'a'.*twice",
        ),
    ],
)
def test_a_bad_row_is_named(columns, words) -> None:
    with pytest.raises(BadNotificationError, match=words):
        Matcher().match_batch(pa.table(columns))


def test_more_attributes_than_a_notification_has() -> None:
    many = [(f"n{i}", 1) for i in range(NOTIFICATION_ATTRIBUTES_MAX + 100)]
    array = pa.array([many[:NOTIFICATION_ATTRIBUTES_MAX], many], pa.map_(pa.string(), pa.int64()))
    assert Encoded.of_columns([("", array)], 2).bad.tolist() == [False, True]
    with pytest.raises(BadNotificationError, match=f"row 1: more than {NOTIFICATION_ATTRIBUTES_MAX} attributes"):
        Matcher().match_batch(pa.record_batch({"attributes": array}))


def test_a_map_from_numbers_is_none_of_ours() -> None:
    with pytest.raises(BadNotificationError, match="names are strings"):
        Encoded.of_columns([("m", pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64())))], 1)


def test_an_expression_gets_the_row() -> None:
    """CESQL is evaluated in Python, on the row that the kernels have."""
    found = [{0: "ab", PLACES.index(("y", Type.INT)): 3}, {0: "xb"}]
    matcher = Matcher()
    matcher.add("s", Cesql("UPPER(x) LIKE 'A%' AND y = 3"))
    for columns in (wide(found), mixed(found, len(PLACES))):
        assert list(matcher.match_batch(Encoded.of_columns(columns, 2))) == [["s"], []]


def test_nulls_with_entries_behind_them() -> None:
    entries = pa.array(["a", "b", "a"]), pa.array([1, 2, 3])
    array = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), *entries)
    hidden = pa.Array.from_buffers(array.type, 3, [pa.py_buffer(b"\x05"), array.buffers()[1]], children=[array.values])
    assert hidden.null_count == 1
    matcher = matcher_of([Filter("exists(a)"), Filter("exists(b)")])
    assert list(matcher.match_batch(Encoded.of_columns([("", hidden)], 3))) == [[0], [], [0]]
