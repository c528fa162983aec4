"""What brokers of the baselines say, the headers they write, and their settings.

centralized                                    Registration, AddressedHeader
unicast                                        Subscribed, ReceiverHeader
overlapping multicast                          Subscribed, TopicHeader
disjunctive multicast                          Subscribed, Channels, ChannelHeader
dvmrp                                          Prune, Graft
"""

from __future__ import annotations

from catchment.routing.messages import BrokerMessage, BrokerName, Cancel, Header, Number, Subscribe, Wanted
from catchment.routing.parts.distance_vectors import INFINITY
from catchment.routing.settings import Settings

# An identity, and the id of one of its subscriptions.
SubscriptionKey = tuple[str, str]


# --- centralized --------------------------------------------------------------------------------


class Registration(BrokerMessage, frozen=True):
    """Requests of the clients of `origin`, on the way to the center. If it `is_whole`, it has all subscriptions of
    these clients. Otherwise it has what has changed since the registration with the same `links_seq` and a `seq` that
    is one less. `links_seq` is the number of the origin's last record of links."""

    origin: BrokerName
    links_seq: Number
    seq: Number
    is_whole: bool
    requests: tuple[Subscribe | Cancel, ...]


class CentralizedSettings(Settings, frozen=True):
    """`center` is the name of the broker that matches all notifications."""

    center: str


class AddressedHeader(Header, frozen=True, gc=False):
    """`addressee` says whom a copy is for, as broker and identity. It is None on the way to the center."""

    addressee: tuple[BrokerName, str] | None


# --- unicast, multicast -------------------------------------------------------------------------


class Subscribed(BrokerMessage, frozen=True):
    """Subscriptions of the clients of `origin`, each with its identity and id: all of them if `after` is None, else
    what has changed since the record numbered `after`. Brokers flood it (`parts/records.py`)."""

    origin: BrokerName
    seq: Number
    after: Number | None
    gone: tuple[SubscriptionKey, ...]
    new: tuple[tuple[SubscriptionKey, Wanted], ...]


class ReceiverHeader(Header, frozen=True, gc=False):
    """A copy for one client: `identity` at the broker `broker`."""

    broker: BrokerName
    identity: str


class TopicHeader(Header, frozen=True, gc=False):
    """A copy for all that subscribed to one topic. It travels down the tree of `origin`, where it was published."""

    origin: BrokerName
    topic: Number


class Channels(BrokerMessage, frozen=True):
    """The channels that `origin` publishes on, each a number with the topics it is for: all of them if `after` is None,
    else what has changed since the record numbered `after`. Brokers flood it (`parts/records.py`)."""

    origin: BrokerName
    seq: Number
    after: Number | None
    gone: tuple[Number, ...]
    new: tuple[tuple[Number, tuple[Number, ...]], ...]


class ChannelHeader(Header, frozen=True, gc=False):
    """The one copy for all that subscribed to any topic of a channel. It travels down the tree of `origin`."""

    origin: BrokerName
    channel: Number


# --- DVMRP --------------------------------------------------------------------------------------


class Prune(BrokerMessage, frozen=True):
    """Nobody behind the sender subscribes to anything: it wants nothing that is published at `publisher`."""

    publisher: BrokerName


class Graft(BrokerMessage, frozen=True):
    """Cancels the `Prune` of the sender."""

    publisher: BrokerName


class DvmrpSettings(Settings, frozen=True):
    """A `prune_timeout_s` of 0 means that prunes do not expire."""

    infinity: int = INFINITY
    prune_timeout_s: float = 0.0
