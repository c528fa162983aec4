"""The three algorithms that look at subscribers when a notification comes: content lists, stored and minimal graphs."""

from __future__ import annotations

from typing import ClassVar

from catchment.routing.content_graph.forwarders.base import Forwarder, Output
from catchment.routing.messages import Neighbor


class ListForwarder(Forwarder):
    """Content lists (Fig 3-8): a neighbor gets a copy if it wants any node of the list. The list stays as it is."""

    needs_edges: ClassVar[bool] = False
    names_all: ClassVar[bool] = True

    def _computed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        self.visited += len(nodes)
        neighbors = {neighbor for node in nodes for neighbor in self.subscribers.get(node, ())}
        return tuple((neighbor, nodes) for neighbor in sorted(neighbors))


class StoredForwarder(Forwarder):
    """Stored graphs (Fig 3-12): a neighbor gets a copy if it wants any node of the superset graph. The header stays."""

    needs_edges: ClassVar[bool] = False
    needs_whole_graph: ClassVar[bool] = True

    def _computed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        above = self.graph.at_or_above(nodes)
        self.visited += len(above)
        neighbors = {neighbor for node in above for neighbor in self.subscribers.get(node, ())}
        return tuple((neighbor, nodes) for neighbor in sorted(neighbors))


class MinimalForwarder(Forwarder):
    """Minimal graphs (Fig 3-15): as stored graphs, and the header names the lowest nodes that the neighbor wants."""

    def _computed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        wanted: dict[Neighbor, set[int]] = {}
        above = self.graph.at_or_above(nodes)
        self.visited += len(above)
        for node in above:
            for neighbor in self.subscribers.get(node, ()):
                wanted.setdefault(neighbor, set()).add(node)
        return tuple((neighbor, tuple(sorted(self.graph.lowest(wanted[neighbor])))) for neighbor in sorted(wanted))
