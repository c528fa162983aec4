"""Commands that run on Spark, and the jobs behind them that have no module of tests of their own."""

import json
import random
import threading
from datetime import UTC, datetime, timedelta

import pytest

from catchment.cli import main
from catchment.cli.spark.progress import ActiveStage, RowRate, active_stages
from catchment.errors import BadIdError, InputError
from catchment.matching import Matcher
from catchment.model.notification import Notification

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.testing import assertDataFrameEqual  # noqa: E402

from catchment.pipeline import index as indexes  # noqa: E402
from catchment.pipeline import (  # noqa: E402
    match,
    match_counts,
    match_explained,
    match_scattered,
)
from catchment.pipeline.match import scattered  # noqa: E402

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


def write_index(path, texts, shards=1):
    """An index made by this process: ids go to shards in turn."""
    draft = indexes.begin(path)
    for shard in range(shards):
        matcher = Matcher()
        for i in range(shard, len(texts), shards):
            matcher.add(f"s{i}", texts[i])
        matcher.save(draft.directory / "shards" / f"{shard:04}")
    return indexes.publish(draft, tuple(map(draft.shard, range(shards))), {"live": len(texts)})


# --- an index in parts --------------------------------------------------------------------------


def test_scattered_equals_match(spark, tmp_path):
    rng = random.Random(3)
    texts = [f"x > {rng.randrange(6)} and `d.e` = {rng.randrange(3)}" for _ in range(60)] + ["not exists(x)"]
    index = write_index(tmp_path / "index", texts, shards=5)
    rows: list[tuple[float | None, int | None, list[int] | None]] = [
        (rng.choice([None, *range(6)]), rng.choice([None, 0, 1, 2]), [i % 3]) for i in range(100)
    ]
    # Equal rows, rows that differ in where null is, a row that is no notification, and columns that are not matched on.
    rows += [(1, None, [1]), (None, 1, [1]), (1, None, None), (float("nan"), 1, None), (float("nan"), 1, None)]
    given = spark.createDataFrame([(None if x is None else float(x), *rest) for x, *rest in rows + rows[:50]], SCHEMA)
    expected = match(given, index, attributes=["x", "d.e"])
    for shards in (1, 2, 5):
        matched = match_scattered(given, index, ["x", "d.e"], shards=shards)
        assert matched.schema.simpleString() == expected.schema.simpleString()
        assertDataFrameEqual(matched, expected)
    with pytest.raises(InputError, match="at least one"):
        match_scattered(given, index, shards=0)


SCHEMA = "x double, `d.e` bigint, l array<int>"


def test_match_scatters_past_a_stated_size(spark, tmp_path, monkeypatch):
    texts = [f"x > {i}" for i in range(12)]
    index = write_index(tmp_path / "index", texts, shards=4)
    given = spark.createDataFrame([(i,) for i in range(20)], "x long")
    assert scattered.shards_per_task(index) is None
    asked = []

    def asking(notifications, index, attributes, shards):
        asked.append(shards)
        return match_scattered(notifications, index, attributes, shards)

    monkeypatch.setattr(scattered, "WORKER_SUBSCRIPTIONS_MAX", 7)
    monkeypatch.setattr(scattered, "match_scattered", asking)
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(12)], texts)
    matched = {row.x: row.subscriptions for row in match(given, index).collect()}
    assert matched == {x: matcher.match({"x": x}) for x in range(20)}
    assert asked == [2]
    counts = {row.subscription: row["count"] for row in match_counts(given, index).collect()}
    assert counts == {f"s{i}": 19 - i for i in range(12)}


def test_counts_in_parts(spark, tmp_path):
    """Rows that are equal count each; one that is no notification counts for nobody."""
    index = write_index(tmp_path / "index", [f"x > {i}" for i in range(9)] + ["not exists(x)"], shards=5)
    rows = [(float(i % 7), 1, None) for i in range(40)] + [(None, 1, None), (float("nan"), 1, None)]
    given = spark.createDataFrame(rows, SCHEMA)
    for shards in (1, 2, 5):
        partial = scattered.counts_scattered(given, index, ["x"], shards)
        counts = partial.groupBy("subscription").agg(F.sum("count").alias("count"))
        assertDataFrameEqual(counts, match_counts(given, index, ["x"]))


def test_a_task_opens_only_its_part(tmp_path):
    index = write_index(tmp_path / "index", ["x > 0"] * 5, shards=5)
    parts = scattered.index_parts(index, 2)
    assert [len(part.shards) for part in parts] == [2, 2, 1]
    assert [shard for part in parts for shard in part.shards] == list(index.shards)


