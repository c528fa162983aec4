"""A broker that belongs to several units of different architecture, and joins them (SIENA §4.4, Figures 8 and 9).

A *unit* is a set of brokers of one architecture. A gateway has a *port* into each of its units, which is an ordinary
core of that unit, and a *hub*, an ordinary acyclic peer, which has the gateway's own clients. Hub and ports are
neighbors of one another, over links that never fail and cost nothing:

      unit A ── port A ──┐
      unit B ── port B ──┼── hub ── clients
      unit C ── port C ──┘

So what joins the units is the acyclic algorithm itself, which is right because units form a tree (`sim/hybrid.py`
checks that): the hub is told by each port what is wanted in its unit, and tells each port the roots of what everybody
else wants, equation (1); notifications go back along that. Over these inner links go Interest, Advertised and
notifications alone. What brokers of a unit say of their network, as link states, is never sent to the hub, so it
cannot leave the unit.

An inner neighbor, not an inner client: a client is never told what others want, gets back what it publishes, and has
what it is due held to its last number. The hub, not a link from port to port: three units then need no more than two.

What each kind of port tells the hub is what is wanted in its unit other than by the gateway:

acyclic       nothing special: the hub is one neighbor more.
advertising   likewise, with advertisements. Hub and ports are all of this kind, or none is.
general       the hub stands where a broker's clients do: what it tells the port is the gateway's record in the unit.
              What the other brokers that the port reaches want, it holds in a poset, and tells the hub its roots. In
              the unit, what comes from the hub has the gateway as its origin.
hierarchical  in a gateway that is the root of the unit, the hub is its master: interest and notifications all come
              up to it, and it tells nothing. In a gateway that has a master the hub is below: interest goes up to the
              master, and since nobody tells a broker below what is wanted above, the port asks the hub for everything,
              as every broker sends everything up.

messages of neighbors    go to the port of the unit that the neighbor is in.
clients' messages        go to the hub.
inner messages           go from hub to port and back, in order, until only actions of the host are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from catchment.errors import InputError, RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    ClientRequest,
    Forward,
    Header,
    HostMessage,
    Interface,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.link_states import Links
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.messages import Advertised, Interest, OriginHeader, Wants, WantsChange

Kind = Literal["hierarchical", "acyclic", "advertising", "general"]
# What the brokers of a unit of each kind say to each other.
SAID_IN: Final[dict[Kind, tuple[type[BrokerMessage], ...]]] = {
    "hierarchical": (Interest,),
    "acyclic": (Interest,),
    "advertising": (Interest, Advertised),
    "general": (Links, Wants, WantsChange),
}
KINDS: Final[tuple[Kind, ...]] = tuple(SAID_IN)
HybridMessage = Interest | Advertised | Links | Wants | WantsChange

# The core of a broker in one unit.
UnitCore = HierarchicalCore | AcyclicCore | AdvertisingCore | GeneralCore

# Inner neighbors begin with this; no broker's name does.
INNER: Final = "@"
HUB: Final = Neighbor(INNER)
EVERYTHING: Final = Filter("true")


@dataclass(frozen=True, slots=True)
class Membership:
    """A unit that a broker is in: its neighbors there, and its master if the unit is hierarchical and it has one."""

    unit: str
    kind: Kind
    neighbors: frozenset[str]
    master: str | None = None


def unit_core(name: str, membership: Membership) -> UnitCore:
    """A broker of one unit."""
    match membership.kind:
        case "hierarchical":
            return HierarchicalCore(name, membership.master)
        case "acyclic":
            return AcyclicCore(name)
        case "advertising":
            return AdvertisingCore(name)
        case "general":
            return GeneralCore(name)


class GeneralPort(GeneralCore):
    """A peer of a general unit with the hub in place of clients."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # What each broker that can be reached wants; told to the hub.
        self.elsewhere: Forwarding[Filter] = Forwarding()
        self.elsewhere.connect(HUB)
        self._near: frozenset[str] = frozenset()

    def on_message(
        self, message: ClientRequest | HostMessage | HybridMessage, source: Interface, now: Time
    ) -> list[Action]:
        if isinstance(message, Interest):
            self._hub_wants(message)
            return self._stated(now)
        # The hub says nothing else to a port that does not advertise.
        assert not isinstance(message, Advertised)
        actions = super().on_message(message, source, now)
        told = self.elsewhere.flush()
        return actions + [Send(HUB, Interest(change.withdrawn, change.announced)) for _, change in told]

    def _hub_wants(self, message: Interest) -> None:
        """What the hub asks for is entered as what a client wants, and matched as what a broker named as it wants."""
        for filter in message.withdrawn:
            for gone in self.own.unsubscribe(HUB, filter):
                self.remote.remove(HUB.name, gone)
        for filter in message.announced:
            held, replaced = self.own.subscribe(HUB, filter)
            for gone in replaced:
                self.remote.remove(HUB.name, gone)
            if held is not None:
                self.remote.add(HUB.name, held)

    def _on_neighbor(self, message: Links | Wants | WantsChange, source: Neighbor, now: Time) -> list[Action]:
        actions = super()._on_neighbor(message, source, now)
        if isinstance(message, Links):
            self._look_around()
        return actions

    def _on_link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        actions = super()._on_link_up(neighbor, cost, now)
        self._look_around()
        return actions

    def _on_link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        actions = super()._on_link_down(neighbor, now)
        self._look_around()
        return actions

    def _look_around(self) -> None:
        """Brokers come and go, and what they want with them."""
        near = frozenset(self.origins) - {self.name}
        for origin in sorted(self._near - near):
            self.elsewhere.drop(origin)
        for origin in sorted(near - self._near):
            for filter in self.wants_of(origin):
                self.elsewhere.subscribe(origin, filter)
        self._near = near

    def _replace(self, origin: str, seq: int, filters: Sequence[Filter]) -> None:
        before = self.wants_of(origin)
        super()._replace(origin, seq, filters)
        if origin in self._near:
            after = self.wants_of(origin)
            for filter in [one for one in before if one not in set(after)]:
                self.elsewhere.unsubscribe(origin, filter)
            for filter in [one for one in after if one not in set(before)]:
                self.elsewhere.subscribe(origin, filter)

    def _next(self, origin: str, origins: Sequence[str], source: Interface) -> list[Neighbor]:
        neighbors = super()._next(origin, origins, source)
        return [*neighbors, HUB] if HUB.name in origins and source != HUB else neighbors

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *map(str, self.elsewhere.poset)]


