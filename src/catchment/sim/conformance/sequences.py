"""Patterns in a network that is left to settle between publications: its sequences are those that somebody finds who
sees everything in the order of publication.

They are found by reading all publications from the beginning, again each time (`sequences_in`): the monitors of the
model are under test.

In flight the network may choose other notifications, as the order in which they arrive decides (SIENA §3.4); what it
delivers then is only checked to complete the pattern (`checkers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Deliver, DeliverSequence
from catchment.sim.conformance.checkers import Network, ViolationError, is_advertised
from catchment.sim.simulation import SimClient

# The identity and the id of a subscription.
Subscriber = tuple[str, str]


def sequences_in(pattern: Pattern, publications: Sequence[Notification]) -> list[tuple[Notification, ...]]:
    """The sequences that complete a pattern (SIENA §3.4), in the order in which they are completed.

    For each value of the attributes of `by` on its own: the first publication that matches the first filter begins a
    sequence; the first after it that matches the second goes on with it, and so on. What matches any filter and is too
    late for `within` ends a sequence that is begun, and may begin the next."""
    begun: dict[tuple[object, ...], list[Notification]] = {}
    complete: list[tuple[Notification, ...]] = []
    for notification in publications:
        values = [notification.matched.get(name) for name in pattern.by]
        if None in values or not any(filter.matches(notification) for filter in pattern.filters):
            continue
        # True and 1 are equal for Python, and two keys here.
        key = tuple((isinstance(value, bool), value) for value in values)
        sequence = begun.setdefault(key, [])
        if sequence and pattern.within is not None and _time(notification) - _time(sequence[0]) > pattern.within:
            sequence.clear()
        is_later = not sequence or _time(notification) > _time(sequence[-1])
        if is_later and pattern.filters[len(sequence)].matches(notification):
            sequence.append(notification)
        if len(sequence) == len(pattern.filters):
            complete.append(tuple(sequence))
            sequence.clear()
    return complete


def _time(notification: Notification) -> datetime:
    assert notification.time is not None
    return notification.time


@dataclass
class SequenceChecker:
    """`fresh` are patterns that were stated while nothing was under way, and nothing has happened since."""

    served: Callable[[Network, str], set[str]]
    needs_advertisements: bool = False
    fresh: dict[Subscriber, Pattern] = field(default_factory=dict)
    watched: dict[Subscriber, Pattern] = field(default_factory=dict)
    # For each watched pattern, what was published to its subscriber since, and the sequences that it got.
    _published: dict[Subscriber, list[Notification]] = field(default_factory=dict)
    _got: dict[Subscriber, list[tuple[Notification, ...]]] = field(default_factory=dict)

    def watch(self, network: Network) -> None:
        for (identity, id), pattern in self.fresh.items():
            client = network.clients[identity]
            is_there = client.is_connected and not client.is_suspended and not client.is_behind
            if is_there and client.wants.get(id) == pattern:
                self.watched[identity, id] = pattern
                self._published[identity, id], self._got[identity, id] = [], []

    def published(self, network: Network, client: SimClient, notification: Notification) -> None:
        assert client.home is not None
        if not self.watched or (self.needs_advertisements and not is_advertised(client, notification)):
            return
        near = self.served(network, client.home)
        for identity, id in self.watched:
            if network.clients[identity].home in near:
                self._published[identity, id].append(notification)

    def delivered(self, network: Network, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        if isinstance(delivery, DeliverSequence) and (client.identity, delivery.subscription) in self.watched:
            self._got[client.identity, delivery.subscription].append(delivery.notifications)

    def at_quiescence(self) -> None:
        for subscriber, pattern in self.watched.items():
            expected, got = sequences_in(pattern, self._published[subscriber]), self._got[subscriber]
            for sequence in expected:
                if sequence not in got:
                    raise ViolationError(f"{subscriber} did not get the sequence {sequence!r}")
            if got != expected:
                raise ViolationError(
                    f"{subscriber} got the sequences {got!r}, somebody who sees all finds {expected!r}"
                )
