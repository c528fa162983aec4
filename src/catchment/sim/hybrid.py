"""Networks of units of different architecture, joined by gateways (SIENA §4.4).

A unit is some brokers with the links among them and a kind: hierarchical, acyclic, advertising, general. A broker in
several units is a gateway (`routing/siena/gateway.py`). Units must form a tree: between any two there is one way, so
that what crosses comes once. A cycle can only be inside a general unit.

Networks are built unit by unit. The first broker of each further unit *is* a broker of an earlier one, its gateway;
the others are named by the unit and a number, as `east.3`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catchment.errors import InputError, shown
from catchment.routing.siena.gateway import INNER, KINDS, Membership
from catchment.routing.siena.settings import Kind
from catchment.sim.topology import Link, Topology, line, random_network, random_tree, ring

_NAMES: Final = "abcdefghijklmnopqrstuvwxyz"
_SUBSCRIBING: Final[tuple[Kind, ...]] = ("hierarchical", "acyclic", "general")


@dataclass(frozen=True, slots=True)
class Unit:
    """`root` is the one broker of a hierarchy that has no master."""

    name: str
    kind: Kind
    brokers: tuple[str, ...]
    root: str | None = None


@dataclass(frozen=True, slots=True)
class HybridTopology(Topology):
    units: tuple[Unit, ...] = ()

    def __post_init__(self) -> None:
        Topology.__post_init__(self)
        if len({unit.name for unit in self.units}) < len(self.units):
            raise InputError("two units have the same name")
        for unit in self.units:
            self._check_unit(unit)
        for link in self.links:
            if not any(link.first in unit.brokers and link.second in unit.brokers for unit in self.units):
                raise InputError(f"the link between {shown(link.first)} and {shown(link.second)} is in no unit")
        if {broker for unit in self.units for broker in unit.brokers} != set(self.brokers):
            raise InputError("every broker is in a unit, and units have no others")
        # Brokers and units are the nodes of a graph, and each membership is an edge. It is connected since the network
        # is; so it is a tree if it has one edge less than nodes.
        if sum(len(unit.brokers) for unit in self.units) != len(self.brokers) + len(self.units) - 1:
            raise InputError("units are joined in a cycle: between two units there is one way; join them as one unit")
        if len({unit.kind == "advertising" for unit in self.units}) > 1:
            raise InputError("units are all advertisement-based (advertising), or none is")

    def _check_unit(self, unit: Unit) -> None:
        if unit.kind not in KINDS:
            raise InputError(f"unit {shown(unit.name)} is {shown(unit.kind)}: use one of {', '.join(KINDS)}")
        try:
            network = self.within(unit)
        except InputError as problem:
            raise InputError(f"unit {shown(unit.name)}: {problem}") from None
        if unit.kind != "general" and not network.is_acyclic:
            raise InputError(f"unit {shown(unit.name)} is {unit.kind}, and has a cycle")
        if (unit.root in unit.brokers) != (unit.kind == "hierarchical"):
            raise InputError(f"unit {shown(unit.name)}: a hierarchy has a root among its brokers, others have none")
        for broker in unit.brokers:
            if broker.startswith(INNER):
                raise InputError(f"broker {shown(broker)}: its name does not begin with {INNER}")

    def within(self, unit: Unit) -> Topology:
        """The network of one unit."""
        links = [link for link in self.links if link.first in unit.brokers and link.second in unit.brokers]
        return Topology(unit.brokers, tuple(links))

    def memberships(self) -> dict[str, list[Membership]]:
        memberships: dict[str, list[Membership]] = {broker: [] for broker in self.brokers}
        for unit in self.units:
            network = self.within(unit)
            masters = network.masters(unit.root) if unit.kind == "hierarchical" else {}
            for broker, neighbors in network.neighbors().items():
                member = Membership(unit.name, unit.kind, frozenset(neighbors), masters.get(broker))
                memberships[broker].append(member)
        return memberships


def as_hybrid(topology: Topology) -> HybridTopology:
    """A network without units is one general unit."""
    if isinstance(topology, HybridTopology):
        return topology
    return HybridTopology(topology.brokers, topology.links, (Unit("all", "general", topology.brokers),))


# --- building -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """A unit to be built: a network whose first broker is `gateway`, a broker of an earlier unit. A hierarchy has its
    root there unless `root` names another broker."""

    name: str
    kind: Kind
    network: Topology
    gateway: str | None = None
    root: str | None = None


def hybrid(plans: Sequence[Plan]) -> HybridTopology:
    """Without the redundant links of units that are not general."""
    brokers: dict[str, None] = {}
    links: list[Link] = []
    units: list[Unit] = []
    for plan in plans:
        if (plan.gateway is None) != (not units) or (plan.gateway is not None and plan.gateway not in brokers):
            raise InputError(f"unit {shown(plan.name)}: each but the first has a gateway, a broker of an earlier one")
        network = plan.network if plan.kind == "general" else plan.network.spanning_tree()
        names = {broker: f"{plan.name}.{broker}" for broker in network.brokers}
        if plan.gateway is not None:
            names[network.brokers[0]] = plan.gateway
        for link in network.links:
            first, second = sorted((names[link.first], names[link.second]))
            links.append(Link(first, second, link.cost))
        root = plan.root or names[network.brokers[0]]
        if plan.root is not None and plan.kind != "hierarchical":
            raise InputError(f"unit {shown(plan.name)} is {plan.kind}: only a hierarchy has a root")
        brokers.update(dict.fromkeys(names.values()))
        units.append(Unit(plan.name, plan.kind, tuple(names.values()), root if plan.kind == "hierarchical" else None))
    return HybridTopology(tuple(brokers), tuple(sorted(links)), tuple(units))


def hierarchies_in_general(count: int, size: int, seed: int) -> HybridTopology:
    """As Figure 8: a general network of so many gateways, each the root of a hierarchy of so many brokers."""
    center = random_network(count, seed, count // 2)
    plans = [
        Plan(name, "hierarchical", random_tree(size, seed + i), f"net.{center.brokers[i]}")
        for i, name in enumerate(_unit_names(count))
    ]
    return hybrid([Plan("net", "general", center), *plans])


def clusters_in_acyclic(count: int, size: int, seed: int) -> HybridTopology:
    """As Figure 9: an acyclic network of so many gateways, each in a general cluster of so many brokers."""
    center = random_tree(count, seed)
    plans = [
        Plan(name, "general", random_network(size, seed + i, size // 2), f"net.{center.brokers[i]}")
        for i, name in enumerate(_unit_names(count))
    ]
    return hybrid([Plan("net", "acyclic", center), *plans])


def three_deep(seed: int) -> HybridTopology:
    """A hierarchy with a general cluster at a broker that is not its root, with an acyclic network and a hierarchy at
    brokers of that cluster."""
    cluster = ring(3 + seed % 2)
    return hybrid(
        [
            Plan("top", "hierarchical", random_tree(3, seed)),
            Plan("mid", "general", cluster, f"top.{1 + seed % 2}"),
            Plan("low", "acyclic", line(2 + seed % 2), "mid.1"),
            Plan("hie", "hierarchical", random_tree(2 + seed % 3, seed), "mid.2"),
        ]
    )


def random_hybrid(seed: int, kinds: Sequence[Kind] = _SUBSCRIBING) -> HybridTopology:
    """Two to five units, each at a random broker of those before, with roots anywhere."""
    rng = random.Random(seed)
    plans: list[Plan] = []
    brokers: list[str] = []
    for name in _unit_names(rng.randint(2, 5)):
        kind = rng.choice(kinds)
        network = random_network(rng.randint(2, 4), rng.randrange(1_000_000), rng.randrange(3))
        gateway = rng.choice(brokers) if brokers else None
        own = [f"{name}.{broker}" for broker in network.brokers[0 if gateway is None else 1 :]]
        root = rng.choice([*own, gateway or own[0]]) if kind == "hierarchical" else None
        plans.append(Plan(name, kind, network, gateway, root))
        brokers += own
    return hybrid(plans)


def _unit_names(count: int) -> list[str]:
    return [_NAMES[i % len(_NAMES)] + (str(i // len(_NAMES)) if i >= len(_NAMES) else "") for i in range(count)]
