"""The store in a schema of a PostgreSQL database.

    postgresql://user@host/database?catchment_schema=NAME&catchment_witness=PATH

The schema is `catchment` unless told. One connection writes. It holds an advisory lock on the schema for as long as it
is connected, so no second broker writes there. The server must sync before it says that it has committed: a server or
a session with `fsync` or `synchronous_commit` off is refused.

If the connection ends while a commit is under way, nobody knows whether it was committed. Then this connects again,
with the lock, and reads the state: either it is the one that was being written, or the one before, and the transaction
is done once more. Anything else means that somebody else has written, and is final.

A witness file is optional here. The server's write-ahead log has checksums, and its disk is not the broker's disk.
What a witness still finds is a server that was set back: restored from an old copy, or replaced by a standby that had
not everything. Whoever wants to know that, names a path.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec.structs import replace
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from catchment.store.interface import (
    Retention,
    StoreBrokenError,
    StoreError,
    StoreFullError,
    StoreInUseError,
    StoreStatus,
)
from catchment.store.sql.database import Row, transaction
from catchment.store.sql.examining import Examination, examined
from catchment.store.sql.rebuilding import Rebuilt, rebuild
from catchment.store.sql.reporting import status_of
from catchment.store.sql.schema import TABLES, create, migrate
from catchment.store.sql.store import SqlStore
from catchment.store.sql.tables import State, Tables, load_state, save_state
from catchment.store.witness import Testimony, Witness, read_testimony

SCHEMA: Final = "catchment"
# From this many rows on, COPY is faster than a pipeline of inserts.
COPY_ROWS_MIN: Final = 8

TYPES: Final = {"int": "BIGINT", "bytes": "BYTEA", "text": "TEXT", "clustered": ""}
_SCHEMA_OPTION, _WITNESS_OPTION = "catchment_schema", "catchment_witness"
# The first half of the advisory lock; the second is a hash of the schema's name.
_LOCK_SPACE: Final = 0x43617463
LOCK_WAIT_MS: Final = 1_000
_NUMBERS: Final = ("epoch", "identity_no", "state")
# Attempts to connect again, with a pause after each: a server that was killed takes some seconds to start.
CONNECT_ATTEMPTS_MAX: Final = 50
CONNECT_PAUSE_S: Final = 0.2
# Times that a transaction is tried because the connection has ended.
RETRIES_MAX: Final = 3


class Address:
    """An address, without what is for Catchment alone."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        self.schema = options.pop(_SCHEMA_OPTION, SCHEMA)
        witness = options.pop(_WITNESS_OPTION, "")
        self.witness = Path(witness) if witness else None
        self.server = urlunsplit(parts._replace(query=urlencode(options)))
        # For people: without a password.
        place = parts.netloc.rpartition("@")[2]
        self.shown = f"postgresql://{place}{parts.path}, schema {self.schema}"


def open_postgres(url: str, retention: Retention | None = None) -> SqlStore:
    """Opens the store, and makes it if it is not there."""
    address = Address(url)
    database = PostgresDatabase(address)
    witness = None
    try:
        database.prepare(os.urandom(16).hex())
        witness = None if address.witness is None else Witness(address.witness)
        return SqlStore(database, witness, retention or Retention())
    except BaseException:
        if witness is not None:
            witness.close()
        database.close()
        raise


