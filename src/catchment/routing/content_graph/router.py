"""A router of one namespace (F3 §3.4.6 to §3.4.8): what it says to the router above it and to those below it.

State: the table (`table.py`), the router above (`up`), the session with it, how many unsubscriptions it has not
acknowledged for each node (`unacked`), the sessions of the routers below, and a copy of the graph if this broker needs
one. At the rendezvous point there is nobody above, and the table has all nodes.

SubscribeNodes    The sender wants nodes. A node that this router did not have is pending; it subscribes above and asks
                  for its edges. Edges that are known are sent at once; for a pending node the sender gets a mark. The
                  first message of a session replaces what the sender wanted before. At the rendezvous point a node that
                  is not in the graph is refused.
GraphSetup        The edges of a pending node. Those that have a mark are sent theirs.
UnsubscribeNodes  The sender no longer wants nodes, and gets an acknowledgement. A node that nobody wants becomes a
                  ghost, and this router unsubscribes above.
UnsubscribedAck   The router above names the node no more: a ghost goes. If somebody has subscribed to the node again
                  meanwhile, it stays, and the set-up that this subscription asked for is still to come.
NodesRefused      The rendezvous point does not have the node: it goes, and those who want it are refused in turn.
GraphChange       The copy of the graph changes; it is passed on.
Resubscribed      The times of the sender's subscriptions; the answer names those that stand.
ResubscribedAck   The times at which the router above confirmed nodes.
check             (§3.4.7, PeriodicCheckGraph) A node that the router above has not confirmed for too long is
                  interrupted: the router subscribes to it again. If that does not help, the node is dropped. A
                  neighbor that has not resubscribed for too long is interrupted. If it is still silent at the next
                  check, its subscription is dropped; it will find its node unconfirmed and subscribe again.
up changes        A new session: the router leaves the one before, drops its ghosts, subscribes to all its nodes anew
                  and asks for their edges. The edges that it has stay: they are true, and may be incomplete.

Departure from the text: acknowledged unsubscriptions, sessions, and the refusal of unknown nodes are not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from catchment.errors import CatchmentError, InputError, RemoteProtocolError
from catchment.routing.content_graph.copies import GraphCopy, change_messages, whole
from catchment.routing.content_graph.forwarders import HERE
from catchment.routing.content_graph.messages import (
    GraphChange,
    GraphSetup,
    Left,
    Named,
    NodesRefused,
    Resubscribed,
    ResubscribedAck,
    Setup,
    SubscribeNodes,
    UnsubscribedAck,
    UnsubscribeNodes,
)
from catchment.routing.content_graph.preprocessors import FilterTagger
from catchment.routing.content_graph.rendezvous import Rendezvous
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.messages import Action, BrokerMessage, Neighbor, Refuse, Send, Time
from catchment.routing.parts.remote import check_limit

# Nodes that one neighbor may be subscribed to: as many as a graph may have.
NEIGHBOR_NODES_MAX: Final = 1_000_000
# Node ids in one message: less than a megabyte.
MESSAGE_NODES_MAX: Final = 50_000

# What is said to the router above; everything else is said to those below.
_UPWARD: Final = ("subscribe", "unsubscribe", "resubscribed")

RouterMessage = (
    SubscribeNodes
    | GraphSetup
    | NodesRefused
    | UnsubscribeNodes
    | UnsubscribedAck
    | Left
    | Resubscribed
    | ResubscribedAck
    | GraphChange
)


class _Said(NamedTuple):
    """Something to say: what kind of message, and a node or a set-up in it."""

    kind: str
    item: int | Setup | BrokerMessage


class Router:
    """One namespace at one broker."""

    def __init__(
        self, namespace: str, table: ForwardingTable, copy: GraphCopy | None, rendezvous: Rendezvous | None = None
    ) -> None:
        self.namespace = namespace
        self.table = table
        # None if this broker needs no graph, or is the rendezvous point, which has the graph itself.
        self.copy = copy
        self.rendezvous = rendezvous
        # Whether the routers below are told the graph.
        self.spreads_graph = copy is not None
        self.up: Neighbor | None = None
        self.session = 0
        # Whether the router above has answered in this session: then it names no node of an earlier one any more.
        self.is_confirmed = False
        self.unacked: Counter[int] = Counter()
        # By router below: its session.
        self.below: dict[Neighbor, int] = {}
        # Nodes that the broker's own clients wanted, and that were refused: the core takes them.
        self.refused_here: list[int] = []
        # Nodes that they want, and whose subscription has reached the rendezvous point: the core takes them.
        self.ready_here: list[int] = []
        # Subscriptions, as node and neighbor, that were silent at the last check, and nodes subscribed to once more.
        self.interrupted: set[tuple[int, Neighbor]] = set()
        self.recovering: set[int] = set()
        self._saying: dict[Neighbor, list[_Said]] = {}

    @property
    def needs_edges(self) -> bool:
        return self.table.forwarder.needs_edges and self.rendezvous is None

    @property
    def version(self) -> int:
        """The version of the graph that this broker has; 0 if none."""
        if self.rendezvous is not None:
            return self.rendezvous.version
        return 0 if self.copy is None else self.copy.version

    # --- saying: messages are collected, and sent together ---

    def _say(self, neighbor: Neighbor, kind: str, item: int | Setup | BrokerMessage) -> None:
        self._saying.setdefault(neighbor, []).append(_Said(kind, item))

    def flush(self) -> list[Action]:
        """All that is to be said, in order for each neighbor; things of one kind go in one message."""
        actions: list[Action] = []
        for neighbor in sorted(self._saying):
            for kind, said in groupby(self._saying[neighbor], key=lambda each: each.kind):
                items = [each.item for each in said]
                actions += [Send(neighbor, message) for message in self._messages(neighbor, kind, items)]
        self._saying.clear()
        return actions

    def _messages(
        self, neighbor: Neighbor, kind: str, items: Sequence[int | Setup | BrokerMessage]
    ) -> Iterable[BrokerMessage]:
        # A neighbor may be above and below at once, while brokers disagree about the tree.
        session = self.session if kind in _UPWARD else self.below.get(neighbor, 0)
        for start in range(0, len(items), MESSAGE_NODES_MAX):
            some = items[start : start + MESSAGE_NODES_MAX]
            nodes = tuple(each for each in some if isinstance(each, int))
            match kind:
                case "subscribe":
                    yield SubscribeNodes(self.namespace, session, False, self.needs_edges, nodes)
                case "unsubscribe":
                    yield UnsubscribeNodes(self.namespace, session, nodes)
                case "unsubscribed":
                    yield UnsubscribedAck(self.namespace, session, nodes)
                case "refused":
                    yield NodesRefused(self.namespace, session, nodes)
                case "resubscribed":
                    yield Resubscribed(self.namespace, session, nodes)
                case "confirmed":
                    yield ResubscribedAck(self.namespace, session, nodes)
                case "set up":
                    yield GraphSetup(self.namespace, session, tuple(each for each in some if isinstance(each, Setup)))
                case _:
                    yield from (each for each in some if isinstance(each, BrokerMessage))

    # --- the router above ---

    def rise(self, up: Neighbor | None, is_fresh: bool, now: Time) -> None:
        """The router above is `up` now; with `is_fresh` it has forgotten us, even if it is the same."""
        if up == self.up and not is_fresh:
            return
        if self.up is not None:
            self._saying.pop(self.up, None)
            if self.up != up:
                self._say(self.up, "left", Left(self.namespace))
        self.up = up
        self.session += 1
        self.is_confirmed = up is None
        self.unacked.clear()
        self.recovering.clear()
        if self.copy is not None:
            self.copy.begin()
        for node in self._ghosts():
            self.table.drop(node)
        nodes = self.table.wanted
        self.table.confirmed_at = dict.fromkeys(nodes, now)
        self.table.pending = set(nodes) if self.needs_edges else set()
        if up is not None:
            self._begin(up, nodes)

    def _begin(self, up: Neighbor, nodes: Sequence[int]) -> None:
        """Begins a session: all that this router wants, in as many messages as it needs."""
        for start in range(0, max(len(nodes), 1), MESSAGE_NODES_MAX):
            some = tuple(nodes[start : start + MESSAGE_NODES_MAX])
            begins = start == 0
            message = SubscribeNodes(self.namespace, self.session, begins, self.needs_edges, some, self.version)
            self._say(up, "begin", message)

    def _ghosts(self) -> list[int]:
        if not self.table.owns_graph:
            return []
        return sorted(node for node in {*self.table.graph, *self.table.pending} if self.table.is_ghost(node))

    def _is_answer(self, source: Neighbor, session: int) -> bool:
        """Whether a message is an answer in this session. Others are left over from earlier ones."""
        return source == self.up and session == self.session

    # --- messages ---

    def on_message(self, message: RouterMessage, source: Neighbor, now: Time) -> list[Action]:
        try:
            self._take(message, source, now)
        except CatchmentError as problem:
            error = problem if isinstance(problem, RemoteProtocolError) else _wrong(source, str(problem))
            return [*self.flush(), Refuse(source, error)]
        return self.flush()

    def _take(self, message: RouterMessage, source: Neighbor, now: Time) -> None:
        match message:
            case SubscribeNodes():
                self._on_subscribe(message, source, now)
            case UnsubscribeNodes():
                self._check_session(message.session, source)
                self._on_unsubscribe(message.nodes, source)
            case Left():
                self.lose(source)
            case Resubscribed():
                self._check_session(message.session, source)
                self._on_resubscribed(message.nodes, source, now)
            case _ if not self._is_answer(source, message.session):
                pass
            case GraphSetup():
                for setup in message.setups:
                    self._on_setup(setup, source)
            case NodesRefused():
                self._on_refused(message.nodes)
            case UnsubscribedAck():
                self._on_acknowledged(message.nodes, source)
            case ResubscribedAck():
                self.is_confirmed = True
                self._on_confirmed(message.nodes, now)
            case GraphChange():
                self._on_change(message)

    def _check_session(self, session: int, source: Neighbor) -> None:
        if self.below.get(source) != session:
            raise _wrong(source, f"speaks of session {session}, which it has not begun")

    # --- subscriptions ---

    def _on_subscribe(self, message: SubscribeNodes, source: Neighbor, now: Time) -> None:
        if message.begins:
            kept = set(message.nodes)
            self.below[source] = message.session
            self._unsubscribe([node for node in self.table.nodes_of(source) if node not in kept], source)
            # What it has known of the others may be from before: a set-up names a node only after its own.
            for node in self.table.nodes_of(source) if message.wants_graph else ():
                self.table.mark(node, source)
        self._check_session(message.session, source)
        more = len(message.nodes) + self.table.count_of(source)
        check_limit("NEIGHBOR_NODES_MAX", NEIGHBOR_NODES_MAX, more)
        for node in message.nodes:
            self._subscribe(node, source, message.wants_graph, now)
        if message.begins:
            self._say(source, "answer", ResubscribedAck(self.namespace, message.session, ()))
            self._send_graph(source, message.version)

    def subscribe_here(self, node: int, now: Time) -> None:
        """The broker's own clients want a node."""
        self._subscribe(node, HERE, False, now)

    def unsubscribe_here(self, node: int) -> None:
        self._unsubscribe([node], HERE)

    def _subscribe(self, node: int, neighbor: Neighbor, wants_graph: bool, now: Time) -> None:
        table = self.table
        if self.rendezvous is not None:
            self._subscribe_at_rendezvous(node, neighbor, wants_graph, now)
            return
        if table.subscribe(node, neighbor, now):
            if not table.forwarder.needs_edges and table.owns_graph:
                table.add(node)
            self._ask_above(node, now)
        if wants_graph and table.is_ready(node):
            self._say(neighbor, "set up", Setup(node, *table.set_up_for(node, neighbor)))
        elif wants_graph:
            table.mark(node, neighbor)

    def _ask_above(self, node: int, now: Time) -> None:
        """Subscribes to a node above. Also if it is a ghost: the router above may have forgotten our edges to it."""
        if self.needs_edges:
            self.table.pending.add(node)
        self.table.confirmed_at[node] = now
        if self.up is not None:
            self._say(self.up, "subscribe", node)

    def _subscribe_at_rendezvous(self, node: int, neighbor: Neighbor, wants_graph: bool, now: Time) -> None:
        if node not in self.table.graph:
            self._refuse(neighbor, node)
            return
        self.table.subscribe(node, neighbor, now)
        if wants_graph:
            self._say(neighbor, "set up", Setup(node, *self.table.set_up_for(node, neighbor)))

    def _refuse(self, neighbor: Neighbor, node: int) -> None:
        if neighbor == HERE:
            self.refused_here.append(node)
        else:
            self._say(neighbor, "refused", node)

    # --- set-up ---

    def _on_setup(self, setup: Setup, source: Neighbor) -> None:
        node, table = setup.node, self.table
        is_owed = node in table.pending
        if not is_owed and not self.unacked[node]:
            raise _wrong(source, f"set up node {node}, which nobody asked for")
        if node not in table:
            return
        unknown = [each for each in (*setup.parents, *setup.children) if each not in table.graph]
        if unknown:
            raise _wrong(source, f"set up node {node} beside node {unknown[0]}, which is not known here")
        if table.graph.contradicts(node, setup.parents, setup.children):
            raise _wrong(source, f"set up node {node} both above and below another")
        table.set_up(node, setup.parents, setup.children)
        # An unsubscription is under way: this set-up may be older, and the one for our last subscription still to come.
        if self.unacked[node]:
            return
        table.pending.discard(node)
        if HERE in table.subscribers.get(node, ()):
            self.ready_here.append(node)
        for neighbor in table.marked(node):
            self._say(neighbor, "set up", Setup(node, *table.set_up_for(node, neighbor)))

    def _on_refused(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            for neighbor in self.table.drop(node):
                self._refuse(neighbor, node)

    def deprived(self, neighbors: Iterable[tuple[Neighbor, int]]) -> None:
        """At the rendezvous point: nodes are gone that neighbors wanted."""
        for neighbor, node in neighbors:
            self._refuse(neighbor, node)

    # --- unsubscriptions ---

    def _on_unsubscribe(self, nodes: Iterable[int], source: Neighbor) -> None:
        self._unsubscribe(nodes, source)
        for node in nodes:
            self._say(source, "unsubscribed", node)

    def _unsubscribe(self, nodes: Iterable[int], neighbor: Neighbor) -> None:
        for node in nodes:
            if self.table.unsubscribe(node, neighbor) and self.rendezvous is None:
                self._leave_above(node)

    def _leave_above(self, node: int) -> None:
        """Nobody wants a node any longer."""
        self.recovering.discard(node)
        if self.up is None:
            self.table.drop(node)
        else:
            self.unacked[node] += 1
            self._say(self.up, "unsubscribe", node)

    def _on_acknowledged(self, nodes: Iterable[int], source: Neighbor) -> None:
        for node in nodes:
            if not self.unacked[node]:
                raise _wrong(source, f"acknowledged an unsubscription from node {node} that it was not sent")
            self.unacked[node] -= 1
            if not self.unacked[node]:
                del self.unacked[node]
                if not self.table.subscribers.get(node):
                    self.table.drop(node)

    def lose(self, neighbor: Neighbor) -> None:
        """A router below has gone, or has another one above it."""
        self.below.pop(neighbor, None)
        # It may be the router above us by now: then it hears that we no longer want what only it wanted.
        self._unsubscribe(self.table.nodes_of(neighbor), neighbor)

    # --- resubscription ---

    def refresh(self, now: Time) -> list[Action]:
        """Resubscribes above, and checks what has not been confirmed for too long."""
        if self.up is not None:
            for node in self.table.wanted:
                self._say(self.up, "resubscribed", node)
        return self.flush()

    def _on_resubscribed(self, nodes: Iterable[int], source: Neighbor, now: Time) -> None:
        for node in nodes:
            times = self.table.subscribers.get(node, {})
            if source in times:
                times[source] = now
                self._say(source, "confirmed", node)

    def _on_confirmed(self, nodes: Iterable[int], now: Time) -> None:
        for node in nodes:
            if node in self.table.confirmed_at:
                self.table.confirmed_at[node] = now
                self.recovering.discard(node)

    def check(self, expiry: Time, now: Time) -> list[Action]:
        """PeriodicCheckGraph: finds what is interrupted, upstream and downstream; recovers it, or drops it."""
        self._check_above(expiry, now)
        silent = {
            (node, neighbor)
            for node, times in self.table.subscribers.items()
            for neighbor, last in times.items()
            if neighbor != HERE and now - last > expiry
        }
        for node, neighbor in sorted(silent & self.interrupted):
            self._unsubscribe([node], neighbor)
        self.interrupted = silent - self.interrupted
        return self.flush()

    def _check_above(self, expiry: Time, now: Time) -> None:
        if self.up is None:
            return
        late = [node for node, last in self.table.confirmed_at.items() if now - last > expiry]
        for node in sorted(late):
            if not self.table.subscribers.get(node):
                continue
            if node in self.recovering:
                # Subscribing again did not help: whoever wants it must ask for it anew.
                for neighbor in sorted(self.table.subscribers[node]):
                    self._refuse(neighbor, node)
                    self._unsubscribe([node], neighbor)
            else:
                self.recovering.add(node)
                self._ask_above(node, now)

    # --- the graph ---

    def _send_graph(self, neighbor: Neighbor, known: int) -> None:
        tagger = self._tagger
        if tagger is not None and self.version not in (0, known):
            self._say_change(neighbor, 0, (), whole(tagger))

    @property
    def _tagger(self) -> FilterTagger | None:
        """What the graph is told from; None if nobody else needs it."""
        if not self.spreads_graph:
            return None
        if self.rendezvous is not None:
            return self.rendezvous.preprocessor
        return None if self.copy is None else self.copy.tagger

    def _say_change(self, neighbor: Neighbor, after: int, removed: Sequence[int], added: Sequence[Named]) -> None:
        session = self.below[neighbor]
        for message in change_messages(self.namespace, session, self.version, after, removed, added):
            self._say(neighbor, "graph", message)

    def pass_on(self, after: int, removed: Sequence[int], added: Sequence[Named]) -> None:
        """Tells the routers below a change of the graph."""
        if self.spreads_graph and self.version != after:
            for neighbor in sorted(self.below):
                self._say_change(neighbor, after, removed, added)

    def _on_change(self, message: GraphChange) -> None:
        if self.copy is None:
            raise InputError("told a graph that nobody wants")
        change = self.copy.take(message)
        if change is None:
            return
        if not self.table.owns_graph:
            self.table.forwarder.changed()
        self.pass_on(change.after, change.removed, change.added)


def _wrong(source: Neighbor, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(source.name, what)
