"""Streams: what the in-process matcher finds, each notification once, whatever arrives."""

import json
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from catchment.errors import BadIndexError, InputError, UnavailableError
from catchment.model.notification import Notification
from tests.spark.given import lines, put, write_index

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from catchment.pipeline import NotificationFiles, match_stream, read_stream_output  # noqa: E402

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


class Place:
    """A directory that files arrive in, an index, and what comes out."""

    def __init__(self, spark, root):
        self.spark, self.root, self.source, self.out = spark, root, root / "in", root / "out"
        self.source.mkdir()
        self.index, self.matcher = write_index(root / "index", ["x > 1", "x > 2 and y = 'a'", "not exists(x)"])
        self.batches = []

    def run(self, source=None, **options):
        """Takes what is there, and ends."""
        given = source or NotificationFiles(str(self.source), **options.pop("files", {}))
        query = match_stream(
            given, self.root / "index", self.out, once=True, report=self.batches.append, spark=self.spark, **options
        )
        query.awaitTermination()
        return self

    def table(self, name="matched", *columns):
        found = read_stream_output(self.spark, self.out, name).collect()
        return sorted(tuple(row[one] for one in columns) for row in found)

    def found(self, name="matched"):
        return dict(self.table(name, "$id", "subscriptions"))

    def expected(self, notifications):
        return {one.id: self.matcher.match(one) for one in notifications}


@pytest.fixture
def place(spark, tmp_path):
    return Place(spark, tmp_path)


def some(rng, count, first=0, **envelope):
    def one(i):
        values = {"x": rng.randrange(5), "y": rng.choice("ab"), "d.e": rng.random() < 0.5}
        return Notification({k: v for k, v in values.items() if rng.random() < 0.8}, id=str(i), **envelope)

    return [one(first + i) for i in range(count)]


# --- what arrives -------------------------------------------------------------------------------


def test_json_in_several_batches_and_runs(place):
    rng, given = random.Random(1), []
    for number in range(3):
        rows = some(rng, 20, len(given))
        given += rows
        put(place.source, f"{number}.jsonl", lines(*rows))
        if number == 1:
            place.run(files={"files_max": 1})
    put(place.source, "x[1] y%20.jsonl", lines(Notification({"x": 4, "new": 1}, id="odd")))
    (place.source / "_hidden.jsonl").write_text('{"x": 3}')
    given.append(Notification({"x": 4, "new": 1}, id="odd"))
    place.run()
    assert place.found() == place.expected(given)
    assert [one.batch for one in place.batches] == list(range(len(place.batches)))
    assert sum(one.notifications for one in place.batches) == len(given)
    assert sum(one.matches for one in place.batches) == sum(map(len, place.found().values()))
    place.run()
    assert place.found() == place.expected(given)


def test_an_attribute_may_change_its_type(place):
    put(place.source, "1.jsonl", lines({"$id": "a", "x": 2}))
    place.run()
    put(place.source, "2.jsonl", lines({"$id": "b", "x": "2"}, {"$id": "c", "x": "3"}, {"$id": "d", "x": 2.5}))
    place.run()
    assert place.found() == {"a": ["s0"], "b": [], "c": [], "d": ["s0"]}
    assert place.table("matched", "$id", "x", "x:string", "x:float") == [
        ("a", 2, None, None),
        ("b", None, "2", None),
        ("c", None, "3", None),
        ("d", None, None, 2.5),
    ]


def test_other_formats(place):
    ce = {"specversion": "1.0", "type": "t", "source": "/s", "x": 3, "y": "a"}
    put(place.source, "1.json", json.dumps([ce | {"id": "1"}, ce | {"id": "2", "x": 0}, ce | {"id": ""}]))
    place.run(files={"format": "cloudevents"})
    assert place.found() == {"1": ["s0", "s1"], "2": []}
    rejects = [row[:2] for row in place.table("rejects", "row", "reason")]
    assert rejects == [(3, "a CloudEvent needs id as text, found ''")]


