"""What the storages themselves have: every write that went to a disk, which of it is synced, and what a crash took.

A `Ledger` sees each commit of one disk. It keeps records for ever, also when the store has collected them, so that the
checker can ask what a log has had at any time. It shares no code with the core, nor with the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catchment.routing.stored import Acknowledged, DurableRow, Forgotten, Persist, PlaceRow, Record
from catchment.sim.conformance.checkers import ViolationError
from catchment.store.memory import MemoryDisk


class Ledger:
    """The log of one disk. `recorded` is told each record when it is made, `synced` when it is synced."""

    def __init__(
        self,
        storage: str,
        log: str,
        recorded: Callable[[Ledger, Record], None],
        synced: Callable[[Ledger, Record], None],
    ) -> None:
        self.storage, self.log = storage, log
        # Synced: what no crash takes away.
        self.records: dict[int, Record] = {}
        self.durables: dict[tuple[str, str], DurableRow] = {}
        self.places: dict[str, PlaceRow] = {}
        self.acknowledged: dict[str, int] = {}
        # Whether the disk is gone for ever.
        self.is_lost = False
        self._recorded, self._synced = recorded, synced
        self._unsynced: list[tuple[Persist, ...] | None] = []

    @property
    def head(self) -> int:
        return len(self.records)

    def due(self, identity: str) -> dict[int, tuple[str, ...]]:
        """D(L, c): the epochs that the identity is due, with the ids of its subscriptions."""
        return {epoch: ids for epoch, record in self.records.items() for each, ids in record.due if each == identity}

    # --- commits ---

    def written(self, commit: Any) -> None:
        if not isinstance(commit, tuple):
            self._unsynced.append(None)  # The store has collected something, or set it aside.
            return
        self._unsynced.append(commit)
        for record in _records(commit):
            self._recorded(self, record)

    def synced(self) -> None:
        for commit in self._unsynced:
            for persist in commit or ():
                for write in persist.writes:
                    self._enter(write)
        self._unsynced.clear()

    def crashed(self, kept: int) -> None:
        """Of the commits that are not synced, the first `kept` survive."""
        del self._unsynced[kept:]
        self.synced()

    def _enter(self, write: Any) -> None:
        match write:
            case Record():
                if write.epoch != self.head + 1:
                    raise ViolationError(f"{self.log} has epoch {write.epoch} after {self.head}")
                self.records[write.epoch] = write
                self._synced(self, write)
            case DurableRow():
                self.durables[write.identity, write.id] = write
            case PlaceRow():
                self.places[write.identity] = write
            case Acknowledged():
                self.acknowledged[write.identity] = write.epoch
            case Forgotten():
                self.acknowledged.pop(write.identity, None)
            case _:
                pass


def _records(commit: tuple[Persist, ...]) -> list[Record]:
    return [write for persist in commit for write in persist.writes if isinstance(write, Record)]


class WatchedDisk(MemoryDisk):
    """A disk whose commits go into a ledger too."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.log)
        self.ledger = ledger

    def append(self, commit: Any) -> None:
        super().append(commit)
        self.ledger.written(commit)

    def sync(self, serial: int, head: int) -> None:
        super().sync(serial, head)
        self.ledger.synced()

    def power_loss(self, kept: int = 0) -> None:
        super().power_loss(kept)
        self.ledger.crashed(kept)
