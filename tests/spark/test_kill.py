"""A stream killed at any moment: each notification is in the output once, and nothing seen is ever taken away."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from catchment.model.notification import Notification
from tests.spark.given import lines, put, write_index

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

from catchment.pipeline import NotificationFiles, match_stream, read_stream_output  # noqa: E402

# How often it is killed, and the seed of the moments: more and others to hunt with.
KILLS = int(os.environ.get("CATCHMENT_KILLS", "3"))
SEED = int(os.environ.get("CATCHMENT_KILL_SEED", "7"))
PROCESS_SECONDS_MAX = 600


class Stream:
    """`catchment stream` in processes of its own, which die together. Spark starts at once, which is most of the
    work; the stream when it is told to."""

    def __init__(self, root, number, *options):
        command = [sys.executable, Path(__file__).with_name("stream_when_told.py"), "stream", root / "in"]
        command += ["--index", root / "index", "-o", root / "out", "--types", "n:int,x:int", "--format", "json"]
        self.log = (root / f"log-{number}").open("w+")
        self.process = subprocess.Popen(
            [*map(str, command), "--every", "0s", *options],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stderr=self.log,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self):
        self.wait_for("ready")
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self):
        self.log.flush()
        with open(self.log.name) as log:
            return log.read()

    def wait_for(self, word):
        until = time.monotonic() + PROCESS_SECONDS_MAX
        while word not in self.said():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.02)

    def kill(self):
        """Also what it left, if it ended by itself."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            file.close()


@pytest.fixture
def streams(tmp_path):
    """Starts them; none survives the test."""
    started = []

    def start(*options):
        started.append(Stream(tmp_path, len(started), *options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


class Feeder(threading.Thread):
    """Files keep arriving, but not many more than are read."""

    def __init__(self, directory, rng):
        super().__init__(daemon=True)
        self.directory, self.rng, self.rows, self.done = directory, rng, [], threading.Event()
        self.files, self.allowed = 0, 0

    def run(self):
        while not self.done.wait(self.rng.random() * 0.3):
            if self.files < self.allowed:
                self.feed()

    def feed(self):
        fresh = [
            Notification({"n": len(self.rows) + i, "x": self.rng.randrange(20)}) for i in range(self.rng.randrange(30))
        ]
        bad = "oops\n" if self.rng.random() < 0.2 else ""
        put(self.directory, f"{self.files}.jsonl", lines(*fresh) + bad)
        self.files += 1
        self.rows += fresh


def seen(out):
    """What any reader finds, at any moment: rows of whole batches by number, once each, with their versions."""
    if not any((out / "matched").rglob("*.parquet")):
        return {}
    table = ds.dataset(out / "matched", partitioning="hive").to_table(["n", "subscriptions", "$version"])
    found = {row["n"]: (row["subscriptions"], row["$version"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a notification is there twice"
    return found


def test_killed_at_random_moments(spark, streams, tmp_path):
    """Each notification once, matched with the version that its path says; nothing seen is ever taken away."""
    rng = random.Random(SEED)
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    matchers = {}

    def next_version(kill):
        index, matcher = write_index(tmp_path / "index", [f"x > {i}" for i in range(kill, kill + 15)])
        matchers[index.version] = matcher

    next_version(0)
    feeder = Feeder(source, random.Random(SEED + 1))
    feeder.feed()
    feeder.start()
    before = {}
    # The next one starts its Spark while this one streams.
    following = streams("--files-max", "2")
    for kill in range(KILLS):
        feeder.allowed += 12
        stream = following
        stream.begin()
        following = streams(*(["--files-max", "2"] if kill + 1 < KILLS else []))
        stream.wait_for("waiting for files" if kill % 2 else "1 batch,")
        next_version(kill + 1)
        time.sleep(rng.random() * 2)
        stream.kill()
        now = seen(out)
        assert before.items() <= now.items()
        before = now
    feeder.done.set()
    feeder.join()
    following.begin()
    following.wait_for("1 batch,")
    os.killpg(following.process.pid, signal.SIGINT)
    assert following.process.wait(PROCESS_SECONDS_MAX) == 0, following.said()
    assert "stopping after this batch" in following.said()
    assert "matches" in following.process.stdout.read()
    assert before.items() <= seen(out).items()
    # What is left, in this process: the checkpoint is not bound to the one that made it.
    files = NotificationFiles(str(source), types={"n": "int", "x": "int"})
    match_stream(files, tmp_path / "index", out, once=True, spark=spark).awaitTermination()
    found = seen(out)
    assert sorted(found) == list(range(len(feeder.rows)))
    assert len({version for _, version in found.values()}) > 1
    for row, (subscriptions, version) in found.items():
        assert subscriptions == matchers[version].match(feeder.rows[row])
    rejects = read_stream_output(spark, out, "rejects").collect()
    assert {row.file.rpartition("/")[2] for row in rejects} == bad_files(source)
    assert len(rejects) == len(bad_files(source))


def bad_files(source):
    return {one.name for one in source.iterdir() if "oops" in one.read_text()}
