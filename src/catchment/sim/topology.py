"""Networks of brokers: made by rule, drawn at random from a seed, or read from a file.

Brokers are named by numbers from 0. A link has a cost, which is also its delay in milliseconds unless a scenario
says otherwise. The same seed gives the same network.

transit-stub  after GT-ITM: domains of transit nodes, each transit node with stub domains. The nodes of a domain are
              joined at random. Links within a domain are cheap, links between a stub and its transit node cost more,
              links between transit domains cost most. Edge probabilities and sizes are parameters; those of the texts
              are the defaults.
backbone      24 nodes in the manner of a provider's backbone: a ring of hubs with chords; each other node is linked to
              two hubs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, pairwise
from typing import Final

from catchment.errors import InputError, LimitError, shown

BROKERS_MAX: Final = 100_000
BACKBONE_BROKERS: Final = 24
# Relative costs of the three kinds of link of a transit-stub network.
STUB_COST, ACCESS_COST, TRANSIT_COST = 1, 5, 20


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """Between two brokers: `first` has the lesser name."""

    first: str
    second: str
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Topology:
    """Connected, without loops from a broker to itself, at most one link between two."""

    brokers: tuple[str, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.brokers) <= BROKERS_MAX:
            raise LimitError("BROKERS_MAX", BROKERS_MAX, len(self.brokers))
        known = set(self.brokers)
        pairs = [(link.first, link.second) for link in self.links]
        for first, second in pairs:
            if first == second or first not in known or second not in known:
                raise InputError(
                    f"a link between {shown(first)} and {shown(second)}: it joins two brokers of the network"
                )
        if len({frozenset(pair) for pair in pairs}) < len(pairs):
            raise InputError("there are two links between the same two brokers")
        if len(self.reached(self.brokers[0])) < len(self.brokers):
            raise InputError("not every broker can be reached from every other")

    @property
    def is_acyclic(self) -> bool:
        return len(self.links) == len(self.brokers) - 1

    def neighbors(self) -> dict[str, dict[str, int]]:
        """For each broker its neighbors with the costs of the links, by name."""
        costs: dict[str, dict[str, int]] = {broker: {} for broker in self.brokers}
        for link in sorted(self.links):
            costs[link.first][link.second] = costs[link.second][link.first] = link.cost
        return costs

    def reached(self, start: str) -> set[str]:
        neighbors, near, waiting = self.neighbors(), {start}, [start]
        while waiting:
            fresh = [broker for broker in neighbors[waiting.pop()] if broker not in near]
            near.update(fresh)
            waiting += fresh
        return near

    def masters(self, root: str | None = None) -> dict[str, str | None]:
        """Each broker's neighbor on the shortest way to the root: the hierarchy of least cost."""
        start = self.brokers[0] if root is None else root
        neighbors = self.neighbors()
        masters: dict[str, str | None] = {}
        waiting: list[tuple[int, str, str | None]] = [(0, start, None)]
        while waiting:
            # The nearest to the root comes first, so the first master that a broker gets is its best.
            cost, broker, master = heappop(waiting)
            if broker in masters:
                continue
            masters[broker] = master
            for other, step in neighbors[broker].items():
                heappush(waiting, (cost + step, other, broker))
        return masters

    def spanning_tree(self, root: str | None = None) -> Topology:
        """The network without its redundant links."""
        kept = {frozenset((broker, master)) for broker, master in self.masters(root).items() if master is not None}
        return Topology(self.brokers, tuple(link for link in self.links if {link.first, link.second} in kept))


def _topology(count: int, pairs: Iterable[tuple[int, int] | tuple[int, int, int]]) -> Topology:
    width = len(str(count - 1))
    names = [f"{i:0{width}}" for i in range(count)]
    links = {}
    for a, b, *cost in pairs:
        first, second = sorted((names[a], names[b]))
        links[first, second] = Link(first, second, *cost)
    return Topology(tuple(names), tuple(sorted(links.values())))


# --- by rule ------------------------------------------------------------------------------------


def line(count: int) -> Topology:
    return _topology(count, pairwise(range(count)))


def star(count: int) -> Topology:
    return _topology(count, ((0, i) for i in range(1, count)))


def ring(count: int) -> Topology:
    if count < 3:
        return line(count)
    return _topology(count, ((i, (i + 1) % count) for i in range(count)))


def mesh(count: int) -> Topology:
    """Each broker is linked to each other."""
    return _topology(count, combinations(range(count), 2))


def grid(columns: int, rows: int) -> Topology:
    across = ((r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1))
    down = ((r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns))
    return _topology(columns * rows, (*across, *down))


