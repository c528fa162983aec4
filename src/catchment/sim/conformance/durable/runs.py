"""Runs the scripts with durable clients on every entry of the suite, and makes the script of a run that fails small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Final, NamedTuple

from catchment.errors import LimitError
from catchment.routing.durable.messages import BETWEEN_STORAGES
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.systems import SYSTEMS, system_named
from catchment.sim.conformance.checkers import ViolationError
from catchment.sim.conformance.durable.checker import DurableChecker
from catchment.sim.conformance.durable.network import CheckedSimulation, Flaws
from catchment.sim.conformance.durable.player import Player, check_transient
from catchment.sim.conformance.durable.scripts import Script, script_of, storages_of
from catchment.sim.conformance.entries import ENTRIES, NETWORKS, QUALITIES
from catchment.sim.conformance.runs import shrunk
from catchment.sim.durable import Durability
from catchment.sim.network import MILLISECOND
from catchment.wire.frames import WireError
from catchment.wire.messages import between_brokers

# A run takes some ten thousand: storages ask again and again while something has failed.
RUN_OCCURRENCES_MAX: Final = 400_000
# So small that bursts fill it.
WINDOW_ENTRIES: Final = 4
SETTINGS: Final = DurableSettings(
    window_entries=WINDOW_ENTRIES,
    retry_us=60 * MILLISECOND,
    retry_us_max=400 * MILLISECOND,
    acknowledge_us=MILLISECOND,
)
# What links do to messages that go to one broker, in turn: most runs have links as the seam promises them.
FLAWS: Final = (Flaws(), Flaws(), Flaws(loss=0.1, double=0.1, late=0.15))


@dataclass(frozen=True)
class DurableRun:
    """One run: an entry of the suite, one of its networks, a seed."""

    entry: str
    network: str
    seed: int
    is_short: bool = False

    @property
    def command(self) -> str:
        short = " --short" if self.is_short else ""
        return f"./dev soak --durable --system '{self.entry}' --network '{self.network}' --seed {self.seed}{short}"


@dataclass(frozen=True, slots=True)
class DurableOutcome:
    """What a run came to: nothing wrong, or the violation and the fewest steps that lead to it."""

    run: DurableRun
    violation: str | None
    script: Script
    deliveries: int

    def __str__(self) -> str:
        if self.violation is None:
            run = self.run
            return f"{run.entry}, {run.network}, seed {run.seed}: {self.deliveries} deliveries, nothing wrong"
        steps = "\n".join(f"  {step.after:>7} µs  {step.doing!r}" for step in self.script)
        return f"{self.violation}\nrun again: {self.run.command}\nthe steps that matter:\n{steps}"


class _Tried(NamedTuple):
    violation: str | None
    # The line that has found it.
    where: str
    deliveries: int


def durable_outcome_of(run: DurableRun, *, shrink: bool = True) -> DurableOutcome:
    """Runs it; makes its script small if it fails."""
    topology = NETWORKS[run.network](run.seed)
    script = script_of(topology, run.seed, run.is_short)
    tried = _tried(script, run)
    violation = tried.violation
    if violation is not None and shrink:
        # The same check must fail: a script without its beginning fails in many ways.
        script = shrunk(script, lambda smaller: _tried(smaller, run).where == tried.where)  # type: ignore[arg-type, assignment]
        violation = _tried(script, run).violation
    return DurableOutcome(run, violation, script, tried.deliveries)


def _tried(script: Script, run: DurableRun) -> _Tried:
    checker = DurableChecker(WINDOW_ENTRIES)
    violation, where = None, ""
    try:
        network = _network(run, checker)
        Player(network, checker).play(script)
        check_transient(network)
    except Exception as problem:
        # Neither a core nor a node raises anything for what a client, a neighbor or a disk does.
        last = extract_tb(problem.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        is_known = isinstance(problem, ViolationError | LimitError | WireError)
        violation = str(problem) if is_known else f"{type(problem).__name__}: {problem} ({where})"
    return _Tried(violation, where, checker.delivered_count)


def _network(run: DurableRun, checker: DurableChecker) -> CheckedSimulation:
    entry, topology = ENTRIES[run.entry], NETWORKS[run.network](run.seed)
    system = system_named(entry.system)
    flaws = FLAWS[run.seed % len(FLAWS)]
    if flaws != Flaws():
        checker.has_failed = True
    return CheckedSimulation(
        topology,
        entry.make_core(topology),
        Durability(storages_of(topology, run.seed), SETTINGS),
        checker,
        flaws,
        seed=run.seed,
        quality=QUALITIES[run.seed // len(FLAWS) % len(QUALITIES)],
        occurrences_max=RUN_OCCURRENCES_MAX,
        language=between_brokers((*system.messages, *BETWEEN_STORAGES), system.header),
    )


def durable_runs(count: int, from_seed: int = 0, *, is_short: bool = False) -> list[DurableRun]:
    """So many runs: each routing system in turn, with its entries, their networks, and one seed after the other."""
    kinds = {
        system: [(name, net) for name, entry in ENTRIES.items() if entry.system == system for net in entry.networks]
        for system in SYSTEMS
    }
    systems: Sequence[str] = list(SYSTEMS)
    runs = []
    for number in range(count):
        turn, of = divmod(number, len(systems))
        some = kinds[systems[of]]
        runs.append(DurableRun(*some[turn % len(some)], from_seed + number, is_short))
    return runs
