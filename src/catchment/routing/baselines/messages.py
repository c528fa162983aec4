"""What brokers of the baselines say, the headers they write, and their settings."""

from __future__ import annotations

from catchment.routing.messages import BrokerMessage, BrokerName, Cancel, Header, Number, Subscribe
from catchment.routing.parts.distance_vectors import INFINITY
from catchment.routing.settings import Settings

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
