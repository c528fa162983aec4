"""The sending side of a connection: what a node puts there becomes frames.

An outlet is made when its session is established. From then on the session may send what the outlet sends until it
ends, and after that the connection drops what is put. So it is enough to check once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.broker.connection import Connection
from catchment.errors import BadNumberError
from catchment.routing.durable.messages import Confirm, TakeEffect, TellLostLog
from catchment.routing.messages import BrokerMessage, Deliver, DeliverSequence, Gap, LinkMessage, Refuse, Routed
from catchment.wire.frames import batch_frame, delivery_frame, durable_delivery_frame, pieces
from catchment.wire.messages import (
    Accepted,
    Batch,
    Confirmed,
    Delivery,
    DurableDelivery,
    Effective,
    Lost,
    LostLog,
    Refused,
    SequenceDelivery,
)

# Notifications in one frame to a neighbor: some hundred kilobytes of small ones.
FORWARD_MAX: Final = 1_024


class FramesToClient:
    def __init__(self, connection: Connection) -> None:
        assert connection.session.may_send(Delivery, SequenceDelivery, Lost, Gap, Accepted, Refused)
        assert connection.session.may_send(DurableDelivery, Confirmed, Effective, LostLog)
        self._connection = connection

    def deliver(self, delivery: Deliver) -> None:
        notification = delivery.notification.packed
        if delivery.log:
            log, epoch, lost = delivery.log, delivery.epoch, delivery.lost
            made = durable_delivery_frame(delivery.identity, delivery.subscriptions, notification, log, epoch, lost)
        else:
            made = delivery_frame(delivery.identity, delivery.subscriptions, notification)
        self._connection.put(made)

    def confirm(self, confirm: Confirm) -> None:
        self._connection.send(Confirmed(confirm.source, confirm.seq, confirm.storage, confirm.log, confirm.settled))

    def take_effect(self, effect: TakeEffect) -> None:
        self._connection.send(Effective(effect.identity, effect.id, effect.missing))

    def tell_lost_log(self, lost: TellLostLog) -> None:
        self._connection.send(LostLog(lost.identity, lost.storage, lost.log))

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        self._connection.send(SequenceDelivery(delivery.identity, delivery.subscription, delivery.notifications))

    def tell_lost(self, identity: str, count: int) -> None:
        self._connection.send(Lost(identity, count))

    def tell_gap(self, gap: Gap) -> None:
        self._connection.send(gap)

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        self._connection.send(_answer(number, refusals))

    def is_behind(self) -> bool:
        return self._connection.is_behind()

    def pause(self) -> None:
        self._connection.hold("job")

    def resume(self) -> None:
        self._connection.release("job")

    def end(self, reason: str) -> None:
        self._connection.end(reason)


class FramesToNeighbor:
    def __init__(self, connection: Connection) -> None:
        assert connection.session.may_send(Batch)
        self._connection = connection

    def send(self, message: BrokerMessage) -> None:
        self._connection.send(message)

    def tell(self, message: LinkMessage) -> None:
        self._connection.send(message)

    def forward(self, batch: Sequence[Routed], is_relayed: bool) -> int:
        sent = 0
        for piece in pieces(batch, [len(routed.notification.packed) for routed in batch], FORWARD_MAX):
            self._connection.put(batch_frame(piece))
            sent += 1
        return sent

    def pause(self) -> None:
        self._connection.hold("job")

    def resume(self) -> None:
        self._connection.release("job")

    def end(self, reason: str) -> None:
        self._connection.end(reason)


def _answer(number: int, refusals: Sequence[Refuse]) -> Accepted | Refused:
    if not refusals:
        return Accepted(number)
    error = refusals[0].error
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    after = error.after if isinstance(error, BadNumberError) else None
    return Refused(number, type(error).__name__, f"{error}{more}", after)
