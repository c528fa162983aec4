"""Patterns on Spark against the model's Monitor, fed in publication order."""

import json
import os
import random
from datetime import UTC, datetime, timedelta

import pytest

from catchment.errors import InputError
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern

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
    """Many at one instant, equal numbers of two types as keys, and a few without what a pattern needs."""
    values = {"kind": rng.choice("ABCD"), "level": rng.choice([None, 0, 1, 2, 2.0, True])}
    values["host"] = rng.choice([None, "a", "b", "1", 1, 1.0, 2.5])
    time = None if rng.random() < untimed else START + timedelta(milliseconds=rng.randrange(int(seconds * 1000)) // 3)
    source, seq = rng.choice([None, "p", "q"]), rng.choice([None, i, i % 5])
    attributes = {name: value for name, value in values.items() if value is not None}
    return Notification(attributes, id=rng.choice([None, str(i)]), source=source, seq=seq, time=time)


def text(one: Notification) -> str:
    return json.dumps(one.to_json())


def order(one: Notification):
    fields = (one.time, one.source, one.seq, one.id)
    return [(value is None, 0 if value is None else value) for value in fields], json.dumps(one.to_json())


def row(one: Notification):
    kind = {str: "host", int: "host:int", float: "host:float"}
    level = {int: "level", float: "level:float", bool: "level:bool"}
    found = {"$id": one.id, "$source": one.source, "$time": one.time, "$seq": one.seq, "kind": one["kind"]}
    found |= {kind[type(value)]: value for name, value in one.items() if name == "host"}
    return found | {level[type(value)]: value for name, value in one.items() if name == "level"}


def expected(notifications, patterns):
    """For each pattern the sequences that its Monitor returns."""
    dated = sorted((one for one in notifications if one.time), key=order)
    found = []
    for id, pattern in patterns.items():
        monitor = Monitor(Pattern(pattern))
        for one in dated:
            for sequence in monitor.on_notification(one, START):
                found.append((id, *(text(match.notification) for match in sequence)))
    return sorted(found)


def compared(rows):
    """Rows as `expected` gives them; what the other columns say is checked on the way."""
    found = []
    for one in rows:
        times = [Notification.parse(text).time for text in one.notifications]
        assert [one.first.astimezone(UTC), one.last.astimezone(UTC)] == [times[0], times[-1]]
        found.append((one.pattern, *(text(Notification.parse(line)) for line in one.notifications)))
    return sorted(found)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_batch_finds_what_the_monitor_finds(spark, seed):
    from catchment.pipeline.patterns import DETECTED, detect

    rng = random.Random(seed)
    notifications = [notification(rng, i, 30) for i in range(500)]
    df = spark.createDataFrame([row(one) for one in notifications], SCHEMA).repartition(3)
    found = detect(df, PATTERNS)
    assert found.schema == DETECTED
    rows = compared(found.collect())
    assert rows == expected(notifications, PATTERNS)
    assert {one[0] for one in rows} == set(PATTERNS) - {"never"}


def test_equal_numbers_are_one_key_and_booleans_another(spark):
    from catchment.pipeline.patterns import detect

    levels = [2, True, 2.0, 1]
    stream = [
        Notification({"kind": "A", "level": level}, time=START + timedelta(seconds=i)) for i, level in enumerate(levels)
    ]
    df = spark.createDataFrame([row(one) for one in stream], SCHEMA)
    (found,) = detect(df, {"p": Pattern("[kind = 'A'] -> [kind = 'A'] by level")}).collect()
    assert (found.key, len(found.notifications)) == ('{"level": 2}', 2)


def test_only_what_matches_some_step_is_shuffled(spark):
    from catchment.pipeline.patterns import detect

    df = spark.createDataFrame([row(notification(random.Random(3), 1, 30, 0))] * 5, SCHEMA)
    assert detect(df, {"p": "[kind = 'none'] -> [kind = 'A']"}).count() == 0
    assert detect(df.limit(0), PATTERNS).collect() == []


@pytest.mark.parametrize(("schema", "patterns"), [("kind string", PATTERNS), (SCHEMA, {})])
def test_what_cannot_be_is_refused(spark, schema, patterns):
    from catchment.pipeline.patterns import detect

    with pytest.raises(InputError):
        detect(spark.createDataFrame([], schema), patterns)


# ---- streams -----------------------------------------------------------------------------------


# Each key costs a stream some milliseconds of state: patterns of few keys.
STREAMED = {id: PATTERNS[id] for id in ("pair", "by host")}
STREAMED["soon"] = '[kind in ("A", "B")] -> [level > 1] within 6s by kind'


def run(spark, source, target, checkpoint, late):
    """All that is in the directory, some files at a time; ends when there is no more."""
    from catchment.pipeline.patterns import detect

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    found = detect(stream, STREAMED, late=late)
    query = found.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query.outputMode("append").trigger(availableNow=True).start(str(target)).awaitTermination()


def write(source, number, notifications):
    lines = [
        json.dumps({k: v.isoformat() if k == "$time" and v else v for k, v in row(one).items()})
        for one in notifications
    ]
    path = source / f"{number:04}.json"
    path.write_text("\n".join(lines), "utf-8")
    # Spark takes files by the time they were last changed, which must not depend on how fast this runs.
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_a_stream_finds_what_the_monitor_finds_after_a_restart_too(spark, tmp_path):
    """Rows come shuffled by less than the watermark; a last one, that matches nothing, lets it pass them all."""
    pytest.importorskip("google.protobuf", reason="state of Spark's streams needs protobuf")
    source, rng, late = tmp_path / "in", random.Random(5), timedelta(seconds=8)
    source.mkdir()
    notifications = [notification(rng, i, 90, 0) for i in range(150)]
    jittered = sorted(notifications, key=lambda one: one.time + rng.random() * late)
    for number in range(3):
        write(source, number, jittered[number * 50 : number * 50 + 50])
        if number == 1:
            run(spark, source, tmp_path / "out", tmp_path / "checkpoint", late)
    write(source, 3, [Notification({"kind": "end"}, time=START + timedelta(minutes=10))])
    run(spark, source, tmp_path / "out", tmp_path / "checkpoint", late)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert compared(rows) == expected(notifications, STREAMED)
    assert {one.pattern for one in rows} == set(STREAMED)


def test_what_is_published_before_the_watermark_is_late(spark, tmp_path):
    pytest.importorskip("google.protobuf", reason="state of Spark's streams needs protobuf")
    source = tmp_path / "in"
    source.mkdir()
    minutes = [("A", 0), ("end", 10), ("end", 12), ("B", 5), ("B", 13), ("end", 30)]
    stream = [Notification({"kind": kind}, time=START + timedelta(minutes=at)) for kind, at in minutes]
    for number, one in enumerate(stream):
        write(source, number, [one])
    run(spark, source, tmp_path / "out", tmp_path / "checkpoint", timedelta(minutes=1))
    rows = [one for one in spark.read.parquet(str(tmp_path / "out")).collect() if one.pattern == "pair"]
    assert compared(rows) == [("pair", text(stream[0]), text(stream[4]))]
