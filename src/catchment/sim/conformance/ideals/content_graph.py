"""Content graphs: the nodes of each broker's tables, their edges, subscribers and labels, from what all clients want.

By enumeration: every pair of filters is compared with `covers`, reachability is followed edge by edge, and a label is
found by its definition. Which broker is above which is taken from the cores, and only checked: that each has a
shortest way to the rendezvous point, and that the ways of two brokers agree. Node ids are taken from the rendezvous
point, and checked: one for each distinct meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from catchment.model.filter import Filter
from catchment.routing.content_graph.core import ContentGraphCore
from catchment.routing.core import Table
from catchment.routing.messages import Neighbor
from catchment.sim.conformance.checkers import reachable
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, covers, filters_wanted
from catchment.sim.simulation import Simulation

# The broker's own clients, as a subscriber.
HERE = Neighbor("")
ID_BYTES = 8


@Ideal
def content_graph_tables(simulation: Simulation) -> Iterator[str | Checked]:
    cores = dict(alive(simulation, ContentGraphCore))
    held: dict[str, dict[str, list[Any]]] = {broker: {} for broker in cores}
    tables: dict[str, dict[str, int]] = {broker: {} for broker in cores}
    for core in cores.values():
        for name in core.places:
            space = _Space(simulation, cores, name)
            yield from space.findings(held, tables)
        break
    for broker in cores:
        other = [Table(name, count, ID_BYTES * count) for name, count in tables[broker].items() if count]
        yield Checked(broker, held[broker], other=tuple(other))


class _Space:
    """One namespace."""

    def __init__(self, simulation: Simulation, cores: Mapping[str, ContentGraphCore], name: str) -> None:
        self.simulation = simulation
        self.cores = cores
        self.name = name
        some = next(iter(cores.values())).places[name].namespace
        self.top, self.scope = some.rendezvous, some.scope
        self.others = [
            place.namespace.scope
            for place in next(iter(cores.values())).places.values()
            if place.namespace.scope is not None and place.namespace.name != name
        ]
        self.near = reachable(simulation, self.top) if self.top in cores else set()

    def wanted(self, *brokers: str) -> list[Filter]:
        """The distinct filters that clients at some brokers want in this namespace."""
        return [filter for filter in dict.fromkeys(filters_wanted(self.simulation, brokers)) if self._is_in(filter)]

    def _is_in(self, filter: Filter) -> bool:
        if self.scope is not None:
            return self.scope.overlaps(filter)
        return not any(covers(scope, filter) for scope in self.others)

    def findings(self, held: dict[str, dict[str, list[Any]]], tables: dict[str, dict[str, int]]) -> Iterator[str]:
        yield from self._paths()
        below = self._below()
        nodes: dict[Filter, int] = {}
        if self.near:
            nodes, wrong = self._nodes()
            yield from wrong
            yield from self._wants(held[self.top])
        for broker, core in self.cores.items():
            is_near = broker in self.near
            wants: dict[Neighbor, set[int]] = {}
            if is_near:
                wants = {Neighbor(child): self._ids(nodes, some) for child, some in below[broker].items()}
                wants[HERE] = self._ids(nodes, {broker})
            if broker != self.top:
                for neighbor, ids in wants.items():
                    if neighbor != HERE:
                        tables[broker][neighbor.name] = tables[broker].get(neighbor.name, 0) + len(ids)
            yield from self._differences(broker, core, wants, nodes)

    def _paths(self) -> Iterator[str]:
        """Each broker has a shortest way to the rendezvous point, which agrees with that of the next one."""
        distances = self._distances()
        for broker, core in self.cores.items():
            path = core.places[self.name].path
            if broker not in self.near:
                if path:
                    yield f"{broker} has a way to {self.top}, there is none: {path}"
                continue
            if not path or path[0] != broker or path[-1] != self.top:
                yield f"{broker} has no way to {self.top}: {path}"
                continue
            costs = [self.simulation.link(a, b) for a, b in pairwise(path)]
            if sum(link.cost for link in costs) != distances[broker] or not all(link.is_usable for link in costs):
                yield f"{broker} has the way {path} to {self.top}, it is not the shortest"
            if len(path) > 1 and self.cores[path[1]].places[self.name].path != path[1:]:
                yield f"{broker} has the way {path} to {self.top}, {path[1]} has another"

    def _distances(self) -> dict[str, int]:
        distances = {broker: 0 if broker == self.top else 10**9 for broker in self.near}
        for _ in self.near:
            for broker in self.near:
                for link in self.simulation.links_of(broker):
                    if link.is_usable:
                        distances[broker] = min(distances[broker], distances[link.end(broker)] + link.cost)
        return distances

    def _below(self) -> dict[str, dict[str, set[str]]]:
        """By broker, by the broker below it: all brokers whose way leads through that one."""
        below: dict[str, dict[str, set[str]]] = {broker: {} for broker in self.cores}
        for broker in self.near:
            path = self.cores[broker].places[self.name].path
            for lower, upper in pairwise(path):
                below[upper].setdefault(lower, set()).add(broker)
        return below

    def _nodes(self) -> tuple[dict[Filter, int], list[str]]:
        """The node of each filter that somebody wants, as the rendezvous point has it; and what is wrong with that."""
        rendezvous = self.cores[self.top].places[self.name].rendezvous
        assert rendezvous is not None
        known = {node: rendezvous.preprocessor.subscription(node) for node in rendezvous.graph}
        wanted, wrong = self.wanted(*self.near), []
        nodes: dict[Filter, int] = {}
        for filter in wanted:
            same = [node for node, other in known.items() if covers(filter, other) and covers(other, filter)]
            if len(same) != 1:
                wrong.append(f"{self.top} has the nodes {same} for {filter}, it should have one")
            nodes[filter] = same[0] if same else -1
        for node in known.keys() - nodes.values():
            wrong.append(f"{self.top} has the node {node} for {known[node]}, which nobody wants")
        return nodes, wrong

    def _wants(self, held: dict[str, list[Any]]) -> Iterator[str]:
        """The rendezvous point knows what each broker wants. Of filters that are equal it may have any."""
        rendezvous = self.cores[self.top].places[self.name].rendezvous
        assert rendezvous is not None
        for broker in self.simulation.topology.brokers:
            known = list(rendezvous.of(broker))
            ideal = self.wanted(broker) if broker in self.near else []
            if set(known) != set(ideal):
                yield f"{self.top} knows that {broker} wants {known}, it wants {ideal}"
            if broker != self.top:
                held.setdefault(broker, []).extend(known)

    def _ids(self, nodes: Mapping[Filter, int], brokers: set[str]) -> set[int]:
        return {nodes[filter] for filter in self.wanted(*brokers)}

    # --- one broker ---

    def _differences(
        self, broker: str, core: ContentGraphCore, wants: Mapping[Neighbor, set[int]], nodes: Mapping[Filter, int]
    ) -> Iterator[str]:
        table, router = core.places[self.name].router.table, core.places[self.name].router
        where = f"{broker}, {self.name}"
        ideal: dict[int, set[Neighbor]] = {}
        for neighbor, ids in wants.items():
            for node in ids:
                ideal.setdefault(node, set()).add(neighbor)
        actual = {node: set(some) for node, some in table.subscribers.items()}
        if actual != ideal:
            yield f"{where}: subscribers are {actual}, should be {ideal}"
            return
        if table.pending or any(table.marks.values()) or any(router.unacked.values()) or router.interrupted:
            yield f"{where}: something is pending: {table.pending}, {table.marks}, {router.unacked}"
        forwarder = core.settings.forwarding
        filters = {node: filter for filter, node in nodes.items()}
        if table.owns_graph and set(table.graph) != set(ideal):
            yield f"{where}: nodes are {set(table.graph)}, should be {set(ideal)}"
        elif forwarder != "lists" or broker == self.top:
            yield from self._edges(where, table, filters)
        if forwarder == "labels" and broker in self.near:
            yield from self._labels(where, table, wants, filters)
        copy = router.copy
        if copy is not None and broker in self.near and broker != self.top:
            top = self.cores[self.top].places[self.name].rendezvous
            assert top is not None
            if copy.version != top.version or set(copy.graph) != set(filters):
                yield f"{where}: the copy of the graph is not that of {self.top}"

    def _edges(self, where: str, table: Any, filters: Mapping[int, Filter]) -> Iterator[str]:
        """Reachability is covering."""
        if not set(table.graph) <= filters.keys():
            return
        reached = {(node, child) for node in table.graph for child in table.graph.children[node]}
        while more := {(a, d) for a, b in reached for c, d in reached if b == c} - reached:
            reached |= more
        ideal = {(a, b) for a in table.graph for b in table.graph if a != b and covers(filters[a], filters[b])}
        if reached != ideal:
            yield f"{where}: paths too many {reached - ideal}, too few {ideal - reached}"

    def _labels(
        self, where: str, table: Any, wants: Mapping[Neighbor, set[int]], filters: Mapping[int, Filter]
    ) -> Iterator[str]:
        """By their definition."""
        for node in table.graph:
            ideal: dict[Neighbor, tuple[int, ...]] = {}
            for neighbor, ids in wants.items():
                above = {each for each in ids if covers(filters[each], filters[node])}
                lowest = {a for a in above if not any(a != b and covers(filters[a], filters[b]) for b in above)}
                label = {node} if node in ids else lowest
                if label:
                    ideal[neighbor] = tuple(sorted(label))
            if table.forwarder.labels[node] != ideal:
                yield f"{where}: the labels of {node} are {table.forwarder.labels[node]}, should be {ideal}"
