"""A broker of the Grid Event Service: event routing over units within units (Grid §3).

State: who this broker is (`units.py`); which connections there are between units, and the best hop to each unit
(`gateways.py`, `graph.py`); what each unit wants (`profiles.py`); the local clients.

Context, Gateways        see `gateways.py`.
Profile, ProfileChange   see `profiles.py`.
client's request         is done, and what changes in the profile of this broker is stated.
LinkUp, LinkDown         see `gateways.py`. After each of these messages connections are settled first, then profiles:
                         whom to believe, and what to say.

Event routing (§3.3). A copy of a notification carries the units that it is for, its *destinations*.

published      The broker matches the notification once against the profiles of all units that it sees: brokers of its
               cluster, clusters of its super-cluster, and so on; and of other units of the highest level, it finds the
               units of the next level that want it. Those are the destinations. It stamps its path on the notification.
arrived        A destination that does not have this broker inside is passed on towards it: nothing is matched. A
               destination that is this broker is for its clients. If this broker is inside a destination, it is the
               first of that unit to get the notification: it matches it against the profiles of the units that it sees
               inside, whose levels are lower, and against what its clients want. So the level of destinations falls
               with each matching step: a notification is matched at most N + 1 times on its way to a client, first at
               its publisher, last at the client's broker. No unit gets it without a client that wants it.
next hop       Each broker computes the best hop to each destination by itself, past units that have the notification
               already (its routing information says which). All destinations with the same next hop go in one copy. A
               destination that cannot be reached is left out.
gateways       A notification does not go over a gateway of level ℓ to a unit of level ℓ that has it already. Before it
               goes over one, what is known about levels below ℓ is stripped from the routing information, and the
               broker at the other end is added.

Departures from the text, and why:

- The text has profiles of units of level ℓ at gatekeepers of level ℓ + 1 alone: a notification has to find such a
  gatekeeper, and a unit whose only gatekeeper fails is cut off from itself. Here every broker has the profiles of the
  units that it sees. They are as many as its graph has nodes.
- The text promises N + 1 matching steps, and that only units with an interested client see a notification. A
  notification for another unit of the highest level needs N + 2 decisions: which of these units, which unit within it,
  and so on to the client. Both promises hold only if one step decides about two levels: here, the first.
- Paths are compared level by level (`graph.py`).
- A unit that is split is a partition, as in the text: what is inside a unit is never reached by way of outside. While a
  unit is split, others see it as one, and a notification for it may enter the wrong part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from catchment.errors import CatchmentError
from catchment.routing.core import Inspection, Work
from catchment.routing.grid.gateways import GatewayStatements
from catchment.routing.grid.graph import ConnectivityGraph
from catchment.routing.grid.messages import (
    HOPS_MAX,
    Context,
    Gateways,
    GridHeader,
    GridSettings,
    Profile,
    ProfileChange,
)
from catchment.routing.grid.profiles import Profiles
from catchment.routing.grid.units import Path, contains, level_of, seen_from
from catchment.routing.messages import (
    Action,
    Cancel,
    CancelMany,
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
    Subscribe,
    Time,
    TimerFired,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import filters_for

GridMessage = Context | Gateways | Profile | ProfileChange
# What each neighbor gets of a notification.
_Way = list[tuple[Neighbor, GridHeader]]


class GridCore:
    """A broker in a system of units. `settings` says in which cluster it is."""

    def __init__(self, name: str, settings: GridSettings) -> None:
        self.name = name
        self.path: Path = (*settings.context_for(name), name)
        self.levels = len(self.path) - 1
        self.clients = ClientSide()
        self.gateways = GatewayStatements(self.path, self._forget)
        self.profiles = Profiles(self.gateways)
        self._matched = 0

    @property
    def graph(self) -> ConnectivityGraph:
        return self.gateways.graph

    @property
    def cut_off(self) -> list[Path]:
        """The units that this broker has heard of and cannot reach now."""
        return self.gateways.cut_off

    def _forget(self, key: tuple[int, str]) -> None:
        self.profiles.forget(key)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | GridMessage, source: Interface, now: Time
    ) -> list[Action]:
        try:
            actions = self._on_message(message, source, now)
        except CatchmentError as problem:
            return [Refuse(source, problem)]
        return actions + self.profiles.settled(now)

    def _on_message(
        self, message: ClientRequest | HostMessage | GridMessage, source: Interface, now: Time
    ) -> list[Action]:
        if isinstance(source, Neighbor):
            assert not isinstance(message, ClientRequest | ClientUp | ClientDown | TimerFired)
            return self._on_neighbor(message, source, now)
        if isinstance(message, TimerFired):
            return self.gateways.on_timer(message.name, now)
        assert isinstance(source, Client)
        match message:
            case ClientUp():
                self.clients.client_up(source, message)
            case ClientDown():
                for identity in self.clients.identities_of(source):
                    self._count(identity.subscriptions.values(), -1)
                self.clients.client_down(source)
            case _:
                assert isinstance(message, ClientRequest)
                return self._on_request(message, source)
        return []

    def _on_neighbor(self, message: LinkUp | LinkDown | GridMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case LinkUp():
                return self.gateways.up(source, message.cost)
            case LinkDown():
                return self.gateways.down(source, now)
            case Context():
                # Connections first: the neighbor keeps no profile of a speaker that it does not know. Then profiles as
                # they were stated: a change, which may follow, must find what it changes.
                connections = self.gateways.introduced(source, message.path) + self.gateways.settled(now)
                return connections + self.profiles.wholes(source)
            case Gateways():
                return self.gateways.heard(message, source, now)
            case Profile() | ProfileChange():
                return self.profiles.heard(message, source, now)

    # --- what our own clients want ---

    def _on_request(self, message: ClientRequest, source: Client) -> list[Action]:
        before: dict[str, Wanted] = {}
        if isinstance(message, Unsubscribe | Cancel | CancelMany):
            before = self.clients.subscriptions_of(message.identity)
        due = self.clients.request(message, source)
        if isinstance(message, Subscribe):
            self._count([message.wanted], 1)
        elif before:
            kept = self.clients.wants_of(message.identity)
            self._count([wanted for id, wanted in before.items() if id not in kept], -1)
        return due

    def _count(self, wants: Iterable[Wanted], by: int) -> None:
        for wanted in wants:
            self.profiles.count(filters_for(wanted), by)

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [(routed, self._reach(routed.header)) for routed in batch if routed.header.hops < HOPS_MAX]
        matched = [routed.notification for routed, reach in fresh if reach >= 0]
        self._matched += len(matched)
        actions = self.clients.due(matched, now)
        # One call of the matcher for the whole batch, without those that are for clients of this broker alone.
        answers = iter(self.profiles.wanting([routed.notification for routed, reach in fresh if reach > 0]))
        outgoing: dict[Neighbor, list[Routed]] = {}
        # Most notifications of a batch have the same header and are wanted by the same units: their way is computed
        # once.
        ways: dict[tuple[Header, int, tuple[str, ...]], _Way] = {}
        for routed, reach in fresh:
            holders = next(answers) if reach > 0 else ()
            way = ways.get((routed.header, reach, holders))
            if way is None:
                way = ways[routed.header, reach, holders] = self._way(routed.header, reach, holders)
            for neighbor, header in way:
                outgoing.setdefault(neighbor, []).append(Routed(routed.notification, header))
        return actions + [Forward(neighbor, tuple(outgoing[neighbor])) for neighbor in sorted(outgoing)]

    def _reach(self, header: Header) -> int:
        """The units that this broker must look for: those of lower levels than this. -1 if it only passes the
        notification on, 0 if it is for its clients alone."""
        if not isinstance(header, GridHeader):
            return self.levels + 1
        inside = [level_of(unit, self.levels) for unit in header.to if contains(unit, self.path)]
        return max(inside, default=-1)

    def _way(self, header: Header, reach: int, holders: tuple[str, ...]) -> _Way:
        """Where a notification goes from here, with which header."""
        seen: tuple[Path, ...] = (self.path,)
        destinations: dict[Path, None] = {}
        if isinstance(header, GridHeader):
            seen = header.seen
            destinations = {unit: None for unit in header.to if not contains(unit, self.path)}
        for (level, _), unit in self.profiles.units_of(holders):
            if level < reach:
                destinations[unit] = None
        by_neighbor: dict[Neighbor, list[Path]] = {}
        for unit in sorted(destinations):
            neighbor = self._next(unit, seen)
            if neighbor is not None:
                by_neighbor.setdefault(neighbor, []).append(unit)
        return [
            (neighbor, GridHeader(header.hops + 1, self._over(neighbor, seen), tuple(units)))
            for neighbor, units in by_neighbor.items()
        ]

    def _next(self, unit: Path, seen: Iterable[Path]) -> Neighbor | None:
        """The neighbor on the best path to a unit, past those that have the notification; None if there is none."""
        node = seen_from(unit, self.path)
        avoided = {having for path in seen if (having := seen_from(path, self.path))}
        route = None if node is None else self.graph.route_past(node, avoided)
        if route is None:
            return None
        links = self.gateways.links
        # The best hop may be a unit: then one of our own links leads into it.
        into = [neighbor for neighbor, link in links.items() if contains(route.hop, link.path)]
        return min(into, key=lambda neighbor: (links[neighbor].cost, neighbor), default=None)

    def _over(self, neighbor: Neighbor, seen: Sequence[Path]) -> tuple[Path, ...]:
        """The routing information for the other side of a gateway: without what is below its level."""
        link = self.gateways.links[neighbor]
        if not link.level:
            # Within a cluster nothing is stripped or added: paths there are short, and end.
            return tuple(seen)
        length = len(self.path) - link.level
        return (*dict.fromkeys(path[:length] for path in seen), link.path)

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.profiles.matcher

    def inspect(self) -> Inspection:
        tables = (*self.clients.tables(), *self.profiles.tables())
        return Inspection(tables, Work(self._matched), dropped_records=self.gateways.dropped)

    def leftovers(self) -> list[str]:
        return [*self.clients.leftovers(), *self.profiles.leftovers()]
