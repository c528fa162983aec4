"""Output labels (F3 §3.4.3, Fig 3-18): for each node, which header each neighbor gets, computed at subscription.

The two rules. If a neighbor wants node v, its label at v is {v}. If it does not, its label at v are the lowest nodes
above v that it wants. A neighbor without a label at v gets no copy of what is marked with v.

subscribed     v becomes the label at v. At a node d below v, v joins the label unless a node of the label is below v;
               the nodes that v's own label had until now are above v, and leave d's label.
unsubscribed   v leaves the labels at v and below. What replaces it are the labels of the parents, so parents come
               before children: topological order. The text goes breadth first, which meets a node before its longest
               path has been repaired, and it merges labels without taking out nodes that have another one below them.
inserted       A node that nobody wants yet has labels too: the lowest of those of its parents.
linked         The same for the node and all below it, unless a neighbor wants them itself.

The text's ForwardNotification goes through the *subscribers* of a node. It must go through its labels: a neighbor that
wants only a node above gets a copy too.
"""

from __future__ import annotations

from catchment.routing.content_graph.forwarders.base import Forwarder, Output
from catchment.routing.messages import Neighbor

Label = tuple[int, ...]


class LabelForwarder(Forwarder):
    """`labels` has an entry for each node of the graph: by neighbor, sorted nodes."""

    def _computed(self, nodes: tuple[int, ...]) -> tuple[Output, ...]:
        self.visited += len(nodes)
        if len(nodes) == 1:
            return tuple(sorted(self.labels.get(nodes[0], {}).items()))
        headers: dict[Neighbor, set[int]] = {}
        for node in nodes:
            for neighbor, label in self.labels.get(node, {}).items():
                headers.setdefault(neighbor, set()).update(label)
        return tuple((neighbor, tuple(sorted(headers[neighbor]))) for neighbor in sorted(headers))

    # --- subscriptions ---

    def subscribed(self, node: int, neighbor: Neighbor) -> None:
        self.changed()
        before = self.labels[node].get(neighbor, ())
        if before == (node,):
            return
        below = self.graph.descendants([node])
        self.touched += 1 + len(below)
        for descendant in below:
            labels = self.labels[descendant]
            label = labels.get(neighbor, ())
            if below.isdisjoint(label):
                labels[neighbor] = tuple(sorted({*label, node}.difference(before)))
        self.labels[node][neighbor] = (node,)

    def unsubscribed(self, node: int, neighbor: Neighbor) -> None:
        self.changed()
        for descendant in self.graph.downward(node):
            self.touched += 1
            if node in self.labels[descendant].get(neighbor, ()):
                self._merge_parents(descendant, neighbor, {node})

    def _merge_parents(self, node: int, neighbor: Neighbor, gone: set[int]) -> None:
        """The label at a node without the nodes in `gone`: what is left of it, with what its parents have."""
        merged = {*self.labels[node].get(neighbor, ())}.difference(gone)
        for parent in self.graph.parents[node]:
            merged.update(self.labels[parent].get(neighbor, ()))
        if merged:
            self.labels[node][neighbor] = tuple(sorted(self.graph.lowest(merged)))
        else:
            self.labels[node].pop(neighbor, None)

    # --- nodes ---

    def inserted(self, node: int) -> None:
        self.changed()
        self.labels[node] = {}
        self._relabel(node)

    def linked(self, node: int) -> None:
        self.changed()
        for descendant in self.graph.downward(node):
            self._relabel(descendant)

    def _relabel(self, node: int) -> None:
        """The labels of a node, from those of its parents and from who wants it."""
        self.touched += 1
        wanting = self.subscribers.get(node, {})
        labels: dict[Neighbor, Label] = dict.fromkeys(wanting, (node,))
        above = self.graph.parents[node]
        for neighbor in {neighbor for parent in above for neighbor in self.labels[parent]} - wanting.keys():
            merged = {each for parent in above for each in self.labels[parent].get(neighbor, ())}
            labels[neighbor] = tuple(sorted(self.graph.lowest(merged)))
        self.labels[node] = labels

    def removed(self, node: int) -> None:
        self.changed()
        del self.labels[node]
