"""Patterns in a network that is left to settle between publications: its sequences are those of one monitor that sees
everything in the order of publication.

In flight the network may choose other notifications, as the order in which they arrive decides (SIENA §3.4); what it
delivers then is only checked to complete the pattern (`checkers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from catchment.model.monitor import Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver, DeliverSequence
from catchment.sim.conformance.checkers import Network, ViolationError, is_advertised
from catchment.sim.simulation import SimClient

# The identity and the id of a subscription.
Subscriber = tuple[str, str]
Found = list[tuple[Subscriber, tuple[Notification, ...]]]


@dataclass
class SequenceChecker:
    """`fresh` are patterns that were stated while nothing was under way, and nothing has happened since."""

    served: Callable[[Network, str], set[str]]
    needs_advertisements: bool = False
    fresh: dict[Subscriber, Pattern] = field(default_factory=dict)
    watched: dict[Subscriber, Monitor] = field(default_factory=dict)
    expected: Found = field(default_factory=list)
    found: Found = field(default_factory=list)

    def watch(self, network: Network) -> None:
        for (identity, id), pattern in self.fresh.items():
            client = network.clients[identity]
            if client.is_connected and not client.is_suspended and client.wants.get(id) == pattern:
                self.watched[identity, id] = Monitor(pattern)

    def published(self, network: Network, client: SimClient, notification: Notification) -> None:
        assert client.home is not None
        assert notification.time is not None
        if not self.watched or (self.needs_advertisements and not is_advertised(client, notification)):
            return
        near = self.served(network, client.home)
        for subscriber, monitor in self.watched.items():
            if network.clients[subscriber[0]].home in near:
                sequences = monitor.on_notification(notification, notification.time)
                self.expected += [(subscriber, tuple(one.notification for one in found)) for found in sequences]

    def delivered(self, network: Network, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if isinstance(delivery, DeliverSequence) and (client.identity, delivery.subscription) in self.watched:
            self.found.append(((client.identity, delivery.subscription), delivery.notifications))

    def at_quiescence(self) -> None:
        for one in self.expected:
            if one not in self.found:
                raise ViolationError(f"{one[0]} did not get the sequence {one[1]!r}")
        for one in self.found:
            if one not in self.expected:
                raise ViolationError(f"{one[0]} got the sequence {one[1]!r}, which nobody who sees all would find")
        self.expected.clear()
        self.found.clear()