# --- explanations -------------------------------------------------------------------------------


def test_explained_rows_agree_with_match(spark, tmp_path):
    index = write_index(tmp_path / "index", ["x > 1 and y = 'a'", "`d.e` any", "x = 1 or x = 2"], shards=2)
    rows = [(1, 2.0, "a", 1), (2, 1.0, "b", None), (3, float("nan"), "a", 1), (4, None, None, None)]
    given = spark.createDataFrame(rows, "n int, x double, y string, `d.e` bigint")
    names = ["x", "y", "d.e"]
    matched = {row.n: row.subscriptions for row in match(given, index, names).collect()}
    explained = match_explained(given, index, ["s2", "s0"], names).collect()
    assert len(explained) == 8
    for row in explained:
        ids = matched[row.n]
        assert row.matched is (None if ids is None else row.subscription in ids)
        assert row.reason
        assert (row.explanation is None) == (ids is None)
    (why,) = [json.loads(row.explanation) for row in explained if (row.n, row.subscription) == (2, "s0")]
    assert [clause["held"] for clause in why["alternatives"][0]["clauses"]] == [False, False]
    with pytest.raises(BadIdError, match="'s9'"):
        match_explained(given, index, ["s9"], names)
    with pytest.raises(InputError, match="already"):
        match_explained(given.withColumnRenamed("y", "reason"), index, ["s0"], ["x"])


def test_match_explain_command(tmp_path, run):
    write_index(tmp_path / "index", ["x > 1", "x > 2"])
    (tmp_path / "n.jsonl").write_text('{"$id": "a", "x": 2}\n')
    asked = ("match", tmp_path / "n.jsonl", "--index", tmp_path / "index")
    code, out, _ = run(*asked, "-o", tmp_path / "out", "--explain", "s0", "--explain", "s1")
    assert (code, out.splitlines()[:2]) == (0, ["a s0: match: x > 1", "a s1: no match: x: value 2 is not > 2"])
    code, _, err = run(*asked, "-o", tmp_path / "none", "--explain", "zz")
    assert (code, "'zz'" in err) == (1, True)
    code, _, err = run(*asked, "-o", tmp_path / "none", "--explain", "s0", "--pairs")
    assert (code, "--explain" in err) == (2, True)


# --- archives and patterns ----------------------------------------------------------------------


def written(path, count, **more):
    rows = [
        Notification({"kind": "ABC"[i % 3], "d.e": i % 2} | more, id=str(i), time=START + timedelta(hours=i))
        for i in range(count)
    ]
    path.write_text("\n".join([*(json.dumps(row.to_json()) for row in rows), "oops"]))
    return rows


def test_archive_compact_check_and_detect(spark, tmp_path, run):
    written(tmp_path / "n.jsonl", 24)
    archive = tmp_path / "an archive"
    for _ in range(2):
        code, out, err = run("archive", tmp_path / "n.jsonl", "-o", archive, "--json")
        assert (code, json.loads(out)["archived"], json.loads(out)["rejected"]) == (0, 24, 1)
        assert "1 row is not a notification" in err
    code, out, _ = run("compact", archive)
    assert (code, "2 days compacted" in out) == (0, True)
    code, out, _ = run("compact", archive, "--json")
    assert (code, json.loads(out)["days"]) == (0, [])
    code, out, _ = run("check", "`d.e` = 1", "--on", archive, "--from", "2026-11-15T20:30:00Z", "--to", "2026-11-16")
    assert (code, "4 of 8 would have matched, in 1 days" in out) == (0, True), out
    pattern = "[kind = 'A'] -> [kind = 'B'] within 1h by `d.e`"
    code, out, err = run("detect", "[kind = 'A'] -> [kind = 'C'] within 2h by `d.e`", "--on", archive, "--json")
    sequences = [json.loads(line) for line in out.splitlines()]
    assert (code, f"{len(sequences)} sequences" in err) == (0, True)
    assert [notification["$id"] for notification in sequences[0]["notifications"]] == ["0", "2"]
    assert sequences[0]["key"] == {"d.e": 0}
    (tmp_path / "patterns").write_text(f'{pattern}\n\n{{"id": "p", "pattern": "[kind = \'A\']"}}\n')
    asked = ("detect", "--file", tmp_path / "patterns", "--on", tmp_path / "n.jsonl")
    code, out, err = run(*asked, "-o", tmp_path / "out")
    assert (code, "written to" in out, "1 row is not a notification" in err) == (0, True, True)
    assert spark.read.parquet(str(tmp_path / "out/found")).count() > 0
    assert [(row.row, row.text) for row in spark.read.parquet(str(tmp_path / "out/rejects")).collect()] == [
        (25, "oops")
    ]
    code, out, err = run(*asked, "-o", tmp_path / "again", "--json")
    assert (code, json.loads(out)) == (0, {"rejected": 1, "output": str(tmp_path / "again")})
    code, out, err = run(*asked)
    assert (code, "1 row is not a notification" in err) == (0, True)


