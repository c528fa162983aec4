"""Places where a store can be: what a contract test needs besides the store itself."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Protocol

import psycopg

from catchment.model.notification import Notification
from catchment.routing.stored import Acknowledged, Persist, Record
from catchment.store.interface import Retention, Store
from catchment.store.memory import MemoryDisk
from catchment.store.opening import open_store
from catchment.store.postgres import Address
from catchment.store.sqlite import open_sqlite


def quick_folder() -> Path:
    """A new folder in memory where there is such a place: syncing costs nothing there."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="catchment-", dir=shared if os.access(shared, os.W_OK) else None))


class Place(Protocol):
    def open(self, retention: Retention | None = None) -> Store: ...

    def kill(self) -> None:
        """The process that has it open ends without a word."""

    def damage(self, epoch: int, column: str = "hash") -> None:
        """A bit of a record flips, while nobody has the store open."""

    def remove(self) -> None: ...


class InMemory:
    def __init__(self, folder: Path) -> None:
        self.disk = MemoryDisk()

    def open(self, retention: Retention | None = None) -> Store:
        return self.disk.open(retention)

    def kill(self) -> None:
        self.disk.kill()

    def damage(self, epoch: int, column: str = "hash") -> None:
        self.disk.flip(epoch)

    def remove(self) -> None:
        pass


class InSqlite:
    """After `kill`, the files are copied as they are: whoever had them open has nothing to do with the copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self._here.mkdir(parents=True)
        self._killed: list[Store] = []
        self._open: Store | None = None

    @property
    def _here(self) -> Path:
        return self.folder / str(self.generation)

    @property
    def path(self) -> Path:
        return self._here / "store.db"

    def open(self, retention: Retention | None = None) -> Store:
        self._open = open_sqlite(self.path, retention)
        return self._open

    def kill(self) -> None:
        here = self._here
        self.generation += 1
        self._here.mkdir()
        for file in here.iterdir():
            if not file.name.endswith(("-shm", "-ballast")):
                shutil.copy(file, self._here)
        if self._open is not None:
            self._open.close()
        shutil.rmtree(here)

    def damage(self, epoch: int, column: str = "hash") -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            ((value,),) = connection.execute(f"SELECT {column} FROM log WHERE epoch = ?", (epoch,)).fetchall()
            flipped = bytearray(value)
            flipped[len(flipped) // 2] ^= 1
            connection.execute(f"UPDATE log SET {column} = ? WHERE epoch = ?", (bytes(flipped), epoch))
        connection.close()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class InPostgres:
    """A schema of its own on a server that all share."""

    server: Any = None
    _made = 0

    def __init__(self, folder: Path) -> None:
        InPostgres._made += 1
        self.schema = f"test {InPostgres._made}"
        self._open: Store | None = None

    @property
    def url(self) -> str:
        return str(self.server.url(self.schema.replace(" ", "%20")))

    def open(self, retention: Retention | None = None) -> Store:
        self._open = open_store(self.url, retention)
        return self._open

    def kill(self) -> None:
        if self._open is not None:
            self._open.close()

    def damage(self, epoch: int, column: str = "hash") -> None:
        with self.connection() as connection:
            connection.execute(
                f"UPDATE log SET {column} = set_bit({column}, 8 * (length({column}) / 2), "
                f"1 - get_bit({column}, 8 * (length({column}) / 2))) WHERE epoch = %s",
                (epoch,),
            )

    def connection(self):
        connection = psycopg.connect(Address(self.url).server)
        connection.execute(f'SET search_path TO "{self.schema}"')
        return connection

    def remove(self) -> None:
        self.kill()
        with self.connection() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self.schema}" CASCADE')


# --- what to write --------------------------------------------------------------------------------


def notification(number: int, payload: bytes = b"") -> Notification:
    return Notification({"number": number}, source="publisher", seq=number, payload=payload)


def record(epoch: int, *identities: str, at: int | None = None, payload: bytes = b"") -> Record:
    due = tuple((identity, (f"{identity}-id",)) for identity in sorted(identities))
    return Record(epoch, notification(epoch, payload), due, epoch if at is None else at)


def write_records(store: Store, *records: Record) -> None:
    """Each in a write of its own, all in one batch."""
    serial = store.opened().serial
    store.write([Persist(serial + number, (each,)) for number, each in enumerate(records, 1)])


def acknowledge(store: Store, identity: str, epoch: int) -> None:
    store.write([Persist(store.opened().serial + 1, (Acknowledged(identity, epoch),))])
