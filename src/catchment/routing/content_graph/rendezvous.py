"""The rendezvous point of a namespace (F3 §3.4.1, §3.4.2, §3.4.4, §3.4.6): it owns the graph and gives the node ids.

It knows which broker wants which filters (`NodesWanted`). A node lives as long as some broker wants a filter that means
what the node means. A *static* graph has the nodes of its topics instead, always the same.

Node ids are unique in the namespace for all time: a new one is greater than all before, also over a restart, because it
is not less than the time. So whoever knows an id from before a restart can only find that it is unknown now. Versions
of the graph are numbered in the same way.

NodesWanted   Is entered if it follows the last one of its origin, or is whole and newer; otherwise one before it was
              lost, and the origin will state everything again. First filters that mean what a node means, then nodes
              that nobody wants go, then new nodes come (Fig 3-22).
broker gone   What it wanted is dropped. When it is back, it states everything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.forwarders import Forwarder
from catchment.routing.content_graph.graph import GRAPH_NODES_MAX, ContentGraph
from catchment.routing.content_graph.loss import SentLog
from catchment.routing.content_graph.messages import Named, NodesWanted
from catchment.routing.content_graph.preprocessors.making import preprocessor_of
from catchment.routing.content_graph.settings import Namespace
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.core import Table
from catchment.routing.messages import Neighbor, Time
from catchment.routing.parts.remote import check_limit
from catchment.routing.parts.wanted import text_bytes

# A broker gives fewer ids in a microsecond. In a simulation, where work takes no time, it gives them at one instant.
IDS_PER_MICROSECOND: Final = 1_024


@dataclass(slots=True)
class Entered:
    """What a change came to."""

    given: list[tuple[Filter, int]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    added: list[Named] = field(default_factory=list)
    # Neighbors that wanted a node which is gone.
    deprived: list[tuple[Neighbor, int]] = field(default_factory=list)
    # The version before.
    after: int = 0


class Rendezvous:
    """A namespace's graph, and who wants what. `order` numbers what is sent in all namespaces of this broker."""

    def __init__(self, namespace: Namespace, forwarder: type[Forwarder], order: Iterator[int]) -> None:
        self.namespace = namespace
        self.preprocessor = preprocessor_of(namespace.preprocessor)
        self.table = ForwardingTable(forwarder, self.preprocessor.graph, owns_graph=False)
        self.log = SentLog(self.preprocessor.graph, order)
        self.version = 0
        self._last_node = 0
        # By broker: `links_seq` and `seq` of the last `NodesWanted` that was entered.
        self._last: dict[str, tuple[int, int]] = {}
        # By broker: what it wants, each with its node.
        self._wants: dict[str, dict[Filter, int]] = {}
        # By node: how many filters of each broker it stands for.
        self._holders: dict[int, Counter[str]] = {}
        # Grows when a broker begins or ends to want a node.
        self.generation = 0

    @property
    def graph(self) -> ContentGraph:
        return self.preprocessor.graph

    def start(self, now: Time) -> None:
        """The first message tells the time: from now on ids and versions are above those from before a restart."""
        if not self.version:
            self.version = self._following(0, now)
            for topic in self.namespace.topics or ():
                self._insert(topic, now, Entered())

    def _following(self, number: int, now: Time) -> int:
        return max(number + 1, now * IDS_PER_MICROSECOND)

    # --- who wants what ---

    def of(self, broker: str) -> dict[Filter, int]:
        """What a broker wants, with the nodes. Not a copy."""
        return self._wants.get(broker, {})

    @property
    def brokers(self) -> list[str]:
        """The brokers that want something, sorted."""
        return sorted(self._wants)

    def holders(self, node: int) -> Sequence[str]:
        """The brokers that want what a node stands for, sorted."""
        return sorted(self._holders.get(node, ()))

    def enter(self, message: NodesWanted, now: Time) -> Entered | None:
        """Enters what a broker wants; None if there is a gap before it, or it is old. LimitError if it is too much."""
        origin, number = message.origin, (message.links_seq, message.seq)
        links_seq, seq = self._last.get(origin, (0, 0))
        before = self._wants.get(origin, {})
        if message.is_whole and number > (links_seq, seq):
            wanted = set(message.wanted)
            withdrawn = [filter for filter in before if filter not in wanted]
        elif not message.is_whole and number == (links_seq, seq + 1):
            withdrawn = [filter for filter in message.withdrawn if filter in before]
        else:
            return None
        check_limit("GRAPH_NODES_MAX", GRAPH_NODES_MAX, len(self.graph) + len(message.wanted))
        self._last[origin] = number
        return self._change(origin, withdrawn, message.wanted, now)

    def leave(self, brokers: Iterable[str], now: Time) -> Entered:
        """Drops what brokers want that cannot be reached."""
        entered = Entered(after=self.version)
        gone: list[int] = []
        for broker in brokers:
            # Its next message must be whole: `_last` is kept, so that an old one that is still under way is not taken.
            links_seq, seq = self._last.get(broker, (0, 0))
            self._last[broker] = (links_seq, seq + 1)
            for node in self._wants.pop(broker, {}).values():
                gone += self._released(broker, node)
        self._remove(gone, entered)
        return self._versioned(entered, now)

    def forget(self, broker: str) -> None:
        """Forgets a broker that has been away for long: nothing that it said is under way any more."""
        if broker not in self._wants:
            self._last.pop(broker, None)

    def _change(self, origin: str, withdrawn: Iterable[Filter], wanted: Iterable[Filter], now: Time) -> Entered:
        entered = Entered(after=self.version)
        mine = self._wants.setdefault(origin, {})
        new: list[Filter] = []
        for filter in dict.fromkeys(wanted):
            node = mine[filter] if filter in mine else self.preprocessor.find(filter)
            if node is None:
                new.append(filter)
            else:
                self._hold(origin, filter, node, entered)
        gone = [node for filter in withdrawn for node in self._released(origin, mine.pop(filter))]
        # Before new nodes come: the edges that a change names are then among the nodes that stay.
        self._remove(gone, entered)
        for filter in new:
            # A static graph has its topics, and nothing else.
            if self.namespace.topics is None:
                self._hold(origin, filter, self._insert(filter, now, entered), entered)
        if not mine:
            del self._wants[origin]
        return self._versioned(entered, now)

    def _hold(self, origin: str, filter: Filter, node: int, entered: Entered) -> None:
        mine = self._wants[origin]
        if filter not in mine:
            mine[filter] = node
            self.generation += 1
            self._holders.setdefault(node, Counter())[origin] += 1
        entered.given.append((filter, node))

    def _released(self, origin: str, node: int) -> list[int]:
        """A broker no longer wants a filter of a node. Returns the node if nobody does."""
        self.generation += 1
        holders = self._holders[node]
        holders[origin] -= 1
        if not holders[origin]:
            del holders[origin]
        if holders:
            return []
        del self._holders[node]
        return [] if self.namespace.topics is not None else [node]

    # --- the graph ---

    def _insert(self, filter: Filter, now: Time, entered: Entered) -> int:
        """The node for a filter: a new one, unless a filter that was inserted just before means the same."""
        node = self._following(self._last_node, now)
        place = self.preprocessor.add(node, filter)
        if place.node == node:
            self._last_node = node
            self.table.noted(node)
            entered.added.append(Named(node, filter, place.parents, place.children))
        return place.node

    def _remove(self, nodes: Iterable[int], entered: Entered) -> None:
        for node in nodes:
            entered.deprived += [(neighbor, node) for neighbor in self.table.drop(node)]
            self.preprocessor.remove(node)
            self.table.gone(node)
            self.log.removed(node)
            entered.removed.append(node)

    def _versioned(self, entered: Entered, now: Time) -> Entered:
        if entered.removed or entered.added:
            self.version = self._following(self.version, now)
        return entered

    # --- notifications ---

    def nodes_for(self, batch: Sequence[Notification]) -> list[tuple[int, ...]]:
        """For each notification the lowest nodes that it belongs to."""
        return self.preprocessor.nodes_for(batch)

    # --- looking in ---

    def tables(self) -> list[tuple[str, Table]]:
        """By broker: how much it wants."""
        return [
            (broker, Table(broker, len(filters), sum(map(text_bytes, filters))))
            for broker, filters in sorted(self._wants.items())
        ]

    def leftovers(self) -> list[str]:
        static = len(self.namespace.topics or ())
        wants = [f"{filter} of {broker}" for broker, filters in sorted(self._wants.items()) for filter in filters]
        nodes = len(self.graph) - static if static else len(self.graph)
        return wants + ([f"{nodes} nodes in the graph"] if nodes > 0 else [])
