"""Durable delivery around any routing core: logs and positions.

The core inside serves transient subscriptions and routes notifications; it does not know of this one. Around it, each
broker does some of these, in files of their own:

reach.py          paths to all brokers, and which of them are storages
table.py          durable subscriptions and places, flooded; who is due a notification
publications.py   what becomes of publications; publishing.py: what is on its way to another storage
storage.py        at a broker with a store: what it takes, writes, and says once that is durable
sending.py        at a broker with a store: what it sends to each identity
relay.py          at a broker with a store: what it takes of other logs
serving.py        at the broker where a client is: what it was given, and what it has taken
effects.py        when a durable subscription is known everywhere
spans.py          the accept rule, which all of them rely on

State that must survive a crash is in the store; all else is soft, and is said again. The rules are those of the page
`docs/delivery.md`; the decision record `docs/decisions/0022-durable-delivery.md` says what was changed and why.

subscribe     The row gets a version above all that are known, is applied, stored, and flooded. It takes effect when all
              storages that can be reached have stored it.
client up     If the name has, or had, durable subscriptions, the broker serves it from now on. It floods that, with
              what the client has taken (`Place`), and each storage sends from there.
client down   The broker floods that the identity is away.
Durable,      If it is newer than what is known, it is applied, stored by a storage, and flooded on.
Place         A place that names this broker, which does not serve the identity, is from before a crash: the broker says
              that the identity is away. If it does serve it, it says so with a greater session.
Span          The shares of identities at this broker are delivered; the others are passed on, one copy for each link.
At            At its storage: acknowledges, and lets more be sent. Of an older session it is ignored.
Stored        Releases what waited: confirmations, pieces of the log, `Knows`.

A publication goes to the core inside at once, at the broker where its publisher is, whether it is to be stored or not.
If durable identities are due, it also becomes a record at the home of its source. What a neighbor forwards is passed
straight to the core inside: whoever is due was found where it was published. While there is no durable subscription in
the network, all notifications are.

Nothing here waits: what depends on the disk is released by `Stored`. All that one message leads to is put together by
`_finished`: pieces of the log become deliveries or spans, writes become one `Persist`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.core import Inspection, LeavesInParts, RoutingCore
from catchment.routing.durable.effects import EFFECT_TIMER
from catchment.routing.durable.messages import (
    Ask,
    At,
    CancelDurable,
    Directed,
    Durable,
    DurableRequest,
    Forget,
    Join,
    Kept,
    Knows,
    Leave,
    Offer,
    Place,
    Reach,
    Rewind,
    Share,
    Span,
    SubscribeDurable,
    Taken,
)
from catchment.routing.durable.passing import divided
from catchment.routing.durable.places import Places
from catchment.routing.durable.publications import Publications
from catchment.routing.durable.publishing import OFFER_TIMER
from catchment.routing.durable.reach import PREFIX
from catchment.routing.durable.relay import Relay
from catchment.routing.durable.sending import RETRY_TIMER, Piece, share_of, spans
from catchment.routing.durable.serving import Serving
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.durable.shared import Shared
from catchment.routing.durable.storage import ACKNOWLEDGE_TIMER
from catchment.routing.durable.subscriptions import Subscriptions
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Deliver,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.stored import (
    Fetched,
    Opened,
    Stored,
    StoreDown,
    StoreMessage,
    StoreUp,
)

# What a durable core is told besides what the core inside understands.
DurableMessage = Reach | Durable | Place | Directed | DurableRequest | Taken | StoreMessage


class DurableCore:
    """A core that adds durable delivery to `inner`. `opened` is what is in the broker's store; None if it has none."""

    def __init__(
        self, name: str, inner: RoutingCore[Any], opened: Opened | None = None, settings: DurableSettings | None = None
    ) -> None:
        self.name = name
        self.inner: Any = inner
        self._shared = Shared(name, inner, opened, settings or DurableSettings())
        self._paths, self.table = self._shared.paths, self._shared.table
        self._serving = Serving()
        self._places = Places(self._shared, self._serving)
        self._subscriptions = Subscriptions(self._shared, self._places)
        self._publications = Publications(self._shared)
        self._relay = Relay(name)
        if opened is not None:
            for row in opened.durables:
                self.table.apply(row)
            self._places.load(opened)

    # --- looking in ---

    @property
    def clients(self) -> ClientSide:
        clients: ClientSide = self.inner.clients
        return clients

    @property
    def log(self) -> str:
        """The id of this broker's log; empty if it has no store."""
        return "" if self._shared.storage is None else self._shared.storage.log

    def storages(self) -> list[tuple[str, str, bool]]:
        """The storages that are known: name, log, and whether they can be reached now."""
        reached = self._paths.reached
        return [(name, log, name in reached) for name, log in self._paths.storages.items()]

    @property
    def preferred_storage(self) -> str:
        """The storage that keeps what a client publishes that connects now; empty if none is known."""
        return self._publications.preferred()

    def home(self, client: Client) -> str:
        """The storage that keeps what a client publishes, from when it connects until it goes; empty if none is known.
        The host tells the client: it says so when it connects the next time, unless everything has settled."""
        return self._publications.home(client)

    @property
    def alarms(self) -> list[str]:
        """What looks like a loss at a storage."""
        return list(self._shared.alarms)

    def numbers(self) -> dict[str, int]:
        """The last number of each source that is kept here."""
        return {} if self._shared.storage is None else self._shared.storage.numbers()

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (*self.inner.matchers(), self.table.matcher)

    def inspect(self) -> Inspection:
        inspection: Inspection = self.inner.inspect()
        return inspection

    def farewell(self, neighbor: Neighbor, most: int) -> Iterator[BrokerMessage]:
        """What the core inside may be told before a link goes (`LeavesInParts`)."""
        if isinstance(self.inner, LeavesInParts):
            yield from self.inner.farewell(neighbor, most)

    def leftovers(self) -> list[str]:
        wanted = [f"{row.wanted} of {row.identity}, durable" for row in self.table.rows() if row.wanted is not None]
        return [*self.inner.leftovers(), *wanted]

    # --- publications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if not len(self.table) or not isinstance(source, Client):
            actions: list[Action] = self.inner.on_notifications(batch, source, now)
            return actions
        return self._finished(self._publications.published(batch, source, now), now)

    def on_publication(
        self, notifications: Sequence[Notification], after: int | None, client: Client, now: Time
    ) -> list[Action]:
        """Publications of one source, with growing numbers above 0, that the client wants to be stored. `after` is the
        number of the one before the first of them that was to be stored, None if there was none (rule 1)."""
        return self._finished(self._publications.stored(notifications, after, client, now), now)

    def on_undeliverable(self, delivery: Deliver, now: Time) -> list[Action]:
        """A delivery is too long for the client's connection: it will never be taken, and nobody waits for it."""
        return self._finished(self._at(self._serving.skipped(delivery), now), now)

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | BrokerMessage | DurableMessage, source: Interface, now: Time
    ) -> list[Action]:
        match message:
            case Reach() | Durable() | Place() | Span() | At() | Offer() | Kept() | Knows() | Ask():
                assert isinstance(source, Neighbor)
                actions = self._on_broker_message(message, source, now)
            case Stored() | Fetched() | StoreDown() | StoreUp():
                actions = self._on_store_message(message, now)
            case SubscribeDurable() | CancelDurable() | Join() | Leave() | Rewind() | Forget():
                assert isinstance(source, Client)
                actions = self._requested(message, source, now)
            case Taken():
                assert isinstance(source, Client)
                actions = self._at(self._serving.taken(source, message), now)
            case TimerFired() if message.name.startswith(PREFIX):
                actions = self._on_timer(message.name.removeprefix(PREFIX), now)
            case Subscribe() if isinstance(source, Client) and self._subscriptions.refusal(message, source):
                return self._subscriptions.refusal(message, source)
            case _:
                actions = self._on_inner_message(message, source, now)
        return self._finished(actions, now)

    def _on_inner_message(
        self, message: ClientRequest | HostMessage | BrokerMessage, source: Interface, now: Time
    ) -> list[Action]:
        """What the core inside is told, and sometimes this one too."""
        actions: list[Action] = self.inner.on_message(message, source, now)
        match message:
            case LinkUp():
                assert isinstance(source, Neighbor)
                actions += self._rerouted(lambda: self._paths.up(source, message.cost, now), now)
                actions += self._places.serve_relay(now)
                actions += [Send(source, row) for row in self.table.exchanged()]
            case LinkDown():
                assert isinstance(source, Neighbor)
                actions += self._rerouted(lambda: self._paths.down(source, now), now)
            case ClientUp():
                assert isinstance(source, Client)
                actions += self._publications.client_up(source, message.identity, message.storage, now)
                actions += self._places.client_up(source, message, now)
            case ClientDown():
                assert isinstance(source, Client)
                self._publications.client_down(source)
                self._subscriptions.client_down(source)
                actions += self._places.client_down(source, now)
            case _:
                pass
        return actions

    def _on_broker_message(
        self, message: Reach | Durable | Place | Directed, source: Neighbor, now: Time
    ) -> list[Action]:
        match message:
            case Reach():
                told = self._places.told_lost(self.name, message.log) if self._paths.learn_former(message) else []
                return told + self._rerouted(lambda: self._paths.heard(message, source, now), now)
            case Durable():
                return self._subscriptions.heard(message, source, now)
            case Place():
                return self._places.heard(message, source, now)
            case Span():
                return self._on_span(message, now)
            case At() | Offer() | Ask() if message.storage != self.name:
                return self._paths.passed_on(message, message.storage)
            case Kept() | Knows() if message.by != self.name:
                return self._paths.passed_on(message, message.by)
            case At():
                return self._at(message, now)
            case Offer():
                return self._publications.on_offer(message, now)
            case Kept():
                return self._publications.on_kept(message, now)
            case Knows():
                return self._subscriptions.on_knows(message, now)
            case Ask():
                return self._subscriptions.on_ask(message)
            case _:
                assert_never(message)

    def _on_timer(self, name: str, now: Time) -> list[Action]:
        storage = self._shared.storage
        if name == RETRY_TIMER and storage is not None:
            storage.sending.retry(now)
        elif name == ACKNOWLEDGE_TIMER and storage is not None:
            storage.acknowledge()
        elif name == OFFER_TIMER:
            return self._publications.ask_homes(now, is_all=False)
        elif name == EFFECT_TIMER:
            return self._subscriptions.on_timer(now)
        else:
            return self._paths.on_timer(name, now)
        return []

    # --- paths ---

    def _rerouted(self, change: Any, now: Time) -> list[Action]:
        """After `change`, paths may be others, and so may be who can be reached."""
        reached, storages = self._paths.reached, self._paths.storages
        actions: list[Action] = change()
        if self._paths.reached == reached and self._paths.storages == storages:
            return actions
        if self._shared.storage is not None:
            self._shared.storage.sending.reached(self._paths.reached - reached, now)
        for storage, log in storages.items():
            if self._paths.storages.get(storage, log) != log:
                actions += self._places.told_lost(storage, log)
        return actions + self._publications.ask_homes(now, is_all=True) + self._subscriptions.rerouted(now)

    # --- requests ---

    def _requested(self, message: DurableRequest, client: Client, now: Time) -> list[Action]:
        try:
            match message:
                case SubscribeDurable():
                    return self._subscriptions.subscribe(message, client, now)
                case CancelDurable():
                    return self._subscriptions.cancel(message, client, now)
                case Join():
                    return self._places.join(message.identity, client, now)
                case Leave():
                    return self._places.leave(message.identity, client, now)
                case Rewind():
                    return self._places.go_back(message, client, now)
                case Forget():
                    return self._subscriptions.forget(message.identity, now)
                case _:
                    assert_never(message)
        except CatchmentError as problem:
            return [Refuse(client, problem)]

    # --- spans ---

    def _on_span(self, message: Span, now: Time) -> list[Action]:
        here, onward = divided(message, self.name, self._paths.hop)
        for share in here:
            if any(place >= len(message.entries) for place, _ in share.entries):
                continue  # It names an entry that is not there.
            if share.identity == self._relay.identity:
                onward += self._consumed(message, share, now)
                continue
            deliveries, at = self._serving.share(message.storage, message.log, share, message.entries)
            onward += deliveries + self._at(at, now)
        return onward

    def _consumed(self, message: Span, share: Share, now: Time) -> list[Action]:
        """A piece of another log for this broker as a relay. If no records can be made, it comes again."""
        storage, served = self._shared.working_storage, self._serving.get(share.identity)
        if storage is None or self._shared.refusal or served is None or served.session != share.session:
            return []
        at = self._relay.share(storage, message.storage, message.log, share, message.entries, now)
        return self._at(at, now)

    def _at(self, message: At | None, now: Time) -> list[Action]:
        """How far an identity is: for our own log, or for that of another storage."""
        if message is None:
            return []
        if message.storage != self.name:
            return self._paths.sent(message, message.storage)
        storage = self._shared.working_storage
        if storage is None or message.log != storage.log:
            return []
        if not storage.sending.at(message.identity, message.session, message.position, message.again, now):
            self._places.alarm(message.identity)
        return []

    # --- the store ---

    def _on_store_message(self, message: StoreMessage, now: Time) -> list[Action]:
        storage = self._shared.storage
        assert storage is not None, "a broker without a store hears nothing of one"
        match message:
            case Stored():
                return self._on_stored(message, now)
            case Fetched():
                storage.sending.fetched(message, now)
                return []
            case StoreDown():
                self._shared.store_problem = message.reason or "it has failed"
                return self._publications.store_down(storage.unstored_sources, message.reason)
            case StoreUp():
                return self._on_store_up(message, now)
            case _:
                assert_never(message)

    def _on_stored(self, message: Stored, now: Time) -> list[Action]:
        assert self._shared.storage is not None
        released = self._shared.storage.stored(message.serial, now)
        actions: list[Action] = []
        for source in released.kept:
            actions += self._publications.confirmed(source)
        served = self._serving.get(self._relay.identity)
        for log, upto in released.consumed.items():
            if served is not None:
                actions += self._at(self._relay.at(log, served.session, upto), now)
        return actions + self._subscriptions.stored(released.knows, now)

    def _on_store_up(self, message: StoreUp, now: Time) -> list[Action]:
        """Goes on from what the store has. What was heard while it was down is written now."""
        opened, was_down = message.opened, bool(self._shared.store_problem)
        self._shared.is_full = message.is_full
        if not was_down:
            return []  # Only its room has changed.
        storage = self._shared.open(opened)
        durables = {(row.identity, row.id): row for row in opened.durables}
        for row in self.table.rows():
            if durables.get((row.identity, row.id)) != row:
                storage.subscribed(row)
        places = {place.identity: place for place in opened.places}
        for place in self.table.places():
            if places.get(place.identity) != place:
                storage.moved(place)
            position = self.table.positions(place.identity).get(storage.log)
            storage.sending.place(place.identity, place.session, place.broker, position, now)
        return []

    def _finished(self, actions: list[Action], now: Time) -> list[Action]:
        """What a message leads to, put together: pieces of the log as deliveries and spans, writes as one `Persist`."""
        storage = self._shared.working_storage
        if storage is None:
            return actions
        while True:
            pieces, fetches = storage.sending.drained()
            actions += fetches
            if not pieces:
                break
            here = [piece for piece in pieces if piece.broker == self.name]
            for piece in here:
                actions += self._delivered(piece, storage.log, now)
            if len(here) < len(pieces):
                away = (piece for piece in pieces if piece.broker != self.name)
                actions += spans(away, self.name, storage.log, self._paths.hop)
        timers = storage.sending.retry_timer(now)
        actions += storage.flushed(now) + timers
        return actions

    def _delivered(self, piece: Piece, log: str, now: Time) -> list[Action]:
        """A piece for an identity that is served here: no message is needed."""
        places = {entry.epoch: place for place, entry in enumerate(piece.entries)}
        entries = tuple((entry.epoch, entry.notification) for entry in piece.entries)
        deliveries, at = self._serving.share(self.name, log, share_of(piece, places), entries)
        return deliveries + self._at(at, now)
