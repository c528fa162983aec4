"""The session that the jobs expect."""

import os
import sys

import pytest

from catchment.errors import UnavailableError

pytestmark = pytest.mark.spark


def test_settings(spark):
    assert spark.conf.get("spark.sql.caseSensitive") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.sparkContext.master == "local[2]"


def test_an_existing_session_is_respected(spark):
    from catchment.pipeline.session import spark_session

    assert spark_session("local[1]", settings={"spark.sql.session.timeZone": "CET"}) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_workers_run_our_python(spark):
    def executable(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1).mapInArrow(executable, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


def test_a_numba_cache_is_passed_on(monkeypatch, tmp_path):
    from catchment.pipeline import session

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert session.settings_for("local[2]")["spark.executorEnv.NUMBA_CACHE_DIR"] == str(tmp_path)


def test_kernels_beside_the_sources_are_used_where_they_can_be_written(monkeypatch):
    from catchment.pipeline import session

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert session.numba_cache() is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "catchment-numba" in str(session.numba_cache())


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_missing_java_is_an_error(monkeypatch, home):
    from catchment.pipeline import session

    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="Java 17"):
        session.require_java()


@pytest.mark.parametrize(("options", "ours"), [("", True), ("-Xmx1g", True), ("-Xmx1g -XX:+UseSerialGC", False)])
def test_java_gets_one_collector(monkeypatch, options, ours):
    """With two collectors named, it does not start."""
    from catchment.pipeline import session

    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    settings = session.settings_for("local[2]")
    for process in ("driver", "executor"):
        assert ("UseParallelGC" in settings[f"spark.{process}.extraJavaOptions"]) == ours


def test_workers_look_for_garbage_only_in_new_objects(spark):
    """After a few tasks; Spark collects garbage after each."""

    def counts(batches):
        import gc

        import pyarrow as pa

        import catchment.pipeline  # noqa: F401  # as every job does

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "tracked": [len(gc.get_objects())]})

    rows, workers = spark.range(2).repartition(2), []
    for _ in range(20):  # tasks may go to workers that are new
        workers = rows.mapInArrow(counts, "frozen bigint, tracked bigint").collect()
        if all(worker.frozen > 5 * worker.tracked for worker in workers):
            return
    pytest.fail(f"after 20 tasks: {workers}")
