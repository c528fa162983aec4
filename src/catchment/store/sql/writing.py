"""The rows that a batch of writes adds: gathered first, then inserted table by table."""

from __future__ import annotations

from typing import Final

from catchment.routing.stored import Forgotten, Persist, Record
from catchment.store.sql.bodies import body_of
from catchment.store.sql.database import Database, Row
from catchment.store.sql.schema import KEPT, WIDE_MIN
from catchment.store.sql.small import Changes
from catchment.store.sql.tables import Tables, Transaction

_LOG_COLUMNS: Final = ("epoch", "state", "hash", "body")
_DUE_COLUMNS: Final = ("identity_no", "epoch")
_WIDE_COLUMNS: Final = ("epoch", "numbers", "hash")


class Rows:
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
                self.add_record(write)
            else:
                if type(write) is Forgotten:
                    self._forget(write.identity)
                self._changes.enter(write, self._state.head)  # type: ignore[arg-type]

    def add_record(self, record: Record) -> None:
        epoch, state = record.epoch, self._state
        dues, numbers = [], []
        for name, ids in record.due:
            identity = self._changes.identity(name, epoch - 1)
            identity.count += 1
            dues.append((name, identity.last, identity.count, ids))
            identity.last = epoch
            numbers.append(identity.number)
        body = body_of(record.at, dues, record.notification)
        self._log.append((epoch, KEPT, self._tables.hasher.of_body(epoch, body), body))
        if len(numbers) > WIDE_MIN:
            self._wide.append(self._tables.wide_row(epoch, numbers))
        else:
            self._due += [(number, epoch) for number in numbers]
        state.head = epoch
        state.records += 1
        state.size += len(record.notification.packed)
        if not dues:
            self._sweep(epoch - 1)

    def skip_to(self, epoch: int, state: int) -> None:
        """Rows without a body, up to the epoch before this one."""
        self._log += [(each, state, b"", None) for each in range(self._state.head + 1, epoch)]
        self._state.head = epoch - 1

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
