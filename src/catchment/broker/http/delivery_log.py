"""What waits to be read over HTTP: the last deliveries of a subscription, numbered, and readers at places in them.

A `Log` is bounded: the oldest go when new ones come. It never waits for a reader. A reader that has fallen behind is
told how many it has missed and goes on with the oldest there is. So memory is bounded, and no reader stalls anything.

A place is named `epoch.number`, the epoch that of one log. A reader that begins anew after a place gets nothing twice:
what has come since, as far as it is there still, and is told how many are not. After a place of another log, as from
before the broker started anew, it is told that there may be a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

# Deliveries that wait for the readers of one subscription: some seconds of a busy stream.
LOG_ENTRIES_MAX: Final = 1_024
# And their bytes; a single one may be longer.
LOG_BYTES_MAX: Final = 1_048_576
# What a reader takes at once: one write.
TAKEN_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """A delivery: the JSON object of a CloudEvent without its closing brace, which many logs share."""

    number: int
    subscriptions: tuple[str, ...]
    opened: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """What a reader gets: so many were lost, then these, of which there are some if any were lost."""

    lost: int
    entries: tuple[Entry, ...]


class Log:
    def __init__(self, epoch: str, entries_max: int = LOG_ENTRIES_MAX, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.epoch = epoch
        self.last = 0
        # The last that any reader has taken.
        self.taken = 0
        self.lost = 0
        self.ended: str | None = None
        self.readers: set[Reader] = set()
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._entries_max, self._bytes_max = entries_max, bytes_max

    def append(self, subscriptions: tuple[str, ...], opened: bytes) -> None:
        self.last += 1
        self._entries.append(Entry(self.last, subscriptions, opened))
        self._bytes += len(opened)
        while len(self._entries) > self._entries_max or (self._bytes > self._bytes_max and len(self._entries) > 1):
            gone = self._entries.popleft()
            self._bytes -= len(gone.opened)
            self.lost += gone.number > self.taken
        self._wake()

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self._wake()

    def _wake(self) -> None:
        for reader in self.readers:
            reader.ready.set()

    def after(self, number: int) -> Taken:
        first = self._entries[0].number if self._entries else self.last + 1
        lost = max(0, first - 1 - number)
        start = max(0, number - first + 1)
        entries = tuple(islice(self._entries, start, start + TAKEN_MAX))
        return Taken(lost, entries)

    @property
    def waiting(self) -> int:
        """Those that nobody has taken."""
        return min(len(self._entries), self.last - self.taken)

    def place(self, number: int) -> str:
        return f"{self.epoch}.{number}"


class Reader:
    """`after` is the place where an earlier reader stopped; without one it begins with what nobody has taken yet."""

    def __init__(self, log: Log, after: str | None = None) -> None:
        self.log = log
        self.ready = asyncio.Event()
        self.has_gap = False
        self._number = log.taken
        if after:
            epoch, _, number = after.rpartition(".")
            self.has_gap = epoch != log.epoch or not number.isdecimal() or len(number) > 18 or int(number) > log.last
            self._number = log.taken if self.has_gap else int(number)
        log.readers.add(self)

    def close(self) -> None:
        self.log.readers.discard(self)

    async def take(self, timeout_s: float) -> Taken | None:
        """What comes next; nothing lost and no entries when nothing came in time; None after the end."""
        while True:
            found = self.log.after(self._number)
            if found.lost or found.entries:
                self._number += found.lost + len(found.entries)
                self.log.taken = max(self.log.taken, self._number)
                return found
            if self.log.ended is not None:
                return None
            self.ready.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self.ready.wait()
            except TimeoutError:
                return found
