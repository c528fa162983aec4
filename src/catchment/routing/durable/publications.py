"""What a broker does with publications: those of its own clients, and those that other brokers offer to its store.

unstored   Nobody waits for a confirmation. If durable identities are due, the publication is kept all the same; if it
           cannot be kept, it is refused.
stored     The publisher waits for `Confirm` (rules 1 to 3). At the home of the source the accept rule decides. At
           another broker it is offered to the home (`publishing.py`).
inside     In both cases the publication goes at once to the core inside, for transient subscribers, once: a repeat does
           not. What the core inside refuses is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from catchment.errors import BadNumberError, CatchmentError, UnavailableError, shown
from catchment.model.notification import Notification
from catchment.routing.durable.messages import Confirm, Kept, Offer
from catchment.routing.durable.publishing import OFFER_TIMER, Publisher, Publishing
from catchment.routing.durable.reach import PREFIX
from catchment.routing.durable.shared import Shared
from catchment.routing.durable.spans import Verdict
from catchment.routing.durable.storage import Storage
from catchment.routing.messages import Action, Client, Refuse, Routed, SetTimer, Time
from catchment.routing.stored import Due


class Publications:
    """The publications at one broker."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._publishing = Publishing(shared.name, shared.settings, shared.is_reached)

    # --- clients, paths, timers ---

    def client_up(self, client: Client, source: str, storage: str, now: Time) -> list[Action]:
        """Says again what is kept of a publisher that has come; if another storage keeps it, asks that one."""
        self._publishing.client_up(client, storage or self.preferred())
        if storage and storage != self._shared.name:
            return self._ask_home(self._publishing.publisher(source, client), now)
        if self._shared.storage is None or not self._shared.storage.last(source):
            return []
        self._shared.storage.published_by(source, client)
        return self.confirmed(source)

    def client_down(self, client: Client) -> None:
        self._publishing.client_down(client)
        if self._shared.storage is not None:
            self._shared.storage.gone(client)

    def ask_homes(self, now: Time, is_all: bool) -> list[Action]:
        """Asks what is kept: the timer has fired, or with `is_all`, paths have changed."""
        return self._sent_all(self._publishing.questions(now, is_all)) + self._offer_timer(now)

    def store_down(self, sources: Sequence[str], reason: str) -> list[Action]:
        """The store takes nothing more, and has lost what was accepted of these sources and was not durable."""
        actions: list[Action] = []
        for source in sources:
            publisher = self._publishing.get(source)
            if publisher is not None and publisher.home == self._shared.name:
                actions.append(Refuse(publisher.client, self._store_error(reason)))
        return actions

    def _store_error(self, reason: str) -> CatchmentError:
        return UnavailableError(f"the store of {self._shared.name} takes nothing now: {reason}")

    # --- publications that nobody waits to be stored ---

    def published(self, batch: Sequence[Routed], client: Client, now: Time) -> list[Action]:
        """Publications that nobody waits to be stored. Those that durable identities are due are kept all the same."""
        dues = self._shared.table.due([routed.notification for routed in batch])
        refusals: list[Action] = self._settled_home(client) if any(dues) else []
        if any(dues) and (problem := self._home_problem(client, batch, dues)) is not None:
            refusals += [
                Refuse(client, problem, routed.notification) for routed, due in zip(batch, dues, strict=True) if due
            ]
            batch = [routed for routed, due in zip(batch, dues, strict=True) if not due]
            dues = [()] * len(batch)
        actions: list[Action] = self._shared.inner.on_notifications(batch, client, now) if batch else []
        refused = _refused(actions)
        by_source: dict[str, list[tuple[Notification, Any]]] = {}
        for routed, due in zip(batch, dues, strict=True):
            if due and id(routed.notification) not in refused:
                by_source.setdefault(routed.notification.source or client.name, []).append((routed.notification, due))
        for source, items in by_source.items():
            actions += self._keep_unasked(source, client, items, now)
        return refusals + actions

    def _home_problem(self, client: Client, batch: Sequence[Routed], dues: Sequence[Any]) -> CatchmentError | None:
        """Why what is due cannot be kept."""
        first = next(routed.notification for routed, due in zip(batch, dues, strict=True) if due)
        return self._problem(self._publishing.publisher(first.source or client.name, client))

    def _problem(self, publisher: Publisher) -> CatchmentError | None:
        if publisher.home == self._shared.name:
            return self._store_error(self._shared.refusal) if self._shared.refusal else None
        if not publisher.home:
            return UnavailableError(f"no storage can be reached from {self._shared.name}: start a broker with a store")
        if not self._shared.is_reached(publisher.home):
            where = f"{publisher.home}, which keeps the publications of {shown(publisher.source)}"
            return UnavailableError(f"{where}, cannot be reached from {self._shared.name}: publish again later")
        return None

    def _keep_unasked(
        self, source: str, client: Client, items: list[tuple[Notification, Any]], now: Time
    ) -> list[Action]:
        publisher = self._publishing.publisher(source, client)
        if publisher.home == self._shared.name:
            assert self._shared.storage is not None, "a broker without a store is nobody's home"
            last = self._shared.storage.last(source)
            fresh = [item for item in items if item[0].seq is None or item[0].seq > last]
            if fresh:
                self._shared.storage.take(source, fresh, None, now)
            return []
        offers = self._publishing.offers(publisher, None, [notification for notification, _ in items], is_stored=False)
        return self._sent_all(offers)

    # --- publications that are to be stored ---

    def stored(
        self, notifications: Sequence[Notification], after: int | None, client: Client, now: Time
    ) -> list[Action]:
        """Publications of one source, with growing numbers, that the client wants to be stored. `after` is the number
        of the one before the first of them that was to be stored, None if there was none (rule 1)."""
        source = notifications[0].source or client.name
        if found := self._settled_home(client):
            # The client must know where its publications go before anything is on its way there.
            what = f"{self.home(client)} keeps what is published at {self._shared.name} from now on: publish again"
            return [*found, Refuse(client, UnavailableError(what))]
        publisher = self._publishing.publisher(source, client)
        problem = self._problem(publisher)
        if problem is not None:
            return [Refuse(client, problem)]
        if publisher.home == self._shared.name:
            return self._store(publisher, after, notifications, now)
        return self._offer(publisher, after, notifications, now)

    def _settled_home(self, client: Client) -> list[Action]:
        """If no storage was known when the client came, and one is now: that is its home, and the client is told."""
        if self.home(client) or not (home := self.preferred()):
            return []
        self._publishing.client_up(client, home)
        return [Confirm(client, client.name, 0, home, self._shared.paths.storages.get(home, ""), False)]

    def home(self, client: Client) -> str:
        """The storage that keeps what a client publishes; empty if none is known."""
        return self._publishing.home(client)

    def preferred(self) -> str:
        """The storage that keeps what is published here by clients that are not bound to another."""
        if self._shared.storage is not None:
            return self._shared.name
        return self._shared.settings.storage or self._shared.paths.nearest_storage()

    def _store(
        self, publisher: Publisher, after: int | None, notifications: Sequence[Notification], now: Time
    ) -> list[Action]:
        storage, source, client = self._shared.storage, publisher.source, publisher.client
        assert storage is not None, "a broker without a store is nobody's home"
        storage.published_by(source, client)
        said, fresh = storage.accept(source, after, notifications)
        if said is Verdict.GAP:
            return [Refuse(client, _gap(source, after, storage.last(source)))]
        if said is Verdict.KNOWN:
            return self.confirmed(source)
        publisher.last = fresh[-1].seq
        actions = self._route(fresh, client, now)
        self._record(source, fresh, _refused(actions), True, now)
        return actions

    def _offer(
        self, publisher: Publisher, after: int | None, notifications: Sequence[Notification], now: Time
    ) -> list[Action]:
        client, last = publisher.client, publisher.last
        if last is not None and after is not None and after > last:
            return [Refuse(client, _gap(publisher.source, after, last))]
        if not publisher.has_room:
            return [Refuse(client, UnavailableError(f"{publisher.home} is slow to keep publications: try again later"))]
        fresh = [each for each in notifications if last is None or (each.seq or 0) > last]
        if not fresh:
            return self._ask_home(publisher, now)
        # What was offered on an earlier connection is routed already.
        unrouted = [each for each in fresh if (each.seq or 0) > publisher.routed]
        actions = self._route(unrouted, client, now)
        publisher.routed = max(publisher.routed, fresh[-1].seq or 0)
        publisher.base = after if last is None else publisher.base
        publisher.remember(fresh)
        offers = self._publishing.offers(publisher, after if last is None else last, fresh)
        publisher.last, publisher.asked_at = fresh[-1].seq, now
        return actions + self._sent_all(offers) + self._offer_timer(now)

    def _route(self, notifications: Sequence[Notification], client: Client, now: Time) -> list[Action]:
        if not notifications:
            return []
        actions: list[Action] = self._shared.inner.on_notifications(
            [Routed(each) for each in notifications], client, now
        )
        return actions

    def _record(
        self, source: str, notifications: Sequence[Notification], refused: set[int], is_stored: bool, now: Time
    ) -> None:
        assert self._shared.storage is not None
        seq = notifications[-1].seq if is_stored else None
        items: list[tuple[Notification, Due]] = []
        if len(self._shared.table):
            pairs = zip(notifications, self._shared.table.due(notifications), strict=True)
            items = [(each, due) for each, due in pairs if due and id(each) not in refused]
        if items or is_stored:
            self._shared.storage.take(source, items, seq, now)

    def confirmed(self, source: str) -> list[Action]:
        """Tells the publisher of a source what is kept."""
        storage, name = self._shared.storage, self._shared.name
        if storage is None:
            return []
        actions: list[Action] = []
        client, broker = storage.client_of(source), storage.broker_of(source)
        seq, settled = storage.kept(source), storage.is_settled(source)
        if client is not None:
            actions.append(Confirm(client, source, seq, name, storage.log, settled))
        if broker is not None:
            kept = Kept(broker, name, storage.log, source, seq, settled, last=storage.last(source))
            actions += self._shared.paths.sent(kept, broker)
        return actions

    # --- offers ---

    def on_offer(self, message: Offer, now: Time) -> list[Action]:
        """Publications at a broker that has no store, or whose publisher has not settled here."""
        storage, source = self._shared.storage, message.source
        if storage is None:
            return []
        if self._shared.refusal:
            refusal = Kept(message.by, self._shared.name, storage.log, source, storage.kept(source), False)
            refusal = replace(refusal, last=storage.last(source), refusal=self._shared.refusal)
            return self._shared.paths.sent(refusal, message.by)
        if message.is_stored:
            storage.published_by(source, message.by)
        if not message.is_stored:
            return self._on_unasked(message, storage, now)
        if any(each.seq is None for each in message.notifications):
            return []  # No broker offers that: numbers are checked where it is published.
        said, fresh = storage.accept(source, message.after, message.notifications)
        if said is Verdict.GAP:
            gap = Kept(message.by, self._shared.name, storage.log, source, storage.kept(source), False, True)
            return self._shared.paths.sent(replace(gap, last=storage.last(source)), message.by)
        if said is Verdict.KNOWN:
            return self.confirmed(source)
        self._record(source, fresh, set(), True, now)
        return []

    def _on_unasked(self, message: Offer, storage: Storage, now: Time) -> list[Action]:
        """Publications at another broker that nobody waits to be stored."""
        last = storage.last(message.source)
        fresh = [each for each in message.notifications if each.seq is None or each.seq > last]
        if fresh:
            self._record(message.source, fresh, set(), False, now)
        return []

    def on_kept(self, message: Kept, now: Time) -> list[Action]:
        publisher = self._publishing.get(message.source)
        if publisher is None or publisher.home != message.storage:
            return []
        client, home = publisher.client, publisher.home
        if message.refusal:
            # The client has what is not kept, and publishes it again.
            publisher.give_up()
            return [Refuse(client, UnavailableError(f"the store of {home} takes nothing now: {message.refusal}"))]
        offers = self._publishing.heard(publisher, message, now)
        if offers is None:
            return [Refuse(client, _gap(message.source, None, message.last))]
        confirm = Confirm(client, message.source, message.seq, home, message.log, message.settled)
        return [confirm, *self._sent_all(offers), *self._offer_timer(now)]

    def _ask_home(self, publisher: Publisher, now: Time) -> list[Action]:
        publisher.asked_at = now
        return self._sent_all([self._publishing.question(publisher)]) + self._offer_timer(now)

    def _offer_timer(self, now: Time) -> list[Action]:
        at = self._publishing.timer_at(now)
        return [] if at is None else [SetTimer(PREFIX + OFFER_TIMER, at)]

    def _sent_all(self, offers: Iterable[Offer]) -> list[Action]:
        return [action for offer in offers for action in self._shared.paths.sent(offer, offer.storage)]


def _refused(actions: Sequence[Action]) -> set[int]:
    """The notifications that the core inside has refused, by object."""
    return {id(action.notification) for action in actions if isinstance(action, Refuse)}


def _gap(source: str, after: int | None, last: int) -> BadNumberError:
    follows = "others" if after is None else f"number {after}"
    what = f"a publication of {shown(source)} follows {follows}, but the last that has come is {last}"
    return BadNumberError(f"{what}; publish again what follows {last}", last)
