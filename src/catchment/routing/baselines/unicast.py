"""Unicast: the broker of the publisher sends one copy to each client that wants a notification (F3 §2.4.1, §4.1).

Every broker knows all subscriptions (`informed.py`). The broker that a notification is published at, its *source*,
matches it once and addresses a copy to each client that wants it, as broker and identity. Each copy takes the shortest
path. The brokers between pass it on without looking at it. So a link carries a notification as often as there are
clients beyond it that want it.

notifications   published here    Local clients get it. For each other client that wants it, a copy goes out.
                for a client here The client gets it.
                for another one   It goes on to the next broker on the shortest path to the receiver's broker. Without
                                  a path it is lost.

Departure: the text has one source, to which subscribers speak directly. Here subscriptions are flooded to all brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catchment.matching.ids import Id
from catchment.model.pattern import Pattern
from catchment.routing.baselines.informed import HOPS_MAX, Copies, InformedCore
from catchment.routing.baselines.messages import ReceiverHeader, SubscriptionKey
from catchment.routing.messages import Action, Interface, Neighbor, Routed, Time, Wanted
from catchment.routing.parts.recall import RecallingMatcher

Receiver = tuple[str, str]


class UnicastCore(InformedCore):
    """A broker that sends a copy to each client that wants what is published at it."""

    def __init__(self, name: str) -> None:
        # Who wants a notification, of the clients of all other brokers, as broker and identity.
        self.receivers: RecallingMatcher[tuple[Receiver, ...]] = RecallingMatcher(_receivers, by_group=True)
        self._numbers: dict[tuple[str, SubscriptionKey], list[int]] = {}
        self._next_number = 0
        super().__init__(name)

    def _on_subscriptions(
        self, origin: str, gone: Mapping[SubscriptionKey, Wanted], new: Mapping[SubscriptionKey, Wanted]
    ) -> None:
        if origin == self.name:
            return
        for key in gone:
            for number in self._numbers.pop((origin, key)):
                self.receivers.remove(number)
        for key, wanted in new.items():
            filters = wanted.filters if isinstance(wanted, Pattern) else (wanted,)
            numbers = list(range(self._next_number, self._next_number + len(filters)))
            for number, filter in zip(numbers, filters, strict=True):
                self.receivers.add(number, filter, group=f"{origin}\0{key[0]}")
            self._numbers[origin, key] = numbers
            self._next_number += len(filters)

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if isinstance(source, Neighbor):
            return [action for routed in batch for action in self._on_copy(routed, now)]
        self._matched += len(batch)
        notifications = [routed.notification for routed in batch]
        actions = self.clients.due(notifications, now)
        copies, ways = Copies(), self.links.hops_from(self.name)
        for notification, receivers in zip(notifications, self.receivers.answers(notifications), strict=True):
            for broker, identity in receivers:
                if broker in ways:
                    copies.add(Neighbor(ways[broker]), Routed(notification, ReceiverHeader(1, broker, identity)))
        return actions + copies.forwards()

    def _on_copy(self, routed: Routed, now: Time) -> list[Action]:
        header = routed.header
        assert isinstance(header, ReceiverHeader)
        if header.broker == self.name:
            return self.clients.due([routed.notification], now, only=header.identity)
        hop = self.links.hops_from(self.name).get(header.broker)
        # While brokers disagree about paths, a copy may go round: the bound ends that.
        if hop is None or header.hops >= HOPS_MAX:
            return []
        copies = Copies()
        further = ReceiverHeader(header.hops + 1, header.broker, header.identity)
        copies.add(Neighbor(hop), Routed(routed.notification, further))
        return copies.forwards(is_relayed=True)

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.receivers


def _receivers(groups: Sequence[Id]) -> tuple[Receiver, ...]:
    # A group in the matcher is broker and identity in one string (`_on_subscriptions`).
    pairs = (str(group).split("\0", 1) for group in groups)
    return tuple(sorted((broker, identity) for broker, identity in pairs))
