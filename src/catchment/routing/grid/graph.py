"""The connectivity graph of one broker, its *vertex*: an abbreviated view of the network (Grid §3.1.2, §3.1.3).

Its nodes are units as the vertex sees them: the brokers of its own cluster, the other clusters of its super-cluster,
and so on. An *edge* stands for all connections between two nodes; their number is its *link count*. When the last
connection goes, the edge goes.

For a node of level ℓ, L_UL are the edges to nodes of level ℓ or less (`uplinks`), and L_D those to nodes of higher
levels (`downlinks`). A path from a unit to the vertex uses edges of L_UL alone: so, seen from the vertex, levels never
fall along a path. What is inside a unit is reached inside that unit, or it is cut off: a *partition*.

Costs. A connection of level ℓ that is seen between units of which the lower has level x costs max(1, x + ℓ), times the
cost that its ends give it. It rises with x and with ℓ, and the ends may raise it when they are loaded.

The best path is not simply the one of least sum. Each broker on the way decides for itself, with another abbreviated
view: nobody sees what it costs to cross a unit from inside. If all compared sums, a broker in b might find c nearer to
the destination, and a broker in c find b nearer. So paths are compared by what they cost at the highest level, then at
the next, and last by links within the cluster. All brokers of a unit agree about what is outside of it, so with each
step the notification is nearer, and never goes in a circle. The distance that is shown is the sum, as in the text.

The routing cache keeps the path of each node that somebody asked for. A change of edges drops only the entries that it
may concern: those whose path has an edge that is gone or costs more now; and, for an edge that is new or costs less,
those of nodes of its level or above, since no path to a lower node can use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from heapq import heappop, heappush
from typing import NamedTuple

from catchment.routing.grid.units import Path, level_of

Edge = tuple[Path, Path]
# The names of the two brokers, sorted: what tells a connection from another.
Ends = tuple[str, str]


class Route(NamedTuple):
    """The best path to a node: what it costs at each level, the highest first, and its nodes without the vertex."""

    costs: tuple[int, ...]
    nodes: tuple[Path, ...]

    @property
    def hop(self) -> Path:
        return self.nodes[0]

    @property
    def distance(self) -> int:
        return sum(self.costs)


def edge_between(node: Path, other: Path) -> Edge:
    return (node, other) if node < other else (other, node)


def base_cost(unit_level: int, link_level: int) -> int:
    """The entry of the link cost matrix for a link of that level, whose lower end is a unit of that level."""
    return max(1, unit_level + link_level)


class ConnectivityGraph:
    """The graph of the broker whose path is `vertex`."""

    def __init__(self, vertex: Path) -> None:
        self.vertex = vertex
        self.levels = len(vertex) - 1
        # By edge: its connections, each with its cost.
        self._edges: dict[Edge, Mapping[Ends, int]] = {}
        self._neighbors: dict[Path, dict[Path, int]] = {}
        # The routing cache. `_is_complete`: whatever is not in it cannot be reached.
        self._routes: dict[Path, Route] = {}
        self._is_complete = True
        # How many routes were computed since the start.
        self.computed = 0

    def level(self, node: Path) -> int:
        return level_of(node, self.levels)

    # --- edges ---

    @property
    def edges(self) -> Mapping[Edge, Mapping[Ends, int]]:
        return self._edges

    def link_count(self, node: Path, other: Path) -> int:
        return len(self._edges.get(edge_between(node, other), ()))

    def cost(self, node: Path, other: Path) -> int | None:
        """The cost of the edge between two nodes: of its best connection. None if there is none."""
        return self._neighbors.get(node, {}).get(other)

    def uplinks(self, node: Path) -> set[Path]:
        """L_UL of a node: the nodes of its own level or less that it has an edge to."""
        return {other for other in self._neighbors.get(node, ()) if self.level(other) <= self.level(node)}

    def downlinks(self, node: Path) -> set[Path]:
        """L_D of a node: the nodes of higher levels that it has an edge to."""
        return {other for other in self._neighbors.get(node, ()) if self.level(other) > self.level(node)}

    def replace(self, edges: Mapping[Edge, Mapping[Ends, int]]) -> None:
        """From now on, these are the edges. Each has a connection."""
        before, after = _costs(self._edges), _costs(edges)
        self._edges = dict(edges)
        if before == after:
            return
        worse = {edge for edge, cost in before.items() if edge not in after or after[edge] > cost}
        better = [edge for edge, cost in after.items() if edge not in before or before[edge] > cost]
        self._neighbors = {}
        for (node, other), cost in after.items():
            self._neighbors.setdefault(node, {})[other] = cost
            self._neighbors.setdefault(other, {})[node] = cost
        self._invalidate(worse, min((self._edge_level(edge) for edge in better), default=self.levels + 1))

    def _edge_level(self, edge: Edge) -> int:
        return max(map(self.level, edge))

    # --- paths ---

    def route(self, node: Path) -> Route | None:
        """The best path to a node; None if it cannot be reached."""
        if node not in self._routes and not self._is_complete:
            self._solve()
        return self._routes.get(node)

    def route_past(self, node: Path, avoided: Set[Path]) -> Route | None:
        """The best path to a node that does not pass some others: those that have a notification already."""
        route = self.route(node)
        if route is None or avoided.isdisjoint(route.nodes):
            return route
        # Rare: only while a unit is split, or views differ.
        return self._paths(avoided).get(node)

    def reached(self) -> Collection[Path]:
        """The nodes that can be reached. Not a copy."""
        if not self._is_complete:
            self._solve()
        return self._routes.keys()

    @property
    def cached(self) -> Collection[Path]:
        """The nodes whose path is in the routing cache."""
        return self._routes.keys()

    def _invalidate(self, worse: Collection[Edge], level_min: int) -> None:
        self._is_complete = False
        for node, route in list(self._routes.items()):
            if self.level(node) >= level_min or any(edge in worse for edge in self._edges_of(route)):
                del self._routes[node]

    def _edges_of(self, route: Route) -> Iterable[Edge]:
        before = self.vertex
        for node in route.nodes:
            yield edge_between(before, node)
            before = node

    def _solve(self) -> None:
        """Finds the paths that are not in the cache."""
        for node, route in self._paths(frozenset()).items():
            if node not in self._routes:
                self._routes[node] = route
                self.computed += 1
        self._is_complete = True

    def _paths(self, avoided: Set[Path]) -> dict[Path, Route]:
        """The best paths to all nodes, past some nodes (Dijkstra)."""
        routes: dict[Path, Route] = {}
        settled = set(avoided)
        waiting = [Route((0,) * (self.levels + 1), ())]
        while waiting:
            route = heappop(waiting)
            here = route.nodes[-1] if route.nodes else self.vertex
            if here in settled:
                continue
            settled.add(here)
            if route.nodes:
                routes[here] = route
            for other, cost in self._neighbors.get(here, {}).items():
                # Only over edges that are in L_UL of the next node: levels never fall.
                if other not in settled and self.level(other) >= self.level(here):
                    place = self.levels - self.level(other)
                    dearer = (*route.costs[:place], route.costs[place] + cost, *route.costs[place + 1 :])
                    heappush(waiting, Route(dearer, (*route.nodes, other)))
        return routes


def _costs(edges: Mapping[Edge, Mapping[Ends, int]]) -> dict[Edge, int]:
    return {edge: min(connections.values()) for edge, connections in edges.items()}
