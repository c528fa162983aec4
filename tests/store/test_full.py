"""A disk of 20 MiB is filled and emptied."""

import os
import subprocess
from contextlib import suppress

import pytest

from catchment.routing.stored import Acknowledged, Fetch, Persist
from catchment.store.interface import StoreFullError
from catchment.store.sqlite import BALLAST_BYTES, beside, open_sqlite
from tests.store.places import record

SIZE = 20 * 1_048_576


@pytest.fixture
def small_disk(tmp_path):
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(store):
    """Writes until there is no room. Returns how many records there are."""
    opened = store.opened()
    serial, head = opened.serial, opened.head
    while True:
        try:
            store.write(
                [Persist(serial + 1, tuple(record(head + n, "ada", payload=b"x" * 10_000) for n in range(1, 11)))]
            )
        except StoreFullError:
            return head
        serial, head = serial + 1, head + 10


def drain(store):
    """Reads and acknowledges everything, and collects it: with the records it has, and no room."""
    opened = store.opened()
    position, serial, count = opened.acknowledged.get("ada", 0), opened.serial, 0
    while position < opened.head:
        piece = store.read(Fetch("ada", position, opened.head))
        position, serial, count = piece.upto, serial + 1, count + len(piece.entries)
        store.write([Persist(serial, (Acknowledged("ada", position),))])
        assert piece.lost == 0
        while store.collect(10**9).more:
            pass
    return count


def test_a_full_disk_takes_no_records_but_acknowledgements(small_disk):
    path = small_disk / "store.db"
    store = open_sqlite(path)
    assert beside(path, "ballast").stat().st_size == BALLAST_BYTES
    for _ in range(3):
        head = fill(store)
        assert head > 100
        assert store.status().is_full
        assert store.opened().head == head
        assert not store.probe()
        with pytest.raises(StoreFullError, match="no room"):
            store.write([Persist(store.opened().serial + 1, (record(head + 1, "ada"),))])
        before = store.opened().acknowledged.get("ada", 0)
        assert drain(store) == head - before
        assert store.status().records == 0
        for _ in range(20):  # gives back the pages that are free
            store.collect(10**9)
        assert store.probe()
        assert not store.status().is_full
    store.close()
    store = open_sqlite(path)
    assert store.opened().head == head
    store.close()


def test_others_fill_the_disk(small_disk):
    """Somebody else takes all the room, then gives it back."""
    store = open_sqlite(small_disk / "store.db")
    store.write([Persist(1, (record(1, "ada"),))])
    other = os.open(small_disk / "other", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(other, bytes(4096)):
            pass
    os.close(other)
    head = fill(store)
    store.close()
    # Opening needs no more room, although the ballast cannot be put back.
    store = open_sqlite(small_disk / "store.db")
    assert store.status().is_full
    assert store.opened().head == head
    assert not store.probe()
    (small_disk / "other").unlink()
    assert store.probe()
    store.write([Persist(store.opened().serial + 1, (record(head + 1, "ada"),))])
    store.close()
