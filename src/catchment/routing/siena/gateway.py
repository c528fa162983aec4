"""Hybrid networks: a broker that is in several units of different architectures joins them (SIENA §4.4, Figures 8, 9).

A *unit* is a set of brokers of one architecture. A *gateway* is a broker that is in several units. It has a *port* for
each of its units, which is an ordinary core of that unit, and a *hub*, an ordinary acyclic peer, which has the
gateway's own clients. Hub and ports are *inner neighbors* of one another, over *inner links* that never fail and cost
nothing:

      unit A ── port A ──┐
      unit B ── port B ──┼── hub ── clients
      unit C ── port C ──┘

So the acyclic algorithm itself joins the units. That is right because the units form a tree (the simulator checks it).
Each port tells the hub what its unit wants. The hub tells each port the roots of what everybody else wants, as equation
(1) says; notifications go the opposite way. Only Interest, Advertised and notifications cross an inner link. What
brokers of a unit say about their network, such as link states, never goes to the hub, so it cannot leave the unit.

Why hub and ports are neighbors of one another, and not clients: a client is never told what others want, gets back what
it publishes itself, and gets nothing that is not newer than the last notification of the same publisher. Why there is a
hub, and no links from port to port: then three units need no more than two do.

Each port tells the hub what is wanted in its unit, except by the gateway itself. How depends on the kind of the unit:

acyclic       Nothing special: the hub is one more neighbor.
advertising   The same, with advertisements. Either hub and ports are all of this kind, or none is.
general       The hub is in the place of the broker's clients: what it tells the port is the record of the gateway in
              the unit. The port holds what the other brokers that it reaches want in a poset, and tells the hub the
              roots. In the unit, a notification from the hub has the gateway as its origin.
hierarchical  If the gateway is the root of the unit, the hub is its master: all interest and all notifications come up
              to the hub, which tells the port nothing. If the gateway has a master in the unit, the hub is below the
              port: its interest goes up to the master. Nobody tells a broker what is wanted above it. So the port asks
              the hub for everything, as every broker of a hierarchy sends everything up.

messages of neighbors    go to the port of the unit that the neighbor is in.
requests of clients      go to the hub.
inner messages           go from hub to port and back, in order, until only actions for the host are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from catchment.errors import InputError, RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.core import CLIENTS_TABLE, Inspection, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    ClientRequest,
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
from catchment.routing.parts.link_states import Links
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.messages import Advertised, Interest, OriginHeader, Wants, WantsChange
from catchment.routing.siena.settings import Kind

# The messages that the brokers of a unit send each other, by the kind of the unit.
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

# The names of inner neighbors begin with this; no broker's name does.
INNER: Final = "@"
HUB: Final = Neighbor(INNER)
EVERYTHING: Final = Filter("true")


@dataclass(frozen=True, slots=True)
class Membership:
    """A unit that a broker is in: its neighbors there, and its master, if the unit is hierarchical and the broker is
    not the root."""

    unit: str
    kind: Kind
    neighbors: frozenset[str]
    master: str | None = None


def unit_core(name: str, membership: Membership) -> UnitCore:
    """The core of a broker that is in one unit."""
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
    """A peer of a general unit that has the hub in the place of clients."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # What the other brokers of the unit want; its roots are told to the hub.
        self.elsewhere: Forwarding[Filter] = Forwarding()
        self.elsewhere.connect(HUB)
        # The other brokers of the unit that can be reached now: those that `elsewhere` has the wants of.
        self._near: frozenset[str] = frozenset()

    def on_message(
        self, message: ClientRequest | HostMessage | HybridMessage, source: Interface, now: Time
    ) -> list[Action]:
        if isinstance(message, Interest):
            self._hub_wants(message)
            return self._stated(now)
        # The hub says only Interest to a port that does not advertise.
        assert not isinstance(message, Advertised)
        actions = super().on_message(message, source, now)
        changes = self.elsewhere.flush()
        return actions + [Send(HUB, Interest(change.withdrawn, change.announced)) for _, change in changes]

    def _hub_wants(self, message: Interest) -> None:
        """Enters what the hub asks for in two places: in `own`, as if a client wanted it, so that it is announced to
        the unit; and in `remote`, as if a broker with the name of the hub wanted it, so that it is matched."""
        for filter in message.withdrawn:
            for gone in self.own.unsubscribe(HUB, filter):
                self.remote.remove(HUB.name, gone)
        for filter in message.announced:
            held, replaced = self.own.subscribe(HUB, filter)
            for gone in replaced:
                self.remote.remove(HUB.name, gone)
            if held is not None:
                self.remote.add(HUB.name, held)

    def _from_neighbor(
        self, message: LinkUp | LinkDown | Links | Wants | WantsChange, source: Neighbor, now: Time
    ) -> list[Action]:
        actions = super()._from_neighbor(message, source, now)
        if isinstance(message, LinkUp | LinkDown | Links):
            self._look_around()
        return actions

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        actions = super()._timer_fired(name, now)
        self._look_around()
        return actions

    def _forget(self, origin: str) -> None:
        if origin in self._near:
            # It could be reached until now, and had to make room: its wants must not stay at the hub.
            self.elsewhere.drop(origin)
            self._near -= {origin}
        super()._forget(origin)

    def _look_around(self) -> None:
        """After links have changed: the wants of brokers that are no longer reached go, those of brokers that are
        reached now come."""
        near = frozenset(self.origins) - {self.name}
        for origin in sorted(self._near - near):
            self.elsewhere.drop(origin)
        for origin in sorted(near - self._near):
            for filter in self.wants_of(origin):
                self.elsewhere.subscribe(origin, filter)
        self._near = near

    def _change(self, origin: str, seq: int, gone: Sequence[Filter], new: Sequence[Filter]) -> None:
        super()._change(origin, seq, gone, new)
        if origin in self._near:
            for filter in gone:
                self.elsewhere.unsubscribe(origin, filter)
            for filter in new:
                self.elsewhere.subscribe(origin, filter)

    def _next(self, origin: str, origins: Sequence[str], source: Interface) -> list[Neighbor]:
        neighbors = super()._next(origin, origins, source)
        # The hub is in no tree: it gets what it wants directly, unless the notification came from it.
        return [*neighbors, HUB] if HUB.name in origins and source != HUB else neighbors

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *map(str, self.elsewhere.poset)]


