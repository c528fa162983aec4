"""What a namespace needs of a kind besides the three methods of the text: clients here write filters.

A client does not know which preprocessor serves a namespace: it subscribes with a filter, and publishes notifications.
So the kind of a namespace *reads* a filter as one of its subscriptions, and a notification as one of its documents. A
filter that it cannot read stays a filter: it is matched with the attributes as everywhere, and has no edges to
subscriptions of the kind (§3.3: what cannot be represented is a flat part of the graph).

A *search* finds the nodes that a document belongs to. Every kind has the breadth-first one of the base preprocessor;
those that know more of their subscriptions have faster ones (§6.3, `searches.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from catchment.model.constraint import Constraint
from catchment.model.constraint import Kind as ValueKind
from catchment.model.expression import And
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.preprocessors.base import Kind, N, S

S_contra = TypeVar("S_contra", contravariant=True)
N_contra = TypeVar("N_contra", contravariant=True)

BREADTH_FIRST: Final = "breadth first"


class Search(Protocol[S_contra, N_contra]):
    """Finds the nodes that a document belongs to."""

    # How many subscriptions were compared with documents, in all.
    examined: int

    def add(self, node: int, subscription: S_contra) -> None: ...

    def remove(self, node: int) -> None: ...

    def nodes(self, document: N_contra) -> Iterable[int]:
        """Nodes that the document belongs to; at least the lowest of them."""
        ...


MakeSearch = Callable[[ContentGraph], Search[S, N]]


class ReadKind(Kind[S, N]):
    """A kind whose subscriptions are read from filters. `S` is hashable, and equal only if it means the same.

    A kind `is_canonical` if subscriptions that mean the same are always equal: then nothing is compared to find one."""

    is_canonical: ClassVar[bool] = False

    @abstractmethod
    def read(self, filter: Filter) -> S | None:
        """A filter as a subscription of this kind; None if it is none."""

    def check(self, filter: Filter) -> None:
        """InputError if a client cannot mean this filter. Most kinds take every filter: one that they cannot read is
        compared with attributes."""

    @abstractmethod
    def written(self, subscription: S) -> Filter:
        """The filter that is read as this subscription."""

    @abstractmethod
    def document(self, notification: Notification) -> N:
        """A notification as this kind sees it. It never raises: who publishes nonsense is matched by attributes."""

    def searches(self) -> Mapping[str, MakeSearch[S, N]]:
        """By name, the fastest first. Breadth first is always there."""
        return {}

    def search(self, name: str | None, graph: ContentGraph) -> Search[S, N]:
        """The search of this name, or the fastest. KeyError if the kind has none of this name."""
        made: dict[str, MakeSearch[S, N]] = {**self.searches(), BREADTH_FIRST: self._breadth_first}
        return made[next(iter(made)) if name is None else name](graph)

    def _breadth_first(self, graph: ContentGraph) -> Search[S, N]:
        return BreadthFirstSearch(self, graph)


class BreadthFirstSearch(Generic[S, N]):
    """From the roots down, leaving a branch at the first node that does not fit (§6.3)."""

    def __init__(self, kind: Kind[S, N], graph: ContentGraph) -> None:
        self.examined = 0
        self._kind = kind
        self._graph = graph
        self._subscriptions: dict[int, S] = {}

    def add(self, node: int, subscription: S) -> None:
        self._subscriptions[node] = subscription

    def remove(self, node: int) -> None:
        del self._subscriptions[node]

    def nodes(self, document: N) -> Iterable[int]:
        graph, matched, visited = self._graph, set[int](), set[int]()
        level = [node for node in self._subscriptions if not graph.parents[node]]
        while level:
            visited.update(level)
            self.examined += len(level)
            fitting = [node for node in level if self._kind.matches(self._subscriptions[node], document)]
            matched.update(fitting)
            below = dict.fromkeys(child for node in fitting for child in sorted(graph.children[node]))
            level = [node for node in below if node not in visited]
        return matched


def constraints_of(filter: Filter) -> tuple[Constraint, ...] | None:
    """The constraints of a filter that is a conjunction; None if it is something else, or asks for ints or floats
    alone: kinds know numbers."""
    # In the canonical form, which is what other brokers are sent: all brokers must read the same.
    expression: Any = filter.canonical
    parts = expression.parts if isinstance(expression, And) else () if expression is True else (expression,)
    constraints = tuple(part for part in parts if isinstance(part, Constraint))
    if len(constraints) < len(parts) or any(each.kind in (ValueKind.INT, ValueKind.FLOAT) for each in constraints):
        return None
    return constraints
