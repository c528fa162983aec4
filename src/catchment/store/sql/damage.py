"""What is done about damage: a bad record is set aside and counted as lost, a bad index is made anew.

set_aside   The row goes to `quarantine`, for people to look at. Its epoch stays in `log` as lost. Those who were due it
            and have not passed it are told with their next read: their rows stay in `due`, and those in `wide` are
            put there.
index_anew  What an identity is due after some epoch, from the bodies. The chain also tells how many unreadable records
            in between it was due. Of several unreadable ones nobody knows which these are, so the latest are taken:
            the count is right, and the identity has passed all of them when it passes the next body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from catchment.store.sql.bodies import Due, size_of
from catchment.store.sql.schema import COLLECTED, KEPT, LOST
from catchment.store.sql.small import Identity
from catchment.store.sql.tables import Tables, Transaction

# Records that are read at once.
PIECE: Final = 256


def set_aside(tables: Tables, epochs: Sequence[int]) -> None:
    with tables.change() as change:
        # The next start cannot learn from these who was due what last.
        change.write_identities()
        for epoch in epochs:
            _set_aside(tables, change, epoch)


def _set_aside(tables: Tables, change: Transaction, epoch: int) -> None:
    rows = tables.rows("SELECT hash, body FROM log WHERE epoch = ?", epoch)
    digest, body = rows[0] if rows else (None, None)
    reason = "its hash does not fit" if rows else "its row is missing"
    tables.database.run(
        "INSERT INTO quarantine (epoch, body, hash, reason) VALUES (?, ?, ?, ?) ON CONFLICT (epoch) DO NOTHING",
        (epoch, _as_bytes(body), _as_bytes(digest), reason),
    )
    mark_lost(tables, change, epoch, has_row=bool(rows))
    state = change.state
    state.quarantined += 1
    # Of what cannot be read at all nobody knows how much it was.
    size = size_of(body) if isinstance(body, bytes) else None
    state.size = max(0, state.size - (size if size is not None else state.size // max(1, state.records)))
    state.records -= 1


def _as_bytes(value: object) -> bytes | None:
    return None if value is None else value if isinstance(value, bytes) else str(value).encode()


def mark_lost(tables: Tables, change: Transaction, epoch: int, has_row: bool = True) -> None:
    """The body goes. Each identity that has not passed it has lost one more."""
    small = tables.small.by_number()
    numbers = numbers_due(tables, epoch)
    waiting = [number for number in numbers if number in small and small[number].position < epoch]
    for number in waiting:
        change.changes.identity(small[number].name, epoch).lost += 1
        change.changes.written.add(small[number].name)
    tables.database.run("DELETE FROM wide WHERE epoch = ?", (epoch,))
    tables.database.run_many(
        "INSERT INTO due (identity_no, epoch) VALUES (?, ?) ON CONFLICT (identity_no, epoch) DO NOTHING",
        [(number, epoch) for number in waiting],
    )
    tables.database.run_many(
        "DELETE FROM due WHERE identity_no = ? AND epoch = ?",
        [(number, epoch) for number in set(numbers) - set(waiting)],
    )
    if has_row:
        tables.database.run("UPDATE log SET state = ?, body = NULL WHERE epoch = ?", (LOST, epoch))
    else:
        tables.database.run("INSERT INTO log (epoch, state, hash, body) VALUES (?, ?, ?, NULL)", (epoch, LOST, b""))


def numbers_due(tables: Tables, epoch: int) -> list[int]:
    """Who is due a record, as the index has it."""
    for row in tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch = ?", epoch):
        if (numbers := tables.wide_numbers(row)) is not None:
            return list(numbers)
    return [
        identity.number
        for identity in tables.small.identities.values()
        if tables.rows("SELECT 1 FROM due WHERE identity_no = ? AND epoch = ?", identity.number, epoch)
    ]


# --- the index ----------------------------------------------------------------------------------


def index_anew(tables: Tables, identity: Identity, after: int) -> Identity:
    """Makes the index of an identity anew, after this epoch. Returns the identity as it is then."""
    dues, unreadable = _scanned(tables, identity, after)
    with tables.change() as change:
        _mend_wide(tables, after)
        narrow = {
            epoch
            for (epoch,) in tables.rows(
                "SELECT epoch FROM due WHERE identity_no = ? AND epoch > ?", identity.number, after
            )
        }
        wide = _wide_epochs(tables, identity.number, after)
        gone = {epoch for epoch in narrow if epoch not in dues and tables.is_kept(epoch) and epoch not in unreadable}
        lost = narrow - gone - dues.keys()
        new_lost = set(_unindexed(identity, dues, unreadable, lost, after))
        new = (dues.keys() | new_lost) - narrow - wide
        tables.database.run_many(
            "DELETE FROM due WHERE identity_no = ? AND epoch = ?", [(identity.number, epoch) for epoch in sorted(gone)]
        )
        tables.database.run_many(
            "INSERT INTO due (identity_no, epoch) VALUES (?, ?)", [(identity.number, epoch) for epoch in sorted(new)]
        )
        changed = change.changes.identity(identity.name, 0)
        changed.lost += sum(epoch > identity.position for epoch in new_lost)
        change.changes.written.add(identity.name)
    return tables.small.identities[identity.name]


def _scanned(tables: Tables, identity: Identity, after: int) -> tuple[dict[int, Due], set[int]]:
    """All records after an epoch: what the bodies say of the identity, and which cannot be read."""
    dues: dict[int, Due] = {}
    unreadable: set[int] = set()
    for epoch, state, due in _pieces(tables, identity, max(after, tables.state.anchor)):
        if due is not None:
            dues[epoch] = due
        elif state != KEPT:
            unreadable.add(epoch)
    return dues, unreadable


def _pieces(tables: Tables, identity: Identity, after: int) -> Iterator[tuple[int, int | None, Due | None]]:
    """Every epoch after this one; the state is not KEPT if the body cannot be read. None of them was collected."""
    while after < tables.state.head:
        upto = min(after + PIECE, tables.state.head)
        rows = {
            row[0]: row[1:]
            for row in tables.rows(
                "SELECT epoch, state, hash, body FROM log WHERE epoch > ? AND epoch <= ?", after, upto
            )
        }
        for epoch in range(after + 1, upto + 1):
            state, digest, body = rows.get(epoch, (LOST, None, None))
            read = tables.hasher.read(epoch, digest, body) if state == KEPT else None
            if state == COLLECTED:
                continue
            yield epoch, state if read is not None else LOST, None if read is None else read.due(identity.name)
        after = upto


def _unindexed(
    identity: Identity, dues: dict[int, Due], unreadable: set[int], lost: set[int], after: int
) -> Iterator[int]:
    """Unreadable epochs that the identity was due, as the chain says, and that the index does not have."""
    last_epoch = after
    last_count: int | None = None
    ends = [(epoch, due.before, due.count) for epoch, due in dues.items()]
    for epoch, before, count in [*ends, (identity.last + 1, identity.last, identity.count + 1)]:
        between = {each for each in unreadable if last_epoch < each < epoch}
        missing = 1 if last_count is None and before in between else 0
        if last_count is not None:
            missing = count - last_count - 1
        missing -= len(lost & between)
        # What the next body names comes last, because the last ones are taken.
        named = [before] if before in between - lost else []
        candidates = [*sorted(between - lost - {before}), *named]
        yield from candidates[len(candidates) - max(0, missing) :]
        last_epoch, last_count = epoch, count


def _mend_wide(tables: Tables, after: int) -> None:
    """Rows of `wide` that are damaged: from the body, or not at all."""
    for row in tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch > ?", after):
        if tables.wide_numbers(row) is not None:
            continue
        tables.database.run("DELETE FROM wide WHERE epoch = ?", (row[0],))
        if (body := tables.body(row[0])) is not None:
            known = [tables.small.identities.get(due.identity) for due in body.dues]
            numbers = [each.number for each in known if each is not None]
            tables.database.insert("wide", ("epoch", "numbers", "hash"), [tables.wide_row(row[0], numbers)])


def _wide_epochs(tables: Tables, number: int, after: int) -> set[int]:
    rows = tables.rows("SELECT epoch, numbers, hash FROM wide WHERE epoch > ?", after)
    return {row[0] for row in rows if number in (tables.wide_numbers(row) or ())}
