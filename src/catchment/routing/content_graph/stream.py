"""The way of notifications: tagged where they are published, up to the rendezvous point, down to those who want them.

published       An identity that may not publish in the namespace is refused (F3 §6.1). With distributed preprocessing
                the broker looks up the nodes of the notification; one that belongs to no node is wanted by nobody.
rising          Passed on to the router above, whatever it carries.
at the top      The rendezvous point checks once more who may publish. It looks up the nodes itself if nobody has done
                it with this version of the graph. It numbers the notification (`loss.py`), and sends it down.
falling         Accepted from the router above alone: another neighbor that sends it was above us before the tree
                changed. The forwarder says where it goes, and with which nodes. A node that this router never asked for
                is a mistake of the router above.
for clients     The loss detector decides whether it is delivered now, or held until what is missing has come.

Adaptive forwarding (§6.6). If few brokers want a notification, each gets a copy that is addressed to it, and brokers on
the way look nothing up. If the graph has few levels, the header names all nodes, and brokers need no labels. Both take
the same way down the tree as the others, so a publisher's order is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final, NamedTuple

from catchment.errors import InputError, RemoteProtocolError, shown
from catchment.model.notification import Notification
from catchment.routing.content_graph.forwarders import HERE
from catchment.routing.content_graph.forwarders.base import RECALLED_MAX
from catchment.routing.content_graph.loss import HOLD, RECOVERY_HELD_MAX, Arrival, Decision, order_of
from catchment.routing.content_graph.messages import ContentHeader, NodeNumbers, Numbers, Recover, Recovered
from catchment.routing.content_graph.places import Place
from catchment.routing.content_graph.rendezvous import Rendezvous
from catchment.routing.content_graph.settings import ContentGraphSettings, Namespaces
from catchment.routing.messages import (
    Action,
    Client,
    Forward,
    Interface,
    Keep,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.link_states import LinkStates

# Links that a notification may cross: up and down the longest tree of a network that such brokers serve.
HOPS_MAX: Final = 255
# With adaptive forwarding: to so few brokers a notification goes by their names, and in a graph of so few levels all
# its nodes are named.
UNICAST_BROKERS_MAX: Final = 2
LISTED_LEVELS_MAX: Final = 2
RECOVER_TIMER: Final = "recover "


class Plan(NamedTuple):
    """How the rendezvous point sends what belongs to certain nodes: the headers' nodes, and either to whom by name, or
    whether all nodes are named."""

    nodes: tuple[int, ...]
    names_all: bool = False
    # By broker, the nodes that it wants; empty unless each gets its own copy.
    addressed: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Stream:
    """What a broker does with notifications."""

    def __init__(
        self,
        name: str,
        settings: ContentGraphSettings,
        namespaces: Namespaces,
        places: Mapping[str, Place],
        links: LinkStates,
    ) -> None:
        self.name = name
        self._settings = settings
        self._namespaces = namespaces
        self._places = places
        self._links = links
        # By rendezvous point: its namespaces.
        self._beside: dict[str, list[Place]] = {}
        for place in places.values():
            self._beside.setdefault(place.namespace.rendezvous, []).append(place)
        self.matched = 0
        # Notifications that were not sent on because their publisher may not publish.
        self.refused = 0
        # The timers of what is to be recovered that are set.
        self._timers: set[str] = set()
        # By namespace and nodes, for content lists and adaptive forwarding.
        self._plans: dict[tuple[str, tuple[int, ...]], Plan] = {}
        self._plans_version: dict[str, tuple[int, int]] = {}
        self._levels: dict[str, int] = {}

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        outgoing = _Outgoing()
        if isinstance(source, Client):
            self._publish([routed.notification for routed in batch], source, outgoing, now)
            return outgoing.actions()
        assert isinstance(source, Neighbor)
        for routed in batch:
            header = routed.header
            assert isinstance(header, ContentHeader)
            place = self._places.get(header.namespace)
            if place is None or header.hops > HOPS_MAX:
                continue
            if not header.is_rising:
                self._fall(place, routed.notification, header, source, outgoing, now)
            elif place.rendezvous is not None:
                self._disseminate(place, routed.notification, header, outgoing, now)
            elif place.router.up is not None:
                outgoing.add(place.router.up, routed.notification, _further(header), is_relayed=True)
        return outgoing.actions()

    # --- up ---

    def _publish(self, batch: Sequence[Notification], client: Client, outgoing: _Outgoing, now: Time) -> None:
        names = [self._namespaces.of(notification).name for notification in batch]
        tags: dict[str, tuple[int, Iterator[tuple[int, ...]]]] = {}
        for name in dict.fromkeys(names):
            some = [notification for notification, other in zip(batch, names, strict=True) if other == name]
            tags[name] = self._tagged(self._places[name], some)
        # In the order of the batch, also across namespaces: those that share a rendezvous point keep the order of a
        # publisher.
        for notification, name in zip(batch, names, strict=True):
            place, (version, tagged) = self._places[name], tags[name]
            header = ContentHeader(0, name, True, version, next(tagged), (), "", False)
            if not _may_publish(place, notification):
                what = f"{shown(notification.source)} may not publish in the namespace {shown(name)}"
                outgoing.other.append(Refuse(client, InputError(what), notification))
            elif place.rendezvous is not None:
                self._disseminate(place, notification, header, outgoing, now)
            # With the whole graph known, what belongs to no node is wanted by nobody.
            elif place.router.up is not None and (header.nodes or not version):
                outgoing.add(place.router.up, notification, _further(header))

    def _tagged(self, place: Place, batch: Sequence[Notification]) -> tuple[int, Iterator[tuple[int, ...]]]:
        """The nodes of notifications, and the version of the graph that they were found with; 0 if this broker has no
        graph."""
        version, copy = place.router.version, place.router.copy
        if place.rendezvous is not None:
            self.matched += len(batch)
            return version, iter(place.rendezvous.nodes_for(batch))
        if not version or self._settings.preprocessing == "central" or copy is None:
            return 0, repeat(())
        self.matched += len(batch)
        return version, iter(copy.tagger.nodes_for(batch))

    # --- at the rendezvous point ---

    def _disseminate(
        self, place: Place, notification: Notification, header: ContentHeader, outgoing: _Outgoing, now: Time
    ) -> None:
        """Sends a notification down the tree."""
        rendezvous = place.rendezvous
        assert rendezvous is not None
        if not _may_publish(place, notification):
            self.refused += 1
            return
        nodes = header.nodes
        if header.version != rendezvous.version:
            # Nobody has looked, or the graph has changed since.
            self.matched += 1
            nodes = rendezvous.nodes_for([notification])[0]
        if not nodes:
            return
        numbers = rendezvous.log.sent(notification, nodes) if self._settings.recovery else ()
        plan = self._plan(place, rendezvous, nodes)
        name = place.namespace.name
        if plan.addressed:
            for broker, wanted in plan.addressed:
                falling = ContentHeader(header.hops, name, False, rendezvous.version, wanted, numbers, broker, False)
                self._address(place, notification, falling, outgoing, now)
        else:
            falling = ContentHeader(
                header.hops, name, False, rendezvous.version, plan.nodes, numbers, "", plan.names_all
            )
            self._forward(place, notification, falling, outgoing, now)

    def _plan(self, place: Place, rendezvous: Rendezvous, nodes: tuple[int, ...]) -> Plan:
        """How what belongs to these nodes is sent; kept until the graph or those who want nodes change."""
        names_all = place.router.table.forwarder.names_all
        if not names_all and not self._settings.adaptive:
            return Plan(nodes)
        name = place.namespace.name
        # Who is wanted by name depends on the brokers, the rest on the graph.
        generation = (place.router.table.forwarder.generation, rendezvous.generation)
        if self._plans_version.get(name) != generation or len(self._plans) >= RECALLED_MAX:
            self._plans_version[name] = generation
            self._plans.clear()
            self._levels[name] = rendezvous.graph.levels() if self._settings.adaptive else 0
        plan = self._plans.get((name, nodes))
        if plan is None:
            plan = self._plans[name, nodes] = self._planned(rendezvous, nodes, names_all, self._levels[name])
        return plan

    def _planned(self, rendezvous: Rendezvous, nodes: tuple[int, ...], names_all: bool, levels: int) -> Plan:
        above = tuple(sorted(rendezvous.graph.at_or_above(nodes)))
        if not self._settings.adaptive:
            return Plan(above, names_all=False)
        brokers = {broker for node in above for broker in rendezvous.holders(node)}
        if len(brokers) <= UNICAST_BROKERS_MAX:
            wanted = {broker: set(rendezvous.of(broker).values()) for broker in brokers}
            addressed = [
                (broker, tuple(node for node in above if node in wanted[broker])) for broker in sorted(brokers)
            ]
            return Plan(nodes, addressed=tuple(addressed))
        if levels <= LISTED_LEVELS_MAX and not names_all:
            return Plan(above, names_all=True)
        return Plan(above if names_all else nodes)

    # --- down ---

    def _fall(
        self,
        place: Place,
        notification: Notification,
        header: ContentHeader,
        source: Neighbor,
        outgoing: _Outgoing,
        now: Time,
    ) -> None:
        router = place.router
        if source != router.up:
            return
        if header.to:
            self._address(place, notification, header, outgoing, now)
            return
        if router.needs_edges and router.is_confirmed and not header.names_all:
            unknown = [node for node in header.nodes if node not in router.table]
            if unknown:
                what = f"sent a notification for node {unknown[0]}, which was never asked for"
                outgoing.other.append(Refuse(source, RemoteProtocolError(source.name, what)))
                return
        self._forward(place, notification, header, outgoing, now)

    def _forward(
        self, place: Place, notification: Notification, header: ContentHeader, outgoing: _Outgoing, now: Time
    ) -> None:
        table = place.router.table
        outputs = table.listed(header.nodes) if header.names_all else table.outputs(header.nodes)
        for neighbor, nodes in outputs:
            if neighbor == HERE:
                outgoing.other += self._arrive(place, Arrival(notification, nodes, header.numbers), now)
            else:
                outgoing.add(neighbor, notification, _marked(header, nodes))

    def _address(
        self, place: Place, notification: Notification, header: ContentHeader, outgoing: _Outgoing, now: Time
    ) -> None:
        """A copy for one broker."""
        if header.to == self.name:
            outgoing.other += self._arrive(place, Arrival(notification, header.nodes, header.numbers), now)
            return
        hop = self._links.hops_from(place.namespace.rendezvous).get(header.to)
        if hop is not None:
            is_relayed = place.rendezvous is None
            outgoing.add(Neighbor(hop), notification, _further(header), is_relayed=is_relayed)

    # --- for our own clients ---

    def _arrive(self, place: Place, arrival: Arrival, now: Time) -> list[Action]:
        # Nothing can be lost between the rendezvous point and its own clients.
        if not arrival.numbers or place.rendezvous is not None:
            return place.edge.due(arrival.notification, arrival.nodes, now)
        decision = place.edge.detector.arrived(arrival)
        actions = self.decided(place, decision, now)
        # Held, or a copy of what has come before: in any case somebody here wants it.
        if arrival not in decision.arrivals or self._is_waiting(place):
            actions.append(Keep(arrival.notification))
        return actions

    def _is_waiting(self, place: Place) -> bool:
        """Whether something is missing in a namespace with the same rendezvous point."""
        return any(other.edge.detector.is_waiting for other in self._beside[place.namespace.rendezvous])

    def decided(self, place: Place, decision: Decision, now: Time) -> list[Action]:
        """Does what a loss detector has decided."""
        beside = self._beside[place.namespace.rendezvous]
        actions = place.edge.missed(decision.given_up)
        if self._is_waiting(place):
            if place.edge.detector.hold(decision.arrivals) > RECOVERY_HELD_MAX:
                for other in beside:
                    if other.edge.detector.is_waiting:
                        actions += self.decided(other, other.edge.detector.give_up(), now)
        else:
            due = [(arrival, place) for arrival in decision.arrivals]
            due += [(arrival, other) for other in beside for arrival in other.edge.detector.take_held()]
            for arrival, other in sorted(due, key=lambda pair: order_of(pair[0])):
                actions += other.edge.due(arrival.notification, arrival.nodes, now)
        timer = RECOVER_TIMER + place.namespace.name
        if decision.missing:
            nodes = tuple(place.router.table.nodes_of(HERE))
            if place.router.up is not None:
                actions.append(Send(place.router.up, Recover(place.namespace.name, self.name, nodes, decision.missing)))
            # Not idle: what is held must come, or be given up, before the network is at rest.
            actions.append(SetTimer(timer, now + HOLD))
            self._timers.add(timer)
        elif timer in self._timers and not place.edge.detector.is_waiting:
            # Nothing to wait for: the timer fires now, and nobody waits for it to come to rest.
            self._timers.remove(timer)
            actions.append(SetTimer(timer, now))
        return actions

    def told(self, place: Place, nodes: Iterable[int], numbers: NodeNumbers, now: Time) -> list[Action]:
        """The rendezvous point has told numbers of nodes."""
        mine = set(place.edge.nodes.values()).intersection(nodes)
        if not mine or place.rendezvous is not None or not self._settings.recovery:
            return []
        return self.decided(place, place.edge.detector.told(mine, numbers), now)

    def on_recovered(self, place: Place, message: Recovered, now: Time) -> list[Action]:
        return self.decided(place, place.edge.detector.recovered(message), now)

    def on_timer(self, name: str, now: Time) -> list[Action]:
        """It has taken too long to recover."""
        self._timers.discard(name)
        place = self._places.get(name.removeprefix(RECOVER_TIMER))
        if place is None or not place.edge.detector.is_waiting:
            return []
        return self.decided(place, place.edge.detector.give_up(), now)

    def answer(self, place: Place, message: Recover) -> Recovered:
        """At the rendezvous point: what is still here of what a broker misses."""
        rendezvous = place.rendezvous
        assert rendezvous is not None
        return rendezvous.log.recovered(message, lambda notification: rendezvous.nodes_for([notification])[0])

    def numbers(self, place: Place, to: str, nodes: Sequence[int]) -> Numbers:
        rendezvous = place.rendezvous
        assert rendezvous is not None
        return Numbers(place.namespace.name, to, tuple(nodes), rendezvous.log.numbers(nodes))


class _Outgoing:
    """What a batch of notifications comes to: copies for each neighbor, in order, and other actions."""

    def __init__(self) -> None:
        self.other: list[Action] = []
        self._batches: dict[Neighbor, list[tuple[bool, Routed]]] = {}

    def add(
        self, neighbor: Neighbor, notification: Notification, header: ContentHeader, *, is_relayed: bool = False
    ) -> None:
        self._batches.setdefault(neighbor, []).append((is_relayed, Routed(notification, header)))

    def actions(self) -> list[Action]:
        actions = self.other
        for neighbor in sorted(self._batches):
            # In order: two notifications of one publisher may go to the same neighbor, one of them only relayed.
            for is_relayed, pairs in groupby(self._batches[neighbor], key=itemgetter(0)):
                actions.append(Forward(neighbor, tuple(routed for _, routed in pairs), is_relayed))
        return actions


def _may_publish(place: Place, notification: Notification) -> bool:
    publishers = place.namespace.publishers
    return publishers is None or notification.source in publishers


def _further(header: ContentHeader) -> ContentHeader:
    return _marked(header, header.nodes)


def _marked(header: ContentHeader, nodes: tuple[int, ...]) -> ContentHeader:
    """The header for the next link, with these nodes."""
    return ContentHeader(
        header.hops + 1,
        header.namespace,
        header.is_rising,
        header.version,
        nodes,
        header.numbers,
        header.to,
        header.names_all,
    )