def test_csv_with_other_headers_and_a_bad_one(place):
    put(place.source, "1.csv", "$id,x,y\n1,3,a\n2,oops,a\n")
    put(place.source, "2.csv", "y,x,$id\na,2,3\n")
    put(place.source, "3.csv", "y,what,$id\na,2,4\n")
    place.run(files={"format": "csv", "types": {"x": "int", "y": "string"}})
    assert place.found() == {"1": ["s0", "s1"], "3": ["s0"]}
    rejects = place.table("rejects", "file", "row", "reason", "text")
    assert [(row[0][-5:], row[1], row[3]) for row in rejects] == [("1.csv", 2, "2,oops,a"), ("3.csv", None, None)]
    assert "'what' has no declared type" in rejects[1][2]


def parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_parquet_of_several_schemas_and_broken_ones(place):
    put(place.source, "1.parquet", parquet({"$id": ["1", "2"], "x": [3.0, float("nan")]}))
    put(place.source, "2.parquet", parquet({"$id": ["3"], "x": [3], "y": ["a"]}))
    put(place.source, "3.parquet", b"PAR1 this is none")
    put(place.source, "4.parquet", parquet({"$id": ["4"], "x": [[1]]}))
    broken = bytearray(parquet({"$id": [str(i) for i in range(5, 2000)], "x": list(range(5, 2000))}))
    broken[50:400] = bytes(350)
    put(place.source, "5.parquet", bytes(broken))
    place.run(files={"format": "parquet"})
    assert place.found() == {"1": ["s0"], "3": ["s0", "s1"]}
    rejects = {row[0][-9:]: row[1:] for row in place.table("rejects", "file", "row", "reason")}
    assert rejects["1.parquet"][0] == 2
    for name, word in (("3.parquet", "cannot be read"), ("4.parquet", "array"), ("5.parquet", "cannot be read")):
        assert rejects[name][0] is None
        assert word in rejects[name][1]
    assert len(rejects) == 4


def test_a_streaming_dataframe(place):
    source = place.root / "rows"
    source.mkdir()
    put(source, "1.json", lines({"n": 1, "x": 3, "l": [1]}, {"n": 2, "x": None}, {"n": 3, "x": "NaN", "l": [2]}))
    schema = "n int, x double, l array<int>"
    rows = place.spark.readStream.schema(schema).option("allowNonNumericNumbers", "true").json(str(source))
    with pytest.raises(InputError, match="array<int>"):
        place.run(rows)
    place.run(rows, attributes=["x"])
    assert place.table("matched", "n", "subscriptions") == [(1, ["s0"]), (2, ["s2"])]
    assert [json.loads(text)["n"] for (text,) in place.table("rejects", "text")] == [3]
    with pytest.raises(InputError, match="no stream"):
        match_stream(place.spark.range(1), place.index, place.out)
    with pytest.raises(InputError, match="column of times"):
        place.run(rows, attributes=["x"], late=timedelta(minutes=1))


# --- versions, late rows ------------------------------------------------------------------------


def test_a_new_version_is_picked_up_between_batches(place):
    for number in range(3):
        put(place.source, f"{number}.jsonl", lines({"$id": str(number), "x": 2}))

    def publish(batch):
        place.batches.append(batch)
        if batch.batch == 0:
            write_index(place.root / "index", ["x > 1", "x > 0"])

    files = NotificationFiles(str(place.source), files_max=1)
    query = match_stream(files, place.root / "index", place.out, once=True, report=publish, spark=place.spark)
    query.awaitTermination()
    assert place.table("matched", "$id", "subscriptions", "$version", "$batch") == [
        ("0", ["s0"], 1, 0),
        ("1", ["s0", "s1"], 2, 1),
        ("2", ["s0", "s1"], 2, 2),
    ]
    assert [one.version for one in place.batches] == [1, 2, 2]
    put(place.source, "3.jsonl", lines({"$id": "3", "x": 2}))
    query = match_stream(files, place.index, place.out, once=True, follow=False, spark=place.spark)
    query.awaitTermination()
    assert place.table("matched", "$id", "$version")[-1] == ("3", 1)


