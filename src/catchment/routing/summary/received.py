"""The summary that a neighbor has sent, as it was sent; and Algorithm 1 on it (§3.3).

Each row has the codes of its ids, each id has the names of its attributes (c3). Which attributes of a notification
satisfy a row is found by index: the rows of an AACS do not overlap, so a key is in one at most; `PatternIndex` finds
the patterns that match a text.

Then the text counts, for each id, in how many rows it was found, and compares that with c3. `_counted` does it id by
id. Where many ids were found, `_summed` does the same for all of them at once, with arrays: each id has a *slot*, its
place in an array of counts. The array of slots of a row is made when it is needed, and kept until the row changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from catchment.model.values import Value
from catchment.routing.summary.aacs import VALUE_BYTES, arithmetic_key
from catchment.routing.summary.merged import PairChange
from catchment.routing.summary.rows import EVERYTHING, Names, Pair, PatternRow, RangeRow, RowKey, pairs_of
from catchment.routing.summary.sacs import PatternIndex

# More ids than these are counted with arrays.
COUNTED_MAX: Final = 128
# The bytes of an id in `bytes`: `sid` of the text's table 2.
ID_BYTES: Final = 4

Slots = npt.NDArray[np.int64]


class ReceivedSummary:
    """The rows of one neighbor's summary. `merged_brokers` are the brokers whose subscriptions it has."""

    def __init__(self) -> None:
        self.merged_brokers: set[str] = set()
        self._rows: dict[RowKey, set[int]] = {}
        self._names: dict[int, Names] = {}
        # How many rows each id is in: an id that is in none is forgotten.
        self._rows_count: dict[int, int] = {}
        # How many ids name an attribute of the envelope.
        self._envelope_count = 0
        # The slot of each id, the ids by slot, and slots without an id; for each slot how many attributes its id names.
        self._slots: dict[int, int] = {}
        self._codes: list[int] = []
        self._free: list[int] = []
        self._needs = np.zeros(64, np.uint32)
        self._counts = np.zeros(64, np.uint32)
        self._arrays: dict[RowKey, Slots] = {}
        # By attribute and kind, in rising order: the low ends of rows; and the rows by low end.
        self._lows: dict[tuple[str, str], list[int]] = {}
        self._ranges: dict[tuple[str, str], dict[int, RangeRow]] = {}
        self._patterns: dict[str, PatternIndex] = {}
        self.pairs_count = 0
        # Rows found and ids collected while matching: what T1 and T2 of §5.2.4 count.
        self.looked_up = 0

    def __len__(self) -> int:
        """How many ids there are."""
        return len(self._names)

    def __contains__(self, pair: Pair) -> bool:
        row, code = pair
        return code in self._rows.get(row, ())

    def rows(self) -> Iterator[tuple[RowKey, Iterable[int]]]:
        """All rows with their ids. Not a copy."""
        return iter(self._rows.items())

    def pairs(self) -> Iterator[Pair]:
        return pairs_of(self._rows.items())

    def names_of(self, code: int) -> Names | None:
        """The attributes of an id, if it is here."""
        return self._names.get(code)

    @property
    def names_envelope(self) -> bool:
        """Whether some subscription names a field of the envelope: then the attributes do not decide alone."""
        return self._envelope_count > 0

    @property
    def bytes(self) -> int:
        """About as the text counts: the ends of ranges, the characters of patterns, and 4 bytes for each id."""
        return sum(_row_bytes(row) for row in self._rows) + self.pairs_count * ID_BYTES

    # --- changes ---

    def count_of(self, row: RowKey) -> int:
        """How many ids a row has."""
        return len(self._rows.get(row, ()))

    def beside(self, row: RangeRow, without: Container[RowKey]) -> Iterator[RangeRow]:
        """The row that begins last before this one, or with it, and the row that begins first after it; leaving out
        some. One of these overlaps it if any row does."""
        lows = self._lows.get((row.name, row.kind), [])
        rows = self._ranges.get((row.name, row.kind), {})
        at = bisect_right(lows, row.low)
        for place in range(at - 1, -1, -1):
            if rows[lows[place]] not in without:
                yield rows[lows[place]]
                break
        for place in range(at, len(lows)):
            if rows[lows[place]] not in without:
                yield rows[lows[place]]
                break

    def change(self, pairs: PairChange, names: Mapping[int, Names]) -> None:
        """Pairs come and go. `names` has the attributes of ids that are new, or have other attributes now."""
        for row, code in pairs.gone:
            self._remove(row, code)
        for code, its_names in names.items():
            self._rename(code, its_names)
        for row, code in pairs.new:
            self._add(row, code)
        for code in {code for _, code in pairs.gone} | names.keys():
            if not self._rows_count.get(code):
                self._rows_count.pop(code, None)
                self._rename(code, None)

    def _rename(self, code: int, names: Names | None) -> None:
        """An id has these attributes from now on; None if it is gone."""
        before = self._names.pop(code, None)
        if before is not None:
            self._envelope_count -= _names_envelope(before)
        if names is not None:
            self._names[code] = names
            self._envelope_count += _names_envelope(names)
            # First the slot: giving one may replace the array.
            slot = self._slot(code)
            self._needs[slot] = len(names)
        elif code in self._slots:
            self._free.append(self._slots.pop(code))

    def _slot(self, code: int) -> int:
        slot = self._slots.get(code)
        if slot is None:
            if self._free:
                slot = self._free.pop()
                self._codes[slot] = code
            else:
                slot = len(self._codes)
                self._codes.append(code)
            self._slots[code] = slot
            if slot >= len(self._needs):
                self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
                self._counts = np.zeros_like(self._needs)
        return slot

    def _add(self, row: RowKey, code: int) -> None:
        if row not in self._rows:
            self._rows[row] = set()
            self._enter(row)
        self._rows[row].add(code)
        self._arrays.pop(row, None)
        self._rows_count[code] = self._rows_count.get(code, 0) + 1
        self.pairs_count += 1

    def _remove(self, row: RowKey, code: int) -> None:
        self._rows[row].remove(code)
        self._arrays.pop(row, None)
        self._rows_count[code] -= 1
        self.pairs_count -= 1
        if not self._rows[row]:
            del self._rows[row]
            self._leave(row)

    def _enter(self, row: RowKey) -> None:
        if isinstance(row, RangeRow):
            lows = self._lows.setdefault((row.name, row.kind), [])
            lows.insert(bisect_left(lows, row.low), row.low)
            self._ranges.setdefault((row.name, row.kind), {})[row.low] = row
        elif isinstance(row, PatternRow):
            self._patterns.setdefault(row.name, PatternIndex()).add(row.pattern)

    def _leave(self, row: RowKey) -> None:
        if isinstance(row, RangeRow):
            lows = self._lows[row.name, row.kind]
            del lows[bisect_left(lows, row.low)], self._ranges[row.name, row.kind][row.low]
            if not lows:
                del self._lows[row.name, row.kind], self._ranges[row.name, row.kind]
        elif isinstance(row, PatternRow):
            self._patterns[row.name].discard(row.pattern)
            if not self._patterns[row.name]:
                del self._patterns[row.name]

    # --- Algorithm 1 ---

    def match(self, values: Mapping[str, Value]) -> set[int]:
        """The ids of the subscriptions that a notification may match."""
        satisfied = [rows for name, value in values.items() if (rows := list(self._satisfied(name, value)))]
        found = sum(len(self._rows[row]) for rows in satisfied for row in rows)
        self.looked_up += sum(map(len, satisfied)) + found
        few = found <= COUNTED_MAX or not satisfied
        matches = self._counted(satisfied) if few else self._summed(satisfied)
        return matches | self._rows.get(EVERYTHING, set())

    def _satisfied(self, name: str, value: Value) -> Iterator[RowKey]:
        """Step 1 for one attribute: the rows that the value satisfies."""
        if isinstance(value, str):
            if name in self._patterns:
                yield from (PatternRow(name, pattern) for pattern in self._patterns[name].matching(value))
            return
        kind, key = arithmetic_key(value)
        lows = self._lows.get((name, kind))
        if lows:
            at = bisect_right(lows, key) - 1
            if at >= 0 and key < (row := self._ranges[name, kind][lows[at]]).high:
                yield row

    def _counted(self, satisfied: Iterable[list[RowKey]]) -> set[int]:
        """Step 2 as the text has it. Each element is for one attribute."""
        counters: Counter[int] = Counter()
        for rows in satisfied:
            # An id may be in two rows of one attribute: that counts once, as c3 does.
            counters.update(set().union(*(self._rows[row] for row in rows)))
        return {code for code, count in counters.items() if count == len(self._names[code])}

    def _summed(self, satisfied: Iterable[list[RowKey]]) -> set[int]:
        counts, needs = self._counts, self._needs
        slots = [self._array(rows) for rows in satisfied]
        for some in slots:
            # A slot is in the array of an attribute once, so adding by index is right.
            counts[some] += 1
        matches = np.unique(np.concatenate([some[counts[some] == needs[some]] for some in slots]))
        for some in slots:
            counts[some] = 0
        return {self._codes[slot] for slot in matches.tolist()}

    def _array(self, rows: Sequence[RowKey]) -> Slots:
        """The slots of the ids of some rows, each once."""
        arrays = [self._kept_array(row) for row in rows]
        return arrays[0] if len(arrays) == 1 else np.unique(np.concatenate(arrays))

    def _kept_array(self, row: RowKey) -> Slots:
        array = self._arrays.get(row)
        if array is None:
            codes = self._rows[row]
            array = np.fromiter(map(self._slots.__getitem__, codes), np.int64, len(codes))
            self._arrays[row] = array
        return array


def _names_envelope(names: Names) -> bool:
    return any(name.startswith("$") for name in names)


def _row_bytes(row: RowKey) -> int:
    match row:
        case RangeRow(_, kind, low, high):
            return VALUE_BYTES[kind] * (1 if high == low + 1 else 2)
        case PatternRow(_, pattern):
            return len(pattern.operand)
        case _:
            return 0
