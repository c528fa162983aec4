"""How fast notifications are matched against 1k to 1M subscriptions, beside other engines in the same run.

    ./dev bench matching                              W1, W2, W3 at all sizes: takes about a quarter of an hour
    ./dev bench matching --sizes 1000 10000 --workloads W2 --no-write
    ./dev bench matching --no-peers --json FILE       for another program, such as compare: the rates, run by run
    ./dev bench matching --workloads W5               filters like detection rules: benchmarks/detections.py

Rates are notifications per second of processor time of one core, median of the runs with the least and the
greatest; a *multiple* is that rate over the naive loop's at 1,000 subscriptions of the same workload, measured
in the same run, because that ratio travels between machines. Making notifications and subscriptions is not
counted; turning them into what an engine reads is. All engines must find the same matches.

`match` gives a sorted list of ids for one notification. "match ÷ match_batch" is the time it takes over that of
`match_batch` from a list, for each notification; `match_batch` gives numbers, so the next column compares with
`match_batch` where the ids of each notification are then listed as well. "bytes, with ids" counts what the listed
ids take in memory after those runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, write_figures
from benchmarks.peers import PEERS, Naive
from catchment.matching import Matcher
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import constraint
from catchment.sim.benchmark_data import notifications, subscriptions

SEED = 1
SIZES = (1_000, 10_000, 100_000, 1_000_000)
WORKLOADS = ("W1", "W2", "W3")
RESULTS = Path(__file__).parent / "results"
# The multiples to reach, and at 1M to beat.
TARGETS: dict[int, dict[str, float]] = {
    1_000: {"W1": 40, "W2": 60, "W3": 30},
    10_000: {"W1": 10, "W2": 10, "W3": 15},
    100_000: {"W1": 2.0, "W2": 2.5, "W3": 4.5},
    1_000_000: {"W1": 4.0, "W2": 2.0, "W3": 2.0},
}
# The most subscriptions an engine is given: past these one notification takes it most of a second.
PEER_SIZES = {"naive": 100_000, "dict": 1_000_000, "numpy": 100_000, "duckdb": 100_000}
RUN_SECONDS = 0.4
ROWS_MAX = 20_000
# Ids of one batch that fit easily: 1M subscriptions of W1 match 3,200 to a notification.
ROWS_MAX_AT_1M = 4_000


@dataclass(frozen=True)
class Rate:
    """Notifications per second of processor time over several runs."""

    runs: tuple[float, ...]

    @property
    def middle(self) -> float:
        return median(self.runs)

    def __str__(self) -> str:
        return f"{self.middle:,.0f} ({min(self.runs):,.0f}–{max(self.runs):,.0f})"


def measured(work: Callable[[Sequence[Any]], Any], rows: Sequence[Any], runs: int) -> Rate:
    """The rate at which `work` gets through rows; as many of them as take RUN_SECONDS."""
    count = min(20, len(rows))
    work(rows[:count])  # compiles, or loads what is compiled
    while True:
        start = process_time()
        work(rows[:count])
        took = process_time() - start
        if took > RUN_SECONDS / 2 or count == len(rows):
            break
        count = min(len(rows), count * 4)
    count = max(1, min(len(rows), int(count * RUN_SECONDS / max(took, 1e-6))))
    rates = []
    for _ in range(runs):
        start = process_time()
        work(rows[:count])
        rates.append(count / (process_time() - start))
    return Rate(tuple(rates))


def columns(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Notifications as Arrow: a nullable column for each attribute."""
    names = sorted({name for row in rows for name in row})
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def loaded(made: Sequence[Conjunction]) -> tuple[Matcher, float]:
    """A matcher of them all, and how many a second of processor time it took in."""
    matcher = Matcher()
    ids = [f"s{i}" for i in range(len(made))]
    start = process_time()
    matcher.add_many(ids, made)
    return matcher, len(made) / (process_time() - start)


def ours(matcher: Matcher, rows: list[dict[str, Any]], runs: int) -> dict[str, Rate]:
    table = columns(rows)
    return {
        "list": measured(matcher.match_batch, rows, runs),
        "arrow": measured(lambda batch: matcher.match_batch(table.slice(0, len(batch))), rows, runs),
        "ids": measured(lambda batch: _spent(matcher.match_batch(batch)), rows[:4000], runs),
        "match": measured(lambda batch: _spent(map(matcher.match, batch)), rows[:4000], runs),
    }


def _spent(lists: Iterable[Any]) -> None:
    """Makes each list of ids, and keeps none."""
    for _ in lists:
        pass


def times_as_long(figures: dict[str, Any], than: str) -> str:
    """What `match` takes over what another way takes for each notification, run by run."""
    runs = [other / match for match, other in zip(figures["rates"]["match"], figures["rates"][than], strict=True)]
    return f"{median(runs):.2f} ({min(runs):.2f}–{max(runs):.2f})"


def agree(matcher: Matcher, peer: Any, rows: list[dict[str, Any]], what: str) -> None:
    matched = [[int(str(id)[1:]) for id in ids] for ids in matcher.match_batch(rows)]
    assert [sorted(ids) for ids in matched] == peer.match(rows), f"{what} disagrees"


