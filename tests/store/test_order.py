"""Nothing is acknowledged before both syncs: that of the write-ahead log, and then that of the witness. And after a
failed sync nothing is tried again."""

import sqlite3

import pytest

from catchment.store.interface import StoreBrokenError
from catchment.store.sqlite import open_sqlite
from tests.store import disks
from tests.store.disks import watched
from tests.store.expected import Expected
from tests.store.runs import recording

needs_strace = pytest.mark.skipif(disks.missing() is not None, reason=str(disks.missing()))


@needs_strace
@pytest.mark.parametrize("seed", [0, 1])
def test_a_write_returns_after_both_syncs_in_their_order(seed):
    calls = recording(seed).calls
    # What was written and not synced yet, and the files that were synced since the last write returned.
    unsynced, synced, count = set(), [], 0
    for call in calls:
        if call.name == "write" and call.file.endswith(("-wal", "-witness")):
            unsynced.add(call.file)
        elif call.name == "sync":
            unsynced.discard(call.file)
            synced.append(call.file)
        elif call.name == "returned":
            assert not unsynced
            assert synced[-2:] == ["store.db-wal", "store.db-witness"]
            synced, count = [], count + 1
    assert count > 40


@needs_strace
def test_the_witness_never_promises_what_is_not_synced():
    is_wal_synced = True
    for call in recording(2).calls:
        if call.file.endswith("-wal"):
            is_wal_synced = call.name == "sync"
        elif call.file.endswith("-witness") and call.name == "write":
            assert is_wal_synced


@needs_strace
@pytest.mark.parametrize(
    "fault",
    [
        # The n-th sync fails: of the write-ahead log, of the witness, of the database.
        *(f"fdatasync:error=EIO:when={number}" for number in (22, 23, 24, 25, 60, 61)),
        "pwrite64:error=EIO:when=200",
    ],
)
def test_after_an_error_of_the_disk_nothing_is_tried_again(fault, quick):
    folder = quick / "disk"
    folder.mkdir()
    watched_calls = watched(folder, 3, "-e", f"inject={fault}")
    # Each later write says that the store is broken. None of them has returned.
    assert watched_calls.problems
    assert set(watched_calls.problems) == {"StoreBrokenError"}
    returned = [call.returned for call in watched_calls.calls if call.name == "returned"]
    store = open_sqlite(folder / "store.db")
    serial = store.opened().serial
    assert serial >= max(returned)
    assert Expected(3, serial).difference(store) is None
    store.close()


@needs_strace
def test_a_write_that_found_no_room_may_be_tried_again(quick):
    folder = quick / "disk"
    folder.mkdir()
    writes = [call for call in recording(4).calls if call.name == "write"]
    number = next(number for number, call in enumerate(writes, 1) if number > 300 and call.file.endswith("-wal"))
    calls = watched(folder, 4, "-e", f"inject=pwrite64:error=ENOSPC:when={number}")
    # The workload goes on with the next serial, which does not follow.
    assert calls.problems[0] == "StoreFullError"
    assert set(calls.problems[1:]) == {"StoreError"}
    store = open_sqlite(folder / "store.db")
    assert Expected(4, store.opened().serial).difference(store) is None
    store.close()


def test_codes_of_sqlite(tmp_path):
    """A file that SQLite cannot read as a database, and one that it cannot open."""
    (tmp_path / "text.db").write_text("no database" * 1000)
    with pytest.raises(StoreBrokenError, match="SQLITE_NOTADB"):
        open_sqlite(tmp_path / "text.db")
    other = sqlite3.connect(tmp_path / "busy.db")
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Exception, match="another process"):
        open_sqlite(tmp_path / "busy.db")
    other.close()
