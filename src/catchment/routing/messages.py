"""What every routing system shares: interfaces, what clients ask, what a host tells a core, and the actions of a core.

Frozen values: a message may be kept, compared, sent to several interfaces, and encoded as it is. A core answers with
actions (`core.py`); it never sends by itself. What goes with every notification is left to reference counting alone
(`gc=False`): it cannot be part of a cycle.

    client to broker    ClientRequest: Subscribe, Unsubscribe, Cancel, Advertise, Unadvertise, MapIdentity, Suspend,
                        Resume
    host to core        HostMessage: LinkUp, LinkDown, ClientUp, ClientDown, TimerFired
    broker to broker    BrokerMessage: each routing system defines its own, in its package

Notifications are no messages: they come and go in batches (`RoutingCore.on_notifications`, `Forward`). On its way
between brokers a notification carries the header of the routing system.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.model.cesql import Cesql
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification

# Microseconds. Of the epoch in a live network, of the run in a simulation: a core only compares and adds.
Time = int
if TYPE_CHECKING:
    Wanted = Filter | Pattern | Cesql
else:

    class Wanted(ABC):  # noqa: B024 (registered for, not derived from)
        """What may be subscribed to. One class at run time, because that is what the wire decodes into."""

    for _kind in (Filter, Pattern, Cesql):
        Wanted.register(_kind)

SECOND: Final = 1_000_000


# --- interfaces: where messages come from and go to ---------------------------------------------


class Neighbor(Struct, frozen=True, order=True, gc=False):
    """An adjacent broker."""

    name: str

    def __str__(self) -> str:
        return self.name


class Client(Struct, frozen=True, order=True, gc=False):
    """A local connection of a client: SIENA's handler."""

    name: str

    def __str__(self) -> str:
        return f"client {self.name}"


class Host(Struct, frozen=True):
    """The host itself, which has fired a timer."""


Interface = Neighbor | Client | Host
HOST: Final = Host()


class Said(Struct, frozen=True, array_like=True, tag=True):
    """What travels between processes: as an array that begins with its name (`wire/`)."""


# --- client to broker ---------------------------------------------------------------------------


class Subscribe(Said, frozen=True):
    """The identity wants what matches; `id` names the subscription in deliveries and is unique to the identity."""

    identity: str
    id: str
    wanted: Wanted


class Unsubscribe(Said, frozen=True):
    """Cancels the identity's subscriptions that are covered by this (SIENA §3.8)."""

    identity: str
    wanted: Wanted


class Cancel(Said, frozen=True):
    """Cancels one subscription."""

    identity: str
    id: str


class Advertise(Said, frozen=True):
    identity: str
    advertisement: Advertisement


class Unadvertise(Said, frozen=True):
    """Cancels the identity's advertisements that are covered by this."""

    identity: str
    advertisement: Advertisement


class MapIdentity(Said, frozen=True):
    """Deliveries for the identity go to this client from now on."""

    identity: str
    handler: str


class Suspend(Said, frozen=True):
    """What the identity is due waits, in bounds, until it resumes."""

    identity: str


class Resume(Said, frozen=True):
    identity: str


ClientRequest = Subscribe | Unsubscribe | Cancel | Advertise | Unadvertise | MapIdentity | Suspend | Resume


# --- broker to broker ---------------------------------------------------------------------------


class BrokerMessage(Said, frozen=True):
    """What brokers say to each other. Each routing system derives its own messages from this.

    Measures count a message as control, unless it `carries_notifications`."""

    carries_notifications: ClassVar[bool] = False


# --- host to core -------------------------------------------------------------------------------


class LinkUp(Struct, frozen=True):
    """The neighbor can be reached, and knows nothing of what was said to it before."""

    cost: int = 1


class LinkDown(Struct, frozen=True):
    """The neighbor cannot be reached; what was under way to it may be lost."""


class ClientUp(Struct, frozen=True):
    """A client has connected. `seen` is, for each source, the last `$seq` that this identity was delivered, by this
    broker or by another: what it has had is not delivered again."""

    identity: str
    seen: Mapping[str, int] = {}


class ClientDown(Struct, frozen=True):
    """A client has gone, and what its identities wanted with it."""


class TimerFired(Struct, frozen=True):
    name: str


HostMessage = LinkUp | LinkDown | ClientUp | ClientDown | TimerFired
Message = ClientRequest | HostMessage | BrokerMessage


# --- notifications on their way -----------------------------------------------------------------


class Header(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """What a routing system writes on a notification. A system that needs more than this derives its own, without
    defaults: so a header of another system has the wrong length, and is refused.

    `hops` is the number of links that the notification has come. Every system counts it: loops end by it, and
    simulations measure it."""

    hops: int


# The header of a notification that a client has just published.
PUBLISHED: Final = Header(0)


class Routed(Struct, frozen=True, gc=False):
    """A notification with its header."""

    notification: Notification
    header: Header = PUBLISHED


def onward(routed: Routed) -> Routed:
    """The same one link further, for systems that need no header of their own."""
    return Routed(routed.notification, _further(routed.header.hops))


@lru_cache(256)
def _further(hops: int) -> Header:
    # Nearly all notifications come a few links: their headers are shared.
    return Header(hops + 1)


# --- actions ------------------------------------------------------------------------------------


class Send(Struct, frozen=True):
    interface: Neighbor
    message: BrokerMessage


class Forward(Struct, frozen=True, gc=False):
    """Notifications to a neighbor, in order. With `is_relayed` this broker only passes them on: it has not looked at
    what they say, so measures count a link but no hop between brokers that handle them."""

    interface: Neighbor
    batch: tuple[Routed, ...]
    is_relayed: bool = False


class Deliver(Struct, frozen=True, gc=False):
    """A notification to a client, with the identity's subscriptions that it matches, sorted."""

    client: Client
    identity: str
    notification: Notification
    subscriptions: tuple[str, ...]


class DeliverSequence(Struct, frozen=True, gc=False):
    """A sequence that completes a pattern."""

    client: Client
    identity: str
    notifications: tuple[Notification, ...]
    subscription: str


class Missed(Struct, frozen=True):
    """So many notifications for the identity were dropped because what waits for it is bounded."""

    client: Client
    identity: str
    count: int


class Keep(Struct, frozen=True, gc=False):
    """The broker keeps a notification that somebody wants: it waits for a suspended identity, or is the beginning of
    a sequence that is not complete. A host only counts it: such an arrival is not unwanted."""

    notification: Notification


class SetTimer(Struct, frozen=True):
    """Replaces a timer of the same name. A timer that `is_idle` (refresh, expiry) belongs to a network at rest: a
    network is quiescent when only idle timers are left."""

    name: str
    at: Time
    is_idle: bool = False


class Refuse(Struct, frozen=True):
    """What the source asked for cannot be done, and why; of notifications, which one."""

    source: Interface
    error: CatchmentError
    notification: Notification | None = None


Action = Send | Forward | Deliver | DeliverSequence | Missed | Keep | SetTimer | Refuse
