"""What routing systems are compared with, behind the same interface.

FloodingCore      subscriptions stay at their broker, every notification goes everywhere. In a network with cycles a
                  broker passes on what it has not had before, by publisher and number.

CentralizedCore   one broker, the center, has all subscriptions: SIENA's *ce*, a single server (§6.2). Other brokers
                  relay between it and their clients: each request goes to the center as it is, without reduction; each
                  notification goes to the center, is matched there, and comes back as a copy for each client that
                  wants it. That is what a server costs whose clients speak to it directly.

    State: link states (`siena/link_states.py`), whose shortest-path tree of the center is the way up and down; the
    sessions of local clients; at the center, the subscriptions of all brokers' clients. The center decides who gets a
    copy; the client's broker keeps order, holds what waits and watches patterns, as with every core.

    client's request   done here, then what it changed is registered: carried up to the center.
    Registration       at the center, entered if it follows the last of its origin; elsewhere relayed up. What does not
                       follow is left: something before it was lost on a link that failed, and will be stated anew.
    Links, LinkUp, …   if our path to the center has changed, or the links of a broker on it: all that our clients want
                       is registered anew, since what was under way on the path may be lost, or the center new. A link
                       state is flooded before what is sent because of it, so each relay knows at least what we know,
                       and what we state after the last change arrives.
    notifications      up to the center; a copy down to its addressee. Without a path they are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from catchment.errors import CatchmentError, RemoteProtocolError
from catchment.matching.ids import Id
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import (
    Action,
    Cancel,
    Client,
    ClientDown,
    ClientUp,
    Forward,
    Interface,
    LinkDown,
    Links,
    LinkUp,
    Message,
    Neighbor,
    Refuse,
    Registration,
    Routed,
    Send,
    Subscribe,
    Time,
    TimerFired,
    Wanted,
)
from catchment.routing.newest import Newest
from catchment.routing.recall import RecallingMatcher
from catchment.routing.sessions import Request, Sessions
from catchment.routing.siena.link_states import LinkStates

# Publishers whose last number is kept.
PUBLISHERS_MAX: Final = 100_000


class FloodingCore:
    """A broker that passes everything on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions = Sessions()
        self._neighbors: dict[Neighbor, None] = {}
        self._newest = Newest(PUBLISHERS_MAX)

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, Request):
            assert isinstance(source, Client)
            try:
                return self.sessions.request(message, source)
            except CatchmentError as problem:
                return [Refuse(source, problem)]
        match message:
            case LinkUp():
                assert isinstance(source, Neighbor)
                self._neighbors[source] = None
            case LinkDown():
                assert isinstance(source, Neighbor)
                self._neighbors.pop(source, None)
            case ClientUp():
                assert isinstance(source, Client)
                self.sessions.client_up(source, message)
            case ClientDown():
                assert isinstance(source, Client)
                self.sessions.client_down(source)
            case _:
                pass
        return []

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [one for one in batch if self._newest.is_new(one.notification)]
        if not fresh:
            return []
        onward = tuple(Routed(one.notification, one.origin or self.name, one.hops + 1) for one in fresh)
        others = [one for one in sorted(self._neighbors) if one != source]
        due = self.sessions.due([one.notification for one in fresh], now)
        return due + [Forward(one, onward) for one in others]

    def prepare(self) -> None:
        self.sessions.prepare()


