"""The disk of a storage in an explored world: what is safe, what is only written, and all that ever was.

It is no `Store`: it keeps every record for ever, so that checks can ask what a log has at any time; and each write is
synced on its own, as one step of the exploration. What is safe is never lost. What is only written survives if the
process ends, and any end of it may be gone after a power cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from catchment.routing.stored import (
    Acknowledged,
    DurableRow,
    Entry,
    Fetch,
    Fetched,
    LastNumber,
    Opened,
    Persist,
    PlaceRow,
    Record,
)


class ExplorationError(Exception):
    """Something happened that must not be."""


class Disk:
    """The disk of the storage `log`."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.serial = 0
        # Synced.
        self.records: dict[int, Record] = {}
        self.numbers: dict[str, LastNumber] = {}
        self.durables: dict[tuple[str, str], DurableRow] = {}
        self.places: dict[str, PlaceRow] = {}
        self.acknowledged: dict[str, int] = {}
        # Written, in order.
        self.written: list[Persist] = []

    @property
    def head(self) -> int:
        return len(self.records)

    # --- writing ---

    def write(self, persist: Persist) -> None:
        last = self.written[-1].serial if self.written else self.serial
        if persist.serial != last + 1:
            raise ExplorationError(f"write {persist.serial} of {self.log} follows write {last}")
        self.written.append(persist)

    def sync(self) -> int:
        """The next write is safe; returns its serial number."""
        persist = self.written.pop(0)
        self.serial = persist.serial
        for write in persist.writes:
            self._enter(write)
        return persist.serial

    def crash(self, kept: int) -> None:
        """The first `kept` of the writes that are not synced survive."""
        del self.written[kept:]
        while self.written:
            self.sync()

    def _enter(self, write: object) -> None:
        match write:
            case Record():
                if write.epoch != self.head + 1:
                    # Dense, and never used twice: I6.
                    raise ExplorationError(f"{self.log} writes epoch {write.epoch}, its last is {self.head}")
                self.records[write.epoch] = write
            case LastNumber():
                self.numbers[write.source] = write
            case DurableRow():
                self.durables[write.identity, write.id] = write
            case PlaceRow():
                self.places[write.identity] = write
            case Acknowledged():
                self.acknowledged[write.identity] = write.epoch
            case _:
                raise ExplorationError(f"{write!r} is not known here")

    # --- reading ---

    def opened(self) -> Opened:
        last_due = {identity: epoch for epoch, record in self.records.items() for identity, _ in record.due}
        return Opened(
            self.log,
            self.serial,
            self.head,
            numbers=dict(self.numbers),
            durables=tuple(row for _, row in sorted(self.durables.items())),
            places=tuple(row for _, row in sorted(self.places.items())),
            acknowledged=dict(self.acknowledged),
            last_due=last_due,
        )

    def due(self, identity: str, after: int, upto: int) -> Mapping[int, tuple[str, ...]]:
        """D(L, c): the epochs in (after, upto] that the identity is due, with the ids of its subscriptions."""
        due: dict[int, tuple[str, ...]] = {}
        for epoch in range(after + 1, min(upto, self.head) + 1):
            for each, ids in self.records[epoch].due:
                if each == identity:
                    due[epoch] = ids
        return due

    def fetched(self, fetch: Fetch) -> Fetched:
        entries: list[Entry] = []
        for epoch, ids in self.due(fetch.identity, fetch.after, fetch.upto).items():
            if len(entries) >= fetch.entries_max:
                return Fetched(fetch.identity, fetch.after, entries[-1].epoch, tuple(entries))
            entries.append(Entry(epoch, self.records[epoch].notification, ids))
        return Fetched(fetch.identity, fetch.after, max(fetch.after, min(fetch.upto, self.head)), tuple(entries))
