"""What the three workloads do not touch: other operators, adversarial filters, and changes while matching.

    ./dev bench matching_hard                     100,000 filters of each kind (a million where that is the point)
    ./dev bench matching_hard --size 10000 --no-write

Each kind is compared with a linear scan of all its filters in the same kernels (the index built as one leaf), so
"times a scan" below 1 would mean that the index did harm. Rates are per second of processor time.
"""

from __future__ import annotations

import argparse
import platform
import random
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, process_time, sleep
from typing import Any

from catchment.matching import Matcher, index
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.sim.benchmark_data import subscriptions

SEED = 1
RESULT = Path(__file__).parent / "results" / "matching_hard.md"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CHURN_PER_S = 10_000
CHURN_SECONDS = 5.0
Row = dict[str, Any]
Made = Conjunction | Filter
Kind = tuple[Callable[[random.Random, int], Made], Callable[[random.Random], Row]]


def all_of(*triples: tuple[Any, ...]) -> Conjunction:
    return Conjunction(tuple(constraint(*triple) for triple in triples))


def word(rng: random.Random, length: int = 8) -> str:
    return "".join(rng.choice("abcdefghijklmnop") for _ in range(length))


def instant(rng: random.Random) -> datetime:
    return EPOCH + timedelta(seconds=rng.randrange(10**7))


def _not_equal(rng: random.Random, _: int) -> Made:
    return all_of(("k", "=", rng.randrange(1000)), ("x", "!=", rng.randrange(100)))


def _negated(rng: random.Random, _: int) -> Made:
    return all_of(("k", "=", rng.randrange(1000)), ("s", "not suffix", word(rng, 1)), ("s", "not glob", "*a*b*"))


def _either(rng: random.Random, _: int) -> Made:
    return Filter.of(("x", "=", rng.randrange(10**6))) | Filter.of(("y", "=", rng.randrange(10**6)))


def _times(rng: random.Random, _: int) -> Made:
    start = instant(rng)
    return all_of(("t", ">=", start), ("t", "<", start + timedelta(hours=1)))


def _hundred_ways(rng: random.Random, _: int) -> Made:
    return Filter.of(("x", "in", [rng.randrange(10**6) for _ in range(100)]))


def _hundred_attributes(rng: random.Random, _: int) -> Made:
    names = rng.sample(range(1000), 100)
    return Filter(" or ".join(f"n{name} = {rng.randrange(1000)}" for name in names))


def _one_attribute(rng: random.Random, _: int) -> Made:
    low = rng.random()
    return all_of(("x", ">=", low), ("x", "<=", low + rng.random() ** 4))


def _common_equality(rng: random.Random, i: int) -> Made:
    return all_of(("kind", "=", "trade"), ("x", ">", rng.random()), ("y", "<", rng.random() / 1000))


def _substrings(rng: random.Random, i: int) -> Made:
    return all_of(("s", "substring", f"{word(rng, 4)}{i:x}"))


def _globs(rng: random.Random, i: int) -> Made:
    return all_of(("s", "glob", f"*{word(rng, 2)}*{i:x}*"))


def _anything(rng: random.Random, i: int) -> Made:
    return all_of((f"n{rng.randrange(1000)}", "any"), (f"n{rng.randrange(1000)}", "any"))


def _values(*makers: tuple[str, Callable[[random.Random], Any]]) -> Callable[[random.Random], Row]:
    return lambda rng: {name: make(rng) for name, make in makers}


def _text(rng: random.Random) -> str:
    return " ".join(f"{word(rng, 4)}{rng.randrange(10**6):x}" for _ in range(8))


