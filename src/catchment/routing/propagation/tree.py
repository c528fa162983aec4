"""What a broker keeps for one publisher: the filters of its children in that tree, and what it said to its parent.

A child without a filter here is *open*: it gets everything. That is the text's literal `true`, which is also what a
child is at first, and after its filter has expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import Neighbor, Time
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import text_bytes
from catchment.routing.propagation.composite import parts_of


class PublisherTree:
    """`heard_at` is when the publisher was heard last."""

    def __init__(self, now: Time) -> None:
        self.heard_at = now
        # What the parent was told last, as text, if that is not `true`: then the parent holds it, unless it has
        # expired there.
        self.sent: str | None = None
        # Until then, an unwanted notification causes no filter message (the suppression timer).
        self.silent_until: Time = 0
        # The groups of the matcher are the names of children.
        self.matcher: RecallingMatcher[tuple[str, ...]] = RecallingMatcher(_names, by_group=True)
        # By child: its number in the matcher, its filter, the parts of that, and the length of its text.
        self._closed: dict[Neighbor, tuple[int, Filter, tuple[Filter, ...], int]] = {}
        self._next_number = 0
        # The last composite, and how often the broker's own filters had changed then. None after a filter has changed.
        self.composed: tuple[int, Filter] | None = None

    # --- filters of children ---

    def close(self, child: Neighbor, filter: Filter) -> None:
        """From now on, the child gets what the filter matches."""
        self.open(child)
        self.composed = None
        self.matcher.add(self._next_number, filter, group=child.name)
        self._closed[child] = (self._next_number, filter, parts_of(filter), text_bytes(filter))
        self._next_number += 1

    def open(self, child: Neighbor) -> None:
        """From now on, the child gets everything."""
        held = self._closed.pop(child, None)
        if held is not None:
            self.matcher.remove(held[0])
            self.composed = None

    def filter_of(self, child: Neighbor) -> Filter | None:
        """None if the child is open."""
        held = self._closed.get(child)
        return None if held is None else held[1]

    def is_open(self, child: Neighbor) -> bool:
        return child not in self._closed

    @property
    def closed(self) -> tuple[Neighbor, ...]:
        """The children that have a filter, sorted."""
        return tuple(sorted(self._closed))

    def parts(self) -> Iterator[Filter]:
        """The parts of all filters."""
        for child in sorted(self._closed):
            yield from self._closed[child][2]

    def bytes_of(self, child: Neighbor) -> int:
        return self._closed[child][3]

    # --- notifications ---

    def wanting(self, batch: Sequence[Notification]) -> list[tuple[str, ...]]:
        """For each notification, the names of the children whose filters match it."""
        return self.matcher.answers(batch)

    # --- the parent ---

    def forget_parent(self) -> None:
        """There is another parent, which has been told nothing."""
        self.sent, self.silent_until = None, 0


def _names(groups: Sequence[Id]) -> tuple[str, ...]:
    return tuple(map(str, groups))
