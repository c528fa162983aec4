"""The matches that workers write are those of `match`, with the same types, and a job that fails leaves nothing."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from catchment.errors import InputError, LimitError
from catchment.matching.lists import IdTexts

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.testing import assertDataFrameEqual  # noqa: E402

from catchment.pipeline import Written, match, write_matches  # noqa: E402
from catchment.pipeline.match import scattered, write  # noqa: E402
from catchment.pipeline.match.worker import match_task, with_numbered_columns  # noqa: E402
from catchment.pipeline.match.write import PartitionWriter  # noqa: E402
from catchment.pipeline.paths import file_system  # noqa: E402
from tests.spark.test_match import quick_index  # noqa: E402

TEXTS = ["x > 1", "string s any", "s >* 'a'", "x < 0", "not exists(x)"]
SCHEMA = (
    "`$time` timestamp, `$payload` binary, x bigint, `x:float` double, s string, b boolean, `dotted.name` string, "
    "day date, local timestamp_ntz, price decimal(20,4), small smallint, tiny tinyint, f float, "
    "m map<string,struct<a:int,b:array<string>>>, l array<struct<t:timestamp>>, o struct<p:struct<q:decimal(5,2)>>"
)
NOW = datetime(2026, 11, 15, 12, 30, 1, 234567, tzinfo=UTC)
SCALARS = NOW, b"\0\xff", 5, None, "ab", True, "é"
MORE_SCALARS = date(1066, 10, 14), datetime(1, 1, 1), Decimal("-1.0001"), -3, 7, 0.5
NESTED = {"k": (1, ["a", None])}, [(NOW,), None], ((Decimal("1.25"),),)
ROWS = [
    SCALARS + MORE_SCALARS + NESTED,
    (None, None, None, float("nan"), "", None, None, None, None, None, None, None, None, {}, [], None),
    (NOW, None, 2, 3.0, None, None, None, None, None, None, None, None, None, None, None, (None,)),
    (None, None, -(2**63), None, None, False, "", None, None, None, None, None, float("nan"), {"": None}, None, None),
    (None,) * 16,
]


@pytest.fixture(scope="module")
def index(spark, tmp_path_factory):
    return quick_index(spark, tmp_path_factory.mktemp("matched") / "index", TEXTS, shards=2)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_all_types_are_as_spark_writes_them(spark, index, tmp_path):
    given = spark.createDataFrame(ROWS, SCHEMA).repartition(2)
    columns = ["x", "x:float", "s", "b"]
    written = write_matches(given, index, tmp_path / "ours", columns)
    match(given, index, columns).write.parquet(str(tmp_path / "spark's"))
    ours, theirs = spark.read.parquet(str(tmp_path / "ours")), spark.read.parquet(str(tmp_path / "spark's"))
    assert ours.schema == theirs.schema
    assertDataFrameEqual(ours, theirs)
    # One row has two values of x, and one row has NaN: these two are not notifications.
    assert written == Written(notifications=5, matched=3, matches=5, bad=2)
    by_x = {row.x: row.subscriptions for row in ours.collect() if row["x:float"] is None}
    assert by_x == {5: ["s0", "s1", "s2"], -(2**63): ["s3"], None: ["s4"]}


def test_only_complete_files_and_a_mark_are_there(spark, index, tmp_path):
    given = spark.range(1000).select(F.col("id").alias("x")).repartition(3)
    assert write_matches(given, index, tmp_path / "out") == Written(1000, 998, 998, 0)
    mark, *parts = names(tmp_path / "out")
    assert mark == "_SUCCESS"
    assert [name[:10] for name in parts] == ["part-00000", "part-00001", "part-00002"]
    assert sorted(pq.read_table(tmp_path / "out")["x"].to_pylist()) == list(range(1000))


def test_nothing_to_match_is_a_file_without_rows(spark, index, tmp_path):
    given = spark.createDataFrame([], SCHEMA)
    assert write_matches(given, index, tmp_path / "out", ["x"]) == Written()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.schema.fields[:-1] == given.schema.fields
    assert (written.columns[-1], written.count()) == ("subscriptions", 0)


def test_spark_writes_what_workers_cannot(spark, index, tmp_path, monkeypatch):
    given = spark.range(3).select(F.col("id").alias("x"), F.expr("parse_json('[1]')").alias("v"))
    wanted = Written(3, 1, 1, 0)
    assert write_matches(given, index, tmp_path / "variant", ["x"]) == wanted
    assert spark.read.parquet(str(tmp_path / "variant")).schema["v"].dataType.typeName() == "variant"
    collated = spark.range(3).selectExpr("id as x", "'a' collate utf8_lcase as s")
    assert write_matches(collated, index, tmp_path / "collated", ["x"]) == wanted
    monkeypatch.setattr(scattered, "WORKER_SUBSCRIPTIONS_MAX", 2)
    assert write_matches(given.select("x"), index, tmp_path / "scattered") == wanted


def test_what_is_there_is_left_alone(spark, index, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="out is there already: name a new directory"):
        write_matches(spark.range(1), index, tmp_path / "out")
    with pytest.raises(InputError, match="column subscriptions already"):
        write_matches(spark.range(1).withColumnRenamed("id", "subscriptions"), index, tmp_path / "new")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="write its matches with match_stream"):
        write_matches(stream, index, tmp_path / "new")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == []


def test_a_job_that_fails_leaves_nothing(spark, index, tmp_path):
    given = spark.range(100).select(F.when(F.col("id") < 99, F.col("id")).otherwise(F.raise_error(F.lit("no"))))
    with pytest.raises(Exception, match="no"):
        write_matches(given.toDF("x"), index, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- in this process, where limits can be smaller -----------------------------------------------


def writer_of(spark, index, root, rows):
    """The writer that a worker gets, and rows of x and `x:string` in batches."""
    given = spark.createDataFrame(rows, "x bigint, `x:string` string").coalesce(1)
    task = replace(match_task(given, index, None), rows_max=7)
    schema = match(given, index).schema
    files, path = file_system(root)
    files.create_dir(f"{path}/_temporary")
    batch = with_numbered_columns(given).toArrow().combine_chunks().to_batches()[0]
    writer = PartitionWriter(task, tuple(schema.names), "", files, path)
    return writer, [batch.slice(start, 31) for start in range(0, batch.num_rows, 31)]


@pytest.mark.parametrize("limit", ["GROUP_ROWS", "GROUP_MATCHES", "GROUP_BYTES"])
def test_row_groups_are_bounded(spark, index, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(write, limit, 50)
    not_notifications = [(i, "a") for i in range(3)]
    writer, batches = writer_of(spark, index, tmp_path, [*((i, None) for i in range(300)), *not_notifications])
    (answer,) = list(writer(batches))
    assert answer.to_pylist()[0] | {"token": ""} == {
        "partition": 0,
        "token": "",
        "notifications": 303,
        "matched": 298,
        "matches": 298,
        "bad": 3,
    }
    (path,) = (tmp_path / "_temporary").iterdir()
    assert pq.ParquetFile(path).num_row_groups > 3
    rows = pq.read_table(path).to_pylist()
    assert [row["x"] for row in rows] == [*range(300), 0, 1, 2]
    assert [row["subscriptions"] for row in rows] == [[], [], *([["s0"]] * 298), None, None, None]


def test_ids_too_long_for_one_dictionary_make_several_groups(spark, index, tmp_path, monkeypatch):
    """As if a dictionary could hold one text: rows with different ids are in different row groups."""
    texts = IdTexts.texts
    monkeypatch.setattr(IdTexts, "texts", lambda self, ranks: texts(self, ranks) if len(ranks) <= 1 else None)
    xs = [*[-5] * 31, *[5] * 31, *[-5] * 31]
    writer, batches = writer_of(spark, index, tmp_path, [(x, None) for x in xs])
    assert len(list(writer(batches))) == 1
    (path,) = (tmp_path / "_temporary").iterdir()
    assert pq.ParquetFile(path).num_row_groups > 2
    assert pq.read_table(path)["subscriptions"].to_pylist() == [["s3"] if x < 0 else ["s0"] for x in xs]
    monkeypatch.setattr(IdTexts, "texts", lambda self, ranks: None)
    with pytest.raises(LimitError, match="use shorter ids"):
        list(writer(batches))


def test_of_two_attempts_one_counts(spark, index, tmp_path, monkeypatch):
    """Spark may run a task twice, and takes one answer: the file of the other attempt is not in the result."""
    given = spark.range(10).select(F.col("id").alias("x")).coalesce(1)
    write_partition = PartitionWriter.__call__

    def write_twice(self, batches):
        batches = list(batches)
        list(write_partition(self, batches))
        yield from write_partition(self, batches)

    monkeypatch.setattr(PartitionWriter, "__call__", write_twice)
    files_written = []

    class Answers:
        """Runs the task in this process when its answer is collected."""

        def __init__(self, writer):
            self.writer = writer

        def collect(self):
            batches = with_numbered_columns(given).toArrow().combine_chunks().to_batches()
            (answer,) = list(self.writer(batches))
            files_written.append(len(list((tmp_path / "out/_temporary").iterdir())))
            return answer.to_pylist()

    class Frame:
        def mapInArrow(self, writer, schema):  # noqa: N802  # PySpark's name
            return Answers(writer)

    monkeypatch.setattr(write, "planned", lambda *arguments: (Frame(), match_task(*arguments)))
    assert write_matches(given, index, tmp_path / "out") == Written(10, 8, 8, 0)
    assert files_written == [2]
    assert len(names(tmp_path / "out")) == 2
    assert spark.read.parquet(str(tmp_path / "out")).count() == 10


def test_a_directory_that_workers_do_not_see_is_an_error(spark, index, tmp_path):
    writer, batches = writer_of(spark, index, tmp_path, [(5, None)])
    (tmp_path / "_temporary").rmdir()
    with pytest.raises(InputError, match="name a directory that all machines of the cluster see"):
        list(writer(batches))
