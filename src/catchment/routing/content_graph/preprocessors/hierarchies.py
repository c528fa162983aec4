"""Keyword ontologies and class hierarchies (F3 §3.3, Figure 3-3; §6.4): names that stand below other names.

A subscription is a name: `topic = 'baseball'`. It means that name and all below it: a notification about `Boston`,
which stands below `baseball`, belongs to it. The order of names is given in settings, or by Python classes. A name
that is not in it stands for itself.

keywords   A notification has several, separated by commas, in one attribute.
classes    A notification has one class. A class may stand below several others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.preprocessors.base import Relation
from catchment.routing.content_graph.preprocessors.reading import MakeSearch, ReadKind, constraints_of

# Names of one hierarchy: each is kept with all names above it.
NAMES_MAX: Final = 100_000


class Hierarchy:
    """`above` has for each name the names directly above it. InputError if a name is above itself."""

    def __init__(self, above: Mapping[str, Iterable[str]]) -> None:
        self._direct = {name: tuple(parents) for name, parents in above.items()}
        if len(self._direct) > NAMES_MAX:
            raise InputError(f"a hierarchy has at most {NAMES_MAX:,} names, found {len(self._direct):,}")
        self._all: dict[str, frozenset[str]] = {}
        for name in self._direct:
            self._close(name)

    def _close(self, start: str) -> None:
        """Finds all names above a name, without recursion: a hierarchy may be deep."""
        path, waiting = set[str](), [start]
        while waiting:
            name = waiting[-1]
            parents = self._direct.get(name, ())
            open_parents = [parent for parent in parents if parent not in self._all and parent in self._direct]
            if name in self._all or not open_parents:
                above = {name}.union(*(self.at_or_above(parent) for parent in parents))
                self._all[waiting.pop()] = frozenset(above)
                path.discard(name)
                continue
            if name in path and any(parent in path for parent in open_parents):
                raise InputError(f"{shown(name)} stands above itself in the hierarchy")
            path.add(name)
            waiting += open_parents

    def at_or_above(self, name: str) -> frozenset[str]:
        """A name and all above it."""
        return self._all.get(name, frozenset([name]))


def hierarchy_of(root: type) -> Hierarchy:
    """The hierarchy of a Python class and all its subclasses, by their names."""
    above: dict[str, list[str]] = {root.__name__: []}
    waiting = [root]
    while waiting:
        here = waiting.pop()
        subclasses: list[type] = here.__subclasses__()
        for each in subclasses:
            above.setdefault(each.__name__, []).append(here.__name__)
            waiting.append(each)
    return Hierarchy(above)


class KeywordKind(ReadKind[str, frozenset[str]]):
    """Keywords in an attribute."""

    is_canonical = True

    def __init__(self, attribute: str, hierarchy: Hierarchy) -> None:
        self._attribute = attribute
        self.hierarchy = hierarchy

    def parse(self, text: str) -> str:
        if not text.strip():
            raise InputError("a keyword is not empty")
        return text.strip()

    def relation(self, first: str, second: str) -> Relation:
        if first == second:
            return Relation.SAME
        if first in self.hierarchy.at_or_above(second):
            return Relation.WIDER
        return Relation.NARROWER if second in self.hierarchy.at_or_above(first) else Relation.APART

    def matches(self, subscription: str, notification: frozenset[str]) -> bool:
        return any(subscription in self.hierarchy.at_or_above(name) for name in notification)

    def read(self, filter: Filter) -> str | None:
        constraints = constraints_of(filter)
        if constraints is None or len(constraints) != 1:
            return None
        (only,) = constraints
        is_name = only.name == self._attribute and only.operator == "=" and isinstance(only.value, str)
        return str(only.value) if is_name else None

    def written(self, subscription: str) -> Filter:
        return Filter.of((self._attribute, "=", subscription))

    def document(self, notification: Notification) -> frozenset[str]:
        value = notification.matched.get(self._attribute)
        return frozenset(self._names(value)) if isinstance(value, str) else frozenset()

    def _names(self, value: str) -> Iterable[str]:
        return {name.strip() for name in value.split(",")} - {""}

    def searches(self) -> Mapping[str, MakeSearch[str, frozenset[str]]]:
        return {"index": lambda graph: NameIndexSearch(self.hierarchy, graph)}


class ClassKind(KeywordKind):
    """The class of a notification, in an attribute."""

    def _names(self, value: str) -> Iterable[str]:
        return [value]


class NameIndexSearch:
    """By name, the node. A document is looked up under its names and all above them."""

    def __init__(self, hierarchy: Hierarchy, graph: ContentGraph) -> None:
        self.examined = 0
        self._hierarchy = hierarchy
        self._graph = graph
        self._nodes: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def add(self, node: int, subscription: str) -> None:
        self._nodes[subscription] = node
        self._names[node] = subscription

    def remove(self, node: int) -> None:
        del self._nodes[self._names.pop(node)]

    def nodes(self, document: frozenset[str]) -> Iterable[int]:
        names = {above for name in document for above in self._hierarchy.at_or_above(name)}
        self.examined += len(names)
        return [self._nodes[name] for name in names if name in self._nodes]
