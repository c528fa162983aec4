"""Runs of the conformance suite with live brokers: the entries, networks, scripts and checkers of `sim/conformance/`.

Besides the faults of the script, brokers are killed and started again at moments that it knows nothing of.

The tables that settled brokers report must be those of a *twin*: a simulation whose clients have come to the same wants
without a fault. The twin's tables are checked against the ideal, so both are.
"""

from __future__ import annotations

import fcntl
import json
import random
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import combinations, cycle
from pathlib import Path
from typing import IO

from catchment.client import reconnecting as client_module
from catchment.routing.core import CLIENTS_TABLE, Table
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError, reachable
from catchment.sim.conformance.entries import ENTRIES, NETWORKS, Entry, Run
from catchment.sim.conformance.gap_checker import GapChecker
from catchment.sim.conformance.ideals.tables import covers, filters_in
from catchment.sim.conformance.runs import Player, wrong_in
from catchment.sim.conformance.scripts import (
    PAUSE_MAX,
    Crashes,
    Doing,
    Restarts,
    Script,
    Settles,
    Step,
    Watches,
    script_of,
)
from catchment.sim.conformance.sequences import SequenceChecker
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology
from tests.live.hosts import RETRY_S_FIRST, RETRY_S_MOST, Hosts
from tests.live.network import SETTLE_S_MAX, LiveNetwork, Observer

# A broker that is killed comes back at most so many steps later.
STEPS_DOWN_MAX = 12
# Below those that the system gives to outgoing connections, above those of services.
PORTS, PORTS_BLOCK = range(15_000, 32_000), 500

# --- what brokers are told ----------------------------------------------------------------------


def _toml(value: object) -> str:
    """Of what configurations hold, JSON is TOML but for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def write_configs(entry: str, topology: Topology, seed: int, directory: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The configuration files and addresses of brokers. One end of a link or both are told of the other."""
    rng, settings = random.Random(seed), ENTRIES[entry].settings_for(topology)
    addresses = dict(zip(topology.brokers, (f"127.0.0.1:{port}" for port in free_ports(len(settings))), strict=True))
    dialed: dict[str, dict[str, int]] = {broker: {} for broker in topology.brokers}
    for link in topology.links:
        for dialing, listening in rng.choice((((0, 1),), ((1, 0),), ((0, 1), (1, 0)))):
            ends = (link.first, link.second)
            dialed[ends[dialing]][addresses[ends[listening]]] = link.cost
    files = {}
    for i, broker in enumerate(topology.brokers):
        config = {
            "name": broker,
            "listen": addresses[broker],
            "neighbors": list(dialed[broker]),
            "costs": dialed[broker],
            "routing": ENTRIES[entry].system,
            "settings": settings[broker],
        }
        files[broker] = directory / f"{i}.toml"
        files[broker].write_text("".join(f"{name} = {_toml(value)}\n" for name, value in config.items()), "utf-8")
    return files, {broker: f"catchment://{address}" for broker, address in addresses.items()}


