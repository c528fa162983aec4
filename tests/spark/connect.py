"""What test_connect.py runs: a program of its own, because a process has classic sessions or those of Spark Connect.

Arguments: a directory, the address of a server. Writes `found.json` there: what was found.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catchment.cli import main
from catchment.errors import UnavailableError
from catchment.pipeline import (
    NotificationFiles,
    archive,
    change_subscriptions,
    compact,
    detect,
    dry_run,
    match,
    match_counts,
    match_explained,
    match_pairs,
    match_stream,
    open_index,
    read_notifications,
    replay,
    spark_session,
    stream_notifications,
    unmatched,
)
from catchment.pipeline.archive.write import lines
from catchment.pipeline.match.scattered import match_scattered
from catchment.pipeline.session import parallelism

TYPES = {"x": "int", "y": "string", "d.e": "int"}


def run(root: Path, address: str) -> dict[str, object]:
    """The command line first: it makes the session."""
    subscriptions = root / "subscriptions.jsonl"
    filters = json.loads((root / "filters.json").read_text())
    rows = [{"id": f"s{i}", "subscriber": f"u{i % 10}", "filter": text} for i, text in enumerate(filters)]
    subscriptions.write_text("".join(json.dumps(one) + "\n" for one in rows) + '{"id": "bad"}\n')
    made = command("compile", subscriptions, "-o", root / "index", "--shards", "2", "--master", address)
    matched = command("match", root / "in", "--index", root / "index", "-o", root / "matched", "--master", address)
    spark = spark_session(address)
    given, index = read_notifications(spark, str(root / "in")), open_index(root / "index")
    return {
        "session": [type(spark).__module__, spark.conf.get("spark.sql.caseSensitive"), parallelism(spark)],
        "compile": [made, dict(index.counts)],
        "command": [matched, ids(spark.read.parquet(str(root / "matched/matched")))],
        **matching(given.rows, index),
        **changing(spark, index),
        **archiving(spark, root, given.rows),
        **patterns(spark, root, given.rows),
        **refused(spark, root, index),
    }


def command(*arguments: object) -> list[object]:
    """Exit code and what was said."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([str(one) for one in arguments])
    return [code, said.getvalue()]


def ids(found) -> dict[str, list[str]]:
    rows = found.select("`$id`", "subscriptions").collect()
    assert len({row["$id"] for row in rows}) == len(rows)
    return {row["$id"]: row.subscriptions for row in rows}


def matching(rows, index) -> dict[str, object]:
    pairs = match_pairs(rows, index).select("`$id`", "subscription").collect()
    explained = match_explained(rows, index, ["s1"]).select("`$id`", "matched").collect()
    return {
        "match": ids(match(rows, index)),
        "scattered": ids(match_scattered(rows, index, shards=1)),
        "pairs": sorted([row["$id"], row.subscription] for row in pairs),
        "counts": {row.subscription: row["count"] for row in match_counts(rows, index).collect()},
        "unmatched": sorted(row["$id"] for row in unmatched(rows, index).select("`$id`").collect()),
        "explained": {row["$id"]: row.matched for row in explained},
    }


def changing(spark, index) -> dict[str, object]:
    """The graph was made when the index was: once is enough."""
    added = spark.createDataFrame([("new", "u1", "x = 1")], "id string, subscriber string, filter string")
    removed = spark.createDataFrame([("s0",), ("nobody",)], "id string")
    changed = change_subscriptions(index, added=added, removed=removed, now=datetime.now(UTC), graph=False)
    return {
        "rejects": [[row.row, row.text] for row in spark.read.parquet(index.rejects).collect()],
        "change": [changed.version, changed.counts["live"], changed.counts["rejected"]],
        "changed": ids(match(spark.createDataFrame([("1", 1)], "`$id` string, x bigint"), changed)),
    }


def archiving(spark, root, rows) -> dict[str, object]:
    place = str(root / "archive")
    for _ in range(2):
        archive(rows.coalesce(1), place)
    compacted = compact(spark, place)
    days = dry_run(spark, place, "x > 5").collect()
    return {
        "compact": compacted,
        "replay": [json.loads(line)["$id"] for line in lines(replay(spark, place, "x > 5"))],
        "dry run": [[row.day, row.notifications, row.matched] for row in days],
        "check --on": command("check", "x > 5", "--on", place, "--json"),
    }


def patterns(spark, root, rows) -> dict[str, object]:
    wanted = json.loads((root / "patterns.json").read_text())
    (root / "patterns.txt").write_text("\n".join(wanted.values()))
    (root / "in" / "bad.jsonl").write_text("oops\n")
    asked = ("detect", "--file", root / "patterns.txt", "--on", root / "in", "-o", root / "detected")
    return {
        "detect": sequences(detect(rows, wanted)),
        "detect -o": [command(*asked)[0], spark.read.parquet(str(root / "detected/found")).count()],
        "detect -o rejects": [row.text for row in spark.read.parquet(str(root / "detected/rejects")).collect()],
        "detect stream": streamed(spark, root, wanted),
    }


def streamed(spark, root, wanted) -> list[list[str]]:
    """All in one micro-batch, shuffled; then one that lets the watermark pass."""
    (root / "coming").mkdir()
    for age, part in enumerate(("in", "end")):
        for file in (root / part).glob("[0-9].jsonl"):
            copy = root / "coming" / f"{part}-{file.name}"
            copy.write_bytes(file.read_bytes())
            os.utime(copy, (1_700_000_000 + age, 1_700_000_000 + age))
    rows = stream_notifications(spark, str(root / "coming"), types=TYPES, files_max=6).rows
    found = detect(rows, wanted, late=timedelta(minutes=1)).writeStream.format("parquet").trigger(availableNow=True)
    query = found.option("checkpointLocation", str(root / "checkpoint")).start(str(root / "sequences"))
    query.awaitTermination()
    return sequences(spark.read.parquet(str(root / "sequences")))


def sequences(found) -> list[list[str]]:
    return sorted(
        [row.pattern, *(json.loads(one)["$id"] for one in row.notifications)]
        for row in found.select("pattern", "notifications").collect()
    )


def refused(spark, root, index) -> dict[str, object]:
    """What each said that cannot be."""
    rows = spark.readStream.schema("x bigint").json(str(root / "in"))
    asked = ("stream", root / "in", "--index", root / "index", "-o", root / "out", "--once")
    return {
        "stream": [complaint(one, index, root / "out") for one in (NotificationFiles(str(root / "in")), rows)],
        "stream command": command(*asked),
        "missing": [missing(spark, root, format) for format in ("json", "parquet")],
    }


def complaint(notifications, index, output) -> str:
    try:
        match_stream(notifications, index, output, once=True)
    except UnavailableError as problem:
        return str(problem)
    return ""


def missing(spark, root, format) -> str:
    try:
        read_notifications(spark, str(root / "none"), format)
    except UnavailableError as problem:
        return str(problem)
    return ""


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "found.json").write_text(json.dumps(run(place, sys.argv[2])))
    spark_session().stop()
