"""Matches as Arrow lists of ids, without a Python object for an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.matching.ids import Ids
from catchment.matching.kernels import lists as kl

if TYPE_CHECKING:
    from catchment.matching.matches import Matches

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# What 32-bit ends of Arrow's strings and lists can say.
LIST_BYTES_MAX: Final = 2**31 - 1
# Arrow's view of a string: its length in 4 bytes, and the string itself if it has no more than the other 12.
_VIEW_BYTES, _LENGTH_BYTES = 16, 4
VIEWED_BYTES_MAX: Final = _VIEW_BYTES - _LENGTH_BYTES
_STRING: Final = 1


class Words(NamedTuple):
    """The ids of some tables in sorted order, and the place of each number there, table after table."""

    rank_of: Array
    starts: Array
    blob: Array

    def lists(self, found: Sequence[Matches], is_sorted: bool = True) -> pa.ListArray | None:
        """For each notification the ids from all results, whose tables these are; None where 32 bits are too few for
        the ends of Arrow's lists and strings."""
        if sum(int(one.offsets[-1]) for one in found) > LIST_BYTES_MAX:
            return None
        return self.listed(*self.ranked(found, is_sorted))

    def ranked(self, found: Sequence[Matches], is_sorted: bool = True) -> tuple[Array, Array]:
        """The ids of each notification as their places here: where those of each begin and end, and the places."""
        offsets = np.sum([one.offsets for one in found], axis=0)
        ranks = self._ranks(found, offsets)
        if is_sorted:
            spare, counts = np.empty(int(np.diff(offsets).max(initial=0)), I32), np.empty(kl.DIGIT_COUNTS, I64)
            kl.sort_rows(offsets, ranks, max(1, len(self.rank_of) - 1).bit_length(), spare, counts)
        return offsets, ranks

    def listed(self, offsets: Array, ranks: Array, views: Array | None = None) -> pa.ListArray | None:
        """What `ranked` gave, as ids: as Arrow's views of strings if given those of all, else as its strings."""
        if views is None:
            ids = self.texts(ranks)
        else:
            # Ten times as fast as to put texts one after another: an id is 16 bytes, wherever it stands.
            picked = pa.py_buffer(views.take(ranks, mode="clip"))
            ids = pa.Array.from_buffers(pa.string_view(), len(ranks), [None, picked])
        return None if ids is None else pa.ListArray.from_arrays(pa.array(offsets.astype(I32)), ids)

    def views(self) -> Array | None:
        """All ids as Arrow's views of strings; None where one is too long to stand in its view."""
        sizes = np.diff(self.starts)
        if sizes.max(initial=0) > VIEWED_BYTES_MAX:
            return None
        found = np.zeros((len(sizes), _VIEW_BYTES), np.uint8)
        found[:, :_LENGTH_BYTES] = sizes.astype("<i4")[:, np.newaxis].view(np.uint8)
        found[:, _LENGTH_BYTES:][np.arange(VIEWED_BYTES_MAX) < sizes[:, np.newaxis]] = self.blob
        return found.view(f"V{_VIEW_BYTES}").ravel()

    def _ranks(self, found: Sequence[Matches], offsets: Array) -> Array:
        ranks, cursor, base = np.empty(int(offsets[-1]), I32), offsets[:-1].copy(), 0
        for one in found:
            kl.put_ranks(one.offsets, one.ids, self.rank_of[base:], cursor, ranks)
            base += sum(map(len, one.tables))
        return ranks

    def texts(self, ranks: Array) -> pa.StringArray | None:
        """The ids at some places."""
        size = kl.text_bytes(ranks, self.starts)
        if size > LIST_BYTES_MAX:
            return None
        text, ends = np.empty(size, np.uint8), np.zeros(len(ranks) + 1, I32)
        kl.put_texts(ranks, self.blob, self.starts, text, ends)
        return pa.StringArray.from_buffers(len(ranks), pa.py_buffer(ends), pa.py_buffer(text))


_KEPT: WeakKeyDictionary[Ids, Words | None] = WeakKeyDictionary()


def words_of(tables: Sequence[Ids]) -> Words | None:
    """None where an id is no string. Those of a single table are kept with it."""
    if len(tables) != 1:
        return _words(tables)
    if tables[0] not in _KEPT:
        _KEPT[tables[0]] = _words(tables)
    return _KEPT[tables[0]]


def _words(tables: Sequence[Ids]) -> Words | None:
    if any((np.asarray(one.blob)[one.starts[:-1]] != _STRING).any() for one in tables):
        return None
    whole = pa.concat_arrays([pa.array([], pa.large_string()), *map(_texts, tables)])
    order = pc.array_sort_indices(whole).to_numpy()
    rank = np.empty(len(order), I32)
    rank[order] = np.arange(len(order), dtype=I32)
    _, starts, blob = whole.take(pa.array(order)).buffers()
    return Words(rank, np.frombuffer(starts, I64)[: len(order) + 1], np.frombuffer(blob or b"", np.uint8))


def _texts(ids: Ids) -> pa.Array:
    """The ids of a table by number; each begins with a byte that says it is a string."""
    starts = np.asarray(ids.starts)
    is_text = np.ones(len(ids.blob), bool)
    is_text[starts[:-1]] = False
    ends = starts - np.arange(len(starts))
    return pa.Array.from_buffers(
        pa.large_string(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(np.asarray(ids.blob)[is_text])]
    )
