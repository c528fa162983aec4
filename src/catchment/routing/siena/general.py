"""Brokers as peers in any network, with cycles and redundant links (SIENA §4.3, §5.2.3).

The text leaves the general architecture to "well-known techniques": here, link states (`parts/link_states.py`). Every
broker, the *origin*, floods two *records*: the links that it has, and what its own clients want. (Of these filters only
the roots: the origin leaves out a filter that another of its own covers.) Each record has a number that only grows. So
all brokers have the same records, and each computes the same shortest-path trees.

A notification travels down the tree of the broker it was published at. A broker forwards it to a neighbor below it in
that tree if a broker in that direction wants it. Each broker has one place in the tree, so no notification goes in a
circle or comes twice. This is equation (1) with NST taken for each origin. The acyclic algorithm also leaves out
filters that are covered by a filter of *another* origin. That would be wrong here: two filters of different origins
travel in different trees, so one cannot stand for the other.

Links             The record replaces an older one of its origin, and is flooded on. Which records make sense, how many
                  there may be and when one is forgotten: see `parts/link_states.py`.
Wants             The same. The wants of an origin whose links are not known are dropped: a broker tells its links
                  first. When the links of an origin are forgotten, its wants are.
WantsChange       The same, if it follows the record that is known. If it does not, the neighbor has made a mistake.
own record        A broker hears a record of its own clients' wants, or a change of it, with a number that is not less
                  than its own: it is from before a crash, and the clock has gone back since; or it was made up. The
                  broker states its wants again, with a greater number.
LinkUp            Both ends give each other all records that they have: two networks that were apart become one.
LinkDown          The broker states its links again. The wants of a broker that cannot be reached are kept, but nothing
                  is sent for them until it is back.
notifications     A notification that is not newer than the last one of its publisher has come before: it is dropped.
                  While records spread, brokers may disagree about the trees. Then this rule, and a bound on hops, keep
                  copies from going round. What is lost or late during that time is lost: best effort, as in §3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from catchment.errors import LimitError, RemoteProtocolError
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientRequest,
    Forward,
    Header,
    HostMessage,
    Interface,
    Neighbor,
    Routed,
    Send,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.link_states import Links, LinkStates, following, implausible, is_plausible
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import RemoteFilters
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Change, Forwarding
from catchment.routing.siena.messages import OriginHeader, Wants, WantsChange, in_parts

# Links that a notification may cross: more than the longest shortest path in a network that such brokers serve.
HOPS_MAX: Final = 255
# Publishers whose last number is kept. The publisher that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000

GeneralMessage = Links | Wants | WantsChange


class GeneralCore(DispatchingCore[GeneralMessage]):
    """A peer in any network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients = ClientSide()
        # What our own clients want. All other brokers are told the same filters, its roots. So for `own` all of them
        # together are one neighbor, which has the name of this broker.
        self.own: Forwarding[Filter] = Forwarding()
        self._others = Neighbor(name)
        self.own.connect(self._others)
        self._client_wants = ClientInterest(self.clients, self.own)
        # What the clients of the other brokers want, by broker.
        self.remote = RemoteFilters()
        self.links = LinkStates(name, self._forget)
        # The number of the last known record of wants, by origin.
        self._wants_seq: dict[str, int] = {name: 0}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    # --- what is known ---

    @property
    def origins(self) -> tuple[str, ...]:
        """The names of the brokers that can be reached from this one. This broker is one of them."""
        return self.links.reached

    def wants_of(self, origin: str) -> tuple[Filter, ...]:
        """The filters in the record of wants of an origin."""
        return self.own.told_to(self._others) if origin == self.name else tuple(self.remote.of(origin))

    def _hops_from(self, origin: str) -> dict[str, str]:
        return self.links.hops_from(origin)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | GeneralMessage, source: Interface, now: Time
    ) -> list[Action]:
        # The first message tells the time: from now on our record has a number above those from before a crash.
        if not self._wants_seq[self.name]:
            self._wants_seq[self.name] = self._after(0, now)
        return super().on_message(message, source, now)

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        return self._client_wants.request(message, source) + self._stated(now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        self._client_wants.client_down(client)
        return self._stated(now)

    def _after(self, seq: int, now: Time) -> int:
        return following(seq, now)

    # --- links ---

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        wants = [Send(neighbor, self._whole_wants(origin)) for origin in sorted(self._wants_seq)]
        return self.links.up(neighbor, cost, now) + wants

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self.links.down(neighbor, now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        return self.links.on_timer(name, now)

    def _forget(self, origin: str) -> None:
        """The links of an origin are forgotten: so are its wants."""
        if self._wants_seq.pop(origin, None) is not None:
            for filter in list(self.remote.of(origin)):
                self.remote.remove(origin, filter)

    def _flooded(self, message: BrokerMessage, source: Neighbor | None = None) -> list[Action]:
        return self.links.flooded(message, source)

    # --- the wants of our own clients ---

    def _stated(self, now: Time) -> list[Action]:
        """Floods what has changed in the wants of our own clients."""
        return [action for _, change in self.own.flush() for action in self._state(change, now)]

    def _state(self, change: Change[Filter], now: Time) -> list[Action]:
        actions: list[Action] = []
        for withdrawn, announced in in_parts(change.withdrawn, change.announced):
            # With the number of the record that it changes: a broker that does not have that record must not apply it.
            before = self._wants_seq[self.name]
            seq = self._wants_seq[self.name] = self._after(before, now)
            actions += self._flooded(WantsChange(self.name, seq, before, withdrawn, announced))
        return actions

    def _whole_wants(self, origin: str) -> Wants:
        return Wants(origin, self._wants_seq[origin], tuple(sorted(self.wants_of(origin), key=str)))

    # --- records of other brokers ---

    def _heard(self, message: GeneralMessage, source: Neighbor, now: Time) -> list[Action]:
        if isinstance(message, Links):
            return self.links.heard(message, source, now)
        if not is_plausible(message.seq, now):
            return implausible(message.origin, message.seq, source, now)
        if message.origin not in self.links.records:
            # Its links were dropped, or are forgotten.
            return []
        self._check_room(message)
        match message:
            case Wants():
                return self._on_wants(message, source, now)
            case WantsChange():
                return self._on_change(message, source, now)
            case _:
                assert_never(message)

    def _check_room(self, message: Wants | WantsChange) -> None:
        """LimitError if there is no room for what a neighbor states, even without those who cannot be reached."""
        if isinstance(message, Wants):
            more = len(message.filters) - len(self.remote.of(message.origin))
        else:
            more = len(message.announced)
        try:
            self.remote.check_room(more)
        except LimitError:
            self.links.forget_marked(message.origin)
            self.remote.check_room(more)

    def _on_wants(self, message: Wants, source: Neighbor, now: Time) -> list[Action]:
        if message.origin == self.name:
            return [] if message == self._whole_wants(self.name) else self._outbid(message.seq, now)
        # Flooding ends here: each broker passes a record on only when it is new to it.
        known = self._wants_seq.get(message.origin, -1)
        if known >= message.seq:
            is_repeated = known == message.seq and self.links.may_repeat(Wants, message.origin)
            return self._flooded(message, source) if is_repeated else []
        self._replace(message.origin, message.seq, message.filters)
        return self._flooded(message, source)

    def _outbid(self, seq: int, now: Time) -> list[Action]:
        """A neighbor has sent a record of our own wants that we have not stated like that. If it would beat ours,
        states ours again with a greater number."""
        if seq < self._wants_seq[self.name]:
            return []
        self._wants_seq[self.name] = self._after(seq, now)
        return self._flooded(self._whole_wants(self.name))

    def _on_change(self, message: WantsChange, source: Neighbor, now: Time) -> list[Action]:
        if message.origin == self.name:
            # An echo has our number at most. Others would take one with a greater number for ours.
            return self._outbid(message.seq, now) if message.seq > self._wants_seq[self.name] else []
        known = self._wants_seq.get(message.origin, 0)
        if message.seq <= known:
            return []
        # A link keeps order, and a neighbor floods each record before the changes that follow it. So a gap is the
        # neighbor's mistake.
        if message.after != known:
            what = f"told a change of {message.origin} after {message.after}, known is {known}"
            raise RemoteProtocolError(source.name, what)
        # Only what has changed: the wants of an origin may be many.
        held = self.remote.of(message.origin)
        gone = [filter for filter in dict.fromkeys(message.withdrawn) if filter in held]
        new = [filter for filter in dict.fromkeys(message.announced) if filter not in held or filter in set(gone)]
        self._change(message.origin, message.seq, gone, new)
        return self._flooded(message, source)

    def _replace(self, origin: str, seq: int, filters: Sequence[Filter]) -> None:
        """From now on, these are the wants of an origin."""
        before, after = self.remote.of(origin), dict.fromkeys(filters)
        gone = [filter for filter in before if filter not in after]
        self._change(origin, seq, gone, [filter for filter in after if filter not in before])

    def _change(self, origin: str, seq: int, gone: Sequence[Filter], new: Sequence[Filter]) -> None:
        """The wants of an origin change: some are gone, others are new."""
        for filter in gone:
            self.remote.remove(origin, filter)
        for filter in new:
            self.remote.add(origin, filter)
        self._wants_seq[origin] = seq

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        is_new = self._newest.is_new
        # `is_new` also remembers: it is asked once for each notification.
        fresh = [routed for routed in batch if routed.header.hops <= HOPS_MAX and is_new(routed.notification)]
        self._matched += len(fresh)
        notifications = [routed.notification for routed in fresh]
        actions = self.clients.due(notifications, now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        # The trick: most notifications of a batch have the same header and are wanted by the same origins, so they go
        # the same way. A way is computed once for each header and set of origins: the header that they get, and the
        # outgoing batches that they are appended to.
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
        """The header that a notification gets for the next link. If it has no origin yet, it was published here."""
        return OriginHeader(header.hops + 1, header.origin if isinstance(header, OriginHeader) else self.name)

    def _next(self, origin: str, origins: Sequence[str], source: Interface) -> list[Neighbor]:
        """The neighbors that a notification published at `origin` goes to, if the brokers in `origins` want it."""
        hops = self._hops_from(origin)
        neighbors = map(Neighbor, sorted({hops[broker] for broker in origins if broker in hops}))
        return [neighbor for neighbor in neighbors if neighbor in self.links.costs]

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.remote.matcher

    def inspect(self) -> Inspection:
        work = Work(self._matched, self.own.poset.compared, self._newest.old_count)
        tables = (*self.clients.tables(), *self.remote.tables())
        return Inspection(tables, work, self.links.known_brokers(), self.own.poset.apart, self.links.dropped)

    def leftovers(self) -> list[str]:
        # The wants of a broker that cannot be reached do not count: they are kept until it is back.
        reached = [origin for origin in self.origins if origin != self.name]
        remote = [f"{filter} of {origin}" for origin in reached for filter in self.remote.of(origin)]
        return [*self.clients.leftovers(), *map(str, self.own.poset), *remote]
