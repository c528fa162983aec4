"""The conformance suite at length: `./dev soak` makes 10,000 runs from seeds in the simulator, on all processors, then
200 with live brokers that are killed and started again, and must find nothing.

./dev soak                                   10,000 simulated runs over all systems and networks, and 200 live ones
./dev soak --runs 500 --from-seed 1000       other seeds; with --runs alone there are no live runs
./dev soak --live 50                         live runs alone
./dev soak --system 'siena general' --network ring --seed 7
                                             one run again, made small if it fails; live with --live 1
./dev soak --kills                           200 times a storing broker is killed under load, five of them, with durable
                                             readers that are killed too; --kills 24 for fewer
./dev soak --durable                         10,000 simulated runs with durable clients and failing disks
./dev soak --fuzz                            a broker is told 1,000,000 frames, 100,000 filters and 50,000 HTTP requests
                                             that are made or changed at random; --fuzz-share 0.01 makes a hundredth
./dev soak --fuzz frames --seed 7            one run of the fuzzer again
./dev soak --store                           1,000 power cuts and 1,000 flipped bits or cut files of a SQLite store
./dev soak --store damage --seed 7           one of them again
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Protocol, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.live, also in the processes of the pool

from catchment.sim.conformance.durable.runs import DurableRun, durable_outcome_of, durable_runs
from catchment.sim.conformance.entries import ENTRIES, NETWORKS, Run, all_runs, unchecked_systems
from catchment.sim.conformance.runs import outcome_of
from tests.fuzz import runs as fuzz
from tests.live import kills
from tests.live import runs as live
from tests.live.hosts import Hosts
from tests.store import disks
from tests.store import runs as stores

RUNS = 10_000
LIVE_RUNS = 200
# Kills of storing brokers, in runs of so many.
KILLS, KILLS_OF_RUN = 200, 8
# A live run has as many processes as brokers: two at a time keep two processors busy.
LIVE_AT_ONCE = 2
# Runs that a process is given at once: simulated ones take milliseconds.
CHUNK, LIVE_CHUNK = 20, 1
SHOWN_MAX = 5


class Outcome(Protocol):
    @property
    def violation(self) -> str | None: ...


O = TypeVar("O", bound=Outcome)  # noqa: E741
R = TypeVar("R")


def chosen(given: argparse.Namespace, runs_max: int, runs_of: Callable[[Sequence[int]], Sequence[Run]]) -> list[Run]:
    seeds: Iterator[int] = iter([given.seed]) if given.seed is not None else count(given.from_seed)
    runs = (
        run
        for seed in seeds
        for run in runs_of([seed])
        if given.system in (None, run.entry) and given.network in (None, run.network)
    )
    return [replace(run, is_short=given.short) for run in islice(runs, runs_max)]


def live_runs(seeds: Sequence[int]) -> list[Run]:
    return list(live.runs_of(seeds))


def all_live_runs(seeds: Sequence[int]) -> list[Run]:
    return [run for run in all_runs(seeds) if ENTRIES[run.entry].is_live]


@cache
def hosts() -> Hosts:
    """One for each process of the pool; it ends with that."""
    logging.getLogger("catchment").setLevel(logging.ERROR)
    return Hosts()


def live_outcome_of(run: Run) -> live.LiveOutcome:
    return live.outcome_of(run, hosts())


def outcomes(what: str, of: Callable[[R], O], runs: Sequence[R], processes: int | None, chunk: int) -> list[O]:
    """The outcomes of the runs that went wrong."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    wrong = []
    with ProcessPoolExecutor(processes) as pool, Progress(*columns) as progress:
        task = progress.add_task(what, total=len(runs))
        for outcome in pool.map(of, runs, chunksize=max(1, min(chunk, len(runs) // 8))):
            progress.advance(task)
            if outcome.violation is not None:
                wrong.append(outcome)
                progress.update(task, description=f"{what}, {len(wrong)} wrong")
    return wrong


def made(what: str, of: Callable[[R], O], runs: Sequence[R], processes: int | None = None, chunk: int = CHUNK) -> bool:
    """Makes runs; whether there were any, and nothing was wrong."""
    start = time.perf_counter()
    wrong = outcomes(what, of, runs, processes, chunk)
    for outcome in wrong[:SHOWN_MAX]:
        print(outcome, end="\n\n")
    print(f"{what}: {len(runs):,} runs, {len(wrong):,} violations, {time.perf_counter() - start:,.0f} s")
    return bool(runs) and not wrong


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help=f"how many simulated runs; {RUNS:,} by default")
    parser.add_argument("--live", type=int, help=f"how many live runs; {LIVE_RUNS} by default")
    parser.add_argument("--from-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--system", choices=list(ENTRIES), help="this entry of the suite alone")
    parser.add_argument("--network", choices=list(NETWORKS), help="this kind of network alone")
    parser.add_argument("--durable", action="store_true", help="runs with durable clients, and no others")
    parser.add_argument("--short", action="store_true", help="short simulated runs, as tests make them")
    parser.add_argument(
        "--fuzz", nargs="?", const="all", choices=["all", *fuzz.SIZES], help="fuzz a broker, and no more"
    )
    parser.add_argument(
        "--kills", nargs="?", const=KILLS, type=int, help=f"kill storing brokers {KILLS} times, and no more"
    )
    parser.add_argument("--fuzz-share", type=float, default=1.0, help="which share of all that the fuzzer makes")
    parser.add_argument(
        "--store",
        nargs="?",
        const="all",
        choices=["all", *stores.SOAK_COUNTS],
        help="power cuts and damage of a store, and no more",
    )
    given = parser.parse_args(arguments)
    if given.store is not None:
        return store_runs(given)
    if given.kills is not None:
        return 0 if made("kills", killed_outcome_of, kill_runs(given), 1, 1) else 1
    if given.fuzz is not None:
        return 0 if made("fuzz", fuzz.outcome_of, fuzz_runs(given), chunk=1) else 1
    if unchecked := unchecked_systems():
        print(f"the suite has no entry for {', '.join(unchecked)}")
        return 1
    if given.durable:
        return 0 if made("durable", durable_outcome_of, durable_runs_of(given)) else 1
    simulated_count, live_count = counts(given)
    results = []
    if simulated_count:
        results.append(made("simulated", outcome_of, chosen(given, simulated_count, all_runs)))
    if live_count:
        runs = chosen(given, live_count, live_runs if given.network is None else all_live_runs)
        results.append(made("live", live_outcome_of, runs, LIVE_AT_ONCE, LIVE_CHUNK))
    return 0 if results and all(results) else 1


def store_runs(given: argparse.Namespace) -> int:
    if (reason := disks.missing()) is not None:
        print(reason)
        return 1
    kinds = list(stores.SOAK_COUNTS) if given.store == "all" else [given.store]
    results = []
    for kind in kinds:
        count = given.runs or stores.SOAK_COUNTS[kind]
        seeds = [given.seed] if given.seed is not None else range(given.from_seed, given.from_seed + count)
        results.append(made(kind, stores.outcome_of, [stores.StoreRun(kind, seed) for seed in seeds]))
    return 0 if all(results) else 1


def killed_outcome_of(run: kills.KillRun) -> kills.KillOutcome:
    return kills.outcome_of(run, hosts())


def kill_runs(given: argparse.Namespace) -> list[kills.KillRun]:
    """Runs of KILLS_OF_RUN kills each, as many as it takes."""
    if given.seed is not None:
        return [kills.KillRun(given.seed, min(given.kills, KILLS_OF_RUN))]
    return [kills.KillRun(given.from_seed + n, KILLS_OF_RUN) for n in range(-(-given.kills // KILLS_OF_RUN))]


def durable_runs_of(given: argparse.Namespace) -> list[DurableRun]:
    if given.seed is not None:
        if given.system is None or given.network is None:
            raise SystemExit("a durable run is a --system, a --network and a --seed")
        return [DurableRun(given.system, given.network, given.seed, given.short)]
    runs = durable_runs(given.runs or RUNS, given.from_seed, is_short=given.short)
    return [run for run in runs if given.system in (None, run.entry) and given.network in (None, run.network)]


def fuzz_runs(given: argparse.Namespace) -> list[fuzz.FuzzRun]:
    kinds = list(fuzz.SIZES) if given.fuzz == "all" else [given.fuzz]
    if given.seed is not None:
        return [fuzz.FuzzRun(kind, given.seed) for kind in kinds]
    counts = {kind: round(fuzz.SOAK_COUNTS[kind] * given.fuzz_share) for kind in kinds}
    print(f"fuzz: {', '.join(f'{count:,} {kind}' for kind, count in counts.items())}, seeds from {given.from_seed}")
    return fuzz.runs_of(counts, given.from_seed)


def counts(given: argparse.Namespace) -> tuple[int, int]:
    """How many simulated and how many live runs: with one of the two options there are none of the other kind, and
    `--seed` alone means a simulated run."""
    simulated = RUNS if given.live is None else 0
    live_by_default = LIVE_RUNS if given.runs is None and given.seed is None else 0
    return (
        simulated if given.runs is None else given.runs,
        live_by_default if given.live is None else given.live,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
