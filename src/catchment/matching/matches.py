"""The matches of a batch: offsets and numbers, and, when asked for, the ids that the numbers stand for."""

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
# The ids of so many notifications are looked up together. A lookup for a single notification takes ten times as long as
# its share of a common one.
_ROWS_AT_ONCE: Final = 1_024
# If more subscriptions match on average, it is faster to let a kernel sort the ids of each notification.
_MATCHES_FEW: Final = 48


class Matches(Sequence[list[Id]]):
    """The matches of all notifications of a batch in compressed rows: those of notification i are
    `ids[offsets[i]:offsets[i + 1]]`.

    `ids` holds numbers that have a meaning only within this result. `user_ids` holds the ids they stand for, and
    `matches[i]` is the sorted list of the ids of notification i.
    """

    offsets: Array
    ids: Array

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
            ids = objects[start:end]
            yield ids if end - start < 2 else sorted_ids(ids)

    @property
    def counts(self) -> Array:
        """How many subscriptions match each notification."""
        return np.diff(self.offsets)

    @property
    def user_ids(self) -> Array:
        """The ids in the order of `ids`, as an array of objects."""
        return self._objects(self.ids)

    def _objects(self, numbers: Array) -> Array:
        if len(self._tables) == 1:  # nearly always; this is quick for batches of a few notifications too
            return self._tables[0].objects(numbers)
        ids: Array = np.empty(len(numbers), object)
        segment = np.searchsorted(self._bases, numbers, side="right") - 1
        for i, table in enumerate(self._tables):
            mine = segment == i
            if mine.any():
                ids[mine] = table.objects(numbers[mine] - self._bases[i])
        return ids

    @property
    def tables(self) -> Sequence[Ids]:
        """The ids by number, segment after segment."""
        return self._tables

    def to_arrow(self, sorted: bool = False) -> pa.ListArray:
        """A list of ids for each notification; sorted only if asked for."""
        import pyarrow as pa

        from catchment.matching.lists import LIST_BYTES_MAX, id_texts_of

        texts = id_texts_of(self._tables)
        if texts is None:  # some ids are ints
            return pa.array(list(self))
        ids = texts.lists([self], sorted)
        if ids is None:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "more", "match fewer notifications at once")
        return ids


def joined(parts: Sequence[tuple[Array, Array]], bases: Sequence[int]) -> tuple[Array, Array]:
    """Joins the results of several segments, notification by notification. The base of a segment is added to its
    numbers."""
    if len(parts) == 1 and not bases[0]:
        return parts[0]
    offsets = np.sum([offsets for offsets, _ in parts], axis=0)
    numbers = np.empty(int(offsets[-1]), np.int32)
    before = np.zeros(len(offsets) - 1, np.int64)  # by notification: how many numbers are written already
    for (starts, own), base in zip(parts, bases, strict=True):
        sizes = np.diff(starts)
        shift = np.repeat(offsets[:-1] + before - starts[:-1], sizes)
        numbers[np.arange(len(own)) + shift] = own + np.int32(base)
        before += sizes
    return offsets, numbers
