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
from catchment.routing.stored import Fetch, Fetched, Opened, Persist, Record
from catchment.store.following import check_follows
from catchment.store.interface import (
    Collected,
    Retention,
    StoreBrokenError,
    StoreError,
    StoreFullError,
    StoreStatus,
)
from catchment.store.sql.checking import checked_at_start, scrubbed
from catchment.store.sql.collecting import Collector
from catchment.store.sql.database import Database
from catchment.store.sql.reading import fetched
from catchment.store.sql.reporting import opened_of, status_of
from catchment.store.sql.tables import Tables, load_state
from catchment.store.sql.writing import Rows
from catchment.store.witness import Witness

T = TypeVar("T")

# The bodies that opening a store reads to know who was due what last: some hundredths of a second.
TAIL_RECORDS_MAX: Final = 4_096


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
            # Before this write and not after the last: who waited for that one has been told already.
            self._database.tend()
            self._within_reserve(lambda: self._write(batch), has_records)
            self._testify()

    def probe(self) -> bool:
        with self._guarded():
            return self._probe()

    def read(self, fetch: Fetch) -> Fetched:
        with self._guarded():
            return fetched(self._tables, fetch)

    def collect(self, now: Time) -> Collected:
        with self._guarded():
            collected = self._within_reserve(lambda: self._collector.collect(now), has_records=False)
            # Moving the write-ahead log takes longer than a slice of collecting: not before all is done.
            self._database.tend(is_idle=not collected.more)
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
            rows = Rows(self._tables, change)
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
