"""The sending side of simulated connections: what a node puts there goes onto a link, or to a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catchment.routing.durable.messages import Confirm, TakeEffect, TellLostLog
from catchment.routing.messages import BrokerMessage, Deliver, DeliverSequence, Gap, LinkMessage, Refuse, Routed
from catchment.sim.network import Direction
from catchment.wire.frames import delivery_frame, frame
from catchment.wire.messages import SequenceDelivery

if TYPE_CHECKING:
    from catchment.sim.simulation import SimClient, Simulation

# A delivery of no more than this fits a frame for sure.
SUBSCRIPTIONS_FEW, NOTIFICATION_BYTES_FEW = 256, 65_536


@dataclass(frozen=True, slots=True)
class ToNeighbor:
    """The sending side of a link."""

    simulation: Simulation
    way: Direction

    def send(self, message: BrokerMessage) -> None:
        if self.way.link.is_usable:
            self.simulation.carry_message(self.way, message)

    def tell(self, message: LinkMessage) -> None:
        if self.way.link.is_usable:
            self.simulation.carry_link_message(self.way, message)

    def forward(self, batch: Sequence[Routed], is_relayed: bool) -> int:
        if self.way.link.is_usable:
            self.simulation.carry_batch(self.way, batch, is_relayed)
        return 1

    def pause(self) -> None:
        """A simulated link carries as much as it is given."""

    def resume(self) -> None:
        pass

    def end(self, reason: str) -> None:
        """As in the live broker: the connection ends, and is made again."""
        sender, receiver = self.way.sender.name, self.way.receiver
        self.simulation.cut(sender, receiver)
        self.simulation.heal(sender, receiver)


@dataclass(frozen=True, slots=True)
class ToClient:
    """The sending side of a client's connection."""

    simulation: Simulation
    client: SimClient

    def deliver(self, delivery: Deliver) -> None:
        notification, subscriptions = delivery.notification, delivery.subscriptions
        if len(subscriptions) > SUBSCRIPTIONS_FEW or len(notification.packed) > NOTIFICATION_BYTES_FEW:
            # Only then the frame may be too long: this raises LimitError as it does in the live broker.
            delivery_frame(delivery.identity, subscriptions, notification.packed)
        self.simulation.delivered(self.client, delivery)

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        frame(SequenceDelivery(delivery.identity, delivery.subscription, delivery.notifications))
        self.simulation.delivered(self.client, delivery)

    def tell_lost(self, identity: str, count: int) -> None:
        self.simulation.clients[identity].missed += count

    def tell_gap(self, gap: Gap) -> None:
        self.client.gaps[gap.id] = gap

    def confirm(self, confirm: Confirm) -> None:
        """Only clients of a durable simulation ask for it."""

    def take_effect(self, effect: TakeEffect) -> None:
        pass

    def tell_lost_log(self, lost: TellLostLog) -> None:
        pass

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        self.client.refused += [refusal.error for refusal in refusals]

    def is_behind(self) -> bool:
        return self.client.is_behind

    def pause(self) -> None:
        """A simulated client may say as much as it likes."""

    def resume(self) -> None:
        pass

    def end(self, reason: str) -> None:
        """No simulated client connects twice under one name."""
        raise AssertionError(f"{self.client.identity} was ended: {reason}")
