"""What has come of frames and of HTTP bodies that are not whole, over all connections of a broker.

Each connection may send a frame of some megabytes, and take its time. So thousands of them could fill the memory with
beginnings. The bytes of all beginnings together are bounded. Past the bound the broker gives up the one that was begun
first: whoever sends at a usual speed is done long before somebody who drips.
"""

from __future__ import annotations

from typing import Final, Protocol

# Over all connections: two of the longest frames of links, or many of clients.
HALF_SENT_BYTES_MAX: Final = 64 * 1_048_576


class Sender(Protocol):
    def give_up(self, reason: str) -> None:
        """Ends what it has begun to send."""
        ...


class HalfSent:
    def __init__(self, bytes_max: int = HALF_SENT_BYTES_MAX) -> None:
        self.bytes = 0
        # How many senders were given up.
        self.given_up = 0
        self._bytes_max = bytes_max
        # By sender, in the order in which they have begun: the number of what is coming, and how much has come.
        self._coming: dict[Sender, tuple[int, int]] = {}

    def has(self, sender: Sender, number: int, size: int) -> None:
        """So many bytes have come of what the sender has begun. `number` is another for the next thing it begins."""
        before_number, before_size = self._coming.get(sender, (number, 0))
        self.bytes += size - before_size
        if before_number != number or not size:
            # What was begun later stands further behind.
            self._coming.pop(sender, None)
        if size:
            self._coming[sender] = (number, size)
        while self.bytes > self._bytes_max:
            self._give_up_first()

    def gone(self, sender: Sender) -> None:
        self.bytes -= self._coming.pop(sender, (0, 0))[1]

    def _give_up_first(self) -> None:
        first = next(iter(self._coming))
        self.gone(first)
        self.given_up += 1
        first.give_up(
            f"HALF_SENT_BYTES_MAX is {self._bytes_max:,}: this was begun first of all that has not come whole"
        )
