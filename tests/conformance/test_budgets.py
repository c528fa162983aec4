"""The suite with budgets so small that every request is cut into slices, and that posets keep filters apart."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from catchment.model.budget import BudgetSpent
from catchment.node import jobs, sliced
from catchment.routing.poset import poset
from catchment.sim.conformance.entries import ENTRIES, Run
from catchment.sim.conformance.ideals.tables import Ideal
from catchment.sim.conformance.runs import outcome_of
from catchment.sim.simulation import Simulation

SEEDS = (3, 4)
# These announce what is left of a poset: the roots.
WITH_POSET = (
    "siena acyclic",
    "siena hierarchical",
    "siena advertising",
    "siena delegating",
    "siena general",
    "siena hybrid",
)


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The list has how many slices were put off in all."""
    turns: list[int] = []
    for name in ("SLICE_CANCELLED_MAX", "SLICE_COMPARED_MAX"):
        monkeypatch.setattr(sliced, name, 1)
    monkeypatch.setattr(jobs, "SLICE_SAID_MAX", 1)
    turn = jobs.Jobs.turn

    def counted(self: jobs.Jobs) -> None:
        turns.append(1)
        turn(self)

    monkeypatch.setattr(jobs.Jobs, "turn", counted)
    return turns


@pytest.mark.parametrize("entry", ENTRIES)
def test_nobody_sees_half_of_a_job(entry: str, tiny_slices: list[int]) -> None:
    for seed in SEEDS:
        outcome = outcome_of(Run(entry, ENTRIES[entry].networks[-1], seed))
        assert outcome.violation is None, str(outcome)
    assert len(tiny_slices) > 20


class AnyTables(Ideal):
    """Tables may have more than the ideal: what must be delivered is still checked, and that nothing is left over."""

    def __init__(self) -> None:
        pass

    def __call__(self, simulation: Simulation) -> Iterator[str]:
        yield from ()


@pytest.mark.parametrize("entry", WITH_POSET)
@pytest.mark.parametrize("one_in", [1, 2, 3])
def test_nothing_is_lost_or_left_where_filters_are_kept_apart(
    entry: str, one_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers differ in what they keep apart, as they do with tables of different size."""
    calls, place = count(1), poset.Poset._place
    kept_apart = 0

    def some_apart(self, filter):
        nonlocal kept_apart
        if next(calls) % one_in == 0:
            kept_apart += 1
            raise BudgetSpent
        return place(self, filter)

    monkeypatch.setattr(poset.Poset, "_place", some_apart)
    monkeypatch.setitem(ENTRIES, entry, replace(ENTRIES[entry], tables=AnyTables()))
    for seed in SEEDS:
        outcome = outcome_of(Run(entry, ENTRIES[entry].networks[-1], seed))
        assert outcome.violation is None, str(outcome)
    assert kept_apart > 20
