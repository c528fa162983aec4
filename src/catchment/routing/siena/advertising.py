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

from abc import ABC
from collections.abc import Sequence
from typing import Final, assert_never

from catchment.errors import BadNotificationError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.messages import (
    Action,
    Advertise,
    Client,
    ClientRequest,
    Interface,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
    Unadvertise,
)
from catchment.routing.parts.remote import check_limit
from catchment.routing.parts.watching import Watching
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.hop_by_hop import HopByHopCore, M
from catchment.routing.siena.messages import Advertised, Interest

# Advertisements that a neighbor may state: each is compared with each filter.
LINK_OFFERS_MAX: Final = 100_000
# Filters for which it is remembered whether they overlap what is offered. Filters come and go, offers stay for long:
# past this, all is forgotten, and asked again when it is needed.
OVERLAPS_KEPT_MAX: Final = 100_000


class OfferingCore(HopByHopCore[M], ABC):
    """What brokers do alike whose publishers advertise."""

    def __init__(self, name: str, watching: Watching | None = None) -> None:
        super().__init__(name, watching)
        self.offers: Forwarding[Advertisement] = Forwarding()
        # For each neighbor, what it may be told of: asked often, changed only with its offers.
        self._told_of: dict[Neighbor, dict[Filter, bool]] = {}

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        known = self._told_of.setdefault(neighbor, {})
        if filter not in known:
            forget_if_full(known)
            known[filter] = any(offer.overlaps(filter) for offer in self.offers.held_by(neighbor))
        return known[filter]

    # --- offers ---

    def _on_request(self, message: ClientRequest, source: Client) -> list[Action]:
        due = super()._on_request(message, source)
        if isinstance(message, Advertise):
            self.offers.subscribe(message.identity, message.advertisement)
        elif isinstance(message, Unadvertise):
            self.offers.unsubscribe(message.identity, message.advertisement)
        return due

    def _forgotten(self, identity: str) -> None:
        self.offers.drop(identity)

    def _on_advertised(self, message: Advertised, source: Neighbor, now: Time) -> list[Action]:
        count = self.offers.held_count(source) + len(message.announced)
        check_limit("LINK_OFFERS_MAX", LINK_OFFERS_MAX, count)
        for offer in message.withdrawn:
            self.offers.unsubscribe(source, offer)
        for offer in message.announced:
            self.offers.subscribe(source, offer)
        self._told_of.pop(source, None)
        self.interest.recompute(source)
        return self._flushed(now)

    def _on_link_up(self, neighbor: Neighbor) -> list[Action]:
        self.offers.disconnect(neighbor)
        self.offers.connect(neighbor)
        self._told_of.pop(neighbor, None)
        return super()._on_link_up(neighbor)

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        self.offers.disconnect(neighbor)
        self._told_of.pop(neighbor, None)
        return super()._on_link_down(neighbor)

    def _flushed(self, now: Time) -> list[Action]:
        changes = self.offers.flush()
        offers = [Send(neighbor, Advertised(change.withdrawn, change.announced)) for neighbor, change in changes]
        return [*offers, *super()._flushed(now)]

    # --- semantics ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if not isinstance(source, Client):
            return super().on_notifications(batch, source, now)
        advertised: list[Routed] = []
        refused: list[Action] = []
        for routed in batch:
            if self._is_advertised(routed):
                advertised.append(routed)
            else:
                refused.append(Refuse(source, _unadvertised(routed), routed.notification))
        return refused + super().on_notifications(advertised, source, now) if advertised else refused

    def _is_advertised(self, routed: Routed) -> bool:
        offers = self.clients.advertisements_of(routed.notification.source or "")
        return any(offer.matches(routed.notification) for offer in offers)


class AdvertisingCore(OfferingCore[Interest | Advertised]):
    """A peer in a network without cycles where publishers advertise."""

    def _heard(self, message: Interest | Advertised, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case Interest():
                return self._on_interest(message, source, now)
            case Advertised():
                return self._on_advertised(message, source, now)
            case _:
                assert_never(message)


def forget_if_full(known: dict[Filter, bool]) -> None:
    if len(known) >= OVERLAPS_KEPT_MAX:
        known.clear()


def _unadvertised(routed: Routed) -> BadNotificationError:
    who = shown(routed.notification.source)
    return BadNotificationError(
        f"{who} has not advertised {shown(dict(routed.notification))}: advertise what covers it before publishing it"
    )
