"""What the clients of a scenario do, and the changes and faults: all of it scheduled on a simulation.

A publisher that draws what it publishes goes through cycles: it advertises, publishes so many times with pauses drawn
from an exponential distribution about its own mean, and unadvertises. One that also, or only, has literal
publications keeps its advertisement. A subscriber subscribes, waits for so many notifications, cancels, and begins
anew.

Runs of different routing systems can be compared only if clients do the same in each. So what is drawn for a client
comes from a generator of its own, seeded with its identity, and no draw depends on a delivery. Only a subscriber's
`notifications` does: when it cancels depends on when it got what it waited for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.messages import SECOND, Deliver, DeliverSequence, Time
from catchment.sim.network import MILLISECOND
from catchment.sim.scenarios.groups import SUBSCRIPTION_ID, Drawn, Group, Publication, Publishers, Subscribers
from catchment.sim.scenarios.ready import ReadyRun
from catchment.sim.scenarios.scenario import Change, Fault
from catchment.sim.simulation import SimClient, Simulation

# How many publications are done, of how many.
Report = Callable[[int, int], None]


@dataclass(slots=True)
class _Drawing:
    """A publisher that draws what it publishes: where it is in that."""

    identity: str
    group: Publishers
    rng: random.Random
    mean_us: float
    cycle: int = 0
    done_in_cycle: int = 0


@dataclass(slots=True)
class _Waiting:
    """A subscriber that cancels after so many notifications: how many are left of its cycle, and cycles after it."""

    group: Subscribers
    left: int
    cycles_left: int


class Behaviour:
    """The clients of a run. It is an observer of its simulation."""

    def __init__(self, run: ReadyRun, report: Report) -> None:
        self._run = run
        self._report = report
        self._waiting: dict[str, _Waiting] = {}
        self._total = self._done = 0
        # Publishers that have more to draw, and literal publications to come.
        self._unfinished = 0

    def set_up(self, simulation: Simulation) -> None:
        """Connects the clients and schedules what they do."""
        scenario = self._run.scenario
        choice = random.Random(f"{scenario.seed} filters")
        for identity, group in scenario.clients():
            simulation.connect(identity, self._run.homes[identity])
            if isinstance(group, Publishers):
                self._set_up_publisher(simulation, identity, group)
            else:
                self._set_up_subscriber(simulation, identity, group, choice)
            if group.roams_every_s is not None:
                self._set_up_roaming(simulation, identity, group, group.roams_every_s)
        clients = scenario.clients_by_name(change.client for change in scenario.changes)
        for change in scenario.changes:
            for identity in clients[change.client]:
                simulation.at(_time(change.at_s), _perform_change, simulation, identity, change)
        for fault in self._run.faults:
            simulation.at(_time(fault.at_s), _perform_fault, simulation, fault)
        self._report(0, self._total)

    # --- publishers ---

    def _set_up_publisher(self, simulation: Simulation, identity: str, group: Publishers) -> None:
        start = _time(group.start_s)
        if group.publish and group.advertises is not None:
            simulation.at(start, simulation.advertise, identity, group.advertises)
        for publication in group.publish:
            simulation.at(_time(publication.at_s), self._publish_literally, simulation, identity, publication)
        self._unfinished += len(group.publish)
        self._total += len(group.publish)
        if group.attributes is not None:
            rng = random.Random(f"{self._run.scenario.seed} publisher {identity}")
            mean_us = rng.uniform(*group.period_ms) * MILLISECOND
            self._unfinished += 1
            self._total += group.cycles * group.publications
            simulation.at(start, self._begin_cycle, simulation, _Drawing(identity, group, rng, mean_us))

    def _publish_literally(self, simulation: Simulation, identity: str, publication: Publication) -> None:
        self._unfinished -= 1
        self._publish(simulation, identity, dict(publication.attributes))

    def _publish(self, simulation: Simulation, identity: str, attributes: dict[str, Value]) -> None:
        self._done += 1
        simulation.publish(identity, attributes)
        self._report(self._done, self._total)

    def _begin_cycle(self, simulation: Simulation, drawing: _Drawing) -> None:
        group = drawing.group
        if drawing.cycle >= group.cycles or _is_over(simulation, group):
            self._unfinished -= 1
            return
        if group.advertises is not None:
            simulation.advertise(drawing.identity, group.advertises)
        self._pause(simulation, drawing)

    def _pause(self, simulation: Simulation, drawing: _Drawing) -> None:
        pause = 1 + round(drawing.rng.expovariate(1 / drawing.mean_us))
        simulation.at(simulation.now + pause, self._publish_drawn, simulation, drawing)

    def _publish_drawn(self, simulation: Simulation, drawing: _Drawing) -> None:
        group, identity = drawing.group, drawing.identity
        if _is_over(simulation, group):
            self._unfinished -= 1
            return
        assert group.attributes is not None
        values = {name: _value(value, drawing.rng) for name, value in group.attributes.items()}
        self._publish(simulation, identity, values)
        drawing.done_in_cycle += 1
        if drawing.done_in_cycle < group.publications:
            self._pause(simulation, drawing)
            return
        # What is literally published may come at any time: that stays advertised.
        if group.advertises is not None and not group.publish:
            simulation.unadvertise(identity, group.advertises)
        drawing.done_in_cycle, drawing.cycle = 0, drawing.cycle + 1
        self._begin_cycle(simulation, drawing)

    # --- subscribers ---

    def _set_up_subscriber(
        self, simulation: Simulation, identity: str, group: Subscribers, choice: random.Random
    ) -> None:
        if group.notifications is not None:
            self._waiting[identity] = _Waiting(group, group.notifications, group.cycles - 1)
        # Only [[changes]] subscribe for a subscriber without filters.
        if group.filters:
            wanted = choice.choice(group.filters)
            simulation.at(_time(group.start_s), simulation.subscribe, identity, SUBSCRIPTION_ID, wanted)
        if group.stop_s is not None:
            simulation.at(_time(group.stop_s), simulation.disconnect, identity)

    def published(self, simulation: Simulation, client: SimClient, notification: Notification) -> None:
        """Nothing follows from that."""

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        ids = delivery.subscriptions if isinstance(delivery, Deliver) else (delivery.subscription,)
        if client.identity in self._waiting and SUBSCRIPTION_ID in ids:
            # Not within the delivery: that is one step of the broker.
            simulation.at(simulation.now, self._received, simulation, client)

    def _received(self, simulation: Simulation, client: SimClient) -> None:
        waiting, identity = self._waiting[client.identity], client.identity
        wanted = client.wants.get(SUBSCRIPTION_ID)
        if wanted is None:
            return
        waiting.left -= 1
        if waiting.left > 0:
            return
        simulation.cancel(identity, SUBSCRIPTION_ID)
        if waiting.cycles_left > 0:
            assert waiting.group.notifications is not None
            waiting.left, waiting.cycles_left = waiting.group.notifications, waiting.cycles_left - 1
            simulation.subscribe(identity, SUBSCRIPTION_ID, wanted)

    # --- roaming ---

    def _set_up_roaming(self, simulation: Simulation, identity: str, group: Group, every_s: float) -> None:
        rng = random.Random(f"{self._run.scenario.seed} roaming {identity}")
        every = _time(every_s)

        def roam() -> None:
            # Once nobody publishes any more, the run may end. A client that has gone stays away.
            if not self._unfinished or _is_over(simulation, group) or simulation.client(identity).home is None:
                return
            simulation.connect(identity, rng.choice(simulation.topology.brokers))
            simulation.at(simulation.now + every, roam)

        simulation.at(_time(group.start_s) + every, roam)


def _time(seconds: float) -> Time:
    return round(seconds * SECOND)


def _is_over(simulation: Simulation, group: Group) -> bool:
    return group.stop_s is not None and simulation.now > group.stop_s * SECOND


def _value(value: Value | Drawn, rng: random.Random) -> Value:
    if not isinstance(value, Drawn):
        return value
    return rng.choice(value.one_of) if value.one_of else rng.uniform(value.low, value.high)


def _perform_change(simulation: Simulation, identity: str, change: Change) -> None:
    work: dict[str, Callable[..., None]] = {
        "subscribe": simulation.subscribe,
        "cancel": simulation.cancel,
        "unsubscribe": simulation.unsubscribe,
        "advertise": simulation.advertise,
        "unadvertise": simulation.unadvertise,
        "connect": simulation.connect,
        "disconnect": simulation.disconnect,
        "suspend": simulation.suspend,
        "resume": simulation.resume,
    }
    work[change.kind](identity, *change.arguments)


def _perform_fault(simulation: Simulation, fault: Fault) -> None:
    work: dict[str, Callable[..., None]] = {
        "cut": simulation.cut,
        "heal": simulation.heal,
        "crash": simulation.crash,
        "restart": simulation.restart,
    }
    work[fault.kind](*fault.names)
