"""The small tables, and a copy of them in memory that is as it was committed last.

What changes is gathered in `Changes` and written when the transaction ends. Only when that has been committed does the
copy change too. So a transaction that fails leaves the copy as it was.

Each row has a hash, and `meta` has the sum of all hashes. Adding is enough: nobody forges a disk, and a sum can be kept
without reading the other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Wanted
from catchment.routing.stored import Acknowledged, Consumed, DurableRow, Forgotten, LastNumber, PlaceRow
from catchment.store.interface import StoreBrokenError
from catchment.store.sql.bodies import HASH_BYTES, Hasher
from catchment.store.sql.database import Database
from catchment.store.sql.schema import SMALL_TABLES

_SUM_LIMIT: Final = 1 << (8 * HASH_BYTES)

SmallWrite = LastNumber | DurableRow | PlaceRow | Acknowledged | Consumed | Forgotten
# A table and the key in it.
_Key = tuple[str, tuple[str, ...]]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class Identity:
    """What the store knows of an identity. `number` is its own for ever: another identity never gets it, nor does the
    same name after it was forgotten."""

    __slots__ = ("acknowledged", "count", "last", "lost", "name", "number", "passed", "since")

    def __init__(
        self,
        name: str,
        number: int,
        since: int,
        acknowledged: int | None = None,
        passed: int = 0,
        last: int = 0,
        count: int = 0,
        lost: int = 0,
    ) -> None:
        self.name = name
        self.number = number
        # Records up to this epoch were made before the identity was known: none of them is for it.
        self.since = since
        self.acknowledged = acknowledged
        # The greatest epoch that it ever had acknowledged: records up to there may have been collected.
        self.passed = passed
        # The last record that it is due, and how many there were. Not every change of these two is written at once:
        # the bodies have them too (`store.py`).
        self.last = last
        self.count = count
        self.lost = lost

    @property
    def position(self) -> int:
        return self.acknowledged or 0

    def copied(self) -> Identity:
        return Identity(
            self.name, self.number, self.since, self.acknowledged, self.passed, self.last, self.count, self.lost
        )

    def acknowledge(self, epoch: int) -> None:
        self.acknowledged = epoch
        self.passed = max(self.passed, epoch)


class Small:
    """The copy in memory."""

    def __init__(self) -> None:
        self.numbers: dict[str, LastNumber] = {}
        self.durables: dict[tuple[str, str], DurableRow] = {}
        self.places: dict[str, PlaceRow] = {}
        self.consumed: dict[str, int] = {}
        self.identities: dict[str, Identity] = {}
        # Those whose row has an earlier `last` than they have.
        self.unwritten: set[str] = set()
        self.total = 0
        self.hashes: dict[_Key, int] = {}

    def load(self, database: Database, hasher: Hasher) -> None:
        """Reads all tables. StoreBrokenError if a row is damaged."""
        for table in SMALL_TABLES:
            for key, value, digest in database.rows(f"SELECT key, value, hash FROM {table}"):
                if hasher.of_row(table, (bytes(key), bytes(value))) != bytes(digest):
                    raise StoreBrokenError(f"{database.url}: a row of the table {table} is damaged")
                self._enter(table, tuple(_decode(bytes(key))), _decode(bytes(value)), bytes(digest))

    def load_good(self, table: str, rows: Iterable[Sequence[Any]], hasher: Hasher) -> int:
        """Enters the rows that are whole; returns how many are not."""
        bad = 0
        for key, value, digest in rows:
            if hasher.of_row(table, (bytes(key), bytes(value))) == bytes(digest):
                self._enter(table, tuple(_decode(bytes(key))), _decode(bytes(value)), bytes(digest))
            else:
                bad += 1
        return bad

    def _enter(self, table: str, key: tuple[str, ...], value: list[Any], digest: bytes) -> None:
        number = int.from_bytes(digest, "big")
        self.hashes[table, key] = number
        self.total = (self.total + number) % _SUM_LIMIT
        match table:
            case "durable":
                kind, text, *rest = value
                self.durables[key[0], key[1]] = DurableRow(key[0], key[1], rest[0], _wanted(kind, text), *rest[1:])
            case "place":
                self.places[key[0]] = PlaceRow(key[0], *value)
            case "source_last":
                self.numbers[key[0]] = LastNumber(key[0], *value)
            case "position":
                self.consumed[key[0]] = value[0]
            case _:
                self.identities[key[0]] = Identity(key[0], *value)

    def by_number(self) -> dict[int, Identity]:
        return {identity.number: identity for identity in self.identities.values()}


class Changes:
    """What one transaction changes in the small tables."""

    def __init__(self, small: Small, number_next: int) -> None:
        self._small = small
        # Identities that this transaction has looked at, as they will be.
        self.identities: dict[str, Identity | None] = {}
        self.number_next = number_next
        # Those of `identities` whose row is to be written.
        self.written: set[str] = set()
        self._rows: dict[_Key, SmallWrite | None] = {}

    def identity(self, name: str, head: int) -> Identity:
        """The identity, to be changed; a new one if it is unknown."""
        identity = self.identities.get(name)
        if identity is None:
            known = None if name in self.identities else self._small.identities.get(name)
            if known is not None:
                identity = known.copied()
            else:
                identity = Identity(name, self.number_next, head)
                self.number_next += 1
                self.written.add(name)
            self.identities[name] = identity
        return identity

    def current(self, name: str) -> Identity | None:
        """The identity, not to be changed; None if there is none."""
        return self.identities[name] if name in self.identities else self._small.identities.get(name)

    def enter(self, write: SmallWrite, head: int) -> None:
        match write:
            case LastNumber():
                self._rows["source_last", (write.source,)] = write
            case Acknowledged():
                self.identity(write.identity, head).acknowledge(write.epoch)
                self.written.add(write.identity)
            case DurableRow():
                self._rows["durable", (write.identity, write.id)] = write
            case PlaceRow():
                self._rows["place", (write.identity,)] = write
            case Consumed():
                self._rows["position", (write.log,)] = write
            case Forgotten():
                self._forget(write.identity)

    def _forget(self, name: str) -> None:
        self.identities[name] = None
        self.written.add(name)
        self._rows["place", (name,)] = None
        keys = [*(("durable", key) for key in self._small.durables), *self._rows]
        for table, key in keys:
            if table == "durable" and key[0] == name:
                self._rows[table, key] = None

    # --- writing ---

    def write_identities(self) -> None:
        """Writes the rows of all identities that have changed since theirs was written."""
        for name in [*self._small.unwritten, *self.identities]:
            if self.current(name) is not None:
                self.identity(name, 0)
                self.written.add(name)

    def write(self, database: Database, hasher: Hasher) -> tuple[int, dict[_Key, int | None]]:
        """Writes the rows. Returns the sum as it will be, and the new hashes."""
        total, hashes = self._small.total, dict[_Key, int | None]()
        upserts: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        for key, value in self._encoded():
            table, packed_key = key[0], _encode(key[1])
            total -= self._small.hashes.get(key, 0)
            if value is None:
                database.run(f"DELETE FROM {table} WHERE key = ?", (packed_key,))
                hashes[key] = None
                continue
            digest = hasher.of_row(table, (packed_key, value))
            hashes[key] = number = int.from_bytes(digest, "big")
            total += number
            upserts.setdefault(table, []).append((packed_key, value, digest))
        for table, rows in upserts.items():
            database.run_many(_upsert(table), rows)
        return total % _SUM_LIMIT, hashes

    def _encoded(self) -> Iterator[tuple[_Key, bytes | None]]:
        for key, row in self._rows.items():
            yield key, None if row is None else _encode(_value_of(row))
        for name in self.written:
            identity = self.identities[name]
            yield ("identity", (name,)), None if identity is None else _encode(_identity_value(identity))

    def apply(self, total: int, hashes: dict[_Key, int | None]) -> None:
        """After the commit: the copy is as the tables are."""
        small = self._small
        small.total = total
        for key, digest in hashes.items():
            if digest is None:
                small.hashes.pop(key, None)
            else:
                small.hashes[key] = digest
        for name, identity in self.identities.items():
            if identity is None:
                small.identities.pop(name, None)
            else:
                small.identities[name] = identity
        small.unwritten |= self.identities.keys()
        small.unwritten -= self.written
        for (table, parts), row in self._rows.items():
            _apply_row(small, table, parts, row)


def _apply_row(small: Small, table: str, key: tuple[str, ...], row: SmallWrite | None) -> None:
    match row:
        case LastNumber():
            small.numbers[row.source] = row
        case DurableRow():
            small.durables[row.identity, row.id] = row
        case PlaceRow():
            small.places[row.identity] = row
        case Consumed():
            small.consumed[row.log] = row.epoch
        case _ if table == "durable":
            small.durables.pop((key[0], key[1]), None)
        case _:
            small.places.pop(key[0], None)


def rows_of(small: Small) -> Iterator[tuple[str, bytes, bytes]]:
    """All rows: table, key and value."""
    for number in small.numbers.values():
        yield "source_last", _encode((number.source,)), _encode(_value_of(number))
    for durable in small.durables.values():
        yield "durable", _encode((durable.identity, durable.id)), _encode(_value_of(durable))
    for place in small.places.values():
        yield "place", _encode((place.identity,)), _encode(_value_of(place))
    for log, epoch in small.consumed.items():
        yield "position", _encode((log,)), _encode((epoch,))
    for identity in small.identities.values():
        yield "identity", _encode((identity.name,)), _encode(_identity_value(identity))


def _upsert(table: str) -> str:
    return (
        f"INSERT INTO {table} (key, value, hash) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, hash = excluded.hash"
    )


def _identity_value(identity: Identity) -> tuple[object, ...]:
    return (
        identity.number,
        identity.since,
        identity.acknowledged,
        identity.passed,
        identity.last,
        identity.count,
        identity.lost,
    )


def _value_of(row: SmallWrite) -> tuple[object, ...]:
    match row:
        case LastNumber():
            return row.seq, row.epoch
        case DurableRow():
            return *_wanted_text(row.wanted), row.version, row.by, row.via, row.is_group
        case PlaceRow():
            return row.session, row.broker
        case Consumed():
            return (row.epoch,)
        case Acknowledged() | Forgotten():
            raise AssertionError("these have no row of their own")


def _wanted_text(wanted: Wanted | None) -> tuple[str, str]:
    match wanted:
        case None:
            return "", ""
        case Filter():
            return "filter", str(wanted)
        case Pattern():
            return "pattern", str(wanted)
        case Cesql():
            return "cesql", str(wanted)


def _wanted(kind: str, text: str) -> Wanted | None:
    kinds: dict[str, type[Filter | Pattern | Cesql]] = {"filter": Filter, "pattern": Pattern, "cesql": Cesql}
    return kinds[kind](text) if kind else None
