"""The conformance suite at length: `./dev soak` makes 10,000 runs from seeds, on all processors, and must find nothing.

./dev soak                                   10,000 runs over all cores and networks
./dev soak --runs 500 --from-seed 1000       others
./dev soak --core 'siena general' --network ring --seed 7     one run again, made small if it fails
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from catchment.sim.conformance import CORES, NETWORKS, Run, all_runs
from catchment.sim.runs import Outcome, outcome_of

RUNS = 10_000
SHOWN_MAX = 5


def chosen(given: argparse.Namespace) -> list[Run]:
    if given.seed is not None:
        seeds = iter([given.seed])
    else:
        seeds = count(given.from_seed)
    runs = (run for seed in seeds for run in all_runs([seed]))
    wanted = (
        run
        for run in runs
        if (given.core is None or run.core == given.core) and (given.network is None or run.network == given.network)
    )
    return list(wanted) if given.seed is not None else list(islice(wanted, given.runs))


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    """All that went wrong."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    found = []
    with ProcessPoolExecutor() as pool, Progress(*columns) as progress:
        task = progress.add_task("conformance", total=len(runs))
        for outcome in pool.map(outcome_of, runs, chunksize=max(1, min(20, len(runs) // 8))):
            progress.advance(task)
            if outcome.violation is not None:
                found.append(outcome)
                progress.update(task, description=f"conformance, {len(found)} wrong")
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--core", choices=list(CORES))
    parser.add_argument("--network", choices=list(NETWORKS))
    given = parser.parse_args(arguments)
    runs = chosen(given)
    start = time.perf_counter()
    wrong = outcomes(runs)
    for one in wrong[:SHOWN_MAX]:
        print(one, end="\n\n")
    print(f"{len(runs):,} runs, {len(wrong):,} violations, {time.perf_counter() - start:,.0f} s")
    return 1 if wrong or not runs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
