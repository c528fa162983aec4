"""A scenario played: clients behave as it says, faults happen, and everything is measured.

A publisher goes through cycles: it advertises, publishes so many times with pauses drawn from an exponential
distribution about its own mean, and unadvertises. A subscriber subscribes, waits for so many notifications,
unsubscribes, and begins anew. Clients are put at random brokers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.messages import SECOND, Deliver, DeliverSequence
from catchment.routing.siena.messages import Part
from catchment.sim.network import MILLISECOND
from catchment.sim.scenarios.scenario import Drawn, Fault, Publishers, Scenario, Subscribers
from catchment.sim.simulation import SimClient, Simulation

NOTIFICATIONS: Final = "notifications"
# The kinds of messages that carry notifications; the others are control.
CARRYING: Final = (NOTIFICATIONS, Part.__name__)
# So many latencies are kept to take percentiles of; past that, each new one replaces a random one.
LATENCIES_KEPT_MAX: Final = 100_000

Report = Callable[[int, int], None]


@dataclass(slots=True)
class Measures:
    """What a run came to. Costs are messages times the cost of their link, as in the SIENA text."""

    simulated_s: float = 0.0
    published: int = 0
    delivered: int = 0
    refused: int = 0
    messages: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)
    latency_ms_mean: float = 0.0
    latency_ms_p99: float = 0.0
    # Links between publisher and subscriber, by the way that deliveries took.
    hops_mean: float = 0.0
    # From a change of what clients want, or a fault, to the last control message that it caused.
    convergence_ms_mean: float = 0.0
    convergence_ms_most: float = 0.0
    # Notifications that a broker got from another and neither delivered nor passed on.
    false_positives: int = 0
    # Looked at each second of the run.
    table_filters_most: int = 0
    # Messages that are not notifications, for each notification delivered.
    control_share: float = 0.0
    core_messages: int = 0
    links: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def cost_total(self) -> int:
        return sum(self.cost.values())


class _Player:
    def __init__(self, scenario: Scenario, directory: Path | None) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed)
        topology = scenario.topology(directory)
        make_core = scenario.make_core(topology)
        self.simulation = Simulation(
            topology, make_core, seed=scenario.seed, quality=scenario.quality, observers=(self,)
        )
        self.published_at: dict[tuple[str, int], int] = {}
        self.latencies: list[float] = []
        self.hops_total = self.hops_known = 0
        self.delivered_count = 0
        self.on_delivery: dict[str, Callable[[], None]] = {}
        self.table_filters_most = 0
        self.total = 0
        self.done = 0

    # --- watching ---

    def published(self, simulation: Simulation, client: SimClient, notification: Notification) -> None:
        assert notification.seq is not None
        self.published_at[client.identity, notification.seq] = simulation.now

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        self.delivered_count += 1
        last = delivery.notification if isinstance(delivery, Deliver) else delivery.notifications[-1]
        assert last.source is not None
        assert last.seq is not None
        latency = (simulation.now - self.published_at[last.source, last.seq]) / MILLISECOND
        if len(self.latencies) < LATENCIES_KEPT_MAX:
            self.latencies.append(latency)
        elif self.rng.random() < LATENCIES_KEPT_MAX / self.delivered_count:
            self.latencies[self.rng.randrange(LATENCIES_KEPT_MAX)] = latency
        if (hops := simulation.hops_of(last)) is not None:
            self.hops_total += hops
            self.hops_known += 1
        client.received.clear()
        if (react := self.on_delivery.get(client.identity)) is not None:
            react()

    # --- playing ---

    def set_up(self) -> None:
        for number, publishers in enumerate(self.scenario.publishers):
            for i in range(publishers.count):
                self._place(f"p{number}.{i}", publishers)
                self._schedule_publisher(f"p{number}.{i}", publishers)
        for number, subscribers in enumerate(self.scenario.subscribers):
            for i in range(subscribers.count):
                self._place(f"s{number}.{i}", subscribers)
                self._schedule_subscriber(f"s{number}.{i}", subscribers)
        for fault in self.scenario.faults:
            self.simulation.at(round(fault.at_s * SECOND), self._fail, fault)

    def _place(self, identity: str, behaviour: Publishers | Subscribers) -> None:
        self.simulation.connect(identity, self.rng.choice(self.simulation.topology.brokers))
        if behaviour.roams_every_s is not None:
            self._schedule_roaming(identity, behaviour, round(behaviour.roams_every_s * SECOND))

    def _schedule_roaming(self, identity: str, behaviour: Publishers | Subscribers, every: int) -> None:
        def roam() -> None:
            # Once nobody publishes any more, the run may end.
            if self.done < self.total and not self._is_over(behaviour.stop_s):
                self.simulation.connect(identity, self.rng.choice(self.simulation.topology.brokers))
                self.simulation.at(self.simulation.now + every, roam)

        self.simulation.at(round(behaviour.start_s * SECOND) + every, roam)

    def _schedule_publisher(self, identity: str, behaviour: Publishers) -> None:
        self.total += behaviour.cycles * behaviour.publications
        mean = self.rng.uniform(*behaviour.period_ms) * MILLISECOND
        self.simulation.at(round(behaviour.start_s * SECOND), self._begin_cycle, identity, behaviour, mean, 0)

    def _begin_cycle(self, identity: str, behaviour: Publishers, mean: float, cycle: int) -> None:
        if cycle >= behaviour.cycles or self._is_over(behaviour.stop_s):
            return
        if behaviour.advertises is not None:
            self.simulation.advertise(identity, behaviour.advertises)
        self._pause(mean, self._publish, identity, behaviour, mean, cycle, 0)

    def _publish(self, identity: str, behaviour: Publishers, mean: float, cycle: int, place: int) -> None:
        if self._is_over(behaviour.stop_s):
            return
        self.done += 1
        self.simulation.publish(identity, {name: self._value(one) for name, one in behaviour.attributes.items()})
        if place + 1 < behaviour.publications:
            self._pause(mean, self._publish, identity, behaviour, mean, cycle, place + 1)
            return
        if behaviour.advertises is not None:
            self.simulation.unadvertise(identity, behaviour.advertises)
        self._begin_cycle(identity, behaviour, mean, cycle + 1)

    def _pause(self, mean: float, work: Callable[..., None], *arguments: object) -> None:
        self.simulation.at(self.simulation.now + 1 + round(self.rng.expovariate(1 / mean)), work, *arguments)

    def _value(self, one: Value | Drawn) -> Value:
        if not isinstance(one, Drawn):
            return one
        return self.rng.choice(one.one_of) if one.one_of else self.rng.uniform(one.low, one.high)

    def _schedule_subscriber(self, identity: str, behaviour: Subscribers) -> None:
        wanted = self.rng.choice(behaviour.filters)
        left = {"notifications": behaviour.notifications or 0, "cycles": behaviour.cycles}

        def subscribe() -> None:
            self.simulation.subscribe(identity, "1", wanted)

        def received() -> None:
            left["notifications"] -= 1
            if behaviour.notifications is None or left["notifications"] > 0:
                return
            self.simulation.cancel(identity, "1")
            left["notifications"], left["cycles"] = behaviour.notifications, left["cycles"] - 1
            if left["cycles"] > 0:
                # Not within the delivery: it is one step of the broker.
                self.simulation.at(self.simulation.now, subscribe)

        self.on_delivery[identity] = lambda: self.simulation.at(self.simulation.now, received)
        self.simulation.at(round(behaviour.start_s * SECOND), subscribe)
        if behaviour.stop_s is not None:
            self.simulation.at(round(behaviour.stop_s * SECOND), self.simulation.disconnect, identity)

    def _is_over(self, stop_s: float | None) -> bool:
        return stop_s is not None and self.simulation.now > stop_s * SECOND

    def _fail(self, fault: Fault) -> None:
        work: dict[str, Callable[..., None]] = {
            "cut": self.simulation.cut,
            "heal": self.simulation.heal,
            "crash": self.simulation.crash,
            "restart": self.simulation.restart,
        }
        work[fault.kind](*fault.names)

    def look_at_tables(self) -> None:
        sizes = [self.table_filters_most, *map(_table_size, self.simulation.cores.values())]
        self.table_filters_most = max(sizes)

    def measured(self) -> Measures:
        simulation = self.simulation
        found = Measures(
            simulated_s=simulation.now / SECOND,
            published=len(self.published_at),
            delivered=self.delivered_count,
            refused=sum(len(one.refused) for one in simulation.clients.values()),
            core_messages=simulation.core_messages,
            hops_mean=self.hops_total / max(1, self.hops_known),
            false_positives=simulation.arrivals_idle,
        )
        if took := [(last - change) / MILLISECOND for change, last in simulation.converged_at.items()]:
            found.convergence_ms_mean, found.convergence_ms_most = fmean(took), max(took)
        for way, kind, carried in simulation.traffic:
            link = (way.link.one, way.link.other)
            for measure, amount in (
                (found.messages, carried.messages),
                (found.bytes, carried.bytes),
                (found.cost, carried.messages * way.link.cost),
            ):
                measure[kind] = measure.get(kind, 0) + amount
            found.links[link] = found.links.get(link, 0) + carried.messages
        if self.latencies:
            ordered = sorted(self.latencies)
            found.latency_ms_mean = fmean(ordered)
            found.latency_ms_p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        control = sum(count for kind, count in found.messages.items() if kind not in CARRYING)
        found.control_share = control / max(1, self.delivered_count)
        found.table_filters_most = self.table_filters_most
        return found


def _table_size(core: object) -> int:
    table = getattr(core, "interest", None) or getattr(core, "registry", None)
    return 0 if table is None else len(table)


def play(scenario: Scenario, directory: Path | None = None, report: Report = lambda done, total: None) -> Measures:
    """Plays a scenario to its end; `report` is told how many publications are done, of how many."""
    player = _Player(scenario, directory)
    player.set_up()
    end = None if scenario.stop_s is None else round(scenario.stop_s * SECOND)
    step = SECOND
    while not player.simulation.is_quiescent and (end is None or player.simulation.now < end):
        player.simulation.advance(step if end is None else min(step, end - player.simulation.now))
        player.look_at_tables()
        report(player.done, player.total)
    return player.measured()
