"""The filters of other brokers, by broker, with one matcher for all of them.

The core decides under which broker it enters a filter: the neighbor that announced it, or the broker whose clients want
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from catchment.errors import LimitError
from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.core import Table
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import text_bytes

# Filters of all other brokers together: some gigabytes. A neighbor that announces more loses its link.
REMOTE_FILTERS_MAX: Final = 4_000_000


class RemoteFilters:
    """Filters by broker. Equal filters of two brokers are two entries."""

    def __init__(self) -> None:
        self.matcher: RecallingMatcher[tuple[str, ...]] = RecallingMatcher(_names, by_group=True)
        # By broker and filter: the filter's number in the matcher, whose groups are the brokers.
        self._numbers: dict[str, dict[Filter, int]] = {}
        self._text_bytes: dict[str, int] = {}
        # By number: a filter may be removed by an equal one that is written differently.
        self._bytes_of: dict[int, int] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self.matcher)

    def of(self, broker: str) -> Collection[Filter]:
        """The filters of a broker. Not a copy: it changes with the next change of filters."""
        return self._numbers.get(broker, {}).keys()

    def add(self, broker: str, filter: Filter) -> None:
        self.matcher.add(self._next_number, filter, group=broker)
        self._numbers.setdefault(broker, {})[filter] = self._next_number
        self._bytes_of[self._next_number] = text_bytes(filter)
        self._text_bytes[broker] = self._text_bytes.get(broker, 0) + text_bytes(filter)
        self._next_number += 1

    def remove(self, broker: str, filter: Filter) -> None:
        numbers = self._numbers[broker]
        number = numbers.pop(filter)
        self.matcher.remove(number)
        self._text_bytes[broker] -= self._bytes_of.pop(number)
        if not numbers:
            del self._numbers[broker], self._text_bytes[broker]

    def wanting(self, batch: Sequence[Notification]) -> list[tuple[str, ...]]:
        """For each notification, the names of the brokers that have a filter which matches it."""
        return self.matcher.answers(batch)

    def check_room(self, more: int) -> None:
        """LimitError if there is no room for `more` filters."""
        check_limit("REMOTE_FILTERS_MAX", REMOTE_FILTERS_MAX, len(self) + more)

    # --- looking in ---

    def tables(self) -> list[Table]:
        """One table for each broker that has filters here."""
        return [
            Table(broker, len(filters), self._text_bytes[broker]) for broker, filters in sorted(self._numbers.items())
        ]

    def leftovers(self) -> Iterator[str]:
        for broker, filters in sorted(self._numbers.items()):
            yield from (f"{filter} of {broker}" for filter in filters)


def check_limit(limit: str, maximum: int, count: int) -> None:
    """LimitError if `count` is greater than the limit named `limit`."""
    if count > maximum:
        raise LimitError(limit, maximum, f"{count:,}", "split the network, or use fewer and wider filters")


def _names(groups: Sequence[Id]) -> tuple[str, ...]:
    return tuple(map(str, groups))
