"""Peers in any network: siena general."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.routing.siena.general import GeneralCore
from catchment.sim.conformance.checkers import reachable
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, differences, filters_wanted
from catchment.sim.simulation import Simulation


@Ideal
def general_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Each broker knows what the clients of each broker that it can reach want: the roots of it. What it keeps of a
    broker that it cannot reach is what that one said last: no ideal knows that, but the core must say it as it is."""
    for broker, core in alive(simulation, GeneralCore):
        near = reachable(simulation, broker)
        if set(core.origins) != near:
            yield f"{broker} reaches {core.origins}, it should reach {sorted(near)}"
        for origin in sorted(near):
            wanted = filters_wanted(simulation, {origin})
            yield from differences(f"{broker} of {origin}", wanted, core.wants_of(origin))
        others = [origin for origin in simulation.topology.brokers if origin != broker]
        yield Checked(broker, {origin: core.wants_of(origin) for origin in others})
