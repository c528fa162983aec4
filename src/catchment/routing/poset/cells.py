"""Cells: lists of row ids, which the attribute index of a poset looks up (`index.py`).

A *position* is a 64-bit integer (`codes.py`). A *cell* is the set of all positions that have the same leading bits; its
*size* is the number of trailing bits that are free. Each cell has a list of row ids.

Most lists have a row or two, so a list is a bare array with no further structure. A few lists have nearly all rows,
such as the list of an attribute that every filter names. To find a row in a long list takes time in proportion to its
length, and a client that goes takes all its rows out. So a row that leaves a long list is only noted. The list is
*swept* (the noted rows are taken out) when the notes are a fair share of it, or when it is read. So the cost of a row
that leaves does not depend on the length of the list. A table of the place of each row would do that too, but needs a
hundred bytes for each row and list.

The order of a list has no meaning. It depends only on what was entered, taken out and read, so it is the same in every
run.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias

import numpy as np

POSITION_BITS: Final = 64
# A list of up to so many rows is searched for a row that leaves, which takes a microsecond or two.
SHORT_MAX: Final = 256
# A longer list is swept when one in so many of its rows has left: so a sweep looks at so many rows for each that
# leaves.
SWEPT_ONE_IN: Final = 8

RowIds: TypeAlias = "array[int]"
Cell = tuple[int, int]  # the size, and the place: the leading bits
ROOT_CELL: Final[Cell] = (POSITION_BITS, 0)
_NO_IDS: Final[RowIds] = array("i")


def place_of(position: int, size: int) -> int:
    """The place of the cell of that size around a position."""
    # The whole range is one cell: a shift by 64 would leave -1 for negative positions.
    return position >> size if size < POSITION_BITS else 0


def cell_around(low: int, high: int) -> Cell:
    """The smallest cell that has both positions."""
    # Both positions agree in all bits before the first that differs. The mask makes a negative result one of 64 bits.
    size = ((low ^ high) & (2**POSITION_BITS - 1)).bit_length()
    return size, place_of(low, size)


class Cells:
    """Lists of row ids by cell. A row is in each list at most once. A list that was read must not be used after the
    next change."""

    __slots__ = ("_leaving", "_lists")

    def __init__(self) -> None:
        self._lists: dict[int, dict[int, RowIds]] = {}  # by size of the cell, then by its place
        self._leaving: dict[Cell, set[int]] = {}  # rows that have left a list and are still in the array

    # --- changes ---

    def enter(self, cell: Cell, row_id: int) -> None:
        # A row that left and is still in the array must not be appended again: it is taken back.
        if self._leaving and row_id in self._leaving.get(cell, ()):
            self._leaving[cell].remove(row_id)
            return
        size, place = cell
        places = self._lists.get(size)
        if places is None:
            places = self._lists[size] = {}
        ids = places.get(place)
        if ids is None:
            ids = places[place] = array("i")
        ids.append(row_id)

    def leave(self, cell: Cell, row_id: int) -> None:
        ids = self._lists[cell[0]][cell[1]]
        if len(ids) > SHORT_MAX:
            leaving = self._leaving.setdefault(cell, set())
            leaving.add(row_id)
            if len(leaving) * SWEPT_ONE_IN >= len(ids):
                self._sweep(cell)
            return
        # The last row takes the place of the one that leaves.
        at = ids.index(row_id)
        last = ids.pop()
        if at < len(ids):
            ids[at] = last
        if not ids:
            self._drop(cell)

    def _sweep(self, cell: Cell) -> None:
        """Takes all rows that have left a list out of the array."""
        leaving = self._leaving.pop(cell)
        ids = np.frombuffer(self._lists[cell[0]][cell[1]], np.int32)
        kept = ids[np.isin(ids, np.fromiter(leaving, np.int32, len(leaving)), invert=True)]
        if kept.size:
            self._lists[cell[0]][cell[1]] = array("i", kept.tobytes())
        else:
            self._drop(cell)

    def _drop(self, cell: Cell) -> None:
        places = self._lists[cell[0]]
        del places[cell[1]]
        if not places:
            del self._lists[cell[0]]

    # --- reading ---

    def count(self, cell: Cell) -> int:
        ids = self._found(cell)
        return len(ids) - len(self._leaving.get(cell, ())) if self._leaving else len(ids)

    def ids(self, cell: Cell) -> RowIds:
        if cell in self._leaving:
            self._sweep(cell)
        return self._found(cell)

    def around(self, low: int, size_min: int) -> list[RowIds]:
        """The lists of the cells around a position whose size is at least `size_min`."""
        for size, place in list(self._leaving):
            if size >= size_min and place == place_of(low, size):
                self._sweep((size, place))
        lists = (places.get(place_of(low, size)) for size, places in self._lists.items() if size >= size_min)
        return [ids for ids in lists if ids is not None]

    def all(self) -> list[RowIds]:
        for cell in list(self._leaving):
            self._sweep(cell)
        return [ids for places in self._lists.values() for ids in places.values()]

    def _found(self, cell: Cell) -> RowIds:
        places = self._lists.get(cell[0])
        return _NO_IDS if places is None else places.get(cell[1], _NO_IDS)
