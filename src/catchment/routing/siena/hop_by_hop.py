"""What brokers do alike that tell each other what they want hop by hop (SIENA §5.2.3).

State: the local clients; the interest of all subscribers (identities and neighbors) in a `Forwarding`; the neighbors'
filters with their matcher.

Subscribe, Cancel, …   the client side changes, then the identity's entries in the poset (`client_interest.py`).
Interest               a neighbor's filters, entered and taken likewise.
LinkUp, LinkDown       `peer_connect` and `peer_disconnect` of §5.2.3.
notifications          to each local identity with a match once, and once to each neighbor, save the one they came
                       from, that holds a filter which matches.

An architecture says what its brokers tell each other (`_on_neighbor`), whom interest is told to (`_may_tell`) and
where notifications go besides (`_always_to`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from catchment.errors import CatchmentError, LimitError
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Forward,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
    TimerFired,
    Wanted,
    onward,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import RemoteFilters
from catchment.routing.parts.wanted import filters_for
from catchment.routing.parts.watching import Watching
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Forwarding, Subscriber
from catchment.routing.siena.messages import Interest

M = TypeVar("M", bound=BrokerMessage)


class HopByHopCore(ABC, Generic[M]):
    """A broker named `name`; `M` is what brokers of its architecture say to each other."""

    def __init__(self, name: str, watching: Watching | None = None) -> None:
        self.name = name
        self.clients = ClientSide(watching)
        self.interest: Forwarding[Filter] = Forwarding(self._may_tell)
        self.remote = RemoteFilters()
        self._wants = ClientInterest(self.clients, self.interest, self._needed)
        self._matched = 0

    # --- what an architecture decides ---

    @abstractmethod
    def _on_neighbor(self, message: M, source: Neighbor, now: Time) -> list[Action]:
        """What a neighbor says. LimitError, before anything is changed, if there is no room for it."""

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        """Whether a neighbor is one to tell of a filter."""
        return True

    def _needed(self, wanted: Wanted) -> tuple[Filter, ...]:
        """The filters that are wanted of the network for a subscription."""
        return filters_for(wanted)

    def _always_to(self, source: Interface) -> tuple[Neighbor, ...]:
        """Neighbors that get every notification."""
        return ()

    # --- messages ---

    def on_message(self, message: ClientRequest | HostMessage | M, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, ClientRequest):
            assert isinstance(source, Client)
            try:
                due = self._on_request(message, source)
            except CatchmentError as problem:
                return [Refuse(source, problem)]
            return due + self._flushed(now)
        match message:
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
            case ClientDown():
                assert isinstance(source, Client)
                for identity in self._wants.client_down(source):
                    self._forgotten(identity)
            case LinkUp():
                assert isinstance(source, Neighbor)
                return self._on_link_up(source) + self._flushed(now)
            case LinkDown():
                assert isinstance(source, Neighbor)
                return self._on_link_down(source) + self._flushed(now)
            case TimerFired():
                return []
            case _:
                assert isinstance(source, Neighbor)
                try:
                    return self._on_neighbor(message, source, now)
                except LimitError as problem:
                    return [Refuse(source, problem)]
        return self._flushed(now)

    def _on_request(self, message: ClientRequest, source: Client) -> list[Action]:
        """CatchmentError if it cannot be done."""
        return self._wants.request(message, source)

    def _forgotten(self, identity: str) -> None:
        """An identity is gone, and what it wanted with it."""

    def _on_link_up(self, neighbor: Neighbor) -> list[Action]:
        self._disconnect(neighbor)
        self.interest.connect(neighbor)
        return []

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        self._disconnect(neighbor)
        return []

    def _on_interest(self, message: Interest, source: Neighbor, now: Time) -> list[Action]:
        # What is withdrawn may never have been there: it makes no room.
        self.remote.check_room(len(message.announced))
        for filter in message.withdrawn:
            self._forget(source, self.interest.unsubscribe(source, filter))
        for filter in message.announced:
            self._subscribe(source, filter)
        return self._flushed(now)

    def _flushed(self, now: Time) -> list[Action]:
        """What neighbors must hear."""
        return [
            Send(neighbor, Interest(change.withdrawn, change.announced)) for neighbor, change in self.interest.flush()
        ]

    # --- interest, and the matcher of the neighbors' ---

    def _subscribe(self, subscriber: Subscriber, filter: Filter) -> None:
        if filter.is_empty:
            return
        held, replaced = self.interest.subscribe(subscriber, filter)
        if isinstance(subscriber, Neighbor):
            self._forget(subscriber, replaced)
            if held is not None:
                self.remote.add(subscriber.name, held)

    def _disconnect(self, neighbor: Neighbor) -> None:
        self._forget(neighbor, self.interest.disconnect(neighbor))

    def _forget(self, neighbor: Neighbor, filters: Sequence[Filter]) -> None:
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
        """The same for one, as in most of a simulation, with less ado."""
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
        return Inspection((*self.clients.tables(), *self.remote.tables()), work)

    def leftovers(self) -> list[str]:
        return [*self.clients.leftovers(), *map(str, self.interest.poset), *self.remote.leftovers()]
