"""The identities at a broker: whose they are, and what is kept for each.

An identity has an *owner*, the client that introduced it, and a *handler*, the client that its deliveries go to. At
first that is the owner. An identity is forgotten with its handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set
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

    @property
    def old_count(self) -> int:
        """Notifications that were not delivered to it because they were not new."""
        return self.newest.old_count + sum(newest.old_count for newest in self.newest_by_channel.values())


class Identities:
    """The identities by name, by owner and by handler."""

    def __init__(self) -> None:
        self._identities: dict[str, Identity] = {}
        # By owner, and by handler: the names of its identities.
        self._by_owner: dict[Client, dict[str, None]] = {}
        self._by_client: dict[Client, dict[str, None]] = {}

    def __contains__(self, identity: str) -> bool:
        return identity in self._identities

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._identities.values())

    def __len__(self) -> int:
        return len(self._identities)

    def get(self, identity: str) -> Identity | None:
        return self._identities.get(identity)

    def owned_by(self, client: Client) -> Set[str]:
        """The names of the identities that a client has introduced. Not a copy."""
        return self._by_owner.get(client, {}).keys()

    def mapped_to(self, client: Client) -> Set[str]:
        """The names of the identities of others whose handler a client is."""
        return self._by_client.get(client, {}).keys() - self.owned_by(client)

    def identities_of(self, client: Client) -> list[Identity]:
        """The identities whose handler a client is."""
        return [self._identities[name] for name in self._by_client.get(client, ())]

    def _identity(self, name: str, client: Client) -> Identity:
        """The identity of this name; the client introduces it if there is none."""
        identity = self._identities.get(name)
        if identity is None:
            identity = self._identities[name] = Identity(name, client, client)
            self._by_owner.setdefault(client, {})[name] = None
            self._by_client.setdefault(client, {})[name] = None
        return identity

    def _hand_over(self, identity: Identity, client: Client) -> None:
        """From now on, the client is the handler of the identity."""
        _discard(self._by_client, identity.client, identity.name)
        identity.client = client
        self._by_client.setdefault(client, {})[identity.name] = None

    def _forget(self, identity: Identity) -> None:
        _discard(self._by_owner, identity.owner, identity.name)
        _discard(self._by_client, identity.client, identity.name)
        del self._identities[identity.name]


def _discard(names_by_client: dict[Client, dict[str, None]], client: Client, name: str) -> None:
    names = names_by_client[client]
    del names[name]
    if not names:
        del names_by_client[client]
