"""`catchment store`, as people type it."""

import json
import sqlite3
from pathlib import Path

import pytest

from catchment.cli import main
from catchment.store.sqlite import open_sqlite
from tests.store.places import record, write_records


@pytest.fixture
def path(tmp_path):
    store = open_sqlite(tmp_path / "store.db")
    write_records(store, record(1, "ada", at=1_000_000), record(2, "ada", "bob"))
    store.close()
    return str(tmp_path / "store.db")


def run(capsys, *arguments):
    code = main(["store", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_status(path, capsys):
    code, out, _ = run(capsys, "status", path)
    assert code == 0
    assert "2 records" in out
    assert "1970-01-01 00:00:01" in out
    code, out, _ = run(capsys, "status", f"sqlite:///{path}", "--json")
    assert json.loads(out)["identities"][0] == {
        "identity": "ada", "acknowledged": 0, "waiting": 2, "oldest": 1_000_000, "lost": 0,
    }  # fmt: skip


def test_check(path, capsys):
    assert run(capsys, "check", path)[:2] == (0, f"{path}: 2 records checked, all is whole\n")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE log SET body = 'x' WHERE epoch = 2")
    connection.close()
    code, out, _ = run(capsys, "check", path)
    assert code == 1
    assert "epoch 2: its hash does not fit" in out
    code, out, _ = run(capsys, "check", path, "--json")
    assert (code, json.loads(out)["problems"]) == (1, ["epoch 2: its hash does not fit"])


def test_forget(path, capsys):
    assert run(capsys, "forget", path, "bob")[:2] == (0, "bob is forgotten; 1 records were waiting for it\n")
    code, _, err = run(capsys, "forget", path, "bob")
    assert code == 1
    assert "no identity bob" in err
    assert json.loads(run(capsys, "forget", path, "ada", "--json")[1]) == {"identity": "ada", "waiting": 2}


def test_accept_loss(path, capsys):
    code, out, err = run(capsys, "accept-loss", path)
    assert code == 0
    assert "with 2 records up to epoch 2" in out
    assert "kept as" in err
    assert json.loads(run(capsys, "accept-loss", path, "--json")[1])["records"] == 2


def test_a_running_broker_has_the_store(path, capsys):
    store = open_sqlite(Path(path))
    assert run(capsys, "status", path)[0] == 0
    assert run(capsys, "check", path)[0] == 0
    code, _, err = run(capsys, "accept-loss", path)
    assert code == 1
    assert "running broker" in err
    store.close()


def test_bad_usage(path, capsys, tmp_path):
    assert run(capsys, "forget", path)[0] == 2
    assert run(capsys, "status", path, "ada")[0] == 2
    assert run(capsys, "mend", path)[0] == 2
    assert run(capsys, "status", str(tmp_path / "none.db"))[0] == 1
    assert run(capsys, "status", "mysql://host/name")[0] == 1
