"""The deliveries of a subscription that wait to be read over HTTP, and the readers that read them.

A `DeliveryLog` holds the last deliveries of one subscription, numbered from 1. It is bounded: it drops the oldest
deliveries when new ones come, and never waits for a reader. A reader that has fallen behind learns how many deliveries
it has lost, and goes on with the oldest that is left. So memory is bounded, and a slow reader delays nobody.

A place in a log is written `id.number`, where `id` names the log. A reader that starts after a place gets nothing
twice: it gets what came since then, and learns how many of those the log has dropped. The place may belong to another
log, for example to one from before the broker restarted. Then the reader learns that there may be a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

# Deliveries that wait for the readers of one subscription: some seconds of a busy stream.
LOG_ENTRIES_MAX: Final = 1_024
# Their bytes in all. A single delivery may be longer.
LOG_BYTES_MAX: Final = 1_048_576
# The bytes of all logs of a broker. Past it each log keeps only LOG_BYTES_TIGHT, as it grows.
LOGS_BYTES_MAX: Final = 256 * 1_048_576
LOG_BYTES_TIGHT: Final = 65_536
# Entries that a reader takes at once and sends in one write, and about how many bytes of them.
PORTION_ENTRIES_MAX: Final = 64
PORTION_BYTES_MAX: Final = 262_144


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A delivery, or, if `gap` is there, the news that notifications may be missing. `open_json` is the JSON object of
    a CloudEvent without its closing brace, so that many logs can share the bytes and each stream can add members of
    its own."""

    number: int
    subscriptions: tuple[str, ...]
    open_json: bytes
    gap: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Portion:
    """What a reader takes at once: first it has lost `lost` deliveries, then come `entries`. If deliveries were lost,
    `entries` is not empty."""

    lost: int
    entries: tuple[LogEntry, ...]


@dataclass(slots=True)
class LogsRoom:
    """The bytes of all logs of a broker."""

    bytes_max: int = LOGS_BYTES_MAX
    bytes: int = 0


class DeliveryLog:
    """Logs that share a `room` are bounded together."""

    def __init__(
        self,
        id: str,
        entries_max: int = LOG_ENTRIES_MAX,
        bytes_max: int = LOG_BYTES_MAX,
        room: LogsRoom | None = None,
    ) -> None:
        self.id = id
        self._room = LogsRoom() if room is None else room
        self.last_number = 0
        # The highest number that any reader has taken.
        self.taken_number = 0
        # Entries that were dropped before any reader took them.
        self.lost = 0
        self.end_reason: str | None = None
        self.readers: set[Reader] = set()
        self._entries: deque[LogEntry] = deque()
        self._bytes = 0
        self._entries_max, self._bytes_max = entries_max, bytes_max

    def append(self, subscriptions: tuple[str, ...], open_json: bytes, gap: Mapping[str, object] | None = None) -> None:
        self.last_number += 1
        self._entries.append(LogEntry(self.last_number, subscriptions, open_json, gap))
        self._grow(len(open_json))
        # The newest entry always stays, however long: a reader that has lost some gets at least that one.
        while len(self._entries) > self._entries_max or (self._bytes > self._bytes_most and len(self._entries) > 1):
            dropped = self._entries.popleft()
            self._grow(-len(dropped.open_json))
            self.lost += dropped.number > self.taken_number
        self._wake()

    @property
    def _bytes_most(self) -> int:
        is_tight = self._room.bytes > self._room.bytes_max
        return min(self._bytes_max, LOG_BYTES_TIGHT) if is_tight else self._bytes_max

    def _grow(self, bytes_count: int) -> None:
        self._bytes += bytes_count
        if self.end_reason is None:
            self._room.bytes += bytes_count

    def end(self, reason: str) -> None:
        if self.end_reason is None:
            # Its readers take what is left, and nothing is added.
            self._room.bytes -= self._bytes
        self.end_reason = self.end_reason or reason
        self._wake()

    def _wake(self) -> None:
        for reader in self.readers:
            reader.ready.set()

    def portion_after(self, number: int) -> Portion:
        first = self._entries[0].number if self._entries else self.last_number + 1
        lost = max(0, first - 1 - number)
        start = max(0, number - first + 1)
        entries = []
        size = 0
        for entry in islice(self._entries, start, start + PORTION_ENTRIES_MAX):
            entries.append(entry)
            size += len(entry.open_json)
            if size >= PORTION_BYTES_MAX:
                break
        return Portion(lost, tuple(entries))

    @property
    def waiting_count(self) -> int:
        """How many entries no reader has taken."""
        return min(len(self._entries), self.last_number - self.taken_number)

    def place(self, number: int) -> str:
        return f"{self.id}.{number}"


class Reader:
    """Reads a log. `after` is the place where an earlier reader stopped; without it, the reader starts with the first
    entry that no reader has taken."""

    # A reader of this kind need not come back to acknowledge.
    is_pass_over = False

    def __init__(self, log: DeliveryLog, after: str | None = None) -> None:
        self.log = log
        self.ready = asyncio.Event()
        self.has_gap = False
        self._number = log.taken_number
        if after:
            id, _, digits = after.rpartition(".")
            # Python refuses to convert very long texts of digits, so those are refused first.
            self.has_gap = id != log.id or not digits.isdecimal() or len(digits) > 18 or int(digits) > log.last_number
            self._number = log.taken_number if self.has_gap else int(digits)
        log.readers.add(self)

    def close(self) -> None:
        self.log.readers.discard(self)

    async def take(self, timeout_s: float) -> Portion | None:
        """The next entries. If none come in time, an empty portion; after the end of the log, None."""
        while True:
            portion = self.log.portion_after(self._number)
            if portion.lost or portion.entries:
                self._number += portion.lost + len(portion.entries)
                self.log.taken_number = max(self.log.taken_number, self._number)
                return portion
            if self.log.end_reason is not None:
                return None
            # Nothing can be appended between the look above and this line: there is no `await` between them. So no
            # wake-up is lost.
            self.ready.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self.ready.wait()
            except TimeoutError:
                return portion