def test_detect_as_files_arrive(spark, tmp_path, run):
    pytest.importorskip("google.protobuf", reason="state of Spark's streams needs protobuf")
    source = tmp_path / "in"
    source.mkdir()
    written(source / "n.jsonl", 12)
    asked = ("detect", "[kind = 'A'] -> [kind = 'C'] by `d.e`", "--on", source, "--stream", "--once", "--late", "1m")
    types = ("--types", "kind:string,d.e:int")
    code, _, err = run(*asked, "-o", tmp_path / "out")
    assert (code, "declare the types" in err) == (1, True)
    code, _, err = run(*asked, *types, "-o", tmp_path / "out")
    assert code == 0, err
    end = Notification({"kind": "Z"}, time=START + timedelta(days=9))
    (source / "end.jsonl").write_text(json.dumps(end.to_json()))
    code, _, err = run(*asked, *types, "-o", tmp_path / "out")
    assert code == 0, err
    sequences = spark.read.parquet(str(tmp_path / "out/found")).collect()
    expected = run("detect", "[kind = 'A'] -> [kind = 'C'] by `d.e`", "--on", source, "--json")[1].splitlines()
    assert sorted(row.notifications for row in sequences) == sorted(
        [json.dumps(notification) for notification in json.loads(line)["notifications"]] for line in expected
    )
    assert [(row.row, row.text) for row in spark.read.parquet(str(tmp_path / "out/rejects")).collect()] == [
        (13, "oops")
    ]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["detect", "--on", "."], "--file"),
        (["detect", "[a", "--on", "."], "PATTERN, column"),
        (["detect", "[a = 1]", "--on", ".", "--stream"], "-o"),
        (["detect", "[a = 1]", "--on", "none", "--stream", "-o", "out"], "no directory"),
        (["detect", "[a = 1]", "--on", ".", "--late", "5m"], "--stream"),
        (["detect", "[a = 1]", "--on", ".", "--format", "json", "--from", "2026-11-15"], "archives"),
        (["detect", "--file", "none", "--on", "."], "--file none"),
        (["detect", "--file", "bad", "--on", "."], "line 1"),
        (["check", "a = 1", "--from", "2026-11-15"], "--on"),
        (["compact", "."], "not an archive"),
        (["archive", "n.xyz", "-o", "a"], "--format"),
    ],
)
def test_commands_complain(tmp_path, monkeypatch, capsys, arguments, word):
    """Before Spark starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_text('{"id": 1}')
    code, err = main(arguments), capsys.readouterr().err
    assert (code, word in err) == (2, True), err


# --- progress -----------------------------------------------------------------------------------


def test_stages_that_run_say_how_many_rows(spark):
    """Spark's store of its status is there without its page."""
    seen = []
    started = threading.Event()

    def watch():
        started.set()
        while started.is_set():
            seen.extend(active_stages(spark))

    watcher = threading.Thread(target=watch)
    watcher.start()
    started.wait()
    try:
        spark.range(0, 2_000_000, 1, 4).selectExpr("count_if(sha2(cast(id as string), 256) like 'a%')").collect()
    finally:
        started.clear()
        watcher.join()
    assert {stage.tasks for stage in seen} >= {4}
    assert active_stages(spark) == []


def test_rows_and_rate():
    rows = RowRate()
    rows.update([ActiveStage(1, 4, 1, 0)], 10.0)
    assert str(rows) == ""
    rows.update([ActiveStage(1, 4, 1, 2_000), ActiveStage(2, 4, 1, 5)], 10.8)
    assert str(rows) == "2,000 rows, 2,000/s"
    rows.update([ActiveStage(7, 4, 1, 1_000)], 20.0)
    assert str(rows) == "1,000 rows, 5,000/s"
