"""Looking for damage: when a store is opened, and step by step in the background.

At the start: all small tables with the sum of their hashes; the records after the last scrub, at most
START_RECORDS_MAX of them; and always those that the rows of identities do not know yet (`store.py`). The scrub goes
through all records, and compares with the index too. Damaged records are set aside; damage that takes more than records
is a StoreBrokenError.
"""

from __future__ import annotations

from typing import Final

from catchment.store.interface import StoreBrokenError
from catchment.store.sql.bodies import HASH_BYTES, Body
from catchment.store.sql.damage import index_anew, numbers_due, set_aside
from catchment.store.sql.schema import KEPT
from catchment.store.sql.small import Identity, Small
from catchment.store.sql.tables import Tables

# Records that are read when a store is opened: a tenth of a second.
START_RECORDS_MAX: Final = 10_000

ADVICE: Final = "restore the store from a copy, or let catchment store accept-loss go on with what is whole"


def checked_at_start(tables: Tables) -> None:
    tables.small.load(tables.database, tables.hasher)
    _check_sum(tables, tables.small)
    state = tables.state
    ((last,),) = tables.rows("SELECT max(epoch) FROM log")
    if last is not None and last > state.head:
        raise StoreBrokenError(f"{tables.database.url}: there are records after the last one, {state.head}: {ADVICE}")
    start = max(state.scrubbed_most, state.head - START_RECORDS_MAX)
    first = max(state.anchor, min(state.tail, start))
    damaged = _read_tail(tables, first)
    if state.anchor < first and _is_damaged(tables, state.anchor + 1):
        damaged.insert(0, state.anchor + 1)
    if damaged:
        set_aside(tables, damaged)


def _read_tail(tables: Tables, after: int) -> list[int]:
    """Reads the records after this epoch, and lets identities know which they were due last. Returns the damaged."""
    damaged = []
    by_number = tables.small.by_number()
    for epoch, state, body in tables.read(range(after + 1, tables.state.head + 1)):
        if state is None or (state == KEPT and body is None):
            damaged.append(epoch)
            if epoch > tables.state.tail:
                # Only the index knows who was due it.
                for number in numbers_due(tables, epoch):
                    if (identity := by_number.get(number)) is not None:
                        _advance(tables, identity, epoch, identity.count + 1)
        elif body is not None and epoch > tables.state.tail:
            for due in body.dues:
                known = tables.small.identities.get(due.identity)
                if known is not None and epoch > known.since:
                    _advance(tables, known, epoch, due.count)
    return damaged


def _advance(tables: Tables, identity: Identity, epoch: int, count: int) -> None:
    if epoch > identity.last:
        identity.last, identity.count = epoch, count
        tables.small.unwritten.add(identity.name)


def _is_damaged(tables: Tables, epoch: int) -> bool:
    _, state, body = next(tables.read([epoch]))
    return state is None or (state == KEPT and body is None)


def _check_sum(tables: Tables, small: Small) -> None:
    if small.total.to_bytes(HASH_BYTES, "big") != tables.state.total:
        raise StoreBrokenError(f"{tables.database.url}: rows of the small tables are missing or old: {ADVICE}")


# --- the scrub ----------------------------------------------------------------------------------


def scrubbed(tables: Tables, records_max: int) -> int:
    """Checks the next records. Returns how many; 0 after all, when it begins anew."""
    state = tables.state
    after = max(state.scrubbed, state.anchor)
    upto = min(after + records_max, state.head)
    if upto <= after:
        _check_small(tables)
        state.scrubbed = 0
        return 0
    damaged, unindexed = [], dict[str, int]()
    for epoch, row_state, body in tables.read(range(after + 1, upto + 1)):
        if row_state is None or (row_state == KEPT and body is None):
            damaged.append(epoch)
        elif body is not None:
            for name in _missing_in_index(tables, epoch, body):
                unindexed.setdefault(name, epoch - 1)
    if damaged:
        set_aside(tables, damaged)
    for name, before in unindexed.items():
        index_anew(tables, tables.small.identities[name], before)
    # These are written with the next change: if they are forgotten before, some records are scrubbed twice.
    tables.state.scrubbed = upto
    tables.state.scrubbed_most = max(tables.state.scrubbed_most, upto)
    return upto - after


def _missing_in_index(tables: Tables, epoch: int, body: Body) -> list[str]:
    """Identities that wait for a record, and whose index does not have it."""
    waiting = [
        identity
        for due in body.dues
        if (identity := tables.small.identities.get(due.identity)) is not None
        and max(identity.since, identity.position) < epoch
    ]
    for row in tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch = ?", epoch):
        numbers = tables.wide_numbers(row)
        if numbers is None:
            return [each.name for each in waiting]
        waiting = [identity for identity in waiting if identity.number not in numbers]
    return [identity.name for identity in waiting if not _is_indexed(tables, identity, epoch)]


def _is_indexed(tables: Tables, identity: Identity, epoch: int) -> bool:
    return bool(tables.rows("SELECT 1 FROM due WHERE identity_no = ? AND epoch = ?", identity.number, epoch))


def _check_small(tables: Tables) -> None:
    """Reads the small tables once more: what is in memory may be better than what is on disk."""
    small = Small()
    small.load(tables.database, tables.hasher)
    _check_sum(tables, small)
