"""Flooding: subscriptions stay at their broker, and every notification goes to every broker.

State: the local clients, the neighbors, and the last number of each publisher. In a network with cycles, a broker
forwards only notifications that are new to it: their number is greater than the last one of their publisher. Brokers
send each other nothing but notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from catchment.errors import CatchmentError
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Forward,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Time,
    TimerFired,
    onward,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher

# Publishers whose last number is kept. The publisher that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000


class FloodingCore:
    """A broker that forwards every notification to all its neighbors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients = ClientSide()
        self._neighbors: dict[Neighbor, None] = {}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    def on_message(self, message: ClientRequest | HostMessage, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, ClientRequest):
            assert isinstance(source, Client)
            try:
                return self.clients.request(message, source)
            except CatchmentError as problem:
                return [Refuse(source, problem)]
        match message:
            case LinkUp():
                assert isinstance(source, Neighbor)
                self._neighbors[source] = None
            case LinkDown():
                assert isinstance(source, Neighbor)
                self._neighbors.pop(source, None)
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
            case ClientDown():
                assert isinstance(source, Client)
                self.clients.client_down(source)
            case TimerFired():
                pass
            case _:
                assert_never(message)
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
