"""Shortest paths that all brokers agree on: link states to trees.

Two brokers that know the same links must choose the same path between any two, and the same in both directions;
else what one sends along a tree another drops. So paths are compared by cost and, where costs are equal, by the sum of
a number that the names of each link give: equal sums do not happen, and the sum does not depend on the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from heapq import heappop, heappush

Costs = Mapping[str, Mapping[str, int]]


def tie_of(one: str, other: str) -> int:
    """The number of a link."""
    names = "\x00".join(sorted((one, other))).encode()
    return int.from_bytes(blake2b(names, digest_size=8).digest(), "big")


def agreed(links: Costs) -> dict[str, dict[str, int]]:
    """The links that both ends have, each with the greater of the two costs they state."""
    found: dict[str, dict[str, int]] = {one: {} for one in links}
    for one, some in links.items():
        for other, cost in some.items():
            back = links.get(other, {}).get(one)
            if back is not None:
                found[one][other] = max(cost, back)
    return found


def tree(links: Costs, root: str) -> dict[str, str | None]:
    """For each broker that can be reached, the one before it on the shortest path from the root."""
    found: dict[str, str | None] = {}
    waiting: list[tuple[int, int, str, str | None]] = [(0, 0, root, None)]
    while waiting:
        cost, tie, here, before = heappop(waiting)
        if here in found:
            continue
        found[here] = before
        for other, step in links.get(here, {}).items():
            if other not in found:
                heappush(waiting, (cost + step, tie + tie_of(here, other), other, here))
    return found


def next_hops(parents: Mapping[str, str | None], here: str) -> dict[str, str]:
    """For each broker below `here` in a tree, the neighbor of `here` that leads to it."""
    children: dict[str, list[str]] = {}
    for one, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(one)
    found = {}
    for child in children.get(here, ()):
        waiting = [child]
        while waiting:
            one = waiting.pop()
            found[one] = child
            waiting += children.get(one, ())
    return found
