"""Credit: back-pressure from links to publishers.

A client may publish as many notifications as it has credit for. The broker gives credit back for what it has handled,
unless a link is congested: then it waits until that link has drained. A client that publishes well past its credit
loses its connection. Credit counts notifications. When what waits for a link has become too many bytes, the broker
reads nothing from its publishers until the link has drained.

The broker also holds credit back while so much waits for its disk (`storing.py`) that it is behind.

Only publishers of this broker wait. Links are always read, so that no two brokers wait for each other. If what links
bring is more than the outbox of another link holds, the broker gives that link up and counts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from catchment.broker.connection import Connection
from catchment.routing.messages import Neighbor
from catchment.wire.frames import BATCH_MAX
from catchment.wire.messages import Credit

# Notifications that a client may have under way: a few reads of a busy broker.
CREDIT: Final = 8_192
# How far a client may go past its credit, one `Publish`. A client that goes further ignores it and is disconnected.
CREDIT_SLACK: Final = BATCH_MAX
# The least time between two warnings of congestion.
CONGESTION_WARNING_S: Final = 60.0

log = logging.getLogger("catchment.broker")


class Credits:
    """`broker` is the name in logs, `now` the loop's clock."""

    def __init__(self, broker: str, now: Callable[[], float]) -> None:
        self._broker, self._now = broker, now
        # By publisher, how much credit it has used and was not given back.
        self.owed: dict[Connection, int] = {}
        # Links that do not keep up, and publishers that the broker does not read meanwhile.
        self.congested: dict[Connection, None] = {}
        self.held: dict[Connection, None] = {}
        # Links that the broker has given up because too much waited for them, and the bytes lost with them.
        self.links_given_up = self.bytes_given_up = 0
        # Whether the store is behind.
        self.is_store_behind: Callable[[], bool] = lambda: False
        self._warned_at = now() - CONGESTION_WARNING_S

    # --- publishers ---

    def is_good_for(self, publisher: Connection, count: int) -> bool:
        """Whether a client may publish this many more. If it goes well past its credit, its connection ends."""
        owed = self.owed.get(publisher, 0) + count
        if owed > CREDIT + CREDIT_SLACK:
            publisher.end(f"{owed - CREDIT:,} notifications past its credit: wait for Credit")
            return False
        if owed:
            self.owed[publisher] = owed
        return True

    def handled(self, publisher: Connection) -> None:
        """Gives back the credit for what the publisher has sent, unless a link is congested."""
        if not self.congested:
            if self.owed.get(publisher, 0) >= CREDIT // 4 and not self.is_store_behind():
                # In large pieces: a quarter of the credit at a time.
                publisher.send(Credit(self.owed.pop(publisher)))
        elif self._is_full:
            self.held[publisher] = None
            publisher.hold()

    # --- links ---

    def link_congested(self, link: Connection, neighbor: Neighbor) -> None:
        self.congested[link] = None
        if self._now() - self._warned_at >= CONGESTION_WARNING_S:
            self._warned_at = self._now()
            self._warn("link congested", neighbor, link.outbox_bytes)

    def link_relieved(self, link: Connection) -> None:
        """The link has drained or is gone: publishers that waited for it go on, unless they wait for another."""
        self.congested.pop(link, None)
        for publisher in list(self.owed):
            self.handled(publisher)
        if self.held and not self._is_full:
            held, self.held = self.held, {}
            for publisher in held:
                publisher.release()

    def store_relieved(self) -> None:
        """The store has caught up."""
        for publisher in list(self.owed):
            self.handled(publisher)

    @property
    def _is_full(self) -> bool:
        return any(link.is_full for link in self.congested)

    def gone(self, connection: Connection) -> None:
        """A connection has closed."""
        self.owed.pop(connection, None)
        self.held.pop(connection, None)
        if isinstance(connection.who, Neighbor):
            if connection.overflow_bytes:
                self.links_given_up += 1
                self.bytes_given_up += connection.overflow_bytes
                self._warn("link given up", connection.who, connection.overflow_bytes)
            self.link_relieved(connection)

    def _warn(self, message: str, neighbor: Neighbor, waiting: int) -> None:
        log.warning(message, extra={"broker": self._broker, "neighbor": neighbor.name, "bytes": waiting})
