"""The tables of a store, and how a file of an earlier version becomes one of this version.

    log         a row for each epoch that is not collected: its body and hash. A record that was collected out of order
                leaves its row with the hash alone, until all before it are gone too
    due         who is due which epoch: the index of all reads. Of a lost record the rows stay until its readers have
                passed it, so that each is told how many it has lost
    wide        for records that more than WIDE_MIN identities are due: one row instead of many in `due`
    quarantine  what was in a row that was found damaged
    durable, place, source_last, position, identity
                small tables: a key, a value, a hash of both. The sum of these hashes is in `meta`, so a row that is
                missing or old is found too
    meta        `schema`, the version of these tables; `state`, what changes with each write, with a hash

Integers in `due` and `log` are as they are; the other values are MessagePack. The two databases have other names for
the same types: `{bytes}` and `{int}` stand for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catchment.store.interface import StoreError
from catchment.store.sql.database import Database, transaction

# 2: `log` says of each record whether it was collected or lost, and damaged records are kept in `quarantine`.
SCHEMA_VERSION: Final = 2
SMALL_TABLES: Final = ("durable", "place", "source_last", "position", "identity")
TABLES: Final = ("meta", "log", "due", "wide", "quarantine", *SMALL_TABLES)
# A record for more identities than this has one row in `wide`. Each row in `due` costs about a microsecond.
WIDE_MIN: Final = 64

# What a row of `log` holds.
KEPT, COLLECTED, LOST = 0, 1, 2

CREATE: Final = (
    "CREATE TABLE meta (key {text} PRIMARY KEY, value {bytes} NOT NULL, hash {bytes} NOT NULL)",
    # The state comes before the body: reading it touches no pages that the body overflows to.
    "CREATE TABLE log (epoch {int} PRIMARY KEY, state {int} NOT NULL, hash {bytes} NOT NULL, body {bytes})",
    "CREATE TABLE due (identity_no {int} NOT NULL, epoch {int} NOT NULL, PRIMARY KEY (identity_no, epoch)){clustered}",
    "CREATE TABLE wide (epoch {int} PRIMARY KEY, numbers {bytes} NOT NULL, hash {bytes} NOT NULL)",
    "CREATE TABLE quarantine (epoch {int} PRIMARY KEY, body {bytes}, hash {bytes}, reason {text} NOT NULL)",
    *(
        f"CREATE TABLE {table} (key {{bytes}} PRIMARY KEY, value {{bytes}} NOT NULL, hash {{bytes}} NOT NULL)"
        "{clustered}"
        for table in SMALL_TABLES
    ),
)

# From each earlier version to the next.
MIGRATIONS: Final = {
    1: (
        f"ALTER TABLE log ADD COLUMN state {{int}} NOT NULL DEFAULT {KEPT}",
        f"UPDATE log SET state = {COLLECTED} WHERE body IS NULL",
        "CREATE TABLE quarantine (epoch {int} PRIMARY KEY, body {bytes}, hash {bytes}, reason {text} NOT NULL)",
    ),
}


def create(database: Database, types: Mapping[str, str]) -> None:
    for statement in CREATE:
        database.run(statement.format_map(types))
    _set_version(database, SCHEMA_VERSION)


def migrate(database: Database, types: Mapping[str, str]) -> None:
    """Makes the tables those of this version, in one transaction. StoreError if they are of a later one."""
    version = version_of(database)
    check_version(database.url, version)
    if version == SCHEMA_VERSION:
        return
    with transaction(database):
        for earlier in range(version, SCHEMA_VERSION):
            for statement in MIGRATIONS[earlier]:
                database.run(statement.format_map(types))
        _set_version(database, SCHEMA_VERSION)


def check_version(url: str, version: int) -> None:
    if not 1 <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"{url} has tables of version {version}, and this Catchment knows versions up to {SCHEMA_VERSION}: "
            "use the Catchment that wrote it, or a later one"
        )


def _set_version(database: Database, version: int) -> None:
    database.run("DELETE FROM meta WHERE key = 'schema'")
    database.run("INSERT INTO meta (key, value, hash) VALUES ('schema', ?, ?)", (str(version).encode(), b""))


def version_of(database: Database) -> int:
    rows = database.rows("SELECT value FROM meta WHERE key = 'schema'")
    try:
        return int(bytes(rows[0][0]))
    except (IndexError, ValueError, TypeError):
        raise StoreError(f"{database.url} does not say the version of its tables: is it a store?") from None
