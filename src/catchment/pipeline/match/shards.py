"""The shards of an index, as a worker process opens them, and what they match.

Inside a worker an id is its *rank*: its place in the sorted order of all ids of the index. Sorting ids is then sorting
numbers, and the texts are needed only for the result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from catchment.errors import LimitError
from catchment.matching import Encoded, Matcher
from catchment.matching.lists import LIST_BYTES_MAX, IdTexts, id_texts_of

Array = np.ndarray[Any, Any]

# The most matches of one Arrow batch: the offsets of its lists have 32 bits.
BATCH_MATCHES_MAX: Final = 1 << 22
# Indexes that one worker process keeps open. Each needs 20 to 36 bytes a subscription for its sorted ids, which
# processes do not share.
INDEXES_OPEN_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class RowMatches:
    """The matches of some rows. Those of row i are `ranks[offsets[i]:offsets[i + 1]]`. A row that is not a notification
    is `bad`, and has none."""

    offsets: Array
    ranks: Array
    bad: Array

    def __len__(self) -> int:
        return len(self.bad)

    def halves(self) -> tuple[RowMatches, RowMatches]:
        half = len(self) // 2
        at = self.offsets[half]
        return (
            RowMatches(self.offsets[: half + 1], self.ranks[:at], self.bad[:half]),
            RowMatches(self.offsets[half:] - at, self.ranks[at:], self.bad[half:]),
        )


@dataclass(frozen=True)
class OpenShards:
    """The open shards of an index, and the sorted ids of all of them."""

    matchers: tuple[Matcher, ...]
    words: IdTexts

    @classmethod
    def of(cls, paths: Sequence[str]) -> OpenShards:
        matchers = tuple(Matcher.open(path) for path in paths)
        # A result knows the tables of ids of its matcher; an empty batch gives one without matching anything.
        words = id_texts_of([table for matcher in matchers for table in matcher.match_batch([]).tables])
        assert words is not None
        return cls(matchers, words)

    @cached_property
    def _views(self) -> Array | None:
        """All ids as Arrow's views of strings, if they are short enough for that."""
        return self.words.views()

    def matches(self, rows: Encoded) -> Iterator[RowMatches]:
        """The matches of rows in all shards, their ids sorted; in several parts if one Arrow batch cannot hold them."""
        by_shard = [matcher.match_batch(rows) for matcher in self.matchers]
        if sum(len(matches.ids) for matches in by_shard) > BATCH_MATCHES_MAX and len(rows) > 1:
            # Split before sorting: the work of sorting would be lost.
            half = len(rows) // 2
            yield from self.matches(rows.slice(0, half))
            yield from self.matches(rows.slice(half, len(rows) - half))
        else:
            yield _without_bad(RowMatches(*self.words.ranked(by_shard), rows.bad))

    def lists(self, matches: RowMatches) -> Iterator[pa.ListArray]:
        """For each row the list of its ids, null for a bad row; in several parts if one Arrow array cannot hold
        them."""
        ids = self.words.listed(matches.offsets, matches.ranks, self._views)
        if ids is not None and matches.bad.any():
            yield pa.ListArray.from_arrays(ids.offsets, ids.values, mask=pa.array(matches.bad))
        elif ids is not None:
            yield ids
        elif len(matches) == 1:
            raise LimitError("LIST_BYTES_MAX", LIST_BYTES_MAX, "one notification with longer ids", "use shorter ids")
        else:
            for half in matches.halves():
                yield from self.lists(half)


def _without_bad(matches: RowMatches) -> RowMatches:
    """The matches without those of bad rows: the kernels match such a row as if it had no attributes."""
    if not matches.bad.any():
        return matches
    counts = np.diff(matches.offsets)
    ranks = matches.ranks[~np.repeat(matches.bad, counts)]
    return RowMatches(np.concatenate([[0], np.cumsum(np.where(matches.bad, 0, counts))]), ranks, matches.bad)


_OPEN: OrderedDict[tuple[tuple[str, int, int], ...], OpenShards] = OrderedDict()


def open_shards(paths: tuple[str, ...]) -> OpenShards:
    """The shards at some paths; a worker process opens them once."""
    # Inode and time are part of the key: somebody may delete an index and make another one at the same path.
    stats = [(Path(path) / "manifest.json").stat() for path in paths]
    key = tuple((path, stat.st_ino, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True))
    if key not in _OPEN:
        _OPEN[key] = OpenShards.of(paths)
        while len(_OPEN) > INDEXES_OPEN_MAX:
            _OPEN.popitem(last=False)
    return _OPEN[key]
