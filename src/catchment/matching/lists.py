"""Matches as Arrow lists of ids. No Python object is made for an id."""

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
# The largest end of a string or list that Arrow can store in 32 bits.
LIST_BYTES_MAX: Final = 2**31 - 1
# Arrow's view of a string has 16 bytes: its length in 4, and the string itself if the other 12 are enough.
_VIEW_BYTES, _LENGTH_BYTES = 16, 4
VIEWED_BYTES_MAX: Final = _VIEW_BYTES - _LENGTH_BYTES
_STRING: Final = 1


class IdTexts(NamedTuple):
    """The texts of all ids of some tables, in sorted order. The *rank* of an id is its place there."""

    rank_of: Array  # by number, table after table
    starts: Array  # by rank: where the text starts in `blob`
    blob: Array

    def lists(self, results: Sequence[Matches], is_sorted: bool = True) -> pa.ListArray | None:
        """For each notification the ids from all results, which must be of these tables. None if 32 bits are too few
        for the ends of Arrow's lists and strings."""
        if sum(int(matches.offsets[-1]) for matches in results) > LIST_BYTES_MAX:
            return None
        return self.listed(*self.ranked(results, is_sorted))

    def ranked(self, results: Sequence[Matches], is_sorted: bool = True) -> tuple[Array, Array]:
        """The ids of each notification as ranks: where those of each notification begin and end, and the ranks."""
        offsets = np.sum([matches.offsets for matches in results], axis=0)
        ranks = self._ranks(results, offsets)
        if is_sorted:
            spare, counts = np.empty(int(np.diff(offsets).max(initial=0)), I32), np.empty(kl.DIGIT_COUNTS, I64)
            kl.sort_rows(offsets, ranks, max(1, len(self.rank_of) - 1).bit_length(), spare, counts)
        return offsets, ranks

    def listed(self, offsets: Array, ranks: Array, views: Array | None = None) -> pa.ListArray | None:
        """The result of `ranked` as lists of ids. If the result of `views()` is given, the ids are Arrow's views of
        strings, else they are Arrow's strings."""
        if views is None:
            ids = self.texts(ranks)
        else:
            # Every view has 16 bytes, so picking them is ten times as fast as writing texts one after another.
            picked = pa.py_buffer(views.take(ranks, mode="clip"))
            ids = pa.Array.from_buffers(pa.string_view(), len(ranks), [None, picked])
        return None if ids is None else pa.ListArray.from_arrays(pa.array(offsets.astype(I32)), ids)

    def views(self) -> Array | None:
        """All ids, by rank, as Arrow's views of strings; None if one is too long to be inside its view."""
        sizes = np.diff(self.starts)
        if sizes.max(initial=0) > VIEWED_BYTES_MAX:
            return None
        views = np.zeros((len(sizes), _VIEW_BYTES), np.uint8)
        views[:, :_LENGTH_BYTES] = sizes.astype("<i4")[:, np.newaxis].view(np.uint8)
        views[:, _LENGTH_BYTES:][np.arange(VIEWED_BYTES_MAX) < sizes[:, np.newaxis]] = self.blob
        return views.view(f"V{_VIEW_BYTES}").ravel()

    def _ranks(self, results: Sequence[Matches], offsets: Array) -> Array:
        ranks, cursor, base = np.empty(int(offsets[-1]), I32), offsets[:-1].copy(), 0
        for matches in results:
            kl.put_ranks(matches.offsets, matches.ids, self.rank_of[base:], cursor, ranks)
            base += sum(map(len, matches.tables))
        return ranks

    def texts(self, ranks: Array) -> pa.StringArray | None:
        """The ids with these ranks; None if their text is too long for an Arrow array."""
        size = kl.text_bytes(ranks, self.starts)
        if size > LIST_BYTES_MAX:
            return None
        text, ends = np.empty(size, np.uint8), np.zeros(len(ranks) + 1, I32)
        kl.put_texts(ranks, self.blob, self.starts, text, ends)
        return pa.StringArray.from_buffers(len(ranks), pa.py_buffer(ends), pa.py_buffer(text))


_KEPT: WeakKeyDictionary[Ids, IdTexts | None] = WeakKeyDictionary()


def id_texts_of(tables: Sequence[Ids]) -> IdTexts | None:
    """The texts of the ids of some tables; None if an id is no string. Those of a single table are kept as long as the
    table lives."""
    if len(tables) != 1:
        return _id_texts(tables)
    if tables[0] not in _KEPT:
        _KEPT[tables[0]] = _id_texts(tables)
    return _KEPT[tables[0]]


def _id_texts(tables: Sequence[Ids]) -> IdTexts | None:
    if any((np.asarray(table.blob)[table.starts[:-1]] != _STRING).any() for table in tables):
        return None
    whole = pa.concat_arrays([pa.array([], pa.large_string()), *map(_texts, tables)])
    order = pc.array_sort_indices(whole).to_numpy()
    rank = np.empty(len(order), I32)
    rank[order] = np.arange(len(order), dtype=I32)
    _, starts, blob = whole.take(pa.array(order)).buffers()
    return IdTexts(rank, np.frombuffer(starts, I64)[: len(order) + 1], np.frombuffer(blob or b"", np.uint8))


def _texts(ids: Ids) -> pa.Array:
    """The ids of a table by number, without the byte before each that says it is a string."""
    starts = np.asarray(ids.starts)
    is_text = np.ones(len(ids.blob), bool)
    is_text[starts[:-1]] = False
    ends = starts - np.arange(len(starts))
    return pa.Array.from_buffers(
        pa.large_string(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(np.asarray(ids.blob)[is_text])]
    )
