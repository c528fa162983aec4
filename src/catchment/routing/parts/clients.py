"""The client side of a broker: who its clients are, what they want, and what they are due.

State, by identity: its handler (the client that deliveries go to), its subscriptions by id, its advertisements, for
each source the last `$seq` it was delivered, and what waits while it is suspended. One matcher holds all
subscriptions; a pattern is one entry of it for each filter, and has a monitor (`watching.py`).

Every core has one of these, so that a client cannot tell which core serves it:

- A client gets one copy of a notification, however many subscriptions match, with the ids of those that do.
- It gets nothing twice and nothing out of a publisher's order: what is not newer than the last of its source is not
  delivered, also when the client had that one from another broker.
- While an identity is suspended its notifications wait, at most SUSPENDED_MAX; the oldest are dropped first and
  counted.

What an identity wants of the network is `filters_of`: a core forwards those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from catchment.errors import BadIdError, LimitError, shown
from catchment.matching.ids import Id
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification
from catchment.routing.core import CLIENTS_TABLE, Table
from catchment.routing.messages import (
    Action,
    Advertise,
    Cancel,
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
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import cancels, filters_for, text_bytes
from catchment.routing.parts.watching import Completed, Watching

# What waits for one suspended identity: some minutes of a busy stream, some megabytes.
SUSPENDED_MAX: Final = 10_000
# And their bytes: as many as a client that is connected may have waiting at a broker.
SUSPENDED_BYTES_MAX: Final = 8 * 1_048_576
# Subscriptions of one identity; more are better stated as fewer, wider ones.
IDENTITY_SUBSCRIPTIONS_MAX: Final = 100_000
# Advertisements of one identity: where they count, each is tried for what it publishes.
IDENTITY_ADVERTISEMENTS_MAX: Final = 1_000
# Sources whose last `$seq` is kept for one identity, the longest silent forgotten first.
SEEN_SOURCES_MAX: Final = 10_000


@dataclass(slots=True)
class _Due:
    """What waits: a delivery, whose client is known only when it is made."""

    notifications: tuple[Notification, ...]
    subscriptions: tuple[str, ...]
    is_sequence: bool

    @property
    def bytes_count(self) -> int:
        return sum(len(notification.content) + len(notification.payload) for notification in self.notifications)


@dataclass(slots=True)
class Identity:
    """One identity, and the client that deliveries for it go to."""

    name: str
    client: Client
    subscriptions: dict[str, Wanted] = field(default_factory=dict)
    advertisements: dict[Advertisement, None] = field(default_factory=dict)
    # By subscription, its numbers in the matcher: one, or one for each filter of a pattern.
    numbers: dict[str, list[int]] = field(default_factory=dict)
    newest: Newest = field(default_factory=lambda: Newest(SEEN_SOURCES_MAX))
    waiting: deque[_Due] | None = None
    waiting_bytes: int = 0
    missed: int = 0


# The filters of patterns that match, by the id of the subscription; an identity with its subscriptions that match.
_Steps = tuple[tuple[str, tuple[int, ...]], ...]
_Interested = tuple[Identity, tuple[str, ...], _Steps]


class ClientSide:
    """The identities at a broker. `watching` has the monitors of their patterns."""

    def __init__(self, watching: Watching | None = None) -> None:
        self.watching = Watching() if watching is None else watching
        self.matcher = RecallingMatcher(self._interested)
        self._identities: dict[str, Identity] = {}
        # By number in the matcher: whose it is, the id of the subscription, and the place of the filter in a pattern.
        self._owners: dict[Id, tuple[Identity, str, int | None]] = {}
        self._next_number = 0
        self._subscriptions_count = 0
        self._text_bytes = 0

    # --- who is there ---

    def __contains__(self, identity: str) -> bool:
        return identity in self._identities

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._identities.values())

    def __len__(self) -> int:
        return len(self._identities)

    def client_up(self, client: Client, message: ClientUp) -> None:
        identity = self._identity(message.identity, client)
        identity.client = client
        identity.newest.merge(message.seen)

    def client_down(self, client: Client) -> list[str]:
        """The identities whose handler it was: they are forgotten."""
        gone = [identity.name for identity in self._identities.values() if identity.client == client]
        for name in gone:
            identity = self._identities[name]
            for id in list(identity.subscriptions):
                self._drop(identity, id)
            del self._identities[name]
        return gone

    def _identity(self, name: str, client: Client) -> Identity:
        return self._identities.setdefault(name, Identity(name, client))

    # --- what they want ---

    def filters_of(self, identity: str, needed: Callable[[Wanted], tuple[Filter, ...]] = filters_for) -> list[Filter]:
        """What is needed from the network for an identity, in order of its subscriptions."""
        wants = self.wants_of(identity).values()
        return list(dict.fromkeys(filter for wanted in wants for filter in needed(wanted)))

    def wants_of(self, identity: str) -> Mapping[str, Wanted]:
        """By id; not a copy."""
        known = self._identities.get(identity)
        return {} if known is None else known.subscriptions

    def subscriptions_of(self, identity: str) -> dict[str, Wanted]:
        return dict(self.wants_of(identity))

    def advertisements_of(self, identity: str) -> list[Advertisement]:
        known = self._identities.get(identity)
        return [] if known is None else list(known.advertisements)

    def request(self, message: ClientRequest, client: Client) -> list[Action]:
        """Does what a client asks; what it is due by that. CatchmentError for what cannot be done."""
        identity = self._identity(message.identity, client)
        match message:
            case Subscribe():
                self._subscribe(identity, message.id, message.wanted)
            case Unsubscribe():
                for id in [id for id, wanted in identity.subscriptions.items() if cancels(message.wanted, wanted)]:
                    self._drop(identity, id)
            case Cancel():
                if message.id not in identity.subscriptions:
                    raise BadIdError(f"{shown(message.identity)} has no subscription {shown(message.id)}")
                self._drop(identity, message.id)
            case Advertise():
                _advertise(identity, message.advertisement)
            case Unadvertise():
                covered = [offer for offer in identity.advertisements if message.advertisement.covers(offer)]
                for offer in covered:
                    del identity.advertisements[offer]
            case MapIdentity():
                identity.client = Client(message.handler)
            case Suspend():
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
            self.watching.begin(identity.name, id, wanted)

    def _drop(self, identity: Identity, id: str) -> None:
        for number in identity.numbers.pop(id):
            self.matcher.remove(number)
            del self._owners[number]
        self._subscriptions_count -= 1
        self._text_bytes -= text_bytes(identity.subscriptions.pop(id))
        self.watching.end(identity.name, id)

    # --- what they are due ---

    def due(self, batch: Sequence[Notification], now: Time, only: str | None = None) -> list[Action]:
        """Deliveries of a batch, in its order; those to one identity, if it is for that one."""
        if not self._owners:
            return []
        actions: list[Action] = []
        for notification, interested in zip(batch, self.matcher.found(batch), strict=True):
            for identity, ids, steps in interested:
                if (only is None or identity.name == only) and identity.newest.is_new(notification):
                    if ids and identity.waiting is None:
                        actions.append(Deliver(identity.client, identity.name, notification, ids))
                    elif ids:
                        self._give(identity, _Due((notification,), ids, False), actions)
                        actions.append(Keep(notification))
                    if steps and notification.time is not None:
                        self._watch(identity, steps, notification, now, actions)
        return actions

    def _interested(self, numbers: Sequence[Id]) -> tuple[_Interested, ...]:
        """By identity, whose subscriptions match and whose monitors are to see it."""
        by_filter: dict[str, list[str]] = {}
        steps: dict[str, dict[str, list[int]]] = {}
        for number in numbers:
            identity, id, step = self._owners[number]
            if step is None:
                by_filter.setdefault(identity.name, []).append(id)
            else:
                steps.setdefault(identity.name, {}).setdefault(id, []).append(step)
        return tuple(
            (
                self._identities[name],
                tuple(sorted(by_filter.get(name, ()))),
                tuple((id, tuple(matched)) for id, matched in sorted(steps.get(name, {}).items())),
            )
            for name in sorted({*by_filter, *steps})
        )

    def _watch(
        self, identity: Identity, steps: _Steps, notification: Notification, now: Time, actions: list[Action]
    ) -> None:
        # Whatever the monitors make of it, somebody wants it.
        actions.append(Keep(notification))
        for id, matched in steps:
            self._sequences(identity, id, self.watching.see(identity.name, id, notification, matched, now), actions)

    def sequences_due(self, identity: str, id: str, completed: Completed) -> list[Action]:
        """Deliveries of what was completed for a subscription."""
        actions: list[Action] = []
        self._sequences(self._identities[identity], id, completed, actions)
        return actions

    def _sequences(self, identity: Identity, id: str, completed: Completed, actions: list[Action]) -> None:
        if completed.missed and identity.waiting is None:
            actions.append(Missed(identity.client, identity.name, completed.missed))
        elif completed.missed:
            identity.missed += completed.missed
        for sequence in completed.sequences:
            self._give(identity, _Due(sequence, (id,), True), actions)

    def _give(self, identity: Identity, due: _Due, actions: list[Action]) -> None:
        if identity.waiting is None:
            actions.append(_delivery(identity, due))
            return
        identity.waiting.append(due)
        identity.waiting_bytes += due.bytes_count
        while len(identity.waiting) > SUSPENDED_MAX or identity.waiting_bytes > SUSPENDED_BYTES_MAX:
            identity.waiting_bytes -= identity.waiting.popleft().bytes_count
            identity.missed += 1

    def _resumed(self, identity: Identity) -> list[Action]:
        waiting, missed = identity.waiting or (), identity.missed
        identity.waiting, identity.waiting_bytes, identity.missed = None, 0, 0
        told: list[Action] = [Missed(identity.client, identity.name, missed)] if missed else []
        return told + [_delivery(identity, due) for due in waiting]

    # --- looking in ---

    @property
    def subscriptions_count(self) -> int:
        return self._subscriptions_count

    def tables(self) -> list[Table]:
        """One, if there are subscriptions."""
        return [Table(CLIENTS_TABLE, len(self.matcher), self._text_bytes)] if len(self.matcher) else []

    def leftovers(self) -> list[str]:
        count = self._subscriptions_count
        return [f"{count} subscriptions of clients"] if count else []


def _advertise(identity: Identity, advertisement: Advertisement) -> None:
    if len(identity.advertisements) >= IDENTITY_ADVERTISEMENTS_MAX and advertisement not in identity.advertisements:
        raise LimitError(
            "IDENTITY_ADVERTISEMENTS_MAX", IDENTITY_ADVERTISEMENTS_MAX, "one more", "advertise wider, or withdraw some"
        )
    identity.advertisements[advertisement] = None


def _delivery(identity: Identity, due: _Due) -> Action:
    if due.is_sequence:
        return DeliverSequence(identity.client, identity.name, due.notifications, due.subscriptions[0])
    return Deliver(identity.client, identity.name, due.notifications[0], due.subscriptions)
