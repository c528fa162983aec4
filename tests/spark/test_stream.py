"""Streams match as the matcher in this process does, with each notification in the output once, whatever arrives."""

import json
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from catchment.errors import BadIndexError, InputError, UnavailableError
from catchment.model.notification import Notification
from tests.spark.samples import json_lines, put_file, write_index

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from catchment.pipeline import NotificationFiles, match_stream, read_stream_output  # noqa: E402

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


class StreamSetup:
    """A directory that files arrive in, an index, and the output of a stream."""

    def __init__(self, spark, root):
        self.spark, self.root, self.source, self.out = spark, root, root / "in", root / "out"
        self.source.mkdir()
        self.index, self.matcher = write_index(root / "index", ["x > 1", "x > 2 and y = 'a'", "not exists(x)"])
        self.batches = []

    def run(self, source=None, **options):
        """Runs a stream that takes what is there, and ends."""
        given = source or NotificationFiles(str(self.source), **options.pop("files", {}))
        query = match_stream(
            given, self.root / "index", self.out, once=True, report=self.batches.append, spark=self.spark, **options
        )
        query.awaitTermination()
        return self

    def table(self, name="matched", *columns):
        rows = read_stream_output(self.spark, self.out, name).collect()
        return sorted(tuple(row[column] for column in columns) for row in rows)

    def matches(self, name="matched"):
        return dict(self.table(name, "$id", "subscriptions"))

    def expected(self, notifications):
        return {notification.id: self.matcher.match(notification) for notification in notifications}


@pytest.fixture
def stream(spark, tmp_path):
    return StreamSetup(spark, tmp_path)


def some_notifications(rng, count, first=0):
    def notification(i):
        values = {"x": rng.randrange(5), "y": rng.choice("ab"), "d.e": rng.random() < 0.5}
        return Notification({name: value for name, value in values.items() if rng.random() < 0.8}, id=str(i))

    return [notification(first + i) for i in range(count)]


# --- what arrives -------------------------------------------------------------------------------


def test_json_in_several_batches_and_runs(stream):
    rng = random.Random(1)
    given: list[Notification] = []
    for number in range(3):
        rows = some_notifications(rng, 20, len(given))
        given += rows
        put_file(stream.source, f"{number}.jsonl", json_lines(*rows))
        if number == 1:
            stream.run(files={"files_max": 1})
    put_file(stream.source, "x[1] y%20.jsonl", json_lines(Notification({"x": 4, "new": 1}, id="odd")))
    (stream.source / "_hidden.jsonl").write_text('{"x": 3}')
    given.append(Notification({"x": 4, "new": 1}, id="odd"))
    stream.run()
    assert stream.matches() == stream.expected(given)
    assert [record.batch for record in stream.batches] == list(range(len(stream.batches)))
    assert sum(record.notifications for record in stream.batches) == len(given)
    assert sum(record.matches for record in stream.batches) == sum(map(len, stream.matches().values()))
    stream.run()
    assert stream.matches() == stream.expected(given)


def test_an_attribute_may_change_its_type(stream):
    put_file(stream.source, "1.jsonl", json_lines({"$id": "a", "x": 2}))
    stream.run()
    put_file(
        stream.source, "2.jsonl", json_lines({"$id": "b", "x": "2"}, {"$id": "c", "x": "3"}, {"$id": "d", "x": 2.5})
    )
    stream.run()
    assert stream.matches() == {"a": ["s0"], "b": [], "c": [], "d": ["s0"]}
    assert stream.table("matched", "$id", "x", "x:string", "x:float") == [
        ("a", 2, None, None),
        ("b", None, "2", None),
        ("c", None, "3", None),
        ("d", None, None, 2.5),
    ]


def test_other_formats(stream):
    ce = {"specversion": "1.0", "type": "t", "source": "/s", "x": 3, "y": "a"}
    put_file(stream.source, "1.json", json.dumps([ce | {"id": "1"}, ce | {"id": "2", "x": 0}, ce | {"id": ""}]))
    stream.run(files={"format": "cloudevents"})
    assert stream.matches() == {"1": ["s0", "s1"], "2": []}
    ((row, reason),) = stream.table("rejects", "row", "reason")
    assert (row, reason[:12]) == (3, "a CloudEvent")


