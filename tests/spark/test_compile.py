"""Subscriptions compiled to an index: the report, the rejects, versions, and changes to them."""

import json
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from catchment.errors import BadIndexError, InputError, LimitError
from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.sim.benchmark_data import filters, notifications

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.testing import assertDataFrameEqual  # noqa: E402

from catchment.pipeline import index  # noqa: E402
from catchment.pipeline.compile import compare, jobs, shards  # noqa: E402
from catchment.pipeline.compile.compare import ComparedRow, notes_of_subscriber, whole_subscribers  # noqa: E402
from catchment.pipeline.compile.parse import parsed_batches, parsed_filter  # noqa: E402
from catchment.pipeline.index import open_index, prune  # noqa: E402
from catchment.pipeline.inputs import read_subscriptions  # noqa: E402

# The content graph has tests of its own.
compile_subscriptions = partial(jobs.compile_subscriptions, graph=False)
change_subscriptions = partial(jobs.change_subscriptions, graph=False)
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SCHEMA = "id string, subscriber string, filter string, dialect string, expires timestamp"
ROWS = [
    ("a1", "alice", "x > 1", None, None),
    ("a2", "alice", "x > 1 and x > 0", None, None),
    ("a3", "alice", "x > 5 and y = 1", "catchment", None),
    ("a4", "alice", "x < 1 and x > 2", None, None),
    ("a5", "alice", "x > 7", None, datetime(2026, 11, 15, 11, 0, tzinfo=UTC)),
    ("a6", "alice", "s = 'x' or s = 'y'", None, datetime(2026, 11, 15, 13, 0, tzinfo=UTC)),
    ("b1", "bob", "x > 9", None, None),
    ("b2", "bob", "x LIKE 'a%'", "cesql", None),
    ("c1", "cleo", "x matches '^ab[0-9]' and not x cidr '10.0.0.0/8'", None, None),
    ("b3", "bob", "x >", None, None),
    ("b4", "bob", "x > 1", "sql", None),
    ("b1", "bob", "x > 10", None, None),
    (None, "bob", "x > 1", None, None),
    ("b" * 2000, "bob", "x > 1", None, None),
]


