"""The base of all brokers that announce filters hop by hop: each broker tells its neighbors what it wants (§5.2.3).

State: the local clients; the *interest*, that is the filters of all subscribers (identities and neighbors), in a
`Forwarding`; and the neighbors' filters once more, with a matcher (`RemoteFilters`).

Subscribe, Cancel, …   The client side changes, then the filters that the identity holds (`client_interest.py`).
Interest               The filters that the neighbor holds change in the same way.
LinkUp, LinkDown       `peer_connect` and `peer_disconnect` of §5.2.3.
notifications          go once to each local identity that has a matching subscription, and once to each neighbor that
                       holds a matching filter, except the neighbor that they came from.

Each architecture decides what its brokers say to each other (`_heard`), which filters a neighbor may be told
(`_may_tell`), and which neighbors get every notification (`_always_to`). Sections are those of the SIENA text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientRequest,
    Forward,
    Interface,
    Neighbor,
    Routed,
    Send,
    Time,
    Wanted,
    onward,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import RemoteFilters
from catchment.routing.parts.wanted import filters_for
from catchment.routing.parts.watching import Watching
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Forwarding, Subscriber
from catchment.routing.siena.messages import Interest

M = TypeVar("M", bound=BrokerMessage)


class HopByHopCore(DispatchingCore[M], ABC):
    """A broker named `name`. `M` is the union of the messages that brokers of its architecture send each other."""

    def __init__(self, name: str, watching: Watching | None = None) -> None:
        self.name = name
        self.clients = ClientSide(watching)
        self.interest: Forwarding[Filter] = Forwarding(self._may_tell)
        self.remote = RemoteFilters()
        self._wants = ClientInterest(self.clients, self.interest, self._needed)
        self._matched = 0

    # --- what an architecture decides ---

    @abstractmethod
    def _heard(self, message: M, source: Neighbor, now: Time) -> list[Action]:
        """Takes a message of a neighbor. If there is no room for it, raises LimitError before it changes anything."""

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        """Whether a filter may be announced to a neighbor."""
        return True

    def _needed(self, wanted: Wanted) -> tuple[Filter, ...]:
        """The filters that a subscription needs from the network."""
        return filters_for(wanted)

    def _always_to(self, source: Interface) -> tuple[Neighbor, ...]:
        """The neighbors that get every notification that comes from `source`."""
        return ()

    # --- messages ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        return self._on_request(message, source) + self._flushed(now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        for identity in self._wants.client_down(client):
            self._forgotten(identity)
        return self._flushed(now)

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        return self._on_link_up(neighbor) + self._flushed(now)

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self._on_link_down(neighbor) + self._flushed(now)

    def _on_request(self, message: ClientRequest, source: Client) -> list[Action]:
        """Does what a client asks for; CatchmentError if it cannot be done."""
        return self._wants.request(message, source)

    def _forgotten(self, identity: str) -> None:
        """Called when an identity is gone, after its subscriptions are."""

    def _on_link_up(self, neighbor: Neighbor) -> list[Action]:
        self._disconnect(neighbor)
        self.interest.connect(neighbor)
        return []

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        self._disconnect(neighbor)
        return []

    def farewell(self, neighbor: Neighbor, most: int) -> Iterator[BrokerMessage]:
        """The filters of a neighbor that is gone, as it would withdraw them (`LeavesInParts`)."""
        filters = list(self.remote.of(neighbor.name))
        if len(filters) > most:
            for start in range(0, len(filters), most):
                yield Interest(withdrawn=tuple(filters[start : start + most]))

    def _on_interest(self, message: Interest, source: Neighbor, now: Time) -> list[Action]:
        # What the message withdraws is not counted as room: the neighbor may not have announced it.
        self.remote.check_room(len(message.announced))
        for filter in message.withdrawn:
            self._forget(source, self.interest.unsubscribe(source, filter))
        for filter in message.announced:
            self._subscribe(source, filter)
        return self._flushed(now)

    def _flushed(self, now: Time) -> list[Action]:
        """Tells the neighbors what has changed for them."""
        return [
            Send(neighbor, Interest(change.withdrawn, change.announced)) for neighbor, change in self.interest.flush()
        ]

    # --- interest, and the matcher of the neighbors' filters ---

    def _subscribe(self, subscriber: Subscriber, filter: Filter) -> None:
        """Enters a filter of a neighbor or of a pattern. A filter that matches nothing is left out."""
        if filter.is_empty:
            return
        held, replaced = self.interest.subscribe(subscriber, filter)
        # The matcher has exactly the filters that neighbors hold in `interest`.
        if isinstance(subscriber, Neighbor):
            self._forget(subscriber, replaced)
            if held is not None:
                self.remote.add(subscriber.name, held)

    def _disconnect(self, neighbor: Neighbor) -> None:
        self._forget(neighbor, self.interest.disconnect(neighbor))

    def _forget(self, neighbor: Neighbor, filters: Sequence[Filter]) -> None:
        """Takes filters that a neighbor holds no longer out of the matcher."""
        for filter in filters:
            self.remote.remove(neighbor.name, filter)

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        self._matched += len(batch)
        if len(batch) == 1 and not self._always_to(source):
            return self._on_notification(batch[0], source, now)
        notifications = [routed.notification for routed in batch]
        actions = self.clients.due(notifications, now)
        always = self._always_to(source)
        outgoing: dict[Neighbor, list[Routed]] = {neighbor: list(map(onward, batch)) for neighbor in always}
        for routed, names in zip(batch, self.remote.wanting(notifications), strict=True):
            for neighbor in map(Neighbor, names):
                if neighbor != source and neighbor not in always:
                    outgoing.setdefault(neighbor, []).append(onward(routed))
        actions += [Forward(neighbor, tuple(outgoing[neighbor])) for neighbor in sorted(outgoing)]
        return actions

    def _on_notification(self, routed: Routed, source: Interface, now: Time) -> list[Action]:
        """The same for a batch of one, with less work: in a simulation most batches are such."""
        notifications = (routed.notification,)
        actions = self.clients.due(notifications, now)
        outgoing: tuple[Routed, ...] = ()
        for neighbor in map(Neighbor, self.remote.wanting(notifications)[0]):
            if neighbor != source:
                outgoing = outgoing or (onward(routed),)
                actions.append(Forward(neighbor, outgoing))
        return actions

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.remote.matcher

    def inspect(self) -> Inspection:
        work = Work(self._matched, self.interest.poset.compared)
        return Inspection((*self.clients.tables(), *self.remote.tables()), work, apart=self.interest.poset.apart)

    def leftovers(self) -> list[str]:
        return [*self.clients.leftovers(), *map(str, self.interest.poset), *self.remote.leftovers()]
