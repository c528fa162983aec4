"""The messages of durable delivery: what clients ask for and are told, and what storages and brokers say to each other.

A *storage* is a broker with a store. Its *log* is the sequence of its records, which have epochs 1, 2, 3, … A client
has a *position* in each log: it has taken all that it is due up to there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from catchment.model.notification import Notification
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.messages import BrokerMessage, BrokerName, Client, Number, Said, Time, Wanted
from catchment.routing.parts.link_states import Links

# The id of a log: 16 bytes, at random, in hexadecimal.
LOG_ID_CODEPOINTS: Final = 32
# Logs that a client may have a position in: each storage of the network has one.
POSITIONS_MAX: Final = 1_000

# Notifications that one span may have: more than a frame holds.
ENTRIES_MAX: Final = 1_000_000

LogId = Annotated[str, Meta(min_length=1, max_length=LOG_ID_CODEPOINTS)]
Identity = Annotated[str, Meta(min_length=1, max_length=IDENTITY_CODEPOINTS_MAX)]

# --- client to broker: requests, which are answered ---------------------------------------------


class SubscribeDurable(Said, frozen=True):
    """As `Subscribe`, but nothing is missed while the client is away. The same id again with another filter edits the
    subscription: what was published before goes by the old filter, what comes later by the new one. `via` names a
    relay. With `is_group`, several clients may share the notifications of the identity (`Join`)."""

    identity: str
    id: str
    wanted: Wanted
    via: str = ""
    is_group: bool = False


class CancelDurable(Said, frozen=True):
    """Cancels the durable subscription that has this id. What was published before is still delivered."""

    identity: str
    id: str


class Join(Said, frozen=True):
    """The client takes part in a group: each notification of the identity goes to one of its members."""

    identity: str


class Leave(Said, frozen=True):
    """Ends `Join`. What the client has not taken goes to the other members."""

    identity: str


class Rewind(Said, frozen=True):
    """Goes back to records that were acknowledged and are still kept: in one log to just after `epoch`, or in all logs
    to what was published at `since` or later."""

    identity: str
    log: str = ""
    epoch: Number = 0
    since: Number | None = None


class Forget(Said, frozen=True):
    """The identity will never come back: all storages forget it and what it is due."""

    identity: str


DurableRequest = SubscribeDurable | CancelDurable | Join | Leave | Rewind | Forget

# --- client to broker: not answered -------------------------------------------------------------


class Taken(Said, frozen=True):
    """The application has taken all deliveries of this log up to `epoch`."""

    identity: str
    log: LogId
    epoch: Number


# --- what the core tells clients: actions -------------------------------------------------------


class Confirm(Struct, frozen=True):
    """All publications of the source up to `seq` are kept by the storage. With `settled`, all of them have been taken
    by everybody who was due: the publisher may go to another storage."""

    client: Client
    source: str
    seq: int
    storage: str
    log: str
    settled: bool


class TakeEffect(Struct, frozen=True):
    """A durable subscription, edit or cancellation is known at all storages but those that are `missing` now."""

    client: Client
    identity: str
    id: str
    missing: tuple[str, ...]


class TellLostLog(Struct, frozen=True):
    """The storage has a new log: what it kept before and the identity had not taken is lost."""

    client: Client
    identity: str
    storage: str
    log: str


DurableAction = Confirm | TakeEffect | TellLostLog

# --- broker to broker ---------------------------------------------------------------------------

# Links that a message to one broker may cross: more than any path has. While brokers disagree about the paths, a
# message may go in circles.
DIRECTED_HOPS_MAX: Final = 1_000
Hops = Annotated[int, Meta(ge=0, le=2 * DIRECTED_HOPS_MAX)]


class Durable(BrokerMessage, frozen=True):
    """A durable subscription, or that it is cancelled. Flooded; the greater version wins."""

    identity: Identity
    id: Identity
    version: Number
    wanted: Wanted | None
    by: BrokerName
    via: str = ""
    is_group: bool = False


class Place(BrokerMessage, frozen=True):
    """Where an identity is served now. Flooded; the greater session wins. `positions` is what the client says it has
    taken. It goes back (`Rewind`) in the logs of `back` to these positions, or in all logs to what was published at
    `since` or later."""

    identity: Identity
    session: Number
    broker: BrokerName | None
    positions: Mapping[LogId, Number] = {}
    back: Mapping[LogId, Number] = {}
    since: Number | None = None


class Share(Struct, frozen=True, array_like=True):
    """What one identity gets of a span: of the log, in (after, upto], exactly these entries, by their place in the span
    and with the ids of its subscriptions. `lost` is how many more there were. `floor` is what the identity has
    acknowledged: who knows no position begins there. A share with `after` equal to `upto` asks how far the identity
    is."""

    identity: Identity
    session: Number
    after: Number
    upto: Number
    entries: tuple[tuple[Annotated[int, Meta(ge=0, le=ENTRIES_MAX)], tuple[str, ...]], ...]
    lost: Number = 0
    floor: Number = 0


class Span(BrokerMessage, frozen=True):
    """A piece of a log, for identities at some brokers: for each of those brokers, the shares of its identities. A
    broker on the way sends one copy to each neighbor that leads to some of them."""

    carries_notifications = True

    storage: BrokerName
    log: LogId
    # Epochs and notifications.
    entries: tuple[tuple[Number, Notification], ...]
    shares: tuple[tuple[BrokerName, tuple[Share, ...]], ...]
    hops: Hops = 0


class At(BrokerMessage, frozen=True):
    """To a storage: the identity has everything of the log up to `position`. With `again`: send what follows anew."""

    storage: BrokerName
    log: LogId
    identity: Identity
    session: Number
    position: Number
    again: bool = False
    hops: Hops = 0


class Offer(BrokerMessage, frozen=True):
    """To a storage: publications of a source whose publisher is at another broker, `by`. The number of each follows
    that of the one before; `after` is that before the first, None if the publisher has stored none here before. Without
    notifications it asks what is kept. Unless it `is_stored`, nobody waits to hear that it is kept."""

    storage: BrokerName
    by: BrokerName
    source: Identity
    after: Number | None
    notifications: tuple[Notification, ...]
    is_stored: bool = True
    hops: Hops = 0


class Kept(BrokerMessage, frozen=True):
    """From a storage to the broker of a publisher: see `Confirm`. With `again`: there was a gap, offer anew what
    follows `last`, the last number that the storage has accepted. With `refusal` the storage takes nothing now."""

    by: BrokerName
    storage: BrokerName
    log: LogId
    source: Identity
    seq: Number
    settled: bool
    again: bool = False
    last: Number = 0
    refusal: str = ""
    hops: Hops = 0


class Knows(BrokerMessage, frozen=True):
    """From a storage to the broker that was asked: it has stored this version of a durable subscription."""

    by: BrokerName
    storage: BrokerName
    identity: Identity
    id: Identity
    version: Number
    hops: Hops = 0


class Ask(BrokerMessage, frozen=True):
    """To a storage: say `Knows` again, if you have stored this version or a later one."""

    storage: BrokerName
    by: BrokerName
    identity: Identity
    id: Identity
    version: Number
    hops: Hops = 0


class Reach(Links, frozen=True):
    """The links of a broker, and the id of its log; empty if it has no store."""

    log: Annotated[str, Meta(max_length=LOG_ID_CODEPOINTS)] = ""


# What brokers say to each other besides the messages of their routing system.
BETWEEN_STORAGES: Final[tuple[type[BrokerMessage], ...]] = (Reach, Durable, Place, Span, At, Offer, Kept, Knows, Ask)
# Of these, what goes to one broker, or with `Span` to several.
Directed = Span | At | Offer | Kept | Knows | Ask


def session_after(last: int, now: Time) -> int:
    """The number of a client's next session: greater than the last, and than those of a process that forgot it."""
    return max(last + 1, now)
