"""What `catchment store` does, for every kind of store: look, check, forget an identity, go on after a loss.

Looking and checking read alone, and work beside a broker. The others need the store for themselves: StoreInUseError if
a broker has it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from catchment.routing.stored import Forgotten, Persist
from catchment.store.interface import StoreError, StoreStatus
from catchment.store.opening import SQLITE, kind_of, open_store, path_of
from catchment.store.sql.examining import Examination
from catchment.store.sql.rebuilding import Rebuilt


def store_status(url: str) -> StoreStatus:
    if _kind(url) == SQLITE:
        from catchment.store.sqlite_files import file_status

        return file_status(path_of(url))
    from catchment.store.postgres import schema_status

    return schema_status(url)


def check_store(url: str, progress: Callable[[int, int], None] = lambda done, all: None) -> Examination:
    """Reads everything, and compares it with its hashes, the index and the witness."""
    if _kind(url) == SQLITE:
        from catchment.store.sqlite_files import examine_file

        return examine_file(path_of(url), progress)
    from catchment.store.postgres import examine_schema

    return examine_schema(url, progress)


def forget_identity(url: str, identity: str) -> int:
    """Forgets an identity that will never come back. Returns how many records were waiting for it."""
    _check_exists(url)
    with closing(open_store(url)) as store:
        known = {each.identity: each for each in store.status().identities}
        opened = store.opened()
        named = {row.identity for row in opened.durables} | {row.identity for row in opened.places}
        if identity not in known and identity not in named:
            raise StoreError(f"{url}: there is no identity {identity}: catchment store status lists them")
        store.write([Persist(opened.serial + 1, (Forgotten(identity),))])
        return known[identity].waiting if identity in known else 0


def accept_loss(url: str, progress: Callable[[int], None] = lambda copied: None) -> Rebuilt:
    """Goes on with what is whole, under a new log id."""
    if _kind(url) == SQLITE:
        from catchment.store.sqlite_files import rebuild_file

        return rebuild_file(path_of(url), progress)
    from catchment.store.postgres import rebuild_schema

    return rebuild_schema(url, progress)


def _check_exists(url: str) -> None:
    if _kind(url) == SQLITE and not path_of(url).exists():
        raise StoreError(f"{path_of(url)}: there is no such store")


def _kind(url: str) -> str:
    kind = kind_of(url)
    if kind == "memory":
        raise StoreError("memory: a store in memory is gone when its broker ends: there is nothing to look at")
    return kind
