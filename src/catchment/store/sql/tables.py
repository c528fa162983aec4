"""The tables of an open store: one place for its database, its state, the copy of its small tables and its hashes.

Everything that is written goes through `Tables.change`, in one transaction with the state. What is in memory changes
when the transaction has been committed, and not before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from catchment.store.interface import StoreBrokenError
from catchment.store.sql.bodies import HASH_BYTES, Body, Hasher
from catchment.store.sql.database import Database, Row, transaction
from catchment.store.sql.schema import KEPT
from catchment.store.sql.small import Changes, Small


class State(Struct, array_like=True):
    """What changes with each write."""

    log: str
    # Transactions, so that no two states are the same.
    commits: int = 0
    serial: int = 0
    head: int = 0
    # The epoch before the first record that is kept.
    anchor: int = 0
    # The rows of identities know all dues at least up to this epoch. Those of later records are in the bodies.
    tail: int = 0
    # How far the scrub is that goes on, and the greatest epoch that any scrub has come to.
    scrubbed: int = 0
    scrubbed_most: int = 0
    # `collect` looks at all records of (swept, sweep_end]: some may have nobody left who is due.
    swept: int = 0
    sweep_end: int = 0
    number_next: int = 1
    # Records that are kept, and the bytes of their notifications.
    records: int = 0
    size: int = 0
    quarantined: int = 0
    # The sum of the hashes of all rows in the small tables.
    total: bytes = b"\0" * HASH_BYTES


# Bodies that are read at once: with the largest notifications, some 100 MiB.
BODIES_MAX: Final = 64

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(State).decode
_SAVE: Final = (
    "INSERT INTO meta (key, value, hash) VALUES ('state', ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, hash = excluded.hash"
)
# The hash of the state has no log's id in it: the id is in the state.
_STATE_HASHER: Final = Hasher("")


class Transaction:
    """A transaction that is going on: what will be when it is committed."""

    def __init__(self, state: State, changes: Changes) -> None:
        self.state = state
        self.changes = changes

    def write_identities(self) -> None:
        """The rows of identities have everything up to the head."""
        self.changes.write_identities()
        self.state.tail = self.state.head


class Tables:
    """All of a store."""

    def __init__(self, database: Database, state: State) -> None:
        self.database = database
        self.state = state
        self.hasher = Hasher(state.log)
        self.small = Small()

    @contextmanager
    def change(self) -> Iterator[Transaction]:
        """All that is done within is committed, or nothing."""
        state = replace(self.state)
        changes = Changes(self.small, state.number_next)
        with transaction(self.database):
            yield Transaction(state, changes)
            total, hashes = changes.write(self.database, self.hasher)
            state.number_next = changes.number_next
            state.total = total.to_bytes(HASH_BYTES, "big")
            state.commits += 1
            save_state(self.database, state)
        changes.apply(total, hashes)
        self.state = state

    def rows(self, statement: str, *values: Any) -> list[Row]:
        return self.database.rows(statement, values)

    # --- records ---

    def read(self, epochs: Sequence[int]) -> Iterator[tuple[int, int | None, Body | None]]:
        """The rows of these epochs: the state, None without a row, and the body, None if it is gone or damaged."""
        for start in range(0, len(epochs), BODIES_MAX):
            part = epochs[start : start + BODIES_MAX]
            places = ", ".join("?" * len(part))
            rows = self.rows(f"SELECT epoch, state, hash, body FROM log WHERE epoch IN ({places})", *part)
            by_epoch = {row[0]: row for row in rows}
            for epoch in part:
                _, state, digest, body = by_epoch.get(epoch, (epoch, None, None, None))
                yield epoch, state, self.hasher.read(epoch, digest, body) if state == KEPT else None

    def body(self, epoch: int) -> Body | None:
        """The body of a record; None if it is not kept, or damaged."""
        return next(self.read([epoch]))[2]

    def is_kept(self, epoch: int) -> bool:
        return bool(self.rows("SELECT 1 FROM log WHERE epoch = ? AND state = ?", epoch, KEPT))

    # --- who is due ---

    def wide_row(self, epoch: int, numbers: Sequence[int]) -> Row:
        packed = array("Q", sorted(numbers)).tobytes()
        return epoch, packed, self.hasher.of_row("wide", (epoch, packed))

    def wide_numbers(self, row: Row) -> array[int] | None:
        """The numbers of the identities that are due a wide record; None if the row is damaged."""
        epoch, packed, digest = row
        if self.hasher.of_row("wide", (epoch, packed)) != digest:
            return None
        numbers = array("Q")
        numbers.frombytes(packed)
        return numbers


def save_state(database: Database, state: State) -> None:
    value = database.state_value = _encode(state)
    database.run(_SAVE, (value, _STATE_HASHER.of_row("state", (value,))))


def load_state(database: Database) -> State:
    found = database.rows("SELECT value, hash FROM meta WHERE key = 'state'")
    if not found or _STATE_HASHER.of_row("state", (found[0][0],)) != found[0][1]:
        raise StoreBrokenError(f"{database.url}: the row that says how far the store is, is damaged")
    database.state_value = found[0][0]
    return _decode(found[0][0])
