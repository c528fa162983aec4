"""On `local-cluster`, where executors are processes of their own, all is as in this process."""

import json
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catchment.matching import Matcher
from catchment.model.filter import Pattern
from catchment.model.monitor import Monitor
from catchment.model.notification import Notification

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
FILTERS = [f"x > {i % 7} and y = '{'ab'[i % 2]}'" for i in range(40)] + ["x any", "not exists(y)", "`d.e` = 2"]
PATTERNS = {
    "pair": "[x > 5] -> [y = 'a']",
    "by": "[x > 3] -> [x < 3] -> [y = 'b'] by y",
    "soon": "[x > 2 and `d.e` < 2] -> [x > 5] within 3s by `d.e`",
}
SECONDS_MAX = 300


def some(rng, count):
    def one(i):
        values = {"x": rng.randrange(9), "y": rng.choice("ab"), "d.e": rng.randrange(3)}
        held = {name: value for name, value in values.items() if rng.random() < 0.9}
        return Notification(held, id=str(i), seq=i, time=START + timedelta(milliseconds=rng.randrange(20_000)))

    return [one(i) for i in range(count)]


@pytest.fixture(scope="module")
def given():
    return some(random.Random(11), 300)


@pytest.fixture(scope="module")
def found(given, tmp_path_factory):
    root = tmp_path_factory.mktemp("local-cluster")
    (root / "filters.json").write_text(json.dumps(FILTERS))
    (root / "patterns.json").write_text(json.dumps(PATTERNS))
    for directory, parts in (("in", [given[i::6] for i in range(6)]), ("end", [[end()]])):
        (root / directory).mkdir()
        for number, part in enumerate(parts):
            lines = [json.dumps(one.to_json()) for one in part]
            (root / directory / f"{number}.jsonl").write_text("\n".join(lines))
    program = [sys.executable, str(Path(__file__).with_name("local_cluster.py")), str(root)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    return json.loads((root / "found.json").read_text())


def end():
    return Notification({"x": 0}, id="end", time=START + timedelta(hours=1))


def test_it_is_a_cluster(found):
    assert (found["executors"], found["shards"]) == (2, 3)


@pytest.mark.parametrize("how", ["match", "scattered", "stream"])
def test_matches_are_those_of_this_process(given, found, how):
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(len(FILTERS))], FILTERS)
    assert found[how] == {one.id: matcher.match(one) for one in given}


@pytest.mark.parametrize("how", ["detect", "detect stream"])
def test_sequences_are_those_of_the_monitor(given, found, how):
    expected = []
    for name, text in PATTERNS.items():
        monitor = Monitor(Pattern(text))
        for one in sorted(given, key=lambda one: (one.time, one.seq)):
            for sequence in monitor.on_notification(one, START):
                expected.append([name, *(step.notification.id for step in sequence)])
    assert len(expected) > 20
    assert found[how] == sorted(expected)