@pytest.fixture(scope="module")
def compiled(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled") / "index"
    return compile_subscriptions(spark.createDataFrame(ROWS, SCHEMA), path, now=NOW)


def matched(compiled_index, notification):
    """The ids of an index that match a notification, from all its shards."""
    return sorted(id for path in compiled_index.shard_paths for id in Matcher.open(path).match(notification))


def catalogue(spark, compiled_index):
    rows = spark.read.parquet(compiled_index.subscriptions).collect()
    return {row.id: (row.status, row.note, row.other) for row in rows}


# --- the report ---------------------------------------------------------------------------------


def test_report(spark, compiled):
    assert catalogue(spark, compiled) == {
        "a1": ("live", None, None),
        "a2": ("live", "duplicate", "a1"),
        "a3": ("live", "redundant", "a1"),
        "a4": ("contradictory", None, None),
        "a5": ("expired", None, None),
        "a6": ("live", None, None),
        "b1": ("live", None, None),
        "b2": ("live", None, None),
        "c1": ("live", None, None),
    }
    assert dict(compiled.counts) == {
        "live": 7, "contradictory": 1, "expired": 1, "duplicate": 1, "redundant": 1, "unchecked": 0,
        "filters": 6, "rejected": 5,
    }  # fmt: skip


def test_rejects_say_why(spark, compiled):
    reasons = sorted(row.reason for row in spark.read.parquet(compiled.rejects).collect())
    assert [reason[:20] for reason in reasons] == [
        "a subscription needs",
        "an id of 2,000 chara",
        "filter, line 1, colu",
        "the id b1 stands twi",
        "unknown dialect 'sql",
    ]


def test_the_report_changes_nothing(compiled):
    assert matched(compiled, {"x": 8, "y": 1}) == ["a1", "a2", "a3"]
    assert matched(compiled, {"x": 11, "s": "y"}) == ["a1", "a2", "a6", "b1"]
    assert matched(compiled, {"x": "abc"}) == ["b2"]
    assert matched(compiled, {"x": "ab7"}) == ["b2", "c1"]


def test_rejects_of_files_say_where(spark, tmp_path):
    lines = [{"id": str(i), "subscriber": "s", "filter": "x > 1" if i % 3 else "x >"} for i in range(7)]
    text = "\n".join(["oops", *map(json.dumps, lines)])
    (tmp_path / "s.jsonl").write_text(text)
    given = read_subscriptions(spark, str(tmp_path / "s.jsonl"))
    compiled_index = compile_subscriptions(given.rows, tmp_path / "index", now=NOW, rejects=given.rejects)
    rejects = spark.read.parquet(compiled_index.rejects).collect()
    rows = sorted((row.row, row.file.rsplit("/")[-1]) for row in rejects)
    assert rows == [(1, "s.jsonl"), (2, "s.jsonl"), (5, "s.jsonl"), (8, "s.jsonl")]
    assert (compiled_index.counts["live"], compiled_index.counts["rejected"]) == (4, 4)


def compared_row(number, text):
    parsed = parsed_filter(text, "catchment")
    assert parsed.filter is not None
    assert parsed.status is not None
    return ComparedRow(f"{number:03}", parsed.filter, "catchment", parsed.conjunction, parsed.status)


def rows_of(texts):
    return [compared_row(number, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(("workload", "count", "pairwise_max"), [("W2", 120, 16), ("W1", 60, 1), ("W1", 60, 60)])
def test_redundant_means_covered_by_another_of_the_same_subscriber(monkeypatch, workload, count, pairwise_max):
    monkeypatch.setattr(compare, "PAIRWISE_MAX", pairwise_max)
    rows = rows_of(map(str, filters(workload, count)))
    for row, (note, other) in zip(rows, notes_of_subscriber(rows), strict=True):
        filter = Filter(row.filter)
        above = {wider.id for wider in rows if wider is not row and Filter(wider.filter).covers(filter)}
        # Of equal filters only the later ones have a note.
        assert (note is not None) == any(id < row.id or rows[int(id)].filter != row.filter for id in above)
        assert other is None or other in above


def test_pairs_and_poset_give_the_same_notes(monkeypatch):
    rows = rows_of(map(str, filters("W1", 60)))
    monkeypatch.setattr(compare, "PAIRWISE_MAX", 60)
    by_pairs = notes_of_subscriber(rows)
    monkeypatch.setattr(compare, "PAIRWISE_MAX", 1)
    assert by_pairs == notes_of_subscriber(rows)


@pytest.mark.parametrize("pairwise_max", [16, 1])
def test_of_filters_that_mean_the_same_the_later_one_is_redundant(monkeypatch, pairwise_max):
    monkeypatch.setattr(compare, "PAIRWISE_MAX", pairwise_max)
    rows = rows_of(["a > 1 or a > 2", "a > 1", "b = 1"])
    assert notes_of_subscriber(rows) == [(None, None), ("redundant", "000"), (None, None)]


def test_a_filter_without_a_normal_form_is_not_in_the_poset(monkeypatch):
    monkeypatch.setattr(compare, "PAIRWISE_MAX", 1)
    rows = rows_of([" and ".join(f"(a{i} > 0 or b{i} < 0)" for i in range(8)), "a > 1", "a > 2"])
    assert notes_of_subscriber(rows) == [("unchecked", None), (None, None), ("redundant", "001")]


def test_a_subscriber_with_very_many_filters_is_compared_in_part(monkeypatch):
    monkeypatch.setattr(compare, "SUBSCRIBER_FILTERS_MAX", 2)
    rows = rows_of(f"x > {9 - i}" for i in range(4))
    assert [note for note, _ in notes_of_subscriber(rows)] == ["redundant", None, "unchecked", "unchecked"]


def test_subscribers_stay_whole_however_batches_are_cut():
    names = ["a", "a", "b", "c", "c", "c", "c", "d"]
    whole = pa.RecordBatch.from_arrays([pa.array(names), pa.array(range(8))], ["subscriber", "n"])
    for size in range(1, 9):
        cut = [whole.slice(start, size) for start in range(0, 8, size)]
        batches = list(whole_subscribers([cut[0].slice(0, 0), *cut]))
        assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(8))
        assert sum(len(set(batch.column("subscriber").to_pylist())) for batch in batches) == 4


def test_rows_of_one_id_stand_together_across_batches():
    """The first good row is taken, wherever batches end."""
    texts = ["x >", "x > 1", "x > 2", "x > 3"]
    nothing = {name: pa.nulls(4, pa.string()) for name in ("broker", "dialect", "$file")}
    columns = {
        "id": pa.array(["a", "a", "a", "b"]), "subscriber": pa.array(["s"] * 4), "filter": pa.array(texts),
        "expires": pa.nulls(4, pa.timestamp("us", "UTC")), "$row": pa.nulls(4, pa.int64()), **nothing,
    }  # fmt: skip
    whole = pa.RecordBatch.from_pydict(columns)
    for size in (1, 2, 3, 4):
        cut = [whole.slice(start, size) for start in range(0, 4, size)]
        rows = [row for batch in parsed_batches(cut) for row in batch.to_pylist()]
        assert [row["status"] for row in rows] == [None, "live", None, "live"]
        assert rows[2]["reason"] == "the id a stands twice"
        assert [row["text"] for row in rows] == ["x >", None, "x > 2", None]


# --- versions and shards ------------------------------------------------------------------------


def test_nothing_to_compile(spark, tmp_path):
    compiled_index = compile_subscriptions(spark.createDataFrame([], SCHEMA), tmp_path / "index", now=NOW)
    assert matched(compiled_index, {"x": 1}) == []
    assert compiled_index.counts["live"] == 0


def test_a_directory_that_is_not_an_index_is_an_error(spark, tmp_path, compiled):
    with pytest.raises(BadIndexError, match="catchment compile"):
        open_index(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadIndexError, match="something else"):
        index.begin(tmp_path)
    with pytest.raises(InputError, match="all workers see"):
        open_index("s3://bucket/index")
    copy = shutil.copytree(compiled.path, tmp_path / "copy")
    (copy / "CURRENT").write_text("x")
    with pytest.raises(BadIndexError, match="corrupt"):
        open_index(copy)
    (copy / "versions/1/manifest.json").write_text("{}")
    with pytest.raises(BadIndexError, match="no readable version 1"):
        open_index(copy, 1)


def test_a_failed_compilation_leaves_the_index(spark, tmp_path, monkeypatch):
    df = spark.createDataFrame(ROWS[:1], SCHEMA)
    first = compile_subscriptions(df, tmp_path / "index", now=NOW)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(jobs, "write_shards", fail)
    with pytest.raises(OSError, match="disk full"):
        compile_subscriptions(df, tmp_path / "index", now=NOW)
    assert open_index(tmp_path / "index") == first
    assert [path.name for path in (tmp_path / "index/versions").iterdir()] == ["1"]


def test_the_slower_of_two_writers_gets_an_error(tmp_path):
    first, second = index.begin(tmp_path), index.Draft(tmp_path, 1, tmp_path / "versions/.1.other.new")
    (second.directory / "shards").mkdir(parents=True)
    index.publish(first, (), {})
    with pytest.raises(BadIndexError, match="somebody else"):
        index.publish(second, (), {})


def test_shards_are_bounded(monkeypatch):
    assert [shards.shards_for(count, None) for count in (0, 1, 1_000_000, 1_000_001)] == [1, 1, 1, 2]
    with pytest.raises(LimitError, match="SHARDS_MAX"):
        shards.shards_for(1, 257)
    with pytest.raises(InputError, match="at least one"):
        shards.shards_for(1, 0)
    with pytest.raises(LimitError, match="compile the index again"):
        jobs.refuse_overfull(2_000_001, 1)


# --- changes ------------------------------------------------------------------------------------


def test_changes_make_versions_equal_to_compiling_anew(spark, tmp_path):
    texts = [str(filter) for filter in filters("W2", 300)]
    rows = [(f"s{i}", f"u{i % 40}", text) for i, text in enumerate(texts)]
    schema = "id string, subscriber string, filter string"
    first = compile_subscriptions(spark.createDataFrame(rows[:200], schema), tmp_path / "index", now=NOW, shards=3)
    # s5 is added again with another filter, s250 was never there, s6 is taken.
    removed = [("s0",), ("s5",), ("s17",), ("s250",)]
    added = [*rows[200:], ("s5", "u5", "price > 0"), ("s6", "u6", "price > 0")]
    second = change_subscriptions(
        first, added=spark.createDataFrame(added, schema), removed=spark.createDataFrame(removed, "id string"), now=NOW
    )
    assert (first.version, second.version) == (1, 2)
    kept = [row for row in rows if row[0] not in ("s0", "s5", "s17")] + [added[-2]]
    whole = compile_subscriptions(spark.createDataFrame(kept, schema), tmp_path / "whole", now=NOW)
    for notification in notifications("W2", 60):
        assert matched(second, notification) == matched(whole, notification)
    assertDataFrameEqual(
        spark.read.parquet(second.subscriptions).drop("other"), spark.read.parquet(whole.subscriptions).drop("other")
    )
    assert dict(second.counts) == {**whole.counts, "rejected": 2}
    reasons = sorted(row.reason for row in spark.read.parquet(second.rejects).collect())
    assert reasons == ["no subscription has the id s250", "the id s6 is taken: remove it first"]
    assert len(open_index(first.path, 1).shards) == 3


def test_only_shards_with_a_change_are_written(spark, tmp_path, compiled):
    copy = shutil.copytree(compiled.path, tmp_path / "index")
    rows = [(f"s{i}", "u", f"x = {i}") for i in range(20)]
    df = spark.createDataFrame(rows, "id string, subscriber string, filter string")
    first = compile_subscriptions(df, copy, now=NOW, shards=4)
    second = change_subscriptions(first, removed=spark.createDataFrame([("s3",)], "id string"), now=NOW)
    assert (first.version, second.version) == (2, 3)
    assert len(set(first.shards) & set(second.shards)) == 3
    assert matched(second, {"x": 3}) == []
    assert matched(second, {"x": 4}) == ["s4"]
    assert matched(open_index(copy, 2), {"x": 3}) == ["s3"]
    assert prune(copy) == [1, 2]
    assert matched(open_index(copy), {"x": 4}) == ["s4"]
    assert not Path(copy, "versions/1").exists()
    with pytest.raises(BadIndexError):
        open_index(copy, 2)


def test_a_change_drops_what_has_expired(spark, tmp_path, compiled):
    copy = shutil.copytree(compiled.path, tmp_path / "index")
    later = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
    nothing = spark.createDataFrame([], "id string")
    changed = change_subscriptions(copy, removed=nothing, now=later)
    assert catalogue(spark, changed)["a6"] == ("expired", None, None)
    assert matched(changed, {"s": "y"}) == []
    assert matched(compiled, {"s": "y"}) == ["a6"]
    with pytest.raises(InputError, match="adds or removes"):
        change_subscriptions(copy)
    with pytest.raises(InputError, match="column id"):
        change_subscriptions(copy, removed=spark.createDataFrame([], "name string"))
