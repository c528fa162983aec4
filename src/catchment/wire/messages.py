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
from catchment.routing.durable.messages import BETWEEN_STORAGES, DurableRequest, Identity, LogId
from catchment.routing.messages import (
    Beat,
    BrokerMessage,
    ClientSaid,
    Gap,
    Header,
    LinkReport,
    Number,
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
    # Of a client with durable subscriptions: the number of its last session, and one more; 0 if it knows none. And how
    # far it has taken each log.
    session: Number = 0
    positions: Mapping[LogId, Number] = {}
    # Of a publisher: the storage that has, or may have, publications of it that are not settled. Empty if none has.
    storage: str = ""


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
    # For a client: the number of this session, and the storage that keeps what it publishes: the broker itself, or the
    # one that a broker without a disk names. Empty if there is none.
    session: Number = 0
    storage: str = ""


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
    body: ClientSaid | DurableRequest


class Publish(Said, frozen=True):
    """Notifications, in order. If the number is not 0, the broker answers it like a request."""

    number: int
    notifications: tuple[Notification, ...]


class PublishStored(Said, frozen=True):
    """Notifications of one source, in order, with numbers (`$seq`) that grow. The broker answers it like a request:
    `Accepted` says that they are on their way to the storage. `Confirmed` says that they are kept.

    `after` is the number of the source's last publication before the first of these that was to be stored; None if the
    storage has none. A storage that has not got that one does not take these: it refuses them, and says after which
    number to go on."""

    number: int
    notifications: tuple[Notification, ...]
    after: Number | None = None


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


class DurableDelivery(Said, frozen=True):
    """As `Delivery`, for a durable subscription: the record `epoch` of the log. `lost` is how many records before it
    the identity was due and will not get, because the storage has dropped them or found them damaged."""

    identity: str
    subscriptions: tuple[str, ...]
    notification: Notification
    log: LogId
    epoch: Number
    lost: Number = 0


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


class Confirmed(Said, frozen=True):
    """All publications of the source up to `seq` are kept by the storage, in its log: a power cut does not lose them.
    With `settled`, everybody who was due has taken them, and the publisher may go to another storage."""

    source: Identity
    seq: Number
    storage: str
    log: LogId
    settled: bool


class Effective(Said, frozen=True):
    """A durable subscription, an edit or a cancellation is known at all storages but those that are `missing`: these
    cannot be reached now, and learn of it when they can."""

    identity: str
    id: str
    missing: tuple[str, ...]


class LostLog(Said, frozen=True):
    """The storage has a new log. What it kept before, and the identity had not taken, is lost."""

    identity: str
    storage: str
    log: LogId


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
    """What two linked brokers of a routing system may say to each other, as a union of types. Durable delivery is the
    same under every routing system."""
    batch: Any = Batch[header]  # type: ignore[valid-type]
    kinds = dict.fromkeys((*messages, *BETWEEN_STORAGES))
    return reduce(or_, kinds, Goodbye | Ping | Pong | LinkReport | Beat | Parting | Gap | batch)


# --- what does not travel -----------------------------------------------------------------------


class Unfit(Struct, frozen=True):
    """A `Request`, `Publish`, `PublishStored` or `Look` in a good frame whose content the model refuses. A decoder
    makes it; the broker answers it with `Refused`."""

    number: int
    # How many notifications a publication had: none of them is published, and all of them count against the credit.
    notifications: int
    error: CatchmentError
