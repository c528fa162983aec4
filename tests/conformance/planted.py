"""A mistake planted in the code: the suite must find it."""

from collections.abc import Callable, Iterable

import pytest

from catchment.sim.conformance.entries import ENTRIES, Run
from catchment.sim.conformance.runs import outcome_of

Plant = Callable[[pytest.MonkeyPatch], None]


def assert_found(plant: Plant, entry: str, seeds: Iterable[int], patch: pytest.MonkeyPatch) -> None:
    """Plants a mistake, and runs an entry in each of its networks with each seed, until a run finds something wrong."""
    plant(patch)
    runs = [Run(entry, network, seed) for seed in seeds for network in ENTRIES[entry].networks]
    if not any(outcome_of(run, shrink=False).violation is not None for run in runs):
        pytest.fail(f"{plant.__name__} was not found in {len(runs)} runs")
