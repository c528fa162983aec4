"""The messages of a connection: its beginning and end, what a client and its broker say, batches between brokers.

What brokers say to each other besides is the routing system's (`routing/systems.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.messages import BrokerMessage, ClientRequest, Header, Routed, Said

# --- beginning and end --------------------------------------------------------------------------


class Hello(Said, frozen=True):
    """The first message of who has connected. `versions` are the lowest and the highest that it speaks."""

    versions: tuple[int, int]
    role: Literal["client", "broker"]
    # A client's identity, or a broker's name.
    name: str
    # Of a client: what it has been delivered, by source the last number. It is not delivered again.
    seen: Mapping[str, int] = {}
    # Of a broker: the routing system of its network, and what the link costs.
    routing: str = ""
    cost: int = 1
    # Other after each start of the process: tells a broker that came back from one that connects a second time.
    instance: str = ""
    agent: str = ""


class Welcome(Said, frozen=True):
    """The answer: the version that is spoken from here on, and, to a client, how much it may publish at once."""

    version: int
    name: str
    routing: str = ""
    cost: int = 1
    credit: int = 0
    instance: str = ""
    agent: str = ""


class Goodbye(Said, frozen=True):
    """The last message; why the connection ends. Who connects again after one that `is_final` has the same again."""

    reason: str
    is_final: bool = False


class Ping(Said, frozen=True):
    pass


class Pong(Said, frozen=True):
    pass


# --- client to broker ---------------------------------------------------------------------------


class Request(Said, frozen=True):
    """Answered with `Accepted` or `Refused` of the same number."""

    number: int
    body: ClientRequest


class Publish(Said, frozen=True):
    """Notifications, in order. With a number other than 0 it is answered as a request."""

    number: int
    notifications: tuple[Notification, ...]


class Look(Said, frozen=True):
    """Asks what a broker is doing; answered with `Seen`. `explain` has a notification and says why what matches it
    and what does not."""

    number: int
    what: Literal["status", "explain"]
    notification: Notification | None = None


# --- broker to client ---------------------------------------------------------------------------


class Accepted(Said, frozen=True):
    number: int


class Refused(Said, frozen=True):
    """`number` is 0 for a notification that nobody waits for the answer of."""

    number: int
    kind: str
    reason: str


class Credit(Said, frozen=True):
    """So many notifications more may be published."""

    notifications: int


class Delivery(Said, frozen=True):
    """A notification, and the ids of the identity's subscriptions that it matches."""

    identity: str
    subscriptions: tuple[str, ...]
    notification: Notification


class SequenceDelivery(Said, frozen=True):
    """A sequence that completes a pattern."""

    identity: str
    subscription: str
    notifications: tuple[Notification, ...]


class Lost(Said, frozen=True):
    """So many notifications for the identity were dropped: it is slow, or was suspended for long."""

    identity: str
    count: int


class Seen(Said, frozen=True):
    """The answer to `Look`."""

    number: int
    found: Any


# --- broker to broker ---------------------------------------------------------------------------

H = TypeVar("H", bound=Header)


class Parcel(Struct, Generic[H], frozen=True, array_like=True):
    """Notifications that follow one another and have the same header."""

    header: H
    notifications: tuple[Notification, ...]


class Batch(Said, Generic[H], frozen=True):
    """Notifications on their way, in order."""

    parcels: tuple[Parcel[H], ...]

    def routed(self) -> list[Routed]:
        return [Routed(notification, parcel.header) for parcel in self.parcels for notification in parcel.notifications]


class Unfit(Struct, frozen=True):
    """What a client has asked for in a good frame and cannot be had. It does not travel: a decoder finds it."""

    number: int
    # So many were to be published: none was.
    notifications: int
    error: CatchmentError


ToBroker = Hello | Goodbye | Ping | Pong | Request | Publish | Look
ToClient = Welcome | Goodbye | Ping | Pong | Accepted | Refused | Credit | Delivery | SequenceDelivery | Lost | Seen
# What may come over a connection before it is known who it is; what a broker that has connected may be answered with.
Beginning = Hello | Goodbye
Answer = Welcome | Goodbye


def between_brokers(messages: Iterable[type[BrokerMessage]], header: type[Header]) -> Any:
    """What two brokers of a routing system may say to each other once they are welcome."""
    batch: Any = Batch[header]  # type: ignore[valid-type]
    return reduce(or_, messages, Goodbye | Ping | Pong | batch)
