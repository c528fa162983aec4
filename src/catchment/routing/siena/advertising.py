"""Acyclic peers with advertisement forwarding and advertisement-based semantics (SIENA §3.6, §5.2.4).

Two computations of the same kind. Advertisements are forwarded to all neighbors as equation (1) says; a subscription
is forwarded only to a neighbor from which something that it wants may come: one that holds an advertisement which
overlaps it. (The text prints the set with the wrong relation and the wrong table; overlap is meant.) So a new
advertisement is to the subscriptions as a neighbor that connects, and a withdrawn one as a neighbor that leaves.

Semantics: a notification that its publisher did not advertise is refused with an error to the publisher, and goes
nowhere.

Advertise, Unadvertise, Advertised   the offers change; for a neighbor whose offers did, what it is to be told anew
                                     is recomputed. Offers go out before interest.
notifications of a client            must match an advertisement of its source
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.errors import BadNotificationError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import (
    Action,
    Advertise,
    Advertised,
    Client,
    Interface,
    Message,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
    Unadvertise,
)
from catchment.routing.sessions import Request
from catchment.routing.siena.base import SienaCore, check_limit
from catchment.routing.siena.forwarding import Forwarding

# Advertisements that a neighbor may state: each is compared with each filter.
LINK_OFFERS_MAX: Final = 100_000


class AdvertisingCore(SienaCore):
    """A peer in a network without cycles where publishers advertise."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.offers: Forwarding[Advertisement] = Forwarding()
        # For each neighbor, what it may be told of: asked often, changed only with its offers.
        self._told_of: dict[Neighbor, dict[Filter, bool]] = {}

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        known = self._told_of.setdefault(neighbor, {})
        if filter not in known:
            known[filter] = any(one.overlaps(filter) for one in self.offers.held_by(neighbor))
        return known[filter]

    # --- offers ---

    def _on_request(self, message: Request, source: Client) -> list[Action]:
        actions = super()._on_request(message, source)
        if any(isinstance(one, Refuse) for one in actions):
            return actions
        if isinstance(message, Advertise):
            self.offers.subscribe(message.identity, message.advertisement)
        elif isinstance(message, Unadvertise):
            self.offers.unsubscribe(message.identity, message.advertisement)
        else:
            return actions
        return actions + self._flushed()

    def _forgotten(self, identity: str) -> None:
        super()._forgotten(identity)
        self.offers.drop(identity)

    def _check_room(self, message: Message, source: Neighbor) -> None:
        if isinstance(message, Advertised):
            check_limit("LINK_OFFERS_MAX", LINK_OFFERS_MAX, self.offers.held_count(source) + len(message.announced))
        else:
            super()._check_room(message, source)

    def _on_neighbor(self, message: Message, source: Neighbor) -> list[Action]:
        if not isinstance(message, Advertised):
            return super()._on_neighbor(message, source)
        for one in message.withdrawn:
            self.offers.unsubscribe(source, one)
        for one in message.announced:
            self.offers.subscribe(source, one)
        self._told_of.pop(source, None)
        self.interest.recompute(source)
        return self._flushed()

    def _on_link_up(self, neighbor: Neighbor, cost: int) -> list[Action]:
        self.offers.disconnect(neighbor)
        self.offers.connect(neighbor)
        self._told_of.pop(neighbor, None)
        return super()._on_link_up(neighbor, cost)

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        self.offers.disconnect(neighbor)
        self._told_of.pop(neighbor, None)
        return super()._on_link_down(neighbor)

    def _flushed(self) -> list[Action]:
        offers = [Send(one, Advertised(change.withdrawn, change.announced)) for one, change in self.offers.flush()]
        return [*offers, *super()._flushed()]

    # --- semantics ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if not isinstance(source, Client):
            return super().on_notifications(batch, source, now)
        advertised = [one for one in batch if self._is_advertised(one)]
        refused = [
            Refuse(source, _unadvertised(one), one.notification) for one in batch if not self._is_advertised(one)
        ]
        return [*refused, *super().on_notifications(advertised, source, now)] if advertised else list(refused)

    def _is_advertised(self, routed: Routed) -> bool:
        offers = self.sessions.advertisements_of(routed.notification.source or "")
        return any(one.matches(routed.notification) for one in offers)


def _unadvertised(routed: Routed) -> BadNotificationError:
    who = shown(routed.notification.source)
    return BadNotificationError(
        f"{who} has not advertised {shown(dict(routed.notification))}: advertise what covers it before publishing it"
    )
