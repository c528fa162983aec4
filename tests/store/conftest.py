import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store import server as postgres
from tests.store.places import InMemory, InPostgres, InSqlite, Place, quick_folder

PLACES: dict[str, Callable[[Path], Place]] = {"memory": InMemory, "sqlite": InSqlite, "postgres": InPostgres}


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, started when a test first needs it."""
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    folder = quick_folder()
    folder.chmod(0o755)
    started = postgres.Server(folder / "postgres")
    InPostgres.server = started
    yield started
    started.stop()
    InPostgres.server = None
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def quick():
    folder = quick_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=list(PLACES))
def place(request, tmp_path):
    if request.param == "postgres":
        request.getfixturevalue("server")
    made = PLACES[request.param](tmp_path / "store")
    yield made
    made.remove()
