"""What a broker keeps of an identity of its clients: who speaks for it, what it wants, what it has had, what waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from catchment.model.advertisement import Advertisement
from catchment.model.notification import Notification, memory_bytes
from catchment.routing.messages import Client, Wanted
from catchment.routing.parts.newest import Newest

# Sources whose last `$seq` is kept for one identity. The source that has been silent longest is forgotten first.
SEEN_SOURCES_MAX: Final = 10_000
# What a delivery that waits takes beyond its notifications and ids: an object, tuples, a place in a queue.
_DUE_BYTES: Final = 256


@dataclass(slots=True)
class Due:
    """A delivery that waits for a suspended identity. The client is not stored: the identity may have another handler
    when it resumes."""

    notifications: tuple[Notification, ...]
    subscriptions: tuple[str, ...]
    is_sequence: bool

    @property
    def bytes_count(self) -> int:
        """In memory. A notification that waits for several identities is counted for each."""
        return _DUE_BYTES + 8 * len(self.subscriptions) + sum(map(memory_bytes, self.notifications))


@dataclass(slots=True)
class Identity:
    """An identity at this broker. `client` is its handler, `owner` the client that introduced it."""

    name: str
    client: Client
    owner: Client
    subscriptions: dict[str, Wanted] = field(default_factory=dict)
    advertisements: dict[Advertisement, None] = field(default_factory=dict)
    # By subscription id: its numbers in the matcher. A pattern has one number for each of its filters.
    numbers: dict[str, list[int]] = field(default_factory=dict)
    newest: Newest = field(default_factory=lambda: Newest(SEEN_SOURCES_MAX))
    # By channel: the same for notifications that come on ways of their own (`newest_of`).
    newest_by_channel: dict[str, Newest] = field(default_factory=dict)
    # Clients that the owner lets publish under this name, besides the handler.
    publishers: set[Client] = field(default_factory=set)
    # None unless the identity is suspended.
    waiting: deque[Due] | None = None
    # Deliveries dropped while the identity is suspended; it is told when it resumes.
    missed: int = 0

    def newest_of(self, channel: str) -> Newest:
        """What the identity has had on a channel. Channels are ways on which a publisher's notifications may overtake
        each other: there is order on each of them, and none between them. A new channel begins with what the identity
        had before it came (`newest`)."""
        newest = self.newest_by_channel.get(channel)
        if newest is None:
            newest = self.newest_by_channel[channel] = Newest(SEEN_SOURCES_MAX)
            newest.merge(self.newest.last)
        return newest
