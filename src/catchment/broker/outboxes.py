"""What waits to be written, over all connections of a broker.

Each connection has a bound of its own. But there may be thousands, and what waits for all of them together must fit the
memory. When half of the room is taken, a client is behind much sooner, and loses notifications (and is told how many).
When all of it is taken, the broker closes the connections for which most waits, until a quarter is free.
"""

from __future__ import annotations

from typing import Final, Protocol

# Over all clients and neighbors.
OUTBOXES_BYTES_MAX: Final = 1_024 * 1_048_576


class Outbox(Protocol):
    @property
    def outbox_bytes(self) -> int: ...

    def overflow(self, reason: str) -> None:
        """Closes the connection at once."""
        ...


class Outboxes:
    def __init__(self, bytes_max: int = OUTBOXES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        # At least as much as waits: a connection that is drained says so when it writes next.
        self._bytes = 0
        self._by_connection: dict[Outbox, int] = {}
        # Connections that were closed because there was no room.
        self.closed_count = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def is_tight(self) -> bool:
        """Whether half of the room is taken."""
        return self._bytes > self._bytes_max // 2

    def has(self, connection: Outbox, waiting_bytes: int) -> None:
        """So much waits for a connection."""
        before = self._by_connection.pop(connection, 0)
        if waiting_bytes:
            self._by_connection[connection] = waiting_bytes
        self._bytes += waiting_bytes - before
        if self._bytes > self._bytes_max:
            self._make_room()

    def gone(self, connection: Outbox) -> None:
        self._bytes -= self._by_connection.pop(connection, 0)

    def count_again(self) -> None:
        """What was taken since the connections have last said it."""
        self._by_connection = {each: size for each in self._by_connection if (size := each.outbox_bytes)}
        self._bytes = sum(self._by_connection.values())

    def _make_room(self) -> None:
        self.count_again()
        by_size = sorted(self._by_connection, key=lambda each: -self._by_connection[each])
        for connection in by_size:
            if self._bytes <= self._bytes_max * 3 // 4:
                return
            self.gone(connection)
            self.closed_count += 1
            connection.overflow(f"OUTBOXES_BYTES_MAX is {self._bytes_max:,}, and most waits for it")
