"""Durable delivery around every routing system: short runs with durable clients, failing brokers and failing disks."""

import pytest

from catchment.routing.systems import SYSTEMS
from catchment.sim.conformance.durable.runs import durable_outcome_of, durable_runs

# Some twenty of each system and more: they take 35 ms each. `./dev soak --durable --short` makes more.
RUNS = 500
AT_ONCE = 100


@pytest.mark.parametrize("start", range(0, RUNS, AT_ONCE))
def test_no_violation(start: int):
    runs = durable_runs(RUNS, is_short=True)[start : start + AT_ONCE]
    outcomes = [durable_outcome_of(run) for run in runs]
    for outcome in outcomes:
        assert outcome.violation is None, str(outcome)
    # A run in which nobody gets anything shows nothing.
    assert sum(outcome.deliveries for outcome in outcomes) > 20 * len(outcomes)


def test_every_system_has_runs():
    entries = {run.entry for run in durable_runs(RUNS, is_short=True)}
    assert len(entries) >= len(SYSTEMS)


def test_a_long_run():
    outcome = durable_outcome_of(durable_runs(1, from_seed=7)[0])
    assert outcome.violation is None, str(outcome)
    assert outcome.deliveries > 50
