"""Outlets: the sending side of a connection, as a node sees it.

Each host implements its own outlets: the live broker writes frames to a socket, the simulator has simulated links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from catchment.routing.durable.messages import Confirm, TakeEffect, TellLostLog
from catchment.routing.messages import BrokerMessage, Deliver, DeliverSequence, Gap, LinkMessage, Refuse, Routed
from catchment.routing.stored import Fetch, Persist


class ClientOutlet(Protocol):
    """The outlet to a client."""

    def deliver(self, delivery: Deliver) -> None:
        """Sends a delivery; LimitError if it is too long to be sent."""
        ...

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        """Sends a delivery; LimitError if it is too long to be sent."""
        ...

    def tell_lost(self, identity: str, count: int) -> None:
        """Tells the client that the broker has dropped `count` deliveries to the identity."""
        ...

    def tell_gap(self, gap: Gap) -> None:
        """Tells the client that notifications may be missing, because brokers have lost some."""
        ...

    def confirm(self, confirm: Confirm) -> None:
        """Tells a publisher what is kept."""
        ...

    def take_effect(self, effect: TakeEffect) -> None:
        """Tells the client that a durable subscription, edit or cancellation is known at the storages."""
        ...

    def tell_lost_log(self, lost: TellLostLog) -> None:
        """Tells the client that a storage has lost its log."""
        ...

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        """Answers the request or publication with this number. Without refusals the answer says that it is accepted."""
        ...

    def is_behind(self) -> bool:
        """Whether so much waits to be sent to the client that the broker must drop the next delivery."""
        ...

    def pause(self) -> None:
        """What the client says has to wait: the host should read nothing more from it until `resume`."""
        ...

    def resume(self) -> None: ...

    def end(self, reason: str) -> None:
        """Tells the client the reason and closes the connection."""
        ...


class StoreOutlet(Protocol):
    """The outlet to the broker's store. What the store answers, the host gives to `Node.store_said`."""

    def persist(self, persist: Persist) -> None:
        """Writes this, after all that it was given before."""
        ...

    def fetch(self, fetch: Fetch) -> None:
        """Reads this, when all that it was told to write before `fetch.upto` is written."""
        ...


class LinkOutlet(Protocol):
    """The outlet to a neighbor."""

    def send(self, message: BrokerMessage) -> None:
        """Sends a message; LimitError if it is too long to be sent."""
        ...

    def tell(self, message: LinkMessage) -> None:
        """Sends a message of this node to the node at the other end."""
        ...

    def forward(self, batch: Sequence[Routed], is_relayed: bool) -> int:
        """Sends notifications, in order. Returns in how many messages it has sent them."""
        ...

    def pause(self) -> None:
        """What the neighbor says has to wait: the host should read nothing more from it until `resume`."""
        ...

    def resume(self) -> None: ...

    def end(self, reason: str) -> None:
        """Tells the neighbor the reason and closes the link."""
        ...
