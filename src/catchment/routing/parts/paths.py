"""Shortest paths that all brokers agree on: from link states to trees.

Brokers that know the same links must choose the same path between any two brokers, and the same path in both
directions. Otherwise one broker sends a notification along a tree and the next broker, which has another tree, drops
it. So paths are compared by cost and, where costs are equal, by the sum of their *ties*. The tie of a link is a number
computed from the names of its two ends: it does not depend on the direction, and two different paths practically never
have the same sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from heapq import heappop, heappush

Costs = Mapping[str, Mapping[str, int]]


def tie_of(end: str, other_end: str) -> int:
    """The tie of the link between two brokers."""
    # Sorted: the tie is the same in both directions.
    names = "\x00".join(sorted((end, other_end))).encode()
    return int.from_bytes(blake2b(names, digest_size=8).digest(), "big")


def agreed(links: Costs) -> dict[str, dict[str, int]]:
    """The links that both ends state, each with the greater of the two stated costs."""
    common: dict[str, dict[str, int]] = {broker: {} for broker in links}
    for broker, costs in links.items():
        for neighbor, cost in costs.items():
            # A link that only one end states is coming up or has just failed: it is not used.
            cost_back = links.get(neighbor, {}).get(broker)
            if cost_back is not None:
                common[broker][neighbor] = max(cost, cost_back)
    return common


def tree(links: Costs, root: str) -> dict[str, str | None]:
    """For each broker that can be reached from the root, the broker before it on the shortest path (Dijkstra)."""
    parents: dict[str, str | None] = {}
    waiting: list[tuple[int, int, str, str | None]] = [(0, 0, root, None)]
    while waiting:
        cost, tie, here, before = heappop(waiting)
        # The heap gives the shortest path to a broker first. Longer ones to the same broker come later.
        if here in parents:
            continue
        parents[here] = before
        for neighbor, step in links.get(here, {}).items():
            if neighbor not in parents:
                heappush(waiting, (cost + step, tie + tie_of(here, neighbor), neighbor, here))
    return parents


def next_hops(parents: Mapping[str, str | None], here: str) -> dict[str, str]:
    """For each broker below `here` in a tree, the neighbor of `here` that leads to it."""
    children: dict[str, list[str]] = {}
    for broker, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(broker)
    hops = {}
    for child in children.get(here, ()):
        waiting = [child]
        while waiting:
            broker = waiting.pop()
            hops[broker] = child
            waiting += children.get(broker, ())
    return hops
