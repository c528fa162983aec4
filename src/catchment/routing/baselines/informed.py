"""Brokers that know the subscriptions of all clients of the network: what unicast and multicast have in common.

In F3's Study 1 subscribers tell a notification source what they want, and the source decides whom each notification is
for. Here every broker may be a source. So every broker floods the subscriptions of its clients, as they are, without
reduction by covering (`parts/records.py`), and the links that it has (`parts/link_states.py`).

State: the local clients, the links of all brokers, and the subscriptions of the clients of all brokers.

client's request   The broker does it, and floods what it changed.
Subscribed         enters what has changed in the subscriptions of its origin, and is flooded on.
Links              enters the links of its origin, and is flooded on.
LinkUp             The broker sends all that it knows to the new neighbor, and floods its links.
LinkDown           The broker floods its links. Subscriptions of brokers that cannot be reached are kept until they are
                   back, or their links are forgotten; nothing is sent for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from catchment.routing.baselines.messages import Subscribed, SubscriptionKey
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Cancel,
    CancelMany,
    Client,
    ClientRequest,
    Forward,
    Interface,
    Message,
    Neighbor,
    Routed,
    Send,
    Subscribe,
    Time,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.link_states import Links, LinkStates
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.records import FloodedRecords
from catchment.routing.parts.wanted import filters_for, text_bytes

# Subscriptions of the clients of all brokers together: some gigabytes. A neighbor that tells of more loses its link.
KNOWN_SUBSCRIPTIONS_MAX: Final = 4_000_000
# Links that a notification may cross: more than the longest shortest path in a network that such brokers serve.
HOPS_MAX: Final = 255


class InformedCore(DispatchingCore[BrokerMessage], ABC):
    """A broker that knows what the clients of all brokers want."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients = ClientSide()
        self.links = LinkStates(name, self._forget)
        self.subscriptions: FloodedRecords[Subscribed, SubscriptionKey, Wanted] = FloodedRecords(
            self.links, Subscribed, self._on_subscriptions, "KNOWN_SUBSCRIPTIONS_MAX", KNOWN_SUBSCRIPTIONS_MAX
        )
        self._matched = 0

    # --- what a system adds ---

    @abstractmethod
    def _on_subscriptions(
        self, origin: str, gone: Mapping[SubscriptionKey, Wanted], new: Mapping[SubscriptionKey, Wanted]
    ) -> None:
        """The subscriptions of the clients of a broker have changed."""

    @abstractmethod
    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]: ...

    def _forget(self, origin: str) -> None:
        """The links of a broker are forgotten: it has been away for long, or never was."""
        self.subscriptions.forget(origin)

    def _told(self, now: Time) -> list[BrokerMessage]:
        """What a new neighbor is told besides links."""
        return [*self.subscriptions.wholes(now)]

    def _settle(self, now: Time) -> list[Action]:
        """What follows from a change, after all that is to be flooded because of it."""
        return []

    # --- messages ---

    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]:
        return super().on_message(message, source, now) + self._settle(now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        left = set(self.clients.client_down(client))
        own = self.subscriptions.of(self.name)
        return self._stated([key for key in own if key[0] in left], {}, now)

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        # Links first: who hears of a subscription knows the way to it.
        stated = self.links.up(neighbor, cost, now)
        return stated + [Send(neighbor, told) for told in self._told(now)]

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self.links.down(neighbor, now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        return self.links.on_timer(name, now)

    def _heard(self, message: BrokerMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case Links():
                return self.links.heard(message, source, now)
            case Subscribed():
                return self.subscriptions.heard(message, source, now)
            case _:
                return super()._heard(message, source, now)

    # --- requests of our own clients ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        before = list(self.clients.wants_of(message.identity)) if isinstance(message, Unsubscribe | CancelMany) else []
        due = self.clients.request(message, source)
        identity = message.identity
        match message:
            case Subscribe():
                return due + self._stated((), {(identity, message.id): message.wanted}, now)
            case Cancel():
                return due + self._stated([(identity, message.id)], {}, now)
            case Unsubscribe() | CancelMany():
                kept = self.clients.wants_of(identity)
                return due + self._stated([(identity, id) for id in before if id not in kept], {}, now)
            case _:
                return due

    def _stated(
        self, gone: Iterable[SubscriptionKey], new: Mapping[SubscriptionKey, Wanted], now: Time
    ) -> list[Action]:
        left = list(gone)
        return self.links.flooded(self.subscriptions.state(left, new, now)) if left or new else []

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        others = [origin for origin in self.subscriptions.origins if origin != self.name]
        tables = [_table(origin, self.subscriptions.of(origin).values()) for origin in others]
        held = tuple(table for table in tables if table.filters)
        return Inspection((*self.clients.tables(), *held), Work(self._matched), self.links.known_brokers())

    def leftovers(self) -> list[str]:
        # Subscriptions at a broker that cannot be reached do not count: they are kept until it is back.
        known = [
            f"subscription {id} of {identity} at {origin}"
            for origin in self.links.reached
            for identity, id in sorted(self.subscriptions.of(origin))
        ]
        return [*self.clients.leftovers(), *known]


def _table(origin: str, wants: Iterable[Wanted]) -> Table:
    some = list(wants)
    return Table(origin, sum(len(filters_for(wanted)) for wanted in some), sum(map(text_bytes, some)))


class Copies:
    """Copies on their way out. Copies for one neighbor that follow one another and have the same header go together;
    each other copy is a message of its own, as if every receiver or topic had its own connection."""

    def __init__(self) -> None:
        self._runs: dict[Neighbor, list[list[Routed]]] = {}

    def add(self, neighbor: Neighbor, copy: Routed) -> None:
        runs = self._runs.setdefault(neighbor, [])
        # Only the last run may grow: else copies of one publisher would change their order.
        if runs and runs[-1][-1].header == copy.header:
            runs[-1].append(copy)
        else:
            runs.append([copy])

    def forwards(self, is_relayed: bool = False) -> list[Action]:
        return [
            Forward(neighbor, tuple(run), is_relayed) for neighbor in sorted(self._runs) for run in self._runs[neighbor]
        ]
