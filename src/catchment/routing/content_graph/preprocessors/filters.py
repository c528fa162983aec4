"""The preprocessor for our own filters: the poset finds their places by `covers`, the one `Matcher` finds nodes.

Of what §6.3 proposes against the breadth-first search this is "fast matching algorithms" and "an index": the time for a
notification does not grow with the number of nodes that it does not belong to.

A filter that has no normal form cannot be related to others; brokers route it by a wider one (`Filter.routed`), and
that is what is given here. Where `covers` reaches a limit of the model and answers "no" wrongly, an edge is missing:
then both nodes are lowest, both stand in the header, and nobody misses anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.preprocessors.base import Kind, Place, Relation
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.poset import Case, Poset


class FilterKind(Kind[Filter, Notification]):
    """Our filters, for the base preprocessor."""

    def parse(self, text: str) -> Filter:
        return Filter(text)

    def relation(self, first: Filter, second: Filter) -> Relation:
        is_wider, is_narrower = first.covers(second), second.covers(first)
        if is_wider and is_narrower:
            return Relation.SAME
        if is_wider:
            return Relation.WIDER
        return Relation.NARROWER if is_narrower else Relation.APART

    def matches(self, subscription: Filter, notification: Notification) -> bool:
        return subscription.matches(notification)


class FilterTagger:
    """A graph whose nodes stand for filters, and what finds the nodes of notifications. Whoever puts a node in says
    where it belongs: the preprocessor of the rendezvous point finds that out, the others are told."""

    def __init__(self) -> None:
        self.graph = ContentGraph()
        self.matcher: RecallingMatcher[tuple[int, ...]] = RecallingMatcher(self._lowest)
        self._filters: dict[int, Filter] = {}

    def put(self, node: int, filter: Filter, parents: Iterable[int], children: Iterable[int]) -> None:
        self.graph.insert(node, parents, children)
        self._filters[node] = filter
        self.matcher.add(node, filter)

    def take(self, node: int) -> Filter:
        self.graph.remove(node)
        self.matcher.remove(node)
        return self._filters.pop(node)

    def subscription(self, node: int) -> Filter:
        return self._filters[node]

    def nodes_for(self, batch: Sequence[Notification]) -> list[tuple[int, ...]]:
        """For each notification the lowest nodes that it belongs to, sorted."""
        return self.matcher.answers(batch)

    def _lowest(self, ids: Sequence[Id]) -> tuple[int, ...]:
        # What matches a node matches its parents: a node is lowest if none of its children is there.
        nodes = {node for node in ids if isinstance(node, int)}
        children = self.graph.children
        return tuple(sorted(node for node in nodes if children[node].isdisjoint(nodes)))


class FilterPreprocessor(FilterTagger):
    """Finds the places of filters in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self._poset: Poset[Filter] = Poset()
        # By filter as the poset has it.
        self._nodes: dict[Filter, int] = {}

    @property
    def compared(self) -> int:
        return self._poset.compared

    def add(self, node: int, subscription: Filter) -> Place:
        placement = self._poset.insert(subscription)
        if placement.case is Case.EXISTING:
            return self._place(self._nodes[placement.filter])
        parents = [self._nodes[filter] for filter in placement.predecessors]
        children = [self._nodes[filter] for filter in placement.successors]
        self._nodes[subscription] = node
        self.put(node, subscription, parents, children)
        return self._place(node)

    def remove(self, node: int) -> None:
        filter = self.take(node)
        del self._nodes[filter]
        self._poset.remove(filter)

    def find(self, subscription: Filter) -> int | None:
        if (node := self._nodes.get(subscription)) is not None:
            return node
        if subscription not in self._poset:
            return None
        # It says the same as a filter that is there in other words: `insert` only looks that one up.
        return self._nodes[self._poset.insert(subscription).filter]

    def _place(self, node: int) -> Place:
        return Place(node, tuple(sorted(self.graph.parents[node])), tuple(sorted(self.graph.children[node])))
