"""Folded values in a batch of notifications: what constraints that ignore case are compared with.

Only attributes that such a constraint names are folded, and a segment without one does not come here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from catchment.matching.kernels import folding as kf
from catchment.matching.kernels.tables import A_NAME, A_NAME_LENGTH, Entries, Tables
from catchment.matching.packing import FOLDED
from catchment.model.folding import fold_table

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64


@cache
def _fold_arrays() -> tuple[Array, Array]:
    pairs = sorted(fold_table().items())
    return np.array([code for code, _ in pairs], I32), np.array([to for _, to in pairs], I32)


class FoldedNames:
    """The attributes of an index whose folded values are wanted."""

    def __init__(self, tables: Tables) -> None:
        places = tables.attributes[:-1, [A_NAME, A_NAME_LENGTH]].tolist()
        names = [tables.blob[start : start + length].tobytes() for start, length in places]
        prefix = FOLDED.encode()
        self._folded = [name for name in names if name.startswith(prefix)]
        bare = [name[len(prefix) :] for name in self._folded]
        ends = np.cumsum([0, *map(len, bare)])
        self._wanted = np.array([(ends[i], len(name)) for i, name in enumerate(bare)], I64).reshape(-1, 2)
        self._blob = np.frombuffer(b"".join(bare) or b"\0", np.uint8)

    def __len__(self) -> int:
        return len(self._folded)

    def added_to(self, entries: Entries) -> Entries:
        """The same notifications with the folded values of their strings under the folded names."""
        fold_of = np.empty(len(entries.names), I32)
        if not kf.find_names(entries.names, entries.buffer, self._wanted, self._blob, fold_of):
            return entries
        first, last = int(entries.starts[0]), int(entries.starts[-1])
        totals = np.zeros(2, I64)
        kf.count_folded(entries.name_of, entries.type_of, entries.key_of, first, last, fold_of, totals)
        count, size, written = last - first + int(totals[0]), len(entries.buffer), sum(map(len, self._folded))
        # A folded character may take one byte more than it had in two.
        buffer = np.empty(size + written + 2 * int(totals[1]), np.uint8)
        buffer[:size] = entries.buffer
        names = np.concatenate((entries.names, np.empty((len(self._folded), 2), I64)))
        at = size
        for i, name in enumerate(self._folded):
            buffer[at : at + len(name)] = np.frombuffer(name, np.uint8)
            names[len(entries.names) + i] = at, len(name)
            at += len(name)
        grown = Entries(
            np.empty(len(entries.starts), I64),
            np.empty(count, I32),
            np.empty(count, np.int8),
            np.empty(count, I64),
            np.empty(count, I64),
            names,
            buffer,
            np.empty(len(names), I32),
            np.empty(max(len(buffer), len(entries.text)), np.uint8),
        )
        kf.add_folded(
            *entries[:5], entries.buffer, fold_of, len(entries.names), *_fold_arrays(), at, *grown[:5], grown.buffer
        )
        return grown
