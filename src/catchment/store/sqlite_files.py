"""What people do with the files of a SQLite store: look at them, and go on after a loss.

Accepting a loss makes a new file beside the old one and exchanges the two by renaming. Whenever it is interrupted, it
can be started again: either the old file is still in its place, or the new one is complete under its first name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from catchment.store.interface import StoreError, StoreStatus
from catchment.store.sql.examining import Examination, examined
from catchment.store.sql.rebuilding import Rebuilt, rebuild
from catchment.store.sql.reporting import status_of
from catchment.store.sql.tables import Tables, load_state
from catchment.store.sqlite import FINISHED, SqliteDatabase, beside, locked
from catchment.store.witness import Testimony, Witness, read_testimony

# The new file while it is being made. Once it is complete, it is called FINISHED.
_UNFINISHED: Final = "unfinished"


@contextmanager
def read_only(path: Path) -> Iterator[SqliteDatabase]:
    """The database as it is now, also beside a broker that writes to it."""
    if not path.exists():
        raise StoreError(f"{path}: there is no such store")
    with closing(SqliteDatabase(path, None)) as database:
        # One snapshot for all that is read.
        database.run("BEGIN")
        yield database


def examine_file(path: Path, progress: Callable[[int, int], None]) -> Examination:
    # Before the database: a broker that writes now may be further there, but not here.
    testimony = read_testimony(beside(path, "witness"))
    with read_only(path) as database:
        return examined(database, testimony, str(beside(path, "witness")), progress)


def file_status(path: Path) -> StoreStatus:
    with read_only(path) as database:
        tables = Tables(database, load_state(database))
        tables.small.load(database, tables.hasher)
        return status_of(tables)


def rebuild_file(path: Path, progress: Callable[[int], None]) -> Rebuilt:
    """Makes a new store of what is whole. What was there stays under another name."""
    lock = locked(path)
    try:
        testimony = read_testimony(beside(path, "witness"))
        if not path.exists() and testimony is None and not beside(path, FINISHED).exists():
            raise StoreError(f"{path}: there is no such store")
        log = os.urandom(16).hex()
        is_interrupted = beside(path, FINISHED).exists()
        if is_interrupted:
            rebuilt = _finished(path)
        else:
            rebuilt = _made_anew(path, testimony, log, progress)
        return _exchanged(path, rebuilt)
    finally:
        os.close(lock)


def _made_anew(path: Path, testimony: Testimony | None, log: str, progress: Callable[[int], None]) -> Rebuilt:
    unfinished = beside(path, _UNFINISHED)
    for end in ("", "-wal", "-shm"):
        Path(f"{unfinished}{end}").unlink(missing_ok=True)
    with closing(SqliteDatabase(unfinished, None, is_new=True)) as target:
        target.prepare(log)
        tables = Tables(target, load_state(target))
        with _source(path) as source:
            rebuilt = rebuild(source, tables, testimony, progress)
        target.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    _synced_rename(unfinished, beside(path, FINISHED))
    return rebuilt


@contextmanager
def _source(path: Path) -> Iterator[SqliteDatabase]:
    """The old file. If there is none, an empty one: then all that is left is what the witness says."""
    if path.exists():
        with closing(SqliteDatabase(path, None, is_writable=True)) as source:
            yield source
    else:
        with closing(SqliteDatabase(Path(":memory:"), None, is_new=True)) as nothing:
            yield nothing


def _finished(path: Path) -> Rebuilt:
    """A new file that was complete when it was interrupted."""
    with closing(SqliteDatabase(beside(path, FINISHED), None, is_writable=True)) as database:
        state = load_state(database)
        return Rebuilt(str(path), "", state.log, state.head, state.records, 0, 0)


def _exchanged(path: Path, rebuilt: Rebuilt) -> Rebuilt:
    kept_as = beside(path, f"before-{rebuilt.log[:8]}")
    for end in ("-wal", "-shm", "-witness", ""):
        if (old := Path(f"{path}{end}")).exists():
            os.replace(old, f"{kept_as}{end}")
    with closing(SqliteDatabase(beside(path, FINISHED), None, is_writable=True)) as database:
        state = load_state(database)
    with closing(Witness(beside(path, "witness"))) as witness:
        witness.write(state.log, state.serial, state.head)
    # Last: as long as it has its first name, all this is done again.
    _synced_rename(beside(path, FINISHED), path)
    return Rebuilt(
        str(path), rebuilt.log_before, rebuilt.log, rebuilt.head, rebuilt.records, rebuilt.missing, rebuilt.rows,
        str(kept_as) if kept_as.exists() else "",
    )  # fmt: skip


def _synced_rename(old: Path, new: Path) -> None:
    file = os.open(old, os.O_RDWR)
    os.fsync(file)
    os.close(file)
    os.replace(old, new)
    directory = os.open(new.absolute().parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
