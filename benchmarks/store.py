"""Kept notifications a second: `./dev bench store` writes benchmarks/results/store.md.

Each row has notifications of about 1 KB, due to one identity, in batches of 1, 100 and 1,000; a batch is one `write`,
which returns when all of it is synced. Beside it stands a bare loop in the same run: one SQLite table of epoch and
body, WAL, synchronous=FULL, `executemany` and COMMIT, with bodies that exist already. The loop has no hashes, no index
of who is due, no numbers of publishers, and no witness, which is one more fdatasync in each batch. Each round times all
of them in turns, and the ratio is taken within a round.

    ./dev bench store [--seconds 1.0] [--rounds 5] [--folder PATH] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import platform
import pstats
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the server of the tests

from catchment.model.notification import Notification
from catchment.routing.stored import LastNumber, Persist, Record
from catchment.store.interface import Store
from catchment.store.opening import open_store
from tests.store import server as postgres

BATCHES = (1, 100, 1_000)
RESULTS = Path(__file__).parent / "results" / "store.md"
PAYLOAD = bytes(range(256)) * 4
Write = Callable[[int], None]


def bare_loop(path: Path) -> Write:
    """Inserts and nothing else, with the same durability."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE log (epoch INTEGER PRIMARY KEY, body BLOB)")
    body, epoch = ARRIVED.packed, 0

    def write(count: int) -> None:
        nonlocal epoch
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO log VALUES (?, ?)", [(epoch + n, body) for n in range(1, count + 1)])
        connection.execute("COMMIT")
        epoch += count

    return write


def bare_loop_and_sync(path: Path) -> Write:
    """The same, and one more sync in each batch: what any witness costs."""
    write_bare = bare_loop(path)
    file = os.open(path.with_suffix(".slot"), os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(4096), 0)

    def write(count: int) -> None:
        write_bare(count)
        os.pwrite(file, bytes(64), 0)
        os.fdatasync(file)

    return write


def kept(store: Store) -> Write:
    """As a broker does it: each notification in a record, all of one read in one `Persist`, with the last number."""
    epoch = serial = 0

    def write(count: int) -> None:
        nonlocal epoch, serial
        records = [Record(epoch + n, ARRIVED, DUE, 1) for n in range(1, count + 1)]
        epoch, serial = epoch + count, serial + 1
        store.write([Persist(serial, (*records, LastNumber("publisher", epoch, epoch)))])

    return write


DUE = (("reader", ("subscription",)),)
# It has the bytes that it came in, as those of a live broker do.
ARRIVED = Notification({"number": 1, "place": "north"}, source="publisher", seq=1, payload=PAYLOAD)


def rate(write: Write, batch: int, seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or count == 0:
        write(batch)
        count += batch
    return count / elapsed


@contextmanager
def contenders(folder: Path) -> Iterator[dict[str, Write]]:
    with ExitStack() as stack:
        store = open_store(str(folder / "store.db"))
        stack.callback(store.close)
        writes = {
            "bare SQLite loop": bare_loop(folder / "bare.db"),
            "bare loop, and one more fdatasync": bare_loop_and_sync(folder / "bare2.db"),
            "SQLite store": kept(store),
        }
        if postgres.missing() is None:
            folder.chmod(0o755)
            server = postgres.Server(folder / "postgres")
            stack.callback(server.stop)
            remote = open_store(server.url("catchment"))
            stack.callback(remote.close)
            writes["PostgreSQL store"] = kept(remote)
        yield writes


def measured(folder: Path, seconds: float, rounds: int) -> dict[tuple[str, int], list[float]]:
    rates: dict[tuple[str, int], list[float]] = {}
    with contenders(folder) as writes:
        for batch in BATCHES:
            for _ in range(rounds):
                for name, write in writes.items():
                    rates.setdefault((name, batch), []).append(rate(write, batch, seconds))
    return rates


def table(rates: dict[tuple[str, int], list[float]], seconds: float, rounds: int) -> str:
    lines = [
        "# Kept notifications a second",
        "",
        f"`./dev bench store --seconds {seconds} --rounds {rounds}`: notifications of {len(ARRIVED.packed):,} bytes,",
        f"each due to one identity; SQLite {sqlite3.sqlite_version}, Python {platform.python_version()},",
        f"{platform.machine()}.",
        "Median of the rounds, and least to greatest.",
        "The ratio is to the bare loop of the same round. The store syncs twice in a batch, the bare loop once:",
        "where a sync takes milliseconds, small batches cannot be faster than half of it.",
        "The second row shows that bound.",
        "",
        "| | batch | notifications/s | least to greatest | ratio to the bare loop | least to greatest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (name, batch), values in rates.items():
        ratios = [value / bare for value, bare in zip(values, rates["bare SQLite loop", batch], strict=True)]
        lines.append(
            f"| {name} | {batch:,} | {statistics.median(values):,.0f} | {min(values):,.0f} to {max(values):,.0f} "
            f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join(lines) + "\n"


def profile(folder: Path, seconds: float) -> None:
    store = open_store(str(folder / "store.db"))
    profiler = cProfile.Profile()
    profiler.runcall(rate, kept(store), 1_000, seconds)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the files are made; by default where temporary files are")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, and write nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if given.profile:
            profile(Path(folder), given.seconds)
            return
        text = table(measured(Path(folder), given.seconds, given.rounds), given.seconds, given.rounds)
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
