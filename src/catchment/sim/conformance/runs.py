"""Runs the scripts of the conformance suite, and makes the script of a run that fails small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Final, NamedTuple, assert_never

from catchment.errors import LimitError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX, Pattern
from catchment.node import GapTimes
from catchment.routing.messages import ClientRequest, MapIdentity, Subscribe
from catchment.routing.systems import system_named
from catchment.sim.conformance.checkers import DeliveryChecker, HopChecker, ViolationError
from catchment.sim.conformance.entries import ENTRIES, NETWORKS, QUALITIES, RUN_OCCURRENCES_MAX, Entry, Run
from catchment.sim.conformance.gap_checker import GapChecker
from catchment.sim.conformance.ideals.tables import leftovers
from catchment.sim.conformance.playable import Playable
from catchment.sim.conformance.scripts import (
    Advertises,
    Cancels,
    CatchesUp,
    Connect,
    Crashes,
    Cuts,
    Disconnect,
    Doing,
    FallsBehind,
    Heals,
    Misasks,
    Misdeed,
    Publishes,
    Restarts,
    Resumes,
    Script,
    Settles,
    Subscribes,
    Suspends,
    Unadvertises,
    Unsubscribes,
    Watches,
    script_of,
    short_script_of,
)
from catchment.sim.conformance.sequences import SequenceChecker
from catchment.sim.network import MILLISECOND
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology
from catchment.wire.frames import WireError
from catchment.wire.messages import between_brokers

# Scripts tried while shrinking: each takes some milliseconds.
SHRINK_RUNS_MAX: Final = 2_000
SHOWN_MAX: Final = 5
# Links of the suite take milliseconds: with the times of live brokers, a gap would span all that is left of a run. Ten
# brokers in a line whose links lose one message in five take some 70 ms to settle.
GAP_TIMES: Final = GapTimes(settle_us=90 * MILLISECOND, transit_us=30 * MILLISECOND)
BEAT_US: Final = 20 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: nothing wrong, or the violation and the fewest steps that lead to it."""

    run: Run
    violation: str | None
    script: Script
    deliveries: int
    core_messages: int

    def __str__(self) -> str:
        if self.violation is None:
            run = self.run
            return f"{run.entry}, {run.network}, seed {run.seed}: {self.deliveries} deliveries, nothing wrong"
        steps = "\n".join(f"  {step.after:>6} µs  {step.doing!r}" for step in self.script)
        return f"{self.violation}\nrun again: {self.run.command}\nthe steps that matter:\n{steps}"


def outcome_of(run: Run, *, shrink: bool = True) -> Outcome:
    """Runs it; makes its script small if it fails."""
    entry = ENTRIES[run.entry]
    topology = NETWORKS[run.network](run.seed)
    script = (short_script_of if run.is_short else script_of)(topology, run.seed)
    violation, deliveries, core_messages = _tried(script, entry, topology, run.seed)
    if violation is not None and shrink:
        # Any violation will do: a smaller script may show the same mistake in another way.
        script = shrunk(script, lambda smaller: _tried(smaller, entry, topology, run.seed).violation is not None)
        violation = _tried(script, entry, topology, run.seed).violation
    return Outcome(run, violation, script, deliveries, core_messages)


class _Tried(NamedTuple):
    violation: str | None
    deliveries: int
    core_messages: int