class CentralizedCore:
    """A broker that relays to `center`, or is it."""

    def __init__(self, name: str, center: str) -> None:
        self.name = name
        self.center = center
        self.sessions = Sessions()
        self.registry = Registry()
        self._links = LinkStates(name)
        # What was registered, by identity, and the number of that.
        self._registered: dict[str, dict[str, Wanted]] = {}
        self._seq = 0

    @property
    def link_states(self) -> LinkStates:
        return self._links

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, Request):
            assert isinstance(source, Client)
            try:
                due = self.sessions.request(message, source)
            except CatchmentError as problem:
                return [Refuse(source, problem)]
            return due + self._register([message.identity])
        match message:
            case ClientUp():
                assert isinstance(source, Client)
                self.sessions.client_up(source, message)
                return []
            case ClientDown():
                assert isinstance(source, Client)
                return self._register(self.sessions.client_down(source))
            case TimerFired():
                return []
            case _:
                assert isinstance(source, Neighbor)
                return self._on_neighbor(message, source, now)

    def _on_neighbor(self, message: Message, source: Neighbor, now: Time) -> list[Action]:
        before, version = self._path(), self._links.version
        match message:
            case LinkUp():
                actions, changed = self._links.up(source, message.cost, now), self.name
            case LinkDown():
                actions, changed = self._links.down(source, now), self.name
            case Links():
                actions, changed = self._links.heard(message, source, now), message.origin
            case Registration():
                return self._carried(message)
            case _:
                return [Refuse(source, RemoteProtocolError(source.name, f"sent {type(message).__name__}"))]
        if self._links.version > version and (changed in before or self._path() != before):
            actions += self._register_all()
        return actions

    # --- the way to the center ---

    def _path(self) -> tuple[str, ...]:
        """The brokers from here to the center, both among them; none if it cannot be reached."""
        parents, found = self._links.tree(self.center), []
        here: str | None = self.name if self.name in parents else None
        while here is not None:
            found.append(here)
            here = parents[here]
        return tuple(found)

    def _up(self) -> Neighbor | None:
        parent = self._links.tree(self.center).get(self.name)
        return None if parent is None else Neighbor(parent)

    def _down(self, broker: str) -> Neighbor | None:
        hop = self._links.hops_from(self.center).get(broker)
        return None if hop is None else Neighbor(hop)

    # --- requests ---

    def _register(self, identities: Iterable[str]) -> list[Action]:
        """What has changed in what identities want."""
        requests: list[Subscribe | Cancel] = []
        for identity in identities:
            before, after = self._registered.pop(identity, {}), self.sessions.subscriptions_of(identity)
            requests += [Cancel(identity, id) for id in before if id not in after]
            requests += [Subscribe(identity, id, wanted) for id, wanted in after.items() if id not in before]
            if after:
                self._registered[identity] = after
        return self._stated(requests, is_whole=False) if requests else []

    def _register_all(self) -> list[Action]:
        held = self._registered.items()
        return self._stated([Subscribe(who, id, one) for who, some in held for id, one in some.items()], is_whole=True)

    def _stated(self, requests: Sequence[Subscribe | Cancel], is_whole: bool) -> list[Action]:
        self._seq += 1
        return self._carried(Registration(self.name, self._links.seq, self._seq, is_whole, tuple(requests)))

    def _carried(self, registration: Registration) -> list[Action]:
        if self.name == self.center:
            self.registry.enter(registration)
            return []
        up = self._up()
        return [] if up is None else [Send(up, registration)]

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        actions: list[Action] = []
        for routed in self._copied(batch) if self.name == self.center else batch:
            here = routed.addressee
            if here is not None and here[0] == self.name:
                actions += self.sessions.due([routed.notification], now, only=here[1])
                continue
            hop = self._up() if here is None else self._down(here[0])
            if hop is not None:
                # Each alone: copies for several clients would not come from a server in one message.
                onward = Routed(routed.notification, routed.origin or self.name, routed.hops + 1, here)
                actions.append(Forward(hop, (onward,)))
        return actions

    def prepare(self) -> None:
        self.sessions.prepare()
        self.registry.prepare()

    def _copied(self, batch: Sequence[Routed]) -> list[Routed]:
        """At the center: for each notification a copy for each client that wants it."""
        found = self.registry.wanting([one.notification for one in batch])
        return [
            Routed(routed.notification, routed.origin, routed.hops, addressee)
            for routed, addressees in zip(batch, found, strict=True)
            for addressee in addressees
        ]


class Registry:
    """The subscriptions of the clients of all brokers."""

    def __init__(self) -> None:
        self._matcher: RecallingMatcher[list[tuple[str, str]]] = RecallingMatcher(_addressees, by_group=True)
        self._last: dict[str, tuple[int, int]] = {}
        # By broker, identity and id, the numbers in the matcher: one for each filter of a pattern.
        self._numbers: dict[str, dict[tuple[str, str], list[int]]] = {}
        self._next = 0

    def __len__(self) -> int:
        """Filters."""
        return len(self._matcher)

    def of(self, broker: str) -> list[tuple[str, str]]:
        """The subscriptions of a broker's clients: identity and id."""
        return sorted(self._numbers.get(broker, ()))

    def enter(self, registration: Registration) -> None:
        origin, this = registration.origin, (registration.links_seq, registration.seq)
        links_seq, seq = self._last.get(origin, (0, 0))
        if registration.is_whole and this > (links_seq, seq):
            for identity, id in self.of(origin):
                self._cancel(origin, identity, id)
        elif registration.is_whole or this != (links_seq, seq + 1):
            return
        self._last[origin] = this
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
            self._matcher.add(number, filter, group=f"{origin}\0{request.identity}")
        self._numbers.setdefault(origin, {})[request.identity, request.id] = numbers
        self._next += len(filters)

    def _cancel(self, origin: str, identity: str, id: str) -> None:
        for number in self._numbers.get(origin, {}).pop((identity, id), ()):
            self._matcher.remove(number)

    def prepare(self) -> None:
        self._matcher.prepare()

    def wanting(self, batch: Sequence[Notification]) -> list[list[tuple[str, str]]]:
        """For each notification the clients that want it, as broker and identity."""
        return self._matcher.found(batch)


def _addressees(groups: Sequence[Id]) -> list[tuple[str, str]]:
    pairs = (str(one).split("\0", 1) for one in groups)
    return sorted((broker, identity) for broker, identity in pairs)
