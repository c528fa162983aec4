"""The messages of a connection: its beginning and end, what a client and its broker say, batches between brokers.

What brokers say to each other besides is the routing system's (`routing/systems.py`). `states.py` says which message
may come when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.messages import (
    Beat,
    BrokerMessage,
    ClientSaid,
    Gap,
    Header,
    LinkReport,
    Parting,
    Routed,
    Said,
)

# --- beginning and end --------------------------------------------------------------------------


class Hello(Said, frozen=True):
    """The first message; the end that has connected sends it. `versions` are the lowest and the highest version of the
    protocol that it speaks."""

    versions: tuple[int, int]
    role: Literal["client", "broker"]
    # A client's identity, or a broker's name.
    name: str
    # Of a client: for each source, the number of the last notification that the client has been delivered. The broker
    # does not deliver that one or an earlier one again.
    seen: Mapping[str, int] = {}
    # Of a broker: the routing system of its network, and the cost of the link.
    routing: str = ""
    cost: int = 1
    # Of a broker: a process chooses a new one at each start. So a broker that has been started again can be told from
    # one that connects a second time.
    instance: str = ""
    agent: str = ""


class Welcome(Said, frozen=True):
    """The answer to a `Hello`: the version that both ends speak from now on, and, for a client, how many notifications
    it may publish before it is given more credit."""

    version: int
    name: str
    routing: str = ""
    cost: int = 1
    credit: int = 0
    instance: str = ""
    agent: str = ""
    # For a client: the broker's clock, in microseconds since 1970, and the last number (`$seq`) of this client that the
    # broker knows. A client whose numbers begin after both needs no clock of its own.
    now: int = 0
    last_seq: int | None = None


class Goodbye(Said, frozen=True):
    """The last message: why the connection ends. If `is_final`, connecting again with the same `Hello` will end for
    the same reason: do not retry."""

    reason: str
    is_final: bool = False


class Ping(Said, frozen=True):
    """Asks for a sign of life."""


class Pong(Said, frozen=True):
    """The answer to a `Ping`."""


# --- client to broker ---------------------------------------------------------------------------


class Request(Said, frozen=True):
    """The broker answers it with `Accepted` or `Refused` of the same number."""

    number: int
    body: ClientSaid


class Publish(Said, frozen=True):
    """Notifications, in order. If the number is not 0, the broker answers it like a request."""

    number: int
    notifications: tuple[Notification, ...]


class Look(Said, frozen=True):
    """Asks what the broker is doing; the broker answers with `Seen`. `explain` needs a notification: the broker says
    which subscriptions match it, which do not, and why."""

    number: int
    what: Literal["status", "explain"]
    notification: Notification | None = None


# --- broker to client ---------------------------------------------------------------------------


class Accepted(Said, frozen=True):
    """The broker has done what the request or publication of this number asked for."""

    number: int


class Refused(Said, frozen=True):
    """The broker has not done it. `number` is 0 for a notification whose publisher does not wait for an answer. If the
    broker refuses the number of a notification (`$seq`), the numbers greater than `after` are those to go on with."""

    number: int
    kind: str
    reason: str
    after: int | None = None


class Credit(Said, frozen=True):
    """The client may publish this many more notifications."""

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
    """The broker has dropped this many notifications for the identity, because the client reads too slowly or was
    suspended for too long."""

    identity: str
    count: int


class Seen(Said, frozen=True):
    """The answer to `Look`: plain values."""

    number: int
    report: Any


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


def between_brokers(messages: Iterable[type[BrokerMessage]], header: type[Header]) -> Any:
    """What two linked brokers of a routing system may say to each other, as a union of types."""
    batch: Any = Batch[header]  # type: ignore[valid-type]
    return reduce(or_, messages, Goodbye | Ping | Pong | LinkReport | Beat | Parting | Gap | batch)


# --- what does not travel -----------------------------------------------------------------------


class Unfit(Struct, frozen=True):
    """A `Request`, `Publish` or `Look` in a good frame whose content the model refuses. A decoder makes it; the broker
    answers it with `Refused`."""

    number: int
    # How many notifications a `Publish` had: none of them is published, and all of them count against the credit.
    notifications: int
    error: CatchmentError
