"""What brokers of a centralized network say, the header they write, and their settings."""

from __future__ import annotations

from catchment.routing.messages import BrokerMessage, BrokerName, Cancel, Header, Number, Subscribe
from catchment.routing.settings import Settings


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
