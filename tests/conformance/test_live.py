"""The suite once more with real brokers: processes, sockets, clients that connect again; brokers stall and are killed.

Links are not cut: one of their ends is stopped instead. What is under way is only held to be right, once and in order;
what is published in a settled network must arrive. `tests/live/` has the rest.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from catchment.client import Client
from catchment.model.filter import Filter
from catchment.routing.systems import live_systems
from catchment.sim.conformance.checkers import DeliveryChecker, ViolationError
from catchment.sim.conformance.entries import ENTRIES, NETWORKS, Run, entry_of
from catchment.sim.conformance.scripts import Crashes, Restarts, script_of
from tests.live.hosts import ROOT, Hosts
from tests.live.mutants import BROKER_MUTANTS, CLIENT_MUTANTS
from tests.live.network import LiveNetwork
from tests.live.runs import live_network, outcome_of, runs_of, with_kills, write_configs

# Every entry once, and the first entry of every system a second time, in another network.
RUNS = [*runs_of([0]), *(run for run in runs_of([1]) if ENTRIES[run.entry] is entry_of(ENTRIES[run.entry].system))]
# Long enough for a settled network, and not for what never comes.
MUTANT_SETTLE_S = 2.0
MUTANT_RUNS_MAX = 6


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts() as started:
        yield started


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Refused publications are part of it."""
    caplog.set_level(logging.ERROR, "catchment")


def test_every_system_is_there():
    assert len(RUNS) >= 20
    assert {ENTRIES[run.entry].system for run in RUNS} == set(live_systems())


@pytest.mark.parametrize("run", RUNS, ids=[f"{run.entry}-{run.network}-{run.seed}" for run in RUNS])
def test_no_violation(run: Run, hosts: Hosts):
    outcome = outcome_of(run, hosts)
    assert outcome.violation is None, str(outcome)
    assert outcome.kills >= 2
    assert outcome.deliveries > 10


def test_brokers_are_killed_before_clients_are_settled_and_come_back():
    topology = NETWORKS["ring"](3)
    script = script_of(topology, 3)
    killed = with_kills(script, topology, 3)
    assert len(killed) == len(script) + 4
    more = [step.doing for step in killed if step not in script]
    assert [type(doing) for doing in more] == [Crashes, Restarts] * 2
    assert killed == with_kills(script, topology, 3) != with_kills(script, topology, 4)


def test_a_failure_says_how_to_run_it_again(hosts: Hosts):
    outcome = outcome_of(Run("flooding", "ring", 1), hosts, settle_s_max=0.0)
    assert "not settled within 0 s" in str(outcome)
    assert "run again: ./dev soak --system 'flooding' --network 'ring' --seed 1 --live 1" in str(outcome)


def test_what_is_served_is_what_is_run(tmp_path):
    """The brokers of the suite are forked, to be quick; the command runs the same from the same file."""
    configs, _ = write_configs("siena hybrid", NETWORKS["three deep"](1), 1, tmp_path)
    for config in list(configs.values())[:2]:
        command = [sys.executable, "-m", "catchment", "serve", str(config), "--json"]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as served:
            assert served.stdout is not None
            ready = json.loads(served.stdout.readline())
            served.terminate()
            assert served.wait() == 0
        assert ready["address"] in config.read_text()


# --- a client that roams, step by step ----------------------------------------------------------

ROAMING = Run("siena acyclic", "line", 5)


def roam(network: LiveNetwork, checker: DeliveryChecker) -> None:
    """Past a broker that stalls with a notification which the client has had already."""
    here, between, there = network.topology.brokers[:3]
    for identity, broker in (("publisher", here), ("roamer", here), ("other", there)):
        network.connect(identity, broker)
        if identity != "publisher":
            checker.wanted(identity, "all", Filter("level > 0"))
            network.subscribe(identity, "all", Filter("level > 0"))
    network.settle()
    network.stall(between, 1_000_000)
    network.publish("publisher", {"level": 1})
    network.run_until(lambda: network.clients["roamer"].received)
    network.connect("roamer", there)
    network.run_until(lambda: network.is_idle("roamer"))
    network.settle()


def test_a_client_that_roams_gets_nothing_twice(hosts: Hosts):
    checker = DeliveryChecker()
    with live_network(ROAMING, hosts, (checker,)) as network:
        roam(network, checker)
        assert [len(client.received) for client in network.clients.values()] == [0, 1, 1]


# --- planted mistakes ---------------------------------------------------------------------------

MUTANTS = [
    ("siena acyclic", "frames_change_places"),
    ("siena acyclic", "a_write_is_lost"),
    ("siena acyclic", "a_write_is_done_twice"),
    ("siena acyclic", "the_core_is_not_told_that_a_link_is_down"),
    ("siena acyclic", "a_link_that_is_made_again_is_not_told"),
    ("siena acyclic", "clients_that_are_gone_are_kept"),
    ("siena acyclic", "nothing_is_stated_again"),
    ("siena acyclic", "a_broker_tells_its_tables_wrongly"),
    ("siena general", "filters_of_others_that_are_withdrawn_are_kept"),
]


@pytest.mark.parametrize(("entry", "mutant"), MUTANTS, ids=[mutant for _, mutant in MUTANTS])
def test_is_found(entry: str, mutant: str, monkeypatch: pytest.MonkeyPatch):
    networks = ENTRIES[entry].networks
    with planted(mutant, monkeypatch) as hosts:
        for seed in range(1, 1 + MUTANT_RUNS_MAX):
            run = Run(entry, networks[seed % len(networks)], seed)
            if outcome_of(run, hosts, MUTANT_SETTLE_S).violation is not None:
                return
    pytest.fail(f"{mutant} was not found in {MUTANT_RUNS_MAX} runs")


@pytest.mark.parametrize("mutant", ["what_a_client_has_seen_is_not_heeded", "seen_is_not_brought_along"])
def test_is_found_by_one_who_roams(mutant: str, monkeypatch: pytest.MonkeyPatch):
    checker = DeliveryChecker()
    with (
        planted(mutant, monkeypatch) as hosts,
        live_network(ROAMING, hosts, (checker,)) as network,
        pytest.raises(ViolationError, match="twice"),
    ):
        roam(network, checker)


def planted(mutant: str, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    if mutant in CLIENT_MUTANTS:
        monkeypatch.setattr(Client, *CLIENT_MUTANTS[mutant])
        return Hosts()
    assert mutant in BROKER_MUTANTS
    return Hosts(mutant)
