"""An archive of Java's classes. With it Spark starts in half the time: Java need not read and verify each class.

`catchment warm` makes the archive, of the classes that a compilation, a match, a stream and a pattern load. From then
on every session that starts its own Java uses it. Java itself checks whether the archive fits: it does if Java and
Spark are the same versions in the same places. If it does not fit, Java starts without it. The archive may be deleted
at any time.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from catchment.errors import UnavailableError

# The variable that names a directory for the archive, instead of the user's cache.
CACHE: Final = "CATCHMENT_CACHE"
# Otherwise Java prints a line for each class that cannot be archived, and one at every start if the archive does not
# fit.
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# In a Java process that runs for seconds, the optimizing compiler costs more than it gains.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"
_EXIT_SECONDS_MAX: Final = 300


def archive_path() -> Path:
    """The path of the archive for this Java and this Spark, whether or not it exists."""
    java = Path(java_command() or "java")
    made_at = java.stat().st_mtime_ns if java.exists() else 0
    key = f"{java.resolve()} {made_at} {pyspark.__version__} {Path(pyspark.__file__).parent}"
    return _cache() / f"spark-{blake2b(key.encode(), digest_size=8).hexdigest()}.jsa"


def _cache() -> Path:
    if given := os.environ.get(CACHE):
        return Path(given)
    users_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(users_cache) if users_cache else Path.home() / ".cache") / "catchment"


def java_command() -> str | None:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java")


def java_options() -> str:
    """The options that make Java use the archive; empty where there is none."""
    path = archive_path()
    return f'-XX:SharedArchiveFile="{path}" {_SILENT}' if path.exists() else ""


def make_archive() -> Path:
    """Starts Spark, runs a small job of each kind, and stops it: that takes a minute. The archive appears at its path
    when it is complete. Raises UnavailableError if Java wrote none."""
    from catchment.pipeline.session import spark_session

    if SparkContext._gateway is not None:
        raise UnavailableError("Spark is running in this process already: make the archive in a new process")
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same directory, so that the finished archive can be renamed into its place.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as directory:
        unfinished = Path(directory) / path.name
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": f'-XX:ArchiveClassesAtExit="{unfinished}" {_SILENT} {_SHORT_LIVED}',
        }
        spark = spark_session("local[2]", name="catchment warm", settings=settings, log=Path(directory) / "log")
        try:
            _run_small_jobs(spark, Path(directory))
        finally:
            _stop_java(spark)
        if not unfinished.exists():
            raise UnavailableError(f"{java_command()} has made no archive of its classes: is it an OpenJDK?")
        unfinished.replace(path)
    return path


def _stop_java(spark: SparkSession) -> None:
    """Java writes the archive when it exits, and it exits when its standard input is closed."""
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS_MAX)
    SparkContext._gateway = SparkContext._jvm = None


def _run_small_jobs(spark: SparkSession, root: Path) -> None:
    """A job of each kind on a few rows: what counts is which classes Java loads for it."""
    from catchment.pipeline import (
        NotificationFiles,
        compile_subscriptions,
        detect,
        match,
        match_stream,
        read_notifications,
        write_matches,
    )

    schema = "id string, subscriber string, filter string"
    subscriptions = spark.createDataFrame([("s1", "a", "price > 1"), ("s2", "b", "price > 2 or symbol any")], schema)
    index = compile_subscriptions(subscriptions, root / "index", now=datetime(2026, 1, 1, tzinfo=UTC))
    (root / "in").mkdir()
    for i in range(2):
        row = {"symbol": "DIS", "price": i + 0.5, "$seq": i, "$time": {"time": f"2026-01-01T00:00:0{i}Z"}}
        (root / "in" / f"{i}.jsonl").write_text(json.dumps(row) + "\noops\n")
    rows = read_notifications(spark, str(root / "in")).rows.cache()
    match(rows, index).collect()
    write_matches(rows, index, root / "matched")
    detect(rows, {"up": "[price < 1] -> [price > 1] by symbol"}).collect()
    files = NotificationFiles(str(root / "in"))
    match_stream(files, index, root / "out", once=True, spark=spark).awaitTermination()
    rows.write.parquet(str(root / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(root / "rows"))
    query = detect(stream, {"up": "[price < 1] -> [price > 1] by symbol"}).writeStream.format("noop")
    query.trigger(availableNow=True).option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
