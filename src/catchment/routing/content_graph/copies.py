"""The graph of a namespace as a broker other than the rendezvous point has it: for tags, and for stored graphs.

With distributed preprocessors (F3 §3.4.4) every broker tags the notifications of its own clients. It is told the graph
by `GraphChange`, version after version. A copy is always complete: of a change in several parts it takes nothing until
the last part is there. Node ids are never given twice, so a node that a copy has stands for the same filter in every
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from catchment.errors import InputError
from catchment.routing.content_graph.graph import GRAPH_NODES_MAX, ContentGraph
from catchment.routing.content_graph.messages import GraphChange, Named
from catchment.routing.content_graph.preprocessors import FilterTagger
from catchment.routing.content_graph.preprocessors.making import tagger_of
from catchment.routing.content_graph.settings import PreprocessorSettings

# Nodes in one message: with filters of the usual length some hundred kilobytes, far from the longest frame.
CHANGE_NODES_MAX: Final = 2_000


class Change(NamedTuple):
    """A change of the graph that leads from the version `after`; 0 means the empty graph."""

    after: int
    removed: list[int]
    added: list[Named]


class GraphCopy:
    """The last complete version of a graph; version 0 is the empty graph."""

    def __init__(self, preprocessor: PreprocessorSettings | None = None) -> None:
        self.tagger = tagger_of(preprocessor)
        self.version = 0
        # The parts of a change whose last part has not come.
        self._parts: list[GraphChange] = []

    @property
    def graph(self) -> ContentGraph:
        return self.tagger.graph

    def begin(self) -> None:
        """Another router is above us: parts that the one before has sent are never completed."""
        self._parts.clear()

    def take(self, message: GraphChange) -> Change | None:
        """Takes a part. With the last part the copy changes; returns how. InputError if the change contradicts what is
        known."""
        self._parts.append(message)
        if sum(len(part.added) for part in self._parts) > GRAPH_NODES_MAX:
            raise InputError(f"a graph has at most {GRAPH_NODES_MAX:,} nodes")
        if message.is_partial:
            return None
        parts, self._parts = self._parts, []
        first = parts[0]
        if first.after not in (0, self.version) or any(part.version != message.version for part in parts):
            raise InputError(f"the change leads from version {first.after}, known is {self.version}")
        removed = [node for part in parts for node in part.removed]
        added = [named for part in parts for named in part.added]
        self._apply(list(self.graph) if first.after == 0 else removed, added)
        self.version = message.version
        return Change(first.after, removed, added)

    def _apply(self, gone: Iterable[int], added: Iterable[Named]) -> None:
        graph = self.graph
        for node in gone:
            if node not in graph:
                raise InputError(f"node {node} is to be removed, and is not there")
            self.tagger.take(node)
        for named in added:
            edges = {*named.parents, *named.children}
            if named.node in graph or not edges <= graph.parents.keys():
                raise InputError(f"node {named.node} is there already, or a node beside it is not")
            if graph.contradicts(named.node, named.parents, named.children):
                raise InputError(f"node {named.node} would close a circle")
            self.tagger.put(named.node, named.filter, named.parents, named.children)

    def clear(self) -> None:
        """Forgets the graph."""
        self._apply(list(self.graph), ())
        self.version = 0
        self._parts.clear()


def whole(tagger: FilterTagger) -> list[Named]:
    """All nodes of a graph, each after its parents."""
    graph = tagger.graph
    waiting = {node: len(parents) for node, parents in graph.parents.items()}
    ready, named = [node for node, count in waiting.items() if not count], []
    while ready:
        node = ready.pop()
        named.append(Named(node, tagger.subscription(node), tuple(sorted(graph.parents[node])), ()))
        for child in sorted(graph.children[node]):
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return named


def change_messages(
    namespace: str, session: int, version: int, after: int, removed: Iterable[int], added: Iterable[Named]
) -> Iterator[GraphChange]:
    """A change of the graph, in as many messages as it needs."""
    gone, new = tuple(removed), tuple(added)
    starts = range(0, max(len(gone), len(new), 1), CHANGE_NODES_MAX)
    for start in starts:
        part = slice(start, start + CHANGE_NODES_MAX)
        is_partial = start != starts[-1]
        yield GraphChange(namespace, session, version, after, is_partial, gone[part], new[part])
