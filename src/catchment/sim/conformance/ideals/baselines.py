"""The baselines: flooding, centralized, unicast, overlapping multicast, disjunctive multicast, perfect. DVMRP is in
`multicast.py`."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.routing.baselines.centralized import CentralizedCore
from catchment.routing.baselines.disjunctive import DisjunctiveCore
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.baselines.informed import InformedCore
from catchment.routing.baselines.overlapping import OverlappingCore
from catchment.routing.baselines.perfect import PerfectCore
from catchment.routing.baselines.topics import TopicCore
from catchment.routing.baselines.unicast import UnicastCore
from catchment.sim.conformance.checkers import Network, reachable, side_of
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, filters_in
from catchment.sim.simulation import SimClient, Simulation


@Ideal
def flooding_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """A broker that tells its neighbors nothing holds what its own clients want, and nothing else."""
    for broker, _ in alive(simulation, FloodingCore):
        yield Checked(broker, {})


@Ideal
def perfect_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """The same: a broker that sees everything need not hold anything."""
    for broker, _ in alive(simulation, PerfectCore):
        yield Checked(broker, {})


@Ideal
def centralized_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """The center has the subscriptions of all clients whose broker it reaches; the other brokers have none. What the
    center keeps of a broker that it cannot reach is what that one registered last: no ideal knows that."""
    center = simulation.topology.brokers[0]
    for broker, core in alive(simulation, CentralizedCore):
        near = reachable(simulation, broker) if broker == center else set()
        unknown = set(simulation.topology.brokers) - near if broker == center else set()
        for origin in simulation.topology.brokers:
            clients = _clients_at(simulation, origin) if origin in near else []
            ids = sorted((client.identity, id) for client in clients for id in client.wants)
            if origin not in unknown and core.registry.of(origin) != ids:
                yield f"{broker} has {core.registry.of(origin)} of {origin}, it should have {ids}"
        held = {
            origin: [wanted for client in _clients_at(simulation, origin) for wanted in client.wants.values()]
            for origin in near
        }
        yield Checked(broker, held, frozenset(unknown))


def _clients_at(simulation: Simulation, broker: str) -> list[SimClient]:
    return [client for client in simulation.clients.values() if client.is_connected and client.home == broker]


def served_centrally(network: Network, broker: str) -> set[str]:
    """For a broker, the brokers whose clients get what is published at it: without the center there are none."""
    near = reachable(network, broker)
    return near if network.topology.brokers[0] in near else set()


# --- unicast and multicast ----------------------------------------------------------------------


@Ideal
def unicast_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Every broker has the subscriptions of all clients whose broker it reaches."""
    for broker, core in alive(simulation, UnicastCore):
        yield from _informed(simulation, broker, core)


@Ideal
def overlapping_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """The same, and every broker knows which brokers want each topic, and what lies beyond each link."""
    for broker, core in alive(simulation, OverlappingCore):
        yield from _informed(simulation, broker, core)
        yield from _topics(simulation, broker, core)


@Ideal
def disjunctive_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """The same, and all brokers have the channels that each broker opened: each for another combination of topics that
    others want."""
    cores = dict(alive(simulation, DisjunctiveCore))
    for broker, core in cores.items():
        yield from _informed(simulation, broker, core)
        yield from _topics(simulation, broker, core)
        for origin in sorted(reachable(simulation, broker)):
            known, opened = core.channels.of(origin), cores[origin].channels.of(origin)
            if known != opened:
                yield f"{broker} knows channels {known} of {origin}, it has opened {opened}"
        yield from _channels(broker, core)


def _informed(simulation: Simulation, broker: str, core: InformedCore) -> Iterator[str | Checked]:
    near = reachable(simulation, broker)
    wants = {
        origin: {
            (client.identity, id): wanted
            for client in _clients_at(simulation, origin)
            for id, wanted in client.wants.items()
        }
        for origin in near
    }
    for origin in sorted(near):
        if core.subscriptions.of(origin) != wants[origin]:
            yield f"{broker} has {core.subscriptions.of(origin)} of {origin}, it should have {wants[origin]}"
    held = {origin: wants[origin].values() for origin in near if origin != broker}
    yield Checked(broker, held, frozenset(simulation.topology.brokers) - near)


def _topics(simulation: Simulation, broker: str, core: TopicCore) -> Iterator[str]:
    near = reachable(simulation, broker)
    ideal: dict[str, set[str]] = {}
    for origin in near:
        for client in _clients_at(simulation, origin):
            for filter in (filter for wanted in client.wants.values() for filter in filters_in(wanted)):
                ideal.setdefault(str(filter), set()).add(origin)
    actual = {text: brokers & near for text, brokers in core.topics.brokers_by_text().items() if brokers & near}
    if actual != ideal:
        yield f"{broker} has topics {actual}, it should have {ideal}"
    if simulation.topology.is_acyclic:
        # There is one way to each broker, so it needs no knowledge of paths to say what lies beyond a link.
        sides = {
            link.end(broker): side_of(simulation, link.end(broker), broker)
            for link in simulation.links_of(broker)
            if link.is_usable
        }
        for topic in core.topics.numbers():
            wanting = {each for text in core.topics.texts_of(topic) for each in ideal.get(text, ())}
            beyond = sorted(neighbor for neighbor, side in sides.items() if side & wanting)
            way = [neighbor.name for neighbor in core.way(broker, (topic,))]
            if way != beyond:
                yield f"{broker} sends {core.topics.texts_of(topic)} to {way}, it is wanted beyond {beyond}"


def _channels(broker: str, core: DisjunctiveCore) -> Iterator[str]:
    combinations = list(core.channels.of(broker).values())
    if len(set(combinations)) < len(combinations):
        yield f"{broker} has two channels for the same topics"
    wanted = core.topics.brokers_by_text()
    for topic in {topic for combination in combinations for topic in combination}:
        if not any(wanted.get(text, set()) - {broker} for text in core.topics.texts_of(topic)):
            yield f"{broker} has a channel for topic {topic}, which no other broker wants"
