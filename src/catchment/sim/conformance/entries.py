"""How the conformance suite runs each routing system: its networks, its settings for a network, its ideal tables.

A routing system joins the suite by one entry here, besides its entry in the registry (`routing/systems.py`). A system
may have several entries, with different settings. A system without an entry, and a core whose tables nothing checks,
fail the suite.

A run is an entry, a network and a seed, which gives a script (`scripts.py`). A run that fails is shrunk to the steps
that matter and says how to run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from catchment.errors import InputError
from catchment.routing.messages import SECOND
from catchment.routing.systems import SYSTEMS, RoutingSystem, system_named
from catchment.sim.conformance import places
from catchment.sim.conformance.checkers import Network, reachable
from catchment.sim.conformance.ideals.baselines import (
    centralized_tables,
    disjunctive_tables,
    flooding_tables,
    overlapping_tables,
    perfect_tables,
    served_centrally,
    unicast_tables,
)
from catchment.sim.conformance.ideals.content_graph import content_graph_tables
from catchment.sim.conformance.ideals.delegating import delegating_tables
from catchment.sim.conformance.ideals.general import general_tables
from catchment.sim.conformance.ideals.grid import grid_tables, is_whole, served_by_units
from catchment.sim.conformance.ideals.hop_by_hop import acyclic_tables, advertising_tables, hierarchical_tables
from catchment.sim.conformance.ideals.hybrid import hybrid_tables
from catchment.sim.conformance.ideals.merging import (
    advertising_merging_tables,
    hierarchical_merging_tables,
    imperfectly_merging_tables,
    merging_tables,
)
from catchment.sim.conformance.ideals.multicast import (
    equal_filters,
    equal_filters_in_one_tree,
    equal_or_expired_filters,
    equal_or_expired_filters_in_the_last_tree,
    equal_prunes,
    expired_and_unwanted,
    sound_filters,
    sound_filters_in_one_tree,
    sound_filters_in_the_last_tree,
    sound_prunes,
    unwanted_from_each_broker,
)
from catchment.sim.conformance.ideals.summary import summary_tables
from catchment.sim.conformance.ideals.tables import Ideal
from catchment.sim.conformance.places import Settings
from catchment.sim.conformance.playable import Playable
from catchment.sim.hybrid import (
    clusters_in_acyclic,
    hierarchies_in_general,
    random_hybrid,
    three_deep,
)
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.simulation import MakeCore
from catchment.sim.topology import Topology, balanced_tree, line, mesh, random_network, random_tree, ring, star

# A run of the suite takes some thousand; with timeouts of seconds, some ten thousand. One that takes more does not end.
RUN_OCCURRENCES_MAX: Final = 60_000
# How long merging brokers wait, and what share of what they let through nobody need have asked for.
MERGING_BATCH_MS: Final = 5.0
MERGING_SHARE: Final = 0.3
# Shorter than a run, longer than a network of the suite takes to settle; and comparisons so few that most filters past
# the first are approximated.
FILTER_TIMEOUT_S: Final = 0.25
PUBLISHER_TIMEOUT_S: Final = 0.4
BUDGET_COMPARISONS: Final = 3

# How long brokers of `summary` wait for the next propagation: so long that nothing is under way between two of them.
SUMMARY_PERIOD_MS: Final = 50.0

# What each broker has to know of its place in a network, if all are told these settings.
Places = Callable[[Topology, Settings], Mapping[str, Settings]]


@dataclass(frozen=True)
class Entry:
    """A routing system in the suite."""

    system: str
    networks: tuple[str, ...]
    tables: Ideal
    places: Places = lambda topology, settings: {}
    # What the suite tells all brokers. A scenario has its own.
    settings: Settings = field(default_factory=dict)
    # Publications that were not advertised are refused.
    needs_advertisements: bool = False
    # For a broker, the brokers whose clients must get what is published at it.
    served: Callable[[Network, str], set[str]] = reachable
    # Whether notifications take the shortest way.
    is_direct: bool = True
    # Whether no broker gets notifications that it has no use for. Masters and the center get all, what is merged
    # imperfectly lets more through, and overlapping topics bring the same again. In some networks a system wastes
    # nothing, and in others something.
    wastes_nothing: bool | Callable[[Network], bool] = True
    # Whether clients are told what was lost on the way while the network changed.
    detects_losses: bool = False
    # Whether tables depend on the order in which filters came, not only on what is wanted.
    depends_on_order: bool = False
    # Of a system whose tables depend on traffic: the traffic after which `tables` must hold, and what must hold before.
    converge: Callable[[Playable], None] | None = None
    sound: Ideal | None = None
    # Whether filters are written in tables as clients wrote them: not if several are said as one.
    keeps_texts: bool = True
    # Whether tables change as time goes by: then those of live brokers cannot be known.
    fades: bool = False

    @property
    def is_live(self) -> bool:
        """Whether live brokers can run it."""
        return system_named(self.system).is_live

    @property
    def needs_tree(self) -> bool:
        """Whether it is for networks without cycles alone."""
        return set(self.networks) <= set(TREES)

    @property
    def needs_units(self) -> bool:
        """Whether it is for networks of units alone."""
        return set(self.networks) <= {*HYBRIDS, *ADVERTISING_HYBRIDS}

    def settings_for(self, topology: Topology, settings: Settings | None = None) -> dict[str, Settings]:
        """For each broker: what it has to know of its place, and the settings of all, the suite's unless given."""
        for_all = self.settings if settings is None else settings
        by_place = self.places(topology, for_all)
        return {broker: {**by_place.get(broker, {}), **for_all} for broker in topology.brokers}

    def make_core(self, topology: Topology, settings: Settings | None = None) -> MakeCore:
        """What makes the cores of brokers; InputError if the settings are wrong."""
        system: RoutingSystem[Any] = system_named(self.system)
        given = {broker: system.settings_of(some) for broker, some in self.settings_for(topology, settings).items()}
        make = system.maker()
        return lambda broker: make(broker, given[broker])


