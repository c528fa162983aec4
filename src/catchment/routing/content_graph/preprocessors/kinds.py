"""The preprocessor of a namespace whose subscriptions are of a kind (`reading.py`), in place of the one for filters.

A filter that the kind reads is a subscription of the kind: the kind says where it belongs, and its search finds it. One
that the kind cannot read is matched with attributes by the matcher, as in other namespaces, and stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.preprocessors.base import Place, Relation
from catchment.routing.content_graph.preprocessors.filters import FilterTagger
from catchment.routing.content_graph.preprocessors.reading import ReadKind, Search
from catchment.routing.parts.recall import RecallingMatcher


class KindTagger(FilterTagger):
    """Finds the nodes of notifications in a namespace of a kind. Whoever puts a node in says where it belongs."""

    def __init__(self, kind: ReadKind[Any, Any], search: str | None = None) -> None:
        super().__init__()
        self.kind = kind
        # Of filters that the kind cannot read.
        self.matcher = RecallingMatcher(_ints)
        self.search: Search[Any, Any] = kind.search(search, self.graph)
        # By node, what the kind has read.
        self._read: dict[int, Any] = {}

    def put(self, node: int, filter: Filter, parents: Iterable[int], children: Iterable[int]) -> None:
        self.graph.insert(node, parents, children)
        self._filters[node] = filter
        subscription = self.kind.read(filter)
        if subscription is None:
            self.matcher.add(node, filter)
        else:
            self._read[node] = subscription
            self.search.add(node, subscription)

    def take(self, node: int) -> Filter:
        if node in self._read:
            self.search.remove(node)
            del self._read[node]
        else:
            self.matcher.remove(node)
        self.graph.remove(node)
        return self._filters.pop(node)

    def nodes_for(self, batch: Sequence[Notification]) -> list[tuple[int, ...]]:
        found = zip(batch, self.matcher.answers(batch), strict=True)
        return [self._lowest([*plain, *self._searched(notification)]) for notification, plain in found]

    def _searched(self, notification: Notification) -> Iterable[int]:
        return self.search.nodes(self.kind.document(notification)) if self._read else ()


class KindPreprocessor(KindTagger):
    """Finds the places of subscriptions in the graph."""

    def __init__(self, kind: ReadKind[Any, Any], search: str | None = None) -> None:
        super().__init__(kind, search)
        self.compared = 0
        # By what the kind has read, or by filter.
        self._nodes: dict[Any, int] = {}

    @property
    def apart(self) -> int:
        """Filters that the kind cannot read: they have no edges."""
        return sum(isinstance(key, Filter) for key in self._nodes)

    def add(self, node: int, subscription: Filter) -> Place:
        key = self._key(subscription)
        same = self._same(key)
        if same is not None:
            return self._place(same)
        relations = {} if isinstance(key, Filter) else self._relations(key)
        wider = {other for other, relation in relations.items() if relation is Relation.NARROWER}
        narrower = {other for other, relation in relations.items() if relation is Relation.WIDER}
        self._nodes[key] = node
        self.put(node, subscription, self.graph.lowest(wider), self.graph.highest(narrower))
        return self._place(node)

    def remove(self, node: int) -> None:
        del self._nodes[self._key(self.take(node))]

    def find(self, subscription: Filter) -> int | None:
        return self._same(self._key(subscription))

    def _key(self, filter: Filter) -> Any:
        read = self.kind.read(filter)
        return filter if read is None else read

    def _same(self, key: Any) -> int | None:
        """The node that means the same. A kind may write the same in two ways: then it is compared with all."""
        node = self._nodes.get(key)
        if node is not None or isinstance(key, Filter) or self.kind.is_canonical:
            return node
        relations = self._relations(key)
        return next((other for other, relation in relations.items() if relation is Relation.SAME), None)

    def _relations(self, key: Any) -> dict[int, Relation]:
        """How a subscription is related to all others of the kind."""
        self.compared += len(self._read)
        return {node: self.kind.relation(key, other) for node, other in self._read.items()}

    def _place(self, node: int) -> Place:
        return Place(node, tuple(sorted(self.graph.parents[node])), tuple(sorted(self.graph.children[node])))


def _ints(ids: Sequence[Id]) -> tuple[int, ...]:
    return tuple(int(id) for id in ids)
