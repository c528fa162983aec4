"""Row ids by cell: the lists that the attribute index of a poset looks up (`poset_index.py`).

A cell is all positions with some leading bits in common. Most cells hold a row or two, so a list is a bare array, with
nothing beside it. A few hold nearly all rows, such as those of an attribute that every filter names. To find a row
there takes time in proportion, and a client that goes takes all its rows out. So what leaves a long list is only
noted; the list is swept when the notes are a fair share of it, or when it is read. Each row that leaves then costs
the same, however long the list. A table of where each row is would do that too, for a hundred bytes a row and list.

The order in a list says nothing; it follows from what was entered, left and read, so it is the same in every run.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias

import numpy as np

POSITION_BITS: Final = 64
# Up to so many rows a list is searched for the one that leaves, in a microsecond or two.
SHORT_MAX: Final = 256
# A longer list is swept when one in so many of its rows has left: so many are looked at for each that leaves.
SWEPT_ONE_IN: Final = 8

RowIds: TypeAlias = "array[int]"
Cell = tuple[int, int]  # how many trailing bits are free, and the bits before them
ROOT_CELL: Final[Cell] = (POSITION_BITS, 0)
_NO_IDS: Final[RowIds] = array("i")


def place_of(position: int, size: int) -> int:
    return position >> size if size < POSITION_BITS else 0


def cell_around(low: int, high: int) -> Cell:
    """The smallest cell that holds both."""
    size = ((low ^ high) & (2**POSITION_BITS - 1)).bit_length()
    return size, place_of(low, size)


class Cells:
    """Lists of row ids. A row is at most once in each; a list that is read must not be kept past the next change."""

    __slots__ = ("_leaving", "_lists")

    def __init__(self) -> None:
        self._lists: dict[int, dict[int, RowIds]] = {}  # by size of cell, then by its leading bits
        self._leaving: dict[Cell, set[int]] = {}  # rows that have left a list and are still in it

    # --- changes ---

    def enter(self, cell: Cell, row_id: int) -> None:
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
        at = ids.index(row_id)
        last = ids.pop()
        if at < len(ids):
            ids[at] = last
        if not ids:
            self._drop(cell)

    def _sweep(self, cell: Cell) -> None:
        """Takes out of a list all that has left it."""
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

    # --- what is in them ---

    def count(self, cell: Cell) -> int:
        ids = self._found(cell)
        return len(ids) - len(self._leaving.get(cell, ())) if self._leaving else len(ids)

    def ids(self, cell: Cell) -> RowIds:
        if cell in self._leaving:
            self._sweep(cell)
        return self._found(cell)

    def around(self, low: int, size_min: int) -> list[RowIds]:
        """The lists of the cells around a position that have at least some size."""
        for size, place in list(self._leaving):
            if size >= size_min and place == place_of(low, size):
                self._sweep((size, place))
        found = (places.get(place_of(low, size)) for size, places in self._lists.items() if size >= size_min)
        return [ids for ids in found if ids is not None]

    def all(self) -> list[RowIds]:
        for cell in list(self._leaving):
            self._sweep(cell)
        return [ids for places in self._lists.values() for ids in places.values()]

    def _found(self, cell: Cell) -> RowIds:
        places = self._lists.get(cell[0])
        return _NO_IDS if places is None else places.get(cell[1], _NO_IDS)