def test_csv_with_other_headers_and_a_bad_one(stream):
    put_file(stream.source, "1.csv", "$id,x,y\n1,3,a\n2,oops,a\n")
    put_file(stream.source, "2.csv", "y,x,$id\na,2,3\n")
    put_file(stream.source, "3.csv", "y,what,$id\na,2,4\n")
    stream.run(files={"format": "csv", "types": {"x": "int", "y": "string"}})
    assert stream.matches() == {"1": ["s0", "s1"], "3": ["s0"]}
    rejects = stream.table("rejects", "file", "row", "reason", "text")
    assert [(row[0][-5:], row[1], row[3]) for row in rejects] == [("1.csv", 2, "2,oops,a"), ("3.csv", None, None)]
    assert "'what' has no declared type" in rejects[1][2]


def parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_parquet_of_several_schemas_and_broken_ones(stream):
    put_file(stream.source, "1.parquet", parquet({"$id": ["1", "2"], "x": [3.0, float("nan")]}))
    put_file(stream.source, "2.parquet", parquet({"$id": ["3"], "x": [3], "y": ["a"]}))
    put_file(stream.source, "3.parquet", b"PAR1 this is none")
    put_file(stream.source, "4.parquet", parquet({"$id": ["4"], "x": [[1]]}))
    broken = bytearray(parquet({"$id": [str(i) for i in range(5, 2000)], "x": list(range(5, 2000))}))
    broken[50:400] = bytes(350)
    put_file(stream.source, "5.parquet", bytes(broken))
    stream.run(files={"format": "parquet"})
    assert stream.matches() == {"1": ["s0"], "3": ["s0", "s1"]}
    rejects = {row[0][-9:]: row[1:] for row in stream.table("rejects", "file", "row", "reason")}
    assert rejects["1.parquet"][0] == 2
    for name, word in (("3.parquet", "cannot be read"), ("4.parquet", "array"), ("5.parquet", "cannot be read")):
        assert rejects[name][0] is None
        assert word in rejects[name][1]
    assert len(rejects) == 4


def test_a_streaming_dataframe(stream):
    source = stream.root / "rows"
    source.mkdir()
    put_file(
        source, "1.json", json_lines({"n": 1, "x": 3, "l": [1]}, {"n": 2, "x": None}, {"n": 3, "x": "NaN", "l": [2]})
    )
    schema = "n int, x double, l array<int>"
    rows = stream.spark.readStream.schema(schema).option("allowNonNumericNumbers", "true").json(str(source))
    with pytest.raises(InputError, match="array<int>"):
        stream.run(rows)
    stream.run(rows, attributes=["x"])
    assert stream.table("matched", "n", "subscriptions") == [(1, ["s0"]), (2, ["s2"])]
    assert [json.loads(text)["n"] for (text,) in stream.table("rejects", "text")] == [3]
    with pytest.raises(InputError, match="not a stream"):
        match_stream(stream.spark.range(1), stream.index, stream.out)
    with pytest.raises(InputError, match="column of times"):
        stream.run(rows, attributes=["x"], late=timedelta(minutes=1))


# --- versions, late rows ------------------------------------------------------------------------


def test_a_new_version_is_picked_up_between_batches(stream):
    for number in range(3):
        put_file(stream.source, f"{number}.jsonl", json_lines({"$id": str(number), "x": 2}))

    def publish(record):
        stream.batches.append(record)
        if record.batch == 0:
            write_index(stream.root / "index", ["x > 1", "x > 0"])

    files = NotificationFiles(str(stream.source), files_max=1)
    query = match_stream(files, stream.root / "index", stream.out, once=True, report=publish, spark=stream.spark)
    query.awaitTermination()
    assert stream.table("matched", "$id", "subscriptions", "$version", "$batch") == [
        ("0", ["s0"], 1, 0),
        ("1", ["s0", "s1"], 2, 1),
        ("2", ["s0", "s1"], 2, 2),
    ]
    assert [record.version for record in stream.batches] == [1, 2, 2]
    put_file(stream.source, "3.jsonl", json_lines({"$id": "3", "x": 2}))
    query = match_stream(files, stream.index, stream.out, once=True, follow=False, spark=stream.spark)
    query.awaitTermination()
    assert stream.table("matched", "$id", "$version")[-1] == ("3", 1)


