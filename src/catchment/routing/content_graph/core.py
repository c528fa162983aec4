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

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

from catchment.errors import CatchmentError, RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.content_graph.copies import CHANGE_NODES_MAX, GraphCopy
from catchment.routing.content_graph.edge import Edge
from catchment.routing.content_graph.forwarders import FORWARDERS, HERE
from catchment.routing.content_graph.inbox import Inbox
from catchment.routing.content_graph.messages import (
    NodesGiven,
    NodesWanted,
    Numbers,
    NumbersWanted,
    Recover,
    Recovered,
)
from catchment.routing.content_graph.places import Place
from catchment.routing.content_graph.rendezvous import Entered, Rendezvous
from catchment.routing.content_graph.router import Router, RouterMessage
from catchment.routing.content_graph.settings import ContentGraphSettings, Namespace, Namespaces
from catchment.routing.content_graph.stream import Stream
from catchment.routing.content_graph.subscriptions import Changed, Subscriptions
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    SECOND,
    Action,
    Client,
    ClientRequest,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.link_states import Links, LinkStates
from catchment.routing.parts.recall import RecallingMatcher

# The bytes of a node's id and of a subscriber in a table, for `Inspection`.
ID_BYTES: Final = 8

REFRESH_TIMER: Final = "refresh"
INBOX_TIMER: Final = "inbox"

_RELAYED_UP = NodesWanted | NumbersWanted | Recover
_RELAYED_DOWN = NodesGiven | Numbers | Recovered
ContentGraphMessage = Links | _RELAYED_UP | _RELAYED_DOWN | RouterMessage


