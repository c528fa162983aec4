"""What brokers have to know of their place in a network: settings for each broker, made from the network.

A conformance run and a scenario need such settings for the systems whose brokers differ: a master, the center, the
units that a broker is in. Each function takes the network and the settings that all brokers are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catchment.errors import InputError
from catchment.sim.conformance.ideals.multicast import last_broker
from catchment.sim.grid import LEVELS, contexts_of
from catchment.sim.hybrid import as_hybrid
from catchment.sim.topology import Topology

# Settings as they are written in a file.
Settings = Mapping[str, Any]


def masters(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    return {broker: {"master": master} if master else {} for broker, master in topology.masters().items()}


def masters_around_hierarchical(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    return masters(topology, settings) if settings.get("around") == "hierarchical" else {}


def center(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    return {broker: {"center": topology.brokers[0]} for broker in topology.brokers}


def last_as_root(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    return {broker: {"root": last_broker(topology)} for broker in topology.brokers}


def rendezvous(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    return {broker: {"rendezvous": topology.brokers[0]} for broker in topology.brokers}


def scoped_rendezvous(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    """Three namespaces with one rendezvous point: so a publisher's notifications come in order across namespaces."""
    first = topology.brokers[0]
    scopes = [
        {"name": "north and south", "scope": "place in ('north', 'south')", "rendezvous": first},
        {"name": "east", "scope": "place = 'east' and level > 2", "rendezvous": first},
    ]
    return {broker: {"rendezvous": first, "scopes": scopes} for broker in topology.brokers}


def units(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    by_place: dict[str, Settings] = {}
    for broker, memberships in as_hybrid(topology).memberships().items():
        units = []
        for member in memberships:
            master = {} if member.master is None else {"master": member.master}
            units.append({"unit": member.unit, "kind": member.kind, "neighbors": sorted(member.neighbors), **master})
        by_place[broker] = {"units": units}
    return by_place


def advertising_units(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    if any(unit.kind != "advertising" for unit in as_hybrid(topology).units):
        raise InputError("units are to be of kind advertising here: for others use siena hybrid")
    return units(topology, settings)


def virtual_degrees(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    """The broker with most links has a virtual degree, less than its own. Only the suite has this."""
    neighbors = topology.neighbors()
    hub = max(topology.brokers, key=lambda broker: len(neighbors[broker]))
    return {hub: {"degree": 1}}


def contexts(topology: Topology, settings: Settings) -> Mapping[str, Settings]:
    if "context" in settings:
        return {}
    contexts = contexts_of(topology, settings.get("levels", LEVELS))
    return {broker: {"context": context} for broker, context in contexts.items()}