KINDS: dict[str, Kind] = {
    "`!=` beside an equality": (
        _not_equal,
        _values(("k", lambda rng: rng.randrange(1000)), ("x", lambda rng: rng.randrange(100))),
    ),
    "`not` suffix and glob beside an equality": (
        _negated,
        _values(("k", lambda rng: rng.randrange(1000)), ("s", word)),
    ),
    "`or` of two attributes": (
        _either,
        _values(("x", lambda rng: rng.randrange(10**6)), ("y", lambda rng: rng.randrange(10**6))),
    ),
    "an hour of `time`": (_times, _values(("t", instant))),
    "100-way `in`": (_hundred_ways, _values(("x", lambda rng: rng.randrange(10**6)))),
    "100-way `or` across attributes": (
        _hundred_attributes,
        lambda rng: {f"n{name}": rng.randrange(1000) for name in rng.sample(range(1000), 20)},
    ),
    "all on one attribute, ranges of every width": (_one_attribute, _values(("x", lambda rng: rng.random()))),
    "one equality common to all": (
        _common_equality,
        _values(("kind", lambda _: "trade"), ("x", lambda rng: rng.random()), ("y", lambda rng: rng.random())),
    ),
    "distinct substrings on one attribute": (_substrings, _values(("s", _text))),
    "distinct globs on one attribute": (_globs, _values(("s", _text))),
    "every filter `any`": (_anything, lambda rng: {f"n{rng.randrange(1000)}": 1 for _ in range(10)}),
}
MILLION = {"distinct substrings on one attribute"}
# Python takes long to make these: 150 ms for one of 100 alternatives.
FEWER = {"`or` of two attributes": 10, "100-way `in`": 10, "100-way `or` across attributes": 200}


@contextmanager
def one_leaf() -> Iterator[None]:
    """An index that is one leaf: a linear scan."""
    kept = index.LEAF_ROWS
    index.LEAF_ROWS = 1 << 30
    try:
        yield
    finally:
        index.LEAF_ROWS = kept


def rate(matcher: Matcher, rows: Sequence[Row], seconds: float = 0.3) -> float:
    count = 4
    matcher.match_batch(rows[:count])
    while True:
        start = process_time()
        matcher.match_batch(rows[:count])
        took = process_time() - start
        if took > seconds or count >= len(rows):
            return min(count, len(rows)) / took
        count *= 4


def line(name: str, size: int, rows_count: int) -> str:
    rng = random.Random(f"{name}-{SEED}")
    make, row = KINDS[name]
    filters = [make(rng, i) for i in range(size)]
    rows = [row(rng) for _ in range(rows_count)]
    matcher = Matcher()
    start = process_time()
    matcher.add_many(list(range(size)), filters)
    load = size / (process_time() - start)
    with one_leaf():
        scan = Matcher()
        scan.add_many(list(range(size)), filters)
    few = rows[:20]
    matched = matcher.match_batch(rows)
    assert list(matcher.match_batch(few)) == list(scan.match_batch(few)), "index and scan disagree"
    stats = matcher.stats()
    mine, its = median(rate(matcher, rows) for _ in range(5)), median(rate(scan, rows) for _ in range(3))
    cells = [name, f"{size:,}", f"{len(matched.ids) / len(rows):,.1f}", f"{mine:,.0f}", f"{mine / its:,.1f}"]
    cells += [f"{load:,.0f}", f"{stats.bytes_per_subscription:.0f}", f"{stats.scanned_rows:,}", f"{stats.wide_rows:,}"]
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| filters | how many | matches per notification | notifications per s | times a scan | load per s | bytes each "
    "| scanned rows | wide rows |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def churn(size: int) -> str:
    """Adds and removes at a fixed rate by one thread while another matches."""
    rng = random.Random(SEED)
    filters = [_one_attribute(rng, i) for i in range(size)]
    row = _values(("x", lambda rng: rng.random()))
    matcher = Matcher()
    matcher.add_many(list(range(size)), filters)
    quiet = _matched_per_s(matcher, [row(rng) for _ in range(2000)], CHURN_SECONDS / 5)
    spent: list[float] = []
    thread = Thread(target=_change, args=(matcher, filters, spent))
    thread.start()
    busy, slowest = _matched_per_s(matcher, [row(rng) for _ in range(2000)], CHURN_SECONDS)
    thread.join()
    done = len(spent)
    ordered = sorted(spent)
    return (
        f"Churn: {size:,} filters, adds and removes in turn at {CHURN_PER_S:,}/s wanted, {done / CHURN_SECONDS:,.0f}/s "
        f"done, median {1e6 * median(spent):.0f} µs, 99th percentile {1e6 * ordered[int(0.99 * done)]:.0f} µs, worst "
        f"{1e3 * ordered[-1]:.1f} ms, while `match` answered {busy:,.0f}/s (alone {quiet[0]:,.0f}/s; both share two "
        f"cores and the interpreter), slowest {1e3 * slowest:.1f} ms. Segments then: {len(matcher.stats().segments)}."
    )


