"""The store of a broker: what every implementation does (`memory.py`, `sqlite.py`, `postgres.py`).

A store blocks: it has no thread and no loop. A host calls it from one thread at a time, and tells the core `Stored`
when `write` returns. What a host may rely on:

write     All of it or nothing. When it returns, a power cut loses nothing of it. It raises StoreFullError if there is
          no room: nothing was written, and it may be tried again. What contains no record is written even then: room is
          kept for it, so that acknowledgements can free more. It raises StoreBrokenError if the disk has failed: nobody
          knows what was written, and nothing may be tried again before the store is opened anew.
probe     After StoreFullError: whether there is room again.
read      What `write` has returned for, never more. A record that is damaged is no record: it is counted as lost.
collect   Deletes records that everybody who is due has acknowledged, and those that `Retention` does not let stay.
          Positions and what others are due stay as they are. The host calls it every second or so.
scrub     Looks for damage in what nobody reads. The host calls it now and then when it is idle.

Serials and epochs are the core's: a store checks that they follow those before, and refuses what does not (StoreError).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.routing.messages import Time
from catchment.routing.stored import Fetch, Fetched, Opened, Persist

# Records that one `collect` deletes at most: some ten milliseconds, because whoever writes waits meanwhile. If there
# may be more, it says so.
COLLECTED_MAX: Final = 256


class StoreError(CatchmentError):
    """The store does not do what it was asked."""


class StoreFullError(StoreError):
    """There is no room. Nothing was written."""


class StoreInUseError(StoreError):
    """Another process has the store open."""


class StoreBrokenError(StoreError):
    """The disk has failed, or what is on it is damaged. It is closed until somebody opens it again."""


class StoreLossError(StoreBrokenError):
    """What was acknowledged as stored is missing: which epochs, and what can be done."""


class Retention(Struct, frozen=True):
    """How long records are kept. Without any of these a record goes as soon as everybody due has acknowledged it, and
    never before."""

    # Drops what is older or more, acknowledged or not. What somebody was due is counted as lost for them. Bytes are
    # those of the records; the file is somewhat larger.
    age_us_max: Time | None = None
    bytes_max: int | None = None
    # Keeps what was acknowledged for so long, so that an identity may go back to it.
    retain_us: Time = 0


class IdentityStatus(Struct, frozen=True):
    """An identity as the store sees it: how much it is still due, after filtering."""

    identity: str
    acknowledged: int
    # Records that it is due and has not acknowledged. Those that are lost are not among them.
    waiting: int
    # When the oldest record that it is due was made; None if nothing waits.
    oldest: Time | None
    # Records that were dropped by retention or found damaged before it had acknowledged them, ever.
    lost: int


class StoreStatus(Struct, frozen=True):
    """What `catchment store status` prints."""

    url: str
    log: str
    head: int
    anchor: int
    # Records that are kept, and their size.
    records: int
    bytes: int
    # Records that were found damaged and set aside.
    quarantined: int
    identities: tuple[IdentityStatus, ...]
    is_full: bool = False


class Collected(Struct, frozen=True):
    """What `collect` has done: records deleted, and for whom how many were dropped that they were due. With `more`
    there may be more to do at once."""

    records: int
    lost: tuple[tuple[str, int], ...] = ()
    more: bool = False


class Store(Protocol):
    """An open store."""

    def opened(self) -> Opened:
        """What is in it now."""
        ...

    def write(self, batch: Sequence[Persist]) -> None: ...

    def probe(self) -> bool: ...

    def read(self, fetch: Fetch) -> Fetched: ...

    def collect(self, now: Time) -> Collected: ...

    def scrub(self, records_max: int) -> int:
        """Checks the next records against their hashes, and sets damaged ones aside. Returns how many it has checked;
        0 when it has been through all. The next call begins anew."""
        ...

    def status(self) -> StoreStatus: ...

    def close(self) -> None: ...
