"""What every routing system shares: interfaces, requests of clients, what a host tells a core, the actions of a core.

All of these are frozen values: a message may be kept, compared, sent to several interfaces, and encoded as it is. A
core answers a message with actions (`core.py`); it never sends anything itself.

The structs that exist once for each notification have `gc=False`: they cannot be part of a reference cycle, so Python's
cycle collector need not look at them.

    client to broker    ClientRequest: Subscribe, Unsubscribe, Cancel, Advertise, Unadvertise, MapIdentity, Suspend,
                        Resume; and CancelMany, which a node makes of some of them
    host to core        HostMessage: LinkUp, LinkDown, ClientUp, ClientDown, TimerFired
    broker to broker    BrokerMessage: each routing system defines its own, in its package
                        LinkMessage: what the nodes at the ends of a link say, whatever the routing system

A notification is not a message. Notifications come and go in batches (`RoutingCore.on_notifications`, `Forward`). On
its way between brokers a notification carries the header of the routing system.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta, Struct

from catchment.errors import CatchmentError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX, Pattern

# Microseconds: since 1970 in a live network, since the start of the run in a simulation. A core only compares and adds.
Time = int
if TYPE_CHECKING:
    from catchment.routing.durable.messages import DurableAction
    from catchment.routing.stored import StoreAction

    Wanted = Filter | Pattern | Cesql
else:

    class Wanted(ABC):  # noqa: B024 (registered for, not derived from)
        """What a client may subscribe to. At run time this is a class, not a union: the wire decodes into a class."""

    for _wanted_type in (Filter, Pattern, Cesql):
        Wanted.register(_wanted_type)

SECOND: Final = 1_000_000


def instant_of(time: Time) -> datetime:
    """A time of a live network."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=min(time, _LAST_INSTANT))


_LAST_INSTANT: Final = int((datetime.max.replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)).total_seconds()) * SECOND

# --- the range of what neighbors say ------------------------------------------------------------
# The wire checks these ranges when it reads a message; a neighbor that leaves them loses its link.

# Numbers of records, times and counts: a broker may add to any of them, and the sum still fits 64 bits.
NUMBER_MAX: Final = 2**62
# Costs along a path are added: over a million links of this cost the sum is still far from 64 bits.
LINK_COST_MAX: Final = 1_000_000
# Links that a notification may have crossed: more than any network has. A node drops what has crossed more.
HOPS_MOST: Final = 10_000
# What a header may say. It is more than HOPS_MOST: a broker that passes a notification on is never the one at fault.
HOPS_RANGE: Final = 2**31

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
LinkCost = Annotated[int, Meta(ge=1, le=LINK_COST_MAX)]
# As `model/names.py` says: `@` begins the names of what is inside a broker, `*` stands for all, and a line end in a
# name could forge a line of a log.
BrokerName = Annotated[
    str,
    Meta(
        min_length=1, max_length=IDENTITY_CODEPOINTS_MAX, pattern=r"^(?!@)(?!\*\Z)[^\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z"
    ),
]


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
    """The host itself: the source of `TimerFired`."""


Interface = Neighbor | Client | Host
HOST: Final = Host()


class Said(Struct, frozen=True, array_like=True, tag=True):
    """The base of all messages between processes. The wire encodes one as an array that begins with its class name."""


# --- client to broker ---------------------------------------------------------------------------


class Subscribe(Said, frozen=True):
    """The identity wants all notifications that match `wanted`. `id` names the subscription in deliveries; no two
    subscriptions of one identity have the same id."""

    identity: str
    id: str
    wanted: Wanted


class Unsubscribe(Said, frozen=True):
    """Cancels all subscriptions of the identity that `wanted` covers (SIENA §3.8)."""

    identity: str
    wanted: Wanted


class Cancel(Said, frozen=True):
    """Cancels the one subscription that has this id."""

    identity: str
    id: str


class Advertise(Said, frozen=True):
    """The identity may publish all notifications that match the advertisement."""

    identity: str
    advertisement: Advertisement


