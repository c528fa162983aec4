"""What the two databases have in common: statements, rows, transactions. Each raises the errors of `interface.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Database(Protocol):
    """One connection, in one thread. Statements have `?` where a value goes."""

    # Where it is, for people.
    url: str
    # The row that says how far the store is, as it was read or written last.
    state_value: bytes | None

    def begin(self) -> None: ...

    def commit(self) -> None:
        """When it returns, a power cut loses nothing."""
        ...

    def roll_back(self) -> None:
        """Ends a transaction that did not succeed. It raises nothing."""
        ...

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def run(self, statement: str, values: Sequence[Any] = ()) -> None: ...

    def run_many(self, statement: str, values: Sequence[Row]) -> None: ...

    def insert(self, table: str, columns: Sequence[str], values: Sequence[Row]) -> None:
        """New rows, many of them."""
        ...

    def tend(self, is_idle: bool = False) -> None:
        """What is to be done now and then, after a transaction: it moves a write-ahead log into its database, and when
        idle, makes the file smaller."""
        ...

    def reserve(self) -> bool:
        """Puts room aside for when the disk is full. Whether there was so much."""
        ...

    def release(self) -> bool:
        """Frees that room. Whether there was any."""
        ...

    def own_problems(self) -> list[str]:
        """What the database itself finds wrong with its file."""
        ...

    def close(self) -> None: ...


@contextmanager
def transaction(database: Database) -> Iterator[None]:
    """All or nothing."""
    database.begin()
    try:
        yield
        database.commit()
    except BaseException:
        database.roll_back()
        raise
