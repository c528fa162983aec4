"""Looking at a store, checking it, forgetting, and going on after a loss."""

import shutil
import sqlite3

import pytest

from catchment.model.filter import Filter
from catchment.routing.stored import Acknowledged, DurableRow, Fetch, LastNumber, Persist
from catchment.store.interface import StoreError, StoreInUseError, StoreLossError
from catchment.store.maintenance import accept_loss, check_store, forget_identity, store_status
from catchment.store.opening import kind_of, open_store, path_of
from catchment.store.sqlite import beside, open_sqlite
from catchment.store.sqlite_files import rebuild_file
from tests.store.places import acknowledge, record, write_records


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def filled(path, count=10):
    store = open_sqlite(path)
    store.write(
        [Persist(1, (DurableRow("ada", "a", 1, Filter("x > 1")), Acknowledged("ada", 0), LastNumber("p", 9, 0)))]
    )
    write_records(store, *(record(epoch, "ada", "bob" if epoch % 2 else "eve") for epoch in range(1, count + 1)))
    return store


def statement(path, text, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(text, values)
    connection.close()


# --- addresses ----------------------------------------------------------------------------------


def test_addresses(tmp_path):
    assert str(path_of("sqlite:///a/b.db")) == "a/b.db"
    assert str(path_of("sqlite:////a/b%20c.db")) == "/a/b c.db"
    assert str(path_of("a:b.db")) == "a:b.db"
    assert kind_of("postgresql://host/name") == "postgresql"
    assert open_store("memory:").opened().head == 0
    open_store(f"sqlite:///{tmp_path}/x.db").close()
    for wrong in ("", "mysql://host/name", "sqlite://host/name", "sqlite:///"):
        with pytest.raises(StoreError, match="write"):
            path_of(wrong) if wrong.startswith("sqlite") else kind_of(wrong)


# --- beside a broker ----------------------------------------------------------------------------


def test_looking_and_checking_beside_a_writer(path):
    store = filled(path)
    assert store_status(str(path)) == store.status()
    steps = []
    examination = check_store(str(path), lambda done, all: steps.append((done, all)))
    assert (examination.records, examination.problems) == (10, ())
    assert steps[-1] == (10, 10)
    write_records(store, record(11, "ada"))
    assert store_status(str(path)).head == 11
    store.close()
    assert store_status(str(path)).head == 11
    assert check_store(str(path)).problems == ()


def test_changing_needs_the_store_for_itself(path):
    store = filled(path)
    for change in (
        lambda: open_sqlite(path),
        lambda: forget_identity(str(path), "ada"),
        lambda: accept_loss(str(path)),
    ):
        with pytest.raises(StoreInUseError, match="running broker"):
            change()
    write_records(store, record(11, "ada"))
    store.close()
    open_sqlite(path).close()


def test_there_must_be_a_store(path):
    for look in (store_status, check_store, accept_loss, lambda url: forget_identity(url, "ada")):
        with pytest.raises(StoreError, match="no such store"):
            look(str(path))
    with pytest.raises(StoreError, match="memory"):
        store_status("memory:")
    path.write_bytes(b"")
    statement(path, "CREATE TABLE others (x)")
    with pytest.raises(StoreError, match="no store of Catchment"):
        open_sqlite(path)


def test_forgetting(path):
    filled(path).close()
    assert forget_identity(str(path), "eve") == 5
    with pytest.raises(StoreError, match="no identity"):
        forget_identity(str(path), "eve")
    assert [each.identity for each in store_status(str(path)).identities] == ["ada", "bob"]


# --- checking -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE log SET body = substr(body, 1, 20) WHERE epoch = 4", "epoch 4: its hash"),
        ("UPDATE log SET epoch = 100 + epoch WHERE epoch = 4", "epoch 4: its row is missing"),
        ("UPDATE log SET (body, hash) = (SELECT body, hash FROM log WHERE epoch = 5) WHERE epoch = 4", "4: its hash"),
        ("DELETE FROM due WHERE epoch = 4 AND identity_no = 1", "epoch 4: ada is due it"),
        ("DELETE FROM source_last", "small tables"),
        ("UPDATE source_last SET value = x'92c0c0'", "source_last is damaged"),
        ("UPDATE meta SET value = x'90' WHERE key = 'state'", "how far the store is"),
        ("UPDATE meta SET value = x'39' WHERE key = 'schema'", "version 9"),
    ],
)  # fmt: skip
def test_checking_finds(path, damage, problem):
    filled(path).close()
    statement(path, damage)
    assert any(problem in each for each in check_store(str(path)).problems)


# --- a loss -------------------------------------------------------------------------------------


def lose_the_end(path):
    """Three records are written, and the write-ahead log with them is lost."""
    store = filled(path)
    store.close()
    shutil.copy(path, beside(path, "old"))
    store = open_sqlite(path)
    write_records(store, record(11, "ada"), record(12, "ada"), record(13, "ada"))
    acknowledge(store, "ada", 12)
    store.close()
    shutil.move(beside(path, "old"), path)