class Unadvertise(Said, frozen=True):
    """Cancels all advertisements of the identity that this one covers."""

    identity: str
    advertisement: Advertisement


class MapIdentity(Said, frozen=True):
    """From now on, deliveries for the identity go to the client named `handler`."""

    identity: str
    handler: str


class Suspend(Said, frozen=True):
    """The broker keeps deliveries for the identity until it resumes. How many it keeps is bounded."""

    identity: str


class Resume(Said, frozen=True):
    """Ends `Suspend`: the broker delivers what has waited."""

    identity: str


class CancelMany(Struct, frozen=True):
    """Cancels the subscriptions that have these ids, some of many: a node cuts large work into such slices (`jobs.py`).
    With `is_ending` the identity is going, and all its other subscriptions will be cancelled too. Those in `going` will
    be in any case: what they want need not be stated again. No client says it."""

    identity: str
    ids: tuple[str, ...]
    is_ending: bool = False
    going: frozenset[str] = frozenset()


# What clients say, and what a core is asked in their name.
ClientSaid = Subscribe | Unsubscribe | Cancel | Advertise | Unadvertise | MapIdentity | Suspend | Resume
ClientRequest = ClientSaid | CancelMany


# --- broker to broker ---------------------------------------------------------------------------


class BrokerMessage(Said, frozen=True):
    """What brokers say to each other. Each routing system derives its own messages from this.

    Measures count a message as control, unless it `carries_notifications`."""

    carries_notifications: ClassVar[bool] = False

    def parts(self) -> Sequence[BrokerMessage]:
        """Messages that say the same when they are said one after the other. A node sends these, so that no message is
        long to read and to handle. Whoever has heard only the first of them wants and offers no less than before the
        first, or after the last."""
        return (self,)


class LinkMessage(Said, frozen=True):
    """What the nodes at the two ends of a link say to each other about what may be lost (`node/gaps.py`)."""


class LinkReport(LinkMessage, frozen=True):
    """The first message of each end when a link has come up. `incarnation` is the sender's: each process of a broker
    has another. `known` is that of the receiver when they had a link before, 0 if they had none; over that link the
    sender had `sent` and `heard` so many notifications."""

    incarnation: Number
    known: Number
    sent: Number
    heard: Number


class Beat(LinkMessage, frozen=True):
    """By the time `at` the sender had sent so many notifications over this link: all of them are before this message.
    `echo` is the time of the last beat that it has heard."""

    at: Number
    sent: Number
    echo: Number


class Parting(LinkMessage, frozen=True):
    """The sender's process ends, and has sent all that it had. `is_alone`: it has no other neighbor, so nothing can
    come from behind it."""

    at: Number
    is_alone: bool


class Gap(LinkMessage, frozen=True):
    """Notifications that were published from `since` until `until` may be missing: the link between the two brokers
    `link` failed. `until` is 0 while it is not over. `missed` is how many notifications the link has lost, of whoever,
    if that is known. Clients are told gaps too. A greater `revision` replaces a gap of the same id."""

    id: Annotated[str, Meta(min_length=1, max_length=2 * IDENTITY_CODEPOINTS_MAX)]
    revision: Number
    link: tuple[BrokerName, BrokerName]
    since: Number
    until: Number
    missed: Number | None = None


# --- host to core -------------------------------------------------------------------------------


class LinkUp(Struct, frozen=True):
    """The link to the neighbor works. The neighbor has forgotten everything that this broker told it before."""

    cost: int = 1


class LinkDown(Struct, frozen=True):
    """The link to the neighbor has failed. Messages that were under way may be lost."""


class ClientUp(Struct, frozen=True):
    """A client has connected. `seen` has, for each source, the last `$seq` that the identity has received, from this
    broker or from another. The broker does not deliver those notifications again.

    The rest is for durable delivery (`routing/durable/`). `session` is greater than those of the identity's earlier
    connections, 0 if the client leaves that to the broker. `positions` has, by log, what the application has taken.
    `storage` names where the client's publications are that may not have been taken by everybody; empty if all were."""

    identity: str
    seen: Mapping[str, int] = {}
    session: int = 0
    positions: Mapping[str, int] = {}
    storage: str = ""


