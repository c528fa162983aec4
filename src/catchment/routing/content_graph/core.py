"""Routing by content graphs: the Fast, Flexible Forwarding system, F3 (chapter 3 of its text).

A *namespace* is a part of all notifications: those that match its scope. Each has a *rendezvous point*, a broker that
keeps the graph of all filters that somebody wants: each distinct filter is a *node* with an id, and edges lead from a
filter to those that it covers. A notification is compared with filters once, at the broker where it is published (or,
with central preprocessing, at the rendezvous point). From then on it carries the ids of the lowest nodes that it
belongs to. It goes up the tree to the rendezvous point, and down to those who want it. On the way down brokers read
ids, never content.

State: link states (`parts/link_states.py`); the shortest-path tree of a rendezvous point is the *dissemination tree* of
its namespaces (§3.4.1, computed as §6.2 proposes). For each namespace a router (`router.py`) with its forwarding table,
and an edge (`edge.py`) for the broker's own clients; at its rendezvous point also the graph (`rendezvous.py`).

client's request   The client side does it. Filters that are new or gone are stated to the rendezvous point of each
                   namespace that they overlap.
NodesWanted        goes up to the rendezvous point, which enters it and answers with nodes. It tells all preprocessors
                   the new version of the graph.
NodesGiven         goes down to the broker that asked, which then subscribes to the nodes at its router.
Links, LinkUp, …   If our path to a rendezvous point has changed, or the links of a broker on it have, the broker states
                   everything again that its clients want there: what was under way may be lost, or the rendezvous point
                   has lost its memory. A link state is flooded before anything that is sent because of it, so what
                   follows the last change arrives. A rendezvous point forgets what a broker wants that it cannot reach.
between routers    `router.py`.
notifications      Published: tagged, and up. On the way up: passed on. At the rendezvous point: tagged if nobody has
                   done it with this version of the graph, then down. On the way down: accepted from the router above
                   alone, and sent where the forwarder says. Content is compared only for CESQL expressions, and for
                   filters without a normal form.

Departures from the text: a subscription names no namespace here, so it enters every scope that it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from catchment.errors import CatchmentError, InputError, RemoteProtocolError, shown
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.copies import CHANGE_NODES_MAX, GraphCopy
from catchment.routing.content_graph.edge import Edge
from catchment.routing.content_graph.forwarders import FORWARDERS, HERE
from catchment.routing.content_graph.messages import ContentHeader, NodesGiven, NodesWanted
from catchment.routing.content_graph.rendezvous import Entered, Rendezvous
from catchment.routing.content_graph.router import Router, RouterMessage
from catchment.routing.content_graph.settings import ContentGraphSettings, Namespace, Namespaces
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    SECOND,
    Action,
    Cancel,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Forward,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    Time,
    TimerFired,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.link_states import Links, LinkStates
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import check_limit
from catchment.routing.parts.wanted import filters_for

# Links that a notification may cross: up and down the longest tree of a network that such brokers serve.
HOPS_MAX: Final = 255
# Brokers of one network, including those that are gone.
BROKERS_MAX: Final = 10_000
# The bytes of a node's id and of a subscriber in a table, for `Inspection`.
ID_BYTES: Final = 8

ContentGraphMessage = Links | NodesWanted | NodesGiven | RouterMessage


@dataclass(slots=True)
class Place:
    """A namespace at this broker. `path` are the brokers from here to the rendezvous point, both included; empty if
    there is no way."""

    namespace: Namespace
    router: Router
    edge: Edge
    path: tuple[str, ...] = ()

    @property
    def rendezvous(self) -> Rendezvous | None:
        return self.router.rendezvous


# A filter of a client: its number at the client side, itself, and its places.
_Held = list[tuple[int, Filter, tuple[Place, ...]]]


class ContentGraphCore:
    """A broker of F3."""

    def __init__(self, name: str, settings: ContentGraphSettings) -> None:
        self.name = name
        self.settings = settings
        self.clients = ClientSide()
        self.links = LinkStates(name)
        self.namespaces = Namespaces(settings)
        self.places = {namespace.name: self._place(namespace) for namespace in self.namespaces.all}
        # By identity and id: the filters of the subscription.
        self._held: dict[str, dict[str, _Held]] = {}
        self._matched = 0
        self._is_refreshing = False

    def _place(self, namespace: Namespace) -> Place:
        forwarder = FORWARDERS[self.settings.forwarding]
        has_copies = self.settings.preprocessing == "distributed" or forwarder.needs_whole_graph
        copy = GraphCopy() if has_copies else None
        if namespace.rendezvous == self.name:
            rendezvous = Rendezvous(namespace, forwarder)
            router = Router(namespace.name, rendezvous.table, copy, rendezvous)
        elif forwarder.needs_whole_graph:
            assert copy is not None
            router = Router(namespace.name, ForwardingTable(forwarder, copy.graph, owns_graph=False), copy)
        else:
            router = Router(namespace.name, ForwardingTable(forwarder), copy)
        path = (self.name,) if namespace.rendezvous == self.name else ()
        return Place(namespace, router, Edge(self.clients, router), path)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | ContentGraphMessage, source: Interface, now: Time
    ) -> list[Action]:
        for place in self.places.values():
            if place.rendezvous is not None:
                place.rendezvous.start(now)
        match message:
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
                return []
            case ClientDown():
                assert isinstance(source, Client)
                gone = [self._held.pop(identity, {}) for identity in self.clients.client_down(source)]
                return self._changed([held for some in gone for held in some.values()], [], now)
            case TimerFired():
                return self._refresh(now)
            case LinkUp() | LinkDown() | Links():
                assert isinstance(source, Neighbor)
                return self._on_link(message, source, now)
            case _ if isinstance(source, Client):
                assert isinstance(message, ClientRequest)
                return self._on_request(message, source, now)
            case _:
                assert isinstance(source, Neighbor)
                assert not isinstance(message, ClientRequest)
                return self._on_neighbor(message, source, now)

    def _on_neighbor(
        self, message: NodesWanted | NodesGiven | RouterMessage, source: Neighbor, now: Time
    ) -> list[Action]:
        place = self.places.get(message.namespace)
        if place is None:
            what = f"speaks of the namespace {shown(message.namespace)}, which is not in the settings here"
            return [Refuse(source, RemoteProtocolError(source.name, what))]
        match message:
            case NodesWanted():
                return self._on_wanted(place, message, source, now)
            case NodesGiven():
                return self._on_given(place, message, now)
            case _:
                actions = place.router.on_message(message, source, now)
                return actions + self._settled(place)

    def _settled(self, place: Place) -> list[Action]:
        """After any change at a router: nodes that our clients wanted and that were refused are taken off."""
        refused, place.router.refused_here = place.router.refused_here, []
        place.edge.deprive(refused)
        return place.router.flush()

    # --- clients ---

    def _on_request(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        try:
            if isinstance(message, Subscribe):
                self._check_access(message.identity, message.wanted)
            due = self.clients.request(message, source)
        except CatchmentError as problem:
            return [Refuse(source, problem)]
        held = self._held.setdefault(message.identity, {})
        match message:
            case Subscribe():
                held[message.id] = self._filters(message.identity, message.id, message.wanted)
                return due + self._changed([], [held[message.id]], now)
            case Cancel():
                return due + self._changed([held.pop(message.id, [])], [], now)
            case Unsubscribe():
                kept = self.clients.wants_of(message.identity)
                gone = [held.pop(id) for id in list(held) if id not in kept]
                return due + self._changed(gone, [], now)
            case _:
                return due

    def _filters(self, identity: str, id: str, wanted: Wanted) -> _Held:
        numbers = self.clients.numbers_of(identity, id)
        pairs = zip(numbers, filters_for(wanted), strict=True)
        return [(number, filter, self._places_of(filter)) for number, filter in pairs if not filter.is_empty]

    def _places_of(self, filter: Filter) -> tuple[Place, ...]:
        return tuple(self.places[namespace.name] for namespace in self.namespaces.overlapping(filter))

    def _check_access(self, identity: str, wanted: Wanted) -> None:
        """InputError if an identity may not subscribe to a namespace (§6.1), or a static graph has no such topic."""
        for filter in filters_for(wanted):
            for place in self._places_of(filter):
                namespace = place.namespace
                if namespace.subscribers is not None and identity not in namespace.subscribers:
                    raise InputError(f"{shown(identity)} may not subscribe to the namespace {shown(namespace.name)}")
                if namespace.topics is not None and not _is_topic(filter, namespace.topics):
                    what = f"{shown(str(filter))} is no topic of the namespace {shown(namespace.name)}"
                    raise InputError(f"{what}, whose graph is static: subscribe to one of its topics")

    def _changed(self, gone: Iterable[_Held], new: Iterable[_Held], now: Time) -> list[Action]:
        """Filters of subscriptions are gone or new: states it to the rendezvous points that they concern."""
        withdrawn: dict[str, dict[Filter, None]] = {}
        wanted: dict[str, dict[Filter, None]] = {}
        for held in gone:
            for number, filter, places in held:
                for place in places:
                    if place.edge.unwant(filter, number):
                        withdrawn.setdefault(place.namespace.name, {})[filter] = None
        for held in new:
            for number, filter, places in held:
                for place in places:
                    if place.edge.want(filter, number, self._is_doubtful(number, filter)):
                        wanted.setdefault(place.namespace.name, {})[filter] = None
        actions: list[Action] = []
        for name in sorted({*withdrawn, *wanted}):
            actions += self._state(self.places[name], withdrawn.get(name, {}), wanted.get(name, {}), now)
        return actions

    def _is_doubtful(self, number: int, filter: Filter) -> bool:
        """Whether a notification that belongs to the filter may still not match what the client asked for."""
        asked = self.clients.asked(number)
        return isinstance(asked, Cesql) or asked is not filter

    # --- filters and nodes ---

    def _state(self, place: Place, withdrawn: Iterable[Filter], wanted: Iterable[Filter], now: Time) -> list[Action]:
        """Tells the rendezvous point what has changed."""
        if not place.path:
            return place.router.flush()
        edge = place.edge
        edge.seq += 1
        # Our own rendezvous point goes down with us: it needs no number of links to know what is from before a crash.
        links_seq = 0 if place.rendezvous is not None else self.links.seq
        name = place.namespace.name
        message = NodesWanted(name, self.name, links_seq, edge.seq, False, tuple(withdrawn), tuple(wanted))
        # First the nodes that are gone, then the filters: in between the rendezvous point has a node that nobody is
        # subscribed to, which does no harm.
        return place.router.flush() + self._on_wanted(place, message, None, now)

    def _state_all(self, place: Place, now: Time) -> list[Action]:
        """Tells the rendezvous point everything that our clients want there, in as many messages as it needs."""
        edge, filters = place.edge, place.edge.filters
        actions: list[Action] = []
        for start in range(0, max(len(filters), 1), CHANGE_NODES_MAX):
            edge.seq += 1
            if start == 0:
                edge.stated = (self.links.seq, edge.seq)
            some = tuple(filters[start : start + CHANGE_NODES_MAX])
            message = NodesWanted(place.namespace.name, self.name, self.links.seq, edge.seq, start == 0, (), some)
            actions += self._on_wanted(place, message, None, now)
        return actions

    def _on_wanted(self, place: Place, message: NodesWanted, source: Neighbor | None, now: Time) -> list[Action]:
        """Takes what a broker wants one step on: into the graph at the rendezvous point, elsewhere up."""
        if place.rendezvous is None:
            up = place.router.up
            return [] if up is None else [Send(up, message)]
        # A broker that cannot be reached states everything again when it is back.
        if message.origin not in self.links.tree(self.name):
            return []
        try:
            entered = place.rendezvous.enter(message, now)
        except CatchmentError as problem:
            return [] if source is None else [Refuse(source, problem)]
        if entered is None:
            return []
        actions = self._spread(place, entered)
        given = NodesGiven(
            message.namespace,
            message.origin,
            message.links_seq,
            message.seq,
            tuple(entered.given),
            tuple(entered.refused),
            (),
        )
        return actions + self._on_given(place, given, now)

    def _spread(self, place: Place, entered: Entered) -> list[Action]:
        """Tells those concerned that the graph has changed."""
        place.router.deprived(entered.deprived)
        place.router.pass_on(entered.after, entered.removed, entered.added)
        return self._settled(place)

    def _on_given(self, place: Place, message: NodesGiven, now: Time) -> list[Action]:
        if message.to != self.name:
            return self._down(place, message.to, message)
        edge = place.edge
        # An answer to what we said before our last whole statement: the nodes may be gone.
        if (message.links_seq, message.seq) < edge.stated:
            return []
        for filter, node in message.given:
            edge.give(filter, node, now)
        edge.refused.update(filter for filter in message.refused if filter not in edge.nodes)
        return self._settled(place)

    def _down(self, place: Place, broker: str, message: NodesGiven) -> list[Action]:
        """Relays a message down the tree."""
        hop = self.links.hops_from(place.namespace.rendezvous).get(broker)
        return [] if hop is None else [Send(Neighbor(hop), message)]

    # --- links ---

    def _on_link(self, message: LinkUp | LinkDown | Links, source: Neighbor, now: Time) -> list[Action]:
        version = self.links.version
        actions: list[Action] = []
        match message:
            case LinkUp():
                actions, changed = self.links.up(source, message.cost, now), self.name
                actions += self._start_refreshing(now)
            case LinkDown():
                actions, changed = self.links.down(source, now), self.name
                for place in self.places.values():
                    place.router.lose(source)
                    if place.router.up == source:
                        place.router.rise(None, True, now)
            case Links():
                if message.origin not in self.links.records:
                    try:
                        check_limit("BROKERS_MAX", BROKERS_MAX, len(self.links.records) + 1)
                    except CatchmentError as problem:
                        return [Refuse(source, problem)]
                actions, changed = self.links.heard(message, source, now), message.origin
        if self.links.version > version:
            for place in self.places.values():
                # After the link states, which `actions` has already: see above.
                actions += self._reroute(place, changed, now)
        return actions

    def _reroute(self, place: Place, changed: str, now: Time) -> list[Action]:
        """The links of a broker have changed."""
        if place.rendezvous is not None:
            reached = set(self.links.reached)
            gone = [broker for broker in place.rendezvous.brokers if broker not in reached]
            return self._spread(place, place.rendezvous.leave(gone, now)) if gone else []
        before, place.path = place.path, self._path(place.namespace.rendezvous)
        # Also when the path is the same but a broker on it has new links: a link may have failed and come back, and
        # what was under way on it is lost.
        if before == place.path and changed not in before:
            return place.router.flush()
        if not place.path:
            place.edge.lose_all()
        place.router.rise(Neighbor(place.path[1]) if place.path else None, False, now)
        actions = self._settled(place)
        return actions + (self._state_all(place, now) if place.path else [])

    def _path(self, rendezvous: str) -> tuple[str, ...]:
        """The brokers from here to a rendezvous point, both included; empty if it cannot be reached."""
        parents, path = self.links.tree(rendezvous), []
        here: str | None = self.name if self.name in parents else None
        while here is not None:
            path.append(here)
            here = parents[here]
        return tuple(path)

    # --- resubscription ---

    def _start_refreshing(self, now: Time) -> list[Action]:
        if self._is_refreshing or self.settings.refresh_s <= 0:
            return []
        self._is_refreshing = True
        return [SetTimer("refresh", now + round(self.settings.refresh_s * SECOND), is_idle=True)]

    def _refresh(self, now: Time) -> list[Action]:
        actions: list[Action] = []
        for place in self.places.values():
            actions += place.router.check(round(self.settings.expiry_s * SECOND), now)
            actions += place.router.refresh(now)
            actions += self._settled(place)
        return [*actions, SetTimer("refresh", now + round(self.settings.refresh_s * SECOND), is_idle=True)]

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        outgoing = _Outgoing()
        if isinstance(source, Client):
            self._publish([routed.notification for routed in batch], outgoing, now)
            return outgoing.actions()
        assert isinstance(source, Neighbor)
        for routed in batch:
            header = routed.header
            assert isinstance(header, ContentHeader)
            place = self.places.get(header.namespace)
            if place is None or header.hops > HOPS_MAX:
                continue
            if not header.is_rising:
                self._fall(place, routed.notification, header, source, outgoing, now)
            elif place.rendezvous is not None:
                self._disseminate(place, [(routed.notification, header)], outgoing, now)
            elif place.router.up is not None:
                outgoing.add(place.router.up, routed.notification, _further(header), is_relayed=True)
        return outgoing.actions()

    def _publish(self, batch: Sequence[Notification], outgoing: _Outgoing, now: Time) -> None:
        names = [self.namespaces.of(notification).name for notification in batch]
        tags = {
            name: self._tagged(
                self.places[name], [each for each, other in zip(batch, names, strict=True) if other == name]
            )
            for name in dict.fromkeys(names)
        }
        # In the order of the batch, also across namespaces: those that share a rendezvous point keep the order of a
        # publisher.
        for notification, name in zip(batch, names, strict=True):
            place, (version, tagged) = self.places[name], tags[name]
            header = ContentHeader(0, name, True, version, next(tagged), (), "", False)
            if place.rendezvous is not None:
                self._disseminate(place, [(notification, header)], outgoing, now)
            # With the whole graph known, what belongs to no node is wanted by nobody.
            elif place.router.up is not None and (header.nodes or not version):
                outgoing.add(place.router.up, notification, _further(header))

    def _tagged(self, place: Place, batch: Sequence[Notification]) -> tuple[int, Iterator[tuple[int, ...]]]:
        """The nodes of notifications, and the version of the graph that they were found with; 0 if this broker has no
        graph."""
        version, copy = place.router.version, place.router.copy
        if place.rendezvous is not None:
            self._matched += len(batch)
            return version, iter(place.rendezvous.nodes_for(batch))
        if not version or self.settings.preprocessing == "central" or copy is None:
            return 0, repeat(())
        self._matched += len(batch)
        return version, iter(copy.tagger.nodes_for(batch))

    def _disseminate(
        self, place: Place, batch: Sequence[tuple[Notification, ContentHeader]], outgoing: _Outgoing, now: Time
    ) -> None:
        """At the rendezvous point: sends notifications down the tree."""
        rendezvous = place.rendezvous
        assert rendezvous is not None
        stale = [notification for notification, header in batch if header.version != rendezvous.version]
        self._matched += len(stale)
        found = iter(rendezvous.nodes_for(stale))
        for notification, header in batch:
            nodes = header.nodes if header.version == rendezvous.version else next(found)
            if nodes:
                self._send_down(place, notification, header.hops, nodes, outgoing, now)

    def _send_down(
        self,
        place: Place,
        notification: Notification,
        hops: int,
        nodes: tuple[int, ...],
        outgoing: _Outgoing,
        now: Time,
    ) -> None:
        router = place.router
        if router.table.forwarder.names_all:
            nodes = tuple(sorted(router.table.graph.at_or_above(nodes)))
        header = ContentHeader(hops, place.namespace.name, False, router.version, nodes, (), "", False)
        self._forward(place, notification, header, outgoing, now)

    def _fall(
        self,
        place: Place,
        notification: Notification,
        header: ContentHeader,
        source: Neighbor,
        outgoing: _Outgoing,
        now: Time,
    ) -> None:
        """On the way down. What comes from another than the router above was sent before the tree changed."""
        router = place.router
        if source != router.up:
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
                outgoing.other += place.edge.due(notification, nodes, now)
            else:
                outgoing.add(neighbor, notification, _marked(header, nodes))

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        """Those that tag: the matcher of the client side is not asked."""
        matchers: list[RecallingMatcher[Any]] = []
        for place in self.places.values():
            if place.rendezvous is not None:
                matchers.append(place.rendezvous.preprocessor.matcher)
            elif place.router.copy is not None:
                matchers.append(place.router.copy.tagger.matcher)
        return matchers

    def inspect(self) -> Inspection:
        compared = sum(
            place.rendezvous.preprocessor.compared for place in self.places.values() if place.rendezvous is not None
        )
        tables = (*self.clients.tables(), *_summed(self._tables()))
        return Inspection(tables, Work(self._matched, compared), self.links.known_brokers())

    def _tables(self) -> Iterable[Table]:
        """At a rendezvous point: what each broker wants. Elsewhere: the nodes that each neighbor wants."""
        for place in self.places.values():
            if place.rendezvous is not None:
                yield from (table for broker, table in place.rendezvous.tables() if broker != self.name)
                continue
            table = place.router.table
            for neighbor in table.neighbors:
                if neighbor != HERE:
                    count = table.count_of(neighbor)
                    yield Table(neighbor.name, count, ID_BYTES * count)

    def leftovers(self) -> list[str]:
        left = self.clients.leftovers()
        for name, place in self.places.items():
            table, router = place.router.table, place.router
            if place.rendezvous is not None:
                left += place.rendezvous.leftovers()
            elif table.owns_graph:
                left += [f"node {node} of {name}" for node in table.graph]
            left += [f"node {node} of {name} for {sorted(some)}" for node, some in table.subscribers.items()]
            left += [f"node {node} of {name}, pending" for node in sorted(table.pending)]
            left += [f"a mark on node {node} of {name}" for node, some in table.marks.items() if some]
            left += [f"an unsubscription from node {node} of {name}" for node in router.unacked if router.unacked[node]]
            left += [f"node {node} of {name} for {filter}" for filter, node in place.edge.nodes.items()]
        return left


class _Outgoing:
    """What a batch of notifications comes to: copies for each neighbor, in order, and other actions."""

    def __init__(self) -> None:
        self.other: list[Action] = []
        self._batches: dict[tuple[Neighbor, bool], list[Routed]] = {}

    def add(
        self, neighbor: Neighbor, notification: Notification, header: ContentHeader, *, is_relayed: bool = False
    ) -> None:
        self._batches.setdefault((neighbor, is_relayed), []).append(Routed(notification, header))

    def actions(self) -> list[Action]:
        forwards = [Forward(to, tuple(self._batches[to, relayed]), relayed) for to, relayed in sorted(self._batches)]
        return [*self.other, *forwards]


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


def _is_topic(filter: Filter, topics: Iterable[Filter]) -> bool:
    return any(topic.covers(filter) and filter.covers(topic) for topic in topics)


def _summed(tables: Iterable[Table]) -> list[Table]:
    """Tables of several namespaces for the same holder as one."""
    sums: dict[str, tuple[int, int]] = {}
    for table in tables:
        filters, size = sums.get(table.holder, (0, 0))
        sums[table.holder] = (filters + table.filters, size + table.bytes)
    return [Table(holder, filters, size) for holder, (filters, size) in sorted(sums.items())]
