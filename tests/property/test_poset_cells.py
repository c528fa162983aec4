"""The lists of row ids against plain Python lists, whatever comes, goes and is read; the poset with swept lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.routing.poset import Poset
from catchment.routing.poset import cells as poset_cells
from catchment.routing.poset.cells import ROOT_CELL, SHORT_MAX, Cell, Cells, cell_around

POSITIONS = (0, 1, 5)
CELLS = [(0, 0), (0, 1), (0, 5), (1, 0), (3, 0), ROOT_CELL]

limits = st.tuples(st.integers(0, 4), st.integers(1, 8))
# A row that is in the cell leaves it, another enters.
changes = st.tuples(st.sampled_from(CELLS[-2:]) | st.sampled_from(CELLS), st.integers(0, 7))
reads = st.sampled_from(["ids", "around", "all"])


def read(ids) -> list[int]:
    return sorted(np.frombuffer(ids, np.int32).tolist()) if ids else []


def assert_counts(cells: Cells, slow: dict[Cell, list[int]]) -> None:
    assert [cells.count(cell) for cell in CELLS] == [len(slow[cell]) for cell in CELLS]


def assert_read(cells: Cells, slow: dict[Cell, list[int]], how: str) -> None:
    if how == "ids":
        assert [read(cells.ids(cell)) for cell in CELLS] == [sorted(slow[cell]) for cell in CELLS]
    elif how == "all":
        assert sorted(map(read, cells.all())) == sorted(sorted(ids) for ids in slow.values() if ids)
    else:
        for position in POSITIONS:
            around = [
                cell for cell in CELLS if cell[0] >= 1 and cell_around(position, position)[1] >> cell[0] == cell[1]
            ]
            expected = sorted(sorted(slow[cell]) for cell in around if slow[cell])
            assert sorted(map(read, cells.around(position, 1))) == expected


@given(limits, st.lists(changes | changes | changes | reads, min_size=40, max_size=120))
def test_lists_hold_what_entered_and_did_not_leave(limits, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poset_cells, "SHORT_MAX", limits[0])
        patch.setattr(poset_cells, "SWEPT_ONE_IN", limits[1])
        cells, slow = Cells(), {cell: list[int]() for cell in CELLS}
        for step in steps:
            if isinstance(step, str):
                assert_read(cells, slow, step)
            elif step[1] in slow[step[0]]:
                slow[step[0]].remove(step[1])
                cells.leave(*step)
            else:
                slow[step[0]].append(step[1])
                cells.enter(*step)
            assert_counts(cells, slow)
        for how in ("ids", "around", "all"):
            assert_read(cells, slow, how)
        for cell, ids in slow.items():
            for row_id in ids:
                cells.leave(cell, row_id)
        assert cells.all() == []


@settings(max_examples=20)
@given(st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_list_as_long_as_they_come(times, random):
    rows = range(times * SHORT_MAX + 2)
    cells = Cells()
    for row_id in rows:
        cells.enter(ROOT_CELL, row_id)
    gone = random.sample(rows, len(rows) - 1)
    kept = set(rows)
    for row_id in gone:
        cells.leave(ROOT_CELL, row_id)
        kept.remove(row_id)
        assert cells.count(ROOT_CELL) == len(kept)
        if random.random() < 0.05:
            assert set(read(cells.ids(ROOT_CELL))) == kept
    assert set(read(cells.ids(ROOT_CELL))) == kept


steps_of_stairs = st.builds(
    lambda side, x: Filter.of(("side", "=", side), ("x", ">", x)), st.booleans(), st.integers(0, 6)
)


@given(
    limits, st.lists(steps_of_stairs | st.just(Filter("side any")) | st.just(Filter("true")), min_size=15, max_size=60)
)
def test_posets_are_the_same_whatever_is_swept_when(limits, filters):
    """Each filter that is drawn again leaves."""
    swept, plain = Poset[Filter](), Poset[Filter]()
    for filter in filters:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(poset_cells, "SHORT_MAX", limits[0])
            patch.setattr(poset_cells, "SWEPT_ONE_IN", limits[1])
            _toggle(swept, filter)
        _toggle(plain, filter)
        assert list(swept) == list(plain)
        assert swept.roots == plain.roots
        for member in plain:
            assert swept.successors(member) == plain.successors(member)
            assert swept.predecessors(member) == plain.predecessors(member)


def _toggle(poset: Poset[Filter], filter: Filter) -> None:
    if filter in poset:
        poset.remove(filter)
    else:
        poset.insert(filter)