class ClientDown(Struct, frozen=True):
    """A client has gone. The subscriptions and advertisements of its identities end."""


class TimerFired(Struct, frozen=True):
    """The time of a timer that the core set (`SetTimer`) has come."""

    name: str


HostMessage = LinkUp | LinkDown | ClientUp | ClientDown | TimerFired
Message = ClientRequest | HostMessage | BrokerMessage


# --- notifications on their way -----------------------------------------------------------------


class Header(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """What a routing system writes on a notification. A system that needs more fields derives its own header. The
    fields have no defaults: so the header of another system has the wrong length, and the wire refuses it.

    `hops` is the number of links that the notification has crossed. Every system counts hops: a core drops what has
    crossed too many, which ends loops, and simulations measure hops."""

    hops: Annotated[int, Meta(ge=0, le=HOPS_RANGE)]


# The header of a notification that a client has just published.
PUBLISHED: Final = Header(0)


class Routed(Struct, frozen=True, gc=False):
    """A notification with its header."""

    notification: Notification
    header: Header = PUBLISHED


def onward(routed: Routed) -> Routed:
    """The notification as it is sent over the next link, for systems that have no header of their own."""
    return Routed(routed.notification, _further(routed.header.hops))


@lru_cache(256)
def _further(hops: int) -> Header:
    # Few different numbers of hops occur, so notifications share a few header objects.
    return Header(hops + 1)


# --- actions ------------------------------------------------------------------------------------


class Send(Struct, frozen=True):
    """A message to a neighbor."""

    interface: Neighbor
    message: BrokerMessage


class Forward(Struct, frozen=True, gc=False):
    """Notifications to a neighbor, in order. With `is_relayed` this broker has only passed them on, without looking at
    their content. Measures then count a link, but not a broker that handled the notification."""

    interface: Neighbor
    batch: tuple[Routed, ...]
    is_relayed: bool = False


class Deliver(Struct, frozen=True, gc=False):
    """A notification to a client, with the ids of the identity's subscriptions that it matches, sorted. If it comes
    from a log (durable delivery), `log` and `epoch` say where it stands there, and `lost` how many before it are
    lost."""

    client: Client
    identity: str
    notification: Notification
    subscriptions: tuple[str, ...]
    log: str = ""
    epoch: int = 0
    lost: int = 0


class DeliverSequence(Struct, frozen=True, gc=False):
    """A sequence of notifications that matches a pattern, to a client."""

    client: Client
    identity: str
    notifications: tuple[Notification, ...]
    subscription: str


class Missed(Struct, frozen=True):
    """The core has dropped `count` deliveries to the identity, because a core keeps only so much for one identity."""

    client: Client
    identity: str
    count: int


class Keep(Struct, frozen=True, gc=False):
    """The broker keeps a notification that somebody wants: for a suspended identity, or as the beginning of a sequence
    that is not complete. The host does nothing, but does not count the notification as unwanted."""

    notification: Notification


class SetTimer(Struct, frozen=True):
    """Sets a timer; it replaces the timer of the same name. An idle timer (refresh, expiry) keeps running in a network
    at rest: a network is quiescent when only idle timers are left."""

    name: str
    at: Time
    is_idle: bool = False


class Refuse(Struct, frozen=True):
    """The core does not do what the source asked for; `error` says why. If the source published several notifications,
    `notification` is the one that is refused."""

    source: Interface
    error: CatchmentError
    notification: Notification | None = None


RoutingAction = Send | Forward | Deliver | DeliverSequence | Missed | Keep | SetTimer | Refuse
# With what only a durable core does. The modules of the other two import this one, so at run time it is a text.
Action: TypeAlias = "RoutingAction | StoreAction | DurableAction"
