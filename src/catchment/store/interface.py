"""The store of a broker: what every implementation does (`memory.py`, `sqlite.py`, `postgres.py`).

A store blocks: it has no thread and no loop. A host calls `write` from one thread at a time, and tells the core
`Stored` when it returns. What a host may rely on:

write     All of it or nothing. When it returns, a power cut loses nothing of it. It raises StoreFullError if there is
          no room: nothing was written, and it may be tried again. It raises StoreBrokenError if the disk has failed:
          nobody knows what was written, and nothing may be tried again before the store is opened anew.
read      What `write` has returned for, never more. A record that is damaged is no record: it is counted as lost.
collect   Deletes records that everybody who is due has acknowledged, as far as `Retention` lets it. Stated positions
          and due records stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.routing.messages import Time
from catchment.routing.stored import Fetch, Fetched, Opened, Persist


class StoreError(CatchmentError):
    """The store does not do what it was asked."""


class StoreFullError(StoreError):
    """There is no room. Nothing was written."""


class StoreBrokenError(StoreError):
    """The disk has failed, or what is on it is damaged. It is closed until somebody opens it again."""


class StoreLossError(StoreBrokenError):
    """What was acknowledged as stored is missing: which epochs, and what can be done."""


class Retention(Struct, frozen=True):
    """How long records are kept. Without any of these a record goes as soon as everybody due has acknowledged it, and
    never before."""

    # Drops what is older or more, acknowledged or not. What somebody was due is counted as lost for them.
    age_us_max: Time | None = None
    bytes_max: int | None = None
    # Keeps what was acknowledged for so long, so that an identity may go back to it.
    retain_us: Time = 0


class IdentityStatus(Struct, frozen=True):
    """An identity as the store sees it: how much it is still due, after filtering."""

    identity: str
    acknowledged: int
    waiting: int
    # When the oldest record that it is due was made; None if nothing waits.
    oldest: Time | None
    lost: int


class StoreStatus(Struct, frozen=True):
    """What `catchment store status` prints."""

    url: str
    log: str
    head: int
    anchor: int
    records: int
    bytes: int
    # Records that were found damaged and set aside.
    quarantined: int
    identities: tuple[IdentityStatus, ...]


class Collected(Struct, frozen=True):
    """What `collect` has done: records deleted, and for whom how many were dropped that they were due."""

    records: int
    lost: tuple[tuple[str, int], ...] = ()


class Store(Protocol):
    """An open store."""

    def opened(self) -> Opened:
        """What is in it now."""
        ...

    def write(self, batch: Sequence[Persist]) -> None: ...

    def read(self, fetch: Fetch) -> Fetched: ...

    def collect(self, now: Time) -> Collected: ...

    def scrub(self, records_max: int) -> int:
        """Checks the next records against their hashes, and sets damaged ones aside. Returns how many it has checked;
        0 when it has been through all."""
        ...

    def status(self) -> StoreStatus: ...

    def close(self) -> None: ...
