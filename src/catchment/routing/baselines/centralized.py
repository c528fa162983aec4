"""One broker, the *center*, has all subscriptions: SIENA's *ce*, a single server (§6.2).

The other brokers relay between the center and their clients. Each request goes to the center as it is, without
reduction by covering. Each notification goes to the center, which matches it and sends back a copy for each client that
wants it. That costs as much as a server whose clients speak to it directly.

State: link states (`parts/link_states.py`): the shortest-path tree of the center is the way up and down; the local
clients; and, at the center, the subscriptions of the clients of all brokers. The center decides who gets a copy. The
client's broker keeps the order, keeps deliveries for suspended identities and watches patterns, as with every core.

client's request   The broker does it, then *registers* what it changed: sends it up to the center.
Registration       The center enters it, if it follows the last one of its origin; a broker on the way relays it up. If
                   it does not follow, the center ignores it: a registration before it was lost on a link that failed,
                   and the origin will register everything again. It is taken only from the neighbor that leads to its
                   origin. When the links of a broker are forgotten, so are its registrations.
Links, LinkUp, …   If our path to the center has changed, or the links of a broker on it have, the broker registers
                   everything again that its clients want: registrations that were under way may be lost, or the center
                   may have lost its memory. A link state is flooded before anything that is sent because of it, so
                   each relay knows at least what we know. So what we register after the last change arrives.
notifications      go up to the center; copies go down to their addressees. Where there is no path, they are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from catchment.matching.ids import Id
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.baselines.messages import AddressedHeader, Registration
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    Action,
    Cancel,
    Client,
    ClientRequest,
    Forward,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Routed,
    Send,
    Subscribe,
    Time,
    Wanted,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.link_states import Links, LinkStates
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import REMOTE_FILTERS_MAX, check_limit
from catchment.routing.parts.wanted import text_bytes

CentralizedMessage = Links | Registration


class CentralizedCore(DispatchingCore[CentralizedMessage]):
    """A broker that relays to `center`, or that is the center itself."""

    def __init__(self, name: str, center: str) -> None:
        self.name = name
        self.center = center
        self.clients = ClientSide()
        self.registry = Registry()
        self._links = LinkStates(name, self.registry.forget)
        # The subscriptions that were registered, by identity, and the number of our last registration.
        self._registered: dict[str, dict[str, Wanted]] = {}
        self._seq = 0
        self._matched = 0

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        return self.clients.request(message, source) + self._register([message.identity])

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        return self._register(self.clients.client_down(client))

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        return self._links.on_timer(name, now)

    def _from_neighbor(
        self, message: LinkUp | LinkDown | CentralizedMessage, source: Neighbor, now: Time
    ) -> list[Action]:
        path_before, version = self._path(), self._links.version
        match message:
            case LinkUp():
                actions, changed = self._links.up(source, message.cost, now), self.name
            case LinkDown():
                actions, changed = self._links.down(source, now), self.name
            case Links():
                actions, changed = self._links.heard(message, source, now), message.origin
            case Registration():
                return self._on_registration(message, source)
            case _:
                assert_never(message)
        # Also when the path is the same but a broker on it has new links: a link may have failed and come back, and
        # what was under way on it is lost.
        if self._links.version > version and (changed in path_before or self._path() != path_before):
            # After the link states, which `actions` has already: see above.
            actions += self._register_all()
        return actions

    # --- the way to the center ---

    def _path(self) -> tuple[str, ...]:
        """The brokers from here to the center, including both ends; empty if the center cannot be reached."""
        parents, path = self._links.tree(self.center), []
        here: str | None = self.name if self.name in parents else None
        while here is not None:
            path.append(here)
            here = parents[here]
        return tuple(path)

    def _up(self) -> Neighbor | None:
        """The neighbor on the way to the center; None if there is no way, or this broker is the center."""
        parent = self._links.tree(self.center).get(self.name)
        return None if parent is None else Neighbor(parent)

    def _down(self, broker: str) -> Neighbor | None:
        """The neighbor on the way from the center to a broker; None if the way does not go through this broker."""
        hop = self._links.hops_from(self.center).get(broker)
        return None if hop is None else Neighbor(hop)

    # --- requests ---

    def _register(self, identities: Iterable[str]) -> list[Action]:
        """Registers what has changed in the subscriptions of these identities."""
        requests: list[Subscribe | Cancel] = []
        for identity in identities:
            before, after = self._registered.pop(identity, {}), self.clients.subscriptions_of(identity)
            requests += [Cancel(identity, id) for id in before if id not in after]
            requests += [Subscribe(identity, id, wanted) for id, wanted in after.items() if id not in before]
            if after:
                self._registered[identity] = after
        return self._stated(requests, is_whole=False) if requests else []

    def _register_all(self) -> list[Action]:
        """Registers all subscriptions of our clients."""
        requests = [
            Subscribe(identity, id, wanted)
            for identity, subscriptions in self._registered.items()
            for id, wanted in subscriptions.items()
        ]
        return self._stated(requests, is_whole=True)

    def _stated(self, requests: Sequence[Subscribe | Cancel], is_whole: bool) -> list[Action]:
        # After a crash `_seq` begins again from 0, but the number of our links is greater than before: the two together
        # never go back.
        self._seq += 1
        return self._carried(Registration(self.name, self._links.seq, self._seq, is_whole, tuple(requests)))

    def _on_registration(self, registration: Registration, source: Neighbor) -> list[Action]:
        """Takes a registration only from the neighbor that leads to its origin, and only with a number of links that
        the origin has stated. So nobody can speak for a broker that is not behind it, nor silence one with a number
        that its own never reach."""
        known = self._links.records.get(registration.origin)
        if known is None or registration.links_seq > known.seq or self._down(registration.origin) != source:
            return []
        self.registry.check_room(registration)
        return self._carried(registration)

    def _carried(self, registration: Registration) -> list[Action]:
        """Takes a registration one step on: into the registry at the center, elsewhere over the link up."""
        if self.name == self.center:
            self.registry.enter(registration)
            return []
        up = self._up()
        return [] if up is None else [Send(up, registration)]

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if self.name == self.center:
            self._matched += len(batch)
            return [action for copy in self._copied(batch) for action in self._on_copy(copy, now)]
        actions: list[Action] = []
        for routed in batch:
            if isinstance(routed.header, AddressedHeader) and routed.header.addressee is not None:
                actions += self._on_copy(routed, now)
            elif (up := self._up()) is not None:
                # The publisher's broker sends it to the center; the brokers between them only relay it.
                actions.append(_sent(up, routed, None, is_relayed=isinstance(source, Neighbor)))
        return actions

    def _on_copy(self, routed: Routed, now: Time) -> list[Action]:
        """Delivers a copy for one client if this is the client's broker; otherwise sends it on."""
        assert isinstance(routed.header, AddressedHeader)
        assert routed.header.addressee is not None
        broker, identity = routed.header.addressee
        if broker == self.name:
            return self.clients.due([routed.notification], now, only=identity)
        down = self._down(broker)
        if down is None:
            return []
        return [_sent(down, routed, routed.header.addressee, is_relayed=self.name != self.center)]

    def _copied(self, batch: Sequence[Routed]) -> list[Routed]:
        """At the center: the copies of a batch, one for each notification and client that wants it."""
        wanting = self.registry.wanting([routed.notification for routed in batch])
        return [
            Routed(routed.notification, AddressedHeader(routed.header.hops, addressee))
            for routed, addressees in zip(batch, wanting, strict=True)
            for addressee in addressees
        ]

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.registry.matcher

    def inspect(self) -> Inspection:
        tables = (*self.clients.tables(), *self.registry.tables())
        return Inspection(tables, Work(self._matched), self._links.known_brokers(), dropped_records=self._links.dropped)

    def leftovers(self) -> list[str]:
        return [*self.clients.leftovers(), *self.registry.leftovers()]


