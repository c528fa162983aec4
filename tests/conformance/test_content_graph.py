"""More runs of content graphs, so that with those of `test_suite.py` there are 300 in all."""

import pytest

from catchment.sim.conformance.entries import ENTRIES, Run
from catchment.sim.conformance.runs import outcome_of
from tests.conformance import test_suite

RUNS_MIN = 300
OWN = [name for name, entry in ENTRIES.items() if entry.system == "content graph"]
SEEDS = range(len(test_suite.SEEDS), len(test_suite.SEEDS) + 6)


def test_there_are_enough_runs_and_all_forwarders():
    runs = [Run(name, network, seed) for name in OWN for network in ENTRIES[name].networks for seed in SEEDS]
    assert len(runs) + sum(run.entry in OWN for run in test_suite.RUNS) >= RUNS_MIN
    forwarding = {ENTRIES[name].settings.get("forwarding", "labels") for name in OWN}
    assert forwarding == {"labels", "minimal", "stored", "lists"}


@pytest.mark.parametrize("entry", OWN)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_violation(entry: str, seed: int):
    for network in ENTRIES[entry].networks:
        outcome = outcome_of(Run(entry, network, seed))
        assert outcome.violation is None, str(outcome)
