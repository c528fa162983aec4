"""A publisher's side: where the publications of each client are kept, and what is on its way there.

A client has a *home*, the storage that keeps its publications. The broker's own store is preferred; a broker without a
store prefers the storage that its settings name, or the nearest. But a publisher keeps its storage while anything of it
is uncertain or unsettled (rule 11): the client says which storage that is (`ClientUp.storage`), and its broker offers
publications there. So the notifications of one source come from one log at a time, and in order.

The home is fixed when the client connects, and the client is told. It does not change while the client is connected: a
publication could be on its way to the old home while the client learns of the new one, and nobody would know where it
is. A client that has settled names no storage when it connects the next time: so it moves. If no storage was known when
the client connected, its first publication is refused when there is one, and says where to publish from then on.

offered   At another storage: what is offered and not kept is remembered here (OFFERED_MAX), and offered again if the
          storage says that there was a gap. While something is not kept, the broker asks now and then. The memory is
          soft: if this broker crashes, the client publishes again.
refused   If the home cannot be reached, or its store takes nothing, the publication is refused: the client keeps it
          and publishes it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from catchment.model.notification import Notification
from catchment.routing.durable.messages import Kept, Offer
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.messages import Client, Time

# Publications of one source that are offered and not kept.
OFFERED_MAX: Final = 4_096
OFFERED_BYTES_MAX: Final = 8 * 1_048_576
# Notifications and bytes in one offer.
OFFER_MAX: Final = 1_024
OFFER_BYTES_MAX: Final = 1_048_576
OFFER_TIMER: Final = "offer"


@dataclass(slots=True)
class Publisher:
    """A source whose client is here."""

    source: str
    client: Client
    home: str
    # What the client said is before its first publication on this connection; None if its home has nothing of it.
    base: int | None = None
    # The last number that was handed on to the home to be stored.
    last: int | None = None
    # The last number that was routed to transient subscribers.
    routed: int = 0
    offered: deque[Notification] = field(default_factory=deque)
    offered_bytes: int = 0
    # Whether the home was asked what it keeps, and has not answered.
    is_asking: bool = False
    asked_at: Time = 0
    # What the home had when everything after it was offered again, and when that was.
    offered_after: int | None = None
    offered_at: Time = 0

    @property
    def has_room(self) -> bool:
        return len(self.offered) < OFFERED_MAX and self.offered_bytes < OFFERED_BYTES_MAX

    def remember(self, notifications: Iterable[Notification]) -> None:
        for notification in notifications:
            self.offered.append(notification)
            self.offered_bytes += len(notification.packed)

    def forget(self, kept: int) -> None:
        """What is kept need not be offered again."""
        offered = self.offered
        while offered and (offered[0].seq or 0) <= kept:
            self.offered_bytes -= len(offered.popleft().packed)
            # What follows was offered after something that the home has.
            self.base = kept

    def give_up(self) -> None:
        """The client has to publish again what is not kept."""
        self.offered.clear()
        self.offered_bytes = 0
        self.last = self.base = self.offered_after = None


class Publishing:
    """The sources whose clients are at the broker `name`."""

    def __init__(self, name: str, settings: DurableSettings, is_reached: Callable[[str], bool]) -> None:
        self._name, self._settings, self._is_reached = name, settings, is_reached
        self._publishers: dict[str, Publisher] = {}
        self._homes: dict[Client, str] = {}
        self._has_timer = False

    # --- clients ---

    def client_up(self, client: Client, home: str) -> None:
        self._homes[client] = home

    def client_down(self, client: Client) -> None:
        self._homes.pop(client, None)
        for source in [source for source, each in self._publishers.items() if each.client == client]:
            del self._publishers[source]

    def home(self, client: Client) -> str:
        """Where the publications of a client are kept; empty if no storage was known when it came."""
        return self._homes.get(client, "")

    def publisher(self, source: str, client: Client) -> Publisher:
        known = self._publishers.get(source)
        if known is None or known.client != client or known.home != self.home(client):
            known = self._publishers[source] = Publisher(source, client, self.home(client))
        return known

    def get(self, source: str) -> Publisher | None:
        return self._publishers.get(source)

    # --- offers ---

    def offers(
        self,
        publisher: Publisher,
        after: int | None,
        notifications: Sequence[Notification],
        *,
        is_stored: bool = True,
    ) -> list[Offer]:
        """Messages that offer notifications, which follow the number `after`."""
        offers: list[Offer] = []
        some: list[Notification] = []
        size = 0
        for notification in notifications:
            if some and (len(some) >= OFFER_MAX or size + len(notification.packed) > OFFER_BYTES_MAX):
                offers.append(self._offer(publisher, after, some, is_stored))
                after, some, size = some[-1].seq, [], 0
            some.append(notification)
            size += len(notification.packed)
        return [*offers, self._offer(publisher, after, some, is_stored)] if some else offers

    def question(self, publisher: Publisher) -> Offer:
        """Asks the home what it has kept."""
        return self._offer(publisher, publisher.last, ())

    def _offer(
        self, publisher: Publisher, after: int | None, notifications: Sequence[Notification], is_stored: bool = True
    ) -> Offer:
        return Offer(publisher.home, self._name, publisher.source, after, tuple(notifications), is_stored)

    def heard(self, publisher: Publisher, kept: Kept, now: Time) -> list[Offer] | None:
        """The home has said what it keeps: what is to be offered again. None if only the client can fill the gap: what
        is missing was never offered here."""
        publisher.forget(kept.seq)
        publisher.is_asking = False
        if not kept.again or not publisher.offered:
            return []
        missing = [each for each in publisher.offered if (each.seq or 0) > kept.last]
        is_first = len(missing) == len(publisher.offered)
        if is_first and publisher.base is not None and publisher.base > kept.last:
            publisher.give_up()
            return None
        if publisher.offered_after == kept.last and now - publisher.offered_at < self._settings.retry_us:
            return []  # It is on its way again already: several gaps have the same cause.
        publisher.offered_at, publisher.offered_after = now, kept.last
        # If the home has nothing of what was offered here, what the client said is before the first.
        return self.offers(publisher, publisher.base if is_first else kept.last, missing)

    # --- questions ---

    def _waits(self, publisher: Publisher) -> bool:
        is_open = bool(publisher.offered) or publisher.is_asking
        return is_open and publisher.home != self._name and self._is_reached(publisher.home)

    def timer_at(self, now: Time) -> Time | None:
        """When to ask; None if the timer is set, or nobody who can be reached has to answer."""
        if self._has_timer or not any(map(self._waits, self._publishers.values())):
            return None
        self._has_timer = True
        return now + self._settings.retry_us

    def questions(self, now: Time, is_all: bool = False) -> list[Offer]:
        """The timer has fired, or with `is_all`, paths have changed: asks the homes of what is not kept."""
        if not is_all:
            self._has_timer = False
        asking: list[Offer] = []
        for publisher in self._publishers.values():
            if self._waits(publisher) and (is_all or now - publisher.asked_at >= self._settings.retry_us):
                publisher.asked_at = now
                asking.append(self.question(publisher))
        return asking
