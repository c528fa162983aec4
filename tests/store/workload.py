"""What a store is told while it is watched: the same for the same seed. Run as a program, it says in a file named
`returned` which writes have returned.

    python -m tests.store.workload FOLDER SEED
"""

import os
import sys
from pathlib import Path
from random import Random

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.stored import Acknowledged, DurableRow, LastNumber, Persist, PlaceRow, Record
from catchment.store import sqlite
from catchment.store.interface import StoreError

READERS = ("ada", "bob", "eve")
CROWD = tuple(f"reader-{number:02}" for number in range(66))
STEPS = 60
# So that the write-ahead log is moved into the database every ten steps.
WAL_BYTES = 400_000


def steps(seed, count=STEPS):
    """Batches to write, and times to collect at."""
    chance, serial, head = Random(seed), 0, 0
    for step in range(count):
        if step % 9 == 8:
            yield step
            continue
        batch = []
        for _ in range(chance.choice((1, 1, 2, 5))):
            writes = [_small_write(chance, head)]
            for _ in range(chance.choice((0, 1, 1, 3, 10))):
                head += 1
                writes.append(_record(chance, head))
            serial += 1
            batch.append(Persist(serial, tuple(writes)))
        yield batch


def _record(chance, epoch):
    names = chance.sample(READERS, chance.choice((1, 2, 3))) + (list(CROWD) if chance.random() < 0.1 else [])
    payload = chance.randbytes(chance.choice((10, 500, 6_000)))
    notification = Notification({"number": epoch}, source="p", seq=epoch, payload=payload)
    return Record(epoch, notification, tuple((name, ("id",)) for name in sorted(names)), epoch)


def _small_write(chance, head):
    identity = chance.choice(READERS)
    return chance.choice(
        (
            Acknowledged(identity, chance.randint(max(0, head - 20), head)),
            DurableRow(identity, chance.choice("ab"), head + 1, Filter("x > 1")),
            PlaceRow(identity, head + 1, "east"),
            LastNumber("p", head, head),
        )
    )


def main(folder, seed):
    sqlite.WAL_BYTES_MAX = WAL_BYTES
    returned = os.open(Path(folder) / "returned", os.O_WRONLY | os.O_CREAT)
    store = sqlite.open_sqlite(Path(folder) / "store.db")
    for step in steps(seed):
        try:
            if isinstance(step, int):
                store.collect(step)
            else:
                store.write(step)
        except StoreError as problem:
            os.write(returned, f"{type(problem).__name__}\n".encode())
            continue
        if not isinstance(step, int):
            os.write(returned, f"{step[-1].serial}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # without closing: as if it was killed
