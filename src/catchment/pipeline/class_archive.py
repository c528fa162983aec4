"""Java's classes in an archive: with it, Spark starts in half the time, because Java need not read and check them one
by one.

`catchment warm` makes one, of the classes that a compilation, a match, a stream and a pattern load. Sessions that start
a Java of their own use it from then on. Java finds out itself whether it fits, which is where Java and Spark are the
same and in the same place, and goes on without where it does not. It may be deleted at any time.
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

# Where it is kept, if not in the user's cache.
CACHE: Final = "CATCHMENT_CACHE"
# Java says much about classes that cannot be in an archive, and once at every start if one does not fit any more.
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# For Java that runs for seconds: its second compiler costs more than it gains.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"
_END_SECONDS_MAX: Final = 300


def archive_path() -> Path:
    """Where the archive for this Java and this Spark is, if there is one."""
    java = Path(java_command() or "java")
    made_at = java.stat().st_mtime_ns if java.exists() else 0
    key = f"{java.resolve()} {made_at} {pyspark.__version__} {Path(pyspark.__file__).parent}"
    return _cache() / f"spark-{blake2b(key.encode(), digest_size=8).hexdigest()}.jsa"


def _cache() -> Path:
    if given := os.environ.get(CACHE):
        return Path(given)
    beside = os.environ.get("XDG_CACHE_HOME")
    return (Path(beside) if beside else Path.home() / ".cache") / "catchment"


def java_command() -> str | None:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java")


def java_options() -> str:
    """What Java is to be told to use the archive; nothing where there is none."""
    path = archive_path()
    return f'-XX:SharedArchiveFile="{path}" {_SILENT}' if path.exists() else ""


def make_archive() -> Path:
    """Starts a Spark, has it do a little of everything, and ends it: it takes a minute. The archive appears when it is
    whole. UnavailableError where Java has made none."""
    from catchment.pipeline.session import spark_session

    if SparkContext._gateway is not None:
        raise UnavailableError("Spark runs already: an archive of its classes is made when it ends, by a process anew")
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as place:
        unfinished = Path(place) / path.name
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": f'-XX:ArchiveClassesAtExit="{unfinished}" {_SILENT} {_SHORT_LIVED}',
        }
        spark = spark_session("local[2]", name="catchment warm", settings=settings, log=Path(place) / "log")
        try:
            _do_a_little(spark, Path(place))
        finally:
            _end(spark)
        if not unfinished.exists():
            raise UnavailableError(f"{java_command()} has made no archive of its classes: is it a Java of OpenJDK's?")
        unfinished.replace(path)
    return path


def _end(spark: SparkSession) -> None:
    """Java writes the archive when it ends, which it does when nobody can tell it more."""
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS_MAX)
    SparkContext._gateway = SparkContext._jvm = None


def _do_a_little(spark: SparkSession, place: Path) -> None:
    """What jobs do, with next to nothing: what counts is which classes it takes."""
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
    index = compile_subscriptions(subscriptions, place / "index", now=datetime(2026, 1, 1, tzinfo=UTC))
    (place / "in").mkdir()
    for i in range(2):
        row = {"symbol": "DIS", "price": i + 0.5, "$seq": i, "$time": {"time": f"2026-01-01T00:00:0{i}Z"}}
        (place / "in" / f"{i}.jsonl").write_text(json.dumps(row) + "\noops\n")
    rows = read_notifications(spark, str(place / "in")).rows.cache()
    match(rows, index).collect()
    write_matches(rows, index, place / "matched")
    detect(rows, {"up": "[price < 1] -> [price > 1] by symbol"}).collect()
    match_stream(NotificationFiles(str(place / "in")), index, place / "out", once=True, spark=spark).awaitTermination()
    rows.write.parquet(str(place / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(place / "rows"))
    query = detect(stream, {"up": "[price < 1] -> [price > 1] by symbol"}).writeStream.format("noop")
    query.trigger(availableNow=True).option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