def test_late_rows_are_set_apart_and_not_lost(place):
    def at(id, minute, **values):
        moment = START + timedelta(minutes=minute)
        return Notification({"x": 2, "seen": moment} | values, id=id, time=moment)

    files = [
        [at("a", 0), at("b", -60)],
        [at("c", 30), at("d", -10), at("e", -11), Notification({"x": 2}, id="none")],
        [at("f", 20), at("g", 19)],
        [Notification({"x": 2}, id="h")],
        [at("i", 19)],
    ]
    for number, rows in enumerate(files):
        put(place.source, f"{number}.jsonl", lines(*rows))
    one_by_one = {"files_max": 1, "types": {"x": "int", "seen": "time"}}
    for _ in range(2):
        # The watermark survives a restart.
        place.run(files=one_by_one, late=timedelta(minutes=10))
    late = {"e": ["s0"], "g": ["s0"], "i": ["s0"]}
    assert place.found("late") == late
    assert place.found() == {id: ["s0"] for id in "abcdfh"} | {"none": ["s0"]}
    assert [one.late for one in place.batches] == [0, 1, 1, 0, 1]
    place.out = place.root / "named"
    place.run(files=one_by_one, late=timedelta(minutes=10), time="seen")
    assert place.found("late") == late


def test_a_stream_has_its_own_output(place):
    put(place.source, "0.jsonl", lines({"$id": "0", "x": 2}))
    place.run()
    with pytest.raises(Exception, match="belongs to another stream"):
        place.run(checkpoint=place.root / "other")
    with pytest.raises(InputError, match="no table of a stream"):
        read_stream_output(place.spark, place.out, "batches")
    assert place.table("late", "$batch") == []
    with pytest.raises(UnavailableError, match="no directory"):
        place.run(NotificationFiles(str(place.root / "none")))
    with pytest.raises(BadIndexError):
        match_stream(NotificationFiles(str(place.source)), place.root, place.out, spark=place.spark)


def test_plain_readers_see_whole_batches(place):
    duckdb = pytest.importorskip("duckdb")
    put(place.source, "0.jsonl", lines({"$id": "0", "x": 2}, {"$id": "1", "x": 3}))
    place.run(files={"types": {"x": "int"}})
    table = place.out / "matched"
    expected = [("0", ["s0"], 1, 0), ("1", ["s0"], 1, 0)]
    columns = ["$id", "subscriptions", "$version", "$batch"]
    rows = ds.dataset(table, partitioning="hive").to_table(columns=columns).to_pylist()
    assert [tuple(one.values()) for one in rows] == expected
    found = place.spark.read.parquet(str(table)).select(*(f"`{name}`" for name in columns)).collect()
    assert sorted(map(tuple, found)) == expected
    sql = f"""select "$id", subscriptions, "$version", "$batch" from
        read_parquet('{table}/**/*.parquet', hive_partitioning = true) order by 1"""
    assert duckdb.sql(sql).fetchall() == expected


# --- the command line ---------------------------------------------------------------------------


def test_command_line(place, run):
    put(place.source, "0.jsonl", lines({"$id": "0", "x": 2}, {"$id": "1"}) + "oops\n")
    asked = ("stream", place.source, "--index", place.root / "index", "-o", place.out, "--once", "--late", "10m")
    code, out, err = run(*asked)
    assert (code, "2 matched, 2 matches" in out, "1 rejected: see" in out) == (0, True, True)
    assert "index version 1" in err
    put(place.source, "1.jsonl", lines({"$id": "2", "x": 3}))
    code, out, err = run(*asked, "--json")
    batch, summary = map(json.loads, out.splitlines())
    assert (code, batch["batch"]["batch"], summary["summary"]["matched"]) == (0, 1, 1)
    assert place.found() == {"0": ["s0"], "1": ["s2"], "2": ["s0"]}
    code, _, err = run(*asked, "--checkpoint", place.root / "other")
    assert (code, "belongs to another stream" in err, "new output" in err) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["none"], "no directory"),
        (["."], "--format"),
        ([".", "--once", "--every", "5s"], "leave out --every"),
        ([".", "--time", "seen"], "give both"),
        ([".", "--late", "soon"], "--late"),
    ],
)
def test_command_line_complains(tmp_path, monkeypatch, run, arguments, word):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("stream", *arguments, "--index", "index", "-o", "out")
    assert (code, word in err) == (2, True)
