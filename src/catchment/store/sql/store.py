"""A store in an SQL database: `write`, and everything else by way of its parts.

State: the tables (`schema.py`), a copy of the small ones in memory, and a witness (`witness.py`).

write     One transaction for the whole batch: rows of `log`, `due` and `wide`, then the small tables and the state.
          When it is committed, the witness is written and synced. Only then does `write` return.
identity  The row of an identity says which record it was due last and how many there were. Written with each record,
          these rows would be most of the work, so they are written every TAIL_RECORDS_MAX records. When the store is
          opened, the bodies after that are read (`checking.py`).
full      `write` takes a reserve that was put aside for this, and from then on refuses records, but nothing else, until
          the reserve has been put aside again (`probe`).
broken    After an error of the disk nothing is tried again. The kernel may have dropped what it could not write, so a
          second attempt that succeeds proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from catchment.routing.messages import Time
from catchment.routing.stored import Fetch, Fetched, Forgotten, Opened, Persist, Record
from catchment.store.following import check_follows
from catchment.store.interface import (
    Collected,
    Retention,
    StoreBrokenError,
    StoreError,
    StoreFullError,
    StoreStatus,
)
from catchment.store.sql.bodies import body_of
from catchment.store.sql.checking import checked_at_start, scrubbed
from catchment.store.sql.collecting import Collector
from catchment.store.sql.database import Database, Row
from catchment.store.sql.reading import fetched
from catchment.store.sql.reporting import opened_of, status_of
from catchment.store.sql.schema import KEPT, WIDE_MIN
from catchment.store.sql.small import Changes
from catchment.store.sql.tables import Tables, Transaction, load_state
from catchment.store.witness import Witness

T = TypeVar("T")

# The bodies that opening a store reads to know who was due what last: some hundredths of a second.
TAIL_RECORDS_MAX: Final = 4_096

_LOG_COLUMNS: Final = ("epoch", "state", "due_count", "hash", "body")
_DUE_COLUMNS: Final = ("identity_no", "epoch")
_WIDE_COLUMNS: Final = ("epoch", "numbers", "hash")


class SqlStore:
    """A `Store`, open."""

    def __init__(self, database: Database, witness: Witness | None, retention: Retention) -> None:
        self.url = database.url
        self._database = database
        self._witness = witness
        self._is_full = False
        self._problem: str | None = None
        with self._guarded():
            self._tables = Tables(database, load_state(database))
            if witness is not None:
                witness.check(self.url, self._tables.state)
            checked_at_start(self._tables)
            self._collector = Collector(self._tables, retention)
            self._testify()
            self._is_full = not database.reserve()

    # --- what a host calls ---

    def opened(self) -> Opened:
        with self._guarded():
            return opened_of(self._tables)

    def write(self, batch: Sequence[Persist]) -> None:
        with self._guarded():
            state = self._tables.state
            check_follows(batch, state.serial, state.head)
            has_records = any(type(write) is Record for persist in batch for write in persist.writes)
            if has_records and self._is_full and not self._probe():
                raise StoreFullError(f"{self.url}: there is no room for records")
            self._within_reserve(lambda: self._write(batch), has_records)
            self._testify()
            self._database.tend()

    def probe(self) -> bool:
        with self._guarded():
            return self._probe()

    def read(self, fetch: Fetch) -> Fetched:
        with self._guarded():
            return fetched(self._tables, fetch)

    def collect(self, now: Time) -> Collected:
        with self._guarded():
            collected = self._within_reserve(lambda: self._collector.collect(now), has_records=False)
            self._database.tend(is_idle=True)
            return collected

    def scrub(self, records_max: int) -> int:
        with self._guarded():
            return scrubbed(self._tables, records_max)

    def status(self) -> StoreStatus:
        with self._guarded():
            return status_of(self._tables, self._is_full)

    def close(self) -> None:
        """Gives everything back. What has not been written is not written any more."""
        if self._witness is not None:
            self._witness.close()
        self._database.close()
        self._problem = self._problem or "it was closed"

    # --- parts of a write ---

    def _write(self, batch: Sequence[Persist]) -> None:
        with self._tables.change() as change:
            rows = _Rows(self._tables, change)
            for persist in batch:
                rows.add(persist)
            if change.state.head - change.state.tail >= TAIL_RECORDS_MAX:
                change.write_identities()
            rows.insert(self._database)

    def _testify(self) -> None:
        if self._witness is not None:
            state = self._tables.state
            self._witness.write(state.log, state.serial, state.head)

    # --- full and broken ---

    def _within_reserve(self, work: Callable[[], T], has_records: bool) -> T:
        """Does the work. If there is no room, frees the reserve: what has no records is then done once more."""
        try:
            return work()
        except StoreFullError:
            self._is_full = True
            if not self._database.release() or has_records:
                raise
        except StoreBrokenError:
            raise
        except StoreError as problem:
            # It worked before, so it is not how it was asked.
            raise StoreBrokenError(str(problem)) from problem
        return work()

    def _probe(self) -> bool:
        if self._is_full and self._database.reserve():
            self._is_full = False
        return not self._is_full

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        if self._problem is not None:
            raise StoreBrokenError(f"{self.url} is closed until it is opened again: {self._problem}")
        try:
            yield
        except StoreBrokenError as problem:
            self._problem = str(problem)
            raise


class _Rows:
    """The rows that a batch adds."""

    def __init__(self, tables: Tables, change: Transaction) -> None:
        self._tables = tables
        self._state = change.state
        self._changes: Changes = change.changes
        self._log: list[Row] = []
        self._due: list[Row] = []
        self._wide: list[Row] = []
        # Numbers of identities that were forgotten.
        self._forgotten: list[int] = []

    def add(self, persist: Persist) -> None:
        self._state.serial = persist.serial
        for write in persist.writes:
            if type(write) is Record:
                self._add_record(write)
            else:
                if type(write) is Forgotten:
                    self._forget(write.identity)
                self._changes.enter(write, self._state.head)  # type: ignore[arg-type]

    def _add_record(self, record: Record) -> None:
        epoch, state = record.epoch, self._state
        dues, numbers = [], []
        for name, ids in record.due:
            identity = self._changes.identity(name, epoch - 1)
            identity.count += 1
            dues.append((name, identity.last, identity.count, ids))
            identity.last = epoch
            numbers.append(identity.number)
        body = body_of(record.at, dues, record.notification)
        self._log.append((epoch, KEPT, len(dues), self._tables.hasher.of_body(epoch, body), body))
        if len(numbers) > WIDE_MIN:
            self._wide.append(self._tables.wide_row(epoch, numbers))
        else:
            self._due += [(number, epoch) for number in numbers]
        state.head = epoch
        state.records += 1
        state.size += len(record.notification.packed)
        if not dues:
            self._sweep(epoch - 1)

    def _sweep(self, after: int) -> None:
        """Records after this epoch may have nobody left who is due: `collect` looks at each."""
        state = self._state
        state.swept = min(after, state.swept) if state.swept < state.sweep_end else after
        state.sweep_end = state.head

    def _forget(self, name: str) -> None:
        if (identity := self._changes.current(name)) is not None:
            self._forgotten.append(identity.number)
            self._due = [row for row in self._due if row[0] != identity.number]
            self._sweep(self._state.anchor)

    def insert(self, database: Database) -> None:
        for number in self._forgotten:
            database.run("DELETE FROM due WHERE identity_no = ?", (number,))
        for table, columns, rows in (
            ("log", _LOG_COLUMNS, self._log),
            ("due", _DUE_COLUMNS, self._due),
            ("wide", _WIDE_COLUMNS, self._wide),
        ):
            if rows:
                database.insert(table, columns, rows)
