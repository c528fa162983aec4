"""Measures a run.

Measures mean the same for every routing system, because they come from what nodes do and what cores say when they are
looked into (`routing/core.py`), never from the insides of a system.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from statistics import fmean
from typing import Final

from catchment.model.notification import Notification
from catchment.node import Node
from catchment.routing.messages import SECOND, BrokerMessage, Deliver, DeliverSequence, Time
from catchment.sim.network import MILLISECOND, NOTIFICATIONS
from catchment.sim.scenarios.measures import (
    Convergence,
    Latency,
    LinkLoad,
    Measures,
    MessageCount,
    NotificationCount,
    Sample,
    Size,
    TableSizes,
    WorkDone,
)
from catchment.sim.simulation import BEGINNING, SimClient, Simulation

# So many latencies are kept to take percentiles of. Past that, each new one replaces a random one.
LATENCIES_KEPT_MAX: Final = 100_000
# Why control messages are sent: `simulation.control_caused` counts by these.
CAUSES: Final = ("change", "traffic", "idle")
_MICROSECOND: Final = timedelta(microseconds=1)


class Meter:
    """An observer of the simulation. `messages` are what the brokers of the system may say."""

    def __init__(self, messages: Iterable[type[BrokerMessage]], seed: int) -> None:
        self.samples: list[Sample] = []
        self._carrying = {NOTIFICATIONS, *(each.__name__ for each in messages if each.carries_notifications)}
        self._rng = random.Random(f"{seed} latencies")
        self._start: Time = 0
        self._tables = _TableLooks()
        self._sampled: Counter[str] = Counter()
        self._refused_before = 0
        self._clear()

    def _clear(self) -> None:
        self._published = self._delivered = 0
        self._latencies_ms: list[float] = []
        self._hops_total = self._hops_known = 0
        self._filters = self._bytes = Size(0, 0)

    # --- watching ---

    def published(self, simulation: Simulation, client: SimClient, notification: Notification) -> None:
        self._published += 1

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        self._delivered += 1
        # A sequence is due when its last notification is published.
        last = delivery.notification if isinstance(delivery, Deliver) else delivery.notifications[-1]
        assert last.time is not None
        latency_ms = (simulation.now - (last.time - BEGINNING) // _MICROSECOND) / MILLISECOND
        if len(self._latencies_ms) < LATENCIES_KEPT_MAX:
            self._latencies_ms.append(latency_ms)
        elif self._rng.random() < LATENCIES_KEPT_MAX / self._delivered:
            self._latencies_ms[self._rng.randrange(LATENCIES_KEPT_MAX)] = latency_ms
        if (hops := simulation.hops_of(last)) is not None:
            self._hops_total += hops
            self._hops_known += 1
        # A run may have millions.
        client.received.clear()

    def look_at_tables(self, simulation: Simulation) -> None:
        filters, sizes = self._tables.sizes(simulation)
        self._filters = _most(self._filters, filters)
        self._bytes = _most(self._bytes, sizes)

    def reset(self, simulation: Simulation) -> None:
        """The warm-up is over: measures begin anew. The samples go on."""
        # What has happened since the last sample is still to be in the next, though counts begin at 0 again.
        self._sampled.subtract(self._counts(simulation))
        self._start = simulation.now
        self._refused_before = _refused(simulation)
        self._clear()
        simulation.reset_measures()
        self.look_at_tables(simulation)

    # --- measures ---

    def sample(self, simulation: Simulation) -> None:
        """Adds a sample of what has happened since the last."""
        counts = self._counts(simulation)
        since = {name: count - self._sampled[name] for name, count in counts.items()}
        self._sampled = counts
        filters, _ = self._tables.sizes(simulation)
        self.samples.append(Sample(at_s=simulation.now / SECOND, filters=filters.total, **since))

    def is_sample_due(self, simulation: Simulation) -> bool:
        """Whether time has passed, or anything has happened, since the last sample."""
        is_later = not self.samples or self.samples[-1].at_s < simulation.now / SECOND
        return is_later or self._counts(simulation) != self._sampled

    def _counts(self, simulation: Simulation) -> Counter[str]:
        counts = Counter(
            published=self._published, delivered=self._delivered, false_positives=simulation.unwanted,
            link=0, control=0, bytes=0,
        )  # fmt: skip
        for _, name, carried in simulation.traffic:
            counts["link" if name in self._carrying else "control"] += carried.messages
            counts["bytes"] += carried.bytes
        return counts

    def measured(self, simulation: Simulation) -> Measures:
        counts = self._counts(simulation)
        messages = _messages(simulation)
        return Measures(
            simulated_s=simulation.now / SECOND,
            warm_up_s=self._start / SECOND,
            published=self._published,
            delivered=self._delivered,
            refused=_refused(simulation) - self._refused_before,
            notifications=NotificationCount(
                counts["link"],
                sum(carried.logical for _, name, carried in simulation.traffic if name in self._carrying),
            ),
            control={name: count.messages for name, count in messages.items() if name not in self._carrying},
            control_caused={cause: simulation.control_caused[cause] for cause in CAUSES},
            bytes=counts["bytes"],
            cost=sum(count.cost for count in messages.values()),
            messages=messages,
            tables=TableSizes(self._filters, self._bytes),
            hops_mean=self._hops_total / self._hops_known if self._hops_known else None,
            latency_ms=_latency(self._latencies_ms),
            convergence_ms=_convergence(simulation, self._start),
            false_positives=simulation.unwanted,
            work=_work(simulation, self._published),
            samples=tuple(self.samples),
            links=_links(simulation),
        )


class _TableLooks:
    """Looks at the tables of all brokers, in a large network too: only at those that may have changed."""

    def __init__(self) -> None:
        # By broker, the last look: the node, how many messages it had been given, its filters and their bytes.
        self._looks: dict[str, tuple[Node, int, int, int]] = {}

    def sizes(self, simulation: Simulation) -> tuple[Size, Size]:
        """Filters, and bytes of their texts."""
        looks = [self._look(broker, node) for broker, node in simulation.nodes.items() if node is not None]
        filters, sizes = [filters for filters, _ in looks], [size for _, size in looks]
        return Size(max(filters, default=0), sum(filters)), Size(max(sizes, default=0), sum(sizes))

    def _look(self, broker: str, node: Node) -> tuple[int, int]:
        last = self._looks.get(broker)
        # Notifications do not change tables. A broker that has crashed and restarted is another node.
        if last is not None and last[0] is node and last[1] == node.messages_count:
            return last[2:]
        inspection = node.core.inspect()
        self._looks[broker] = (node, node.messages_count, inspection.filters, inspection.bytes)
        return inspection.filters, inspection.bytes


def _most(first: Size, second: Size) -> Size:
    return Size(max(first.largest, second.largest), max(first.total, second.total))


def _refused(simulation: Simulation) -> int:
    return sum(len(client.refused) for client in simulation.clients.values())


def _messages(simulation: Simulation) -> dict[str, MessageCount]:
    """By name, sorted."""
    totals: dict[str, list[int]] = {}
    for way, name, carried in simulation.traffic:
        row = totals.setdefault(name, [0, 0, 0])
        row[0] += carried.messages
        row[1] += carried.bytes
        row[2] += carried.messages * way.link.cost
    return {name: MessageCount(*totals[name]) for name in sorted(totals)}


def _links(simulation: Simulation) -> tuple[LinkLoad, ...]:
    """Those that carried anything, sorted."""
    totals: dict[tuple[str, str], list[int]] = {}
    for way, _, carried in simulation.traffic:
        row = totals.setdefault((way.link.first, way.link.second), [0, 0])
        row[0] += carried.messages
        row[1] += carried.bytes
    return tuple(LinkLoad(between, *totals[between]) for between in sorted(totals))


def _latency(latencies_ms: list[float]) -> Latency | None:
    if not latencies_ms:
        return None
    ordered = sorted(latencies_ms)
    return Latency(fmean(ordered), ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)])


def _convergence(simulation: Simulation, start: Time) -> Convergence | None:
    """Of the changes since a time: messages of an earlier change may still arrive after it."""
    took = [(last - change) / MILLISECOND for change, last in simulation.converged_at.items() if change >= start]
    return Convergence(fmean(took), max(took)) if took else None


def _work(simulation: Simulation, published: int) -> WorkDone:
    work = simulation.work
    counts = (work.matched, work.compared, work.looked_up)
    if not published:
        return WorkDone(*counts, None, None, None)
    return WorkDone(*counts, *(count / published for count in counts))
