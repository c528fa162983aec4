"""Patterns on Spark against the model's Monitor, fed in publication order."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from catchment.errors import InputError
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from tests.spark.samples import set_changed

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
SCHEMA = (
    "`$id` string, `$source` string, `$time` timestamp, `$seq` bigint, kind string, level bigint, "
    "`level:float` double, `level:bool` boolean, host string, `host:int` bigint, `host:float` double"
)
PATTERNS = {
    "pair": '[kind = "A"] -> [kind = "B"]',
    "one": '[kind = "C" and level > 1]',
    "by host": '[kind = "A"] -> [kind = "B"] -> [kind = "C"] by host',
    "soon": '[kind in ("A", "B")] -> [level > 1] within 6s by host',
    "twice": '[kind = "A" or level = 1] -> [kind = "A"] -> [kind = "A"] within 20s by host, level',
    "any": '[kind any] -> [kind = "D"] within 3ms by level',
    "never": '[kind = "A"] -> [kind = "Z"] within 1s',
}


def notification(rng: random.Random, i: int, seconds: float, untimed: float = 0.05) -> Notification:
    """Notifications of which many are at one instant, equal numbers of two types are keys, and a few lack what a
    pattern needs."""
    values = {"kind": rng.choice("ABCD"), "level": rng.choice([None, 0, 1, 2, 2.0, True])}
    values["host"] = rng.choice([None, "a", "b", "1", 1, 1.0, 2.5])
    time = None if rng.random() < untimed else START + timedelta(milliseconds=rng.randrange(int(seconds * 1000)) // 3)
    source, seq = rng.choice([None, "p", "q"]), rng.choice([None, i, i % 5])
    attributes = {name: value for name, value in values.items() if value is not None}
    return Notification(attributes, id=rng.choice([None, str(i)]), source=source, seq=seq, time=time)


def text(notification: Notification) -> str:
    return json.dumps(notification.to_json())


def order(notification: Notification):
    fields = (notification.time, notification.source, notification.seq, notification.id)
    return [(value is None, 0 if value is None else value) for value in fields], text(notification)


HOST_COLUMNS: dict[type, str] = {str: "host", int: "host:int", float: "host:float"}
LEVEL_COLUMNS: dict[type, str] = {int: "level", float: "level:float", bool: "level:bool"}


def row(notification: Notification):
    """The row of a notification in SCHEMA."""
    cells = {f"${name}": getattr(notification, name) for name in ("id", "source", "time", "seq")}
    cells |= {"kind": notification["kind"]}
    for name, columns in (("host", HOST_COLUMNS), ("level", LEVEL_COLUMNS)):
        value = notification.get(name)
        if value is not None:
            cells[columns[type(value)]] = value
    return cells


def expected(notifications, patterns):
    """For each pattern the sequences that its Monitor returns."""
    dated = sorted((notification for notification in notifications if notification.time), key=order)
    sequences = []
    for id, pattern in patterns.items():
        monitor = Monitor(Pattern(pattern))
        for notification in dated:
            for sequence in monitor.on_notification(notification, START):
                sequences.append((id, *(text(step.notification) for step in sequence)))
    return sorted(sequences)


def compared(rows):
    """The rows in the form of `expected`. Checks their other columns on the way."""
    sequences = []
    for detected in rows:
        notifications = [Notification.parse(line) for line in detected.notifications]
        ends = [notifications[0].time, notifications[-1].time]
        assert [detected.first.astimezone(UTC), detected.last.astimezone(UTC)] == ends
        sequences.append((detected.pattern, *map(text, notifications)))
    return sorted(sequences)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_batch_finds_what_the_monitor_finds(spark, seed):
    from catchment.pipeline.patterns import DETECTED, detect

    rng = random.Random(seed)
    notifications = [notification(rng, i, 30) for i in range(500)]
    df = spark.createDataFrame(list(map(row, notifications)), SCHEMA).repartition(3)
    detected = detect(df, PATTERNS)
    assert detected.schema == DETECTED
    sequences = compared(detected.collect())
    assert sequences == expected(notifications, PATTERNS)
    assert {pattern for pattern, *_ in sequences} == set(PATTERNS) - {"never"}


def test_equal_numbers_are_one_key_and_booleans_another(spark):
    from catchment.pipeline.patterns import detect

    levels = [2, True, 2.0, 1]
    notifications = [
        Notification({"kind": "A", "level": level}, time=START + timedelta(seconds=i)) for i, level in enumerate(levels)
    ]
    df = spark.createDataFrame(list(map(row, notifications)), SCHEMA)
    (sequence,) = detect(df, {"p": Pattern("[kind = 'A'] -> [kind = 'A'] by level")}).collect()
    assert (sequence.key, len(sequence.notifications)) == ('{"level": 2}', 2)


def test_no_row_matches_a_step(spark):
    from catchment.pipeline.patterns import detect

    df = spark.createDataFrame([row(notification(random.Random(3), 1, 30, 0))] * 5, SCHEMA)
    assert detect(df, {"p": "[kind = 'none'] -> [kind = 'A']"}).count() == 0
    assert detect(df.limit(0), PATTERNS).collect() == []


@pytest.mark.parametrize(("schema", "patterns"), [("kind string", PATTERNS), (SCHEMA, {})])
def test_a_missing_time_and_missing_patterns_are_errors(spark, schema, patterns):
    from catchment.pipeline.patterns import detect

    with pytest.raises(InputError):
        detect(spark.createDataFrame([], schema), patterns)


# ---- streams -----------------------------------------------------------------------------------


# Each key costs a stream some milliseconds for its state, so these patterns have few keys.
STREAMED = {id: PATTERNS[id] for id in ("pair", "by host")}
STREAMED["soon"] = '[kind in ("A", "B")] -> [level > 1] within 6s by kind'


def run(spark, source, target, checkpoint, late):
    """Runs a stream over all that is in the directory, one file at a time; it ends when there is no more."""
    from catchment.pipeline.patterns import detect

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    detected = detect(stream, STREAMED, late=late)
    query = detected.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query.outputMode("append").trigger(availableNow=True).start(str(target)).awaitTermination()


def write(source, number, notifications):
    rows = [row(notification) for notification in notifications]
    lines = [json.dumps(cells | {"$time": cells["$time"].isoformat()}) for cells in rows]
    path = source / f"{number:04}.json"
    path.write_text("\n".join(lines), "utf-8")
    set_changed(path, number)


def test_a_stream_finds_what_the_monitor_finds_after_a_restart_too(spark, tmp_path):
    """Rows come out of order, by less than `late`. A last one, which matches nothing, lets the watermark pass them."""
    pytest.importorskip("google.protobuf", reason="state of Spark's streams needs protobuf")
    source, rng, late = tmp_path / "in", random.Random(5), timedelta(seconds=8)
    source.mkdir()
    notifications = [notification(rng, i, 90, 0) for i in range(150)]

    def arrival(notification):
        return notification.time + rng.random() * late

    jittered = sorted(notifications, key=arrival)
    for number in range(3):
        write(source, number, jittered[number * 50 : number * 50 + 50])
        if number == 1:
            run(spark, source, tmp_path / "out", tmp_path / "checkpoint", late)
    write(source, 3, [Notification({"kind": "end"}, time=START + timedelta(minutes=10))])
    run(spark, source, tmp_path / "out", tmp_path / "checkpoint", late)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert compared(rows) == expected(notifications, STREAMED)
    assert {detected.pattern for detected in rows} == set(STREAMED)


def test_a_row_from_before_the_watermark_is_late(spark, tmp_path):
    pytest.importorskip("google.protobuf", reason="state of Spark's streams needs protobuf")
    source = tmp_path / "in"
    source.mkdir()
    minutes = [("A", 0), ("end", 10), ("end", 12), ("B", 5), ("B", 13), ("end", 30)]
    notifications = [Notification({"kind": kind}, time=START + timedelta(minutes=at)) for kind, at in minutes]
    for number, notification in enumerate(notifications):
        write(source, number, [notification])
    run(spark, source, tmp_path / "out", tmp_path / "checkpoint", timedelta(minutes=1))
    rows = spark.read.parquet(str(tmp_path / "out")).where("pattern = 'pair'").collect()
    assert compared(rows) == [("pair", text(notifications[0]), text(notifications[4]))]
