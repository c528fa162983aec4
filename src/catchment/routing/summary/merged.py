"""The merged summary of a broker: its own subscriptions and those that some neighbors have summarized (§4.1).

What goes in are pairs of a demand and an id: those of our own subscriptions, and the rows of neighbors as they were
sent, whose rows count as demands. What comes out are pairs of a row and an id. Nothing is forgotten on the way in, so
taking pairs out again undoes their effect exactly: when A's `m*t` is gone, B's `microsoft` is a row again.

`flush` says which pairs have come and gone since it was last called. A neighbor is sent only those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from catchment.routing.summary.maintained import D, MaintainedAacs, MaintainedSacs, Range
from catchment.routing.summary.rows import EVERYTHING, Pair, PatternRow, RangeRow, RowKey


@dataclass(frozen=True, slots=True)
class PairChange:
    """The pairs that have gone and those that have come."""

    gone: list[Pair]
    new: list[Pair]

    def __bool__(self) -> bool:
        return bool(self.gone or self.new)


class MergedSummary:
    """Demands with their ids, and the rows that they make."""

    def __init__(self) -> None:
        # By demand: how often each id asks for it. Two neighbors may both name an id for a moment, when the broker that
        # it belongs to has just begun to send its summary to another.
        self._asked: dict[RowKey, dict[int, int]] = {}
        # By row: how many demands of each id are in it.
        self._rows: dict[RowKey, dict[int, int]] = {}
        self._ranges: dict[tuple[str, str], MaintainedAacs] = {}
        self._patterns: dict[str, MaintainedSacs] = {}
        # By pair that was touched since the last flush: whether it was there then.
        self._was_there: dict[Pair, bool] = {}
        self._pairs_count = 0

    def __len__(self) -> int:
        """How many pairs there are."""
        return self._pairs_count

    def rows(self) -> Iterator[tuple[RowKey, Iterable[int]]]:
        """All rows with their ids. Not a copy."""
        return ((row, codes.keys()) for row, codes in self._rows.items())

    # --- demands ---

    def add(self, pairs: Iterable[Pair]) -> None:
        for demand, code in pairs:
            codes = self._asked.get(demand)
            if codes is None:
                codes = self._asked[demand] = {}
                self._enter(demand)
            codes[code] = codes.get(code, 0) + 1
            if codes[code] == 1:
                self._count(self._row_of(demand), code, 1)

    def remove(self, pairs: Iterable[Pair]) -> None:
        """Takes out pairs that were added."""
        for demand, code in pairs:
            codes = self._asked[demand]
            codes[code] -= 1
            if codes[code]:
                continue
            self._count(self._row_of(demand), code, -1)
            del codes[code]
            if not codes:
                self._leave(demand)
                del self._asked[demand]

    def _enter(self, demand: RowKey) -> None:
        match demand:
            case RangeRow(name, kind, low, high):
                if (name, kind) not in self._ranges:
                    self._ranges[name, kind] = MaintainedAacs(partial(self._moved, partial(_range_row, name, kind)))
                self._ranges[name, kind].add((low, high))
            case PatternRow(name, pattern):
                if name not in self._patterns:
                    self._patterns[name] = MaintainedSacs(partial(self._moved, partial(PatternRow, name)))
                self._patterns[name].add(pattern)
            case _:
                pass

    def _leave(self, demand: RowKey) -> None:
        match demand:
            case RangeRow(name, kind, low, high):
                self._ranges[name, kind].remove((low, high))
                if next(iter(self._ranges[name, kind]), None) is None:
                    del self._ranges[name, kind]
            case PatternRow(name, pattern):
                self._patterns[name].remove(pattern)
                if next(iter(self._patterns[name]), None) is None:
                    del self._patterns[name]
            case _:
                pass

    def _row_of(self, demand: RowKey) -> RowKey:
        match demand:
            case RangeRow(name, kind, low, high):
                return _range_row(name, kind, self._ranges[name, kind].row_of((low, high)))
            case PatternRow(name, pattern):
                return PatternRow(name, self._patterns[name].row_of(pattern))
            case _:
                return EVERYTHING

    # --- rows ---

    def _moved(self, key: Callable[[D], RowKey], demand: D, before: D | None, after: D | None) -> None:
        """The ids of a demand go to another row."""
        for code in self._asked.get(key(demand), ()):
            # A demand that comes has no ids yet, and one that goes has none any more.
            assert before is not None
            assert after is not None
            self._count(key(after), code, 1)
            self._count(key(before), code, -1)

    def _count(self, row: RowKey, code: int, step: int) -> None:
        codes = self._rows.setdefault(row, {})
        count = codes.get(code, 0)
        if not count or count + step == 0:
            # The pair comes or goes.
            self._was_there.setdefault((row, code), bool(count))
            self._pairs_count += step
        if count + step:
            codes[code] = count + step
        else:
            del codes[code]
            if not codes:
                del self._rows[row]

    # --- changes ---

    @property
    def has_changes(self) -> bool:
        """Whether pairs were touched since the last flush; perhaps they are as they were."""
        return bool(self._was_there)

    def flush(self) -> PairChange:
        gone, new = [], []
        for (row, code), was_there in self._was_there.items():
            is_there = code in self._rows.get(row, ())
            if was_there and not is_there:
                gone.append((row, code))
            elif is_there and not was_there:
                new.append((row, code))
        self._was_there.clear()
        return PairChange(gone, new)


def _range_row(name: str, kind: str, range: Range) -> RangeRow:
    return RangeRow(name, kind, *range)
