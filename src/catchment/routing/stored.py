"""What a durable core keeps in a store, and what a core and its host say to each other about it (`routing/durable/`).

A store is one ordered sequence of *writes*. A core numbers its `Persist` actions (`serial`); the host performs them in
order, each of them whole or not at all, and says `Stored(serial)` when all up to that one are safe on disk. A crash
loses an end of the sequence, never a piece out of its middle. So a core may let a later write rely on an earlier one,
and needs to wait only before it tells somebody.

Records have *epochs*: 1, 2, 3 and so on, without a hole, never used twice. The *log* of a storage is the sequence of
its records; its id is made at random together with the file. `due` says who is to get a record, and by which of its
subscriptions. It is fixed when the record is made.

    core to host    Persist, Fetch
    host to core    Stored, Fetched, StoreDown, StoreUp; Opened when the core is made
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from catchment.model.notification import Notification
from catchment.routing.messages import Time, Wanted

# Who is to get a record: identities, each with the sorted ids of its subscriptions that matched. Sorted by identity.
Due = tuple[tuple[str, tuple[str, ...]], ...]

# --- writes -------------------------------------------------------------------------------------


class Record(Struct, frozen=True, gc=False):
    """A notification that somebody is due. `epoch` is the epoch of the record before plus one. `at` is the time when
    it was made."""

    epoch: int
    notification: Notification
    due: Due
    at: Time


class LastNumber(Struct, frozen=True, gc=False):
    """The last number (`$seq`) of a source that this storage has accepted. `epoch` is that of the last record of the
    source, 0 if there was none."""

    source: str
    seq: int
    epoch: int


class DurableRow(Struct, frozen=True, gc=False):
    """A durable subscription, or with `wanted` None, that it was cancelled. The greater version wins. `via` names the
    relay that serves the identity, if there is one. `by` is the broker that was asked."""

    identity: str
    id: str
    version: int
    wanted: Wanted | None
    by: str = ""
    via: str = ""
    is_group: bool = False


class PlaceRow(Struct, frozen=True, gc=False):
    """Where an identity is served, or with `broker` None, that it is away. The greater session wins."""

    identity: str
    session: int
    broker: str | None


class Acknowledged(Struct, frozen=True, gc=False):
    """The identity has taken everything of this log up to `epoch`. It may be less than before: the identity goes back
    to records that are still kept."""

    identity: str
    epoch: int


class Consumed(Struct, frozen=True, gc=False):
    """This storage has taken everything of another storage's log up to `epoch`. A relay writes it in the same `Persist`
    as the records that it makes of them."""

    log: str
    epoch: int


class Forgotten(Struct, frozen=True, gc=False):
    """The identity is gone for good: its subscriptions, its place, what it has acknowledged and what it is due."""

    identity: str


Write = Record | LastNumber | DurableRow | PlaceRow | Acknowledged | Consumed | Forgotten

# --- host to core -------------------------------------------------------------------------------


class Opened(Struct, frozen=True):
    """What was in the store when it was opened; that of a new one is empty. `serial` is the number of the last
    `Persist` that the store has; the core goes on from there."""

    log: str
    serial: int = 0
    # The epoch of the last record, and that before the first record that is still kept.
    head: int = 0
    anchor: int = 0
    numbers: Mapping[str, LastNumber] = {}
    durables: tuple[DurableRow, ...] = ()
    places: tuple[PlaceRow, ...] = ()
    acknowledged: Mapping[str, int] = {}
    # By identity, the epoch of the last record that it is due. Identities that are due nothing are not listed.
    last_due: Mapping[str, int] = {}
    consumed: Mapping[str, int] = {}


class Stored(Struct, frozen=True):
    """Everything up to this `Persist` is safe on disk."""

    serial: int


class Entry(Struct, frozen=True, gc=False):
    """A record as one identity sees it."""

    epoch: int
    notification: Notification
    ids: tuple[str, ...]


class Fetched(Struct, frozen=True):
    """The answer to `Fetch`: exactly these entries of (after, upto] are for the identity. `lost` is how many more there
    were, which retention has dropped or which were found damaged. `upto` is less than what was asked for if there was
    too much for one answer."""

    identity: str
    after: int
    upto: int
    entries: tuple[Entry, ...]
    lost: int = 0


class StoreDown(Struct, frozen=True):
    """The store takes nothing more: `reason` is for people. Nothing that was persisted after the last `Stored` is kept,
    and the core must not reuse its epochs until `StoreUp` says where to go on."""

    reason: str
    # Whether it will not come back before the broker is started again.
    is_final: bool = False


class StoreUp(Struct, frozen=True):
    """The store works again. It has what `Opened` says; the core numbers on from there. If it `is_full`, it takes
    everything but records: acknowledgements make room."""

    opened: Opened
    is_full: bool = False


StoreMessage = Stored | Fetched | StoreDown | StoreUp

# --- actions ------------------------------------------------------------------------------------


class Persist(Struct, frozen=True):
    """Keeps these, in order, all of them or none. `serial` is one more than that of the `Persist` before."""

    serial: int
    writes: tuple[Write, ...]


# How much one `Fetch` asks for: what a client may have unacknowledged.
FETCH_ENTRIES_MAX: Final = 256
FETCH_BYTES_MAX: Final = 1_048_576


class Fetch(Struct, frozen=True):
    """Asks for the entries of an identity in (after, upto], in order, at most so many and about so many bytes. There is
    at least one, if there is any."""

    identity: str
    after: int
    upto: int
    entries_max: int = FETCH_ENTRIES_MAX
    bytes_max: int = FETCH_BYTES_MAX


StoreAction = Persist | Fetch
