"""Every routing system under the simulator, with churn and faults from seeds, against the checkers."""

from typing import get_args

import pytest

from catchment.sim.conformance.entries import ENTRIES, NETWORKS, Run, all_runs, unchecked_systems
from catchment.sim.conformance.runs import outcome_of, shrunk
from catchment.sim.conformance.scripts import Doing, script_of

SEEDS = range(3)
RUNS = all_runs(SEEDS)


def test_the_suite_is_large_enough():
    assert len(RUNS) >= 300


def test_every_system_is_there():
    assert unchecked_systems() == []


def test_scripts_have_all_kinds_of_steps():
    """A kind that no script has is tried by nobody."""
    steps = {type(step.doing) for seed in SEEDS for step in script_of(NETWORKS["random tree"](seed), seed)}
    assert steps == set(get_args(Doing))


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_violation(entry: str, seed: int):
    for network in ENTRIES[entry].networks:
        outcome = outcome_of(Run(entry, network, seed))
        assert outcome.violation is None, str(outcome)
        assert outcome.core_messages > 50


def test_something_is_delivered():
    """A suite in which nothing arrives proves nothing."""
    for name, entry in ENTRIES.items():
        assert outcome_of(Run(name, entry.networks[-1], 1)).deliveries > 25, name


@pytest.mark.parametrize("entry", ENTRIES)
def test_same_seed_same_run(entry: str):
    run = Run(entry, ENTRIES[entry].networks[-1], 5)
    assert outcome_of(run) == outcome_of(run)


def test_scripts_differ_by_seed():
    topology = NETWORKS["line"](1)
    assert script_of(topology, 1) == script_of(topology, 1) != script_of(topology, 2)


def test_shrinking_keeps_what_matters():
    script = script_of(NETWORKS["line"](1), 1)
    kept = {script[3], script[20]}
    assert set(shrunk(script, lambda smaller: kept <= set(smaller))) == kept
