"""Rows of one attribute that stay right while demands come and go: AACS with joined rows, and SACS (§3.1, §4.1).

The text leaves out how summaries are maintained. Here each structure knows all its demands and which row each is in.
So what a wide row has absorbed comes back when the wide demand is gone: the rows are always those that `Aacs.joined`
and `Sacs.of` make from the same demands, whatever the order in which they came. One change takes at most as many steps
as there are demands.

A structure does not hold ids. It says which demands change their row, by calling `moved(demand, before, after)`: None
stands for a row that there was not, or is no more. The owner of the ids (`merged.py`) moves them along.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import TypeVar

from catchment.routing.summary.sacs import Pattern, PatternIndex, generality

D = TypeVar("D")
Range = tuple[int, int]
Moved = Callable[[D, D | None, D | None], None]


class MaintainedAacs:
    """The joined rows of one attribute and kind of values. Demands and rows are ranges of keys."""

    def __init__(self, moved: Moved[Range]) -> None:
        self._moved = moved
        # In rising order: the low ends of rows. By low end: the row, and the demands in it.
        self._lows: list[int] = []
        self._rows: dict[int, tuple[Range, set[Range]]] = {}

    def __iter__(self) -> Iterator[Range]:
        return (self._rows[low][0] for low in self._lows)

    def row_of(self, demand: Range) -> Range:
        """The row that a demand is in."""
        return self._rows[self._lows[bisect_right(self._lows, demand[0]) - 1]][0]

    def add(self, demand: Range) -> None:
        """Adds a demand that was not there."""
        touched = self._overlapping(demand)
        if len(touched) == 1 and touched[0][0][0] <= demand[0] and demand[1] <= touched[0][0][1]:
            # The usual case: it lies in a row, which stays as it is.
            row, members = touched[0]
            members.add(demand)
            self._moved(demand, None, row)
            return
        hull = demand
        members = {demand}
        for (low, high), demands in touched:
            hull = min(hull[0], low), max(hull[1], high)
            members |= demands
        self._moved(demand, None, hull)
        for row, demands in touched:
            self._drop(row)
            if row != hull:
                for other in sorted(demands):
                    self._moved(other, row, hull)
        self._enter(hull, members)

    def remove(self, demand: Range) -> None:
        """Removes a demand that is there."""
        row = self.row_of(demand)
        members = self._rows[row[0]][1]
        members.remove(demand)
        self._moved(demand, row, None)
        self._drop(row)
        for part, demands in _joined(members):
            if part != row:
                for other in sorted(demands):
                    self._moved(other, row, part)
            self._enter(part, demands)

    def _overlapping(self, demand: Range) -> list[tuple[Range, set[Range]]]:
        low, high = demand
        # The row before the first that begins above `low` may reach into the demand.
        first = max(bisect_right(self._lows, low) - 1, 0)
        last = bisect_left(self._lows, high)
        rows = [self._rows[start] for start in self._lows[first:last]]
        return [row for row in rows if row[0][1] > low]

    def _enter(self, row: Range, members: set[Range]) -> None:
        self._lows.insert(bisect_left(self._lows, row[0]), row[0])
        self._rows[row[0]] = (row, members)

    def _drop(self, row: Range) -> None:
        del self._rows[row[0]], self._lows[bisect_left(self._lows, row[0])]


def _joined(demands: set[Range]) -> list[tuple[Range, set[Range]]]:
    """The rows that these demands make, each with its demands."""
    rows: list[tuple[Range, set[Range]]] = []
    for low, high in sorted(demands):
        if rows and low < rows[-1][0][1]:
            (least, greatest), members = rows[-1]
            members.add((low, high))
            rows[-1] = (least, max(greatest, high)), members
        else:
            rows.append(((low, high), {(low, high)}))
    return rows


class MaintainedSacs:
    """The rows of one string attribute. Demands and rows are patterns.

    In the order of `generality`, the row of a pattern depends only on earlier patterns. So after a change, patterns
    whose row may be another are looked at again in that order: each is settled when it is looked at."""

    def __init__(self, moved: Moved[Pattern]) -> None:
        self._moved = moved
        # For each demand the row that it is in; None while that is not known.
        self._row_of: dict[Pattern, Pattern | None] = {}
        # For each row its demands, which include itself.
        self._members: dict[Pattern, set[Pattern]] = {}
        self._index = PatternIndex()

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._members)

    def row_of(self, demand: Pattern) -> Pattern:
        """The row that a demand is in."""
        row = self._row_of[demand]
        assert row is not None
        return row

    def add(self, demand: Pattern) -> None:
        """Adds a demand that was not there."""
        self._row_of[demand] = None
        self._settle([demand])

    def remove(self, demand: Pattern) -> None:
        """Removes a demand that is there."""
        row = self.row_of(demand)
        self._members[row].remove(demand)
        del self._row_of[demand]
        self._moved(demand, row, None)
        if row == demand:
            # What it has absorbed comes back: each of its members finds another row, or is one.
            self._index.discard(row)
            self._settle(self._members.pop(row))

    def _settle(self, patterns: list[Pattern] | set[Pattern]) -> None:
        waiting = [(generality(pattern), pattern) for pattern in patterns]
        heapify(waiting)
        while waiting:
            _, pattern = heappop(waiting)
            for other in self._settled(pattern):
                heappush(waiting, (generality(other), other))

    def _settled(self, pattern: Pattern) -> list[Pattern]:
        """Puts a pattern into its row. Returns the later patterns that may have another row because of it."""
        before = self._row_of[pattern]
        after = self._first_covering(pattern) or pattern
        if after == before:
            return []
        if before is not None and before in self._members:
            self._members[before].discard(pattern)
        affected: list[Pattern] = []
        if before == pattern:
            # It is no row any more: what it stood for goes elsewhere.
            self._index.discard(pattern)
            affected += self._members.pop(pattern)
        elif after == pattern:
            self._index.add(pattern)
            affected += self._later_covered(pattern)
        self._row_of[pattern] = after
        self._members.setdefault(after, set()).add(pattern)
        self._moved(pattern, before, after)
        return affected

    def _first_covering(self, pattern: Pattern) -> Pattern | None:
        """The first row that covers a pattern and comes before it."""
        own = generality(pattern)
        earlier = (row for row in self._index.covering(pattern) if generality(row) < own)
        return min(earlier, key=generality, default=None)

    def _later_covered(self, pattern: Pattern) -> list[Pattern]:
        """The patterns after this one that it covers. A single text covers no other."""
        if pattern.operator == "=":
            return []
        own = generality(pattern)
        return [other for other in self._row_of if pattern.covers(other) and generality(other) > own]
