"""What routing systems are compared with, behind the same interface.

FloodingCore   subscriptions stay at their broker, every notification goes everywhere. In a network with cycles a
               broker passes on what it has not had before, by publisher and number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.errors import CatchmentError
from catchment.routing.messages import (
    Action,
    Client,
    ClientDown,
    ClientUp,
    Forward,
    Interface,
    LinkDown,
    LinkUp,
    Message,
    Neighbor,
    Refuse,
    Routed,
    Time,
)
from catchment.routing.newest import Newest
from catchment.routing.sessions import Request, Sessions

# Publishers whose last number is kept.
PUBLISHERS_MAX: Final = 100_000


class FloodingCore:
    """A broker that passes everything on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions = Sessions()
        self._neighbors: dict[Neighbor, None] = {}
        self._newest = Newest(PUBLISHERS_MAX)

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        if isinstance(message, Request):
            assert isinstance(source, Client)
            try:
                return self.sessions.request(message, source)
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
                self.sessions.client_up(source, message)
            case ClientDown():
                assert isinstance(source, Client)
                self.sessions.client_down(source)
            case _:
                pass
        return []

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [one for one in batch if self._newest.is_new(one.notification)]
        if not fresh:
            return []
        onward = tuple(Routed(one.notification, one.origin or self.name, one.hops + 1) for one in fresh)
        others = [one for one in sorted(self._neighbors) if one != source]
        due = self.sessions.due([one.notification for one in fresh], now)
        return due + [Forward(one, onward) for one in others]
