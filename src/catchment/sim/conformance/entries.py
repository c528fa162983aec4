"""One suite for every routing core: random clients, churn, faults, and the checkers, all from a seed.

A run is a core, a network and a seed, which gives a script (`scripts.py`). A core joins the suite by one entry in
CORES: how to make it, which networks it is for, and what its tables should be. A run that fails is shrunk to the steps
that matter and says how to run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from catchment.errors import InputError
from catchment.routing.baselines import CentralizedCore, FloodingCore
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.base import SienaCore
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.gateway import hybrid_core
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import LinkPolicy, Merging, MergingCore
from catchment.sim.conformance.checkers import Network, reachable
from catchment.sim.conformance.ideal import (
    acyclic_tables,
    advertising_tables,
    centralized_tables,
    general_tables,
    hierarchical_tables,
    leftovers,
    no_tables,
    served_centrally,
)
from catchment.sim.conformance.ideal_delegating import delegating_leftovers, delegating_tables
from catchment.sim.conformance.ideal_hybrid import hybrid_leftovers, hybrid_tables
from catchment.sim.conformance.ideal_merging import imperfectly_merging_tables, merging_leftovers, merging_tables
from catchment.sim.hybrid import (
    as_hybrid,
    clusters_in_acyclic,
    hierarchies_in_general,
    random_hybrid,
    three_deep,
)
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.simulation import MakeCore, Simulation
from catchment.sim.topology import Topology, balanced_tree, line, mesh, random_network, random_tree, ring, star

# A run of the suite takes some hundred; one that takes so many loops.
RUN_OCCURRENCES_MAX: Final = 20_000
# How long merging cores wait, and what share of what they let through nobody need have asked for.
MERGING_BATCH: Final = 5 * MILLISECOND
MERGING_BUDGET: Final = 0.3


# --- cores --------------------------------------------------------------------------------------

MakeCores = Callable[[Topology], MakeCore]
# What is wrong with the tables of a settled network.
Tables = Callable[[Simulation], Iterator[str]]


@dataclass(frozen=True)
class Core:
    """A routing system in the suite."""

    make: MakeCores
    networks: tuple[str, ...]
    tables: Tables
    # Publications that were not advertised are refused.
    needs_advertisements: bool = False
    # What is left when nobody wants anything.
    leftovers: Tables = leftovers
    # The brokers whose clients must get what is published at one.
    served: Callable[[Network, str], set[str]] = reachable
    # It tells its neighbors Interest and Advertised, hop by hop, which may be merged.
    can_merge: bool = False

    @property
    def needs_tree(self) -> bool:
        """Whether it is for networks without cycles alone."""
        return set(self.networks) <= set(TREES)


def _acyclic(topology: Topology) -> MakeCore:
    return AcyclicCore


def _hierarchical(topology: Topology) -> MakeCore:
    masters = topology.masters()
    return lambda broker: HierarchicalCore(broker, masters[broker])


def _general(topology: Topology) -> MakeCore:
    return GeneralCore


def _advertising(topology: Topology) -> MakeCore:
    return AdvertisingCore


def _delegating(topology: Topology) -> MakeCore:
    return DelegatingCore


def _flooding(topology: Topology) -> MakeCore:
    return FloodingCore


def _centralized(topology: Topology) -> MakeCore:
    return lambda broker: CentralizedCore(broker, topology.brokers[0])


def _hybrid(topology: Topology) -> MakeCore:
    memberships = as_hybrid(topology).memberships()
    return lambda broker: hybrid_core(broker, memberships[broker])


def _hybrid_advertising(topology: Topology) -> MakeCore:
    if any(unit.kind != "advertising" for unit in as_hybrid(topology).units):
        raise InputError("units are to be of kind advertising for this core: for others use siena hybrid")
    return _hybrid(topology)


def _merging(make: Callable[[str], SienaCore], merging: Merging) -> MakeCores:
    policy = LinkPolicy(merging, batch=MERGING_BATCH)
    return lambda topology: lambda broker: MergingCore(make(broker), policy)


TREES: Final = ("line", "star", "balanced tree", "random tree")
ANY_NETWORK: Final = ("random tree", "ring", "mesh", "random network")
HYBRIDS: Final = ("hierarchies in general", "clusters in acyclic", "three deep", "random hybrid")
CORES: Final[dict[str, Core]] = {
    "siena acyclic": Core(_acyclic, TREES, acyclic_tables, can_merge=True),
    "siena hierarchical": Core(_hierarchical, TREES, hierarchical_tables, can_merge=True),
    "siena advertising": Core(_advertising, TREES, advertising_tables, needs_advertisements=True, can_merge=True),
    "siena delegating": Core(_delegating, TREES, delegating_tables, True, delegating_leftovers),
    "siena merging": Core(_merging(AcyclicCore, Merging()), TREES, merging_tables, leftovers=merging_leftovers),
    "siena merging imperfect": Core(
        _merging(AcyclicCore, Merging(MERGING_BUDGET)), TREES, imperfectly_merging_tables, leftovers=merging_leftovers
    ),
    "siena merging advertising": Core(
        _merging(AdvertisingCore, Merging()), TREES, merging_tables, True, leftovers=merging_leftovers
    ),
    "flooding": Core(_flooding, ANY_NETWORK, no_tables),
    "centralized": Core(_centralized, ANY_NETWORK, centralized_tables, served=served_centrally),
    "siena general": Core(_general, ANY_NETWORK, general_tables),
    "siena hybrid": Core(_hybrid, HYBRIDS, hybrid_tables, leftovers=hybrid_leftovers),
    "siena hybrid advertising": Core(
        _hybrid_advertising, ("advertising units",), hybrid_tables, True, leftovers=hybrid_leftovers
    ),
}
NETWORKS: Final[dict[str, Callable[[int], Topology]]] = {
    "line": lambda seed: line(2 + seed % 4),
    "star": lambda seed: star(3 + seed % 4),
    "balanced tree": lambda seed: balanced_tree(3 + seed % 7),
    "random tree": lambda seed: random_tree(2 + seed % 9, seed),
    "ring": lambda seed: ring(3 + seed % 6),
    "mesh": lambda seed: mesh(3 + seed % 3),
    "random network": lambda seed: random_network(4 + seed % 7, seed, 1 + seed % 5),
    "hierarchies in general": lambda seed: hierarchies_in_general(2 + seed % 3, 1 + seed % 4, seed),
    "clusters in acyclic": lambda seed: clusters_in_acyclic(2 + seed % 2, 2 + seed % 3, seed),
    "three deep": three_deep,
    "random hybrid": random_hybrid,
    "advertising units": lambda seed: random_hybrid(seed, ("advertising",)),
}
QUALITIES: Final = (
    Quality(),
    Quality(jitter_us=2 * MILLISECOND),
    Quality(jitter_us=3 * MILLISECOND, loss_share=0.2, duplicate_share=0.1),
)


@dataclass(frozen=True)
class Run:
    """One run of the suite."""

    core: str
    network: str
    seed: int

    @property
    def command(self) -> str:
        return f"./dev soak --core '{self.core}' --network '{self.network}' --seed {self.seed}"


def all_runs(seeds: Sequence[int]) -> list[Run]:
    return [Run(name, network, seed) for seed in seeds for name, core in CORES.items() for network in core.networks]
