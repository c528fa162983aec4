"""Per-publisher trees by brute force, and what brokers should hold in them: filter propagation, DVMRP.

A tree: the distance of each broker from the publisher, by going round level by level over usable links; the parent of a
broker is, of its neighbors that are nearest to the publisher, the one whose name comes first. If there is one tree for
all publishers, it is that of a broker that the settings name, or of the one whose name comes first of those that can
be reached.

`sound` must hold whenever the network has settled. Filters narrow only when something unwanted comes, so tables are
*equal* to the ideal only after each broker has published something that nobody wants (`unwanted_from_each_broker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from catchment.model.filter import Filter
from catchment.model.values import Value
from catchment.routing.baselines.dvmrp import DvmrpCore
from catchment.routing.messages import Neighbor, Time
from catchment.routing.propagation.core import PropagationCore
from catchment.sim.conformance.checkers import Network, reachable
from catchment.sim.conformance.ideals.extents import EVERY_NOTIFICATION, extent, extent_of_all, shown_extent
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, filters_wanted
from catchment.sim.conformance.playable import Playable
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology

# No filter of the suite names this attribute, and none matches without one.
UNWANTED: Final[Mapping[str, Value]] = {"unwanted": True}


def tree_of(network: Network, publisher: str, infinity: int) -> dict[str, str | None]:
    """The parent of each broker that the publisher reaches by fewer links than `infinity`. It has none itself."""
    distances, level = {publisher: 0}, [publisher]
    while level:
        further = [(here, other) for here in level for other in _neighbors(network, here) if other not in distances]
        distances |= {other: distances[here] + 1 for here, other in further}
        level = sorted({other for _, other in further})
    tree: dict[str, str | None] = {publisher: None}
    for broker, distance in distances.items():
        if 0 < distance < infinity:
            tree[broker] = min(other for other in _neighbors(network, broker) if distances[other] == distance - 1)
    return tree


def _neighbors(network: Network, broker: str) -> list[str]:
    return [link.end(broker) for link in network.links_of(broker) if link.is_usable]


def below(tree: dict[str, str | None], broker: str) -> set[str]:
    """A broker and all those below it."""
    found: set[str] = set()
    for each in tree:
        way: list[str] = []
        here: str | None = each
        while here is not None and here != broker:
            way.append(here)
            here = tree[here]
        if here == broker:
            found.add(each)
    return found


def behind(tree: dict[str, str | None], broker: str, neighbor: str) -> set[str]:
    """The brokers that a broker reaches through a neighbor in the tree."""
    return below(tree, neighbor) if tree[neighbor] == broker else set(tree) - below(tree, broker)


def wrong_trees(core: PropagationCore | DvmrpCore, trees: dict[str, dict[str, str | None]]) -> Iterator[str]:
    """What is wrong with the parents and children that a broker knows."""
    broker = core.name
    reached = {publisher for publisher, tree in trees.items() if broker in tree}
    if set(core.vectors.reached) != reached:
        yield f"{broker} has routes to {core.vectors.reached}, it should have {sorted(reached)}"
    for publisher in sorted(reached):
        tree = trees[publisher]
        parent, children = core.vectors.parent(publisher), core.vectors.children(publisher)
        ideal = sorted(each for each, above in tree.items() if above == broker)
        if (parent and parent.name) != tree[broker] or [child.name for child in children] != ideal:
            are = f"parent {parent} and children {[child.name for child in children]}"
            yield f"{broker} has {are} in the tree of {publisher}, it should have {tree[broker]} and {ideal}"


def _trees(simulation: Simulation, infinity: int) -> dict[str, dict[str, str | None]]:
    return {
        broker: tree_of(simulation, broker, infinity) for broker, core in simulation.cores.items() if core is not None
    }


# What a broker holds of a neighbor in a tree and what is wanted beyond it; or what is wrong with trees.
Pairs = Iterator[str | tuple[PropagationCore, str, str, int, int]]


def _pairs(simulation: Simulation) -> Pairs:
    """For each broker, publisher and child."""
    trees: dict[int, dict[str, dict[str, str | None]]] = {}
    for _, core in alive(simulation, PropagationCore):
        infinity = core.vectors.infinity
        if infinity not in trees:
            trees[infinity] = _trees(simulation, infinity)
        yield from wrong_trees(core, trees[infinity])
        for publisher, tree in trees[infinity].items():
            children = [each for each, parent in tree.items() if parent == core.name]
            yield from _held_and_wanted(simulation, core, publisher, tree, children)


def _pairs_in_one_tree(simulation: Simulation, preferred: str | None) -> Pairs:
    """For each broker and each neighbor in the one tree. Nothing is kept for another tree."""
    for broker, core in alive(simulation, PropagationCore):
        near = reachable(simulation, broker)
        root = preferred if preferred in near else min(near)
        if core.trees.own != root or not set(core.publishers) <= {root}:
            yield f"{broker} uses the tree of {core.trees.own} and keeps {core.publishers}, it should be {root}"
        trees = _trees(simulation, core.vectors.infinity)
        yield from wrong_trees(core, trees)
        tree = trees[root]
        neighbors = [each for each, parent in tree.items() if parent == broker or tree[broker] == each]
        yield from _held_and_wanted(simulation, core, root, tree, neighbors)


def _held_and_wanted(
    simulation: Simulation, core: PropagationCore, root: str, tree: dict[str, str | None], neighbors: Iterable[str]
) -> Pairs:
    held = core.filters_by_child(root)
    if sorted(child.name for child in held) != sorted(neighbors):
        yield f"{core.name} has filters of {sorted(map(str, held))} for {root}, it should be {sorted(neighbors)}"
    for neighbor in sorted(neighbors):
        wanted = extent_of_all(filters_wanted(simulation, behind(tree, core.name, neighbor)))
        filter = held.get(Neighbor(neighbor))
        yield core, root, neighbor, 0 if filter is None else extent(filter), wanted


def _checked(simulation: Simulation) -> Iterator[Checked]:
    for broker, core in alive(simulation, PropagationCore):
        rows: dict[str, list[Filter]] = {}
        for publisher in core.publishers:
            for child, filter in core.filters_by_child(publisher).items():
                if filter.expression is not True:
                    rows.setdefault(child.name, []).append(filter)
        yield Checked(broker, rows)


def _unsound(simulation: Simulation, pairs: Pairs) -> Iterator[str | Checked]:
    for pair in pairs:
        if isinstance(pair, str):
            yield pair
            continue
        core, publisher, child, held, wanted = pair
        if wanted & ~held:
            where = f"{core.name} of {child} for {publisher}"
            yield f"{where}: {shown_extent(wanted & ~held)} is wanted and not let through"
    yield from _checked(simulation)


def _unequal(simulation: Simulation, pairs: Pairs, may_expire: bool = False) -> Iterator[str | Checked]:
    for pair in pairs:
        if isinstance(pair, str):
            yield pair
            continue
        core, publisher, child, held, wanted = pair
        if held != wanted and not (may_expire and held == EVERY_NOTIFICATION):
            where = f"{core.name} of {child} for {publisher}"
            more, less = held & ~wanted & EVERY_NOTIFICATION, wanted & ~held
            yield f"{where}: lets through {shown_extent(more)} too much, {shown_extent(less)} too little"
    yield from _checked(simulation)


@Ideal
def sound_filters(simulation: Simulation) -> Iterator[str | Checked]:
    """Whatever is wanted beyond a child, its filter lets through."""
    return _unsound(simulation, _pairs(simulation))


@Ideal
def equal_filters(simulation: Simulation) -> Iterator[str | Checked]:
    """The filter of a child lets through what is wanted beyond it, and nothing else."""
    return _unequal(simulation, _pairs(simulation))


@Ideal
def equal_or_expired_filters(simulation: Simulation) -> Iterator[str | Checked]:
    """The same, but a filter may have expired: some networks take longer to settle than filters last."""
    return _unequal(simulation, _pairs(simulation), may_expire=True)


@Ideal
def sound_filters_in_one_tree(simulation: Simulation) -> Iterator[str | Checked]:
    """Whatever is wanted beyond a neighbor in the tree of the first broker, its filter lets through."""
    return _unsound(simulation, _pairs_in_one_tree(simulation, None))


@Ideal
def equal_filters_in_one_tree(simulation: Simulation) -> Iterator[str | Checked]:
    """The filter of a neighbor lets through what is wanted beyond it, and nothing else."""
    return _unequal(simulation, _pairs_in_one_tree(simulation, None))


def last_broker(topology: Topology) -> str:
    """The root of the tree in runs where the settings name one."""
    return topology.brokers[-1]


@Ideal
def sound_filters_in_the_last_tree(simulation: Simulation) -> Iterator[str | Checked]:
    """The same in the tree of the last broker, if it can be reached."""
    return _unsound(simulation, _pairs_in_one_tree(simulation, last_broker(simulation.topology)))


@Ideal
def equal_or_expired_filters_in_the_last_tree(simulation: Simulation) -> Iterator[str | Checked]:
    return _unequal(simulation, _pairs_in_one_tree(simulation, last_broker(simulation.topology)), may_expire=True)


# --- DVMRP --------------------------------------------------------------------------------------


def _prunes(simulation: Simulation) -> Iterator[str | tuple[str, set[str], set[str]]]:
    """What is wrong with trees; and for each broker and publisher which children are pruned, and which should be."""
    trees: dict[int, dict[str, dict[str, str | None]]] = {}
    members = {client.home for client in simulation.clients.values() if client.is_connected and client.wants}
    for broker, core in alive(simulation, DvmrpCore):
        infinity = core.vectors.infinity
        if infinity not in trees:
            trees[infinity] = _trees(simulation, infinity)
        yield from wrong_trees(core, trees[infinity])
        for publisher, tree in trees[infinity].items():
            children = {each for each, parent in tree.items() if parent == broker}
            ideal = {child for child in children if not members & below(tree, child)}
            yield f"{broker} for {publisher}", {child.name for child in core.pruned_children(publisher)}, ideal


@Ideal
def sound_prunes(simulation: Simulation) -> Iterator[str | Checked]:
    """No child is pruned that has a subscriber behind it."""
    for finding in _prunes(simulation):
        if isinstance(finding, str):
            yield finding
        elif finding[1] - finding[2]:
            yield f"{finding[0]}: {sorted(finding[1] - finding[2])} should not be pruned"
    for broker, _ in alive(simulation, DvmrpCore):
        yield Checked(broker, {})


@Ideal
def equal_prunes(simulation: Simulation) -> Iterator[str | Checked]:
    """The children that are pruned are those that have no subscriber behind them."""
    for finding in _prunes(simulation):
        if isinstance(finding, str):
            yield finding
        elif finding[1] != finding[2]:
            yield f"{finding[0]}: {sorted(finding[1])} are pruned, it should be {sorted(finding[2])}"
    for broker, _ in alive(simulation, DvmrpCore):
        yield Checked(broker, {})


# --- traffic ------------------------------------------------------------------------------------


def unwanted_from_each_broker(network: Playable) -> None:
    """A client at each broker publishes what nobody wants."""
    for broker in network.topology.brokers:
        identity = f"nobody at {broker}"
        if identity not in network.clients:
            network.connect(identity, broker)
        network.publish(identity, UNWANTED)
    network.settle()


def expired_and_unwanted(filter_timeout: Time) -> Callable[[Playable], None]:
    """The same after so long that all filters have expired. Only then all brokers get what nobody wants: one whose
    filters have expired gets none of it while the filter that it sent stands upstream."""

    def converge(network: Playable) -> None:
        network.advance(2 * filter_timeout)
        unwanted_from_each_broker(network)

    return converge