def _matched_per_s(matcher: Matcher, rows: Sequence[Row], seconds: float) -> tuple[float, float]:
    start, count, slowest = perf_counter(), 0, 0.0
    while (before := perf_counter()) - start < seconds:
        matcher.match(rows[count % len(rows)])
        slowest = max(slowest, perf_counter() - before)
        count += 1
    return count / seconds, slowest


def _change(matcher: Matcher, filters: Sequence[Made], spent: list[float]) -> None:
    start, step = perf_counter(), 0
    there: deque[int] = deque(range(len(filters)))
    while (now := perf_counter()) - start < CHURN_SECONDS:
        if step > (now - start) * CHURN_PER_S:
            sleep(0.0002)
        elif step % 2 == 0:
            matcher.add(len(filters) + step, filters[step % len(filters)])
            there.append(len(filters) + step)
        else:
            matcher.remove(there.popleft() if step % 4 == 1 else there.pop())
        if step <= (now - start) * CHURN_PER_S:
            spent.append(perf_counter() - now)
            step += 1


def one_by_one(size: int) -> str:
    """Single adds and removals, no reader."""
    rng = random.Random(SEED)
    filters = [_one_attribute(rng, i) for i in range(size)]
    matcher = Matcher()
    start = process_time()
    for i, filter in enumerate(filters):
        matcher.add(i, filter)
    added = process_time()
    for i in range(size):
        matcher.remove(i)
    removed = process_time()
    return (
        f"One by one: {size:,} adds at {size / (added - start):,.0f}/s, as many removals at "
        f"{size / (removed - added):,.0f}/s of processor time."
    )


def kept(size: int) -> str:
    """Saving and opening an index of W2, and the first match of a fresh process."""
    made = [all_of(*triples) for triples in subscriptions("W2", size, SEED)]
    matcher = Matcher()
    matcher.add_many([f"s{i}" for i in range(size)], made)
    with TemporaryDirectory() as directory:
        start = perf_counter()
        matcher.save(Path(directory) / "index")
        saved = perf_counter()
        opened = Matcher.open(Path(directory) / "index")
        ready = perf_counter()
        row = {"symbol": "ABC", "price": 50.0, "volume": 10**6, "exchange": "NYSE"}
        assert list(opened.match_batch([row])) == list(matcher.match_batch([row]))
        code = f"from catchment.matching import Matcher; Matcher.open({directory!r} + '/index').match_batch([{row!r}])"
        first = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        fresh = perf_counter() - first
        size_mb = sum(file.stat().st_size for file in (Path(directory) / "index").iterdir()) / 1e6
    return (
        f"Kept: {size:,} filters of W2 ({size_mb:.0f} MB) saved in {saved - start:.2f} s, opened with checksums in "
        f"{ready - saved:.2f} s; a fresh Python opens them and matches in {fresh:.2f} s. Wall time."
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--no-write", action="store_true", help=f"leave {RESULT.name} as it is")
    given = parser.parse_args(arguments)
    lines = [HEADER]
    print(HEADER)
    line(next(iter(KINDS)), 100, 10)  # compiles, or loads what is compiled
    for name in KINDS:
        size = given.size * 10 if name in MILLION else given.size // FEWER.get(name, 1)
        lines.append(line(name, size, given.rows))
        print(lines[-1], flush=True)
    for text in (churn(given.size), one_by_one(given.size), kept(given.size * 10)):
        lines += ["", text]
        print(f"\n{text}", flush=True)
    if not given.no_write:
        about = f"`{' '.join(['./dev bench matching_hard', *arguments])}`, seed {SEED}, medians. "
        about += f"Python {platform.python_version()}, {platform.machine()}."
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text("\n".join(["# Matching: hard cases", "", about, "", *lines, ""]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
