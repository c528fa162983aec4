"""Dispatch: each message that a core gets goes to a method of its own.

A core derives from `DispatchingCore` and writes the methods that it needs. By default the client side does what clients
ask for, and links and timers change nothing. Sources are checked here: a client asks, a neighbor speaks, and the host
tells of both. What a client asks for and cannot have, and what a neighbor may not say, is refused (`Refuse`): the
method raises a CatchmentError, and must not have changed anything before.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from catchment.errors import CatchmentError
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import ClientSide

M = TypeVar("M", bound=BrokerMessage)


class DispatchingCore(Generic[M]):
    """`M` is the union of the messages that brokers of the routing system send each other."""

    clients: ClientSide

    def on_message(self, message: ClientRequest | HostMessage | M, source: Interface, now: Time) -> list[Action]:
        match message:
            case TimerFired():
                return self._timer_fired(message.name, now)
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
                return []
            case ClientDown():
                assert isinstance(source, Client)
                return self._client_down(source, now)
        try:
            if isinstance(message, ClientRequest):
                assert isinstance(source, Client)
                return self._requested(message, source, now)
            assert isinstance(source, Neighbor)
            return self._from_neighbor(message, source, now)
        except CatchmentError as problem:
            return [Refuse(source, problem)]

    def _from_neighbor(self, message: LinkUp | LinkDown | M, source: Neighbor, now: Time) -> list[Action]:
        """The link to a neighbor has changed, or the neighbor says something."""
        match message:
            case LinkUp():
                return self._link_up(source, message.cost, now)
            case LinkDown():
                return self._link_down(source, now)
            case _:
                return self._heard(message, source, now)

    # --- what a core does ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        """A client asks for something."""
        return self.clients.request(message, source)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        """A client is gone."""
        self.clients.client_down(client)
        return []

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        return []

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return []

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        return []

    def _heard(self, message: M, source: Neighbor, now: Time) -> list[Action]:
        """A neighbor says something. The host lets through only what the routing system knows."""
        raise AssertionError(f"{type(message).__name__} is no message of this system")
