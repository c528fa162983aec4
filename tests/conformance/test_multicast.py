"""Filter propagation, DVMRP and perfect filtering at length: with the runs of `test_suite.py`, over 300 of each."""

from collections import Counter

import pytest

from catchment.sim.conformance.entries import ENTRIES, Run, all_runs
from catchment.sim.conformance.runs import outcome_of
from tests.conformance.test_suite import SEEDS as SEEDS_OF_THE_SUITE

SYSTEMS = ("propagation", "dvmrp", "perfect")
# The first entry of each is run at length: it takes the least time.
SEEDS = {"propagation": range(1_000, 1_055), "dvmrp": range(1_000, 1_062), "perfect": range(1_000, 1_070)}
AT_ONCE = 10


def test_there_are_enough_runs():
    runs = Counter(ENTRIES[run.entry].system for run in all_runs(SEEDS_OF_THE_SUITE))
    for system in SYSTEMS:
        assert runs[system] + len(SEEDS[system]) * len(ENTRIES[system].networks) >= 300, system


@pytest.mark.parametrize(
    ("system", "start"), [(system, start) for system in SYSTEMS for start in SEEDS[system][::AT_ONCE]]
)
def test_no_violation(system: str, start: int):
    for seed in SEEDS[system][start - SEEDS[system].start :][:AT_ONCE]:
        for network in ENTRIES[system].networks:
            outcome = outcome_of(Run(system, network, seed))
            assert outcome.violation is None, str(outcome)
