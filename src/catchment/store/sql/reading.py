"""What one identity is due, read from the index and checked by the chain in the bodies.

The index (`due`, `wide`) says which epochs an identity is due. A damaged index must not hide a record. So what it says
is compared with the chain (`bodies.py`), which the hashes protect:

- between two bodies, as many epochs were found as their counts differ by;
- before the first body, nothing is left out that comes after where the reader is;
- after the last one there is none, if it is the last that the identity is due, and else the next body says so.

An epoch that the index has and whose body is gone or damaged is lost. If the chain says that something else is missing,
the index of that stretch is made anew from the bodies, and it is read again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import Final

from msgspec import Struct

from catchment.routing.stored import Entry, Fetch, Fetched
from catchment.store.interface import StoreBrokenError, StoreFullError
from catchment.store.sql.bodies import Due, notification_from
from catchment.store.sql.damage import index_anew, set_aside
from catchment.store.sql.schema import KEPT
from catchment.store.sql.small import Identity
from catchment.store.sql.tables import Tables

# Rows of the index that are read at once.
INDEX_ROWS_MAX: Final = 512


class _IndexMismatch(Exception):  # noqa: N818  # nobody outside sees it
    """The index does not fit the chain."""


class _Found(Struct):
    """What a read has found so far."""

    after: int
    upto: int
    entries: list[Entry]
    # What the bodies of the entries say of the identity.
    dues: list[Due]
    lost: list[int]
    damaged: list[int]

    def has(self, epoch: int) -> bool:
        place = bisect_left(self.entries, epoch, key=lambda entry: entry.epoch)
        return epoch in self.lost or (place < len(self.entries) and self.entries[place].epoch == epoch)

    def lost_between(self, after: int, before: int) -> int:
        return bisect_left(self.lost, before) - bisect_right(self.lost, after)


def fetched(tables: Tables, fetch: Fetch) -> Fetched:
    identity = tables.small.identities.get(fetch.identity)
    upto = min(fetch.upto, tables.state.head)
    if identity is None or upto <= max(fetch.after, identity.since):
        return Fetched(fetch.identity, fetch.after, max(upto, fetch.after), ())
    after = max(fetch.after, identity.since)
    try:
        found = _checked_read(tables, fetch, identity, after, upto)
    except _IndexMismatch:
        identity = index_anew(tables, identity, after)
        try:
            found = _checked_read(tables, fetch, identity, after, upto)
        except _IndexMismatch:
            raise StoreBrokenError(
                f"{tables.database.url}: what {fetch.identity} is due after epoch {after} contradicts itself: "
                "catchment store accept-loss goes on with what is whole"
            ) from None
    return Fetched(fetch.identity, fetch.after, found.upto, tuple(found.entries), len(found.lost))


def _checked_read(tables: Tables, fetch: Fetch, identity: Identity, after: int, upto: int) -> _Found:
    found = _Found(after, after, [], [], [], [])
    is_cut = False
    while found.upto < upto and not is_cut:
        is_cut = _step(tables, fetch, identity, upto, found)
    _check_chain(tables, identity, found, is_cut)
    if found.damaged:
        with suppress(StoreFullError):  # they are counted as lost all the same, and found again
            set_aside(tables, found.damaged)
    return found


def _step(tables: Tables, fetch: Fetch, identity: Identity, upto: int, found: _Found) -> bool:
    """Reads on. Whether there was too much for one answer."""
    epochs, horizon = indexed(tables, identity.number, found.upto, upto)
    size = sum(len(entry.notification.packed) for entry in found.entries)
    for epoch, state, body in tables.read(epochs):
        due = None if body is None else body.due(identity.name)
        if body is None:
            found.lost.append(epoch)
            if state == KEPT:
                found.damaged.append(epoch)
        elif due is None:
            raise _IndexMismatch
        else:
            size += body.size
            if found.entries and (len(found.entries) >= fetch.entries_max or size > fetch.bytes_max):
                return True
            found.entries.append(Entry(epoch, notification_from(body.notification), due.ids))
            found.dues.append(due)
        found.upto = epoch
    found.upto = horizon
    return False


def indexed(tables: Tables, number: int, after: int, upto: int) -> tuple[list[int], int]:
    """The next epochs that an identity is due in (after, upto], lost ones too, and how far these are all of them."""
    horizon = upto
    narrow = tables.rows(
        "SELECT epoch FROM due WHERE identity_no = ? AND epoch > ? AND epoch <= ? ORDER BY epoch LIMIT ?",
        number, after, upto, INDEX_ROWS_MAX,
    )  # fmt: skip
    epochs = [epoch for (epoch,) in narrow]
    if len(narrow) == INDEX_ROWS_MAX:
        horizon = epochs[-1]
    wide = tables.rows(
        "SELECT epoch, numbers, hash FROM wide WHERE epoch > ? AND epoch <= ? ORDER BY epoch LIMIT ?",
        after, horizon, INDEX_ROWS_MAX,
    )  # fmt: skip
    for row in wide:
        if (numbers := tables.wide_numbers(row)) is None:
            raise _IndexMismatch
        if number in numbers:
            epochs.append(row[0])
    if len(wide) == INDEX_ROWS_MAX:
        horizon = wide[-1][0]
    return sorted(epoch for epoch in epochs if epoch <= horizon), horizon


# --- the chain ----------------------------------------------------------------------------------


def _check_chain(tables: Tables, identity: Identity, found: _Found, is_cut: bool) -> None:
    """_IndexMismatch if the bodies say that something is missing in what the index has given."""
    last_epoch = found.after
    last_count: int | None = None
    for entry, due in zip(found.entries, found.dues, strict=True):
        _check_link(tables, identity, found, due.before)
        if last_count is not None:
            missing = due.count - last_count - 1 - found.lost_between(last_epoch, entry.epoch)
            # What it had acknowledged may have been collected out of order: then the index has less, never more.
            if missing < 0 or (missing > 0 and last_epoch >= identity.passed):
                raise _IndexMismatch
        last_epoch, last_count = entry.epoch, due.count
    if found.upto >= identity.last:
        _check_link(tables, identity, found, identity.last)
        later = found.lost_between(last_epoch, found.upto + 1)
        if last_count is not None and last_epoch >= identity.passed and identity.count - last_count != later:
            raise _IndexMismatch
    elif not is_cut:
        # Nothing of this stretch can be missing without the next body naming it.
        following, _ = indexed(tables, identity.number, found.upto, tables.state.head)
        body = tables.body(following[0]) if following else None
        following_due = None if body is None else body.due(identity.name)
        if following_due is not None:
            _check_link(tables, identity, found, following_due.before)


def _check_link(tables: Tables, identity: Identity, found: _Found, epoch: int) -> None:
    """The identity was due this epoch: it is before what was read, or was found, or was collected since."""
    if epoch <= found.after or found.has(epoch):
        return
    if tables.is_kept(epoch) or epoch > identity.passed:
        raise _IndexMismatch
