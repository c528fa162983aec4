"""Sample data for programs that run in processes of their own, and what this process says they must find."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.matching import Matcher
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern

if TYPE_CHECKING:
    from catchment.pipeline import Index

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
FILTERS = [f"x > {i % 7} and y = '{'ab'[i % 2]}'" for i in range(40)] + ["x any", "not exists(y)", "`d.e` = 2"]
PATTERNS = {
    "pair": "[x > 5] -> [y = 'a']",
    "by": "[x > 3] -> [x < 3] -> [y = 'b'] by y",
    "soon": "[x > 2 and `d.e` < 2] -> [x > 5] within 3s by `d.e`",
}
# Spark takes files in the order of their times of change. Tests set these, so that the order does not depend on how
# fast they run.
FIRST_CHANGED = 1_700_000_000
PROGRAMS = Path(__file__).parent / "programs"


# --- Spark itself -------------------------------------------------------------------------------


def quick_java() -> str:
    """Options for a Java process that runs for seconds. Its optimizing compiler costs more than it gains; but without
    it Java would reserve so little room for compiled code that it throws away code which it needs again."""
    from catchment.pipeline.class_archive import java_options

    # With less room for classes, Java collects garbage every time it has loaded some more.
    room = "-XX:MetaspaceSize=300m -XX:NewRatio=1"
    return f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC {room} {java_options()}"


def loaded_workers() -> dict[str, str]:
    """Settings for a session that starts many Python workers: see programs/loaded_daemon.py."""
    return {"spark.python.daemon.module": "loaded_daemon", "spark.executorEnv.PYTHONPATH": str(PROGRAMS)}


def spark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)


# --- notifications, filters and patterns --------------------------------------------------------


def some_notifications(count: int) -> list[Notification]:
    rng = random.Random(11)

    def notification(i: int) -> Notification:
        values = {"x": rng.randrange(9), "y": rng.choice("ab"), "d.e": rng.randrange(3)}
        attributes = {name: value for name, value in values.items() if rng.random() < 0.9}
        return Notification(attributes, id=str(i), seq=i, time=START + timedelta(milliseconds=rng.randrange(20_000)))

    return [notification(i) for i in range(count)]


def write_inputs(root: Path, notifications: Sequence[Notification]) -> None:
    """Writes the filters and patterns, the directory `in` with the notifications in six files, and the directory `end`
    with one notification that is later than all of them."""
    (root / "filters.json").write_text(json.dumps(FILTERS))
    (root / "patterns.json").write_text(json.dumps(PATTERNS))
    end = Notification({"x": 0}, id="end", time=START + timedelta(hours=1))
    for directory, parts in (("in", [notifications[i::6] for i in range(6)]), ("end", [[end]])):
        (root / directory).mkdir()
        for number, part in enumerate(parts):
            texts = [json.dumps(notification.to_json()) for notification in part]
            (root / directory / f"{number}.jsonl").write_text("\n".join(texts))


def matcher_of(filters: Iterable[str]) -> Matcher:
    """A matcher of these filters with the ids s0, s1, …"""
    texts = list(filters)
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(len(texts))], texts)
    return matcher


def expected_matches(notifications: Iterable[Notification]) -> dict[str, list[Any]]:
    """By id of a notification, the ids of FILTERS that match it."""
    matcher = matcher_of(FILTERS)
    return {str(notification.id): matcher.match(notification) for notification in notifications}


def in_publication_order(notifications: Iterable[Notification]) -> list[Notification]:
    """The notifications by time and number, of which each has one."""

    def key(notification: Notification) -> tuple[datetime, int]:
        assert notification.time is not None
        assert notification.seq is not None
        return notification.time, notification.seq

    return sorted(notifications, key=key)


def expected_sequences(notifications: Iterable[Notification]) -> list[list[Any]]:
    """The sequences that complete a pattern: the name of the pattern, and the ids of its notifications."""
    ordered = in_publication_order(notifications)
    sequences = []
    for name, text in PATTERNS.items():
        monitor = Monitor(Pattern(text))
        for notification in ordered:
            for sequence in monitor.on_notification(notification, START):
                sequences.append([name, *(step.notification.id for step in sequence)])
    assert len(sequences) > 20
    return sorted(sequences)


# --- files --------------------------------------------------------------------------------------


def write_index(path: Path, texts: Sequence[str]) -> tuple[Index, Matcher]:
    """Writes the next version of an index, by this process alone."""
    from catchment.pipeline import index as indexes

    draft, matcher = indexes.begin(path), matcher_of(texts)
    matcher.save(draft.directory / "shards" / "0000")
    return indexes.publish(draft, (draft.shard(0),), {"live": len(texts)}), matcher


def put_file(directory: Path, name: str, content: str | bytes) -> None:
    """Makes a file appear complete, and newer than those that are there."""
    unfinished = directory / f".{name}"
    unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())
    set_changed(unfinished, len(list(directory.iterdir())))
    unfinished.rename(directory / name)


def set_changed(path: Path, seconds: int) -> None:
    """Sets the time of change of a file."""
    os.utime(path, (FIRST_CHANGED + seconds, FIRST_CHANGED + seconds))


def json_lines(*rows: Notification | Mapping[str, Any]) -> str:
    texts = [json.dumps(row.to_json() if isinstance(row, Notification) else row) for row in rows]
    return "".join(f"{text}\n" for text in texts)
