"""What an application tells about its subscriptions (F3 §3.5.3), and the base preprocessor, which knows nothing else.

A *kind* of subscriptions is what the text calls a class of SubscriptionObjects: how a subscription is read (`parse`),
how two of them are related (`relation`), and whether a notification belongs to one (`matches`). To add a kind, derive
from `Kind` and write these three methods. S is the class of its subscriptions, N the class of its notifications.

A *preprocessor* sorts subscriptions of one kind into a content graph, one node for each distinct meaning, and gives a
notification the lowest nodes that it belongs to. The base preprocessor here does that for any kind, in the plainest
way: it goes through the graph from its roots, breadth first, and leaves a branch at the first node that does not fit
(§6.3). Where a kind has something faster, it has a preprocessor of its own, for which the base preprocessor is the slow
twin in tests: `filters.py` has the one for our filters.

    add(node, subscription)    a new node, unless a node means the same; tells its place (Fig 3-22)
    remove(node)               its parents and children are linked
    find(subscription)         the node that means the same, or None
    nodes_for(notifications)   for each the lowest nodes, sorted
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from catchment.routing.content_graph.graph import ContentGraph

S = TypeVar("S")
N = TypeVar("N")
N_contra = TypeVar("N_contra", contravariant=True)


class Relation(StrEnum):
    """How a subscription is related to another."""

    SAME = "same"
    # It stands for all that the other stands for, and for more.
    WIDER = "wider"
    NARROWER = "narrower"
    # Neither contains the other. They may overlap: a content graph has no edge for that (§3.3).
    APART = "apart"


class Kind(ABC, Generic[S, N]):
    """A kind of subscriptions."""

    @abstractmethod
    def parse(self, text: str) -> S:
        """A subscription from its text; InputError if it is none."""

    @abstractmethod
    def relation(self, first: S, second: S) -> Relation:
        """How `first` is related to `second`. It must never change while both are in a graph."""

    @abstractmethod
    def matches(self, subscription: S, notification: N) -> bool:
        """Whether a notification belongs to a subscription."""


class Place(NamedTuple):
    """Where a subscription is in the graph. `node` is another than the given one if a node meant the same before."""

    node: int
    parents: tuple[int, ...]
    children: tuple[int, ...]


class Preprocessor(Protocol[S, N_contra]):
    """Sorts subscriptions into a graph, and tags notifications with nodes."""

    graph: ContentGraph
    # Pairs of subscriptions that were compared, in all.
    compared: int

    def add(self, node: int, subscription: S) -> Place: ...

    def remove(self, node: int) -> None: ...

    def find(self, subscription: S) -> int | None: ...

    def subscription(self, node: int) -> S: ...

    def nodes_for(self, batch: Sequence[N_contra]) -> list[tuple[int, ...]]: ...


class BreadthFirstPreprocessor(Generic[S, N]):
    """The base preprocessor: any kind, no index."""

    def __init__(self, kind: Kind[S, N]) -> None:
        self.kind = kind
        self.graph = ContentGraph()
        self.compared = 0
        self._subscriptions: dict[int, S] = {}

    def add(self, node: int, subscription: S) -> Place:
        relations = {other: self._relation(subscription, other) for other in self._subscriptions}
        wider = {other for other, relation in relations.items() if relation is Relation.NARROWER}
        narrower = {other for other, relation in relations.items() if relation is Relation.WIDER}
        for other, relation in relations.items():
            if relation is Relation.SAME:
                return self._place(other)
        self._subscriptions[node] = subscription
        self.graph.insert(node, self.graph.lowest(wider), self.graph.highest(narrower))
        return self._place(node)

    def remove(self, node: int) -> None:
        del self._subscriptions[node]
        self.graph.remove(node)

    def find(self, subscription: S) -> int | None:
        same = (node for node in self._subscriptions if self._relation(subscription, node) is Relation.SAME)
        return next(same, None)

    def subscription(self, node: int) -> S:
        return self._subscriptions[node]

    def nodes_for(self, batch: Sequence[N]) -> list[tuple[int, ...]]:
        return [tuple(sorted(self._lowest(notification))) for notification in batch]

    def _lowest(self, notification: N) -> Iterator[int]:
        graph, matched = self.graph, self._matched(notification)
        return (node for node in matched if graph.children[node].isdisjoint(matched))

    def _matched(self, notification: N) -> set[int]:
        """All nodes that a notification belongs to, from the roots down."""
        graph, matched, refused = self.graph, set[int](), set[int]()
        level = [node for node in graph if not graph.parents[node]]
        while level:
            fitting = [node for node in level if self.kind.matches(self._subscriptions[node], notification)]
            matched.update(fitting)
            refused.update(set(level) - matched)
            below = dict.fromkeys(child for node in fitting for child in sorted(graph.children[node]))
            level = [node for node in below if node not in matched and node not in refused]
        return matched

    def _relation(self, subscription: S, node: int) -> Relation:
        self.compared += 1
        return self.kind.relation(subscription, self._subscriptions[node])

    def _place(self, node: int) -> Place:
        return Place(node, tuple(sorted(self.graph.parents[node])), tuple(sorted(self.graph.children[node])))
