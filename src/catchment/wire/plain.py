"""Messages that carry notifications, as msgspec alone reads them.

Nearly all notifications are plain (`model/packed.py`). Messages that carry only plain notifications are read as the
types here, in one call of msgspec. Whatever does not fit them is read again, slowly, by way of the model.
"""

from __future__ import annotations

from typing import Any, Final, Generic, get_args, get_origin

from msgspec import Raw, Struct

from catchment.model.packed import PlainNotification, plain_of_raw
from catchment.routing.durable.messages import Hops, Identity, LogId, Offer, Share, Span
from catchment.routing.messages import BrokerName, Number
from catchment.wire.messages import Batch, Delivery, DurableDelivery, H, Parcel, Publish, PublishStored


class _PlainPublish(Struct, array_like=True, tag="Publish", gc=False):
    number: int
    notifications: list[Raw]

    def message(self) -> Publish:
        return Publish(self.number, tuple(map(plain_of_raw, self.notifications)))


class _PlainDelivery(Struct, array_like=True, tag="Delivery", gc=False):
    identity: str
    subscriptions: tuple[str, ...]
    notification: PlainNotification

    def message(self) -> Delivery:
        return Delivery(self.identity, self.subscriptions, self.notification.notification())


class _PlainPublishStored(Struct, array_like=True, tag="PublishStored", gc=False):
    number: int
    notifications: list[Raw]
    after: Number | None = None

    def message(self) -> PublishStored:
        return PublishStored(self.number, tuple(map(plain_of_raw, self.notifications)), self.after)


class _PlainDurableDelivery(Struct, array_like=True, tag="DurableDelivery", gc=False):
    identity: str
    subscriptions: tuple[str, ...]
    notification: PlainNotification
    log: LogId
    epoch: Number
    lost: Number = 0

    def message(self) -> DurableDelivery:
        notification = self.notification.notification()
        return DurableDelivery(self.identity, self.subscriptions, notification, self.log, self.epoch, self.lost)


class _PlainSpan(Struct, array_like=True, tag="Span", gc=False):
    storage: BrokerName
    log: LogId
    entries: list[tuple[Number, Raw]]
    shares: tuple[tuple[BrokerName, tuple[Share, ...]], ...]
    hops: Hops = 0

    def message(self) -> Span:
        entries = tuple([(epoch, plain_of_raw(raw)) for epoch, raw in self.entries])
        return Span(self.storage, self.log, entries, self.shares, self.hops)


class _PlainOffer(Struct, array_like=True, tag="Offer", gc=False):
    storage: BrokerName
    by: BrokerName
    source: Identity
    after: Number | None
    notifications: list[Raw]
    is_stored: bool = True
    hops: Hops = 0

    def message(self) -> Offer:
        notifications = tuple(map(plain_of_raw, self.notifications))
        return Offer(self.storage, self.by, self.source, self.after, notifications, self.is_stored, self.hops)


class _PlainParcel(Struct, Generic[H], array_like=True, gc=False):
    header: H
    notifications: list[Raw]


class _PlainBatch(Struct, Generic[H], array_like=True, tag="Batch", gc=False):
    parcels: list[_PlainParcel[H]]

    def message(self) -> Batch[H]:
        return Batch(
            tuple([Parcel(each.header, tuple(map(plain_of_raw, each.notifications))) for each in self.parcels])
        )


def plain_kind(kind: Any) -> Any:
    """The type that the usual messages of a kind are read as."""
    if get_origin(kind) is Batch:
        header: Any = get_args(kind)[0]
        batch: Any = _PlainBatch
        return batch[header]
    return _PLAIN_BY_KIND.get(kind, kind)


_PLAIN_BY_KIND: Final[dict[type, type]] = {
    Publish: _PlainPublish,
    Delivery: _PlainDelivery,
    PublishStored: _PlainPublishStored,
    DurableDelivery: _PlainDurableDelivery,
    Span: _PlainSpan,
    Offer: _PlainOffer,
}
PLAIN_KINDS: Final[tuple[Any, ...]] = (*_PLAIN_BY_KIND.values(), _PlainBatch)