class Hub(AcyclicCore):
    """Tells nothing to `untold`: ports of hierarchies, which send everything anyway."""

    def __init__(self, name: str, untold: frozenset[Neighbor]) -> None:
        super().__init__(name)
        self._untold = untold

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        return neighbor not in self._untold


class HybridCore:
    """A broker of a hybrid network. In one unit it is a core of that kind; in several it is a gateway."""

    def __init__(self, name: str, memberships: Sequence[Membership]) -> None:
        _check(name, memberships)
        self.name = name
        self.is_gateway = len(memberships) > 1
        make = _port if self.is_gateway else unit_core
        self.ports: dict[str, UnitCore] = {member.unit: make(name, member) for member in memberships}
        # Clients are at the hub; without one, at the core of the only unit.
        self.hub: UnitCore = _hub(name, memberships) if self.is_gateway else self.ports[memberships[0].unit]
        self._membership_of = {Neighbor(other): member for member in memberships for other in member.neighbors}
        self._inside: dict[Neighbor, UnitCore] = {_inner(unit): port for unit, port in self.ports.items()}
        self._inside[HUB] = self.hub
        # Said inside and not yet heard. What the hub says at the beginning is heard with the first message, since
        # records are numbered by the time.
        self._unheard: deque[tuple[Neighbor, Action]] = deque()
        if self.is_gateway:
            self._introduce(memberships)

    def _introduce(self, memberships: Sequence[Membership]) -> None:
        """Hub and ports become neighbors of one another."""
        for member in memberships:
            self._say(HUB, self.hub.on_message(LinkUp(), _inner(member.unit), 0))
            if member.master is not None:
                self._say(HUB, _heard(self.hub, Interest(announced=(EVERYTHING,)), _inner(member.unit), 0))

    @property
    def clients(self) -> ClientSide:
        return self.hub.clients

    def on_message(
        self, message: ClientRequest | HostMessage | HybridMessage, source: Interface, now: Time
    ) -> list[Action]:
        here = self._listener(source)
        if here is None:
            return [_stranger(self.name, source)]
        if isinstance(source, Neighbor) and isinstance(message, BrokerMessage):
            member = self._membership_of[source]
            if not isinstance(message, SAID_IN[member.kind]):
                what = f"sent {type(message).__name__}, which brokers of a unit of kind {member.kind} do not say"
                return [Refuse(source, RemoteProtocolError(source.name, what))]
        return self._joined(here, _heard(self._inside[here], message, source, now), now)

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        here = self._listener(source)
        if here is None:
            return [_stranger(self.name, source)]
        if isinstance(source, Neighbor) and self._membership_of[source].kind != "general":
            # Only general units read the origin.
            batch = [Routed(routed.notification, Header(routed.header.hops)) for routed in batch]
        return self._joined(here, self._inside[here].on_notifications(batch, source, now), now)

    def _listener(self, source: Interface) -> Neighbor | None:
        """Who inside hears what comes from outside."""
        if not isinstance(source, Neighbor):
            return HUB
        member = self._membership_of.get(source)
        return None if member is None else _inner(member.unit)

    def _joined(self, here: Neighbor, actions: Sequence[Action], now: Time) -> list[Action]:
        """What is left for the host when everything said inside is heard."""
        left: list[Action] = []
        self._say(here, actions)
        while self._unheard:
            speaker, action = self._unheard.popleft()
            match action:
                case Send(listener, message) if listener in self._inside:
                    answer = _heard(self._inside[listener], message, speaker, now)
                case Forward(listener, batch) if listener in self._inside:
                    answer = self._inside[listener].on_notifications(tuple(map(_crossing, batch)), speaker, now)
                case Forward(neighbor, batch):
                    left.append(Forward(neighbor, tuple(map(self._outward, batch))))
                    continue
                case _:
                    assert not (isinstance(action, Refuse) and action.source in self._inside), action
                    left.append(action)
                    continue
            self._say(listener, answer)
        return left

    def _say(self, speaker: Neighbor, actions: Sequence[Action]) -> None:
        self._unheard.extend((speaker, action) for action in actions)

    def _outward(self, routed: Routed) -> Routed:
        """With the header of hybrid networks, whatever the kind of the unit: one header for the whole network."""
        header = routed.header
        return (
            routed if isinstance(header, OriginHeader) else Routed(routed.notification, OriginHeader(header.hops, ""))
        )

    # --- looking in ---

    @property
    def _parts(self) -> tuple[UnitCore, ...]:
        """Hub and ports, each once."""
        return (self.hub, *self.ports.values()) if self.is_gateway else (self.hub,)

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return tuple(matcher for part in self._parts for matcher in part.matchers())

    def inspect(self) -> Inspection:
        """Without what hub and ports hold of one another: that is said twice already."""
        inspections = [part.inspect() for part in self._parts]
        tables = [table for each in inspections for table in each.tables if not table.holder.startswith(INNER)]
        work = Work(sum(each.work.matched for each in inspections), sum(each.work.compared for each in inspections))
        return Inspection(tuple(sorted(tables)), work)

    def leftovers(self) -> list[str]:
        """Besides what a gateway below a master asks for always."""
        return [text for part in self._parts for text in part.leftovers() if not text.startswith(str(EVERYTHING))]


