"""What all forwarding algorithms share: whom a notification goes to, and which nodes its header names there.

A forwarder looks at a graph and at the subscribers of its nodes. Both belong to the table (`table.py`), which tells the
forwarder about each change. An answer depends only on the nodes in the header of a notification, so it is kept until
something changes: a router's work for a notification is one look-up, however many subscriptions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.messages import Neighbor, Time

# The broker's own clients, together, as a subscriber. No broker has an empty name.
HERE: Final = Neighbor("")
# Headers whose answer is kept: some megabytes. When there are more, all are forgotten; those that repeat are soon back.
RECALLED_MAX: Final = 65_536

# A neighbor, and the nodes that the header names there.
Output = tuple[Neighbor, tuple[int, ...]]
# By node, by neighbor: when the neighbor last said that it wants the node.
Subscribers = dict[int, dict[Neighbor, Time]]


class Forwarder(ABC):
    """One of the algorithms of §3.4.3."""

    # Whether routers need the edges between the nodes that they were asked for (graph set-up).
    needs_edges: ClassVar[bool] = True
    # Whether every router needs all nodes and edges of the namespace.
    needs_whole_graph: ClassVar[bool] = False
    # Whether a header names all nodes that cover the notification, instead of the lowest.
    names_all: ClassVar[bool] = False

    def __init__(self, graph: ContentGraph, subscribers: Subscribers) -> None:
        self.graph = graph
        self.subscribers = subscribers
        # Nodes looked at for notifications, and nodes looked at for subscriptions: counted work, in all.
        self.visited = 0
        self.touched = 0
        # By node and neighbor, the nodes that a header names there. Only output labels are computed ahead.
        self.labels: dict[int, dict[Neighbor, tuple[int, ...]]] = {}
        # Grows with each change: answers that others keep are good for one generation.
        self.generation = 0
        self._recalled: dict[tuple[int, ...], tuple[Output, ...]] = {}

    def outputs(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        """Whom a notification with these nodes goes to, sorted, and which nodes its header names there. Nodes that are
        not in the table are ignored."""
        outputs = self._recalled.get(nodes)
        if outputs is None:
            outputs = self._computed(nodes)
            if len(self._recalled) >= RECALLED_MAX:
                self._recalled.clear()
            self._recalled[nodes] = outputs
        return outputs

    @abstractmethod
    def _computed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]: ...

    # --- changes: the table tells them. Each comes after the graph and the subscribers have changed. ---

    def changed(self) -> None:
        """Anything has changed."""
        self.generation += 1
        self._recalled.clear()

    def inserted(self, node: int) -> None:
        """A node has come into the graph."""
        self.changed()

    def linked(self, node: int) -> None:
        """A node has got further edges."""
        self.changed()

    def removed(self, node: int) -> None:
        """A node without subscribers has gone."""
        self.changed()

    def subscribed(self, node: int, neighbor: Neighbor) -> None:
        """A neighbor has subscribed to a node that is in the graph."""
        self.changed()

    def unsubscribed(self, node: int, neighbor: Neighbor) -> None:
        """A neighbor no longer wants a node that is in the graph."""
        self.changed()
