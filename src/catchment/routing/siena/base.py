"""What the brokers of all of SIENA's architectures do alike: serve clients, keep interest, match, forward.

State: the sessions of local clients; the interest of all subscribers (identities and neighbors) in a `Forwarding`;
a matcher of the neighbors' filters, grouped by neighbor.

Subscribe, Cancel, …   the session changes, then the identity's entries in the poset. An identity that cancels a
                       subscription by its id keeps the narrower ones that stood behind it: they are entered again.
                       The text knows no ids; there a filter cancels all that it covers, which is `Unsubscribe`.
Interest               a neighbor's filters, entered and taken likewise.
LinkUp, LinkDown       `peer_connect` and `peer_disconnect` of §5.2.3.
notifications          to each local identity with a match once, and once to each neighbor, save the one they came
                       from, that holds a filter which matches.

An architecture says whom interest is told to (`_may_tell`) and where notifications go besides (`_always_to`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.errors import CatchmentError, LimitError, RemoteProtocolError
from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.routing.messages import (
    Action,
    Cancel,
    Client,
    ClientDown,
    ClientUp,
    Forward,
    Interest,
    Interface,
    LinkDown,
    LinkUp,
    Message,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    Time,
    TimerFired,
    Unsubscribe,
    Wanted,
)
from catchment.routing.recall import RecallingMatcher
from catchment.routing.sessions import Request, Sessions
from catchment.routing.siena.forwarding import Forwarding, Subscriber
from catchment.routing.wanted import filters_for

# Filters that all neighbors together may state: some gigabytes. Who goes past it loses the link.
REMOTE_FILTERS_MAX: Final = 4_000_000


class SienaCore:
    """A broker named `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions = Sessions()
        self.interest: Forwarding[Filter] = Forwarding(self._may_tell)
        self._remote: RecallingMatcher[tuple[str, ...]] = RecallingMatcher(_names, by_group=True)
        self._remote_numbers: dict[tuple[Neighbor, Filter], int] = {}
        self._remote_next = 0

    # --- what an architecture decides ---

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        """Whether a neighbor is one to tell of a filter."""
        return True

    def _needed(self, wanted: Wanted) -> tuple[Filter, ...]:
        """The filters that are wanted of the network for a subscription."""
        return filters_for(wanted)

    def _always_to(self, source: Interface) -> tuple[Neighbor, ...]:
        """Neighbors that get every notification."""
        return ()

    @property
    def remote_filters(self) -> int:
        """How many filters of other brokers are known."""
        return len(self._remote)

    # --- messages ---

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, Request):
            assert isinstance(source, Client)
            return self._on_request(message, source)
        match message:
            case ClientUp():
                assert isinstance(source, Client)
                self.sessions.client_up(source, message)
            case ClientDown():
                assert isinstance(source, Client)
                for identity in self.sessions.client_down(source):
                    self._forgotten(identity)
            case LinkUp():
                assert isinstance(source, Neighbor)
                return self._on_link_up(source, message.cost)
            case LinkDown():
                assert isinstance(source, Neighbor)
                return self._on_link_down(source)
            case TimerFired():
                return []
            case _:
                assert isinstance(source, Neighbor)
                try:
                    self._check_room(message, source)
                except LimitError as problem:
                    return [Refuse(source, problem)]
                return self._on_neighbor(message, source)
        return self._flushed()

    def _check_room(self, message: Message, source: Neighbor) -> None:
        """LimitError if a neighbor states more than there is room for. What it withdraws may never have been there."""
        if isinstance(message, Interest):
            check_limit("REMOTE_FILTERS_MAX", REMOTE_FILTERS_MAX, len(self._remote) + len(message.announced))

    def _on_link_up(self, neighbor: Neighbor, cost: int) -> list[Action]:
        self._disconnect(neighbor)
        self.interest.connect(neighbor)
        return self._flushed()

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        self._disconnect(neighbor)
        return self._flushed()

    def _on_neighbor(self, message: Message, source: Neighbor) -> list[Action]:
        match message:
            case Interest():
                for filter in message.withdrawn:
                    self._unsubscribe(source, filter)
                for filter in message.announced:
                    self._subscribe(source, filter)
                return self._flushed()
            case _:
                return [Refuse(source, RemoteProtocolError(source.name, f"sent {type(message).__name__}"))]

    def _on_request(self, message: Request, source: Client) -> list[Action]:
        before = self._at_stake(message)
        try:
            due = self.sessions.request(message, source)
        except CatchmentError as problem:
            return [Refuse(source, problem)]
        if isinstance(message, Subscribe):
            for filter in self._needed(message.wanted):
                self._subscribe(message.identity, filter)
        elif before:
            kept = self.sessions.wants_of(message.identity)
            gone = [wanted for id, wanted in before.items() if id not in kept]
            self._restate(message.identity, [filter for one in gone for filter in self._needed(one)])
        return due + self._flushed()

    def _at_stake(self, message: Request) -> dict[str, Wanted]:
        """The subscriptions that a request may cancel."""
        match message:
            case Cancel():
                wanted = self.sessions.wants_of(message.identity).get(message.id)
                return {} if wanted is None else {message.id: wanted}
            case Unsubscribe():
                return self.sessions.subscriptions_of(message.identity)
            case _:
                return {}

    def _restate(self, identity: str, gone: Sequence[Filter]) -> None:
        """Takes the filters of subscriptions that are gone, and enters those that stood behind them."""
        if self._held_each(identity, len(gone)):
            for one in gone:
                self._unsubscribe(identity, one)
            return
        wanted = dict.fromkeys(self._filters_of(identity))
        taken = [one for one in dict.fromkeys(gone) if one not in wanted and self._unsubscribe(identity, one)]
        held = set(self.interest.held_by(identity)) if taken else set()
        for filter in wanted:
            # What is held did not stand behind anything.
            if filter not in held and any(one.covers(filter) for one in taken):
                self._subscribe(identity, filter)

    def _held_each(self, identity: str, gone: int) -> bool:
        """Whether all filters of an identity, those that are gone among them, are held: none stood behind another.
        To know that by counting spares most who cancel a look at all that they keep."""
        if self.sessions.monitors_of(identity):
            return False  # patterns need several filters, or none
        return self.interest.held_count(identity) == len(self.sessions.wants_of(identity)) + gone

    def _filters_of(self, identity: str) -> list[Filter]:
        return self.sessions.filters_of(identity, self._needed)

    def _flushed(self) -> list[Action]:
        return [
            Send(neighbor, Interest(change.withdrawn, change.announced)) for neighbor, change in self.interest.flush()
        ]

    def _forgotten(self, identity: str) -> None:
        self.interest.drop(identity)

    # --- interest, and the matcher of the neighbors' ---

    def _subscribe(self, subscriber: Subscriber, filter: Filter) -> None:
        if filter.is_empty:
            return
        held, replaced = self.interest.subscribe(subscriber, filter)
        if isinstance(subscriber, Neighbor):
            self._forget(subscriber, replaced)
            if held is not None:
                self._remote.add(self._remote_next, held, group=subscriber.name)
                self._remote_numbers[subscriber, held] = self._remote_next
                self._remote_next += 1

    def _unsubscribe(self, subscriber: Subscriber, filter: Filter) -> bool:
        gone = self.interest.unsubscribe(subscriber, filter)
        if isinstance(subscriber, Neighbor):
            self._forget(subscriber, gone)
        return bool(gone)

    def _disconnect(self, neighbor: Neighbor) -> None:
        self._forget(neighbor, self.interest.disconnect(neighbor))

    def _forget(self, neighbor: Neighbor, filters: Sequence[Filter]) -> None:
        for filter in filters:
            self._remote.remove(self._remote_numbers.pop((neighbor, filter)))

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if len(batch) == 1 and not self._always_to(source):
            return self._on_notification(batch[0], source, now)
        notifications = [one.notification for one in batch]
        actions = self.sessions.due(notifications, now)
        always = self._always_to(source)
        outgoing: dict[Neighbor, list[Routed]] = {neighbor: list(map(self._onward, batch)) for neighbor in always}
        for routed, names in zip(batch, self._remote.found(notifications), strict=True):
            for neighbor in map(Neighbor, names):
                if neighbor != source and neighbor not in always:
                    outgoing.setdefault(neighbor, []).append(self._onward(routed))
        actions += [Forward(neighbor, tuple(outgoing[neighbor])) for neighbor in sorted(outgoing)]
        return actions

    def _on_notification(self, routed: Routed, source: Interface, now: Time) -> list[Action]:
        """The same for one, as in most of a simulation, with less ado."""
        notifications = (routed.notification,)
        actions = self.sessions.due(notifications, now)
        onward: tuple[Routed, ...] = ()
        for neighbor in map(Neighbor, self._remote.found(notifications)[0]):
            if neighbor != source:
                onward = onward or (self._onward(routed),)
                actions.append(Forward(neighbor, onward))
        return actions

    def prepare(self) -> None:
        self.sessions.prepare()
        self._remote.prepare()

    def _onward(self, routed: Routed) -> Routed:
        return Routed(routed.notification, routed.origin or self.name, routed.hops + 1)


def check_limit(limit: str, maximum: int, found: int) -> None:
    """LimitError if that is too many."""
    if found > maximum:
        raise LimitError(limit, maximum, f"{found:,}", "split the network, or use fewer and wider filters")


def _names(groups: Sequence[Id]) -> tuple[str, ...]:
    return tuple(map(str, groups))
