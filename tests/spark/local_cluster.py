"""What test_local_cluster.py runs: a program of its own, because a JVM has one Spark context.

Executors are processes of their own here, and rows of a micro-batch come in any order. Prints JSON: what was found.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from given import quick_java

from catchment.pipeline import (
    NotificationFiles,
    compile_subscriptions,
    detect,
    match,
    match_stream,
    read_notifications,
    read_stream_output,
    spark_session,
    write_matches,
)
from catchment.pipeline.match.scattered import match_scattered

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.extraJavaOptions": quick_java(),
    "spark.executor.extraJavaOptions": quick_java(),
}
SCHEMA = "id string, subscriber string, filter string"


def run(root: Path) -> dict[str, object]:
    spark = spark_session("local-cluster[2,1,1024]", name="local-cluster", settings=SETTINGS)
    filters = json.loads((root / "filters.json").read_text())
    rows = [(f"s{i}", f"u{i % 10}", text) for i, text in enumerate(filters)]
    subscriptions = spark.createDataFrame(rows, SCHEMA).repartition(2)
    index = compile_subscriptions(subscriptions, root / "index", now=datetime.now(UTC), shards=3)
    given = read_notifications(spark, str(root / "in")).rows.cache()
    patterns = json.loads((root / "patterns.json").read_text())
    # Most of the time of each is the driver's, and waiting: so they run at once.
    with ThreadPoolExecutor() as pool:
        running = {
            "match": pool.submit(lambda: ids(match(given, index))),
            "write": pool.submit(lambda: written(spark, root, given, index)),
            "scattered": pool.submit(lambda: ids(match_scattered(given, index, shards=1))),
            "stream": pool.submit(lambda: matched_stream(spark, root, index)),
            "detect": pool.submit(lambda: sequences(detect(given, patterns))),
            "detect stream": pool.submit(lambda: streamed(spark, root, given.schema, patterns)),
        }
        found = {name: one.result() for name, one in running.items()}
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return found | {"executors": len(executors) - 1, "shards": len(index.shards)}


def written(spark, root, given, index) -> dict[str, list[str]]:
    write_matches(given.repartition(3), index, root / "written")
    assert sum(1 for one in (root / "written").iterdir() if one.name.startswith("part-")) == 3
    return ids(spark.read.parquet(str(root / "written")))


def matched_stream(spark, root, index) -> dict[str, list[str]]:
    files = NotificationFiles(str(root / "in"), files_max=4)
    match_stream(files, index, root / "out", once=True, spark=spark).awaitTermination()
    return ids(read_stream_output(spark, root / "out"))


def ids(found) -> dict[str, list[str]]:
    rows = found.select("`$id`", "subscriptions").collect()
    assert len({row["$id"] for row in rows}) == len(rows)
    return {row["$id"]: row.subscriptions for row in rows}


def streamed(spark, root, schema, patterns):
    """All in one micro-batch, shuffled; then one that lets the watermark pass."""
    (root / "parquet").mkdir()
    for age, part in enumerate(("in", "end")):
        rows = read_notifications(spark, str(root / part)).rows
        rows.repartition(2).write.parquet(str(root / f"{part}-rows"))
        for file in (root / f"{part}-rows").glob("*.parquet"):
            os.utime(file, (1_700_000_000 + age, 1_700_000_000 + age))
            file.rename(root / "parquet" / file.name)
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(root / "parquet"))
    written = detect(stream, patterns, late=timedelta(minutes=1)).writeStream.format("parquet")
    query = written.trigger(availableNow=True).option("checkpointLocation", str(root / "checkpoint"))
    query.start(str(root / "detected")).awaitTermination()
    return sequences(spark.read.parquet(str(root / "detected")))


def sequences(found) -> list[list[str]]:
    """Pattern, and the ids of its notifications."""
    return sorted(
        [row.pattern, *(json.loads(one)["$id"] for one in row.notifications)]
        for row in found.select("pattern", "notifications").collect()
    )


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "found.json").write_text(json.dumps(run(place)))
    spark_session().stop()