def balanced_tree(count: int, children: int = 2) -> Topology:
    return _topology(count, (((i - 1) // children, i) for i in range(1, count)))


# --- at random ----------------------------------------------------------------------------------


def random_tree(count: int, seed: int) -> Topology:
    rng = random.Random(seed)
    return _topology(count, ((rng.randrange(i), i, rng.randint(1, 10)) for i in range(1, count)))


def random_network(count: int, seed: int, extra_links: int) -> Topology:
    """A random tree and some more links."""
    rng = random.Random(seed)
    links = [(rng.randrange(i), i, rng.randint(1, 10)) for i in range(1, count)]
    pairs = {frozenset(link[:2]) for link in links}
    free = [pair for pair in combinations(range(count), 2) if frozenset(pair) not in pairs]
    chosen = rng.sample(free, min(extra_links, len(free)))
    return _topology(count, (*links, *((first, second, rng.randint(1, 10)) for first, second in chosen)))


def backbone(seed: int = 1) -> Topology:
    """Eight hubs in a ring with four chords; sixteen others, each at two neighboring hubs."""
    rng = random.Random(seed)
    hubs = 8
    links = [(i, (i + 1) % hubs, rng.randint(4, 10)) for i in range(hubs)]
    links += [(i, i + hubs // 2, rng.randint(6, 14)) for i in range(hubs // 2)]
    for other in range(hubs, BACKBONE_BROKERS):
        first = rng.randrange(hubs)
        links += [(first, other, rng.randint(1, 5)), ((first + 1) % hubs, other, rng.randint(1, 5))]
    return _topology(BACKBONE_BROKERS, links)


@dataclass(frozen=True, slots=True)
class TransitStub:
    """GT-ITM's parameters; these give 100 sites, as in the SIENA and filter-propagation texts."""

    transit_domains: int = 1
    transit_nodes: int = 4
    stubs_for_each: int = 3
    stub_nodes: int = 8
    extra_transit_stub: int = 1
    extra_stub_stub: int = 1
    transit_edge_share: float = 0.6
    stub_edge_share: float = 0.42

    @property
    def count(self) -> int:
        return self.transit_domains * self.transit_nodes * (1 + self.stubs_for_each * self.stub_nodes)


def transit_stub(parameters: TransitStub, seed: int) -> Topology:
    rng = random.Random(seed)
    costs: dict[frozenset[int], int] = {}
    domains, stubs = _placed(parameters)

    def join(first: int, second: int, cost: int) -> None:
        costs.setdefault(frozenset((first, second)), cost)

    for nodes in domains:
        for first, second in _domain(rng, nodes, parameters.transit_edge_share):
            join(first, second, TRANSIT_COST // 2)
    for domain, following in pairwise([*domains, domains[0]] if len(domains) > 2 else domains):
        join(rng.choice(domain), rng.choice(following), TRANSIT_COST)
    for transit, nodes in stubs:
        for first, second in _domain(rng, nodes, parameters.stub_edge_share):
            join(first, second, STUB_COST)
        join(transit, rng.choice(nodes), ACCESS_COST)
    transits = [node for nodes in domains for node in nodes]
    for _ in range(parameters.extra_transit_stub):
        join(rng.choice(transits), rng.choice(rng.choice(stubs)[1]), ACCESS_COST)
    for _ in range(parameters.extra_stub_stub if len(stubs) > 1 else 0):
        (_, nodes), (_, others) = rng.sample(stubs, 2)
        join(rng.choice(nodes), rng.choice(others), ACCESS_COST)
    pairs = ((*sorted(pair), cost) for pair, cost in costs.items())
    return _topology(parameters.count, pairs)  # type: ignore[arg-type]  # a pair has two


def transit_stub_of(count: int, seed: int) -> Topology:
    """A transit-stub network of 100 to 10,000 sites in the proportions of the texts."""
    per_domain = TransitStub().count
    domains = max(1, round(count / per_domain))
    return transit_stub(TransitStub(transit_domains=domains), seed)


def _placed(parameters: TransitStub) -> tuple[list[list[int]], list[tuple[int, list[int]]]]:
    """The transit domains, and each stub with the transit node it hangs on."""
    domains: list[list[int]] = []
    stubs: list[tuple[int, list[int]]] = []
    following = 0
    for _ in range(parameters.transit_domains):
        nodes = list(range(following, following + parameters.transit_nodes))
        following += parameters.transit_nodes
        domains.append(nodes)
        for transit in nodes:
            for _ in range(parameters.stubs_for_each):
                stubs.append((transit, list(range(following, following + parameters.stub_nodes))))
                following += parameters.stub_nodes
    return domains, stubs


def _domain(rng: random.Random, nodes: Sequence[int], edge_share: float) -> Iterator[tuple[int, int]]:
    """Links within a domain: a random tree, so that it is connected, and each other link with this probability."""
    shuffled = rng.sample(list(nodes), len(nodes))
    tree = {frozenset((shuffled[i], shuffled[rng.randrange(i)])) for i in range(1, len(nodes))}
    for first, second in combinations(nodes, 2):
        if frozenset((first, second)) in tree or rng.random() < edge_share:
            yield first, second
