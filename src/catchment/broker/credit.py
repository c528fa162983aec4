"""Who may publish how much: back-pressure from links to publishers.

A client may publish as many notifications as it has credit for. It is given back what was handled, unless a link is
congested: then it waits until that has drained. One that publishes well past its credit loses its connection. Credit
counts notifications; when what waits for a link has become too many bytes, nothing is read from who publishes until it
has drained.

Only publishers of this broker wait. Links are always read, so no two brokers wait for each other; what they bring past
the outbox of another link ends that link, which is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from catchment.broker.connection import Connection
from catchment.routing.messages import Neighbor
from catchment.wire.frames import BATCH_MAX, frame
from catchment.wire.messages import Credit

# Notifications that a client may have under way: a few reads of a busy broker.
CREDIT: Final = 8_192
# So many past that are let pass, one `Publish`; who goes on does not heed it, and is ended.
CREDIT_SLACK: Final = BATCH_MAX
# A warning of congestion at most so often.
CONGESTION_TOLD_S: Final = 60.0

log = logging.getLogger("catchment.broker")


class Credits:
    """`broker` is the name in logs, `now` the loop's clock."""

    def __init__(self, broker: str, now: Callable[[], float]) -> None:
        self._broker, self._now = broker, now
        # What each has published and was not given back.
        self.owed: dict[Connection, int] = {}
        # Links that do not keep up; publishers that are not read meanwhile.
        self.congested: dict[Connection, None] = {}
        self.held: dict[Connection, None] = {}
        # Links that were ended because too much waited for them, and the bytes that were lost with them.
        self.links_given_up = self.bytes_given_up = 0
        self._told_at = now() - CONGESTION_TOLD_S

    # --- publishers ---

    def is_good_for(self, publisher: Connection, count: int) -> bool:
        """Whether a client may publish so many more; who goes well past its credit is ended."""
        owed = self.owed.get(publisher, 0) + count
        if owed > CREDIT + CREDIT_SLACK:
            publisher.end(f"{owed - CREDIT:,} notifications past its credit: wait for Credit")
            return False
        if owed:
            self.owed[publisher] = owed
        return True

    def handled(self, publisher: Connection) -> None:
        """Gives back the credit for that, unless what it led to is not on its way yet."""
        if not self.congested:
            if self.owed.get(publisher, 0) >= CREDIT // 4:
                publisher.put(frame(Credit(self.owed.pop(publisher))))
        elif self._is_full:
            self.held[publisher] = None
            publisher.hold()

    # --- links ---

    def link_congested(self, link: Connection, neighbor: Neighbor) -> None:
        self.congested[link] = None
        if self._now() - self._told_at >= CONGESTION_TOLD_S:
            self._told_at = self._now()
            self._warn("link congested", neighbor, link.outbox_bytes)

    def link_relieved(self, link: Connection) -> None:
        """It has drained or is gone: publishers who have waited for it go on, unless they wait for another."""
        self.congested.pop(link, None)
        for one in list(self.owed):
            self.handled(one)
        if self.held and not self._is_full:
            held, self.held = self.held, {}
            for one in held:
                one.release()

    @property
    def _is_full(self) -> bool:
        return any(one.is_full for one in self.congested)

    def gone(self, connection: Connection) -> None:
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
