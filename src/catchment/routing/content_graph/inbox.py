"""Off-line processing of subscriptions (F3 §6.5): what changes tables waits, and is done piece by piece.

A subscription takes much longer than a notification. The text proposes a second process with a lower priority. Here
messages about subscriptions wait in an inbox, and a timer that is due at once takes the next few of them. Between two
firings the host handles what else has come: so a notification waits for one piece, not for all that has piled up. A
piece is done as a whole; notifications never see a table that is half changed.

Each neighbor's messages stay in order. What a neighbor said before its link went down is dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, Generic, TypeVar

from catchment.routing.messages import Neighbor
from catchment.routing.parts.remote import check_limit

M = TypeVar("M")

# Messages in one piece: a message has many nodes when much changes at once, so few are enough.
PIECE: Final = 16
# Messages of one neighbor that may wait: some megabytes, unless they are long.
INBOX_MAX: Final = 100_000


class Inbox(Generic[M]):
    """Messages that wait, with those who sent them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[M, Neighbor]] = deque()
        self._counts: Counter[Neighbor] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: M, source: Neighbor) -> bool:
        """Returns whether the inbox was empty. LimitError if too much of this neighbor waits."""
        check_limit("INBOX_MAX", INBOX_MAX, self._counts[source] + 1)
        self._counts[source] += 1
        self._waiting.append((message, source))
        return len(self._waiting) == 1

    def piece(self) -> list[tuple[M, Neighbor]]:
        """The next messages, in order."""
        taken = [self._waiting.popleft() for _ in range(min(PIECE, len(self._waiting)))]
        for _, source in taken:
            self._counts[source] -= 1
        return taken

    def forget(self, source: Neighbor) -> None:
        """Drops what a neighbor has said."""
        self._waiting = deque(pair for pair in self._waiting if pair[1] != source)
        del self._counts[source]
