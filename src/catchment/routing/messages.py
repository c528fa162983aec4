"""Everything that brokers and clients say, and everything that a host tells a core.

Frozen values: a message may be kept, compared, sent to several interfaces, and encoded as it is. A core answers with
actions (`core.py`); it never sends by itself. What goes with every notification is left to reference counting alone
(`gc=False`): it cannot be part of a cycle.

Who says what:

    client to broker    Subscribe, Unsubscribe, Cancel, Advertise, Unadvertise, MapIdentity, Suspend, Resume
    broker to broker    Interest, Advertised; Delegated, Part of patterns; Links, Wants, WantsChange of general
                        networks; Registration of centralized
    host to core        LinkUp, LinkDown, ClientUp, ClientDown, TimerFired

Notifications are no messages: they come and go in batches (`RoutingCore.on_notifications`, `Forward`).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from catchment.errors import CatchmentError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern

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
    """What travels between processes: as an array that begins with its name (`wire.py`)."""


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


# --- broker to broker ---------------------------------------------------------------------------


class Interest(Said, frozen=True):
    """What the sender wants to be sent: filters withdrawn and filters announced, as one change.

    One message, so that there is no moment between the two: what a withdrawn filter let through is let through
    still if one of the announced wants it."""

    withdrawn: tuple[Filter, ...] = ()
    announced: tuple[Filter, ...] = ()


class Advertised(Said, frozen=True):
    """What may come from the sender, or through it: advertisements withdrawn and announced, as one change."""

    withdrawn: tuple[Advertisement, ...] = ()
    announced: tuple[Advertisement, ...] = ()


class Delegated(Said, frozen=True):
    """Patterns that the sender wants thinned for it (SIENA §5.4.3), withdrawn and announced, and what it wants besides:
    one change. Each that is withdrawn is answered with a last `Part`. `ongoing` names those announced of which the
    sender may already have the first notifications."""

    withdrawn: tuple[Pattern, ...] = ()
    announced: tuple[Pattern, ...] = ()
    ongoing: tuple[Pattern, ...] = ()
    interest: Interest = Interest()


class Held(Struct, frozen=True, array_like=True):
    """A notification that was held back, for some filters of a pattern, by their places in it. `arrived` is when it
    came to the broker that held it first."""

    notification: Notification
    arrived: Time
    steps: tuple[int, ...]


class Part(Said, frozen=True):
    """What was held back of a delegated pattern, by time of publication; the last for one that was withdrawn."""

    pattern: Pattern
    held: tuple[Held, ...]
    is_last: bool = False


class Links(Said, frozen=True):
    """The links that `origin` has, with their costs, by name; one with a greater `seq` replaces it. Flooded."""

    origin: str
    seq: int
    costs: tuple[tuple[str, int], ...]


class Wants(Said, frozen=True):
    """All that the clients of `origin` want. Flooded."""

    origin: str
    seq: int
    filters: tuple[Filter, ...]


class WantsChange(Said, frozen=True):
    """What has changed in that since the record numbered `after`. Flooded."""

    origin: str
    seq: int
    after: int
    withdrawn: tuple[Filter, ...]
    announced: tuple[Filter, ...]


class Registration(Said, frozen=True):
    """What the clients of `origin` have asked for, carried to the center: all that stands if it `is_whole`, else what
    follows the registration with a `seq` of one less and the same `links_seq`, the number of the origin's links."""

    origin: str
    links_seq: int
    seq: int
    is_whole: bool
    requests: tuple[Subscribe | Cancel, ...]


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


Message = (
    Subscribe
    | Unsubscribe
    | Cancel
    | Advertise
    | Unadvertise
    | MapIdentity
    | Suspend
    | Resume
    | Interest
    | Advertised
    | Delegated
    | Part
    | Links
    | Wants
    | WantsChange
    | Registration
    | LinkUp
    | LinkDown
    | ClientUp
    | ClientDown
    | TimerFired
)


# --- notifications on their way -----------------------------------------------------------------


class Routed(Struct, frozen=True, array_like=True, gc=False):
    """A notification between brokers, with what the routing system writes on it: `origin` is the broker it was
    published at, `hops` how many links it has come. A copy for one client says which: its broker and identity."""

    notification: Notification
    origin: str = ""
    hops: int = 0
    addressee: tuple[str, str] | None = None


# --- actions ------------------------------------------------------------------------------------


class Send(Struct, frozen=True):
    interface: Neighbor
    message: Message


class Forward(Struct, frozen=True, gc=False):
    """Notifications to a neighbor, in order."""

    interface: Neighbor
    batch: tuple[Routed, ...]


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


class SetTimer(Struct, frozen=True):
    """Replaces a timer of the same name."""

    name: str
    at: Time


class Refuse(Struct, frozen=True):
    """What the source asked for cannot be done, and why; of notifications, which one."""

    source: Interface
    error: CatchmentError
    notification: Notification | None = None


Action = Send | Forward | Deliver | DeliverSequence | Missed | SetTimer | Refuse