def cell(workload: str, size: int, runs: int, with_peers: bool, unit: float) -> dict[str, Any]:
    """All figures of one workload at one size."""
    triples = subscriptions(workload, size, SEED)
    made = [Conjunction(tuple(constraint(*triple) for triple in sorted(constraints))) for constraints in triples]
    rows = notifications(workload, ROWS_MAX if size < 1_000_000 else ROWS_MAX_AT_1M, SEED)
    matcher, load = loaded(made)
    matched = matcher.match_batch(rows)
    stats = matcher.stats()
    rates = ours(matcher, rows, runs)
    for name, peer in PEERS.items():
        if with_peers and size <= PEER_SIZES[name]:
            engine = peer(triples)
            rates[name] = measured(engine.match, rows, runs)
            agree(matcher, engine, rows[: 50 if size < 100_000 else 3], name)
    return {
        "workload": workload,
        "size": size,
        "load_per_s": load,
        "bytes": stats.bytes_per_subscription,
        "bytes_with_ids": matcher.stats().bytes_per_subscription,
        "matches": len(matched.ids) / len(rows),
        "rows": len(rows),
        "rates": {name: rate.runs for name, rate in rates.items()},
        "multiples": {name: rate.middle / unit for name, rate in rates.items()},
    }


def line(figures: dict[str, Any]) -> str:
    multiples, target = figures["multiples"], TARGETS[figures["size"]][figures["workload"]]
    peers = [f"{multiples[name]:.3g}" if name in multiples else "–" for name in PEERS]
    cells = [
        figures["workload"],
        f"{figures['size']:,}",
        f"{figures['matches']:,.1f}",
        f"**{multiples['list']:.3g}**",
        f"{multiples['arrow']:.3g}",
        f"{multiples['match']:.3g}",
        f"{target:g}",
        *peers,
        str(Rate(tuple(figures["rates"]["list"]))),
        times_as_long(figures, "list"),
        times_as_long(figures, "ids"),
        f"{figures['load_per_s']:,.0f}",
        f"{figures['bytes']:.0f}",
        f"{figures['bytes_with_ids']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| workload | subscriptions | matches per notification | match_batch, list | match_batch, Arrow | match | target "
    f"| {' | '.join(PEERS)} | match_batch, list, per s | match ÷ match_batch | match ÷ match_batch with ids "
    "| load per s | bytes per subscription | with ids |\n"
    f"|---|{'--:|' * (12 + len(PEERS))}"
)


def plot(cells: Sequence[dict[str, Any]], path: Path) -> None:
    """Time for a notification over subscriptions, and over matches: the second should be the straighter."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    for workload in dict.fromkeys(figures["workload"] for figures in cells):
        mine = [figures for figures in cells if figures["workload"] == workload]
        micros = [1e6 / median(figures["rates"]["list"]) for figures in mine]
        left.loglog([figures["size"] for figures in mine], micros, marker="o", label=workload)
        right.loglog([figures["matches"] for figures in mine], micros, marker="o", label=workload)
        naive = [figures for figures in mine if "naive" in figures["rates"]]
        left.loglog(
            [figures["size"] for figures in naive], [1e6 / median(figures["rates"]["naive"]) for figures in naive], ":"
        )
    left.set(xlabel="subscriptions (dotted: naive loop)", ylabel="µs of processor time per notification")
    right.set(xlabel="matches per notification")
    left.legend()
    figure.tight_layout()
    figure.savefig(path)


def figures_of(figures: dict[str, Any]) -> list[Figure]:
    where = f"{figures['workload']}, {figures['size']:,} subscriptions"
    return [Figure(f"{where}, {way}", is_more_faster=True, values=runs) for way, runs in figures["rates"].items()]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--workloads", nargs="+", default=(*WORKLOADS, "W5"), choices=(*WORKLOADS, "W5"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true", help="only ours and the naive loop at 1,000")
    parser.add_argument("--no-write", action="store_true", help="leave the files in results as they are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rates of W1 to W3 here, and no report")
    given = parser.parse_args(arguments)
    given.no_write |= given.json is not None
    missed_detections = 0
    if "W5" in given.workloads:
        from benchmarks import detections

        missed_detections = detections.main(["--runs", str(given.runs), *(["--no-write"] if given.no_write else [])])
        given.workloads = [workload for workload in given.workloads if workload != "W5"]
        if not given.workloads:
            return missed_detections
    print(HEADER)
    loaded([Conjunction((constraint("x", "=", i),)) for i in range(100)])  # compiles, or loads what is compiled
    cells = []
    for workload in given.workloads:
        few = Naive(subscriptions(workload, 1_000, SEED))
        unit = measured(few.match, notifications(workload, 2_000, SEED), given.runs).middle
        for size in given.sizes:
            cells.append(cell(workload, size, given.runs, not given.no_peers, unit))
            print(line(cells[-1]), flush=True)
    if given.json:
        write_figures(given.json, [figure for figures in cells for figure in figures_of(figures)])
    if not given.no_write:
        command = " ".join(["./dev bench matching", *arguments])
        about = f"`{command}`, seed {SEED}, median of {given.runs} runs (least–greatest) of one core's processor time. "
        about += f"Python {platform.python_version()}, {platform.machine()}. Figures without unit are multiples of the "
        about += "naive loop at 1,000 subscriptions of the same workload in the same run."
        RESULTS.mkdir(exist_ok=True)
        text = "\n".join(["# Matching", "", about, "", HEADER, *map(line, cells), "", "![](matching.svg)", ""])
        (RESULTS / "matching.md").write_text(text, "utf-8")
        (RESULTS / "matching.json").write_text(json.dumps(cells, indent=1) + "\n", "utf-8")
        plot(cells, RESULTS / "matching.svg")
    missed = [
        figures for figures in cells if figures["multiples"]["list"] < TARGETS[figures["size"]][figures["workload"]]
    ]
    return 1 if missed or missed_detections else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
