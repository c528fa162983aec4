"""Every routing system in some hundred short runs: those of `test_suite.py` are longer, and fewer."""

import pytest

from catchment.routing.systems import SYSTEMS
from catchment.sim.conformance.entries import short_runs
from catchment.sim.conformance.runs import outcome_of

# Of each system; fewer of those whose runs have found nothing for a long time.
RUNS_MIN = 300
RUNS_OF_THE_OLDEST = 60
OLDEST = {name for name in SYSTEMS if name.startswith("siena")} | {"flooding", "centralized"}
AT_ONCE = 60


def runs_count(system: str) -> int:
    return RUNS_OF_THE_OLDEST if system in OLDEST else RUNS_MIN


PARTS = [(system, start) for system in SYSTEMS for start in range(0, runs_count(system), AT_ONCE)]


@pytest.mark.parametrize(("system", "start"), PARTS)
def test_no_violation(system: str, start: int):
    runs = short_runs(system, runs_count(system), from_seed=1_000)[start : start + AT_ONCE]
    outcomes = [outcome_of(run) for run in runs]
    for outcome in outcomes:
        assert outcome.violation is None, str(outcome)
    # Some networks lose the only link that mattered.
    assert sum(outcome.deliveries for outcome in outcomes) > 5 * len(outcomes)