class ContentGraphCore(DispatchingCore[ContentGraphMessage]):
    """A broker of F3."""

    def __init__(self, name: str, settings: ContentGraphSettings) -> None:
        self.name = name
        self.settings = settings
        self.clients = ClientSide()
        self.links = LinkStates(name, self._forget)
        self.namespaces = Namespaces(settings)
        self._order = count(1)
        self.places = {namespace.name: self._place(namespace) for namespace in self.namespaces.all}
        self.subscriptions = Subscriptions(self.clients, self.namespaces, self.places)
        self.stream = Stream(name, settings, self.namespaces, self.places, self.links)
        self.inbox: Inbox[_RELAYED_UP | _RELAYED_DOWN | RouterMessage] = Inbox()
        self._is_refreshing = False

    def _place(self, namespace: Namespace) -> Place:
        forwarder = FORWARDERS[self.settings.forwarding]
        has_copies = self.settings.preprocessing == "distributed" or forwarder.needs_whole_graph
        copy = GraphCopy(namespace.preprocessor) if has_copies else None
        if namespace.rendezvous == self.name:
            rendezvous = Rendezvous(namespace, forwarder, self._order)
            router = Router(namespace.name, rendezvous.table, copy, rendezvous)
        elif forwarder.needs_whole_graph:
            assert copy is not None
            router = Router(namespace.name, ForwardingTable(forwarder, copy.graph, owns_graph=False), copy)
        else:
            router = Router(namespace.name, ForwardingTable(forwarder), copy)
        path = (self.name,) if namespace.rendezvous == self.name else ()
        # With one rendezvous point all notifications of a publisher come in order.
        is_shared = len({each.rendezvous for each in self.namespaces.all}) == 1
        edge = Edge(self.clients, router, "" if is_shared else namespace.rendezvous)
        return Place(namespace, router, edge, path)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | ContentGraphMessage, source: Interface, now: Time
    ) -> list[Action]:
        for place in self.places.values():
            if place.rendezvous is not None:
                place.rendezvous.start(now)
        return super().on_message(message, source, now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        return self._state_changes(self.subscriptions.client_down(client), now)

    def _from_neighbor(
        self, message: LinkUp | LinkDown | ContentGraphMessage, source: Neighbor, now: Time
    ) -> list[Action]:
        if isinstance(message, LinkUp | LinkDown | Links):
            return self._on_link(message, source, now)
        return self._on_namespace(message, source, now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        match name:
            case "refresh":
                return self._refresh(now)
            case "inbox":
                return self._take_piece(now)
            case _:
                return self.links.on_timer(name, now) + self.stream.on_timer(name, now)

    def _on_namespace(
        self, message: _RELAYED_UP | _RELAYED_DOWN | RouterMessage, source: Neighbor, now: Time
    ) -> list[Action]:
        place = self.places.get(message.namespace)
        if place is None:
            what = f"speaks of the namespace {shown(message.namespace)}, which is not in the settings here"
            raise RemoteProtocolError(source.name, what)
        if not self.settings.offline:
            return self._take(place, message, source, now)
        return [SetTimer(INBOX_TIMER, now)] if self.inbox.put(message, source) else []

    def _take_piece(self, now: Time) -> list[Action]:
        """The next messages of the inbox (`inbox.py`)."""
        actions: list[Action] = []
        for message, source in self.inbox.piece():
            actions += self._take(self.places[message.namespace], message, source, now)
        return [*actions, SetTimer(INBOX_TIMER, now)] if len(self.inbox) else actions

    def _take(
        self, place: Place, message: _RELAYED_UP | _RELAYED_DOWN | RouterMessage, source: Neighbor, now: Time
    ) -> list[Action]:
        if isinstance(message, _RELAYED_UP):
            return self._up(place, message, source, now)
        if isinstance(message, _RELAYED_DOWN):
            return self._down(place, message, now)
        return place.router.on_message(message, source, now) + self._settled(place)

    def _up(self, place: Place, message: _RELAYED_UP, source: Neighbor | None, now: Time) -> list[Action]:
        """Takes what a broker asks the rendezvous point one step on. The answer goes down. It is taken only from the
        neighbor that leads to the broker that asks: so nobody can speak for one that is not behind it. A broker that
        cannot be reached states everything again when it is back."""
        hop = self.links.hops_from(place.namespace.rendezvous).get(message.origin)
        if source is not None and hop != source.name:
            return []
        if place.rendezvous is None:
            up = place.router.up
            return [] if up is None else [Send(up, message)]
        match message:
            case NodesWanted():
                return self._on_wanted(place, place.rendezvous, message, source, now)
            case NumbersWanted():
                return self._down(place, self.stream.numbers(place, message.origin, message.nodes), now)
            case Recover():
                return self._down(place, self.stream.answer(place, message), now)

    def _down(self, place: Place, message: _RELAYED_DOWN, now: Time) -> list[Action]:
        """Takes what the rendezvous point answers a broker one step on."""
        if message.to != self.name:
            hop = self.links.hops_from(place.namespace.rendezvous).get(message.to)
            return [] if hop is None else [Send(Neighbor(hop), message)]
        match message:
            case NodesGiven():
                return self._on_given(place, message, now)
            case Numbers():
                return self.stream.told(place, message.nodes, message.numbers, now)
            case Recovered():
                return self.stream.on_recovered(place, message, now)

    def _settled(self, place: Place) -> list[Action]:
        """After any change at a router: nodes that our clients wanted and that were refused are taken off. Once a
        subscription has reached the rendezvous point, numbers show what was sent while it was under way."""
        router = place.router
        refused, router.refused_here = router.refused_here, []
        ready, router.ready_here = router.ready_here, []
        place.edge.deprive(refused)
        return router.flush() + self._ask_numbers(place, ready)

    def _ask_numbers(self, place: Place, nodes: Sequence[int]) -> list[Action]:
        up = place.router.up
        if not nodes or up is None or not self.settings.recovery:
            return []
        return [Send(up, NumbersWanted(place.namespace.name, self.name, tuple(nodes)))]

    # --- clients ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        due, changes = self.subscriptions.request(message, source)
        return due + self._state_changes(changes, now)

    def _state_changes(self, changes: Iterable[Changed], now: Time) -> list[Action]:
        actions: list[Action] = []
        for changed in changes:
            actions += self._state(changed.place, changed.withdrawn, changed.wanted, now)
        return actions

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
        return place.router.flush() + self._up(place, message, None, now)

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
            actions += self._up(place, message, None, now)
        return actions

    def _on_wanted(
        self, place: Place, rendezvous: Rendezvous, message: NodesWanted, source: Neighbor | None, now: Time
    ) -> list[Action]:
        known = self.links.records.get(message.origin)
        # A number of links that the origin has not stated would silence it: its own never reach that.
        if known is None or message.links_seq > known.seq:
            return []
        try:
            entered = rendezvous.enter(message, now)
        except CatchmentError as problem:
            return [] if source is None else [Refuse(source, problem)]
        if entered is None:
            return []
        given = NodesGiven(
            message.namespace,
            message.origin,
            message.links_seq,
            message.seq,
            tuple(entered.given),
            rendezvous.log.numbers(node for _, node in entered.given) if self.settings.recovery else (),
        )
        return self._spread(place, entered) + self._down(place, given, now)

    def _spread(self, place: Place, entered: Entered) -> list[Action]:
        """Tells those concerned that the graph has changed."""
        place.router.deprived(entered.deprived)
        place.router.pass_on(entered.after, entered.removed, entered.added)
        return self._settled(place)

    def _on_given(self, place: Place, message: NodesGiven, now: Time) -> list[Action]:
        # An answer to what we said before our last whole statement: the nodes may be gone.
        if (message.links_seq, message.seq) < place.edge.stated:
            return []
        for filter, node in message.given:
            place.edge.give(filter, node, now)
        nodes = [node for _, node in message.given]
        return self._settled(place) + self.stream.told(place, nodes, message.numbers, now)

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
                self.inbox.forget(source)
                for place in self.places.values():
                    place.router.lose(source)
                    if place.router.up == source:
                        place.router.rise(None, True, now)
            case Links():
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

    def _forget(self, broker: str) -> None:
        """A broker has been away for so long that its links are forgotten."""
        for place in self.places.values():
            if place.rendezvous is not None:
                place.rendezvous.forget(broker)

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
        return [SetTimer(REFRESH_TIMER, now + round(self.settings.refresh_s * SECOND), is_idle=True)]

    def _refresh(self, now: Time) -> list[Action]:
        actions: list[Action] = []
        for place in self.places.values():
            actions += place.router.check(round(self.settings.expiry_s * SECOND), now)
            actions += place.router.refresh(now)
            actions += self._settled(place)
            actions += self._ask_numbers(place, place.router.table.nodes_of(HERE))
        return [*actions, SetTimer(REFRESH_TIMER, now + round(self.settings.refresh_s * SECOND), is_idle=True)]

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        return self.stream.on_notifications(batch, source, now)

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
        graphs = [place.rendezvous.preprocessor for place in self.places.values() if place.rendezvous is not None]
        work = Work(self.stream.matched, sum(graph.compared for graph in graphs))
        apart = sum(graph.apart for graph in graphs)
        tables = (*self.clients.tables(), *_summed(self._tables()))
        return Inspection(tables, work, self.links.known_brokers(), apart, self.links.dropped)

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
            if place.edge.detector.leftovers:
                left.append(f"{place.edge.detector.leftovers} numbers, or what waits for them, of {name}")
        return left


def _summed(tables: Iterable[Table]) -> list[Table]:
    """Tables of several namespaces for the same holder as one."""
    sums: dict[str, tuple[int, int]] = {}
    for table in tables:
        filters, size = sums.get(table.holder, (0, 0))
        sums[table.holder] = (filters + table.filters, size + table.bytes)
    return [Table(holder, filters, size) for holder, (filters, size) in sorted(sums.items())]
