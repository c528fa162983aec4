"""What a store has, for a core that starts and for people."""

from __future__ import annotations

from catchment.routing.stored import Opened
from catchment.store.interface import IdentityStatus, StoreStatus
from catchment.store.sql.schema import KEPT
from catchment.store.sql.small import Identity
from catchment.store.sql.tables import Tables


def opened_of(tables: Tables) -> Opened:
    small, state = tables.small, tables.state
    identities = small.identities.values()
    return Opened(
        state.log,
        state.serial,
        state.head,
        state.anchor,
        dict(small.numbers),
        tuple(row for _, row in sorted(small.durables.items())),
        tuple(row for _, row in sorted(small.places.items())),
        {each.name: each.acknowledged for each in identities if each.acknowledged is not None},
        {each.name: each.last for each in identities if each.last},
        dict(small.consumed),
    )


def status_of(tables: Tables, is_full: bool = False) -> StoreStatus:
    state = tables.state
    identities = tuple(_identity_status(tables, each) for _, each in sorted(tables.small.identities.items()))
    return StoreStatus(
        tables.database.url,
        state.log,
        state.head,
        state.anchor,
        state.records,
        state.size,
        state.quarantined,
        identities,
        is_full,
    )


def _identity_status(tables: Tables, identity: Identity) -> IdentityStatus:
    after = max(identity.position, identity.since)
    ((count, first),) = tables.rows(
        "SELECT count(*), min(d.epoch) FROM due d JOIN log l ON l.epoch = d.epoch "
        "WHERE d.identity_no = ? AND d.epoch > ? AND l.state = ?",
        identity.number,
        after,
        KEPT,
    )
    for row in tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch > ? ORDER BY epoch", after):
        if identity.number in (tables.wide_numbers(row) or ()):
            count, first = count + 1, row[0] if first is None else min(first, row[0])
    body = None if first is None else tables.body(first)
    oldest = None if body is None else body.at
    return IdentityStatus(identity.name, identity.position, count, oldest, identity.lost)
