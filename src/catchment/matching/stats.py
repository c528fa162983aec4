"""Figures about a matcher: what it holds, and what it could not index well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from catchment.matching.index import LEAF_ROWS
from catchment.matching.kernels.tables import Tables
from catchment.matching.kernels.tree import G_CLASS, G_FLAT, G_NODE, PATTERN
from catchment.matching.segment import Segment

Array = np.ndarray[Any, Any]
# To try so many rows takes about a microsecond, as much as everything else in a small match.
WIDE_TRIED_MIN: Final = 16 * LEAF_ROWS


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts over all segments. A *row* is a conjunction as the index holds it (`x in (…)` may take several)."""

    subscriptions: int
    pending: int
    removed: int  # subscriptions that are removed, but still take space in a segment
    segments: tuple[int, ...]
    conjunctions: int
    constraints: int
    rows: int
    nodes: int
    bytes: int
    # Rows that no selective test leads to: every notification, or every one that has some attribute, tries them all.
    scanned_rows: int
    # The most rows that a single node tries one by one.
    scan_max: int
    # Rows with tests left behind many wide intervals of the same attribute: a value that lies in half of the intervals
    # tries half of the rows. Many filters like `kind = "trade" and x > … and y < …` with the same kind are an example.
    wide_rows: int
    # The most rows that a value tries on average behind the intervals of one attribute out of a single node.
    wide_max: int

    @property
    def bytes_per_subscription(self) -> float:
        return self.bytes / max(1, self.subscriptions)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bytes_per_subscription": round(self.bytes_per_subscription, 1)}


def stats_of(segments: Sequence[Segment], pending: Sequence[object], count: int) -> Stats:
    scans = [_scans(segment) for segment in segments]
    wides = [_wide(segment.tables) for segment in segments]
    return Stats(
        subscriptions=count,
        pending=len(pending),
        removed=sum(segment.dead for segment in segments),
        segments=tuple(segment.count for segment in segments),
        conjunctions=sum(len(segment.source.conjunction_starts) - 1 for segment in segments),
        constraints=sum(len(segment.source.starts) - 1 for segment in segments),
        rows=sum(len(segment.tables.row_runs) - 1 for segment in segments),
        nodes=sum(len(segment.tables.node_low) for segment in segments),
        bytes=sum(segment.bytes_used for segment in segments),
        scanned_rows=sum(rows for rows, _ in scans),
        scan_max=max((most for _, most in scans), default=0),
        wide_rows=sum(rows for rows, _ in wides),
        wide_max=max((most for _, most in wides), default=0),
    )


def _scans(segment: Segment) -> tuple[int, int]:
    """How many rows are verified one by one in nodes larger than a leaf, and the most in a single node."""
    of_node = _to_verify(segment.tables)
    return int(of_node[of_node > LEAF_ROWS].sum()), int(of_node.max(initial=0))


def _to_verify(tables: Tables) -> Array:
    """By node, how many of the rows that it verifies itself have tests left."""
    before = np.zeros(len(tables.row_tests), np.int64)
    np.cumsum(np.diff(tables.row_tests) > 0, out=before[1:])
    return before[tables.node_own] - before[tables.node_row]


def _wide(tables: Tables) -> tuple[int, int]:
    """How many rows are in groups of which a value tries more than WIDE_TRIED_MIN rows on average, and the most that it
    tries in a single group.

    The value is assumed to lie anywhere between the ends of the group's intervals, with equal probability. A child with
    groups of its own counts as a row.
    """
    first = tables.groups[:, G_NODE]
    if len(first) < 2:
        return 0, 0
    starts, low, high = first[:-1] - first[0], tables.node_low[first[0] :], tables.node_high[first[0] :]
    span = np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts) + 1.0
    rows = (_to_verify(tables) + (np.diff(tables.node_group) > 0))[first[0] :]
    tried = np.add.reduceat(rows * (high - low + 1.0), starts) / span
    settled = (tables.groups[:-1, G_CLASS] == PATTERN) | (tables.groups[:-1, G_FLAT] != 0)
    is_wide = ~settled & (tried > WIDE_TRIED_MIN)
    return int(np.add.reduceat(rows, starts)[is_wide].sum()), int(tried[is_wide].max(initial=0))