class Hub(AcyclicCore):
    """A hub that tells nothing to the ports in `untold`: those of hierarchies whose root is the gateway. These send it
    everything anyway."""

    def __init__(self, name: str, untold: frozenset[Neighbor]) -> None:
        super().__init__(name)
        self._untold = untold

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        return neighbor not in self._untold


class HybridCore:
    """A broker of a hybrid network. If it is in one unit, it is a core of the kind of that unit; if it is in several,
    it is a gateway."""

    def __init__(self, name: str, memberships: Sequence[Membership]) -> None:
        _check(name, memberships)
        self.name = name
        self.is_gateway = len(memberships) > 1
        make = _port if self.is_gateway else unit_core
        self.ports: dict[str, UnitCore] = {member.unit: make(name, member) for member in memberships}
        # Clients are at the hub; without one, at the core of the only unit.
        self.hub: UnitCore = _hub(name, memberships) if self.is_gateway else self.ports[memberships[0].unit]
        self._membership_of = {Neighbor(neighbor): member for member in memberships for neighbor in member.neighbors}
        # Hub and ports by the name that their inner neighbors know them by.
        self._inside: dict[Neighbor, UnitCore] = {_inner(unit): port for unit, port in self.ports.items()}
        self._inside[HUB] = self.hub
        # Actions of hub and ports, each with who emitted it, that the others have not heard yet. What the hub says at
        # the beginning waits here for the first message: records are numbered by the time, which is not known before.
        self._unheard: deque[tuple[Neighbor, Action]] = deque()
        if self.is_gateway:
            self._introduce(memberships)

    def _introduce(self, memberships: Sequence[Membership]) -> None:
        """Links the hub with the ports. Each port was linked with the hub when it was made."""
        for member in memberships:
            self._say(HUB, self.hub.on_message(LinkUp(), _inner(member.unit), 0))
            # A port that has a master asks the hub for everything, to send it up.
            if member.master is not None:
                self._say(HUB, _heard(self.hub, Interest(announced=(EVERYTHING,)), _inner(member.unit), 0))

    @property
    def clients(self) -> ClientSide:
        return self.hub.clients

    def on_message(
        self, message: ClientRequest | HostMessage | HybridMessage, source: Interface, now: Time
    ) -> list[Action]:
        if isinstance(message, TimerFired):
            # Hub and ports share the names of their timers: each hears it, and knows whether it has something to do.
            parts = (HUB, *map(_inner, self.ports)) if self.is_gateway else (HUB,)
            return [
                action
                for part in parts
                for action in self._joined(part, _heard(self._inside[part], message, source, now), now)
            ]
        listener = self._listener(source)
        if listener is None:
            return [_stranger(self.name, source)]
        if isinstance(source, Neighbor) and isinstance(message, BrokerMessage):
            # The wire lets through what any kind of unit says. What this unit does not say is refused here.
            member = self._membership_of[source]
            if not isinstance(message, SAID_IN[member.kind]):
                what = f"sent {type(message).__name__}, which brokers of a unit of kind {member.kind} do not say"
                return [Refuse(source, RemoteProtocolError(source.name, what))]
        return self._joined(listener, _heard(self._inside[listener], message, source, now), now)

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        listener = self._listener(source)
        if listener is None:
            return [_stranger(self.name, source)]
        if isinstance(source, Neighbor) and self._membership_of[source].kind != "general":
            # In other units the origin has no meaning (`_outward`): drop it, so that no core reads it.
            batch = [Routed(routed.notification, Header(routed.header.hops)) for routed in batch]
        return self._joined(listener, self._inside[listener].on_notifications(batch, source, now), now)

    def _listener(self, source: Interface) -> Neighbor | None:
        """Who inside hears what comes from outside: the hub or a port. None if the source is in no unit."""
        if not isinstance(source, Neighbor):
            return HUB
        member = self._membership_of.get(source)
        return None if member is None else _inner(member.unit)

    def _joined(self, emitter: Neighbor, actions: Sequence[Action], now: Time) -> list[Action]:
        """Lets hub and ports hear what they say to one another, given the actions of one of them. Returns the actions
        that are left for the host."""
        left: list[Action] = []
        self._say(emitter, actions)
        # A queue, so that each inner link keeps the order of what is said over it. It ends: hub and ports form a tree.
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
                    # Hub and ports never refuse what they hear from one another.
                    assert not (isinstance(action, Refuse) and action.source in self._inside), action
                    left.append(action)
                    continue
            self._say(listener, answer)
        return left

    def _say(self, speaker: Neighbor, actions: Sequence[Action]) -> None:
        self._unheard.extend((speaker, action) for action in actions)

    def _outward(self, routed: Routed) -> Routed:
        """A notification as it leaves the broker: with the header of hybrid networks, which is the same for units of
        every kind."""
        header = routed.header
        return (
            routed
            if isinstance(header, OriginHeader)
            else Routed(routed.notification, OriginHeader(header.hops, self.name))
        )

    # --- looking in ---

    @property
    def _parts(self) -> tuple[UnitCore, ...]:
        """Hub and ports, each once."""
        return (self.hub, *self.ports.values()) if self.is_gateway else (self.hub,)

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return tuple(matcher for part in self._parts for matcher in part.matchers())

    def inspect(self) -> Inspection:
        """The tables leave out what hub and ports hold for one another: those filters are counted already. No broker
        of a hybrid network knows all of it, so nothing is said of other brokers."""
        inspections = [part.inspect() for part in self._parts]
        tables = [table for each in inspections for table in each.tables if not _is_inner(table.holder)]
        work = sum((each.work for each in inspections), Work())
        dropped = sum(each.dropped_records for each in inspections)
        return Inspection(tuple(sorted(tables)), work, dropped_records=dropped)

    def leftovers(self) -> list[str]:
        """What hub and ports keep, without the filter for everything: a port below a master asks for that always."""
        return [text for part in self._parts for text in part.leftovers() if not text.startswith(str(EVERYTHING))]


