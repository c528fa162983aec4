"""Deleting records: those that everybody due has acknowledged, and those that retention does not let stay.

A record is looked at when somebody who is due it has moved past it, and deleted if nobody waits for it any more. Who is
due is read from the body, so a damaged index deletes nothing. What is deleted from the beginning of the log moves the
anchor. What is deleted out of order leaves its row with the hash, until the anchor comes there.

Retention drops the oldest records first, and stops at the first that may stay. For those who had not acknowledged a
dropped record its rows in `due` stay: reading finds no body there, and counts it as lost. When they have passed it, the
rows go too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from catchment.routing.messages import Time
from catchment.store.interface import COLLECTED_MAX, Collected, Retention
from catchment.store.sql.bodies import Body
from catchment.store.sql.schema import COLLECTED, KEPT, WIDE_MIN
from catchment.store.sql.small import Identity
from catchment.store.sql.tables import Tables, Transaction

# Records of `wide` that one call looks at.
WIDE_ROWS_MAX: Final = 256


class _Work(Struct):
    """What one call will do."""

    # Records to drop, and records that nobody waits for, by epoch.
    drops: dict[int, Body]
    ends: dict[int, Body]
    # Rows of `due` whose record is gone, and whose identity has passed it.
    passed: list[tuple[int, int]]
    more: bool = False

    @property
    def is_nothing(self) -> bool:
        return not self.drops and not self.ends and not self.passed


class Collector:
    """Knows how far each identity's acknowledgements have been looked at."""

    def __init__(self, tables: Tables, retention: Retention) -> None:
        self._tables = tables
        self._retention = retention
        self._seen: dict[int, int] = {}
        self._wide_seen = 0

    def collect(self, now: Time) -> Collected:
        tables, state = self._tables, self._tables.state
        work = _Work({}, {}, [])
        for epoch, body in self._too_much(now):
            work.drops[epoch] = body
        for identity in sorted(tables.small.identities.values(), key=lambda each: each.number):
            if len(work.ends) + len(work.passed) >= COLLECTED_MAX:
                work.more = True
                break
            self._look_at(identity, work, now)
        self._look_at_wide(work, now)
        swept = self._sweep(work, now)
        if work.is_nothing and swept == state.swept and self._anchor_after(state.anchor) == state.anchor:
            return Collected(0)
        lost = Counter[str]()
        with tables.change() as change:
            # The bodies that are deleted know who was due what last; after this the rows of identities do.
            change.write_identities()
            change.state.swept = swept
            self._drop(change, work, lost)
            self._delete(change, work)
        is_more = work.more or len(work.drops) >= COLLECTED_MAX or swept < change.state.sweep_end
        return Collected(len(work.drops) + len(work.ends), tuple(sorted(lost.items())), is_more)

    # --- what to do ---

    def _too_much(self, now: Time) -> Iterator[tuple[int, Body]]:
        """The oldest records, as long as they are too old or too many."""
        age_max, bytes_max = self._retention.age_us_max, self._retention.bytes_max
        if age_max is None and bytes_max is None:
            return
        size = self._tables.state.size
        for count, (epoch, body) in enumerate(self._kept(self._tables.state.anchor, self._tables.state.head)):
            is_old = age_max is not None and body.at + age_max < now
            is_over = bytes_max is not None and size > bytes_max
            if count >= COLLECTED_MAX or not (is_old or is_over):
                return
            size -= body.size
            yield epoch, body

    def _kept(self, after: int, upto: int) -> Iterator[tuple[int, Body]]:
        """The records of (after, upto] that can be read."""
        for epoch, _, body in self._tables.read(range(after + 1, upto + 1)):
            if body is not None:
                yield epoch, body

    def _look_at(self, identity: Identity, work: _Work, now: Time) -> None:
        """Looks at what the identity has passed since the last time."""
        seen, position = self._seen.get(identity.number, 0), identity.position
        if position < seen:
            self._seen[identity.number] = position  # it has gone back
        if position <= seen:
            return
        rows = self._tables.rows(
            "SELECT epoch FROM due WHERE identity_no = ? AND epoch > ? AND epoch <= ? ORDER BY epoch LIMIT ?",
            identity.number, seen, position, COLLECTED_MAX,
        )  # fmt: skip
        reached = position if len(rows) < COLLECTED_MAX else rows[-1][0]
        work.more = work.more or len(rows) == COLLECTED_MAX
        for epoch, state, body in self._tables.read([epoch for (epoch,) in rows]):
            if state != KEPT or epoch in work.drops:
                work.passed.append((identity.number, epoch))
            elif body is not None and self._is_young(body, now):
                reached = epoch - 1
                break
            elif body is not None and epoch not in work.ends and self._is_done(epoch, body):
                work.ends[epoch] = body
        self._seen[identity.number] = reached

    def _look_at_wide(self, work: _Work, now: Time) -> None:
        """Looks at some wide records, and the next time at the next."""
        tables, positions = self._tables, self._positions()
        rows = tables.rows(
            "SELECT epoch, numbers, hash FROM wide WHERE epoch > ? ORDER BY epoch LIMIT ?",
            self._wide_seen,
            WIDE_ROWS_MAX,
        )
        self._wide_seen = rows[-1][0] if len(rows) == WIDE_ROWS_MAX else 0
        done = []
        for row in rows:
            numbers = tables.wide_numbers(row)
            if numbers is not None and all(positions.get(number, row[0]) >= row[0] for number in numbers):
                done.append(row[0])
        for epoch, _, body in tables.read(done):
            if body is None or epoch in work.drops or self._is_young(body, now):
                continue
            if self._is_done(epoch, body):
                work.ends[epoch] = body
        work.more = work.more or (len(rows) == WIDE_ROWS_MAX and bool(done))

    def _sweep(self, work: _Work, now: Time) -> int:
        """Looks at records that may have nobody left who is due. Returns how far it came."""
        state = self._tables.state
        after = max(state.swept, state.anchor)
        if state.swept >= state.sweep_end:
            return state.swept
        upto = min(after + COLLECTED_MAX, state.sweep_end)
        for epoch, body in self._kept(after, upto):
            if self._is_young(body, now):
                return epoch - 1
            if epoch not in work.drops and self._is_done(epoch, body):
                work.ends[epoch] = body
        return upto

    def _is_young(self, body: Body, now: Time) -> bool:
        return body.at + self._retention.retain_us > now

    def _is_done(self, epoch: int, body: Body) -> bool:
        """Whether nobody waits for it. Identities that are unknown were forgotten."""
        return not any(self._waits(due.identity, epoch) for due in body.dues)

    def _waits(self, name: str, epoch: int) -> Identity | None:
        identity = self._tables.small.identities.get(name)
        is_waiting = identity is not None and max(identity.position, identity.since) < epoch
        return identity if is_waiting else None

    def _positions(self) -> dict[int, int]:
        return {each.number: each.position for each in self._tables.small.identities.values()}

    # --- doing it ---

    def _drop(self, change: Transaction, work: _Work, lost: Counter[str]) -> None:
        rows = []
        for epoch, body in work.drops.items():
            for due in body.dues:
                if (identity := self._waits(due.identity, epoch)) is not None:
                    lost[due.identity] += 1
                    rows.append((identity.number, epoch))
                elif (identity := self._tables.small.identities.get(due.identity)) is not None:
                    work.passed.append((identity.number, epoch))
            change.state.size -= body.size
        # Wide records have no rows there yet.
        self._tables.database.run_many(
            "INSERT INTO due (identity_no, epoch) VALUES (?, ?) ON CONFLICT (identity_no, epoch) DO NOTHING", rows
        )
        for name, count in lost.items():
            change.changes.identity(name, 0).lost += count
            change.changes.written.add(name)
        change.state.records -= len(work.drops)

    def _delete(self, change: Transaction, work: _Work) -> None:
        database, state = self._tables.database, change.state
        for epoch, body in work.ends.items():
            known = [self._tables.small.identities.get(due.identity) for due in body.dues]
            work.passed += [(each.number, epoch) for each in known if each is not None]
            state.size -= body.size
        state.records -= len(work.ends)
        gone = [(epoch,) for epoch in (*work.drops, *work.ends)]
        database.run_many("DELETE FROM due WHERE identity_no = ? AND epoch = ?", work.passed)
        wide = [(epoch,) for epoch, body in (work.drops | work.ends).items() if len(body.dues) > WIDE_MIN]
        database.run_many("DELETE FROM wide WHERE epoch = ?", wide)
        self._delete_rows(change, {epoch for (epoch,) in gone})

    def _delete_rows(self, change: Transaction, gone: set[int]) -> None:
        """Rows at the beginning of the log go, the others lose their body."""
        database, anchor = self._tables.database, change.state.anchor
        while anchor + 1 in gone:
            anchor += 1
        database.run_many(
            "UPDATE log SET state = ?, body = NULL WHERE epoch = ?",
            [(COLLECTED, epoch) for epoch in sorted(gone) if epoch > anchor],
        )
        anchor = self._anchor_after(anchor)
        if anchor > change.state.anchor:
            database.run("DELETE FROM log WHERE epoch <= ?", (anchor,))
        change.state.anchor = anchor

    def _anchor_after(self, anchor: int) -> int:
        """The epoch before the first record that is kept after this one."""
        kept = self._tables.rows(
            "SELECT epoch FROM log WHERE epoch > ? AND state = ? ORDER BY epoch LIMIT 1", anchor, KEPT
        )
        return kept[0][0] - 1 if kept else self._tables.state.head
