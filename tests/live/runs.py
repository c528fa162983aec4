"""Runs of the conformance suite with live brokers: the cores, networks, scripts and checkers of `sim/conformance/entries.py`.

Besides the faults of the script, brokers are killed and started again at moments that it knows nothing of.
"""

from __future__ import annotations

import fcntl
import json
import random
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import IO, Any

from catchment.client import client as client_module
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError
from catchment.sim.conformance.entries import CORES, MERGING_BATCH, MERGING_BUDGET, NETWORKS, Core, Run
from catchment.sim.conformance.runs import Player
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
from catchment.sim.hybrid import as_hybrid
from catchment.sim.network import MILLISECOND
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology
from tests.live.hosts import RETRY_S_FIRST, RETRY_S_MOST, Hosts
from tests.live.network import SETTLE_S_MAX, LiveNetwork, Observer, sizes_of

# A broker that is killed comes back at most so many steps later.
STEPS_DOWN_MAX = 12
# Below those that the system gives to outgoing connections, above those of services.
PORTS, PORTS_BLOCK = range(15_000, 32_000), 500

# --- what brokers are told ----------------------------------------------------------------------

Roles = dict[str, dict[str, Any]]
_MERGING = {"batch_ms": MERGING_BATCH / MILLISECOND}


def _masters(topology: Topology) -> Roles:
    return {broker: {"master": master} if master else {} for broker, master in topology.masters().items()}


def _center(topology: Topology) -> Roles:
    return {broker: {"center": topology.brokers[0]} for broker in topology.brokers}


def _units(topology: Topology) -> Roles:
    found: Roles = {}
    for broker, memberships in as_hybrid(topology).memberships().items():
        units = []
        for one in memberships:
            master = {} if one.master is None else {"master": one.master}
            units.append({"unit": one.unit, "kind": one.kind, "neighbors": sorted(one.neighbors), **master})
        found[broker] = {"units": units}
    return found


def _same(role: dict[str, Any]) -> Callable[[Topology], Roles]:
    return lambda topology: dict.fromkeys(topology.brokers, role)


@dataclass(frozen=True)
class Live:
    """How a core of the suite is had from `broker/config.py`."""

    routing: str
    roles: Callable[[Topology], Roles] = lambda topology: {broker: {} for broker in topology.brokers}


LIVE: dict[str, Live] = {
    "siena acyclic": Live("siena acyclic"),
    "siena hierarchical": Live("siena hierarchical", _masters),
    "siena advertising": Live("siena advertising"),
    "siena delegating": Live("siena delegating"),
    "siena merging": Live("siena merging", _same(_MERGING)),
    "siena merging imperfect": Live("siena merging", _same({**_MERGING, "merging_share_max": MERGING_BUDGET})),
    "siena merging advertising": Live("siena merging advertising", _same(_MERGING)),
    "flooding": Live("flooding"),
    "centralized": Live("centralized", _center),
    "siena general": Live("siena general"),
    "siena hybrid": Live("siena hybrid", _units),
    "siena hybrid advertising": Live("siena hybrid", _units),
}


def _toml(value: object) -> str:
    """Of what configurations hold, JSON is TOML but for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def write_configs(core: str, topology: Topology, seed: int, directory: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The configuration files and addresses of brokers. One end of a link or both are told of the other."""
    rng, roles = random.Random(seed), LIVE[core].roles(topology)
    addresses = dict(zip(topology.brokers, (f"127.0.0.1:{port}" for port in _free_ports(len(roles))), strict=True))
    dialed: dict[str, dict[str, int]] = {broker: {} for broker in topology.brokers}
    for link in topology.links:
        for one, other in rng.choice((((0, 1),), ((1, 0),), ((0, 1), (1, 0)))):
            ends = (link.one, link.other)
            dialed[ends[one]][addresses[ends[other]]] = link.cost
    files = {}
    for i, broker in enumerate(topology.brokers):
        told = {
            "name": broker,
            "listen": addresses[broker],
            "neighbors": list(dialed[broker]),
            "costs": dialed[broker],
            "routing": LIVE[core].routing,
            "role": roles[broker],
        }
        files[broker] = directory / f"{i}.toml"
        files[broker].write_text("".join(f"{name} = {_toml(value)}\n" for name, value in told.items()), "utf-8")
    return files, {broker: f"catchment://{address}" for broker, address in addresses.items()}


