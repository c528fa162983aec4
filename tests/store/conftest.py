from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.places import InMemory, InSqlite, Place

PLACES: dict[str, Callable[[Path], Place]] = {"memory": InMemory, "sqlite": InSqlite}


@pytest.fixture(params=list(PLACES))
def place(request, tmp_path):
    made = PLACES[request.param](tmp_path / "store")
    yield made
    made.remove()