def _heard(
    core: UnitCore, message: ClientRequest | HostMessage | HybridMessage | BrokerMessage, source: Interface, now: Time
) -> list[Action]:
    """Hub and ports say only what the other knows; what brokers say is checked before."""
    listener: Any = core
    actions: list[Action] = listener.on_message(message, source, now)
    return actions


def _inner(unit: str) -> Neighbor:
    return Neighbor(INNER + unit)


def _crossing(routed: Routed) -> Routed:
    """Without the link inside, and as if published here: a unit knows only its own brokers."""
    return Routed(routed.notification, Header(routed.header.hops - 1))


def _port(name: str, membership: Membership) -> UnitCore:
    if membership.kind == "general":
        return GeneralPort(name)
    port = unit_core(name, membership)
    if isinstance(port, HierarchicalCore) and port.master is None:
        port.master = HUB
    port.on_message(LinkUp(), HUB, 0)
    return port


def _hub(name: str, memberships: Sequence[Membership]) -> UnitCore:
    if memberships[0].kind == "advertising":
        return AdvertisingCore(name)
    roots = [one for one in memberships if one.kind == "hierarchical" and one.master is None]
    return Hub(name, frozenset(_inner(one.unit) for one in roots))


def _check(name: str, memberships: Sequence[Membership]) -> None:
    if not memberships or len({one.unit for one in memberships}) < len(memberships):
        raise InputError(f"gateway {shown(name)} is in units of different names, at least one")
    if len({one.kind == "advertising" for one in memberships}) > 1:
        raise InputError(f"gateway {shown(name)}: its units are all advertisement-based, or none is")
    neighbors = [other for one in memberships for other in one.neighbors]
    if len(set(neighbors)) < len(neighbors):
        raise InputError(f"gateway {shown(name)}: a neighbor is in one of its units")
    for one in memberships:
        if one.master is not None and (one.kind != "hierarchical" or one.master not in one.neighbors):
            raise InputError(f"gateway {shown(name)}: its master in {shown(one.unit)} is a neighbor in that hierarchy")
    for other in [name, *neighbors]:
        if other.startswith(INNER):
            raise InputError(f"broker {shown(other)}: its name does not begin with {INNER}")


def _stranger(name: str, source: Interface) -> Refuse:
    return Refuse(source, RemoteProtocolError(str(source), f"is in no unit of {name}"))
