"""The baselines: flooding, centralized, perfect. DVMRP is in `multicast.py`."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.routing.baselines.centralized import CentralizedCore
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.baselines.perfect import PerfectCore
from catchment.sim.conformance.checkers import Network, reachable
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive
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
