"""Rows matched on Spark equal rows matched in this process, whatever their types and however they are split."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from catchment.errors import InputError
from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.sim.benchmark_data import WORKLOADS, filters, notifications

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.testing import assertDataFrameEqual  # noqa: E402

from catchment.pipeline import index as indexes  # noqa: E402
from catchment.pipeline import (  # noqa: E402
    match,
    match_counts,
    match_explained,
    match_pairs,
    match_scattered,
    read_notifications,
    unmatched,
)
from catchment.pipeline.compile.jobs import compile_subscriptions  # noqa: E402
from catchment.pipeline.compile.shards import shard_of  # noqa: E402
from catchment.pipeline.match import shards as match_shards  # noqa: E402
from catchment.pipeline.match.worker import match_task  # noqa: E402

SCHEMA = "id string, subscriber string, filter string"
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def index_of(spark, path, texts, shards=None, prefix="s"):
    rows = [(f"{prefix}{i}", f"u{i % 10}", text) for i, text in enumerate(texts)]
    # The content graph has tests of its own.
    return compile_subscriptions(spark.createDataFrame(rows, SCHEMA), path, now=NOW, shards=shards, graph=False)


def quick_index(spark, path, texts, shards=1):
    """The same, written by this process alone, for tests of matching alone."""
    draft = indexes.begin(path)
    numbers = shard_numbers(spark, len(texts), shards) if shards > 1 else [0] * len(texts)
    for shard in range(shards):
        matcher = Matcher()
        for i, text in enumerate(texts):
            if numbers[i] == shard:
                matcher.add(f"s{i}", text)
        matcher.save(draft.directory / "shards" / f"{shard:04}")
    return indexes.publish(draft, tuple(map(draft.shard, range(shards))), {"live": len(texts)})


def shard_numbers(spark, count, shards):
    names = spark.createDataFrame([(i, f"s{i}") for i in range(count)], "i int, id string").coalesce(1)
    rows = names.select("i", shard_of(shards).alias("shard")).collect()
    return [row.shard for row in sorted(rows)]


def written(path, rows):
    """Writes rows as JSON Lines, each with an `$id`: the path, and the notifications."""
    stamped = [
        Notification(row, id=str(i)) if isinstance(row, dict) else row.stamped(id=str(i)) for i, row in enumerate(rows)
    ]
    path.write_text("\n".join(json.dumps(notification.to_json()) for notification in stamped))
    return str(path), stamped


def expected(spark, texts, rows, prefix="s"):
    """The matches that this process finds, as a DataFrame."""
    matcher = Matcher()
    matcher.add_many([f"{prefix}{i}" for i in range(len(texts))], list(texts))
    matches = [(notification.id, matcher.match(notification)) for notification in rows]
    return spark.createDataFrame(matches, "`$id` string, subscriptions array<string>")


# --- equal to this process ----------------------------------------------------------------------


# Ids that are too long for Arrow's views of strings go to Spark as strings.
LONG = "of the longer kind "


@pytest.mark.parametrize(
    ("workload", "shards", "prefix"), [(WORKLOADS[0], 1, "s"), (WORKLOADS[1], 3, LONG), (WORKLOADS[2], None, "s")]
)
def test_workloads(spark, tmp_path, workload, shards, prefix):
    texts = [str(filter) for filter in filters(workload, 400)]
    index = index_of(spark, tmp_path / "index", texts, shards, prefix)
    path, rows = written(tmp_path / "n.jsonl", notifications(workload, 300))
    matched = match(read_notifications(spark, path).rows, index)
    assertDataFrameEqual(matched.select("`$id`", "subscriptions"), expected(spark, texts, rows, prefix))


NAMES = ("p", "q", "r:int", "A", "a", "d.e", "$source", "$seq", "$time")


def random_value(rng):
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(5))
    return rng.choice(
        [rng.randrange(4), rng.randrange(4) / 2, rng.choice(["", "a", "ab", "ü"]), rng.random() < 0.5, moment]
    )


def random_notification(rng):
    attributes = {name: random_value(rng) for name in NAMES[:6] if rng.random() < 0.6}
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(5))
    return Notification(attributes, source=rng.choice(["a", None]), seq=rng.randrange(3), time=time, payload=b"\0")


def random_filter(rng):
    def constraint():
        name = rng.choice(NAMES)
        value = random_value(rng)
        order = ["=", "!="] if isinstance(value, bool) else ["=", "!=", "<", ">=", ">"]
        if rng.random() < 0.2:
            return (name, "any")
        if isinstance(value, str) and rng.random() < 0.4:
            return (name, rng.choice(["prefix", "suffix", "substring"]), value)
        return (name, rng.choice(order), value)

    conjunction = Filter.of(*(constraint() for _ in range(rng.randrange(1, 4))))
    return conjunction | Filter.of(constraint()) if rng.random() < 0.3 else conjunction


@pytest.mark.parametrize("seed", [1, 2])
def test_random_filters_on_mixed_types(spark, tmp_path, seed):
    rng = random.Random(seed)
    texts = [str(random_filter(rng)) for _ in range(150)]
    path, rows = written(tmp_path / "n.jsonl", [random_notification(rng) for _ in range(250)])
    index = quick_index(spark, tmp_path / "index", texts, shards=2)
    given = read_notifications(spark, path)
    assert {"p", "p:int", "p:bool", "p:time"} & set(given.rows.columns)
    matched = match(given.rows, index)
    assertDataFrameEqual(matched.select("`$id`", "subscriptions"), expected(spark, texts, rows))
    assert matched.columns == [*given.rows.columns, "subscriptions"]


def test_small_pieces_and_split_batches(spark, tmp_path, monkeypatch):
    """Run in this process, where the limits can be smaller."""
    texts = [f"x >= {i}" for i in range(40)]
    index = quick_index(spark, tmp_path / "index", texts, shards=2)
    rows = [{"x": i} for i in range(30)]
    df = spark.createDataFrame([(i,) for i in range(30)], "x long")
    task = replace(match_task(df, index, None), rows_max=7)
    monkeypatch.setattr(match_shards, "BATCH_MATCHES_MAX", 50)
    batch = df.toDF("c0").toArrow().combine_chunks().to_batches()[0]
    pieces = list(task.pieces([batch]))
    assert len(pieces) > 5
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(40)], texts)
    shards = match_shards.open_shards(task.shards)
    lists = [ids for _, matches in pieces for array in shards.lists(matches) for ids in array.to_pylist()]
    assert lists == [matcher.match(row) for row in rows]


# --- odd tables ---------------------------------------------------------------------------------


def test_rows_that_are_not_notifications_have_null(spark, tmp_path):
    index = quick_index(spark, tmp_path / "index", ["x > 1", "string x any"])
    rows = [
        (1, 2.0, None),
        (2, float("nan"), None),
        (3, None, "a"),
        (4, 5.0, "a"),
        (5, None, None),
        (6, float("inf"), None),
    ]
    df = spark.createDataFrame(rows, "n int, x double, `x:string` string")
    matches = {row.n: row.subscriptions for row in match(df, index).collect()}
    assert matches == {1: ["s0"], 2: None, 3: ["s1"], 4: None, 5: [], 6: None}


def test_wide_tables_whose_rows_have_few_values(spark, tmp_path):
    """All types, a payload, and rows that are not notifications among others."""
    names = [f"n{i}" for i in range(128)]
    schema = "`$time` timestamp, `$payload` binary, x double, `x:string` string, b boolean, " + ", ".join(
        f"`{name}` long" for name in names
    )
    texts = ["x > 1", "string x any", "$time < 2026-11-16", "b = true", "n7 = 9007199254740993", "not exists(n7)"]
    index = quick_index(spark, tmp_path / "index", texts, shards=2)
    rows: list[dict[str, object]] = [
        {"x": 2.0, "$time": NOW, "$payload": b"\0"},
        {"x": float("nan"), "n7": 1},
        {"x:string": "é", "b": True},
        {"x:string": "a", "x": 5.0},
        {},
        {"n7": 2**53 + 1, "b": False},
        {"n7": 2**53, "x": float("-inf")},
    ]
    fields = ["$time", "$payload", "x", "x:string", "b", *names]
    df = spark.createDataFrame([tuple(row.get(name) for name in fields) for row in rows], schema).coalesce(1)
    matched = match(df, index)
    kept = [tuple(row[:-1]) for row in matched.collect()]
    assert sorted(map(str, kept)) == sorted(str(tuple(row)) for row in df.collect())
    by_row = {(row["n7"], row["x:string"], str(row["x"])): row.subscriptions for row in matched.collect()}
    assert by_row == {
        (None, None, "2.0"): ["s0", "s2", "s5"],
        (1, None, "nan"): None,
        (None, "é", "None"): ["s1", "s3", "s5"],
        (None, "a", "5.0"): None,
        (None, None, "None"): ["s5"],
        (2**53 + 1, None, "None"): ["s4"],
        (2**53, None, "-inf"): None,
    }
    counts = {row.subscription: row["count"] for row in match_counts(df, index).collect()}
    assert counts == {"s0": 1, "s1": 1, "s2": 1, "s3": 1, "s4": 1, "s5": 3}


KINDS = "struct<string:string,int:bigint,float:double,bool:boolean,time:timestamp>"


def frame_with_map(spark, rows):
    """A table of times and of attributes in a map, with a column that cannot be an attribute."""
    place_of_type = {str: 0, int: 1, float: 2, bool: 3, datetime: 4}

    def struct(value):
        if value is None:
            return None
        return tuple(value if place == place_of_type[type(value)] else None for place in range(5))

    made = [
        (i, time, None if attributes is None else {name: struct(value) for name, value in attributes.items()}, [i])
        for i, (time, attributes) in enumerate(rows)
    ]
    return spark.createDataFrame(made, f"n int, `$time` timestamp, attributes map<string,{KINDS}>, l array<int>")


def test_a_map_of_attributes(spark, tmp_path):
    """All types, columns beside the map, a column that cannot be an attribute, nulls, rows that are not
    notifications."""
    texts = ["x > 1", "string x any", "$time < 2026-11-16", "b = true", "n7 = 9007199254740993", "not exists(n7)"]
    index = quick_index(spark, tmp_path / "index", texts, shards=2)
    rows = [
        (NOW, {"x": 2.0}),
        (None, {"x": float("nan"), "n7": 1}),
        (None, {"x": "é", "b": True}),
        (None, {"$id": "a", "x": 5.0}),
        (None, None),
        (None, {"n7": 2**53 + 1, "b": False, "y": None}),
        (None, {}),
    ]
    df = frame_with_map(spark, rows)
    chosen = ["$time", "attributes"]
    with pytest.raises(InputError, match="array<int>"):
        match(df, index)
    matched = match(df, index, chosen)
    assert matched.columns == [*df.columns, "subscriptions"]
    assertDataFrameEqual(matched.drop("subscriptions"), df)
    matches = {row.n: row.subscriptions for row in matched.collect()}
    wanted = {0: ["s0", "s2", "s5"], 1: None, 2: ["s1", "s3", "s5"], 3: None, 4: ["s5"], 5: ["s4"], 6: ["s5"]}
    assert matches == wanted
    counts = {row.subscription: row["count"] for row in match_counts(df, index, chosen).collect()}
    assert counts == {"s0": 1, "s1": 1, "s2": 1, "s3": 1, "s4": 1, "s5": 4}
    scattered = match_scattered(df, index, chosen, shards=1)
    assert {row.n: row.subscriptions for row in scattered.collect()} == wanted
    explained = match_explained(df, index, ["s0"], chosen)
    assert {row.n: row.matched for row in explained.collect()} == {
        n: None if ids is None else "s0" in ids for n, ids in wanted.items()
    }


def test_command_line_with_a_map(spark, tmp_path, run):
    quick_index(spark, tmp_path / "index", ["x > 1", "not exists(x)"])
    path, _ = written(tmp_path / "n.jsonl", [{"x": 2}, {"y": "a"}, {"x": "a"}])
    code, out, _ = run("match", path, "--index", str(tmp_path / "index"), "-o", str(tmp_path / "out"), "--map")
    assert (code, "2 matched, 2 matches" in out) == (0, True)
    matched = spark.read.parquet(str(tmp_path / "out" / "matched"))
    assert matched.columns == ["$id", "$source", "$time", "$seq", "$payload", "attributes", "subscriptions"]
    assert {row["$id"]: row.subscriptions for row in matched.collect()} == {"0": ["s0"], "1": ["s1"], "2": []}


def test_a_map_of_one_type(spark, tmp_path):
    index = quick_index(spark, tmp_path / "index", ["x > 1", "not exists(x)"])
    df = spark.createDataFrame([({"x": 2},), ({"x": None},), (None,)], "attributes map<string,int>")
    assert [row.subscriptions for row in match(df, index).collect()] == [["s0"], ["s1"], ["s1"]]
    df = spark.createDataFrame([({"x": [1]},)], "attributes map<string,array<int>>")
    with pytest.raises(InputError, match="map<string,array<int>>"):
        match(df, index)


def test_columns_of_other_types_pass_through(spark, tmp_path):
    index = quick_index(spark, tmp_path / "index", ["x > 1", "not exists(l)"])
    df = spark.createDataFrame([(2, [1, 2]), (None, None)], "x short, l array<int>")
    with pytest.raises(InputError, match="array<int>"):
        match(df, index)
    rows = match(df, index, attributes=["x"]).collect()
    assert sorted((row.x or 0, row.l, row.subscriptions) for row in rows) == [
        (0, None, ["s1"]),
        (2, [1, 2], ["s0", "s1"]),
    ]
    assert [row.subscriptions for row in match(df, index, attributes=[]).collect()] == [["s1"], ["s1"]]
    with pytest.raises(InputError, match="no column 'y'"):
        match(df, index, attributes=["y"])
    with pytest.raises(InputError, match="already"):
        match(df.withColumnRenamed("l", "subscriptions"), index)


def test_pairs_counts_and_unmatched(spark, tmp_path):
    index = quick_index(spark, tmp_path / "index", ["x > 1", "x > 2", "x > 100"])
    df = spark.createDataFrame([(i,) for i in range(5)], "x long")
    pairs = [(2, "s0"), (3, "s0"), (3, "s1"), (4, "s0"), (4, "s1")]
    assertDataFrameEqual(match_pairs(df, index), spark.createDataFrame(pairs, "x long, subscription string"))
    assertDataFrameEqual(
        match_counts(df, index), spark.createDataFrame([("s0", 3), ("s1", 2)], "subscription string, count long")
    )
    assertDataFrameEqual(unmatched(df, index), spark.createDataFrame([(0,), (1,)], "x long"))


def test_a_job_keeps_the_version_it_began_with(spark, tmp_path):
    path = tmp_path / "index"
    quick_index(spark, path, ["x > 1", "x > 2"])
    df = spark.createDataFrame([(5,)], "x long")
    old = match(df, path)
    quick_index(spark, path, ["x > 1"])
    assert old.collect()[0].subscriptions == ["s0", "s1"]
    assert match(df, path).collect()[0].subscriptions == ["s0"]


# --- the command line ---------------------------------------------------------------------------


def test_command_line(spark, tmp_path, run):
    lines = [{"id": f"s{i}", "subscriber": "u", "filter": f"x > {i}"} for i in range(3)]
    (tmp_path / "s.jsonl").write_text("\n".join([*map(json.dumps, lines), "oops"]))
    (tmp_path / "n.jsonl").write_text('{"x": 1}\n{"x": 3}\n{"y": \n{"y": 1}')
    code, out, err = run("compile", tmp_path / "s.jsonl", "-o", tmp_path / "index", "--json")
    assert (code, json.loads(out)["version"], json.loads(out)["live"]) == (0, 1, 3)
    assert "1 row" in err
    code, out, err = run("match", tmp_path / "n.jsonl", "--index", tmp_path / "index", "-o", tmp_path / "out", "--json")
    summary = json.loads(out)
    counts = {name: summary[name] for name in ("notifications", "matched", "matches", "rejected")}
    assert (code, counts) == (0, {"notifications": 3, "matched": 2, "matches": 4, "rejected": 1})
    assert summary.keys() == counts.keys() | {"index", "version", "output"}
    rows = spark.read.parquet(str(tmp_path / "out/matched")).collect()
    assert sorted((row.x or 0, row.subscriptions) for row in rows) == [(0, []), (1, ["s0"]), (3, ["s0", "s1", "s2"])]
    assert [row.row for row in spark.read.parquet(str(tmp_path / "out/rejects")).collect()] == [3]
    (tmp_path / "removed.csv").write_text("id\ns0\n")
    code, out, err = run("compile", "--remove", tmp_path / "removed.csv", "-o", tmp_path / "index")
    assert (code, "version 2" in out, "2 live" in out) == (0, True, True)
    code, out, _ = run(
        "match", tmp_path / "n.jsonl", "--index", tmp_path / "index", "-o", tmp_path / "counts", "--counts"
    )
    assert code == 0
    rows = spark.read.parquet(str(tmp_path / "counts/matched")).collect()
    assert sorted((row.subscription, row["count"]) for row in rows) == [("s1", 1), ("s2", 1)]


def test_command_line_complains(spark, tmp_path, run):
    code, _, err = run("match", tmp_path / "none.jsonl", "--index", tmp_path, "-o", tmp_path / "out")
    assert (code, "catchment compile" in err) == (1, True)
    code, _, err = run("compile", tmp_path / "none.jsonl", "-o", tmp_path / "index")
    assert (code, "no file" in err) == (1, True)
    code, _, err = run("compile", "-o", tmp_path / "index")
    assert (code, "--add" in err) == (2, True)
    code, _, err = run("compile", tmp_path / "s.xyz", "-o", tmp_path / "index")
    assert (code, "--format" in err) == (2, True)
