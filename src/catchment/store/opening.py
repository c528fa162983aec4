"""Opening a store by its address. Databases are imported when they are needed: psycopg takes a while."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from catchment.store.interface import Retention, Store, StoreError

SQLITE, POSTGRES, MEMORY = "sqlite", "postgresql", "memory"
_SCHEMES: Final = {"sqlite": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES, "memory": MEMORY}


def open_store(url: str, retention: Retention | None = None) -> Store:
    """Opens the store at a path, at `sqlite:///path` or `postgresql://…`, or an empty one in memory with `memory:`."""
    match kind_of(url):
        case "sqlite":
            from catchment.store.sqlite import open_sqlite

            return open_sqlite(path_of(url), retention)
        case "postgresql":
            from catchment.store.postgres import open_postgres

            return open_postgres(url, retention)
        case _:
            from catchment.store.memory import MemoryDisk

            return MemoryDisk().open(retention)


def kind_of(url: str) -> str:
    """Which store an address is of. StoreError if it is none."""
    scheme = url.partition(":")[0]
    if not url:
        raise StoreError("the address of the store is empty: write a path, sqlite:///path or postgresql://host/name")
    if "://" in url or url == "memory:":
        if scheme in _SCHEMES:
            return _SCHEMES[scheme]
        raise StoreError(f"{url}: {scheme} is no kind of store: write a path, sqlite:///path or postgresql://host/name")
    return SQLITE


def path_of(url: str) -> Path:
    """The file of a SQLite store: `sqlite:///a/b` is the relative path a/b, `sqlite:////a/b` the absolute one /a/b."""
    if not url.startswith("sqlite:"):
        return Path(url)
    parts = urlsplit(url)
    if parts.netloc or not parts.path.strip("/"):
        raise StoreError(f"{url} names no file: write sqlite:///relative/path or sqlite:////absolute/path")
    return Path(unquote(parts.path[1:]))
