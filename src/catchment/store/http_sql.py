"""The tables of the HTTP side (`http_tables.py`) in SQLite and in PostgreSQL.

The statements are the same for both; a `?` stands for a value. What differs: how the tables are made, how a database is
opened, and what its errors mean.

SQLite: one connection that keeps the file locked, so that a second broker cannot open it. It writes with a rollback
journal and `synchronous=EXTRA`: each change is synced, the folder too. There is no write-ahead log, so nothing needs a
checkpoint.

PostgreSQL: the tables are in the schema of the store. A connection that is lost is opened again by the next call. All
changes may be made twice, so a change whose outcome is unknown is simply made again. A server with `fsync` or
`synchronous_commit` off is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from catchment.store.http_tables import (
    DeadLetter,
    DeadTotal,
    HttpTables,
    MemoryHttpTables,
    Resource,
    ResourceKind,
    checked,
    letter_hash,
    resource_hash,
)
from catchment.store.interface import StoreBrokenError, StoreError, StoreFullError, StoreInUseError
from catchment.store.opening import kind_of, path_of

if TYPE_CHECKING:
    import psycopg

# Greater for tables that this program could not read. A change comes with a migration.
HTTP_TABLES_VERSION: Final = 1

_LETTER: Final = "owner, log, epoch, at, attempts, reason, body, number, hash"
Rows = list[tuple[Any, ...]]
# Runs statements in one transaction. Returns the rows of the last one.
Run = Callable[[Sequence[tuple[str, tuple[Any, ...]]]], Rows]


class SqlHttpTables:
    def __init__(self, run: Run, close: Callable[[], None]) -> None:
        self._run, self.close = run, close

    def _rows(self, statement: str, *values: Any) -> Rows:
        return self._run([(statement, values)])

    def resources(self) -> list[Resource]:
        found = []
        for kind, id, body, hash in self._rows("SELECT kind, id, body, hash FROM http_resource ORDER BY kind, id"):
            resource = Resource(cast("ResourceKind", kind), id, bytes(body))
            checked(bytes(hash), resource_hash(resource), f"the {kind} {id!r}")
            found.append(resource)
        return found

    def keep(self, resource: Resource) -> None:
        self._rows(
            "INSERT INTO http_resource (kind, id, body, hash) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, hash = excluded.hash",
            resource.kind,
            resource.id,
            resource.body,
            resource_hash(resource),
        )

    def drop(self, kind: ResourceKind, id: str) -> None:
        letters = [("DELETE FROM http_dead WHERE owner = ?", (id,))] if kind == "webhook" else []
        self._run([*letters, ("DELETE FROM http_resource WHERE kind = ? AND id = ?", (kind, id))])

    def bury(self, letter: DeadLetter) -> int:
        key = (letter.owner, letter.log, letter.epoch)
        values = (*key, letter.at, letter.attempts, letter.reason, letter.body, letter_hash(letter))
        insert = (
            "INSERT INTO http_dead (owner, log, epoch, at, attempts, reason, body, hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, log, epoch) DO NOTHING"
        )
        look = "SELECT number FROM http_dead WHERE owner = ? AND log = ? AND epoch = ?"
        return int(self._run([(insert, values), (look, key)])[0][0])

    def dead(self, owner: str, after: int, count_max: int) -> list[DeadLetter]:
        query = f"SELECT {_LETTER} FROM http_dead WHERE owner = ? AND number > ? ORDER BY number LIMIT ?"
        return [_letter(row) for row in self._rows(query, owner, after, count_max)]

    def letter(self, owner: str, number: int) -> DeadLetter | None:
        rows = self._rows(f"SELECT {_LETTER} FROM http_dead WHERE owner = ? AND number = ?", owner, number)
        return _letter(rows[0]) if rows else None

    def unbury(self, owner: str, number: int | None) -> int:
        if number is None:
            return len(self._rows("DELETE FROM http_dead WHERE owner = ? RETURNING number", owner))
        return len(self._rows("DELETE FROM http_dead WHERE owner = ? AND number = ? RETURNING number", owner, number))

    def totals(self) -> Mapping[str, DeadTotal]:
        query = "SELECT owner, COUNT(*), SUM(LENGTH(body)) FROM http_dead GROUP BY owner ORDER BY owner"
        return {owner: DeadTotal(int(count), int(size)) for owner, count, size in self._rows(query)}


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    owner, log, epoch, at, attempts, reason, body, number, hash = row
    letter = DeadLetter(owner, log, epoch, at, attempts, reason, bytes(body), number)
    checked(bytes(hash), letter_hash(letter), f"dead letter {number} of {owner!r}")
    return letter


def open_http_tables(url: str) -> HttpTables:
    """The tables that belong to the store at this URL: `memory:`, `postgresql://…`, `sqlite:///FILE` or a path."""
    match kind_of(url):
        case "memory":
            return MemoryHttpTables()
        case "postgresql":
            return PostgresSchema(url).tables()
        case _:
            return SqliteFile(path_of(url)).tables()


# --- SQLite -------------------------------------------------------------------------------------

_SQLITE_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS http_resource (kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,"
    " hash BLOB NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS http_dead (number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL,"
    " log TEXT NOT NULL, epoch INTEGER NOT NULL, at INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " reason TEXT NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL, UNIQUE (owner, log, epoch))",
)
SQLITE_SETTINGS: Final = ("PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=DELETE", "PRAGMA synchronous=EXTRA")


class SqliteFile:
    def __init__(self, store_path: Path) -> None:
        self.path = store_path.with_name(store_path.name + "-http")
        # Calls come from the one thread of the host's, which need not be the thread that opens it.
        self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0)
        self._failure = ""

    def tables(self) -> SqlHttpTables:
        try:
            self._set_up()
        except BaseException:
            self._connection.close()
            raise
        return SqlHttpTables(self.run, self._connection.close)

    def _set_up(self) -> None:
        try:
            for setting in SQLITE_SETTINGS:
                self._connection.execute(setting)
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as problem:
            raise self._meaning(problem) from None
        if version > HTTP_TABLES_VERSION:
            raise StoreBrokenError(
                f"{self.path} is of version {version}, and this program knows {HTTP_TABLES_VERSION}: use a newer one"
            )
        # Writing takes the lock, which is then kept until the end.
        tables = [(table, ()) for table in _SQLITE_TABLES]
        self.run([*tables, (f"PRAGMA user_version = {HTTP_TABLES_VERSION}", ())])

    def run(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> Rows:
        if self._failure:
            raise StoreBrokenError(self._failure)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                rows = self._connection.execute(statement, values).fetchall()
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            self._roll_back()
            raise self._meaning(problem) from None
        return rows

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as problem:
            self._failure = f"{self.path}: {problem}; start the broker again"

    def _meaning(self, problem: sqlite3.Error) -> StoreError:
        name = getattr(problem, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return StoreFullError(f"{self.path}: no room on the disk: {problem}")
        if name in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return StoreInUseError(f"{self.path} is in use by another process: stop that one first")
        # After a failed write or sync nobody knows what is on the disk: it is not tried again.
        self._failure = f"{self.path}: {problem} ({name or type(problem).__name__})"
        return StoreBrokenError(self._failure)


# --- PostgreSQL ---------------------------------------------------------------------------------

_POSTGRES_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS http_version (version INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS http_resource (kind TEXT NOT NULL, id TEXT NOT NULL, body BYTEA NOT NULL,"
    " hash BYTEA NOT NULL, PRIMARY KEY (kind, id))",
    "CREATE TABLE IF NOT EXISTS http_dead (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " owner TEXT NOT NULL, log TEXT NOT NULL, epoch BIGINT NOT NULL, at BIGINT NOT NULL, attempts INTEGER NOT NULL,"
    " reason TEXT NOT NULL, body BYTEA NOT NULL, hash BYTEA NOT NULL, UNIQUE (owner, log, epoch))",
)


class PostgresSchema:
    def __init__(self, url: str) -> None:
        import psycopg

        from catchment.store.postgres import Address

        self._psycopg = psycopg
        self._address = Address(url)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def tables(self) -> SqlHttpTables:
        statements = [(table, ()) for table in _POSTGRES_TABLES]
        versions = self.run([*statements, ("SELECT version FROM http_version", ())])
        if not versions:
            self.run([("INSERT INTO http_version VALUES (?) RETURNING version", (HTTP_TABLES_VERSION,))])
        elif versions[0][0] > HTTP_TABLES_VERSION:
            self._close()
            raise StoreBrokenError(
                f"the HTTP tables are of version {versions[0][0]}, and this program knows {HTTP_TABLES_VERSION}"
            )
        return SqlHttpTables(self.run, self._close)

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            connection = self._psycopg.connect(self._address.server)
            schema = self._psycopg.sql.Identifier(self._address.schema)
            connection.execute(self._psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
            connection.execute(self._psycopg.sql.SQL("SET search_path TO {}").format(schema))
            for name in ("fsync", "synchronous_commit"):
                row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                if row is not None and row[0] == "off":
                    connection.close()
                    raise StoreBrokenError(f"PostgreSQL has {name} off: what it acknowledges may be lost; set it to on")
            connection.commit()
            self._connection = connection
        return self._connection

    def run(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> Rows:
        try:
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                for statement, values in statements:
                    cursor.execute(statement.replace("?", "%s").encode("utf-8"), values)
                return cursor.fetchall() if cursor.description is not None else []
        except self._psycopg.errors.DiskFull as problem:
            raise StoreFullError(f"PostgreSQL has no room: {problem}") from None
        except self._psycopg.Error as problem:
            raise StoreError(f"PostgreSQL: {problem}") from None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
