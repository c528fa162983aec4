"""The store in a SQLite file.

    NAME            the database
    NAME-wal, -shm  SQLite's write-ahead log and its index
    NAME-witness    what the database must have at least (`witness.py`)
    NAME-ballast    room for when the disk is full
    NAME-lock       whoever holds the lock on it may write

One connection writes, in one thread. SQLite before 3.51.3 can lose a write-ahead log when two connections move it into
the database at once: here only this one does, and nobody else opens the file to write while it holds the lock. Reading
beside it (`mode=ro`) is safe.

SQLite moves the write-ahead log into the database by itself now and then, and ignores it if that fails. Here this is
done by `tend`, which does not ignore it: if a sync of the database failed once, a later one that succeeds proves
nothing (the kernel may have dropped the pages), and then the write-ahead log must not be given up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from catchment.store.interface import (
    Retention,
    StoreBrokenError,
    StoreError,
    StoreFullError,
    StoreInUseError,
    StoreLossError,
)
from catchment.store.sql.database import Row, transaction
from catchment.store.sql.schema import create, migrate
from catchment.store.sql.store import SqlStore
from catchment.store.sql.tables import State, save_state
from catchment.store.witness import Witness, check_extent, read_testimony

# Put aside for acknowledgements and collecting when the disk is full. What these write goes through the write-ahead
# log first: this is room for four thousand pages.
BALLAST_BYTES: Final = 16 * 1_048_576
# Room that there must be besides, for records. Otherwise the next of them would find the disk full again.
ROOM_BYTES_MIN: Final = 1_048_576
# The write-ahead log is moved into the database after about so many bytes. More of them mean fewer syncs of the
# database, and pages that change often are moved once; fewer mean shorter pauses.
WAL_BYTES_MAX = 16 * 1_048_576
# What a transaction adds besides its bodies, about: pages of the index, of small tables, of the state.
_TRANSACTION_BYTES: Final = 32_768
# Pages that one call of `tend` gives back to the file system when idle.
VACUUM_PAGES: Final = 1_024
# A store that was made anew after a loss, complete but not yet in its place (`sqlite_files.py`).
FINISHED: Final = "new"
_STATEMENTS_CACHED: Final = 256

TYPES: Final = {"int": "INTEGER", "bytes": "BLOB", "text": "TEXT", "clustered": " WITHOUT ROWID"}


def open_sqlite(path: Path, retention: Retention | None = None) -> SqlStore:
    """Opens the store, and makes it if it is not there."""
    lock = locked(path)
    witness = database = None
    try:
        if beside(path, FINISHED).exists():
            raise StoreLossError(f"{path}: catchment store accept-loss was interrupted: start it again, it goes on")
        is_new = not path.exists()
        if is_new and (testimony := read_testimony(beside(path, "witness"))) is not None:
            check_extent(str(path), beside(path, "witness"), testimony, None)
        witness = Witness(beside(path, "witness"))
        database = SqliteDatabase(path, lock)
        database.prepare(os.urandom(16).hex())
        return SqlStore(database, witness, retention or Retention())
    except BaseException:
        if witness is not None:
            witness.close()
        if database is not None:
            database.close()
        else:
            os.close(lock)
        raise


def beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.name}-{what}")


def locked(path: Path) -> int:
    """A lock that holds until the file is closed, also by a crash."""
    place = beside(path, "lock")
    try:
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StoreError(f"{path}: the store cannot be opened: {place}: {problem.strerror}") from problem
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise StoreInUseError(
            f"{path}: another process has this store open, most likely a running broker: stop that first"
        ) from None
    return file


class SqliteDatabase:
    """A `Database`. With `lock`, which it closes at the end, it writes, and makes the file if it is not there. Without,
    it only reads, unless it is told that the caller holds the lock."""

    def __init__(self, path: Path, lock: int | None, is_new: bool = False, is_writable: bool = False) -> None:
        self.url = str(path)
        self.state_value: bytes | None = None
        # About how much of the write-ahead log is not in the database yet.
        self._unmoved_bytes = 0
        self._path = path
        self._lock = lock
        mode = "rwc" if lock is not None or is_new else "rw" if is_writable else "ro"
        name = ":memory:" if str(path) == ":memory:" else f"file:{quote(str(path.absolute()))}?mode={mode}"
        with self._errors():
            self._connection = sqlite3.connect(
                name,
                uri=True,
                isolation_level=None,
                cached_statements=_STATEMENTS_CACHED,
                # Nobody else writes. Waiting for readers would stop this writer.
                timeout=0.0,
                check_same_thread=False,
            )

    def prepare(self, log: str) -> None:
        """Sets up the connection, and the tables of a new file."""
        # Both hold for the file, from its first page on.
        self.run("PRAGMA auto_vacuum = INCREMENTAL")
        ((mode,),) = self.rows("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreError(f"{self.url}: SQLite cannot use a write-ahead log here: is it a network file system?")
        self.run("PRAGMA synchronous = FULL")
        self.run("PRAGMA wal_autocheckpoint = 0")
        self.run("PRAGMA cell_size_check = ON")
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
            if self.rows("SELECT 1 FROM sqlite_master"):
                raise StoreError(f"{self.url} is a SQLite database, but no store of Catchment")
            # Until here SQLite had a rollback journal. If the power fails and its name comes back, it would undo what
            # is in the database from now on.
            self._sync_directory()
            with transaction(self):
                create(self, TYPES)
                save_state(self, State(log))
            self._sync_directory()
        migrate(self, TYPES)

    # --- statements ---

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.run("COMMIT")
        self._unmoved_bytes += _TRANSACTION_BYTES

    def roll_back(self) -> None:
        # After some errors SQLite has ended the transaction itself.
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._errors():
            return self._connection.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        with self._errors():
            self._connection.execute(statement, values)

    def run_many(self, statement: str, values: Sequence[Row]) -> None:
        with self._errors():
            self._connection.executemany(statement, values)

    def insert(self, table: str, columns: Sequence[str], values: Sequence[Row]) -> None:
        if columns[-1] == "body":
            self._unmoved_bytes += sum([len(row[-1] or b"") for row in values])
        places = ", ".join("?" * len(columns))
        self.run_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", values)

    # --- the file ---

    def tend(self, is_idle: bool = False) -> None:
        if is_idle:
            self._give_back()
        if self._unmoved_bytes >= WAL_BYTES_MAX or (is_idle and self._unmoved_bytes):
            self._move_wal("PASSIVE")

    def _move_wal(self, how: str) -> None:
        """Moves the write-ahead log into the database. The file of the log stays as long as it is, and is written anew
        from its beginning: syncing a file that does not grow is cheaper. Only TRUNCATE makes it empty."""
        with suppress(StoreFullError):  # then the write-ahead log stays as it is
            self.rows(f"PRAGMA wal_checkpoint({how})")
            self._unmoved_bytes = 0

    def _give_back(self) -> None:
        ((free,),) = self.rows("PRAGMA freelist_count")
        if free:
            with suppress(StoreFullError):
                with self._errors():
                    # `execute` would do one step of it, which is one page.
                    self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
                self._unmoved_bytes += _TRANSACTION_BYTES

    def reserve(self) -> bool:
        if self._reserved():
            return True
        # The write-ahead log may be what is in the way.
        self._move_wal("TRUNCATE")
        return self._reserved()

    def _reserved(self) -> bool:
        try:
            file = os.open(beside(self._path, "ballast"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            return self._without_ballast(problem)
        try:
            if os.fstat(file).st_blocks * 512 < BALLAST_BYTES:
                os.posix_fallocate(file, 0, BALLAST_BYTES)
                os.fsync(file)
            free = os.fstatvfs(file)
            if free.f_bavail * free.f_frsize < ROOM_BYTES_MIN:
                raise OSError(errno.ENOSPC, "there is room for nothing else")
            return True
        except OSError as problem:
            # A part of it would be in the way.
            os.truncate(file, 0)
            return self._without_ballast(problem)
        finally:
            os.close(file)

    def _without_ballast(self, problem: OSError) -> bool:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return False
        raise StoreBrokenError(f"{beside(self._path, 'ballast')}: {problem.strerror}") from problem

    def release(self) -> bool:
        place = beside(self._path, "ballast")
        try:
            had = place.stat().st_size > 0
            os.truncate(place, 0)
        except OSError:
            return False
        # What is deleted from now on gives its pages back to the database, not to the write-ahead log.
        self._move_wal("TRUNCATE")
        return had

    def own_problems(self) -> list[str]:
        said = [text for (text,) in self.rows("PRAGMA quick_check(10)")]
        return [] if said == ["ok"] else [f"SQLite: {text}" for text in said]

    def close(self) -> None:
        # SQLite moves the write-ahead log into the database here. If that fails, it is there for the next time.
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _sync_directory(self) -> None:
        directory = os.open(self._path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise _translated(self.url, problem) from problem


def _translated(url: str, problem: sqlite3.Error) -> StoreError:
    """SQLite's error as one of ours. The low byte of a code is its kind, the rest says more."""
    code = getattr(problem, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    name = getattr(problem, "sqlite_errorname", type(problem).__name__)
    match kind:
        case sqlite3.SQLITE_FULL:
            return StoreFullError(f"{url}: there is no room on the disk")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreInUseError(f"{url}: another process has this database open to write ({name})")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreBrokenError(
                f"{url} is damaged ({name}: {problem}): restore it from a copy, or let catchment store accept-loss go "
                "on with what is whole"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_READONLY:
            return StoreError(
                f"{url} cannot be opened ({name}: {problem}): is the path right, and may you write there?"
            )
        case _:
            return StoreBrokenError(f"{url}: the disk has failed ({name}: {problem}): nothing more is written")
