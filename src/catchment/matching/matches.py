"""What a batch matched: offsets and numbers, and the ids they stand for when asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from catchment.errors import LimitError
from catchment.matching.ids import Id, Ids, sorted_ids

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
# Notifications whose ids are made together: a look at one costs ten times as much as a place among many.
_ROWS_AT_ONCE: Final = 1_024
# Where more match on average, kernels sort them faster, one notification at a time.
_MATCHES_FEW: Final = 48


class Matches(Sequence[list[Id]]):
    """Compressed rows: the matches of notification i are `ids[offsets[i]:offsets[i + 1]]`.

    `ids` holds numbers that mean something only within this result; `user_ids` the ids they stand for, and
    `matches[i]` those of one notification, sorted.
    """

    def __init__(self, offsets: Array, ids: Array, tables: Sequence[Ids]) -> None:
        self.offsets, self.ids, self._tables = offsets, ids, tables
        self._bases = list(accumulate(map(len, tables), initial=0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        numbers = self.ids[self.offsets[at] : self.offsets[at + 1]]
        if len(self._tables) == 1:
            return self._tables[0].sorted(numbers)
        return sorted_ids(self._objects(numbers).tolist())

    def __iter__(self) -> Iterator[list[Id]]:
        if len(self.ids) > _MATCHES_FEW * len(self):
            return (self[i] for i in range(len(self)))
        return chain.from_iterable(map(self._rows, range(0, len(self), _ROWS_AT_ONCE)))

    def _rows(self, first: int) -> Iterator[list[Id]]:
        ends = self.offsets[first : first + _ROWS_AT_ONCE + 1]
        objects = self._objects(self.ids[ends[0] : ends[-1]]).tolist()
        for start, end in pairwise((ends - ends[0]).tolist()):
            found = objects[start:end]
            yield found if end - start < 2 else sorted_ids(found)

    @property
    def counts(self) -> Array:
        """How many matched each notification."""
        return np.diff(self.offsets)

    @property
    def user_ids(self) -> Array:
        """The ids in the order of `ids`, as an array of objects."""
        return self._objects(self.ids)

    def _objects(self, numbers: Array) -> Array:
        if len(self._tables) == 1:  # nearly always, and a batch may be of a few notifications only
            return self._tables[0].objects(numbers)
        found: Array = np.empty(len(numbers), object)
        segment = np.searchsorted(self._bases, numbers, side="right") - 1
        for i, table in enumerate(self._tables):
            mine = segment == i
            if mine.any():
                found[mine] = table.objects(numbers[mine] - self._bases[i])
        return found

    @property
    def tables(self) -> Sequence[Ids]:
        """The ids by number, segment after segment."""
        return self._tables

    def to_arrow(self, sorted: bool = False) -> pa.ListArray:
        """A list of ids for each notification, in no order unless it is asked for."""
        import pyarrow as pa

        from catchment.matching.lists import LIST_BYTES_MAX, words_of

        words = words_of(self._tables)
        if words is None:  # some are ints
            return pa.array(list(self))
        ids = words.lists([self], sorted)
        if ids is None:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "more", "match fewer notifications at once")
        return ids


def joined(parts: Sequence[tuple[Array, Array]], bases: Sequence[int]) -> tuple[Array, Array]:
    """The results of several segments as one: notification by notification, numbers raised by their bases."""
    if len(parts) == 1 and not bases[0]:
        return parts[0]
    offsets = np.sum([offsets for offsets, _ in parts], axis=0)
    numbers = np.empty(int(offsets[-1]), np.int32)
    before = np.zeros(len(offsets) - 1, np.int64)
    for (starts, found), base in zip(parts, bases, strict=True):
        sizes = np.diff(starts)
        shift = np.repeat(offsets[:-1] + before - starts[:-1], sizes)
        numbers[np.arange(len(found)) + shift] = found + np.int32(base)
        before += sizes
    return offsets, numbers
