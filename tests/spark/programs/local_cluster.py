"""The program that test_local_cluster.py runs. It needs a process of its own, because a Java process has one Spark
context.

Here executors are processes of their own, and the rows of a micro-batch come in any order. Argument: a directory. It
writes the results there, to `results.json`.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from catchment.pipeline import (
    NotificationFiles,
    compile_subscriptions,
    detect,
    match,
    match_scattered,
    match_stream,
    read_notifications,
    read_stream_output,
    spark_session,
    write_matches,
)
from tests.spark.samples import quick_java, set_changed

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
    jobs: dict[str, Callable[[], object]] = {
        "match": lambda: ids_by_notification(match(given, index)),
        "write": lambda: written_matches(spark, root, given, index),
        "scattered": lambda: ids_by_notification(match_scattered(given, index, shards=1)),
        "stream": lambda: streamed_matches(spark, root, index),
        "detect": lambda: sequences(detect(given, patterns)),
        "detect stream": lambda: streamed_sequences(spark, root, given.schema, patterns),
    }
    # Most of the time of each job is work of the driver, or waiting. So they run at the same time.
    with ThreadPoolExecutor() as pool:
        results = dict(zip(jobs, pool.map(lambda job: job(), jobs.values()), strict=True))
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return results | {"executors": len(executors) - 1, "shards": len(index.shards)}


def written_matches(spark, root, given, index) -> dict[str, list[str]]:
    write_matches(given.repartition(3), index, root / "written")
    assert sum(1 for path in (root / "written").iterdir() if path.name.startswith("part-")) == 3
    return ids_by_notification(spark.read.parquet(str(root / "written")))


def streamed_matches(spark, root, index) -> dict[str, list[str]]:
    files = NotificationFiles(str(root / "in"), files_max=4)
    match_stream(files, index, root / "out", once=True, spark=spark).awaitTermination()
    return ids_by_notification(read_stream_output(spark, root / "out"))


def ids_by_notification(matched) -> dict[str, list[str]]:
    rows = matched.select("`$id`", "subscriptions").collect()
    assert len({row["$id"] for row in rows}) == len(rows)
    return {row["$id"]: row.subscriptions for row in rows}


def streamed_sequences(spark, root, schema, patterns) -> list[list[str]]:
    """All notifications in one micro-batch, in any order; then one more that lets the watermark pass them."""
    (root / "parquet").mkdir()
    for age, part in enumerate(("in", "end")):
        rows = read_notifications(spark, str(root / part)).rows
        rows.repartition(2).write.parquet(str(root / f"{part}-rows"))
        for file in (root / f"{part}-rows").glob("*.parquet"):
            set_changed(file, age)
            file.rename(root / "parquet" / file.name)
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(root / "parquet"))
    writer = detect(stream, patterns, late=timedelta(minutes=1)).writeStream.format("parquet")
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(root / "checkpoint"))
    query.start(str(root / "detected")).awaitTermination()
    return sequences(spark.read.parquet(str(root / "detected")))


def sequences(detected) -> list[list[str]]:
    """The name of the pattern, and the ids of its notifications."""
    return sorted(
        [row.pattern, *(json.loads(text)["$id"] for text in row.notifications)]
        for row in detected.select("pattern", "notifications").collect()
    )


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    (directory / "results.json").write_text(json.dumps(run(directory)))
    spark_session().stop()
