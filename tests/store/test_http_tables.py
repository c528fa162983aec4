"""The tables of the HTTP side: what every implementation does, and what becomes of damage."""

import sqlite3
import subprocess
import sys

import pytest
from msgspec.structs import replace

from catchment.store import http_sql
from catchment.store.http_sql import HTTP_TABLES_VERSION, open_http_tables
from catchment.store.http_tables import DeadLetter, DeadTotal, MemoryHttpTables, Resource
from catchment.store.interface import StoreBrokenError, StoreError, StoreFullError
from tests.store.places import InPostgres

LETTER = DeadLetter("audit", "log", 7, 1_000, 12, "the sink answered 500", b'{"id": "7"}')


class Memory:
    def __init__(self, folder):
        self._tables = MemoryHttpTables()

    def open(self):
        return self._tables

    def remove(self):
        pass


class Sqlite:
    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/store.db"
        self._open = None

    def open(self):
        if self._open is not None:
            self._open.close()
        self._open = open_http_tables(self.url)
        return self._open

    def remove(self):
        if self._open is not None:
            self._open.close()


class Postgres(Sqlite):
    def __init__(self, folder):
        super().__init__(folder)
        self._schema = InPostgres(folder)
        self.url = self._schema.url

    def remove(self):
        super().remove()
        self._schema.remove()


@pytest.fixture(params=[Memory, Sqlite, Postgres])
def place(request, tmp_path):
    if request.param is Postgres:
        request.getfixturevalue("server")
    made = request.param(tmp_path)
    yield made
    made.remove()


def test_resources_are_kept_replaced_and_dropped(place):
    tables = place.open()
    tables.keep(Resource("webhook", "b", b"1"))
    tables.keep(Resource("webhook", "a", b"2"))
    tables.keep(Resource("stream", "a", b"3"))
    tables.keep(Resource("webhook", "b", b"4"))
    tables.bury(replace(LETTER, owner="a"))
    tables = place.open()
    assert [(row.kind, row.id, row.body) for row in tables.resources()] == [
        ("stream", "a", b"3"),
        ("webhook", "a", b"2"),
        ("webhook", "b", b"4"),
    ]
    tables.drop("stream", "a")
    assert tables.totals() == {"a": DeadTotal(1, 11)}
    tables.drop("webhook", "a")
    tables = place.open()
    assert [row.id for row in tables.resources()] == ["b"]
    assert tables.totals() == {}


def test_dead_letters_are_numbered_listed_and_deleted(place):
    tables = place.open()
    numbers = [tables.bury(replace(LETTER, epoch=epoch)) for epoch in range(5)]
    other = tables.bury(replace(LETTER, owner="other"))
    assert numbers == sorted(numbers)
    tables = place.open()
    assert [letter.epoch for letter in tables.dead("audit", 0, 3)] == [0, 1, 2]
    assert [letter.epoch for letter in tables.dead("audit", numbers[2], 3)] == [3, 4]
    assert tables.letter("audit", numbers[1]) == replace(LETTER, epoch=1, number=numbers[1])
    assert tables.letter("audit", other) is None
    assert tables.totals() == {"audit": DeadTotal(5, 55), "other": DeadTotal(1, 11)}
    assert (tables.unbury("audit", numbers[1]), tables.unbury("audit", numbers[1])) == (1, 0)
    assert (tables.unbury("audit", None), tables.unbury("audit", None)) == (4, 0)
    assert tables.totals() == {"other": DeadTotal(1, 11)}


def test_the_same_letter_again_is_the_same_number(place):
    tables = place.open()
    first = tables.bury(LETTER)
    tables = place.open()
    assert tables.bury(replace(LETTER, at=2_000)) == first
    assert tables.bury(replace(LETTER, log="another")) != first


def test_a_number_is_never_used_twice(place):
    tables = place.open()
    first = tables.bury(LETTER)
    tables.unbury("audit", None)
    assert place.open().bury(replace(LETTER, epoch=8)) > first


def test_a_server_that_was_killed_is_connected_to_again(server, tmp_path):
    place = Postgres(tmp_path)
    tables = place.open()
    number = tables.bury(LETTER)
    server.restart()
    with pytest.raises(StoreError):
        tables.bury(LETTER)
    assert tables.bury(LETTER) == number
    place.remove()


# --- SQLite -------------------------------------------------------------------------------------


def test_a_second_process_cannot_open_them(tmp_path):
    url = str(tmp_path / "store.db")
    tables = open_http_tables(url)
    program = "import sys; from catchment.store.http_sql import open_http_tables as o; o(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=False)
    assert "is in use by another process" in done.stderr
    tables.close()


@pytest.mark.parametrize("table", ["http_resource", "http_dead"])
def test_a_flipped_bit_is_noticed(tmp_path, table):
    url = str(tmp_path / "store.db")
    tables = open_http_tables(url)
    tables.keep(Resource("webhook", "audit", b"12345678"))
    number = tables.bury(LETTER)
    tables.close()
    with sqlite3.connect(f"{url}-http") as connection:
        connection.execute(f"UPDATE {table} SET body = x'31323334353637'")
    connection.close()
    tables = open_http_tables(url)
    with pytest.raises(StoreBrokenError, match="damaged"):
        tables.resources() if table == "http_resource" else tables.letter("audit", number)
    tables.close()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "store.db-http").write_bytes(b"no database" * 1_000)
    with pytest.raises(StoreBrokenError):
        open_http_tables(str(tmp_path / "store.db"))


def test_tables_of_a_later_version_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "store.db-http") as connection:
        connection.execute(f"PRAGMA user_version = {HTTP_TABLES_VERSION + 1}")
    connection.close()
    with pytest.raises(StoreBrokenError, match="newer"):
        open_http_tables(str(tmp_path / "store.db"))


def test_a_full_disk_writes_nothing_and_is_tried_again(tmp_path, monkeypatch):
    url = str(tmp_path / "store.db")
    monkeypatch.setattr(http_sql, "SQLITE_SETTINGS", (*http_sql.SQLITE_SETTINGS, "PRAGMA max_page_count = 20"))
    tables = open_http_tables(url)
    tables.keep(Resource("webhook", "audit", b"x" * 1_000))
    with pytest.raises(StoreFullError):
        tables.keep(Resource("webhook", "audit", b"y" * 100_000))
    assert tables.resources()[0].body == b"x" * 1_000
    tables.keep(Resource("webhook", "audit", b"y" * 1_000))
    assert tables.resources()[0].body == b"y" * 1_000
    tables.close()
