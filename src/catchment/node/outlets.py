"""The sending side of a connection, as a node sees it. Each host has its own: frames on a socket, or a simulated link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from catchment.routing.messages import BrokerMessage, Deliver, DeliverSequence, Refuse, Routed


class ClientOutlet(Protocol):
    """To a client."""

    def deliver(self, delivery: Deliver) -> None:
        """LimitError if it is too long to be sent."""
        ...

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        """LimitError if it is too long to be sent."""
        ...

    def tell_lost(self, identity: str, count: int) -> None:
        """So many notifications for the identity were dropped."""
        ...

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        """The answer to a request or publication: it is accepted if nothing is refused."""
        ...

    def is_behind(self) -> bool:
        """Whether so much waits to be sent that the client loses what comes now."""
        ...

    def end(self, reason: str) -> None:
        """Says goodbye and closes."""
        ...


class LinkOutlet(Protocol):
    """To a neighbor."""

    def send(self, message: BrokerMessage) -> None:
        """LimitError if it is too long to be sent."""
        ...

    def forward(self, batch: Sequence[Routed], is_relayed: bool) -> int:
        """Sends notifications, in order; in how many messages."""
        ...

    def end(self, reason: str) -> None:
        """Says goodbye and closes."""
        ...
