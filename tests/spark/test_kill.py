"""A stream that is killed at any moment: each notification is in the output once, and what a reader saw stays."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pyarrow.dataset as ds
import pytest

from catchment.model.notification import Notification
from tests.spark.samples import PROGRAMS, json_lines, put_file, write_index

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

from catchment.pipeline import NotificationFiles, match_stream, read_stream_output  # noqa: E402

# How often the stream is killed, and the seed that the moments come from. Set them to hunt for longer.
KILLS = int(os.environ.get("CATCHMENT_KILLS", "3"))
SEED = int(os.environ.get("CATCHMENT_KILL_SEED", "7"))
PROCESS_SECONDS_MAX = 600


class Stream:
    """`catchment stream` in processes of its own, which are killed together. Spark, which takes most of the time,
    starts at once; the stream starts with `begin`."""

    def __init__(self, root, number, *options):
        command = [sys.executable, PROGRAMS / "waiting_command.py", "stream", root / "in"]
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
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def logged(self):
        self.log.flush()
        with open(self.log.name) as log:
            return log.read()

    def wait_for(self, word):
        until = time.monotonic() + PROCESS_SECONDS_MAX
        while word not in self.logged():
            assert self.process.poll() is None, self.logged()
            assert time.monotonic() < until, self.logged()
            time.sleep(0.02)

    def kill(self):
        """Kills all processes, also those that are left if the command ended by itself."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            assert file is not None
            file.close()


@pytest.fixture
def streams(tmp_path):
    """A function that starts a stream; none survives the test."""
    started: list[Stream] = []

    def start(*options):
        started.append(Stream(tmp_path, len(started), *options))
        return started[-1]

    yield start
    for stream in started:
        stream.kill()


class Feeder(threading.Thread):
    """Lets files arrive, but not many more than are read."""

    def __init__(self, directory, rng):
        super().__init__(daemon=True)
        self.directory, self.rng, self.rows, self.done = directory, rng, [], threading.Event()
        self.files, self.allowed = 0, 0

    def run(self):
        while not self.done.wait(self.rng.random() * 0.3):
            if self.files < self.allowed:
                self.feed()

    def feed(self):
        new = [
            Notification({"n": len(self.rows) + i, "x": self.rng.randrange(20)}) for i in range(self.rng.randrange(30))
        ]
        bad = "oops\n" if self.rng.random() < 0.2 else ""
        put_file(self.directory, f"{self.files}.jsonl", json_lines(*new) + bad)
        self.files += 1
        self.rows += new


def read_rows(out):
    """What any reader finds at any moment: by number of a notification, its subscriptions and the version. Checks that
    each notification is there once."""
    if not any((out / "matched").rglob("*.parquet")):
        return {}
    table = ds.dataset(out / "matched", partitioning="hive").to_table(["n", "subscriptions", "$version"])
    rows = {row["n"]: (row["subscriptions"], row["$version"]) for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a notification is there twice"
    return rows


def test_killed_at_random_moments(spark, streams, tmp_path):
    """Each notification is there once, matched with the version in its path; what a reader saw stays."""
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
    before: dict[int, object] = {}
    # The next process starts Spark while this one streams.
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
        now = read_rows(out)
        assert before.items() <= now.items()
        before = now
    feeder.done.set()
    feeder.join()
    following.begin()
    following.wait_for("1 batch,")
    os.killpg(following.process.pid, signal.SIGINT)
    assert following.process.wait(PROCESS_SECONDS_MAX) == 0, following.logged()
    assert "stopping after this batch" in following.logged()
    assert "matches" in following.process.stdout.read()
    assert before.items() <= read_rows(out).items()
    # This process does the rest: a checkpoint is not bound to the process that made it.
    files = NotificationFiles(str(source), types={"n": "int", "x": "int"})
    match_stream(files, tmp_path / "index", out, once=True, spark=spark).awaitTermination()
    rows = read_rows(out)
    assert sorted(rows) == list(range(len(feeder.rows)))
    assert len({version for _, version in rows.values()}) > 1
    for number, (subscriptions, version) in rows.items():
        assert subscriptions == matchers[version].match(feeder.rows[number])
    rejects = read_stream_output(spark, out, "rejects").collect()
    assert {row.file.rpartition("/")[2] for row in rejects} == bad_files(source)
    assert len(rejects) == len(bad_files(source))


def bad_files(source):
    return {path.name for path in source.iterdir() if "oops" in path.read_text()}
