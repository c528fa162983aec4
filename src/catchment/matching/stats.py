"""What a matcher holds, and what it could not index well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from catchment.matching.index import LEAF_ROWS
from catchment.matching.segment import Segment


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts over all segments. A *row* is a conjunction as the index holds it (`x in (…)` may take several)."""

    subscriptions: int
    pending: int
    removed: int  # but still in a segment
    segments: tuple[int, ...]
    conjunctions: int
    constraints: int
    rows: int
    nodes: int
    bytes: int
    # Rows found by no selective test: every notification, or every one that has some attribute, tries them all.
    scanned_rows: int
    # The most rows that one node tries one by one.
    scan_max: int

    @property
    def bytes_per_subscription(self) -> float:
        return self.bytes / max(1, self.subscriptions)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bytes_per_subscription": round(self.bytes_per_subscription, 1)}


def stats_of(segments: Sequence[Segment], pending: Sequence[object], count: int) -> Stats:
    scans = [_scans(segment) for segment in segments]
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
    )


def _scans(segment: Segment) -> tuple[int, int]:
    """How many rows nodes larger than a leaf verify one by one, and the most of one node."""
    tables = segment.tables
    to_verify = np.zeros(len(tables.row_tests), np.int64)
    np.cumsum(np.diff(tables.row_tests) > 0, out=to_verify[1:])
    of_node = to_verify[tables.node_own] - to_verify[tables.node_row]
    return int(of_node[of_node > LEAF_ROWS].sum()), int(of_node.max(initial=0))