def _tried(script: Script, entry: Entry, topology: Topology, seed: int) -> _Tried:
    system = system_named(entry.system)
    checker = DeliveryChecker(
        entry.needs_advertisements,
        entry.served,
        wastes_nothing=entry.wastes_nothing,
        detects_losses=entry.detects_losses,
    )
    sequences = SequenceChecker(entry.served, entry.needs_advertisements)
    gaps = GapChecker(entry.served, entry.needs_advertisements)
    core_messages = 0
    violation: str | None = None
    try:
        simulation = Simulation(
            topology,
            entry.make_core(topology),
            seed=seed,
            quality=QUALITIES[seed % len(QUALITIES)],
            observers=(checker, sequences, HopChecker(entry.is_direct), gaps),
            occurrences_max=RUN_OCCURRENCES_MAX,
            language=between_brokers(system.messages, system.header),
            beat_us=BEAT_US,
            gap_times=GAP_TIMES,
        )
        unsound = partial(entry.sound, simulation) if entry.sound is not None else lambda: ()
        wrong = partial(wrong_in, simulation, entry)
        Player(simulation, checker, sequences, wrong, gaps, unsound, entry.converge).play(script)
        core_messages = simulation.core_messages
    except (ViolationError, LimitError, WireError) as problem:
        violation = str(problem)
    except Exception as problem:
        # Neither a core nor a node raises anything for what a client or a neighbor does.
        last = extract_tb(problem.__traceback__)[-1]
        violation = f"{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})"
    return _Tried(violation, checker.delivered_count, core_messages)


def wrong_in(simulation: Simulation, entry: Entry) -> Iterator[str]:
    """What is wrong in a settled network."""
    yield from entry.tables(simulation)
    if not any(client.wants for client in simulation.clients.values()):
        yield from leftovers(simulation)


@dataclass(frozen=True, slots=True)
class Player:
    """Plays a script; ViolationError for what must not be. `wrong` says what is wrong inside a settled network."""

    network: Playable
    checker: DeliveryChecker
    sequences: SequenceChecker
    wrong: Callable[[], Iterable[str]]
    gaps: GapChecker = field(default_factory=GapChecker)
    # What must hold before `converge`, and what makes tables what they should be (`Entry`).
    unsound: Callable[[], Iterable[str]] = lambda: ()
    converge: Callable[[Playable], None] | None = None

    def play(self, script: Script) -> None:
        for step in script:
            if step.after:
                self.network.advance(step.after)
            self._watch(step.doing)
            self._do(step.doing)
            if self.sequences.watched:
                self.network.settle()
                self.sequences.at_quiescence()

    def _watch(self, doing: Doing) -> None:
        """Before a step: which patterns it leaves fresh, and whether they are watched."""
        sequences = self.sequences
        match doing:
            case Subscribes() if doing.is_pattern and self.network.is_quiescent:
                sequences.watched.clear()
                sequences.fresh[doing.client, doing.id] = Pattern(doing.wanted)
            case Watches():
                self.network.settle()
                sequences.watch(self.network)
            case Publishes():
                sequences.fresh.clear()
            case _:
                sequences.watched.clear()
                sequences.fresh.clear()

    def _do(self, doing: Doing) -> None:
        network, checker = self.network, self.checker
        if checker.is_settled and not isinstance(doing, Publishes):
            # What was published is wanted by those who wanted it then: it arrives before anything changes.
            network.settle()
            checker.at_quiescence(network)
            self.gaps.at_quiescence(network)
        self._watch_gaps(doing)
        if not isinstance(doing, _QUIET):
            checker.unsettled()
        match doing:
            case Connect():
                checker.left(doing.client)
                network.connect(doing.client, doing.broker)
            case Disconnect():
                checker.left(doing.client)
                network.disconnect(doing.client)
            case Subscribes():
                wanted = Pattern(doing.wanted) if doing.is_pattern else Filter(doing.wanted)
                checker.wanted(doing.client, doing.id, wanted)
                network.subscribe(doing.client, doing.id, wanted)
            case Cancels():
                network.cancel(doing.client, doing.id)
            case Unsubscribes():
                network.unsubscribe(doing.client, Filter(doing.filter))
            case Advertises():
                network.advertise(doing.client, Advertisement(doing.advertisement))
            case Unadvertises():
                network.unadvertise(doing.client, Advertisement(doing.advertisement))
            case Suspends():
                checker.suspends(doing.client)
                network.suspend(doing.client)
            case Resumes():
                network.resume(doing.client)
            case FallsBehind() | CatchesUp() | Misasks():
                self._try(doing)
            case Publishes():
                network.publish(doing.client, dict(doing.attributes))
            case Cuts():
                network.cut(doing.first, doing.second)
                self._check_gone()
            case Heals():
                network.heal(doing.first, doing.second)
            case Crashes():
                network.crash(doing.broker)
                self._check_gone()
            case Restarts():
                network.restart(doing.broker)
            case Settles() | Watches():
                self._settle()
            case _:
                assert_never(doing)

    def _watch_gaps(self, doing: Doing) -> None:
        """Before a step: what it means for what clients are owed."""
        match doing:
            case Connect() | Disconnect():
                self.gaps.left(doing.client)
            case Cancels() | Unsubscribes() | FallsBehind():
                self.gaps.forgives(doing.client)
            case Unadvertises():
                self.gaps.retracts(doing.client)
            case Cuts() | Crashes() | Heals() | Restarts():
                self.gaps.has_failed = True
            case _:
                pass

    def _try(self, doing: FallsBehind | CatchesUp | Misasks) -> None:
        """What only a client that is there can do."""
        client = self.network.clients.get(doing.client)
        if client is None or not client.is_connected:
            return
        match doing:
            case FallsBehind():
                self.checker.falls_behind(client)
                self.network.fall_behind(doing.client)
            case CatchesUp():
                self.network.catch_up(doing.client)
                self.checker.caught_up(client)
            case Misasks():
                before = len(client.refused)
                self.network.ask(doing.client, _wrong_request(doing.client, doing.what))
                self.network.settle()
                if not any(_REFUSALS[doing.what] in str(error) for error in client.refused[before:]):
                    raise ViolationError(f"{doing.client} asked for {doing.what}, and was not refused")

    def _check_gone(self) -> None:
        """A broker may be gone: its clients have left."""
        for client in self.network.clients.values():
            if not client.is_connected:
                self.checker.left(client.identity)
                self.gaps.left(client.identity)

    def _settle(self) -> None:
        self.network.settle()
        self.checker.at_quiescence(self.network)
        self.gaps.at_quiescence(self.network)
        _check(self.unsound())
        if self.converge is not None:
            self.converge(self.network)
            self.checker.excuse_waste(self.network)
        _check(self.wrong())
        self.checker.is_settled = True


