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
from typing import Final

from catchment.errors import RemoteProtocolError
from catchment.model.filter import Filter
from catchment.routing.messages import (
    Action,
    Forward,
    Interface,
    Links,
    Message,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
    Wants,
    WantsChange,
)
from catchment.routing.newest import Newest
from catchment.routing.siena.base import REMOTE_FILTERS_MAX, SienaCore, check_limit
from catchment.routing.siena.forwarding import Change
from catchment.routing.siena.link_states import LinkStates, following

# Told of everything that local clients want: stands for the flood.
EVERYBODY: Final = Neighbor("*")
# Links that a notification may travel: longer than any shortest path of a network this size of broker serves.
HOPS_MAX: Final = 255
# Brokers of one network, those that are gone among them: each has records here, and a tree of all.
BROKERS_MAX: Final = 10_000
# Publishers whose last number is kept, the longest silent forgotten first.
PUBLISHERS_MAX: Final = 100_000


class GeneralCore(SienaCore):
    """A peer in any network."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.interest.connect(EVERYBODY)
        self._links = LinkStates(name)
        self._wants_seq: dict[str, int] = {name: 0}
        self._wants: dict[str, dict[Filter, int]] = {name: {}}
        self._now: Time = 0
        self._newest = Newest(PUBLISHERS_MAX)

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        self._now = now
        if not self._wants_seq[self.name]:
            self._wants_seq[self.name] = self._after(0)
        return super().on_message(message, source, now)

    def _after(self, seq: int) -> int:
        return following(seq, self._now)

    # --- what is known ---

    @property
    def origins(self) -> tuple[str, ...]:
        """The brokers that can be reached, this one among them."""
        return self._links.reached

    @property
    def link_states(self) -> LinkStates:
        return self._links

    def wants_of(self, origin: str) -> tuple[Filter, ...]:
        return self.interest.told_to(EVERYBODY) if origin == self.name else tuple(self._wants.get(origin, ()))

    def _hops_from(self, origin: str) -> dict[str, str]:
        return self._links.hops_from(origin)

    # --- links ---

    def _on_link_up(self, neighbor: Neighbor, cost: int) -> list[Action]:
        wants = [Send(neighbor, self._whole_wants(one)) for one in sorted(self._wants_seq)]
        return self._links.up(neighbor, cost, self._now) + wants

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        return self._links.down(neighbor, self._now)

    def _flooded(self, message: Message, source: Neighbor | None = None) -> list[Action]:
        return self._links.flooded(message, source)

    # --- what clients want ---

    def _flushed(self) -> list[Action]:
        return [action for _, change in self.interest.flush() for action in self._stated(change)]

    def _stated(self, change: Change[Filter]) -> list[Action]:
        before = self._wants_seq[self.name]
        seq = self._wants_seq[self.name] = self._after(before)
        return self._flooded(WantsChange(self.name, seq, before, change.withdrawn, change.announced))

    def _whole_wants(self, origin: str) -> Wants:
        return Wants(origin, self._wants_seq[origin], tuple(sorted(self.wants_of(origin), key=str)))

    # --- records of others ---

    def _check_room(self, message: Message, source: Neighbor) -> None:
        match message:
            case Links() if message.origin not in self._links.records:
                check_limit("BROKERS_MAX", BROKERS_MAX, len(self._links.records) + 1)
            case Wants() | WantsChange():
                known = self._wants.get(message.origin)
                if known is None:
                    check_limit("BROKERS_MAX", BROKERS_MAX, len(self._wants) + 1)
                others = len(self._remote) - (len(known or ()) if isinstance(message, Wants) else 0)
                more = message.filters if isinstance(message, Wants) else message.announced
                check_limit("REMOTE_FILTERS_MAX", REMOTE_FILTERS_MAX, others + len(more))
            case _:
                super()._check_room(message, source)

    def _on_neighbor(self, message: Message, source: Neighbor) -> list[Action]:
        match message:
            case Links():
                return self._links.heard(message, source, self._now)
            case Wants() if message.origin == self.name:
                return self._outbid(message)
            case Wants():
                if self._wants_seq.get(message.origin, -1) >= message.seq:
                    return []
                self._replace(message.origin, message.seq, message.filters)
                return self._flooded(message, source)
            case WantsChange():
                return self._on_change(message, source)
            case _:
                return [Refuse(source, RemoteProtocolError(source.name, f"sent {type(message).__name__}"))]

    def _outbid(self, message: Wants) -> list[Action]:
        """Our own wants as others know them: from before a crash, if they are newer than ours."""
        mine = self._whole_wants(self.name)
        if message.seq < mine.seq or message == mine:
            return []
        self._wants_seq[self.name] = self._after(message.seq)
        return self._flooded(self._whole_wants(self.name))

    def _on_change(self, message: WantsChange, source: Neighbor) -> list[Action]:
        known = self._wants_seq.get(message.origin, 0)
        if message.seq <= known or message.origin == self.name:
            return []
        if message.after != known:
            what = f"told a change of {message.origin} after {message.after}, known is {known}"
            return [Refuse(source, RemoteProtocolError(source.name, what))]
        wants = self._wants.get(message.origin, {})
        gone = set(message.withdrawn)
        kept = [one for one in wants if one not in gone]
        self._replace(message.origin, message.seq, (*kept, *message.announced))
        return self._flooded(message, source)

    def _replace(self, origin: str, seq: int, filters: Sequence[Filter]) -> None:
        before, after = self._wants.setdefault(origin, {}), dict.fromkeys(filters)
        for one in [one for one in before if one not in after]:
            self._remote.remove(before.pop(one))
        for one in after:
            if one not in before:
                before[one] = self._remote_next
                self._remote.add(self._remote_next, one, group=origin)
                self._remote_next += 1
        self._wants_seq[origin] = seq

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [one for one in batch if one.hops <= HOPS_MAX and self._newest.is_new(one.notification)]
        notifications = [one.notification for one in fresh]
        actions = self.sessions.due(notifications, now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        # Most of a batch is from one origin and for the same.
        ways: dict[tuple[str, tuple[str, ...]], list[list[Routed]]] = {}
        for routed, origins in zip(fresh, self._remote.found(notifications), strict=True):
            if not origins:
                continue
            way = ways.get((routed.origin, origins))
            if way is None:
                neighbors = self._next(routed.origin or self.name, origins, source)
                way = ways[routed.origin, origins] = [outgoing.setdefault(one, []) for one in neighbors]
            if way:
                onward = self._onward(routed)
                for batch_out in way:
                    batch_out.append(onward)
        return actions + [Forward(one, tuple(outgoing[one])) for one in sorted(outgoing)]

    def _next(self, origin: str, origins: Sequence[str], source: Interface) -> list[Neighbor]:
        """The neighbors that a notification from an origin goes to, if these origins want it."""
        hops = self._hops_from(origin)
        found = map(Neighbor, sorted({hops[one] for one in origins if one in hops}))
        return [one for one in found if one in self._links.costs]