@cache
def _ports() -> Iterator[int]:
    """Ports that are this process's alone among those that make live runs: a block of them, for as long as it lives."""
    for start in PORTS[::PORTS_BLOCK]:
        # Kept open: the lock goes with it.
        held = open(Path(tempfile.gettempdir()) / f"catchment-live-{start}.lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            continue
        _held.append(held)
        return cycle(range(start, start + PORTS_BLOCK))
    raise RuntimeError("all blocks of ports are taken: live runs are being made by too many processes")


_held: list[IO[str]] = []


def _free_ports(wanted: int) -> list[int]:
    """Those of them that nobody else listens at."""
    found: list[int] = []
    while len(found) < wanted:
        port = next(_ports())
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                tried.bind(("127.0.0.1", port))
                found.append(port)
    return found


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
            return f"live {run.core}, {run.network}, seed {run.seed}: {self.deliveries} deliveries, nothing wrong"
        return f"live {run.core}, {run.network}, seed {run.seed}: {self.violation}\nrun again: {self.command}"


def with_kills(script: Script, topology: Topology, seed: int) -> Script:
    """The script with brokers killed and started again: one while clients arrive, one anywhere before patterns are
    watched. When that happens a real process is in the middle of something or not, as chance has it."""
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
    """Every core with each seed, in one of its networks after the other."""
    for seed in seeds:
        for name, core in CORES.items():
            yield Run(name, core.networks[seed % len(core.networks)], seed)


def outcome_of(run: Run, hosts: Hosts, settle_s_max: float = SETTLE_S_MAX) -> LiveOutcome:
    core, topology = CORES[run.core], NETWORKS[run.network](run.seed)
    script = with_kills(script_of(topology, run.seed), topology, run.seed)
    checker = DeliveryChecker(needs_advertisements=core.needs_advertisements, served=core.served)
    sequences = SequenceChecker(core.served, core.needs_advertisements)
    with live_network(run, hosts, (checker, sequences), settle_s_max) as network:
        violation = _played(network, script, checker, sequences, core)
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
        configs, urls = write_configs(run.core, topology, run.seed, Path(directory))
        network = LiveNetwork(topology, configs, urls, hosts, observers, seed=run.seed, settle_s_max=settle_s_max)
        try:
            yield network
        finally:
            network.close()


def _played(
    network: LiveNetwork, script: Script, checker: DeliveryChecker, sequences: SequenceChecker, core: Core
) -> str | None:
    """What is wrong, if anything is."""
    try:
        network.settle()
        Player(network, checker, sequences, lambda: _wrong(network, core)).play(script)
    except ViolationError as problem:
        return str(problem)
    return None


def _wrong(network: LiveNetwork, core: Core) -> Iterator[str]:
    """What settled brokers hold, as far as they tell, is what those of a simulation hold that have come to the same
    without a fault."""
    twin = _twin(network, core)
    for broker, look in network.looks.items():
        sizes = sizes_of(twin.cores[broker])
        if look.sizes != sizes:
            yield f"{broker} has {look.sizes}, it should have {sizes}"


def _twin(network: LiveNetwork, core: Core) -> Simulation:
    twin = Simulation(network.topology, core.make(network.topology))
    for broker in set(network.topology.brokers) - set(network.looks):
        twin.crash(broker)
    for record in network.clients.values():
        if record.home is not None:
            twin.connect(record.identity, record.home)
        for advertisement in record.advertisements:
            twin.advertise(record.identity, advertisement)
        for id, wanted in record.wants.items():
            twin.subscribe(record.identity, id, wanted)
    twin.settle()
    return twin