@cache
def _ports() -> Iterator[int]:
    """A block of ports that no other process which makes live runs uses, for as long as this one lives."""
    for start in PORTS[::PORTS_BLOCK]:
        # Kept open: the lock ends when the file is closed.
        lock = open(Path(tempfile.gettempdir()) / f"catchment-live-{start}.lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _locks.append(lock)
        return cycle(range(start, start + PORTS_BLOCK))
    raise RuntimeError("all blocks of ports are taken: live runs are being made by too many processes")


_locks: list[IO[str]] = []


def free_ports(wanted: int) -> list[int]:
    """So many ports of the block that nobody listens at."""
    free: list[int] = []
    while len(free) < wanted:
        port = next(_ports())
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                tried.bind(("127.0.0.1", port))
                free.append(port)
    return free


# --- runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LiveOutcome:
    run: Run
    violation: str | None
    deliveries: int
    kills: int

    @property
    def command(self) -> str:
        return f"{self.run.command} --live 1"

    def __str__(self) -> str:
        run = self.run
        if self.violation is None:
            return f"live {run.entry}, {run.network}, seed {run.seed}: {self.deliveries} deliveries, nothing wrong"
        return f"live {run.entry}, {run.network}, seed {run.seed}: {self.violation}\nrun again: {self.command}"


def with_kills(script: Script, topology: Topology, seed: int) -> Script:
    """The script with brokers killed and started again: one while clients arrive, one anywhere before patterns are
    watched. Whether a process is in the middle of something then is left to chance."""
    rng = random.Random(seed)
    steps = list(script)
    for last in (_first(Settles, steps), _first(Watches, steps)):
        broker, at = rng.choice(topology.brokers), rng.randrange(last)
        back = min(last, at + 1 + rng.randrange(STEPS_DOWN_MAX))
        steps.insert(back, Step(rng.randrange(PAUSE_MAX), Restarts(broker)))
        steps.insert(at, Step(rng.randrange(PAUSE_MAX), Crashes(broker)))
    return tuple(steps)


def _first(kind: type[Doing], steps: Sequence[Step]) -> int:
    return next((i for i, step in enumerate(steps) if isinstance(step.doing, kind)), len(steps))


def runs_of(seeds: Iterable[int]) -> Iterator[Run]:
    """Every entry with each seed, in one of its networks after the other."""
    for seed in seeds:
        for name, entry in ENTRIES.items():
            if not entry.is_live:
                continue
            yield Run(name, entry.networks[seed % len(entry.networks)], seed)


def outcome_of(run: Run, hosts: Hosts, settle_s_max: float = SETTLE_S_MAX) -> LiveOutcome:
    entry, topology = ENTRIES[run.entry], NETWORKS[run.network](run.seed)
    script = with_kills(script_of(topology, run.seed), topology, run.seed)
    # Half of the publications are not answered: nobody hears that they are refused.
    checker = DeliveryChecker(
        entry.needs_advertisements,
        entry.served,
        hears_refusals=False,
        wastes_nothing=entry.wastes_nothing,
        detects_losses=entry.detects_losses,
    )
    sequences = SequenceChecker(entry.served, entry.needs_advertisements)
    gaps = GapChecker(
        entry.served, entry.needs_advertisements, needs_acceptance=True, epoch=datetime.fromtimestamp(0, UTC)
    )
    with live_network(run, hosts, (checker, sequences, gaps), settle_s_max) as network:
        violation = _played(network, script, checker, sequences, gaps, entry)
        network.close()
        violations = [*([] if violation is None else [violation]), *network.problems()]
    return LiveOutcome(run, "; ".join(violations) or None, checker.delivered_count, network.kills)


@contextmanager
def live_network(
    run: Run, hosts: Hosts, observers: Sequence[Observer], settle_s_max: float = SETTLE_S_MAX
) -> Iterator[LiveNetwork]:
    client_module.RETRY_S_FIRST, client_module.RETRY_S_MOST = RETRY_S_FIRST, RETRY_S_MOST
    topology = NETWORKS[run.network](run.seed)
    with tempfile.TemporaryDirectory(prefix="catchment-live-") as directory:
        configs, urls = write_configs(run.entry, topology, run.seed, Path(directory))
        network = LiveNetwork(topology, configs, urls, hosts, observers, seed=run.seed, settle_s_max=settle_s_max)
        try:
            yield network
        finally:
            network.close()


def _played(
    network: LiveNetwork,
    script: Script,
    checker: DeliveryChecker,
    sequences: SequenceChecker,
    gaps: GapChecker,
    entry: Entry,
) -> str | None:
    """What is wrong, if anything is."""
    try:
        network.settle()
        # Tables that change as time goes by are not compared, so nothing need bring them about.
        converge = None if entry.fades else entry.converge
        Player(network, checker, sequences, lambda: _wrong(network, entry), gaps, converge=converge).play(script)
    except ViolationError as problem:
        return str(problem)
    return None


# --- tables -------------------------------------------------------------------------------------


def _wrong(network: LiveNetwork, entry: Entry) -> Iterator[str]:
    """What settled brokers hold, by their own account, is what the brokers of the twin hold."""
    twin = _twin(network, entry)
    yield from wrong_in(twin, entry)
    are_texts_known = entry.keeps_texts and _are_texts_known(network)
    for broker, status in network.statuses.items():
        core = twin.cores[broker]
        assert core is not None
        if status.subscriptions != core.clients.subscriptions_count:
            yield f"{broker} has {status.subscriptions} subscriptions, not {core.clients.subscriptions_count}"
        near = {CLIENTS_TABLE, *reachable(network, broker)}
        # Brokers keep what those said last that they cannot reach; the twin never knew that.
        live = _by_holder(table for table in status.tables if table.holder in near)
        ideal = _by_holder(core.inspect().tables)
        for holder in sorted({*live, *ideal}) if not entry.fades else ():
            if not _is_as_good(live.get(holder), ideal.get(holder), entry, are_texts_known):
                yield f"{broker} reports {live.get(holder)} of {holder}, it should be {ideal.get(holder)}"


def _by_holder(tables: Iterable[Table]) -> dict[str, Table]:
    return {table.holder: table for table in tables}


def _is_as_good(live: Table | None, ideal: Table | None, entry: Entry, are_texts_known: bool) -> bool:
    if live is None or ideal is None:
        return live is ideal
    if live.holder == CLIENTS_TABLE:
        return live == ideal
    if entry.depends_on_order:
        # Which filters are merged, and so how many there are, depends on the order in which they came.
        return True
    return live.filters == ideal.filters and (live.bytes == ideal.bytes or not are_texts_known)


def _are_texts_known(network: LiveNetwork) -> bool:
    """Of filters that match the same and are written differently, brokers tell each other the one that came first: then
    the bytes of tables depend on that."""
    # By text: a set of filters would keep one of those that match the same.
    filters = {
        str(filter): filter
        for record in network.clients.values()
        for wanted in record.wants.values()
        for filter in filters_in(wanted)
    }
    pairs = combinations(filters.values(), 2)
    return not any(covers(first, second) and covers(second, first) for first, second in pairs)


def _twin(network: LiveNetwork, entry: Entry) -> Simulation:
    twin = Simulation(network.topology, entry.make_core(network.topology))
    for broker in set(network.topology.brokers) - set(network.statuses):
        twin.crash(broker)
    for record in network.clients.values():
        if record.home is not None:
            twin.connect(record.identity, record.home)
        for advertisement in record.advertisements:
            twin.advertise(record.identity, advertisement)
        for id, wanted in record.wants.items():
            twin.subscribe(record.identity, id, wanted)
    twin.settle()
    if entry.converge is not None:
        entry.converge(twin)
    return twin
