"""What a broker keeps for one tree: the filters of its neighbors in that tree, and what it said to those upstream.

A neighbor without a filter here is *open*: it gets everything. That is the text's literal `true`, which is also what a
neighbor is at first, and after its filter has expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import Neighbor, Time
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import text_bytes
from catchment.routing.propagation.composite import parts_of


@dataclass(slots=True)
class Told:
    """What a neighbor upstream was told."""

    # What it was told last, as text, if that is not `true`: then it holds that, unless it has expired there.
    sent: str | None = None
    # Until then, an unwanted notification causes no filter message (the suppression timer).
    silent_until: Time = 0
    # The last composite for it, and the changes of the broker's own filters and of the tree's that it was made after.
    composed: tuple[int, int, Filter] | None = None


class TreeFilters:
    """`heard_at` is when a notification came last. `parent` is the next broker on the way to the root of the tree."""

    def __init__(self, now: Time, parent: Neighbor | None) -> None:
        self.heard_at = now
        self.parent = parent
        # By neighbor, as long as the link to it is up: also if it is not upstream at the moment.
        self.told: dict[Neighbor, Told] = {}
        # How often filters of neighbors have changed.
        self.changes = 0
        # The groups of the matcher are the names of neighbors.
        self.matcher: RecallingMatcher[tuple[str, ...]] = RecallingMatcher(_names, by_group=True)
        # By neighbor: its number in the matcher, its filter, the parts of that, and the length of its text.
        self._closed: dict[Neighbor, tuple[int, Filter, tuple[Filter, ...], int]] = {}
        self._next_number = 0

    # --- filters of neighbors ---

    def close(self, neighbor: Neighbor, filter: Filter) -> None:
        """From now on, the neighbor gets what the filter matches."""
        self.open(neighbor)
        self.changes += 1
        self.matcher.add(self._next_number, filter, group=neighbor.name)
        self._closed[neighbor] = (self._next_number, filter, parts_of(filter), text_bytes(filter))
        self._next_number += 1

    def open(self, neighbor: Neighbor) -> None:
        """From now on, the neighbor gets everything."""
        held = self._closed.pop(neighbor, None)
        if held is not None:
            self.matcher.remove(held[0])
            self.changes += 1

    def filter_of(self, neighbor: Neighbor) -> Filter | None:
        """None if the neighbor is open."""
        held = self._closed.get(neighbor)
        return None if held is None else held[1]

    def is_open(self, neighbor: Neighbor) -> bool:
        return neighbor not in self._closed

    @property
    def closed(self) -> tuple[Neighbor, ...]:
        """The neighbors that have a filter, sorted."""
        return tuple(sorted(self._closed))

    def parts(self, without: Neighbor) -> Iterator[Filter]:
        """The parts of the filters of all other neighbors."""
        for neighbor in sorted(self._closed):
            if neighbor != without:
                yield from self._closed[neighbor][2]

    def bytes_of(self, neighbor: Neighbor) -> int:
        return self._closed[neighbor][3]

    # --- notifications ---

    def wanting(self, batch: Sequence[Notification]) -> list[tuple[str, ...]]:
        """For each notification, the names of the neighbors whose filters match it."""
        return self.matcher.answers(batch)

    # --- upstream ---

    def told_to(self, neighbor: Neighbor) -> Told:
        return self.told.setdefault(neighbor, Told())

    def is_told(self, neighbor: Neighbor) -> bool:
        """Whether a neighbor was told something other than `true`."""
        told = self.told.get(neighbor)
        return told is not None and told.sent is not None


def _names(groups: Sequence[Id]) -> tuple[str, ...]:
    return tuple(map(str, groups))
