"""Which tree a notification takes, and which neighbors are upstream and downstream in it.

Each broker has a tree: its shortest routes to all others (`parts/distance_vectors.py`). A tree is named after its root.
Notifications come from neighbors *upstream* and go to neighbors *downstream*; filters go upstream.

`PublisherTrees`   what is published at a broker travels down that broker's own tree: the parent is upstream, and the
                   children are downstream (§3.2.3). A broker keeps filters for every broker that publishes.
`OneTree`          everything travels in one tree (§6.2, 5), up and down: the parent and the children are all both
                   upstream and downstream, and a notification goes to all of them but the one that it came from. A
                   broker keeps filters once.

The one tree is that of the broker that the settings name. If that one cannot be reached, or none is named, it is that
of the broker whose name comes first among those that can be reached; so a part of the network that is cut off has a
tree of its own. While the network changes, brokers may not agree on the tree. A notification travels in the tree that
it began in, which its header names.
"""

from __future__ import annotations

from typing import Final, Protocol

from catchment.routing.messages import Neighbor
from catchment.routing.parts.distance_vectors import DistanceVectors, RouteChange


class Trees(Protocol):
    """The trees of a network, as one broker sees them. Trees have the names of their roots."""

    @property
    def own(self) -> str:
        """The tree that notifications of our own clients travel in."""
        ...

    @property
    def is_two_way(self) -> bool:
        """Whether a broker is upstream of its parent too. What a parent says may cross the news that it is none any
        longer; what a child says comes after the news that it is a child."""
        ...

    def is_used(self, tree: str) -> bool:
        """Whether notifications travel in it, as far as we know."""
        ...

    def upstream(self, tree: str) -> tuple[Neighbor, ...]:
        """The neighbors that notifications come from."""
        ...

    def downstream(self, tree: str) -> tuple[Neighbor, ...]:
        """The neighbors that notifications go to, unless they came from there. Sorted."""
        ...

    def follow(self, change: RouteChange) -> bool:
        """Routes have changed. Whether another tree is used now."""
        ...


class PublisherTrees:
    """A tree for each publisher."""

    is_two_way: Final = False

    def __init__(self, vectors: DistanceVectors) -> None:
        self._vectors = vectors

    @property
    def own(self) -> str:
        return self._vectors.name

    def is_used(self, tree: str) -> bool:
        return True

    def upstream(self, tree: str) -> tuple[Neighbor, ...]:
        parent = self._vectors.parent(tree)
        return () if parent is None else (parent,)

    def downstream(self, tree: str) -> tuple[Neighbor, ...]:
        return self._vectors.children(tree)

    def follow(self, change: RouteChange) -> bool:
        return False


class OneTree:
    """One tree for all publishers, that of `root` if it can be reached."""

    is_two_way: Final = True

    def __init__(self, vectors: DistanceVectors, root: str | None) -> None:
        self._vectors = vectors
        self._preferred = root
        self.own = self._chosen()

    def _chosen(self) -> str:
        if self._preferred is not None and self._vectors.is_reached(self._preferred):
            return self._preferred
        return self._vectors.reached[0]

    def is_used(self, tree: str) -> bool:
        return tree == self.own

    def upstream(self, tree: str) -> tuple[Neighbor, ...]:
        return self.downstream(tree)

    def downstream(self, tree: str) -> tuple[Neighbor, ...]:
        parent, children = self._vectors.parent(tree), self._vectors.children(tree)
        return children if parent is None else tuple(sorted((parent, *children)))

    def follow(self, change: RouteChange) -> bool:
        # Whether a broker can be reached changes only with the route to it.
        before = self.own
        if change.parents:
            self.own = self._chosen()
        return self.own != before
