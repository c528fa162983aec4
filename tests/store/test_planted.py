"""Mistakes, planted: each is found by the test that is there to find it."""

import pytest

from catchment.routing.stored import Fetch
from catchment.store.interface import Retention, StoreError
from catchment.store.maintenance import check_store
from catchment.store.sql.bodies import Hasher
from catchment.store.sqlite import open_sqlite
from catchment.store.witness import Witness
from tests.store import disks, runs, test_maintenance
from tests.store.places import record, write_records
from tests.store.runs import StoreRun, outcome_of, recording

needs_strace = pytest.mark.skipif(disks.missing() is not None, reason=str(disks.missing()))
SEEDS = range(200)


def is_found(kind):
    return any(outcome_of(StoreRun(kind, seed)).violation is not None for seed in SEEDS)


def plant_in_recordings(monkeypatch, change):
    changed = {seed: disks.Recording(change(recording(seed).calls)) for seed in range(runs.WORKLOADS)}
    monkeypatch.setattr(runs, "recording", changed.__getitem__)


@needs_strace
@pytest.mark.parametrize("file", ["store.db-wal", "store.db"])
def test_a_sync_is_left_out(monkeypatch, file):
    is_sync = disks.Call("sync", file)
    plant_in_recordings(monkeypatch, lambda calls: [call for call in calls if call != is_sync])
    assert is_found("power")


@needs_strace
def test_the_witness_comes_before_the_commit(monkeypatch):
    def earlier(calls):
        moved: list[disks.Call] = []
        start = 0
        for call in calls:
            if call.file.endswith("-witness"):
                moved.insert(start, call)
                start += 1
            else:
                moved.append(call)
                start = len(moved) if call.name == "returned" else start
        return moved

    plant_in_recordings(monkeypatch, earlier)
    assert is_found("power")


@needs_strace
def test_nobody_looks_at_the_witness(monkeypatch):
    monkeypatch.setattr(Witness, "check", lambda self, url, extent: None)
    assert is_found("damage")


@needs_strace
def test_reads_do_not_look_at_hashes(monkeypatch):
    read = Hasher.read
    monkeypatch.setattr(
        Hasher, "read", lambda self, epoch, digest, body: read(self, epoch, self.of_body(epoch, body), body)
    )
    with pytest.raises((AssertionError, StoreError, ValueError, TypeError, UnicodeDecodeError)):
        assert not is_found("damage")


def test_the_hash_has_no_epoch(monkeypatch, tmp_path):
    of_body = Hasher.of_body
    monkeypatch.setattr(Hasher, "of_body", lambda self, epoch, body: of_body(self, 0, body))
    test_maintenance.filled(tmp_path / "store.db").close()
    swapped = "UPDATE log SET (body, hash) = (SELECT body, hash FROM log WHERE epoch = 5) WHERE epoch = 4"
    test_maintenance.statement(tmp_path / "store.db", swapped)
    assert not any("4: its hash" in problem for problem in check_store(str(tmp_path / "store.db")).problems)


def test_the_index_is_believed(monkeypatch, tmp_path):
    """Without the chain a missing row of the index hides a record: with it the record is read."""
    path = tmp_path / "store.db"
    test_maintenance.filled(path).close()
    for epoch in (1, 4, 10):
        test_maintenance.statement(path, "DELETE FROM due WHERE identity_no = 1 AND epoch = ?", epoch)
    store = open_sqlite(path)
    fetch = Fetch("ada", 0, 10)
    assert [entry.epoch for entry in store.read(fetch).entries] == list(range(1, 11))
    store.close()


def test_retention_tells_what_it_drops(tmp_path):
    store = open_sqlite(tmp_path / "store.db", Retention(age_us_max=1))
    write_records(store, record(1, "ada", at=1), record(2, "ada", at=2))
    assert store.collect(10).lost == (("ada", 2),)
    assert store.read(Fetch("ada", 0, 2)).lost == 2
    store.close()
