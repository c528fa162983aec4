"""A store in memory, for the simulator: as deterministic as the calls that it gets, with every fault of a real disk.

What would survive is a `MemoryDisk`; a `MemoryStore` is that disk opened. The disk has a state and a journal of its
last commits, each of which is *written* and later *synced*. `write` does both. A host that simulates a slow disk calls
`put` first and `sync` when the delay is over, and says `Stored` then.

    kill            the process ends: all that was written is there
    power_loss      what was synced is there, and as many of the commits after it as the caller says. A commit is there
                    whole or not at all, and none without those before it: as with a write-ahead log with checksums
    flip            a record is damaged: whoever reads it finds out
    lose            commits that were synced are gone, as when a bit flips at the end of a write-ahead log: the witness
                    knows, and `open` raises StoreLossError
    fill, free      there is no room for records any more, and there is again
    fail, repair    every write and every sync fails, and works again after the store was opened anew
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final, assert_never

from msgspec import Struct

from catchment.routing.messages import Time
from catchment.routing.stored import (
    Acknowledged,
    Consumed,
    DurableRow,
    Entry,
    Fetch,
    Fetched,
    Forgotten,
    LastNumber,
    Opened,
    Persist,
    PlaceRow,
    Record,
    Write,
)
from catchment.store.following import check_follows
from catchment.store.interface import (
    COLLECTED_MAX,
    Collected,
    IdentityStatus,
    Retention,
    StoreBrokenError,
    StoreFullError,
    StoreInUseError,
    StoreLossError,
    StoreStatus,
)

# Commits that `lose` can take back.
JOURNAL_MAX: Final = 64


class _Collect(Struct, frozen=True):
    """A commit of `collect`."""

    now: Time
    retention: Retention


class _SetAside(Struct, frozen=True):
    """A commit of a read that found a damaged record."""

    epoch: int


_Commit = tuple[Persist, ...] | _Collect | _SetAside


class MemoryDisk:
    """What is there when nobody has it open."""

    def __init__(self, log: str = "memory") -> None:
        self.is_full = False
        self.is_failing = False
        # Epochs of records that are damaged and that nobody has found yet.
        self.damaged: set[int] = set()
        self._base = _State(log)
        self._journal: list[_Commit] = []
        self._synced_count = 0
        # What was promised last, and never forgotten: the serial and the head.
        self._witness = (0, 0)
        self._open: MemoryStore | None = None

    # --- faults ---

    def kill(self) -> None:
        """The process ends. What it had written is there."""
        self.power_loss(len(self._journal) - self._synced_count)

    def power_loss(self, kept: int = 0) -> None:
        """The power fails. Of the commits that were not synced, the first `kept` are there."""
        del self._journal[self._synced_count + kept :]
        self._synced_count = len(self._journal)
        self._close()

    def flip(self, epoch: int) -> None:
        self.damaged.add(epoch)

    def lose(self, commits: int) -> None:
        """The last commits are gone although they were synced. Nobody has the store open."""
        del self._journal[len(self._journal) - commits :]
        self._synced_count = len(self._journal)

    def fill(self) -> None:
        self.is_full = True

    def free(self) -> None:
        self.is_full = False

    def fail(self) -> None:
        self.is_failing = True

    def repair(self) -> None:
        self.is_failing = False

    # --- opening ---

    def open(self, retention: Retention | None = None) -> MemoryStore:
        if self._open is not None:
            raise StoreInUseError("memory: the store is open already")
        state = self._replayed()
        serial, head = self._witness
        if state.serial < serial:
            raise StoreLossError(_loss(state, serial, head))
        self._open = MemoryStore(self, state, retention or Retention())
        return self._open

    def accept_loss(self, log: str) -> None:
        """Goes on with what is there, as a log of its own."""
        self._base = self._replayed()
        self._base.log = log
        self._journal, self._synced_count = [], 0
        self._witness = (self._base.serial, self._base.head)

    def _replayed(self) -> _State:
        state = self._base.copied()
        for commit in self._journal:
            state.perform(commit)
        return state

    # --- for the open store ---

    def append(self, commit: _Commit) -> None:
        self._journal.append(commit)

    def sync(self, serial: int, head: int) -> None:
        self._synced_count = len(self._journal)
        self._witness = (serial, head)
        while len(self._journal) > JOURNAL_MAX:
            self._base.perform(self._journal.pop(0))
            self._synced_count -= 1

    def closed(self, store: MemoryStore) -> None:
        if self._open is store:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.is_closed = True
        self._open = None


def _loss(state: _State, serial: int, head: int) -> str:
    missing = f"epochs {state.head + 1} to {head}" if head > state.head else "no records, but other writes"
    return f"memory: acknowledged writes are missing: {missing}; the last write here is {state.serial}, not {serial}"


class MemoryStore:
    """A `Store`. Besides `write` it has its two halves, `put` and `sync`."""

    def __init__(self, disk: MemoryDisk, state: _State, retention: Retention) -> None:
        self.is_closed = False
        self._disk = disk
        self._state = state
        self._retention = retention
        self._scrubbed = 0

    def opened(self) -> Opened:
        self._check_open()
        return self._state.opened()

    def write(self, batch: Sequence[Persist]) -> None:
        self.put(batch)
        self.sync()

    def put(self, batch: Sequence[Persist]) -> None:
        """Writes without syncing: a power cut may lose it."""
        self._check_open()
        check_follows(batch, self._state.serial, self._state.head)
        self._check_disk()
        if self._disk.is_full and any(type(write) is Record for persist in batch for write in persist.writes):
            raise StoreFullError("memory: there is no room for records")
        self._perform(tuple(batch))

    def sync(self) -> None:
        """All that was put is safe."""
        self._check_open()
        self._check_disk()
        self._disk.sync(self._state.serial, self._state.head)

    def probe(self) -> bool:
        self._check_open()
        return not self._disk.is_full

    def read(self, fetch: Fetch) -> Fetched:
        self._check_open()
        for epoch in self._state.due_in(fetch.identity, fetch.after, fetch.upto):
            self._check(epoch)
        return self._state.fetched(fetch)

    def collect(self, now: Time) -> Collected:
        self._check_open()
        self._check_disk()
        before = dict(self._state.lost)
        count = self._perform(_Collect(now, self._retention))
        self.sync()
        lost = {each: count - before.get(each, 0) for each, count in self._state.lost.items()}
        told = tuple(sorted((identity, count) for identity, count in lost.items() if count > 0))
        return Collected(count, told, count >= COLLECTED_MAX)

    def scrub(self, records_max: int) -> int:
        self._check_open()
        epochs = [epoch for epoch in sorted(self._state.records) if epoch > self._scrubbed][:records_max]
        self._scrubbed = epochs[-1] if epochs else 0
        for epoch in epochs:
            self._check(epoch)
        return len(epochs)

    def status(self) -> StoreStatus:
        self._check_open()
        return self._state.status(self._disk.is_full)

    def close(self) -> None:
        if not self.is_closed and not self._disk.is_failing:
            self.sync()
        self._disk.closed(self)

    def _perform(self, commit: _Commit) -> int:
        self._disk.append(commit)
        return self._state.perform(commit)

    def _check(self, epoch: int) -> None:
        """Sets a record aside if it is damaged."""
        if epoch in self._disk.damaged and epoch in self._state.records:
            self._perform(_SetAside(epoch))

    def _check_open(self) -> None:
        if self.is_closed:
            raise StoreBrokenError("memory: the store is closed: open it again")

    def _check_disk(self) -> None:
        if self._disk.is_failing:
            self.is_closed = True
            raise StoreBrokenError("memory: the disk has failed")


class _State:
    """What the commits make of an empty store."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.serial = self.head = self.anchor = 0
        self.records: dict[int, Record] = {}
        # By identity, the epochs that it is due: of records that are kept, and of lost ones until it has passed them.
        self.due: dict[str, list[int]] = {}
        self.acknowledged: dict[str, int] = {}
        self.last_due: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.numbers: dict[str, LastNumber] = {}
        self.durables: dict[tuple[str, str], DurableRow] = {}
        self.places: dict[str, PlaceRow] = {}
        self.consumed: dict[str, int] = {}
        self.quarantined = 0

    def copied(self) -> _State:
        """A copy that shares nothing that changes."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(other, name, dict(value))
        other.due = {identity: list(epochs) for identity, epochs in self.due.items()}
        return other

    def perform(self, commit: _Commit) -> int:
        """Returns how many records were collected."""
        if isinstance(commit, _Collect):
            return self._collect(commit.now, commit.retention)
        if isinstance(commit, _SetAside):
            self._quarantine(commit.epoch)
            return 0
        for persist in commit:
            self.serial = persist.serial
            for write in persist.writes:
                self._enter(write)
        return 0

    def _enter(self, write: Write) -> None:
        match write:
            case Record():
                self.head = write.epoch
                self.records[write.epoch] = write
                for identity, _ in write.due:
                    self.due.setdefault(identity, []).append(write.epoch)
                    self.last_due[identity] = write.epoch
            case LastNumber():
                self.numbers[write.source] = write
            case DurableRow():
                self.durables[write.identity, write.id] = write
            case PlaceRow():
                self.places[write.identity] = write
            case Acknowledged():
                self.acknowledged[write.identity] = write.epoch
            case Consumed():
                self.consumed[write.log] = write.epoch
            case Forgotten():
                self._forget(write.identity)
            case _:
                assert_never(write)

    def _forget(self, identity: str) -> None:
        tables: tuple[dict[str, Any], ...] = (self.due, self.acknowledged, self.last_due, self.lost, self.places)
        for table in tables:
            table.pop(identity, None)
        self.durables = {key: row for key, row in self.durables.items() if row.identity != identity}

    # --- reading ---

    def opened(self) -> Opened:
        return Opened(
            self.log,
            self.serial,
            self.head,
            self.anchor,
            dict(self.numbers),
            tuple(row for _, row in sorted(self.durables.items())),
            tuple(row for _, row in sorted(self.places.items())),
            dict(self.acknowledged),
            dict(self.last_due),
            dict(self.consumed),
        )

    def due_in(self, identity: str, after: int, upto: int) -> list[int]:
        epochs = self.due.get(identity, [])
        return epochs[bisect_right(epochs, after) : bisect_right(epochs, upto)]

    def fetched(self, fetch: Fetch) -> Fetched:
        entries: list[Entry] = []
        reached, lost, size = fetch.after, 0, 0
        for epoch in self.due_in(fetch.identity, fetch.after, fetch.upto):
            record = self.records.get(epoch)
            if record is None:
                lost += 1
            else:
                size += len(record.notification.packed)
                if entries and (len(entries) >= fetch.entries_max or size > fetch.bytes_max):
                    return Fetched(fetch.identity, fetch.after, reached, tuple(entries), lost)
                entries.append(Entry(epoch, record.notification, dict(record.due)[fetch.identity]))
            reached = epoch
        upto = max(fetch.after, min(fetch.upto, self.head))
        return Fetched(fetch.identity, fetch.after, upto, tuple(entries), lost)

    def status(self, is_full: bool) -> StoreStatus:
        size = sum(len(record.notification.packed) for record in self.records.values())
        names = sorted({*self.acknowledged, *self.due})
        identities = tuple(self._identity_status(name) for name in names)
        return StoreStatus(
            "memory:", self.log, self.head, self.anchor, len(self.records), size, self.quarantined, identities, is_full
        )

    def _identity_status(self, identity: str) -> IdentityStatus:
        acknowledged = self.acknowledged.get(identity, 0)
        epochs = [epoch for epoch in self.due_in(identity, acknowledged, self.head) if epoch in self.records]
        oldest = self.records[epochs[0]].at if epochs else None
        return IdentityStatus(identity, acknowledged, len(epochs), oldest, self.lost.get(identity, 0))

    # --- deleting ---

    def _collect(self, now: Time, retention: Retention) -> int:
        done = 0
        for epoch in list(self._too_much(now, retention)):
            self._lose(epoch)
            done += 1
        for epoch, record in list(self.records.items()):
            if done >= COLLECTED_MAX or record.at + retention.retain_us > now:
                break
            if self._waiting_for(record) == []:
                del self.records[epoch]
                done += 1
        for identity, epochs in self.due.items():
            # What it has passed is of no use once the record is gone.
            position = self.acknowledged.get(identity, 0)
            self.due[identity] = [epoch for epoch in epochs if epoch > position or epoch in self.records]
        self.anchor = min(self.records, default=self.head + 1) - 1
        return done

    def _too_much(self, now: Time, retention: Retention) -> Iterator[int]:
        """The oldest records that retention does not let stay."""
        size = sum(len(record.notification.packed) for record in self.records.values())
        for count, (epoch, record) in enumerate(self.records.items()):
            is_old = retention.age_us_max is not None and record.at + retention.age_us_max < now
            is_over = retention.bytes_max is not None and size > retention.bytes_max
            if count >= COLLECTED_MAX or not (is_old or is_over):
                return
            size -= len(record.notification.packed)
            yield epoch

    def _quarantine(self, epoch: int) -> None:
        self.quarantined += 1
        self._lose(epoch)

    def _lose(self, epoch: int) -> None:
        for identity in self._waiting_for(self.records.pop(epoch)):
            self.lost[identity] = self.lost.get(identity, 0) + 1

    def _waiting_for(self, record: Record) -> list[str]:
        """Who is due the record and has not acknowledged it."""
        return [
            identity
            for identity, _ in record.due
            if self.acknowledged.get(identity, 0) < record.epoch and _has(self.due.get(identity, []), record.epoch)
        ]


def _has(epochs: list[int], epoch: int) -> bool:
    place = bisect_right(epochs, epoch)
    return place > 0 and epochs[place - 1] == epoch
