"""Indexes written in bulk match as a Matcher of the same filters; Arrow lists of ids are the sorted Python lists."""

import random

import pyarrow as pa
import pytest

from catchment.errors import BadIdError, LimitError
from catchment.matching import Matcher, lists
from catchment.matching.bulk import Gathered, pack_filter, unpack_filter, write_index
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.sim.benchmark_data import WORKLOADS, filters, notifications

TEXTS = (
    "x > 1 or y < 2.5 and z = true",
    "t > 2026-01-01T00:00:00Z and s in ('a', 'é')",
    "s glob 'a*b?' and not exists(q)",
    "s != 'a' and int x != 3",
    "(x > 1 or y contains nocase 'É') and not (s prefix 'a' or s in ('b', 'c'))",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_packed_filter_says_the_same(text):
    assert unpack_filter(pack_filter(Filter(text))) == Filter(text)


def gathered(ids, found):
    added = Gathered()
    for start in range(0, len(ids), 7):
        packed = pa.array([pack_filter(one) for one in found[start : start + 7]], pa.binary())
        # Slices, as they come from a filtered batch.
        whole = pa.concat_arrays([pa.array([b"x"], pa.binary()), packed])
        added.add(pa.array(["", *ids[start : start + 7]])[1:], whole[1:])
    return added


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_written_index_matches_as_a_matcher(tmp_path, monkeypatch, workload):
    monkeypatch.setattr("catchment.matching.bulk.INGESTED_FILTERS_MAX", 50)
    found, ids = filters(workload, 150), [f"é{i}" for i in range(150)]
    assert write_index(tmp_path / "index", gathered(ids, found)) == 150
    matcher = Matcher()
    matcher.add_many(ids, found)
    opened = Matcher.open(tmp_path / "index")
    for one in notifications(workload, 100):
        assert opened.match(one) == matcher.match(one)


def test_an_index_is_changed(tmp_path):
    first = gathered(["a", "b", "c"], [Filter("x > 1")] * 3)
    first.add_residues(["d"], [Cesql("x > 1 AND LENGTH(s) = 2")])
    assert write_index(tmp_path / "1", first) == 4
    second = gathered(["b", "e"], [Filter("x > 5"), Filter("x = 7")])
    assert write_index(tmp_path / "2", second, tmp_path / "1", ["b", "c"]) == 4
    opened = Matcher.open(tmp_path / "2")
    assert opened.match({"x": 7, "s": "ab"}) == ["a", "b", "d", "e"]
    assert opened.match({"x": 2, "s": "abc"}) == ["a"]
    assert write_index(tmp_path / "3", Gathered(), tmp_path / "2", ["a", "b", "d", "e"]) == 0
    assert Matcher.open(tmp_path / "3").match({"x": 7}) == []
    assert Matcher.open(tmp_path / "1").match({"x": 7, "s": ""}) == ["a", "b", "c"]


def test_ids_that_do_not_fit_are_refused(tmp_path):
    write_index(tmp_path / "1", gathered(["a"], [Filter("x > 1")]))
    with pytest.raises(BadIdError, match="twice"):
        write_index(tmp_path / "2", gathered(["a", "a"], [Filter("x > 1")] * 2))
    with pytest.raises(BadIdError, match="twice"):
        write_index(tmp_path / "2", gathered(["a"], [Filter("x > 1")]), tmp_path / "1")
    with pytest.raises(BadIdError, match="'b'"):
        write_index(tmp_path / "2", Gathered(), tmp_path / "1", ["b"])


# --- matches as Arrow lists ---------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 20, 400, 3000])
def test_arrow_lists_are_the_sorted_ids(count):
    """So many matches to a row that each way of sorting is taken."""
    rng = random.Random(count)
    ids = sorted({rng.choice(("", "é", "s")) + "x" * rng.randrange(12) + str(i) for i in range(count)})
    rng.shuffle(ids)
    matcher = Matcher()
    matcher.add_many(ids, [Filter.of(("x", ">=", i % 50)) for i in range(count)])
    matcher.add("later", Filter("x > 3"))
    rows = [{"x": x} for x in (60, 49, 10, 0, -1)]
    found = matcher.match_batch(rows)
    assert found.to_arrow(sorted=True).to_pylist() == [matcher.match(row) for row in rows]
    assert [sorted(one) for one in found.to_arrow().to_pylist()] == [matcher.match(row) for row in rows]


def test_arrow_lists_of_other_ids_and_of_nothing(monkeypatch):
    matcher = Matcher()
    assert matcher.match_batch([{"x": 1}]).to_arrow().to_pylist() == [[]]
    matcher.add_many([3, 1, 2], [Filter("x > 0")] * 3)
    assert matcher.match_batch([{"x": 1}, {"x": 0}]).to_arrow(sorted=True).to_pylist() == [[1, 2, 3], []]
    words = Matcher()
    words.add_many(["a", "b"], [Filter("x > 0")] * 2)
    assert words.match_batch([]).to_arrow().to_pylist() == []
    monkeypatch.setattr(lists, "LIST_BYTES_MAX", 1)
    with pytest.raises(LimitError, match="fewer"):
        words.match_batch([{"x": 1}]).to_arrow()