def _check(wrong: Iterable[str]) -> None:
    if some := list(wrong):
        raise ViolationError("; ".join(some[:SHOWN_MAX]))


# Steps that change nothing that is wanted, and nothing about who can be reached.
_QUIET: Final = (Publishes, Suspends, Resumes, FallsBehind, CatchesUp, Settles, Watches)
# What an error says of what was asked.
_REFUSALS: Final[dict[Misdeed, str]] = {
    "a name that is too long": "IDENTITY_CODEPOINTS_MAX",
    "a handler that is not there": "there is no client",
}


def _wrong_request(identity: str, what: Misdeed) -> ClientRequest:
    match what:
        case "a name that is too long":
            return Subscribe(identity, "x" * (IDENTITY_CODEPOINTS_MAX + 1), Filter("place any"))
        case "a handler that is not there":
            return MapIdentity(identity, "nobody")


def shrunk(script: Script, fails: Callable[[Script], bool]) -> Script:
    """A script that still fails, without steps that it fails without: pieces of half the length, then of a quarter,
    and so on, are left out."""
    tried = 0
    size = len(script) // 2
    while size >= 1 and tried < SHRINK_RUNS_MAX:
        start, smaller = 0, False
        while start < len(script) and tried < SHRINK_RUNS_MAX:
            candidate = script[:start] + script[start + size :]
            tried += 1
            if fails(candidate):
                script, smaller = candidate, True
            else:
                start += size
        if not smaller or size > 1:
            size //= 2
    return script
