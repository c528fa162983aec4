"""What only a store in PostgreSQL does: its server is killed, is set wrong, or is used by two."""

import pytest

from catchment.routing.stored import Fetch, Persist
from catchment.store.interface import StoreBrokenError, StoreError, StoreInUseError, StoreLossError
from catchment.store.maintenance import accept_loss, check_store, forget_identity, store_status
from catchment.store.opening import open_store
from tests.store import server as postgres
from tests.store.places import InPostgres, record, write_records


@pytest.fixture
def place(server, tmp_path):
    made = InPostgres(tmp_path)
    yield made
    made.remove()


def epochs(store, identity="ada"):
    return [entry.epoch for entry in store.read(Fetch(identity, 0, store.opened().head)).entries]


def test_the_server_is_killed_between_writes(place, server):
    store = place.open()
    write_records(store, *(record(epoch, "ada") for epoch in range(1, 21)))
    for head in (20, 21, 22):
        server.restart()
        assert epochs(store) == list(range(1, head + 1))
        server.restart()
        write_records(store, record(head + 1, "ada"))
    store.close()
    assert epochs(place.open()) == list(range(1, 24))


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_server_is_killed_around_a_commit(place, server, when, monkeypatch):
    """Before the commit has come to the server, and after it has come: the answer is lost in both cases."""
    from catchment.store.postgres import PostgresDatabase

    store = place.open()
    write_records(store, record(1, "ada"))
    execute = PostgresDatabase.execute
    killed: list[str] = []

    def killing(self, statement, values=()):
        if statement != "COMMIT" or killed:
            return execute(self, statement, values)
        killed.append(when)
        if when == "after":
            execute(self, statement, values)
        server.restart()
        return execute(self, "SELECT 1")

    monkeypatch.setattr(PostgresDatabase, "execute", killing)
    write_records(store, *(record(epoch, "ada", "bob") for epoch in range(2, 30)))
    assert killed
    assert epochs(store) == list(range(1, 30))
    write_records(store, record(30, "ada"))
    store.close()
    assert check_store(place.url).problems == ()


def test_one_writer_and_many_readers(place):
    store = place.open()
    write_records(store, record(1, "ada"), record(2, "bob"))
    for change in (place.open, lambda: forget_identity(place.url, "ada"), lambda: accept_loss(place.url)):
        with pytest.raises(StoreInUseError, match="running broker"):
            change()
    assert store_status(place.url) == store.status()
    assert check_store(place.url).problems == ()
    store.close()
    assert forget_identity(place.url, "bob") == 1


def test_somebody_else_has_written(place, server):
    store = place.open()
    write_records(store, record(1, "ada"))
    with place.connection() as other:
        other.execute("INSERT INTO log (epoch, state, hash, body) VALUES (2, 0, 'x', 'y')")
    with pytest.raises(StoreBrokenError, match="somebody else"):
        write_records(store, record(2, "ada"))
    with pytest.raises(StoreBrokenError, match="opened again"):
        store.opened()


def test_somebody_else_has_written_while_the_connection_was_lost(place, server):
    store = place.open()
    write_records(store, record(1, "ada"))
    with place.connection() as other:
        other.execute("UPDATE meta SET value = 'x' WHERE key = 'state'")
    server.restart()
    with pytest.raises(StoreBrokenError, match="somebody else"):
        write_records(store, record(2, "ada"))


@pytest.mark.parametrize("setting", ["synchronous_commit", "fsync"])
def test_a_server_that_does_not_sync_is_refused(quick, setting):
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    quick.chmod(0o755)
    careless = postgres.Server(quick / "careless", **{setting: "off"})
    try:
        with pytest.raises(StoreError, match=f"{setting} = off"):
            open_store(careless.url("catchment"))
    finally:
        careless.stop()


def test_no_server(tmp_path):
    with pytest.raises(StoreBrokenError):
        open_store(f"postgresql://nobody@/nothing?host={tmp_path}")


def test_a_witness_finds_a_server_that_was_set_back(place, tmp_path):
    url = f"{place.url}&catchment_witness={tmp_path / 'witness'}"
    store = open_store(url)
    write_records(store, record(1, "ada"))
    with place.connection() as other:
        ((value, digest),) = other.execute("SELECT value, hash FROM meta WHERE key = 'state'").fetchall()
    write_records(store, record(2, "ada"), record(3, "ada"))
    store.close()
    with place.connection() as other:
        other.execute("UPDATE meta SET value = %s, hash = %s WHERE key = 'state'", (value, digest))
        other.execute("DELETE FROM log WHERE epoch > 1")
        other.execute("CREATE TABLE http_resource (x int)")
    with pytest.raises(StoreLossError, match="epochs 2 to 3"):
        open_store(url)
    rebuilt = accept_loss(url)
    assert (rebuilt.records, rebuilt.head) == (1, 1)
    store = open_store(url)
    assert epochs(store) == [1]
    store.write([Persist(store.opened().serial + 1, (record(2, "ada"),))])
    store.close()
    with place.connection() as other:
        # What is not of the log stays with the store.
        assert other.execute("SELECT x FROM http_resource").fetchall() == []
        other.execute(f'DROP SCHEMA "{rebuilt.kept_as}" CASCADE')