def _sent(neighbor: Neighbor, routed: Routed, addressee: tuple[str, str] | None, *, is_relayed: bool) -> Forward:
    """A copy over one link. Each copy is a message of its own: a server does not send copies for several clients in one
    message."""
    header = AddressedHeader(routed.header.hops + 1, addressee)
    return Forward(neighbor, (Routed(routed.notification, header),), is_relayed)


class Registry:
    """The subscriptions of the clients of all brokers."""

    def __init__(self) -> None:
        self.matcher: RecallingMatcher[list[tuple[str, str]]] = RecallingMatcher(_addressees, by_group=True)
        # By broker: `links_seq` and `seq` of the last registration that was entered.
        self._last: dict[str, tuple[int, int]] = {}
        # By broker, then by identity and id: the numbers in the matcher (a pattern has one for each filter), and the
        # bytes of the text.
        self._subscriptions: dict[str, dict[tuple[str, str], tuple[list[int], int]]] = {}
        self._next = 0

    def of(self, broker: str) -> list[tuple[str, str]]:
        """The subscriptions of a broker's clients, as identity and id, sorted."""
        return sorted(self._subscriptions.get(broker, ()))

    def check_room(self, registration: Registration) -> None:
        """LimitError if there is no room for the subscriptions of a registration."""
        more = sum(isinstance(request, Subscribe) for request in registration.requests)
        if registration.is_whole:
            more -= len(self._subscriptions.get(registration.origin, ()))
        check_limit("REMOTE_FILTERS_MAX", REMOTE_FILTERS_MAX, len(self.matcher) + more)

    def forget(self, origin: str) -> None:
        """A broker has been away for long, or never was."""
        for identity, id in self.of(origin):
            self._cancel(origin, identity, id)
        self._subscriptions.pop(origin, None)
        self._last.pop(origin, None)

    def enter(self, registration: Registration) -> None:
        """Enters a registration, if it is a whole one newer than the last of its origin, or a change that directly
        follows the last. Any other is ignored: it is old, or there is a gap before it."""
        origin, number = registration.origin, (registration.links_seq, registration.seq)
        links_seq, seq = self._last.get(origin, (0, 0))
        if registration.is_whole and number > (links_seq, seq):
            for identity, id in self.of(origin):
                self._cancel(origin, identity, id)
        elif registration.is_whole or number != (links_seq, seq + 1):
            return
        self._last[origin] = number
        for request in registration.requests:
            if isinstance(request, Subscribe):
                self._subscribe(origin, request)
            else:
                self._cancel(origin, request.identity, request.id)

    def _subscribe(self, origin: str, request: Subscribe) -> None:
        self._cancel(origin, request.identity, request.id)
        wanted = request.wanted
        filters = wanted.filters if isinstance(wanted, Pattern) else (wanted,)
        numbers = list(range(self._next, self._next + len(filters)))
        for number, filter in zip(numbers, filters, strict=True):
            self.matcher.add(number, filter, group=f"{origin}\0{request.identity}")
        self._subscriptions.setdefault(origin, {})[request.identity, request.id] = (numbers, text_bytes(wanted))
        self._next += len(filters)

    def _cancel(self, origin: str, identity: str, id: str) -> None:
        subscriptions = self._subscriptions.get(origin, {})
        numbers, _ = subscriptions.pop((identity, id), ((), 0))
        for number in numbers:
            self.matcher.remove(number)

    def tables(self) -> list[Table]:
        """One table for each broker whose clients have subscriptions here."""
        return [
            Table(
                origin,
                sum(len(numbers) for numbers, _ in subscriptions.values()),
                sum(size for _, size in subscriptions.values()),
            )
            for origin, subscriptions in sorted(self._subscriptions.items())
            if subscriptions
        ]

    def leftovers(self) -> Iterator[str]:
        for origin in sorted(self._subscriptions):
            yield from (f"subscription {id} of {identity} at {origin}" for identity, id in self.of(origin))

    def wanting(self, batch: Sequence[Notification]) -> list[list[tuple[str, str]]]:
        """For each notification the addressees of its copies, as broker and identity."""
        return self.matcher.answers(batch)


def _addressees(groups: Sequence[Id]) -> list[tuple[str, str]]:
    # A group in the matcher is broker and identity in one string (`_subscribe`).
    pairs = (str(group).split("\0", 1) for group in groups)
    return sorted((broker, identity) for broker, identity in pairs)