def test_a_loss_is_told_and_can_be_accepted(path):
    lose_the_end(path)
    with pytest.raises(StoreLossError, match="epochs 11 to 13"):
        open_sqlite(path)
    assert any("epochs 11 to 13" in problem for problem in check_store(str(path)).problems)
    log = store_status(str(path)).log
    rebuilt = accept_loss(str(path))
    assert (rebuilt.log_before, rebuilt.records, rebuilt.missing, rebuilt.head) == (log, 10, 3, 10)
    store = open_sqlite(path)
    opened = store.opened()
    assert opened.log == rebuilt.log != log
    assert (opened.head, opened.durables[0].identity, opened.numbers["p"].seq) == (10, "ada", 9)
    write_records(store, record(11, "ada"))
    assert [entry.epoch for entry in store.read(Fetch("ada", 0, 11)).entries] == list(range(1, 12))
    assert check_store(str(path)).problems == ()
    store.close()


def test_what_is_damaged_is_left_out(path):
    filled(path).close()
    statement(path, "UPDATE log SET hash = x'00' WHERE epoch IN (1, 4)")
    statement(path, "UPDATE source_last SET hash = x'00'")
    rebuilt = accept_loss(str(path))
    assert (rebuilt.records, rebuilt.missing, rebuilt.rows) == (8, 2, 1)
    store = open_sqlite(path)
    assert store.opened().anchor == 1
    assert [entry.epoch for entry in store.read(Fetch("ada", 0, 10)).entries] == [2, 3, 5, 6, 7, 8, 9, 10]
    while store.scrub(100):
        pass
    assert store.status().quarantined == 0
    store.close()


def test_positions_past_the_end_are_cut(path):
    store = filled(path)
    acknowledge(store, "ada", 10)
    store.close()
    statement(path, "UPDATE log SET hash = x'00' WHERE epoch > 7")
    accept_loss(str(path))
    store = open_sqlite(path)
    assert (store.opened().head, store.opened().acknowledged["ada"]) == (7, 7)
    write_records(store, record(8, "ada"))
    assert len(store.read(Fetch("ada", 7, 8)).entries) == 1
    store.close()


def test_a_file_that_is_no_database_any_more(path):
    filled(path).close()
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(StoreError, match="damaged"):
        open_sqlite(path)
    rebuilt = accept_loss(str(path))
    assert (rebuilt.records, rebuilt.head) == (0, 0)
    open_sqlite(path).close()


def test_an_interrupted_exchange_goes_on(path, monkeypatch):
    lose_the_end(path)
    with monkeypatch.context() as patch:
        patch.setattr("catchment.store.sqlite_files.Witness", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rebuild_file(path, lambda copied: None)
    with pytest.raises(StoreLossError):
        open_sqlite(path)
    rebuild_file(path, lambda copied: None)
    store = open_sqlite(path)
    assert len(store.read(Fetch("ada", 0, 10)).entries) == 10
    store.close()


# --- the witness --------------------------------------------------------------------------------


def test_a_missing_database_is_a_loss(path):
    filled(path).close()
    path.unlink()
    with pytest.raises(StoreLossError, match="epochs up to 10"):
        open_sqlite(path)
    assert accept_loss(str(path)).missing == 10
    open_sqlite(path).close()


def test_a_missing_witness_is_a_doubt(path):
    filled(path).close()
    beside(path, "witness").unlink()
    with pytest.raises(StoreLossError, match="is missing"):
        open_sqlite(path)
    assert accept_loss(str(path)).records == 10
    open_sqlite(path).close()


def test_a_witness_of_another_log(path, tmp_path):
    filled(path).close()
    filled(tmp_path / "other.db").close()
    shutil.copy(beside(tmp_path / "other.db", "witness"), beside(path, "witness"))
    with pytest.raises(StoreLossError, match="do not belong together"):
        open_sqlite(path)


def test_one_slot_suffices(path):
    for slot in (0, 1):
        path.unlink(missing_ok=True)
        beside(path, "witness").unlink(missing_ok=True)
        filled(path).close()
        file = beside(path, "witness")
        content = bytearray(file.read_bytes())
        content[slot * 4096 + 20] ^= 4
        file.write_bytes(content)
        store = open_sqlite(path)
        write_records(store, record(11, "ada"))
        store.close()
        open_sqlite(path).close()


def test_two_damaged_slots_are_a_doubt(path):
    filled(path).close()
    file = beside(path, "witness")
    file.write_bytes(bytes(len(file.read_bytes())))
    with pytest.raises(StoreLossError, match="is damaged"):
        open_sqlite(path)


def test_a_store_that_was_never_written_needs_no_witness(path):
    open_sqlite(path).close()
    beside(path, "witness").unlink()
    open_sqlite(path).close()
    path.unlink()
    open_sqlite(path).close()


# --- versions -----------------------------------------------------------------------------------


def test_a_file_of_version_1_becomes_one_of_this_version(path):
    store = filled(path)
    acknowledge(store, "ada", 5)
    acknowledge(store, "eve", 5)
    assert store.collect(10**6).records == 2  # epochs 2 and 4, out of order
    store.close()
    for text in (
        "ALTER TABLE log DROP COLUMN state",
        "DROP TABLE quarantine",
        "UPDATE meta SET value = x'31' WHERE key = 'schema'",
    ):
        statement(path, text)
    store = open_sqlite(path)
    assert [entry.epoch for entry in store.read(Fetch("bob", 0, 10)).entries] == [1, 3, 5, 7, 9]
    assert [entry.epoch for entry in store.read(Fetch("ada", 5, 10)).entries] == [6, 7, 8, 9, 10]
    write_records(store, record(11, "ada"))
    store.close()
    assert check_store(str(path)).problems == ()