class PostgresDatabase:
    """A `Database`. With `is_writer` it takes the lock."""

    def __init__(self, address: Address, is_writer: bool = True, schema: str | None = None) -> None:
        self.url = address.shown
        self.state_value: bytes | None = None
        # The state as it was committed last.
        self._committed: bytes | None = None
        self._address = address
        self._schema = schema or address.schema
        self._is_writer = is_writer
        self._is_in_transaction = False
        # What the transaction has done so far: it is done once more if the connection ends.
        self._done: list[Callable[[], object]] = []
        self._connection = self._connected()

    def _connected(self) -> psycopg.Connection[Row]:
        with self._errors():
            connection = psycopg.connect(self._address.server, autocommit=True, application_name="catchment")
        try:
            with self._errors():
                connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
            if self._is_writer:
                self._check_settings(connection)
                self._take_lock(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_settings(self, connection: psycopg.Connection[Row]) -> None:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            with self._errors():
                rows = connection.execute(f"SHOW {name}").fetchall()
            if rows == [("off",)]:
                raise StoreError(
                    f"{self.url}: the server has {name} = off, so a power cut loses what it says it has committed: "
                    "set it to on"
                )

    def _take_lock(self, connection: psycopg.Connection[Row]) -> None:
        """Waits a moment: the server may not have noticed yet that the last writer is gone."""
        try:
            connection.execute(f"SET lock_timeout = {LOCK_WAIT_MS}")
            connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (_LOCK_SPACE, self._address.schema))
            connection.execute("SET lock_timeout = 0")
        except errors.LockNotAvailable:
            raise StoreInUseError(
                f"{self.url}: another process has this store open, most likely a running broker: stop that first"
            ) from None
        except psycopg.Error as problem:
            raise _translated(self.url, problem) from problem

    def prepare(self, log: str) -> None:
        """Makes the tables, if they are not there, and those of this version, if they are older."""
        if not self.has_tables():
            with transaction(self):
                self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
                create(self, TYPES)
                save_state(self, State(log))
        migrate(self, TYPES)
        self._committed = self._state_there()

    def has_tables(self) -> bool:
        statement = "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'meta'"
        return bool(self.rows(statement, (self._schema,)))

    # --- statements ---

    def begin(self) -> None:
        self._retried(lambda: self.execute("BEGIN"))
        self._is_in_transaction, self._done = True, []

    def commit(self) -> None:
        self._retried(lambda: self.execute("COMMIT"), is_commit=True)
        self._committed = self.state_value
        self._is_in_transaction, self._done = False, []

    def roll_back(self) -> None:
        self._is_in_transaction, self._done = False, []
        self.state_value = self._committed
        with suppress(psycopg.Error):
            if self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        found: list[Row] = []

        def work() -> None:
            found[:] = self.execute(statement, values).fetchall()

        self._retried(work)
        return found

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._do(lambda: self.execute(statement, values))

    def run_many(self, statement: str, values: Sequence[Row]) -> None:
        if values:
            self._do(lambda: self._execute_many(statement, values))

    def insert(self, table: str, columns: Sequence[str], values: Sequence[Row]) -> None:
        if len(values) >= COPY_ROWS_MIN:
            self._do(lambda: self._copy(table, columns, values))
        else:
            places = ", ".join("?" * len(columns))
            self.run_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", values)

    def _do(self, work: Callable[[], object]) -> None:
        self._retried(work)
        if self._is_in_transaction:
            self._done.append(work)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Row]:
        return self._connection.execute(statement.replace("?", "%s"), values)

    def _execute_many(self, statement: str, values: Sequence[Row]) -> None:
        # psycopg sends these in pipeline mode: they do not wait for each other.
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), values)

    def _copy(self, table: str, columns: Sequence[str], values: Sequence[Row]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int8" if column in _NUMBERS else "bytea" for column in columns])
            for row in values:
                copy.write_row(row)

    # --- when the connection ends ---

    def _retried(self, work: Callable[[], object], is_commit: bool = False) -> None:
        """Does the work. If the connection ends meanwhile, connects again and does what is missing, from the beginning
        of the transaction."""
        attempts = 0
        while True:
            try:
                with self._errors():
                    work()
                return
            except StoreBrokenError:
                attempts += 1
                if not self._is_writer or not self._connection.closed or attempts == RETRIES_MAX:
                    raise
            self._connect_again()
            if self._is_committed(is_commit):
                return
            if self._is_in_transaction:
                with self._errors():
                    self.execute("BEGIN")
                    for earlier in self._done:
                        earlier()

    def _connect_again(self) -> None:
        """The server may have to start first, and to end what the old connection was doing."""
        for attempt in range(1, CONNECT_ATTEMPTS_MAX + 1):
            try:
                self._connection = self._connected()
                return
            except (StoreBrokenError, StoreInUseError):
                if attempt == CONNECT_ATTEMPTS_MAX:
                    raise
                threading.Event().wait(CONNECT_PAUSE_S)

    def _is_committed(self, is_commit: bool) -> bool:
        """After connecting again: whether the commit that was under way has succeeded."""
        actual = self._state_there()
        if is_commit and actual == self.state_value:
            return True
        if actual != self._committed:
            raise StoreBrokenError(f"{self.url}: somebody else has written to this store: nothing more is written")
        return False

    def _state_there(self) -> bytes | None:
        with self._errors():
            rows = self.execute("SELECT value FROM meta WHERE key = 'state'").fetchall()
        return rows[0][0] if rows else None

    # --- the rest ---

    def tend(self, is_idle: bool = False) -> None:
        """The server does this by itself."""

    def reserve(self) -> bool:
        """The disk is the server's: nothing can be put aside there, and whether there is room shows in writing."""
        return True

    def release(self) -> bool:
        return False

    def own_problems(self) -> list[str]:
        return []

    def close(self) -> None:
        with suppress(psycopg.Error):
            # The server ends a connection somewhat later: the next writer need not wait for that.
            if self._connection.info.transaction_status == TransactionStatus.IDLE:
                self._connection.execute("SELECT pg_advisory_unlock_all()")
        with suppress(psycopg.Error):
            self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as problem:
            raise _translated(self.url, problem) from problem


def quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _translated(url: str, problem: psycopg.Error) -> StoreError:
    said = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
    match problem:
        case errors.DiskFull() | errors.OutOfMemory() | errors.ConfigurationLimitExceeded():
            return StoreFullError(f"{url}: the server has no room: {said}")
        case errors.UniqueViolation():
            return StoreBrokenError(f"{url}: somebody else has written to this store: {said}")
        case _:
            return StoreBrokenError(f"{url}: {said}")


# --- what people do -------------------------------------------------------------------------------


@contextmanager
def _read_only(address: Address) -> Iterator[PostgresDatabase]:
    """The tables as they are now, also beside a broker that writes to them."""
    with closing(PostgresDatabase(address, is_writer=False)) as database:
        if not database.has_tables():
            raise StoreError(f"{address.shown}: there is no such store")
        database.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield database


def schema_status(url: str) -> StoreStatus:
    with _read_only(Address(url)) as database:
        tables = Tables(database, load_state(database))
        tables.small.load(database, tables.hasher)
        return status_of(tables)


def examine_schema(url: str, progress: Callable[[int, int], None]) -> Examination:
    address = Address(url)
    testimony = None if address.witness is None else read_testimony(address.witness)
    with _read_only(address) as database:
        return examined(database, testimony, str(address.witness or ""), progress)


def rebuild_schema(url: str, progress: Callable[[int], None]) -> Rebuilt:
    """Makes a new schema of what is whole, and exchanges the two in one transaction."""
    address = Address(url)
    testimony = None if address.witness is None else read_testimony(address.witness)
    with closing(PostgresDatabase(address)) as source:
        if not source.has_tables():
            raise StoreError(f"{address.shown}: there is no such store")
        rebuilt, state = _made_anew(address, source, testimony, progress)
    if address.witness is not None:
        # A crash before this leaves a witness of the old log: opening says so, and accepting it once more mends it.
        with closing(Witness(address.witness)) as witness:
            witness.write(state.log, state.serial, state.head)
            witness.write(state.log, state.serial, state.head)
    return rebuilt


def _other_tables(database: PostgresDatabase, schema: str) -> list[str]:
    """Tables in the schema that are not of the log: those of the HTTP side."""
    rows = database.rows("SELECT tablename FROM pg_tables WHERE schemaname = ? ORDER BY tablename", (schema,))
    return [name for (name,) in rows if name not in TABLES]


def _made_anew(
    address: Address, source: PostgresDatabase, testimony: Testimony | None, progress: Callable[[int], None]
) -> tuple[Rebuilt, State]:
    log, new = os.urandom(16).hex(), f"{address.schema}_new"
    kept_as = f"{address.schema}_before_{log[:8]}"
    # The lock is on the name of the store: `source` has it for both.
    with closing(PostgresDatabase(address, is_writer=False, schema=new)) as target:
        target.run(f"DROP SCHEMA IF EXISTS {quoted(new)} CASCADE")
        target.prepare(log)
        tables = Tables(target, load_state(target))
        rebuilt = rebuild(source, tables, testimony, progress)
        with transaction(target):
            target.run(f"ALTER SCHEMA {quoted(address.schema)} RENAME TO {quoted(kept_as)}")
            target.run(f"ALTER SCHEMA {quoted(new)} RENAME TO {quoted(address.schema)}")
            for name in _other_tables(target, kept_as):
                target.run(f"ALTER TABLE {quoted(kept_as)}.{quoted(name)} SET SCHEMA {quoted(address.schema)}")
        return replace(rebuilt, kept_as=kept_as), tables.state
