"""The registry of routing systems: name, settings, how to make a core, the messages between its brokers, its header.

The configuration, the wire, the conformance suite, the live suite, scenarios, `--help` and the documentation read this
registry; none of them has its own list of systems. To add a system, write a package beside this file, an entry in this
registry, and an entry that tells the conformance suite its networks and ideal tables
(`sim/conformance/entries.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import ValidationError, convert

from catchment.errors import InputError, shown
from catchment.routing.baselines.messages import (
    AddressedHeader,
    CentralizedSettings,
    ChannelHeader,
    Channels,
    DvmrpSettings,
    Graft,
    Prune,
    ReceiverHeader,
    Registration,
    Subscribed,
    TopicHeader,
)
from catchment.routing.content_graph.messages import (
    ContentHeader,
    GraphChange,
    GraphSetup,
    Left,
    NodesGiven,
    NodesRefused,
    NodesWanted,
    Numbers,
    NumbersWanted,
    Recover,
    Recovered,
    Resubscribed,
    ResubscribedAck,
    SubscribeNodes,
    UnsubscribedAck,
    UnsubscribeNodes,
)
from catchment.routing.content_graph.settings import ContentGraphSettings
from catchment.routing.grid.messages import Context, Gateways, GridHeader, GridSettings, Profile, ProfileChange
from catchment.routing.messages import BrokerMessage, Header
from catchment.routing.parts.distance_vectors import Distances
from catchment.routing.parts.link_states import Links
from catchment.routing.propagation.messages import Filtered, PropagationSettings
from catchment.routing.settings import Settings
from catchment.routing.siena.messages import Advertised, Delegated, Interest, OriginHeader, Part, Wants, WantsChange
from catchment.routing.siena.settings import HierarchicalSettings, HybridSettings, MergingSettings
from catchment.routing.summary.messages import (
    Summarized,
    SummaryChange,
    SummarySettings,
    WalkHeader,
    WeighedLinks,
    checked_settings,
)

if TYPE_CHECKING:
    from catchment.routing.baselines.perfect import World
    from catchment.routing.core import RoutingCore

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class RoutingSystem(Generic[S]):
    """A routing system.

    `messages` are the classes of all messages that its brokers send each other. A neighbor that sends anything else
    loses its link. `header` is the class of the header that its brokers write on notifications."""

    name: str
    # One sentence, for `--help` and the documentation.
    summary: str
    settings: type[S]
    make: Callable[..., RoutingCore[Any]]
    messages: tuple[type[BrokerMessage], ...] = ()
    header: type[Header] = Header
    # Makes what all cores of one simulated network share. A system that has a world knows what no live broker can know:
    # only the simulator runs it, and `make` gets the world too.
    world: Callable[[], object] | None = None

    @property
    def is_live(self) -> bool:
        """Whether live brokers can run it."""
        return self.world is None

    def maker(self) -> Callable[[str, S], RoutingCore[Any]]:
        """What makes the cores of one network."""
        if self.world is None:
            return self.make
        world = self.world()
        return lambda name, settings: self.make(name, settings, world)

    def settings_of(self, given: Mapping[str, Any]) -> S:
        """The settings struct, made from settings as they are written in a file. InputError says what is wrong with
        them."""
        try:
            return convert(given, self.settings)
        except ValidationError as problem:
            known = ", ".join(self.settings.__struct_fields__) or "none"
            raise InputError(f"settings of {self.name}: {problem}; it has {known}") from None

    def core(self, name: str, given: Mapping[str, Any] | None = None) -> RoutingCore[Any]:
        """The core of the broker `name`, with settings as they are written in a file."""
        return self.maker()(name, self.settings_of(given or {}))


# --- cores --------------------------------------------------------------------------------------
# Each is imported when a broker is made: cores bring the matcher along, and whoever only reads the registry, such as
# `catchment serve --help`, should not wait for it.


def _general(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.siena.general import GeneralCore

    return GeneralCore(name)


def _acyclic(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.siena.acyclic import AcyclicCore

    return AcyclicCore(name)


def _hierarchical(name: str, settings: HierarchicalSettings) -> RoutingCore[Any]:
    from catchment.routing.siena.hierarchical import HierarchicalCore

    return HierarchicalCore(name, settings.master)


def _advertising(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.siena.advertising import AdvertisingCore

    return AdvertisingCore(name)


def _delegating(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.siena.delegating import DelegatingCore

    return DelegatingCore(name)


def _merging(name: str, settings: MergingSettings) -> RoutingCore[Any]:
    from catchment.routing.siena.making import merging_core

    return merging_core(name, settings)


def _hybrid(name: str, settings: HybridSettings) -> RoutingCore[Any]:
    from catchment.routing.siena.making import hybrid_core

    return hybrid_core(name, settings)


def _flooding(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.baselines.flooding import FloodingCore

    return FloodingCore(name)


def _centralized(name: str, settings: CentralizedSettings) -> RoutingCore[Any]:
    from catchment.routing.baselines.centralized import CentralizedCore

    return CentralizedCore(name, settings.center)


def _unicast(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.baselines.unicast import UnicastCore

    return UnicastCore(name)


def _overlapping(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.baselines.overlapping import OverlappingCore

    return OverlappingCore(name)


def _disjunctive(name: str, settings: Settings) -> RoutingCore[Any]:
    from catchment.routing.baselines.disjunctive import DisjunctiveCore

    return DisjunctiveCore(name)


def _dvmrp(name: str, settings: DvmrpSettings) -> RoutingCore[Any]:
    from catchment.routing.baselines.dvmrp import DvmrpCore

    return DvmrpCore(name, settings)


def _perfect(name: str, settings: Settings, world: World) -> RoutingCore[Any]:
    from catchment.routing.baselines.perfect import PerfectCore

    return PerfectCore(name, world)


def _world() -> object:
    from catchment.routing.baselines.perfect import World

    return World()


def _propagation(name: str, settings: PropagationSettings) -> RoutingCore[Any]:
    from catchment.routing.propagation.core import PropagationCore

    return PropagationCore(name, settings)


def _summary(name: str, settings: SummarySettings) -> RoutingCore[Any]:
    from catchment.routing.summary.core import SummaryCore

    return SummaryCore(name, checked_settings(settings))


def _content_graph(name: str, settings: ContentGraphSettings) -> RoutingCore[Any]:
    from catchment.routing.content_graph.core import ContentGraphCore

    return ContentGraphCore(name, settings)


def _grid(name: str, settings: GridSettings) -> RoutingCore[Any]:
    from catchment.routing.grid.core import GridCore

    return GridCore(name, settings)


# --- the registry -------------------------------------------------------------------------------

DEFAULT_SYSTEM: Final = "siena general"

_ALL: Final[tuple[RoutingSystem[Any], ...]] = (
    RoutingSystem(
        "siena general",
        "peers in any network; notifications go down the shortest-path tree of the broker they were published at",
        Settings,
        _general,
        (Links, Wants, WantsChange),
        OriginHeader,
    ),
    RoutingSystem(
        "siena acyclic",
        "peers in a network without cycles; filters are told hop by hop, reduced by covering",
        Settings,
        _acyclic,
        (Interest,),
    ),
    RoutingSystem(
        "siena hierarchical",
        "a tree of masters; filters are told to the master, every notification goes up to the root",
        HierarchicalSettings,
        _hierarchical,
        (Interest,),
    ),
    RoutingSystem(
        "siena advertising",
        "acyclic peers whose publishers advertise; filters are told only towards what overlaps them",
        Settings,
        _advertising,
        (Interest, Advertised),
    ),
    RoutingSystem(
        "siena delegating",
        "siena advertising with parts of patterns watched upstream",
        Settings,
        _delegating,
        (Interest, Advertised, Delegated, Part),
    ),
    RoutingSystem(
        "siena merging",
        "acyclic, hierarchical or advertising brokers that say several filters as one, and changes in batches",
        MergingSettings,
        _merging,
        (Interest, Advertised),
    ),
    RoutingSystem(
        "siena hybrid",
        "units of different architecture joined by gateways",
        HybridSettings,
        _hybrid,
        (Interest, Advertised, Links, Wants, WantsChange),
        OriginHeader,
    ),
    RoutingSystem(
        "summary",
        "brokers exchange summaries of filters; a notification walks to brokers that have the summaries of many",
        SummarySettings,
        _summary,
        (WeighedLinks, Summarized, SummaryChange),
        WalkHeader,
    ),
    RoutingSystem(
        "propagation",
        "notifications go everywhere at first; brokers that do not want them send filters back towards the publisher",
        PropagationSettings,
        _propagation,
        (Distances, Filtered),
        OriginHeader,
    ),
    RoutingSystem(
        "content graph",
        "filters become nodes of a graph; notifications carry the ids of nodes, and brokers on the way read only those",
        ContentGraphSettings,
        _content_graph,
        (
            Links,
            NodesWanted,
            NodesGiven,
            SubscribeNodes,
            GraphSetup,
            NodesRefused,
            UnsubscribeNodes,
            UnsubscribedAck,
            Left,
            Resubscribed,
            ResubscribedAck,
            GraphChange,
            NumbersWanted,
            Numbers,
            Recover,
            Recovered,
        ),
        ContentHeader,
    ),
    RoutingSystem(
        "grid",
        "units of brokers within units; each broker knows those around it, and notifications go from unit to unit",
        GridSettings,
        _grid,
        (Context, Gateways, Profile, ProfileChange),
        GridHeader,
    ),
    RoutingSystem(
        "flooding",
        "every notification goes everywhere: a baseline",
        Settings,
        _flooding,
    ),
    RoutingSystem(
        "centralized",
        "one broker matches everything for all: a baseline",
        CentralizedSettings,
        _centralized,
        (Links, Registration),
        AddressedHeader,
    ),
    RoutingSystem(
        "unicast",
        "the publisher's broker sends a copy to each client that wants it: a baseline",
        Settings,
        _unicast,
        (Links, Subscribed),
        ReceiverHeader,
    ),
    RoutingSystem(
        "overlapping multicast",
        "one copy for each topic that matches, to all that subscribed to it: a baseline",
        Settings,
        _overlapping,
        (Links, Subscribed),
        TopicHeader,
    ),
    RoutingSystem(
        "disjunctive multicast",
        "one copy, on a channel for the combination of topics that match: a baseline",
        Settings,
        _disjunctive,
        (Links, Subscribed, Channels),
        ChannelHeader,
    ),
    RoutingSystem(
        "dvmrp",
        "every notification goes down the publisher's tree to all brokers that have subscribers: a baseline",
        DvmrpSettings,
        _dvmrp,
        (Distances, Prune, Graft),
        OriginHeader,
    ),
    RoutingSystem(
        "perfect",
        "notifications go exactly where they are wanted, and nothing is said for that: a baseline for the simulator",
        Settings,
        _perfect,
        (),
        OriginHeader,
        _world,
    ),
)
SYSTEMS: Final[dict[str, RoutingSystem[Any]]] = {system.name: system for system in _ALL}


def live_systems() -> dict[str, RoutingSystem[Any]]:
    """The routing systems that live brokers can run, by name."""
    return {name: system for name, system in SYSTEMS.items() if system.is_live}


def system_named(name: str) -> RoutingSystem[Any]:
    """The routing system with that name; InputError if there is none."""
    if name not in SYSTEMS:
        raise InputError(f"there is no routing system {shown(name)}: use one of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


def live_system_named(name: str) -> RoutingSystem[Any]:
    """The same; InputError too if only the simulator runs it."""
    if name in SYSTEMS and not SYSTEMS[name].is_live:
        raise InputError(f"{name} knows what no live broker can know: use `catchment simulate`, or another system")
    if name not in SYSTEMS:
        raise InputError(f"there is no routing system {shown(name)}: use one of {', '.join(live_systems())}")
    return SYSTEMS[name]


@contextmanager
def added(system: RoutingSystem[Any]) -> Iterator[None]:
    """Adds a routing system from outside this package to the registry, for as long as the `with` block runs."""
    assert system.name not in SYSTEMS, f"there is a system {system.name} already"
    SYSTEMS[system.name] = system
    try:
        yield
    finally:
        del SYSTEMS[system.name]