def test_late_rows_are_set_apart_and_not_lost(stream):
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
        put_file(stream.source, f"{number}.jsonl", json_lines(*rows))
    one_file_a_batch = {"files_max": 1, "types": {"x": "int", "seen": "time"}}
    for _ in range(2):
        # The watermark survives a restart.
        stream.run(files=one_file_a_batch, late=timedelta(minutes=10))
    late = {"e": ["s0"], "g": ["s0"], "i": ["s0"]}
    assert stream.matches("late") == late
    assert stream.matches() == {id: ["s0"] for id in "abcdfh"} | {"none": ["s0"]}
    assert [record.late for record in stream.batches] == [0, 1, 1, 0, 1]
    stream.out = stream.root / "named"
    stream.run(files=one_file_a_batch, late=timedelta(minutes=10), time="seen")
    assert stream.matches("late") == late


def test_a_stream_has_its_own_output(stream):
    put_file(stream.source, "0.jsonl", json_lines({"$id": "0", "x": 2}))
    stream.run()
    with pytest.raises(Exception, match="belongs to another stream"):
        stream.run(checkpoint=stream.root / "other")
    with pytest.raises(InputError, match="not a table of a stream"):
        read_stream_output(stream.spark, stream.out, "batches")
    assert stream.table("late", "$batch") == []
    with pytest.raises(UnavailableError, match="no directory"):
        stream.run(NotificationFiles(str(stream.root / "none")))
    with pytest.raises(BadIndexError):
        match_stream(NotificationFiles(str(stream.source)), stream.root, stream.out, spark=stream.spark)


def test_other_readers_see_whole_batches(stream):
    duckdb = pytest.importorskip("duckdb")
    put_file(stream.source, "0.jsonl", json_lines({"$id": "0", "x": 2}, {"$id": "1", "x": 3}))
    stream.run(files={"types": {"x": "int"}})
    table = stream.out / "matched"
    expected = [("0", ["s0"], 1, 0), ("1", ["s0"], 1, 0)]
    columns = ["$id", "subscriptions", "$version", "$batch"]
    rows = ds.dataset(table, partitioning="hive").to_table(columns=columns).to_pylist()
    assert [tuple(row.values()) for row in rows] == expected
    read_by_spark = stream.spark.read.parquet(str(table)).select(*(f"`{name}`" for name in columns)).collect()
    assert sorted(map(tuple, read_by_spark)) == expected
    sql = f"""select "$id", subscriptions, "$version", "$batch" from
        read_parquet('{table}/**/*.parquet', hive_partitioning = true) order by 1"""
    assert duckdb.sql(sql).fetchall() == expected


# --- the command line ---------------------------------------------------------------------------


def test_command_line(stream, run):
    put_file(stream.source, "0.jsonl", json_lines({"$id": "0", "x": 2}, {"$id": "1"}) + "oops\n")
    command = ("stream", stream.source, "--index", stream.root / "index", "-o", stream.out, "--once", "--late", "10m")
    code, out, err = run(*command)
    assert (code, "2 matched, 2 matches" in out, "1 rejected: see" in out) == (0, True, True)
    assert "index version 1" in err
    put_file(stream.source, "1.jsonl", json_lines({"$id": "2", "x": 3}))
    code, out, err = run(*command, "--json")
    batch, summary = map(json.loads, out.splitlines())
    assert (code, batch["batch"]["batch"], summary["summary"]["matched"]) == (0, 1, 1)
    assert stream.matches() == {"0": ["s0"], "1": ["s2"], "2": ["s0"]}
    code, _, err = run(*command, "--checkpoint", stream.root / "other")
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
