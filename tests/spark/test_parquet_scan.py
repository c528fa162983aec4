"""Workers that read Parquet themselves get the rows that Spark would have given them. Where they might read a file
differently from Spark, they do not read it."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.testing import assertDataFrameEqual  # noqa: E402

from catchment.errors import InputError  # noqa: E402
from catchment.pipeline import match, match_counts, match_pairs, write_matches  # noqa: E402
from catchment.pipeline.match import parquet_scan  # noqa: E402
from catchment.pipeline.match.parquet_scan import (  # noqa: E402
    UNUSUAL_SETTINGS,
    WORKERS_READ_PARQUET,
    ParquetScan,
    RowGroup,
    is_same_type,
    scan_of,
    tasks_of,
)
from tests.spark.test_match import quick_index  # noqa: E402

ROWS = 1_000


@pytest.fixture(scope="module")
def index(spark, tmp_path_factory):
    texts = ["x > 500", "x < 100", "name = 'n7'", "`a.b` = 'y'", "price > 3.5", "is_hot = true", "level in (1, 2)"]
    return quick_index(spark, tmp_path_factory.mktemp("scans") / "index", texts)


def table(start=0, count=ROWS):
    numbers = range(start, start + count)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "x": pa.array([i if i % 5 else None for i in numbers], pa.int64()),
            "name": [f"n{i % 11}" if i % 3 else None for i in numbers],
            "price": [i / 7 for i in numbers],
            "is_hot": [i % 13 == 0 for i in numbers],
            "a": [f"p{i}" for i in numbers],
            "a.b": ["y" if i % 17 == 0 else "z" for i in numbers],
            "level": pa.array([i % 100 for i in numbers], pa.int32()),
            "$time": pa.array([began + timedelta(seconds=i) for i in numbers], pa.timestamp("us", "UTC")),
            "$payload": [b"p%d" % i for i in numbers],
        }
    )


def written(path, tables=None, **options):
    """Writes tables to Parquet files, with names that an address would have to escape."""
    path.mkdir()
    for i, content in enumerate(tables or [table(i * ROWS) for i in range(3)]):
        pq.write_table(content, path / f"part {i} 100%.parquet", **({"row_group_size": 130} | options))
    return path


def required_scan(df) -> ParquetScan:
    scan = scan_of(df)
    assert scan is not None
    return scan


@pytest.fixture
def read_by_spark(spark):
    """A function that plans a job in which Spark reads the files."""

    def plan(make):
        spark.conf.set(WORKERS_READ_PARQUET, "false")
        try:
            return make()
        finally:
            spark.conf.unset(WORKERS_READ_PARQUET)

    return plan


@pytest.fixture(scope="module")
def frame(spark, tmp_path_factory):
    return spark.read.parquet(str(written(tmp_path_factory.mktemp("scans") / "rows")))


# --- the same rows ------------------------------------------------------------------------------


def test_rows_are_those_that_spark_reads(spark, index, frame, read_by_spark):
    assert scan_of(frame) is not None
    matched, expected = match(frame, index), read_by_spark(lambda: match(frame, index))
    assert "Scan parquet" not in matched._jdf.queryExecution().executedPlan().toString()
    assert "Scan parquet" in expected._jdf.queryExecution().executedPlan().toString()
    assert matched.schema == expected.schema
    assertDataFrameEqual(matched, expected)
    assert matched.where(F.size("subscriptions") > 0).count() > ROWS


def test_some_columns_in_another_order(index, frame, read_by_spark):
    chosen = frame.select("name", "`a.b`", "x")
    assert required_scan(chosen).columns == ("name", "a.b", "x")
    assertDataFrameEqual(match(chosen, index), read_by_spark(lambda: match(chosen, index)))


def test_a_column_is_not_mistaken_for_a_field_of_another(index, frame, read_by_spark):
    """To Arrow `a.b` may be a column, or the field `b` of the column `a`."""
    for chosen in (frame.select("a", "x"), frame.select("x", "a", "name")):
        assert scan_of(chosen) is not None
        assertDataFrameEqual(match(chosen, index), read_by_spark(lambda chosen=chosen: match(chosen, index)))


def test_all_forms_of_matching(spark, index, frame, read_by_spark, tmp_path):
    for job in (match_counts, match_pairs):
        assertDataFrameEqual(job(frame, index), read_by_spark(lambda job=job: job(frame, index)))
    counts = write_matches(frame, index, tmp_path / "out")
    assert counts.notifications == 3 * ROWS
    assertDataFrameEqual(spark.read.parquet(str(tmp_path / "out")), read_by_spark(lambda: match(frame, index)))


def test_a_map_of_attributes(spark, index, read_by_spark, tmp_path):
    value = pa.struct([("string", pa.string()), ("int", pa.int64())])
    attributes = [[("x", {"int": i}), ("name", {"string": f"n{i % 9}"})] if i % 4 else [] for i in range(ROWS)]
    rows = pa.table({"n": range(ROWS), "attributes": pa.array(attributes, pa.map_(pa.string(), value))})
    df = spark.read.parquet(str(written(tmp_path / "rows", [rows])))
    assert scan_of(df) is not None
    matched = match(df, index, ["attributes"])
    assertDataFrameEqual(matched, read_by_spark(lambda: match(df, index, ["attributes"])))
    assert matched.where(F.array_contains("subscriptions", "s2")).count() > 50


def test_columns_that_are_not_attributes_come_through(spark, index, read_by_spark, tmp_path):
    rows = pa.table(
        {
            "x": range(600, 600 + ROWS),
            "day": [date(2026, 1, 1) + timedelta(days=i) for i in range(ROWS)],
            "amount": [Decimal(i) / 100 for i in range(ROWS)],
            "tags": [[f"t{i}", None] if i % 2 else None for i in range(ROWS)],
            "place": [{"city": f"c{i}", "at": [i]} for i in range(ROWS)],
        }
    )
    df = spark.read.parquet(str(written(tmp_path / "rows", [rows])))
    assert scan_of(df) is not None
    assertDataFrameEqual(match(df, index, ["x"]), read_by_spark(lambda: match(df, index, ["x"])))


def test_files_that_spark_wrote_are_read(spark, index, read_by_spark, tmp_path):
    df = spark.range(ROWS).select(F.col("id").alias("x"), F.timestamp_seconds("id").alias("$time"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    df.write.parquet(str(tmp_path / "rows"))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    read_back = spark.read.parquet(str(tmp_path / "rows"))
    assert scan_of(read_back) is not None
    assertDataFrameEqual(match(read_back, index), read_by_spark(lambda: match(df, index)))


def test_the_zone_of_the_session_changes_nothing(spark, index, frame, read_by_spark):
    expected = read_by_spark(lambda: match(frame, index)).collect()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assertDataFrameEqual(match(frame, index).collect(), expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# --- what workers leave to Spark ----------------------------------------------------------------


NOT_ONLY_COLUMNS = {
    "a filter": lambda df: df.where("x > 3"),
    "a limit": lambda df: df.limit(5),
    "another name": lambda df: df.withColumnRenamed("x", "y"),
    "a computed column": lambda df: df.withColumn("y", F.col("x") + 1),
    "a column twice": lambda df: df.select("x", "x"),
    "the file of a row": lambda df: df.select("x", "_metadata.file_path"),
    "two tables": lambda df: df.union(df),
    "no column": lambda df: df.select(),
}


@pytest.mark.parametrize("kind", NOT_ONLY_COLUMNS)
def test_frames_that_are_more_than_columns_of_files(frame, kind):
    assert scan_of(NOT_ONLY_COLUMNS[kind](frame)) is None


def test_cached_rows_are_not_read_again(spark, tmp_path):
    cached = spark.read.parquet(str(written(tmp_path / "rows"))).cache()
    assert scan_of(cached) is None
    cached.unpersist()
    assert scan_of(spark.read.parquet(str(tmp_path / "rows"))) is not None


def test_partitions_other_formats_and_streams(spark, frame, tmp_path):
    frame.select("x", "is_hot").write.partitionBy("is_hot").parquet(str(tmp_path / "parts"))
    assert scan_of(spark.read.parquet(str(tmp_path / "parts"))) is None
    # Here the name of the directory has a column that the file has too. Spark takes its value from the directory.
    (tmp_path / "both").mkdir()
    written(tmp_path / "both/name=n0", [table()])
    assert scan_of(spark.read.parquet(str(tmp_path / "both"))) is None
    frame.select("x").write.json(str(tmp_path / "json"))
    assert scan_of(spark.read.json(str(tmp_path / "json"))) is None
    rows = str(written(tmp_path / "rows"))
    assert scan_of(spark.readStream.schema(frame.schema).parquet(rows)) is None


@pytest.mark.parametrize(("name", "value"), UNUSUAL_SETTINGS)
def test_settings_that_change_what_is_read(spark, frame, name, value):
    spark.conf.set(name, value)
    try:
        assert scan_of(frame) is None
    finally:
        spark.conf.unset(name)
    assert scan_of(frame) is not None


def test_options_that_change_what_is_read(spark, tmp_path):
    path = str(written(tmp_path / "rows"))
    assert scan_of(spark.read.option("ignoreCorruptFiles", "true").parquet(path)) is None
    assert scan_of(spark.read.option("pathGlobFilter", "*1 100%.parquet").parquet(path)) is not None


DIFFERENT_FILES = {
    "a column that one file lacks": [table().drop_columns("x"), table()],
    "another type in one file": [table(), table().set_column(0, "x", pa.array([1] * ROWS, pa.int32()))],
    "texts of 64 bits": [table().set_column(1, "name", table()["name"].cast(pa.large_string()))],
    "a dictionary": [table().set_column(1, "name", table()["name"].dictionary_encode())],
    "another zone": [table().set_column(7, "$time", table()["$time"].cast(pa.timestamp("us", "Europe/Berlin")))],
    "an old calendar": [table().replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})],
    "an old Spark": [table().replace_schema_metadata({"org.apache.spark.version": "2.4.8"})],
}


@pytest.mark.parametrize("kind", DIFFERENT_FILES)
def test_files_that_arrow_reads_differently(spark, frame, tmp_path, kind):
    path = written(tmp_path / "rows", DIFFERENT_FILES[kind])
    assert scan_of(spark.read.schema(frame.schema).parquet(str(path))) is None


def test_old_timestamps(spark, tmp_path):
    path = written(tmp_path / "rows", use_deprecated_int96_timestamps=True)
    assert scan_of(spark.read.parquet(str(path))) is None


def test_more_files_than_the_driver_looks_at(frame, monkeypatch):
    monkeypatch.setattr(parquet_scan, "FILES_MAX", 2)
    assert scan_of(frame) is None


def test_a_file_that_is_gone(spark, tmp_path):
    df = spark.read.parquet(str(written(tmp_path / "rows")))
    for path in (tmp_path / "rows").iterdir():
        path.unlink()
    assert scan_of(df) is None


def test_no_rows(spark, index, tmp_path):
    df = spark.read.parquet(str(written(tmp_path / "rows", [table(0, 0)])))
    assert scan_of(df) is None
    assert match(df, index).count() == 0


def test_the_error_names_a_file_that_changed_meanwhile(spark, tmp_path):
    (path,) = written(tmp_path / "rows", [table()]).iterdir()
    scan = required_scan(spark.read.parquet(str(path)))
    damaged = bytearray(path.read_bytes())
    damaged[4:2_000] = bytes(1_996)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"part 0 100%\.parquet cannot be read: "):
        list(scan.row_batches([pa.record_batch({"id": [0]})]))


def test_long_rows_come_in_smaller_batches(spark, tmp_path, monkeypatch):
    df = spark.read.parquet(str(written(tmp_path / "rows", [table()])))
    scan, number = required_scan(df), pa.record_batch({"id": [0]})
    sizes = [batch.num_rows for batch in scan.row_batches([number])]
    monkeypatch.setattr(parquet_scan, "BATCH_BYTES", 1_000)
    smaller = [batch.num_rows for batch in scan.row_batches([number])]
    assert sum(smaller) == sum(sizes)
    assert max(smaller) < 30 < max(sizes)


# --- tasks --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 400_000), max_size=40), st.integers(1, 8))
def test_every_group_of_rows_is_read_once(sizes, cores):
    groups = [RowGroup(f"f{i // 3}", i % 3, rows) for i, rows in enumerate(sizes)]
    tasks = tasks_of(groups, cores)
    read = [(path, number) for task in tasks for path, numbers in task for number in numbers]
    assert read == [(group.path, group.number) for group in groups if group.rows]
    assert all(tasks)


def test_tasks_have_about_the_same_number_of_rows():
    tasks = tasks_of([RowGroup("f", i, 10_000) for i in range(100)], 2)
    assert [sum(len(numbers) for _, numbers in task) for task in tasks] == [12, 13, 12, 13, 12, 13, 12, 13]


@pytest.mark.parametrize(("rows", "cores", "tasks"), [(10, 2, 2), (280_000, 2, 4), (1_000_000, 2, 8), (280_000, 3, 3)])
def test_no_core_waits_for_the_last_task(rows, cores, tasks):
    assert len(tasks_of([RowGroup("f", i, rows // 10) for i in range(10)], cores)) == tasks


def test_names_within_a_struct_count_and_those_of_a_list_do_not():
    assert is_same_type(pa.list_(pa.field("item", pa.int64(), False)), pa.list_(pa.field("element", pa.int64())))
    assert not is_same_type(pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())]))
    assert not is_same_type(pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    assert not is_same_type(pa.list_(pa.int64()), pa.list_(pa.int32()))
    assert not is_same_type(pa.list_(pa.int64()), pa.large_list(pa.int64()))
