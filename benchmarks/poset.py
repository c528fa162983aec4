"""How fast filters enter and leave a poset, and how that grows with its size.

    ./dev bench poset                     W2 from 1,000 to 100,000 filters, W1 and W3 beside it
    ./dev bench poset --sizes 1000 --runs 5 --no-write

Each run starts with an empty poset and inserts the first filters of the workload's stream; making the
filters is not counted. "Last tenth" is the rate at which the last tenth of them came in: what an insertion
costs at that size. "Removed" is the rate at which a tenth, drawn evenly, leaves again. Rates are per second
of wall time, median of the runs with the least and the greatest; a run's processor time gives the rate on
an otherwise idle machine. The peer compares each new filter with all others by `covers`, in the same
process, at its own small size; both must end up with the same relations.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from catchment.model.filter import Filter
from catchment.routing.poset import Poset
from catchment.sim.benchmark_data import filters

SEED = 1
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
OTHER_SIZES = (1_000, 10_000)
PEER_SIZE = 1_000
TARGET_PER_S = 2_000
RESULT = Path(__file__).parent / "results" / "poset.md"


@dataclass(frozen=True)
class Run:
    """Rates per second of one run, and what came of it."""

    inserted: float
    inserted_cpu: float
    last_tenth: float
    removed: float
    nodes: int
    roots: int
    edges: int


def run(filters: Sequence[Filter]) -> Run:
    poset: Poset[Filter] = Poset()
    tenth = len(filters) // 10
    start, start_cpu = perf_counter(), process_time()
    for filter in filters[:-tenth]:
        poset.insert(filter)
    middle = perf_counter()
    for filter in filters[-tenth:]:
        poset.insert(filter)
    end, end_cpu = perf_counter(), process_time()
    nodes, roots, edges = len(poset), len(poset.roots), sum(len(poset.successors(filter)) for filter in poset)
    leaving = list(poset)[::10]
    removal = perf_counter()
    for filter in leaving:
        poset.remove(filter)
    removed = len(leaving) / (perf_counter() - removal)
    count = len(filters)
    return Run(
        count / (end - start), count / (end_cpu - start_cpu), tenth / (end - middle), removed, nodes, roots, edges
    )


def naive(filters: Sequence[Filter]) -> tuple[float, dict[Filter, set[Filter]]]:
    """The peer: every new filter against all others. Its rate, and all that each filter covers."""
    covered: dict[Filter, set[Filter]] = {}
    start = perf_counter()
    for filter in filters:
        if filter not in covered:
            below = {other for other in covered if filter.covers(other)}
            for other, its in covered.items():
                if other.covers(filter):
                    its.add(filter)
            covered[filter] = below
    return len(filters) / (perf_counter() - start), covered


def spread(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def row(workload: str, filters: Sequence[Filter], runs: int) -> tuple[str, float]:
    done = [run(filters) for _ in range(runs)]
    last = done[-1]
    cells = (
        workload,
        f"{len(filters):,}",
        f"{last.nodes:,}",
        f"{last.roots:,}",
        f"{last.edges:,}",
        spread([run.inserted for run in done]),
        spread([run.inserted_cpu for run in done]),
        spread([run.last_tenth for run in done]),
        spread([run.removed for run in done]),
    )
    return f"| {' | '.join(cells)} |", median(run.inserted for run in done)


HEADER = (
    "| workload | inserted | nodes | roots | edges | inserts/s | per s of processor time | last tenth/s | removed/s |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def peer_line(filters: Sequence[Filter], runs: int) -> str:
    peers, ours = [], []
    for _ in range(runs):
        rate, covered = naive(filters)
        peers.append(rate)
        ours.append(run(filters).inserted)
    poset = Poset(filters)
    assert {filter: set(poset.covered(filter)) - {filter} for filter in poset} == covered, "the peer disagrees"
    ratio = median(mine / its for mine, its in zip(ours, peers, strict=True))
    return (
        f"Peer (each new filter against all others by `covers`), {len(filters):,} filters of W2: {spread(peers)} "
        f"inserts/s; the poset in the same run {spread(ours)}, **{ratio:,.0f} times** as many, with the same relations."
    )


def report(sizes: Sequence[int], runs: int) -> tuple[list[str], bool]:
    stream = filters("W2", max(sizes), SEED)
    lines, rates = [], {}
    for size in sizes:
        line, rates[size] = row("W2", stream[:size], runs)
        lines.append(line)
        print(line, flush=True)
    for workload in ("W1", "W3"):
        for size in OTHER_SIZES:
            if size <= max(sizes):
                lines.append(row(workload, filters(workload, size, SEED), runs)[0])
                print(lines[-1], flush=True)
    peer = peer_line(stream[: min(PEER_SIZE, max(sizes))], runs)
    is_met = rates[max(sizes)] >= TARGET_PER_S
    verdict = f"Wanted: {TARGET_PER_S:,} inserts/s at {max(sizes):,} filters of W2; {'met' if is_met else 'MISSED'}."
    print(f"\n{peer}\n\n{verdict}")
    return [HEADER, *lines, "", peer, "", verdict], is_met


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help=f"leave {RESULT.name} as it is")
    given = parser.parse_args(arguments)
    print(HEADER)
    lines, is_met = report(given.sizes, given.runs)
    if not given.no_write:
        command = " ".join(["./dev bench poset", *arguments])
        about = f"`{command}`, seed {SEED}, {given.runs} runs each: median (least–greatest). "
        about += f"Python {platform.python_version()}, {platform.machine()}."
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text("\n".join(["# Poset", "", about, "", *lines, ""]), "utf-8")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