# --- entries of one system with different settings ---------------------------------------------


def _grid(levels: int) -> Entry:
    return Entry(
        "grid",
        ANY_NETWORK,
        grid_tables,
        places.contexts,
        {"levels": levels},
        served=served_by_units(levels),
        # A notification for a unit that is split may come to the part that does not want it.
        wastes_nothing=is_whole(levels),
    )


# --- entries ------------------------------------------------------------------------------------

TREES: Final = ("line", "star", "balanced tree", "random tree")
ANY_NETWORK: Final = ("random tree", "ring", "mesh", "random network")
HYBRIDS: Final = ("hierarchies in general", "clusters in acyclic", "three deep", "random hybrid")
ADVERTISING_HYBRIDS: Final = ("advertising units",)
ENTRIES: Final[dict[str, Entry]] = {
    "siena acyclic": Entry("siena acyclic", TREES, acyclic_tables),
    "siena hierarchical": Entry("siena hierarchical", TREES, hierarchical_tables, places.masters, wastes_nothing=False),
    "siena advertising": Entry("siena advertising", TREES, advertising_tables, needs_advertisements=True),
    "siena delegating": Entry("siena delegating", TREES, delegating_tables, needs_advertisements=True),
    "siena merging": Entry(
        "siena merging",
        TREES,
        merging_tables,
        places.masters_around_hierarchical,
        {"batch_ms": MERGING_BATCH_MS},
        depends_on_order=True,
    ),
    "siena merging imperfect": Entry(
        "siena merging",
        TREES,
        imperfectly_merging_tables,
        settings={"batch_ms": MERGING_BATCH_MS, "merging": MERGING_SHARE},
        depends_on_order=True,
        wastes_nothing=False,
    ),
    "siena merging hierarchical": Entry(
        "siena merging",
        TREES,
        hierarchical_merging_tables,
        places.masters_around_hierarchical,
        {"batch_ms": MERGING_BATCH_MS, "around": "hierarchical"},
        depends_on_order=True,
        wastes_nothing=False,
    ),
    "siena merging advertising": Entry(
        "siena merging",
        TREES,
        advertising_merging_tables,
        settings={"batch_ms": MERGING_BATCH_MS, "around": "advertising"},
        needs_advertisements=True,
        depends_on_order=True,
    ),
    "propagation": Entry(
        "propagation",
        ANY_NETWORK,
        equal_filters,
        converge=unwanted_from_each_broker,
        sound=sound_filters,
        keeps_texts=False,
    ),
    "propagation with timeouts": Entry(
        "propagation",
        ANY_NETWORK,
        equal_or_expired_filters,
        settings={"filter_timeout_s": FILTER_TIMEOUT_S, "publisher_timeout_s": PUBLISHER_TIMEOUT_S},
        converge=expired_and_unwanted(round(FILTER_TIMEOUT_S * SECOND)),
        sound=sound_filters,
        wastes_nothing=False,
        fades=True,
    ),
    "propagation within a budget": Entry(
        "propagation",
        ANY_NETWORK,
        sound_filters,
        settings={"comparisons_max": BUDGET_COMPARISONS},
        converge=unwanted_from_each_broker,
        wastes_nothing=False,
        keeps_texts=False,
        depends_on_order=True,
    ),
    "propagation in one tree": Entry(
        "propagation",
        ANY_NETWORK,
        equal_filters_in_one_tree,
        settings={"tree": "one"},
        converge=unwanted_from_each_broker,
        sound=sound_filters_in_one_tree,
        is_direct=False,
        keeps_texts=False,
    ),
    "propagation in one tree with timeouts": Entry(
        "propagation",
        ANY_NETWORK,
        equal_or_expired_filters_in_the_last_tree,
        places.last_as_root,
        {"tree": "one", "filter_timeout_s": FILTER_TIMEOUT_S, "publisher_timeout_s": PUBLISHER_TIMEOUT_S},
        converge=expired_and_unwanted(round(FILTER_TIMEOUT_S * SECOND)),
        sound=sound_filters_in_the_last_tree,
        is_direct=False,
        wastes_nothing=False,
        fades=True,
    ),
    "summary": Entry("summary", ANY_NETWORK, summary_tables, is_direct=False, wastes_nothing=False),
    "summary periodic": Entry(
        "summary",
        ANY_NETWORK,
        summary_tables,
        settings={"period_ms": SUMMARY_PERIOD_MS, "sends": "always", "next_broker": "nearest"},
        is_direct=False,
        wastes_nothing=False,
    ),
    "summary subsuming": Entry(
        "summary",
        ANY_NETWORK,
        summary_tables,
        places.virtual_degrees,
        {"subsumes": True, "period_ms": SUMMARY_PERIOD_MS, "next_broker": "spread"},
        is_direct=False,
        wastes_nothing=False,
    ),
    "flooding": Entry("flooding", ANY_NETWORK, flooding_tables, wastes_nothing=False),
    "centralized": Entry(
        "centralized",
        ANY_NETWORK,
        centralized_tables,
        places.center,
        served=served_centrally,
        is_direct=False,
        wastes_nothing=False,
    ),
    "unicast": Entry("unicast", ANY_NETWORK, unicast_tables),
    # A broker that wants several topics of a notification gets several copies.
    "overlapping multicast": Entry("overlapping multicast", ANY_NETWORK, overlapping_tables, wastes_nothing=False),
    "disjunctive multicast": Entry("disjunctive multicast", ANY_NETWORK, disjunctive_tables),
    "dvmrp": Entry(
        "dvmrp",
        ANY_NETWORK,
        equal_prunes,
        converge=unwanted_from_each_broker,
        sound=sound_prunes,
        wastes_nothing=False,
    ),
    "dvmrp with timeouts": Entry(
        "dvmrp",
        ANY_NETWORK,
        sound_prunes,
        settings={"prune_timeout_s": FILTER_TIMEOUT_S},
        converge=expired_and_unwanted(round(FILTER_TIMEOUT_S * SECOND)),
        sound=sound_prunes,
        wastes_nothing=False,
        fades=True,
    ),
    "perfect": Entry("perfect", ANY_NETWORK, perfect_tables),
    "content graph": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.rendezvous,
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
    ),
    "content graph minimal": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.rendezvous,
        {"forwarding": "minimal", "preprocessing": "central"},
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
        wastes_nothing=False,
    ),
    "content graph stored": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.rendezvous,
        {"forwarding": "stored"},
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
    ),
    "content graph lists": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.rendezvous,
        {"forwarding": "lists"},
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
    ),
    "content graph adaptive": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.rendezvous,
        # Timers that fire within a run: most are set for minutes.
        {"adaptive": True, "refresh_s": 0.1, "expiry_s": 0.35},
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
    ),
    "content graph scoped": Entry(
        "content graph",
        ANY_NETWORK,
        content_graph_tables,
        places.scoped_rendezvous,
        {"offline": True},
        served=served_centrally,
        is_direct=False,
        detects_losses=True,
    ),
    "grid": _grid(2),
    "grid of one level": _grid(1),
    "grid of three levels": _grid(3),
    "siena general": Entry("siena general", ANY_NETWORK, general_tables),
    "siena hybrid": Entry("siena hybrid", HYBRIDS, hybrid_tables, places.units, wastes_nothing=False),
    "siena hybrid advertising": Entry(
        "siena hybrid", ADVERTISING_HYBRIDS, hybrid_tables, places.advertising_units, needs_advertisements=True
    ),
}


