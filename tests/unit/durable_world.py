"""Small simulated networks with stores, for tests of durable delivery."""

from typing import Any

from catchment.model.filter import Filter
from catchment.routing.durable.messages import BETWEEN_STORAGES
from catchment.routing.messages import Deliver
from catchment.routing.systems import system_named
from catchment.sim.durable import Durability, DurableSimulation
from catchment.sim.stores import DiskTimes
from catchment.sim.topology import Topology
from catchment.store.interface import StoreStatus
from catchment.wire.messages import between_brokers

SLOW_DISK = DiskTimes(10_000, 10_000)


def world(topology: Topology, storages: tuple[str, ...] | None = None, **options) -> DurableSimulation:
    system = system_named("siena general")
    make = system.maker()
    language = between_brokers((*system.messages, *BETWEEN_STORAGES), system.header)
    disk = options.pop("disk", DiskTimes())
    durability = Durability(storages=storages, disk=disk, **options)
    simulation = DurableSimulation(
        topology,
        lambda name: make(name, system.settings_of({})),
        durability,
        language=language,
        occurrences_max=200_000,
    )
    simulation.settle()
    return simulation


def subscribed(simulation: DurableSimulation, identity: str, broker: str, *filters: str) -> None:
    simulation.connect(identity, broker)
    for id, text in enumerate(filters):
        simulation.subscribe_durable(identity, str(id), Filter(text))
    simulation.settle()
    assert not simulation.client(identity).refused


def status_of(simulation: DurableSimulation, broker: str) -> StoreStatus:
    store = simulation.stores[broker].store
    assert store is not None
    return store.status()


def values(simulation: DurableSimulation, identity: str) -> list[Any]:
    """What the application has taken, in order."""
    return [got.notification["x"] for got in simulation.durable_client(identity).taken]


def received_values(simulation: DurableSimulation, identity: str) -> list[Any]:
    """What a transient subscriber was delivered."""
    return [each.notification["x"] for each in simulation.client(identity).received if isinstance(each, Deliver)]


def publish(simulation: DurableSimulation, identity: str, *xs: int) -> None:
    for x in xs:
        simulation.publish_stored(identity, {"x": x})
