"""What programs that run beside the tests are given, and what this process says they must find."""

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catchment.matching import Matcher
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
FILTERS = [f"x > {i % 7} and y = '{'ab'[i % 2]}'" for i in range(40)] + ["x any", "not exists(y)", "`d.e` = 2"]
PATTERNS = {
    "pair": "[x > 5] -> [y = 'a']",
    "by": "[x > 3] -> [x < 3] -> [y = 'b'] by y",
    "soon": "[x > 2 and `d.e` < 2] -> [x > 5] within 3s by `d.e`",
}


def quick_java():
    """For Java that runs for seconds: its second compiler costs more than it gains. The first alone would be given so
    little room that it throws away what it needs again."""
    from catchment.pipeline.class_archive import java_options

    # Otherwise it looks for garbage in all that there is at every few classes that it loads.
    room = "-XX:MetaspaceSize=300m -XX:NewRatio=1"
    return f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC {room} {java_options()}"


def loaded_workers():
    """For a session that starts many Python workers: see loaded_daemon.py."""
    return {"spark.python.daemon.module": "loaded_daemon", "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent)}


def some(count):
    rng = random.Random(11)

    def one(i):
        values = {"x": rng.randrange(9), "y": rng.choice("ab"), "d.e": rng.randrange(3)}
        held = {name: value for name, value in values.items() if rng.random() < 0.9}
        return Notification(held, id=str(i), seq=i, time=START + timedelta(milliseconds=rng.randrange(20_000)))

    return [one(i) for i in range(count)]


def write(root, notifications):
    """`in`: the notifications in six files; `end`: one that is later than all; filters and patterns."""
    (root / "filters.json").write_text(json.dumps(FILTERS))
    (root / "patterns.json").write_text(json.dumps(PATTERNS))
    end = Notification({"x": 0}, id="end", time=START + timedelta(hours=1))
    for directory, parts in (("in", [notifications[i::6] for i in range(6)]), ("end", [[end]])):
        (root / directory).mkdir()
        for number, part in enumerate(parts):
            lines = [json.dumps(one.to_json()) for one in part]
            (root / directory / f"{number}.jsonl").write_text("\n".join(lines))


def matcher_of(filters):
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(len(filters))], list(filters))
    return matcher


def matches(notifications):
    matcher = matcher_of(FILTERS)
    return {one.id: matcher.match(one) for one in notifications}


def sequences(notifications):
    """Pattern, and the ids of its notifications."""
    found = []
    for name, text in PATTERNS.items():
        monitor = Monitor(Pattern(text))
        for one in sorted(notifications, key=lambda one: (one.time, one.seq)):
            for sequence in monitor.on_notification(one, START):
                found.append([name, *(step.notification.id for step in sequence)])
    assert len(found) > 20
    return sorted(found)


def write_index(path, texts):
    """The next version of an index, by this process alone."""
    from catchment.pipeline import index as indexes

    draft, matcher = indexes.begin(path), matcher_of(texts)
    matcher.save(draft.directory / "shards" / "0000")
    return indexes.publish(draft, (draft.shard(0),), {"live": len(texts)}), matcher


def put(directory, name, content):
    """A file that appears when it is whole; later ones are newer, however fast this runs."""
    unfinished = directory / f".{name}"
    unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())
    age = len(list(directory.iterdir()))
    os.utime(unfinished, (1_700_000_000 + age, 1_700_000_000 + age))
    unfinished.rename(directory / name)


def lines(*rows):
    return "".join(json.dumps(one.to_json() if isinstance(one, Notification) else one) + "\n" for one in rows)


def spark_home():
    import pyspark

    return os.path.dirname(pyspark.__file__)
