"""Brokers as peers in any network, with cycles and redundant links (SIENA §4.3, §5.2.3).

The text leaves the general architecture to "well-known techniques": here, link states (`link_states.py`). Every broker
floods two records, the links it has and what its own clients want (the roots of it: covering at the origin), each
with a number that only grows. So all brokers know the same, and each computes the same shortest-path trees.

A notification travels down the tree of the broker it was published at: a broker forwards it to a neighbor that is
below it in that tree if somebody beyond wants it. Each broker has one place in the tree, so nothing loops or comes
twice. That is equation (1) with NST taken by origin; reduction by covering *between* origins, which the acyclic
algorithm does, would be wrong here: two filters of different origins travel different trees, so one cannot stand in
for the other.

Links             replaces the record if newer, and is flooded on.
Wants, -Change    likewise; a change that does not follow the record known is the neighbor's mistake.
own record        heard from others with a greater number: from before a crash, and the clock went back. Ours is
                  stated anew with one greater.
LinkUp            both ends give each other all records they have: two networks that were apart become one.
LinkDown          our links are stated anew. What a broker that is gone wanted is kept, and is not followed until it
                  is back.
notifications     what has come before is dropped: by publisher, all that is not newer than the last. While records
                  spread, brokers may disagree about trees; then that, and a bound on hops, keep copies from going
                  round. What is lost or late then is lost: best effort, as in §3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from catchment.errors import CatchmentError, LimitError, RemoteProtocolError
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
    Header,
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
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.link_states import Links, LinkStates, following
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import RemoteFilters, check_limit
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Change, Forwarding
from catchment.routing.siena.messages import OriginHeader, Wants, WantsChange

# Links that a notification may travel: longer than any shortest path of a network this size of broker serves.
HOPS_MAX: Final = 255
# Brokers of one network, those that are gone among them: each has records here, and a tree of all.
BROKERS_MAX: Final = 10_000
# Publishers whose last number is kept, the longest silent forgotten first.
PUBLISHERS_MAX: Final = 100_000

GeneralMessage = Links | Wants | WantsChange


class GeneralCore:
    """A peer in any network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients = ClientSide()
        # What our own clients want. All other brokers are told the same, its roots: one audience, named as we are.
        self.own: Forwarding[Filter] = Forwarding()
        self._others = Neighbor(name)
        self.own.connect(self._others)
        self._client_wants = ClientInterest(self.clients, self.own)
        # What the clients of the other brokers want, by the broker that they are at.
        self.remote = RemoteFilters()
        self.links = LinkStates(name)
        self._wants_seq: dict[str, int] = {name: 0}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    # --- what is known ---

    @property
    def origins(self) -> tuple[str, ...]:
        """The brokers that can be reached, this one among them."""
        return self.links.reached

    def wants_of(self, origin: str) -> tuple[Filter, ...]:
        return self.own.told_to(self._others) if origin == self.name else tuple(self.remote.of(origin))

    def _hops_from(self, origin: str) -> dict[str, str]:
        return self.links.hops_from(origin)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | GeneralMessage, source: Interface, now: Time
    ) -> list[Action]:
        if not self._wants_seq[self.name]:
            self._wants_seq[self.name] = self._after(0, now)
        if isinstance(message, ClientRequest):
            assert isinstance(source, Client)
            try:
                due = self._client_wants.request(message, source)
            except CatchmentError as problem:
                return [Refuse(source, problem)]
            return due + self._stated(now)
        match message:
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
                return []
            case ClientDown():
                assert isinstance(source, Client)
                self._client_wants.client_down(source)
                return self._stated(now)
            case LinkUp():
                assert isinstance(source, Neighbor)
                return self._on_link_up(source, message.cost, now)
            case LinkDown():
                assert isinstance(source, Neighbor)
                return self._on_link_down(source, now)
            case TimerFired():
                return []
            case _:
                assert isinstance(source, Neighbor)
                return self._on_neighbor(message, source, now)

    def _after(self, seq: int, now: Time) -> int:
        return following(seq, now)

    # --- links ---

    def _on_link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        wants = [Send(neighbor, self._whole_wants(origin)) for origin in sorted(self._wants_seq)]
        return self.links.up(neighbor, cost, now) + wants

    def _on_link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self.links.down(neighbor, now)

    def _flooded(self, message: BrokerMessage, source: Neighbor | None = None) -> list[Action]:
        return self.links.flooded(message, source)

    # --- what our own clients want ---

    def _stated(self, now: Time) -> list[Action]:
        """What has changed in that, told to all."""
        return [action for _, change in self.own.flush() for action in self._state(change, now)]

    def _state(self, change: Change[Filter], now: Time) -> list[Action]:
        before = self._wants_seq[self.name]
        seq = self._wants_seq[self.name] = self._after(before, now)
        return self._flooded(WantsChange(self.name, seq, before, change.withdrawn, change.announced))

    def _whole_wants(self, origin: str) -> Wants:
        return Wants(origin, self._wants_seq[origin], tuple(sorted(self.wants_of(origin), key=str)))

    # --- records of others ---

    def _on_neighbor(self, message: GeneralMessage, source: Neighbor, now: Time) -> list[Action]:
        try:
            self._check_room(message)
        except LimitError as problem:
            return [Refuse(source, problem)]
        match message:
            case Links():
                return self.links.heard(message, source, now)
            case Wants():
                return self._on_wants(message, source, now)
            case WantsChange():
                return self._on_change(message, source)
            case _:
                assert_never(message)

    def _check_room(self, message: GeneralMessage) -> None:
        """LimitError if a neighbor states more than there is room for."""
        match message:
            case Links():
                if message.origin not in self.links.records:
                    check_limit("BROKERS_MAX", BROKERS_MAX, len(self.links.records) + 1)
                return
            case Wants():
                more = len(message.filters) - len(self.remote.of(message.origin))
            case WantsChange():
                more = len(message.announced)
        if message.origin not in self._wants_seq:
            check_limit("BROKERS_MAX", BROKERS_MAX, len(self._wants_seq) + 1)
        self.remote.check_room(more)

    def _on_wants(self, message: Wants, source: Neighbor, now: Time) -> list[Action]:
        if message.origin == self.name:
            return self._outbid(message, now)
        if self._wants_seq.get(message.origin, -1) >= message.seq:
            return []
        self._replace(message.origin, message.seq, message.filters)
        return self._flooded(message, source)

    def _outbid(self, message: Wants, now: Time) -> list[Action]:
        """Our own wants as others know them: from before a crash, if they are newer than ours."""
        mine = self._whole_wants(self.name)
        if message.seq < mine.seq or message == mine:
            return []
        self._wants_seq[self.name] = self._after(message.seq, now)
        return self._flooded(self._whole_wants(self.name))

    def _on_change(self, message: WantsChange, source: Neighbor) -> list[Action]:
        known = self._wants_seq.get(message.origin, 0)
        if message.seq <= known or message.origin == self.name:
            return []
        if message.after != known:
            what = f"told a change of {message.origin} after {message.after}, known is {known}"
            return [Refuse(source, RemoteProtocolError(source.name, what))]
        gone = set(message.withdrawn)
        kept = [filter for filter in self.remote.of(message.origin) if filter not in gone]
        self._replace(message.origin, message.seq, (*kept, *message.announced))
        return self._flooded(message, source)

    def _replace(self, origin: str, seq: int, filters: Sequence[Filter]) -> None:
        self.remote.replace(origin, filters)
        self._wants_seq[origin] = seq

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        is_new = self._newest.is_new
        fresh = [routed for routed in batch if routed.header.hops <= HOPS_MAX and is_new(routed.notification)]
        self._matched += len(fresh)
        notifications = [routed.notification for routed in fresh]
        actions = self.clients.due(notifications, now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        # Most of a batch has one header and goes the same ways: for each header and set of origins that want it, the
        # header that goes on, and the batches that it goes into.
        ways: dict[tuple[Header, tuple[str, ...]], tuple[OriginHeader, list[list[Routed]]]] = {}
        for routed, origins in zip(fresh, self.remote.wanting(notifications), strict=True):
            if not origins:
                continue
            way = ways.get((routed.header, origins))
            if way is None:
                header = self._onward(routed.header)
                neighbors = self._next(header.origin, origins, source)
                way = header, [outgoing.setdefault(neighbor, []) for neighbor in neighbors]
                ways[routed.header, origins] = way
            header, batches = way
            if batches:
                further = Routed(routed.notification, header)
                for batch_out in batches:
                    batch_out.append(further)
        return actions + [Forward(neighbor, tuple(outgoing[neighbor])) for neighbor in sorted(outgoing)]

    def _onward(self, header: Header) -> OriginHeader:
        """What is written on it from here on. What comes without an origin was published here."""
        return OriginHeader(header.hops + 1, header.origin if isinstance(header, OriginHeader) else self.name)

    def _next(self, origin: str, origins: Sequence[str], source: Interface) -> list[Neighbor]:
        """The neighbors that a notification from an origin goes to, if these origins want it."""
        hops = self._hops_from(origin)
        neighbors = map(Neighbor, sorted({hops[one] for one in origins if one in hops}))
        return [neighbor for neighbor in neighbors if neighbor in self.links.costs]

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.remote.matcher

    def inspect(self) -> Inspection:
        work = Work(self._matched, self.own.poset.compared)
        tables = (*self.clients.tables(), *self.remote.tables())
        return Inspection(tables, work, self.links.known_brokers())

    def leftovers(self) -> list[str]:
        # What a broker that cannot be reached wanted is kept until it is back.
        reached = [origin for origin in self.origins if origin != self.name]
        remote = [f"{filter} of {origin}" for origin in reached for filter in self.remote.of(origin)]
        return [*self.clients.leftovers(), *map(str, self.own.poset), *remote]
