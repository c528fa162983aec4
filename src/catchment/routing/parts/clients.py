"""The client side of a broker: who its clients are, what they want, and what is to be delivered to them.

State, for each identity: its owner (the client that introduced it), its handler (the client that deliveries go to),
its subscriptions by id, its advertisements, the last `$seq` of each source that was delivered to it, and the deliveries
that wait while it is suspended. One matcher has the filters of all subscriptions. A pattern has one entry in the
matcher for each of its filters, and a monitor (`watching.py`).

Every core has a client side, so a client cannot tell which routing system serves it:

- A client gets one copy of a notification, with the ids of all its subscriptions that match.
- A client gets nothing twice, and the notifications of one publisher in order: if a notification is not newer than the
  last one from the same source, the client side does not deliver it. That holds too if the client got the last one
  from another broker.
- While an identity is suspended, deliveries to it wait, at most SUSPENDED_MAX of them and SUSPENDED_BYTES_MAX bytes.
  When there are more, the oldest are dropped and counted. What waits for all identities of one client, and for all
  clients, is bounded in bytes too: then the identity for which most waits loses its oldest (`shares.py`).

Who may speak for an identity: its owner, and the client that the owner has mapped it to. The host checks that before it
gives a request to the core (`node/access.py`). A request that is refused introduces no identity.

`filters_of` says what an identity needs from the network: a core announces those filters to other brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from catchment.errors import BadIdError, LimitError, shown
from catchment.matching.ids import Id
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.core import CLIENTS_TABLE, Table
from catchment.routing.messages import (
    Action,
    Advertise,
    Cancel,
    CancelMany,
    Client,
    ClientRequest,
    ClientUp,
    Deliver,
    DeliverSequence,
    Keep,
    MapIdentity,
    Missed,
    Resume,
    Subscribe,
    Suspend,
    Time,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.identities import Due, Identities, Identity
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.shares import Limits, Shares
from catchment.routing.parts.wanted import cancels, filters_for, text_bytes
from catchment.routing.parts.watching import Completed, Watching

# Deliveries that wait for one suspended identity: some minutes of a busy stream, some megabytes.
SUSPENDED_MAX: Final = 10_000
# The bytes of these deliveries: as many as may wait for a client that is connected.
SUSPENDED_BYTES_MAX: Final = 8 * 1_048_576
# Of all suspended identities that one client owns.
CLIENT_SUSPENDED_BYTES_MAX: Final = 32 * 1_048_576
# Of all suspended identities at one broker.
BROKER_SUSPENDED_BYTES_MAX: Final = 256 * 1_048_576
# Subscriptions of one identity. Who needs more should use fewer and wider filters.
IDENTITY_SUBSCRIPTIONS_MAX: Final = 100_000
# Advertisements of one identity: some systems compare each of them with every notification that it publishes.
IDENTITY_ADVERTISEMENTS_MAX: Final = 1_000

# For each subscription to a pattern: its id, and the places in the pattern of the filters that match.
_Steps = tuple[tuple[str, tuple[int, ...]], ...]
# An identity, the ids of its filter subscriptions that match, and its pattern subscriptions of which a filter matches.
Interested = tuple[Identity, tuple[str, ...], _Steps]


class ClientSide(Identities):
    """The identities at a broker, and what they want. `watching` has the monitors of their patterns."""

    def __init__(self, watching: Watching | None = None) -> None:
        super().__init__()
        self.watching = Watching() if watching is None else watching
        self.matcher = RecallingMatcher(self._interested)
        limits = Limits(SUSPENDED_BYTES_MAX, CLIENT_SUSPENDED_BYTES_MAX, BROKER_SUSPENDED_BYTES_MAX)
        self._waiting_shares: Shares[Client, str] = Shares(limits)
        # Of identities that are gone.
        self._old_before = 0
        # By number in the matcher: the identity, the id of the subscription, and, for a filter of a pattern, its place
        # in the pattern.
        self._owners: dict[Id, tuple[Identity, str, int | None]] = {}
        self._next_number = 0
        self._subscriptions_count = 0
        self._text_bytes = 0

    # --- identities ---

    def client_up(self, client: Client, message: ClientUp) -> None:
        """A client has connected: it is the handler of its identity from now on."""
        identity = self._identity(message.identity, client)
        self._hand_over(identity, client)
        identity.newest.merge(message.seen)
        for newest in identity.newest_by_channel.values():
            newest.merge(message.seen)

    def client_down(self, client: Client) -> list[str]:
        """Forgets the identities whose handler the client was, with their subscriptions. Returns their names."""
        gone = [identity.name for identity in self.identities_of(client)]
        for name in gone:
            identity = self._identities[name]
            for id in list(identity.subscriptions):
                self._drop(identity, id)
            self._forget(identity)
        return gone

    def _forget(self, identity: Identity) -> None:
        waiting = self._waiting_shares.size(identity.owner, identity.name)
        self._waiting_shares.grow(identity.owner, identity.name, -waiting)
        self._old_before += identity.old_count
        super()._forget(identity)

    # --- subscriptions and advertisements ---

    def filters_of(self, identity: str, needed: Callable[[Wanted], tuple[Filter, ...]] = filters_for) -> list[Filter]:
        """The filters that an identity needs from the network, each once, in the order of its subscriptions. `needed`
        says which filters one subscription needs."""
        wants = self.wants_of(identity).values()
        return list(dict.fromkeys(filter for wanted in wants for filter in needed(wanted)))

    def wants_of(self, identity: str) -> Mapping[str, Wanted]:
        """What an identity has subscribed to, by subscription id. Not a copy: it changes with the next request."""
        known = self._identities.get(identity)
        return {} if known is None else known.subscriptions

    def numbers_of(self, identity: str, id: str) -> Sequence[int]:
        """The numbers of a subscription's filters, in their order: a pattern has several."""
        known = self._identities.get(identity)
        return () if known is None else known.numbers.get(id, ())

    def subscriptions_of(self, identity: str) -> dict[str, Wanted]:
        """A copy of `wants_of`."""
        return dict(self.wants_of(identity))

    def advertisements_of(self, identity: str) -> list[Advertisement]:
        known = self._identities.get(identity)
        return [] if known is None else list(known.advertisements)

    def request(self, message: ClientRequest, client: Client) -> list[Action]:
        """Does what a client asks for. Returns the deliveries that follow from it: those that waited, after `Resume`.
        CatchmentError if the request cannot be done."""
        is_new = message.identity not in self._identities
        identity = self._identity(message.identity, client)
        try:
            return self._done(message, identity)
        finally:
            # A request that was refused, or had nothing to end, introduces nobody.
            if is_new and not isinstance(message, MapIdentity | Suspend) and not _has_anything(identity):
                self._forget(identity)

    def _done(self, message: ClientRequest, identity: Identity) -> list[Action]:
        match message:
            case Subscribe():
                self._subscribe(identity, message.id, message.wanted)
            case Unsubscribe():
                # A list first: `_drop` changes the subscriptions.
                for id in [id for id, wanted in identity.subscriptions.items() if cancels(message.wanted, wanted)]:
                    self._drop(identity, id)
            case Cancel():
                if message.id not in identity.subscriptions:
                    raise BadIdError(f"{shown(message.identity)} has no subscription {shown(message.id)}")
                self._drop(identity, message.id)
            case CancelMany():
                for id in message.ids:
                    if id in identity.subscriptions:
                        self._drop(identity, id)
            case Advertise():
                _advertise(identity, message.advertisement)
            case Unadvertise():
                covered = [offer for offer in identity.advertisements if message.advertisement.covers(offer)]
                for offer in covered:
                    del identity.advertisements[offer]
            case MapIdentity():
                self._hand_over(identity, Client(message.handler))
            case Suspend():
                # An identity that is suspended already keeps what waits for it.
                identity.waiting = identity.waiting or deque()
            case Resume():
                return self._resumed(identity)
        return []

    def _subscribe(self, identity: Identity, id: str, wanted: Wanted) -> None:
        if id in identity.subscriptions:
            raise BadIdError(f"{shown(identity.name)} has a subscription {shown(id)} already: cancel it first")
        if len(identity.subscriptions) >= IDENTITY_SUBSCRIPTIONS_MAX:
            raise LimitError(
                "IDENTITY_SUBSCRIPTIONS_MAX", IDENTITY_SUBSCRIPTIONS_MAX, "one more", "subscribe with wider filters"
            )
        steps = list(enumerate(wanted.filters)) if isinstance(wanted, Pattern) else [(None, wanted)]
        numbers = range(self._next_number, self._next_number + len(steps))
        for number, (step, filter) in zip(numbers, steps, strict=True):
            self.matcher.add(number, filter)
            self._owners[number] = (identity, id, step)
        self._next_number += len(steps)
        identity.subscriptions[id] = wanted
        identity.numbers[id] = list(numbers)
        self._subscriptions_count += 1
        self._text_bytes += text_bytes(wanted)
        if isinstance(wanted, Pattern):
            self.watching.begin(identity.name, id, wanted, identity.owner.name)

    def _drop(self, identity: Identity, id: str) -> None:
        for number in identity.numbers.pop(id):
            self.matcher.remove(number)
            del self._owners[number]
        self._subscriptions_count -= 1
        self._text_bytes -= text_bytes(identity.subscriptions.pop(id))
        self.watching.end(identity.name, id)

    # --- deliveries ---

    def due(self, batch: Sequence[Notification], now: Time, only: str | None = None) -> list[Action]:
        """The deliveries that a batch of notifications makes, in the order of the batch. With `only`, deliveries to
        that identity alone: the centralized system addresses a copy to one identity."""
        if not self._owners:
            return []
        actions: list[Action] = []
        for notification, interested in zip(batch, self.matcher.answers(batch), strict=True):
            self._due_to(interested, notification, now, actions, only)
        return actions

    def due_to(
        self, interested: Iterable[Interested], notification: Notification, now: Time, channel: str = ""
    ) -> list[Action]:
        """The deliveries of one notification to those who are known to be interested in it: for cores that do not match
        content. `channel` is the way on which it came (`Identity.newest_of`)."""
        actions: list[Action] = []
        self._due_to(interested, notification, now, actions, None, channel)
        return actions

    def _due_to(
        self,
        interested: Iterable[Interested],
        notification: Notification,
        now: Time,
        actions: list[Action],
        only: str | None,
        channel: str = "",
    ) -> None:
        for identity, ids, steps in interested:
            newest = identity.newest_of(channel) if channel else identity.newest
            # `is_new` comes last, because it also remembers the notification as delivered to this identity.
            if (only is None or identity.name == only) and newest.is_new(notification):
                if ids and identity.waiting is None:
                    actions.append(Deliver(identity.client, identity.name, notification, ids))
                elif ids:
                    self._give(identity, Due((notification,), ids, False), actions)
                    actions.append(Keep(notification))
                if steps and notification.time is not None:
                    self._watch(identity, steps, notification, now, actions)

    def interested(self, numbers: Sequence[Id]) -> tuple[Interested, ...]:
        """Who is interested in a notification that the filters with these numbers match (`numbers_of`)."""
        return self._interested(numbers)

    def asked(self, number: Id) -> Filter | Cesql:
        """The filter or expression with this number, as it was asked for."""
        identity, id, step = self._owners[number]
        wanted = identity.subscriptions[id]
        return wanted.filters[step or 0] if isinstance(wanted, Pattern) else wanted

    def _interested(self, numbers: Sequence[Id]) -> tuple[Interested, ...]:
        """The identities that are interested in a notification, given the numbers of the filters that match it. The
        matcher recalls this answer until a filter is added or removed."""
        ids_by_identity: dict[str, list[str]] = {}
        steps_by_identity: dict[str, dict[str, list[int]]] = {}
        for number in numbers:
            identity, id, step = self._owners[number]
            if step is None:
                ids_by_identity.setdefault(identity.name, []).append(id)
            else:
                steps_by_identity.setdefault(identity.name, {}).setdefault(id, []).append(step)
        return tuple(
            (
                self._identities[name],
                tuple(sorted(ids_by_identity.get(name, ()))),
                tuple((id, tuple(steps)) for id, steps in sorted(steps_by_identity.get(name, {}).items())),
            )
            for name in sorted({*ids_by_identity, *steps_by_identity})
        )

    def _watch(
        self, identity: Identity, steps: _Steps, notification: Notification, now: Time, actions: list[Action]
    ) -> None:
        """Shows a notification to the monitors of an identity, and delivers the sequences that it completes."""
        # Even if it completes nothing, a pattern wants it.
        actions.append(Keep(notification))
        for id, matched_steps in steps:
            completed = self.watching.see(identity.name, id, notification, matched_steps, now)
            self._sequences(identity, id, completed, actions)

    def sequences_due(self, identity: str, id: str, completed: Completed) -> list[Action]:
        """The deliveries of sequences that a core has completed for a subscription."""
        actions: list[Action] = []
        self._sequences(self._identities[identity], id, completed, actions)
        return actions

    def _sequences(self, identity: Identity, id: str, completed: Completed, actions: list[Action]) -> None:
        self._miss(identity, completed.missed, actions)
        for name in completed.missed_by:
            self._miss(self._identities[name], 1, actions)
        for sequence in completed.sequences:
            self._give(identity, Due(sequence, (id,), True), actions)

    def _miss(self, identity: Identity, count: int, actions: list[Action]) -> None:
        """Tells an identity what it misses; if it is suspended, when it resumes."""
        if identity.waiting is not None:
            identity.missed += count
        elif count:
            actions.append(Missed(identity.client, identity.name, count))

    def missed(self, counts: Mapping[int, int]) -> list[Action]:
        """Tells identities how many notifications were lost on their way: at most so many for the filter with each
        number. What several filters of an identity have lost is counted once, by the largest count."""
        by_identity: dict[str, int] = {}
        for number, count in counts.items():
            name = self._owners[number][0].name
            by_identity[name] = max(count, by_identity.get(name, 0))
        actions: list[Action] = []
        for name in sorted(by_identity):
            self._miss(self._identities[name], by_identity[name], actions)
        return actions

    def _give(self, identity: Identity, due: Due, actions: list[Action]) -> None:
        """Delivers, or lets the delivery wait if the identity is suspended."""
        if identity.waiting is None:
            actions.append(_delivery(identity, due))
            return
        identity.waiting.append(due)
        self._waiting_shares.grow(identity.owner, identity.name, due.bytes_count)
        if len(identity.waiting) > SUSPENDED_MAX:
            self._lose_oldest(identity)
        while (past := self._waiting_shares.past_limit(identity.owner, identity.name)) is not None:
            self._lose_oldest(self._identities[past[1]])

    def _lose_oldest(self, identity: Identity) -> None:
        assert identity.waiting, "something waits for an identity that has a share"
        oldest = identity.waiting.popleft()
        self._waiting_shares.grow(identity.owner, identity.name, -oldest.bytes_count)
        identity.missed += 1

    def _resumed(self, identity: Identity) -> list[Action]:
        waiting, missed = identity.waiting or (), identity.missed
        size = self._waiting_shares.size(identity.owner, identity.name)
        self._waiting_shares.grow(identity.owner, identity.name, -size)
        identity.waiting, identity.missed = None, 0
        # First how many were dropped: the oldest deliveries are dropped, so the gap is before those that are left.
        actions: list[Action] = [Missed(identity.client, identity.name, missed)] if missed else []
        return actions + [_delivery(identity, due) for due in waiting]

    # --- looking in ---

    @property
    def subscriptions_count(self) -> int:
        return self._subscriptions_count

    @property
    def waiting_bytes(self) -> int:
        """What waits for suspended identities takes in memory."""
        return self._waiting_shares.total

    @property
    def old_count(self) -> int:
        """Deliveries that were not made because the notification was not newer than the last one of its source, since
        the start."""
        return self._old_before + sum(identity.old_count for identity in self)

    def tables(self) -> list[Table]:
        """One table for all clients together; none if there are no subscriptions."""
        return [Table(CLIENTS_TABLE, len(self.matcher), self._text_bytes)] if len(self.matcher) else []

    def leftovers(self) -> list[str]:
        count = self._subscriptions_count
        return [f"{count} subscriptions of clients"] if count else []


def _has_anything(identity: Identity) -> bool:
    return bool(identity.subscriptions or identity.advertisements)


def _advertise(identity: Identity, advertisement: Advertisement) -> None:
    if len(identity.advertisements) >= IDENTITY_ADVERTISEMENTS_MAX and advertisement not in identity.advertisements:
        raise LimitError(
            "IDENTITY_ADVERTISEMENTS_MAX", IDENTITY_ADVERTISEMENTS_MAX, "one more", "advertise wider, or withdraw some"
        )
    identity.advertisements[advertisement] = None


def _delivery(identity: Identity, due: Due) -> Action:
    if due.is_sequence:
        return DeliverSequence(identity.client, identity.name, due.notifications, due.subscriptions[0])
    return Deliver(identity.client, identity.name, due.notifications[0], due.subscriptions)