def _is_inner(holder: str) -> bool:
    return holder.startswith(INNER) and holder != CLIENTS_TABLE


def _heard(
    core: UnitCore, message: ClientRequest | HostMessage | HybridMessage | BrokerMessage, source: Interface, now: Time
) -> list[Action]:
    """Gives a message to hub or port. It is one that the core knows: hub and ports say only such messages, and
    `on_message` has checked what neighbors say. The type checker cannot know that."""
    listener: Any = core
    actions: list[Action] = listener.on_message(message, source, now)
    return actions


def _inner(unit: str) -> Neighbor:
    return Neighbor(INNER + unit)


def _crossing(routed: Routed) -> Routed:
    """A notification as it crosses an inner link: that link does not count as a hop, and there is no origin, as if it
    was published here. For a unit knows only its own brokers."""
    return Routed(routed.notification, Header(routed.header.hops - 1))


def _port(name: str, membership: Membership) -> UnitCore:
    if membership.kind == "general":
        return GeneralPort(name)
    port = unit_core(name, membership)
    # The gateway is the root of its unit: above it is the hub.
    if isinstance(port, HierarchicalCore) and port.master is None:
        port.master = HUB
    port.on_message(LinkUp(), HUB, 0)
    return port


def _hub(name: str, memberships: Sequence[Membership]) -> UnitCore:
    if memberships[0].kind == "advertising":
        return AdvertisingCore(name)
    roots = [member for member in memberships if member.kind == "hierarchical" and member.master is None]
    return Hub(name, frozenset(_inner(member.unit) for member in roots))


def _check(name: str, memberships: Sequence[Membership]) -> None:
    if not memberships or len({member.unit for member in memberships}) < len(memberships):
        raise InputError(f"gateway {shown(name)} needs at least one unit, and its units must have different names")
    if len({member.kind == "advertising" for member in memberships}) > 1:
        raise InputError(f"gateway {shown(name)}: either all its units must be advertisement-based, or none")
    neighbors = [neighbor for member in memberships for neighbor in member.neighbors]
    if len(set(neighbors)) < len(neighbors):
        raise InputError(f"gateway {shown(name)}: a neighbor must be in only one of its units")
    for member in memberships:
        master = member.master
        if master is not None and (member.kind != "hierarchical" or master not in member.neighbors):
            unit = shown(member.unit)
            raise InputError(f"gateway {shown(name)}: {unit} must be hierarchical, and its master there a neighbor")
    for broker in [name, *neighbors]:
        if broker.startswith(INNER):
            raise InputError(f"broker {shown(broker)}: the name of a broker does not begin with {INNER}")


def _stranger(name: str, source: Interface) -> Refuse:
    return Refuse(source, RemoteProtocolError(str(source), f"is in no unit of {name}"))
