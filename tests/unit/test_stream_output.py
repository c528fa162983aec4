"""The output of a stream, killed at every step of writing it: each batch is there once, and readers see it whole."""

import json
import os
import shutil

import pytest

pytest.importorskip("pyspark")

from catchment.errors import InputError, UnavailableError
from catchment.pipeline.stream import output as outputs
from catchment.pipeline.stream.output import TABLES, BatchRecord, StreamOutput


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Here a process is killed, not the machine: nothing need be on the disk itself."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


FILES = ("part-0.parquet", "part-1.parquet")


class Killed(BaseException):
    """An exception that no code catches."""


class Killer:
    """Counts the steps that change the disk, and raises Killed before or after one of them."""

    def __init__(self, monkeypatch, at):
        self.at, self.count = at, 0
        for name in ("write_durably", "rename_durably", "sync_directory"):
            monkeypatch.setattr(outputs, name, self.wrapped(getattr(outputs, name)))
        monkeypatch.setattr(shutil, "rmtree", self.wrapped(shutil.rmtree))

    def wrapped(self, step):
        def stepping(*arguments):
            self.tick()
            step(*arguments)
            self.tick()

        return stepping

    def tick(self):
        self.count += 1
        if self.count == self.at:
            raise Killed


def attempt(output, number, version, tables):
    """Does what the handler of a batch does, without Spark."""
    if output.record(number) is not None:
        return
    staged = output.stage(number)
    for table in tables:
        (staged / table).mkdir()
        for name in FILES:
            (staged / table / name).write_text(f"batch {number} version {version}")
    output.commit(BatchRecord(number, version, notifications=number), staged)


def seen(output):
    """What readers of the tables find: for each table and batch its version. Checks that the batch is whole."""
    versions = {}
    for table in TABLES:
        for directory in output.table(table).glob("$version=*/$batch=*"):
            version, batch = (int(part.partition("=")[2]) for part in directory.parts[-2:])
            assert (table, batch) not in versions
            assert sorted(path.name for path in directory.iterdir()) == sorted(FILES)
            assert {path.read_text() for path in directory.iterdir()} == {f"batch {batch} version {version}"}
            versions[table, batch] = version
    return versions


def run(path, version, at=0):
    """Does all batches that are not done, with this version, as a process would. Returns the number of its steps; None
    if it was killed."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, at)
            output = StreamOutput(path)
            output.prepare()
            for number, tables in enumerate(BATCHES):
                with output.locked():
                    attempt(output, number, version, tables)
            return killer.count
    except Killed:
        return None


BATCHES = (TABLES, ("matched",), ("matched", "rejects"), ())


def test_killed_at_every_step(tmp_path):
    steps = run(tmp_path / "whole", 1)
    assert steps > 30
    for at in range(1, steps + 1):
        path = tmp_path / str(at)
        assert run(path, 1, at=at) is None
        before = seen(StreamOutput(path))
        # The next process finds a newer version, and uses it only for batches that were not committed.
        assert run(path, 2) is not None
        after = seen(StreamOutput(path))
        assert after.items() >= before.items()
        assert set(after) == {(table, batch) for batch, tables in enumerate(BATCHES) for table in tables}
        for batch in range(len(BATCHES)):
            record = StreamOutput(path).record(batch)
            assert record is not None
            assert {version for (_, number), version in after.items() if number == batch} <= {record.version}
        assert list((path / "_staging").iterdir()) == list((path / "_committed").iterdir()) == []


def test_killed_again_while_recovering(tmp_path):
    for at in range(1, 40, 3):
        path = tmp_path / str(at)
        for again in (1, 2, 5, 9):
            run(path, 1, at=at)
            run(path, 2, at=again)
        assert run(path, 3) is not None
        assert set(seen(StreamOutput(path))) == {
            (table, batch) for batch, tables in enumerate(BATCHES) for table in tables
        }


def test_records(tmp_path):
    output = StreamOutput(tmp_path)
    output.prepare()
    assert output.last_record() is None
    for number in (0, 1, 10):
        output.commit(BatchRecord(number, 7, time_max=-5), output.stage(number))
    assert output.last_record() == output.record(10) == BatchRecord(10, 7, time_max=-5)
    assert output.record(2) is None
    assert json.loads((tmp_path / "_batches/0000000001.json").read_text())["version"] == 7


def test_one_stream_one_process(tmp_path):
    output = StreamOutput(tmp_path)
    output.prepare()
    output.claim("a")
    output.claim("a")
    with pytest.raises(InputError, match="another stream"):
        output.claim("b")
    with output.locked(), pytest.raises(UnavailableError, match="another process"), StreamOutput(tmp_path).locked():
        pass


@pytest.mark.parametrize("place", ["s3://bucket/out", "hdfs://name/out"])
def test_no_rename_no_stream(place):
    with pytest.raises(InputError, match="rename"):
        StreamOutput(place)


def test_what_is_no_output(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="something else"):
        StreamOutput(tmp_path).prepare()
    with pytest.raises(InputError, match="is a file"):
        StreamOutput(tmp_path / "file").prepare()
    with pytest.raises(InputError, match="not the output of a stream"):
        outputs.open_output(tmp_path)
