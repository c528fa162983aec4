"""A store made anew from what is whole in another: `catchment store accept-loss`.

Everything that can be read and fits its hash is copied, under a new log id. Epochs stay as they are. Records that are
missing or damaged leave a hole. The chain through the records of each identity is made anew, without the holes:
whoever knows the old log id is told that it is lost, and so knows that something may be missing.

Positions are cut to the last record: a reader that had acknowledged a lost record must get the next one of that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from catchment.routing.stored import Acknowledged, Consumed, LastNumber, Record
from catchment.store.interface import StoreBrokenError, StoreError
from catchment.store.sql.bodies import Body, Hasher, notification_from
from catchment.store.sql.database import Database
from catchment.store.sql.schema import COLLECTED, KEPT, SMALL_TABLES
from catchment.store.sql.small import Small
from catchment.store.sql.tables import State, Tables, load_state
from catchment.store.sql.writing import Rows
from catchment.store.witness import Testimony

# Records that are copied in one transaction.
PIECE: Final = 1_000


class Rebuilt(Struct, frozen=True):
    """What accepting a loss came to. `missing` is how many records could not be kept, `rows` how many small rows."""

    url: str
    log_before: str
    log: str
    head: int
    records: int
    missing: int
    rows: int
    # Where what was there before is kept.
    kept_as: str = ""


class _Source:
    """A store that may be damaged anywhere."""

    def __init__(self, database: Database, testimony: Testimony | None) -> None:
        self._database = database
        said = None if testimony is None else State(testimony.log, serial=testimony.serial, head=testimony.head)
        try:
            self.state = load_state(database)
        except StoreError:
            # Without the state nobody knows which log it is: the witness may.
            self.state = said or State("")
        if testimony is not None:
            self.state.serial = max(self.state.serial, testimony.serial)
        self._hasher = Hasher(self.state.log)

    def small(self) -> tuple[Small, int]:
        """The small tables, and how many rows of them are damaged."""
        small, bad = Small(), 0
        for table in SMALL_TABLES:
            try:
                rows = self._database.rows(f"SELECT key, value, hash FROM {table}")
            except StoreBrokenError:
                bad += 1
                continue
            bad += small.load_good(table, rows, self._hasher)
        return small, bad

    def bodies(self) -> Iterator[tuple[int, Body | None]]:
        """All records that are kept; None where one is damaged."""
        last = self._last()
        for after in range(self.state.anchor, last, PIECE):
            upto = min(after + PIECE, last)
            try:
                yield from self._piece(after, upto)
            except StoreBrokenError:
                for epoch in range(after + 1, upto + 1):
                    yield from self._single(epoch)

    def _last(self) -> int:
        try:
            ((last,),) = self._database.rows("SELECT max(epoch) FROM log")
            return max(last or 0, self.state.head)
        except StoreBrokenError:
            return self.state.head

    def _piece(self, after: int, upto: int) -> list[tuple[int, Body | None]]:
        rows = self._database.rows(
            "SELECT epoch, hash, body FROM log WHERE epoch > ? AND epoch <= ? AND state = ? ORDER BY epoch",
            (after, upto, KEPT),
        )
        return [(epoch, self._hasher.read(epoch, digest, body)) for epoch, digest, body in rows]

    def _single(self, epoch: int) -> list[tuple[int, Body | None]]:
        try:
            return self._piece(epoch - 1, epoch)
        except StoreBrokenError:
            return [(epoch, None)]


def rebuild(source: Database, target: Tables, testimony: Testimony | None, progress: Callable[[int], None]) -> Rebuilt:
    """Copies all that is whole into the empty tables of a new store."""
    old = _Source(source, testimony)
    small, bad_rows = old.small()
    missing = copied = 0
    piece: list[tuple[int, Body]] = []
    for epoch, body in old.bodies():
        if body is None:
            missing += 1
            continue
        piece.append((epoch, body))
        if len(piece) == PIECE:
            _copy(target, small, piece)
            copied += len(piece)
            progress(copied)
            piece.clear()
    _copy(target, small, piece)
    copied += len(piece)
    _finish(target, small, old.state.serial)
    head = target.state.head
    if testimony is not None:
        missing += max(0, testimony.head - max(head, old.state.head))
    return Rebuilt(source.url, old.state.log, target.state.log, head, copied, missing, bad_rows)


def _copy(target: Tables, small: Small, piece: list[tuple[int, Body]]) -> None:
    with target.change() as change:
        rows = Rows(target, change)
        for epoch, body in piece:
            rows.skip_to(epoch, COLLECTED)
            due = tuple((due.identity, due.ids) for due in body.dues if _is_known(small, due.identity, epoch))
            rows.add_record(Record(epoch, notification_from(body.notification), due, body.at))
        rows.insert(target.database)


def _is_known(small: Small, name: str, epoch: int) -> bool:
    """Whether the identity of this name is the one that was due the record, and not another one later. If the row of
    the identity is damaged, nobody knows; then it shall rather get too much."""
    identity = small.identities.get(name)
    return identity is None or epoch > identity.since


def _finish(target: Tables, small: Small, serial: int) -> None:
    with target.change() as change:
        state, changes = change.state, change.changes
        state.serial = serial
        # The first hole is no hole: nothing is kept before the first record.
        ((first,),) = target.rows("SELECT min(epoch) FROM log WHERE state = ?", KEPT)
        state.anchor = state.head if first is None else first - 1
        target.database.run("DELETE FROM log WHERE epoch <= ?", (state.anchor,))
        for number in small.numbers.values():
            changes.enter(LastNumber(number.source, number.seq, min(number.epoch, state.head)), state.head)
        for durable in small.durables.values():
            changes.enter(durable, state.head)
        for place in small.places.values():
            changes.enter(place, state.head)
        for log, epoch in small.consumed.items():
            changes.enter(Consumed(log, epoch), state.head)
        for name, identity in small.identities.items():
            if identity.acknowledged is not None:
                changes.enter(Acknowledged(name, min(identity.acknowledged, state.head)), state.head)
            changes.identity(name, state.head).lost = identity.lost
        change.write_identities()
