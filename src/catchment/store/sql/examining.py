"""Looking at a store without changing it, also while a broker writes to it: everything within one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from catchment.store.interface import StoreError
from catchment.store.sql.bodies import HASH_BYTES, Body
from catchment.store.sql.database import Database
from catchment.store.sql.schema import KEPT, check_version, version_of
from catchment.store.sql.tables import Tables, load_state
from catchment.store.witness import Testimony, check_extent

# Records that are read between two calls of `progress`.
STEP: Final = 1_024
# Problems that are listed: more of the same say nothing new.
PROBLEMS_MAX: Final = 100


class Examination(Struct, frozen=True):
    """What `catchment store check` has found. Without problems the store is whole."""

    url: str
    log: str
    records: int
    problems: tuple[str, ...]
    # More problems, which are not listed.
    more: int = 0


def examined(
    database: Database,
    testimony: Testimony | None,
    witness_name: str,
    progress: Callable[[int, int], None],
) -> Examination:
    """Reads everything. `testimony` was read before the snapshot began: the database may be further, never less far.
    `progress` is told how many records of how many were read."""
    examiner = _Examiner(database)
    try:
        examiner.examine(testimony, witness_name, progress)
    except StoreError as problem:
        examiner.note(str(problem))
    log = "" if examiner.tables is None else examiner.tables.state.log
    problems = tuple(examiner.problems[:PROBLEMS_MAX])
    return Examination(database.url, log, examiner.records, problems, len(examiner.problems) - len(problems))


class _Examiner:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.tables: Tables | None = None
        self.problems: list[str] = []
        self.records = 0
        # By identity, how many it was due up to the last record that was read.
        self._counts: dict[str, int] = {}

    def note(self, problem: str) -> None:
        self.problems.append(problem)

    def examine(self, testimony: Testimony | None, witness_name: str, progress: Callable[[int, int], None]) -> None:
        check_version(self._database.url, version_of(self._database))
        self.tables = tables = Tables(self._database, load_state(self._database))
        self._check_witness(tables, testimony, witness_name)
        for problem in self._database.own_problems():
            self.note(problem)
        tables.small.load(tables.database, tables.hasher)
        if tables.small.total.to_bytes(HASH_BYTES, "big") != tables.state.total:
            self.note("rows of the small tables are missing or old")
        state = tables.state
        for after in range(state.anchor, state.head, STEP):
            progress(after - state.anchor, state.head - state.anchor)
            upto = min(after + STEP, state.head)
            for epoch, row_state, body in tables.read(range(after + 1, upto + 1)):
                self._check_record(tables, epoch, row_state, body)
        progress(state.head - state.anchor, state.head - state.anchor)

    def _check_witness(self, tables: Tables, testimony: Testimony | None, witness_name: str) -> None:
        if not witness_name:
            return
        if testimony is not None:
            try:
                check_extent(self._database.url, witness_name, testimony, tables.state)
            except StoreError as problem:
                self.note(str(problem))
        elif tables.state.serial:
            self.note(f"the witness {witness_name} is missing or damaged")

    def _check_record(self, tables: Tables, epoch: int, row_state: int | None, body: Body | None) -> None:
        if row_state is None:
            self.note(f"epoch {epoch}: its row is missing")
        elif row_state == KEPT and body is None:
            self.note(f"epoch {epoch}: its hash does not fit")
        elif body is not None:
            self.records += 1
            self._check_index(tables, epoch, body)

    def _check_index(self, tables: Tables, epoch: int, body: Body) -> None:
        rows = tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch = ?", epoch)
        wide = tables.wide_numbers(rows[0]) if rows else None
        for due in body.dues:
            identity = tables.small.identities.get(due.identity)
            if identity is None or max(identity.since, identity.position) >= epoch:
                continue
            is_narrow = wide is None and tables.rows(
                "SELECT 1 FROM due WHERE identity_no = ? AND epoch = ?", identity.number, epoch
            )
            if not is_narrow and (wide is None or identity.number not in wide):
                self.note(f"epoch {epoch}: {due.identity} is due it, and the index does not know")
            if self._counts.setdefault(due.identity, due.count) > due.count:
                self.note(f"epoch {epoch}: {due.identity} is due fewer records than before")
            self._counts[due.identity] = due.count
