"""Flooding: subscriptions stay at their broker, and every notification goes to every broker.

State: the local clients, the neighbors, and the last number of each publisher. In a network with cycles, a broker
forwards only notifications that are new to it: their number is greater than the last one of their publisher. Brokers
send each other nothing but notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Never

from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    Forward,
    Interface,
    Neighbor,
    Routed,
    Time,
    onward,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher

# Publishers whose last number is kept. The publisher that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000


class FloodingCore(DispatchingCore[Never]):
    """A broker that forwards every notification to all its neighbors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients = ClientSide()
        self._neighbors: dict[Neighbor, None] = {}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self._neighbors[neighbor] = None
        return []

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        self._neighbors.pop(neighbor, None)
        return []

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [routed for routed in batch if self._newest.is_new(routed.notification)]
        if not fresh:
            return []
        self._matched += len(fresh)
        outgoing = tuple(map(onward, fresh))
        receivers = [neighbor for neighbor in sorted(self._neighbors) if neighbor != source]
        due = self.clients.due([routed.notification for routed in fresh], now)
        return due + [Forward(neighbor, outgoing) for neighbor in receivers]

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        return Inspection(tuple(self.clients.tables()), Work(self._matched, old=self._newest.old_count))

    def leftovers(self) -> list[str]:
        return self.clients.leftovers()
