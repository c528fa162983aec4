"""The local clients of a broker: who they are, what they want, and what they are due.

State, by identity: its handler (the client that deliveries go to), its subscriptions by id, its advertisements, for
each source the last `$seq` it was delivered, and what waits while it is suspended. One matcher holds all
subscriptions; a pattern is one subscription of it for each filter, watched by a monitor here, at the subscriber's
broker.

Every core has one of these, so that a client cannot tell which core serves it:

- one copy of a notification, however many subscriptions match, with the ids of those that do;
- nothing twice, nothing out of a publisher's order: what is not newer than the last of its source is not delivered,
  also when the client had that one from another broker;
- a suspended identity's notifications wait, at most SUSPENDED_MAX, the oldest dropped first and counted;
- of a pattern that waits for more than a monitor holds the wait that was begun first is given up, and counted.

What the identity wants of the network is `filters_of`: a core forwards those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from catchment.errors import BadIdError, LimitError, shown
from catchment.matching.ids import Id
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.monitor import HeldMonitor, Match, Monitor
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import (
    Action,
    Advertise,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    DeliverSequence,
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
from catchment.routing.newest import Newest
from catchment.routing.recall import RecallingMatcher
from catchment.routing.wanted import cancels, filters_for

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

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

Request = Subscribe | Unsubscribe | Cancel | Advertise | Unadvertise | MapIdentity | Suspend | Resume


@dataclass(slots=True)
class _Due:
    """What waits: a delivery, whose client is known only when it is made."""

    notifications: tuple[Notification, ...]
    subscriptions: tuple[str, ...]
    is_sequence: bool

    @property
    def bytes_count(self) -> int:
        return sum(len(one.content) + len(one.payload) for one in self.notifications)


@dataclass(slots=True)
class Session:
    """One identity."""

    identity: str
    client: Client
    subscriptions: dict[str, Wanted] = field(default_factory=dict)
    advertisements: dict[Advertisement, None] = field(default_factory=dict)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    monitors: dict[str, Monitor] = field(default_factory=dict)
    newest: Newest = field(default_factory=lambda: Newest(SEEN_SOURCES_MAX))
    waiting: deque[_Due] | None = None
    waiting_bytes: int = 0
    missed: int = 0


# The steps of patterns that match, by the id of the subscription; a session with its subscriptions that match.
_Steps = tuple[tuple[str, tuple[int, ...]], ...]
_Interested = tuple[Session, tuple[str, ...], _Steps]


class Sessions:
    """The identities at a broker; each request gives the identities whose wants or advertisements it changed."""

    def __init__(self, monitor_of: Callable[[Pattern], Monitor] = Monitor) -> None:
        self._monitor_of = monitor_of
        self._sessions: dict[str, Session] = {}
        self._matcher = RecallingMatcher(self._interested)
        self._owners: dict[Id, tuple[Session, str, int | None]] = {}
        self._next_number = 0
        # For each pattern the filters for which only `due_held` counts.
        self._held_back: dict[Pattern, Collection[int]] = {}

    # --- who is there ---

    def __contains__(self, identity: str) -> bool:
        return identity in self._sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def client_up(self, client: Client, message: ClientUp) -> None:
        session = self._session(message.identity, client)
        session.client = client
        session.newest.merge(message.seen)

    def client_down(self, client: Client) -> list[str]:
        """The identities whose handler it was: they are forgotten."""
        gone = [one.identity for one in self._sessions.values() if one.client == client]
        for identity in gone:
            session = self._sessions[identity]
            for id in list(session.subscriptions):
                self._drop(session, id)
            del self._sessions[identity]
        return gone

    def _session(self, identity: str, client: Client) -> Session:
        return self._sessions.setdefault(identity, Session(identity, client))

    # --- what they want ---

    def filters_of(self, identity: str, needed: Callable[[Wanted], tuple[Filter, ...]] | None = None) -> list[Filter]:
        """What is needed from the network for an identity, in order of its subscriptions."""
        session = self._sessions.get(identity)
        wants = [] if session is None else [(needed or filters_for)(one) for one in session.subscriptions.values()]
        return list(dict.fromkeys(filter for some in wants for filter in some))

    def wants_of(self, identity: str) -> Mapping[str, Wanted]:
        """By id; not a copy."""
        session = self._sessions.get(identity)
        return {} if session is None else session.subscriptions

    def subscriptions_of(self, identity: str) -> dict[str, Wanted]:
        return dict(self.wants_of(identity))

    def advertisements_of(self, identity: str) -> list[Advertisement]:
        session = self._sessions.get(identity)
        return [] if session is None else list(session.advertisements)

    def request(self, message: Request, client: Client) -> list[Action]:
        """Does what a client asks; what it is due by that. CatchmentError for what cannot be done."""
        session = self._session(message.identity, client)
        match message:
            case Subscribe():
                self._subscribe(session, message.id, message.wanted)
            case Unsubscribe():
                for id in [id for id, one in session.subscriptions.items() if cancels(message.wanted, one)]:
                    self._drop(session, id)
            case Cancel():
                if message.id not in session.subscriptions:
                    raise BadIdError(f"{shown(message.identity)} has no subscription {shown(message.id)}")
                self._drop(session, message.id)
            case Advertise():
                _advertise(session, message.advertisement)
            case Unadvertise():
                covered = [one for one in session.advertisements if message.advertisement.covers(one)]
                for one in covered:
                    del session.advertisements[one]
            case MapIdentity():
                session.client = Client(message.handler)
            case Suspend():
                session.waiting = session.waiting or deque()
            case Resume():
                return self._resumed(session)
        return []

    def _subscribe(self, session: Session, id: str, wanted: Wanted) -> None:
        if id in session.subscriptions:
            raise BadIdError(f"{shown(session.identity)} has a subscription {shown(id)} already: cancel it first")
        if len(session.subscriptions) >= IDENTITY_SUBSCRIPTIONS_MAX:
            raise LimitError(
                "IDENTITY_SUBSCRIPTIONS_MAX", IDENTITY_SUBSCRIPTIONS_MAX, "one more", "subscribe with wider filters"
            )
        steps = list(enumerate(wanted.filters)) if isinstance(wanted, Pattern) else [(None, wanted)]
        numbers = range(self._next_number, self._next_number + len(steps))
        for number, (step, filter) in zip(numbers, steps, strict=True):
            self._matcher.add(number, filter)
            self._owners[number] = (session, id, step)
        self._next_number += len(steps)
        session.subscriptions[id] = wanted
        session.numbers[id] = list(numbers)
        if isinstance(wanted, Pattern):
            session.monitors[id] = self._monitor_of(wanted)

    def _drop(self, session: Session, id: str) -> None:
        for number in session.numbers.pop(id):
            self._matcher.remove(number)
            del self._owners[number]
        del session.subscriptions[id]
        session.monitors.pop(id, None)

    def prepare(self) -> None:
        self._matcher.prepare()

    # --- what they are due ---

    def due(self, batch: Sequence[Notification], now: Time, only: str | None = None) -> list[Action]:
        """Deliveries of a batch, in its order; those to one identity, if it is for that one."""
        if not self._owners:
            return []
        actions: list[Action] = []
        for notification, interested in zip(batch, self._matcher.found(batch), strict=True):
            for session, ids, steps in interested:
                if (only is None or session.identity == only) and session.newest.is_new(notification):
                    if ids and session.waiting is None:
                        actions.append(Deliver(session.client, session.identity, notification, ids))
                    elif ids:
                        self._give(session, _Due((notification,), ids, False), actions)
                    if steps and notification.time is not None:
                        self._watch(session, steps, notification, now, actions)
        return actions

    def _interested(self, numbers: Sequence[Id]) -> tuple[_Interested, ...]:
        """By identity, whose subscriptions match and whose monitors are to see it."""
        plain: dict[str, list[str]] = {}
        steps: dict[str, dict[str, list[int]]] = {}
        for number in numbers:
            session, id, step = self._owners[number]
            if step is None:
                plain.setdefault(session.identity, []).append(id)
            else:
                steps.setdefault(session.identity, {}).setdefault(id, []).append(step)
        return tuple(
            (
                self._sessions[one],
                tuple(sorted(plain.get(one, ()))),
                tuple((id, tuple(matched)) for id, matched in sorted(steps.get(one, {}).items())),
            )
            for one in sorted({*plain, *steps})
        )

    def _watch(
        self, session: Session, steps: _Steps, notification: Notification, now: Time, actions: list[Action]
    ) -> None:
        for id, matched in steps:
            monitor, counted = session.monitors[id], matched
            if self._held_back:
                elsewhere = self._held_back.get(monitor.pattern, ())
                counted = tuple(one for one in matched if one not in elsewhere)
            watched = partial(monitor.on_notification, notification, _instant(now), counted)
            for sequence in _completed(session, monitor, watched, notification, actions):
                notifications = tuple(one.notification for one in sequence)
                self._give(session, _Due(notifications, (id,), True), actions)

    # --- patterns of which a part is watched elsewhere ---

    def monitors_of(self, identity: str) -> dict[str, Monitor]:
        session = self._sessions.get(identity)
        return {} if session is None else session.monitors

    def hold_back(self, pattern: Pattern, steps: Collection[int]) -> None:
        """For these filters of a pattern only what `due_held` is given counts."""
        self._held_back[pattern] = steps
        if not steps:
            del self._held_back[pattern]

    def due_held(
        self, identity: str, id: str, notification: Notification, matched: Collection[int], now: Time
    ) -> list[Action]:
        """What one that was held back completes; others of its source may have come before it."""
        session, actions = self._sessions[identity], list[Action]()
        monitor = session.monitors[id]
        assert isinstance(monitor, HeldMonitor)
        watched = partial(monitor.on_held, notification, _instant(now), matched)
        for sequence in _completed(session, monitor, watched, notification, actions):
            self._give(session, _Due(tuple(one.notification for one in sequence), (id,), True), actions)
        return actions

    def _give(self, session: Session, due: _Due, actions: list[Action]) -> None:
        if session.waiting is None:
            actions.append(_delivery(session, due))
            return
        session.waiting.append(due)
        session.waiting_bytes += due.bytes_count
        while len(session.waiting) > SUSPENDED_MAX or session.waiting_bytes > SUSPENDED_BYTES_MAX:
            session.waiting_bytes -= session.waiting.popleft().bytes_count
            session.missed += 1

    def _resumed(self, session: Session) -> list[Action]:
        waiting, missed = session.waiting or (), session.missed
        session.waiting, session.waiting_bytes, session.missed = None, 0, 0
        told: list[Action] = [Missed(session.client, session.identity, missed)] if missed else []
        return told + [_delivery(session, one) for one in waiting]

    # --- looking in ---

    @property
    def subscriptions_count(self) -> int:
        return sum(len(one.subscriptions) for one in self._sessions.values())


def _completed(
    session: Session,
    monitor: Monitor,
    watched: Callable[[], list[tuple[Match, ...]]],
    notification: Notification,
    actions: list[Action],
) -> list[tuple[Match, ...]]:
    """The sequences of `watched`; past MONITOR_KEYS_MAX it is called again when there is room."""
    try:
        return watched()
    except LimitError:
        if monitor.give_up_oldest(notification):
            if session.waiting is None:
                actions.append(Missed(session.client, session.identity, 1))
            else:
                session.missed += 1
        return watched()


def _advertise(session: Session, advertisement: Advertisement) -> None:
    if len(session.advertisements) >= IDENTITY_ADVERTISEMENTS_MAX and advertisement not in session.advertisements:
        raise LimitError(
            "IDENTITY_ADVERTISEMENTS_MAX", IDENTITY_ADVERTISEMENTS_MAX, "one more", "advertise wider, or withdraw some"
        )
    session.advertisements[advertisement] = None


def _delivery(session: Session, due: _Due) -> Action:
    if due.is_sequence:
        return DeliverSequence(session.client, session.identity, due.notifications, due.subscriptions[0])
    return Deliver(session.client, session.identity, due.notifications[0], due.subscriptions)


def _instant(now: Time) -> datetime:
    return _EPOCH + timedelta(microseconds=now)
