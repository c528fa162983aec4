"""The program that test_connect.py runs. It needs a process of its own, because a process has either classic sessions
or sessions of Spark Connect.

Arguments: a directory, and the address of a server. It writes the results into the directory, to `results.json`.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from catchment.cli import main
from catchment.errors import UnavailableError
from catchment.pipeline import (
    NotificationFiles,
    archive,
    change_subscriptions,
    compact,
    detect,
    dry_run,
    lines,
    match,
    match_counts,
    match_explained,
    match_pairs,
    match_scattered,
    match_stream,
    open_index,
    read_notifications,
    replay,
    spark_session,
    stream_notifications,
    unmatched,
)
from catchment.pipeline.session import parallelism
from tests.spark.samples import set_changed

TYPES = {"x": "int", "y": "string", "d.e": "int"}


def run(root: Path, address: str) -> dict[str, object]:
    """The command line comes first: it makes the session."""
    subscriptions = root / "subscriptions.jsonl"
    filters = json.loads((root / "filters.json").read_text())
    rows = [{"id": f"s{i}", "subscriber": f"u{i % 10}", "filter": text} for i, text in enumerate(filters)]
    subscriptions.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"id": "bad"}\n')
    compiled = command("compile", subscriptions, "-o", root / "index", "--shards", "2", "--master", address)
    matched = command("match", root / "in", "--index", root / "index", "-o", root / "matched", "--master", address)
    spark = spark_session(address)
    given, index = read_notifications(spark, str(root / "in")), open_index(root / "index")
    return {
        "session": [type(spark).__module__, spark.conf.get("spark.sql.caseSensitive"), parallelism(spark)],
        "compile": [compiled, dict(index.counts)],
        "command": [matched, ids_by_notification(spark.read.parquet(str(root / "matched/matched")))],
        **matching(given.rows, index),
        **changing(spark, index),
        **archiving(spark, root, given.rows),
        **patterns(spark, root, given.rows),
        **refusals(spark, root, index),
    }


def command(*arguments: object) -> list[object]:
    """Runs a command line: its exit code, and what it printed."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = main([str(argument) for argument in arguments])
    return [code, printed.getvalue()]


def ids_by_notification(matched) -> dict[str, list[str]]:
    rows = matched.select("`$id`", "subscriptions").collect()
    assert len({row["$id"] for row in rows}) == len(rows)
    return {row["$id"]: row.subscriptions for row in rows}


def matching(rows, index) -> dict[str, object]:
    pairs = match_pairs(rows, index).select("`$id`", "subscription").collect()
    explained = match_explained(rows, index, ["s1"]).select("`$id`", "matched").collect()
    return {
        "match": ids_by_notification(match(rows, index)),
        "scattered": ids_by_notification(match_scattered(rows, index, shards=1)),
        "pairs": sorted([row["$id"], row.subscription] for row in pairs),
        "counts": {row.subscription: row["count"] for row in match_counts(rows, index).collect()},
        "unmatched": sorted(row["$id"] for row in unmatched(rows, index).select("`$id`").collect()),
        "explained": {row["$id"]: row.matched for row in explained},
    }


def changing(spark, index) -> dict[str, object]:
    """Without the graph: it was built when the index was, and once is enough."""
    added = spark.createDataFrame([("new", "u1", "x = 1")], "id string, subscriber string, filter string")
    removed = spark.createDataFrame([("s0",), ("nobody",)], "id string")
    changed = change_subscriptions(index, added=added, removed=removed, now=datetime.now(UTC), graph=False)
    notifications = spark.createDataFrame([("1", 1)], "`$id` string, x bigint")
    return {
        "rejects": [[row.row, row.text] for row in spark.read.parquet(index.rejects).collect()],
        "change": [changed.version, changed.counts["live"], changed.counts["rejected"]],
        "changed": ids_by_notification(match(notifications, changed)),
    }


def archiving(spark, root, rows) -> dict[str, object]:
    path = str(root / "archive")
    for _ in range(2):
        archive(rows.coalesce(1), path)
    compacted = compact(spark, path)
    days = dry_run(spark, path, "x > 5").collect()
    return {
        "compact": compacted,
        "replay": [json.loads(line)["$id"] for line in lines(replay(spark, path, "x > 5"))],
        "dry run": [[row.day, row.notifications, row.matched] for row in days],
        "check --on": command("check", "x > 5", "--on", path, "--json"),
    }


def patterns(spark, root, rows) -> dict[str, object]:
    texts = json.loads((root / "patterns.json").read_text())
    (root / "patterns.txt").write_text("\n".join(texts.values()))
    (root / "in" / "bad.jsonl").write_text("oops\n")
    detecting = ("detect", "--file", root / "patterns.txt", "--on", root / "in", "-o", root / "detected")
    return {
        "detect": sequences(detect(rows, texts)),
        "detect -o": [command(*detecting)[0], spark.read.parquet(str(root / "detected/found")).count()],
        "detect -o rejects": [row.text for row in spark.read.parquet(str(root / "detected/rejects")).collect()],
        "detect stream": streamed_sequences(spark, root, texts),
    }


def streamed_sequences(spark, root, texts) -> list[list[str]]:
    """All notifications in one micro-batch, in any order; then one more that lets the watermark pass them."""
    (root / "coming").mkdir()
    for age, part in enumerate(("in", "end")):
        for file in (root / part).glob("[0-9].jsonl"):
            copy = root / "coming" / f"{part}-{file.name}"
            copy.write_bytes(file.read_bytes())
            set_changed(copy, age)
    rows = stream_notifications(spark, str(root / "coming"), types=TYPES, files_max=6).rows
    writer = detect(rows, texts, late=timedelta(minutes=1)).writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(root / "checkpoint")).start(str(root / "sequences"))
    query.awaitTermination()
    return sequences(spark.read.parquet(str(root / "sequences")))


def sequences(detected) -> list[list[str]]:
    return sorted(
        [row.pattern, *(json.loads(text)["$id"] for text in row.notifications)]
        for row in detected.select("pattern", "notifications").collect()
    )


def refusals(spark, root, index) -> dict[str, object]:
    """The error messages of what cannot be done."""
    files = NotificationFiles(str(root / "in"))
    rows = spark.readStream.schema("x bigint").json(str(root / "in"))
    streaming = ("stream", root / "in", "--index", root / "index", "-o", root / "out", "--once")
    return {
        "stream": [stream_refusal(notifications, index, root / "out") for notifications in (files, rows)],
        "stream command": command(*streaming),
        "missing": [read_refusal(spark, root, format) for format in ("json", "parquet")],
    }


def stream_refusal(notifications, index, output) -> str:
    try:
        match_stream(notifications, index, output, once=True)
    except UnavailableError as problem:
        return str(problem)
    return ""


def read_refusal(spark, root, format) -> str:
    try:
        read_notifications(spark, str(root / "none"), format)
    except UnavailableError as problem:
        return str(problem)
    return ""


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    (directory / "results.json").write_text(json.dumps(run(directory, sys.argv[2])))
    spark_session().stop()