def entry_of(system: str) -> Entry:
    """The first entry of a routing system, for scenarios. InputError if there is none."""
    name = system_named(system).name
    for entry in ENTRIES.values():
        if entry.system == name:
            return entry
    raise InputError(f"{name} cannot be simulated: it has no entry in sim/conformance/entries.py")


def unchecked_systems() -> list[str]:
    """Routing systems that the suite does not run."""
    return sorted(set(SYSTEMS) - {entry.system for entry in ENTRIES.values()})


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

    entry: str
    network: str
    seed: int
    is_short: bool = False

    @property
    def command(self) -> str:
        short = " --short" if self.is_short else ""
        return f"./dev soak --system '{self.entry}' --network '{self.network}' --seed {self.seed}{short}"


def all_runs(seeds: Sequence[int]) -> list[Run]:
    return [Run(name, network, seed) for seed in seeds for name, entry in ENTRIES.items() for network in entry.networks]


def short_runs(system: str, count: int, from_seed: int = 0) -> list[Run]:
    """So many short runs of a routing system: its entries and their networks in turn, with one seed after the other."""
    kinds = [(name, network) for name, entry in ENTRIES.items() if entry.system == system for network in entry.networks]
    return [Run(*kinds[i % len(kinds)], from_seed + i // len(kinds), is_short=True) for i in range(count)]
