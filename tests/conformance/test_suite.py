"""Every routing core under the simulator, with churn and faults from seeds, against the checkers."""

import pytest

from catchment.sim.conformance.entries import CORES, NETWORKS, Run, all_runs
from catchment.sim.conformance.runs import outcome_of, shrunk
from catchment.sim.conformance.scripts import script_of

SEEDS = range(7)
RUNS = all_runs(SEEDS)


def test_the_suite_is_large_enough():
    assert len(RUNS) >= 300


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_violation(core: str, seed: int):
    for network in CORES[core].networks:
        outcome = outcome_of(Run(core, network, seed))
        assert outcome.violation is None, str(outcome)
        assert outcome.core_messages > 50


def test_something_is_delivered():
    """A suite in which nothing arrives proves nothing."""
    for core in CORES:
        assert outcome_of(Run(core, CORES[core].networks[-1], 1)).deliveries > 25, core


@pytest.mark.parametrize("core", CORES)
def test_same_seed_same_run(core: str):
    run = Run(core, CORES[core].networks[-1], 5)
    assert outcome_of(run) == outcome_of(run)


def test_scripts_differ_by_seed():
    topology = NETWORKS["line"](1)
    assert script_of(topology, 1) == script_of(topology, 1) != script_of(topology, 2)


def test_shrinking_keeps_what_matters():
    script = script_of(NETWORKS["line"](1), 1)
    wanted = {script[3], script[20]}
    assert set(shrunk(script, lambda some: wanted <= set(some))) == wanted
