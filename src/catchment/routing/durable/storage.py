"""A storage: which publications it takes, what it writes, and what waits until that is durable.

The store is one ordered sequence (`routing/stored.py`). All that one message makes the storage write goes into one
`Persist`; what has to wait for it is kept with its serial number, and released by `Stored`:

head      Records become durable: only then they may be sent (`sending.py`).
kept      Publications are kept: only then the publisher is told.
knows     A durable subscription is stored: only then the broker that was asked is told.

publication   The accept rule (`spans.py`) against the last number of the source: what is known is only confirmed again,
              a gap is refused, and says after which number to go on. The last number is written also if nobody is due
              anything.
record        `due` is fixed when the record is made, from the table as it is then. The rows that it relies on were
              written before, so no crash can keep the record and lose the row.
acknowledged  Written with the next records, or after a short time: if a crash loses it, it is said again.
store down    Nothing that was not durable is kept. The storage forgets it, refuses what it would have to store, and
              begins anew from what the store says when it works again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from catchment.model.notification import Notification
from catchment.routing.durable.reach import PREFIX
from catchment.routing.durable.sending import Sending
from catchment.routing.durable.spans import Verdict, verdict
from catchment.routing.messages import Action, Client, SetTimer, Time
from catchment.routing.stored import (
    Acknowledged,
    Consumed,
    Due,
    DurableRow,
    Forgotten,
    LastNumber,
    Opened,
    Persist,
    PlaceRow,
    Record,
    Write,
)

ACKNOWLEDGE_TIMER: Final = "acknowledge"
# Sources whose broker is remembered: more publish at one storage hardly ever. The one that has been silent longest is
# forgotten first, and told when it says something again.
PUBLISHERS_MAX: Final = 100_000


@dataclass(slots=True)
class Unstored:
    """What waits for a `Persist`."""

    serial: int = 0
    head: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    knows: list[DurableRow] = field(default_factory=list)
    consumed: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Released:
    """What `Stored` releases."""

    kept: dict[str, int] = field(default_factory=dict)
    knows: list[DurableRow] = field(default_factory=list)
    consumed: dict[str, int] = field(default_factory=dict)


class Storage:
    """The state of a storage that is in its store, or on its way there."""

    def __init__(
        self,
        opened: Opened,
        sending: Sending,
        acknowledge_us: Time,
        due_name: Callable[[DurableRow], str] = lambda row: row.identity,
    ) -> None:
        """`due_name` says under which name records are due for a subscription (`relay.py`)."""
        self._due_name = due_name
        # By log: how far this storage, as a relay, has consumed it; and how far that is durable.
        self._consumed: dict[str, int] = dict(opened.consumed)
        self._consumed_durably: dict[str, int] = dict(opened.consumed)
        self.log = opened.log
        self.sending = sending
        self._acknowledge_us = acknowledge_us
        self._serial = self._stored = opened.serial
        self.epoch = opened.head
        self._numbers: dict[str, LastNumber] = dict(opened.numbers)
        # By source: the last number that is durable.
        self._kept: dict[str, int] = {source: number.seq for source, number in opened.numbers.items()}
        # By source: its client, if that is here; and the broker that has offered something of it last. Both are told
        # what is kept: an offer may still be on its way when the client has come here.
        self._clients: dict[str, Client] = {}
        self._brokers: dict[str, str] = {}
        self._waiting: deque[Unstored] = deque()
        # What the message that is being handled writes.
        self._writes: list[Write] = []
        self._unstored = Unstored()
        self._is_acknowledging = False

    # --- publications ---

    def accept(
        self, source: str, after: int | None, notifications: Sequence[Notification]
    ) -> tuple[Verdict, Sequence[Notification]]:
        """What the rule says about numbered publications, and those that are to be taken. `after` is None if the
        source has stored none here before."""
        last = self.last(source)
        upto = notifications[-1].seq if notifications else after or 0
        assert upto is not None, "stored publications are numbered"
        said = verdict(last, after, upto)
        if said is not Verdict.TAKE:
            return said, ()
        if notifications[0].seq is not None and notifications[0].seq > last:
            return said, notifications
        return said, [each for each in notifications if each.seq is not None and each.seq > last]

    def last(self, source: str) -> int:
        """The last number of a source that was accepted."""
        number = self._numbers.get(source)
        return 0 if number is None else number.seq

    def take(self, source: str, items: Iterable[tuple[Notification, Due]], seq: int | None, now: Time) -> None:
        """Makes records of what somebody is due of a source. `seq` is the last of these numbers, None if the publisher
        does not wait for them to be stored: such a number is not remembered, because a publication with a smaller one
        may be on its way, which the publisher does wait for."""
        before = self._numbers.get(source)
        last, epoch = (0, 0) if before is None else (before.seq, before.epoch)
        for notification, due in items:
            if due:
                epoch = self.epoch = self.epoch + 1
                record = Record(epoch, notification, due, now)
                self._writes.append(record)
                self.sending.appended(record)
        number = self._numbers[source] = LastNumber(source, last if seq is None else seq, epoch)
        self._writes.append(number)
        if seq is not None:
            self._unstored.kept[source] = seq

    def published_by(self, source: str, publisher: Client | str) -> None:
        """Where confirmations for a source go."""
        if isinstance(publisher, Client):
            self._clients[source] = publisher
        elif self._brokers.get(source) != publisher:
            self._brokers.pop(source, None)
            self._brokers[source] = publisher
            if len(self._brokers) > PUBLISHERS_MAX:
                del self._brokers[next(iter(self._brokers))]

    def client_of(self, source: str) -> Client | None:
        return self._clients.get(source)

    def broker_of(self, source: str) -> str | None:
        return self._brokers.get(source)

    def gone(self, client: Client) -> None:
        for source in [source for source, publisher in self._clients.items() if publisher == client]:
            del self._clients[source]

    def kept(self, source: str) -> int:
        """The last number of a source that is durable."""
        return self._kept.get(source, 0)

    def is_settled(self, source: str) -> bool:
        """Whether everything of a source is durable, and was taken by everybody who is due."""
        number = self._numbers.get(source)
        return number is None or (self.kept(source) == number.seq and self.sending.is_settled(number.epoch))

    # --- the table ---

    def subscribed(self, row: DurableRow) -> bool:
        """Whether the identity is new here."""
        self._writes.append(row)
        self._unstored.knows.append(row)
        # It begins at the head: nothing before is due to it.
        name = self._due_name(row)
        is_new = row.wanted is not None and self.sending.enter(name, self.epoch)
        if is_new:
            self._writes.append(Acknowledged(name, self.epoch))
        return is_new

    def forgotten(self, identity: str, rows: Iterable[DurableRow], place: PlaceRow) -> None:
        """The identity is forgotten, with all that it is due. These rows of it are left: they are newer."""
        self.sending.forget(identity)
        self._writes += [Forgotten(identity), place]
        for row in rows:
            self.subscribed(row)

    def knows(self, row: DurableRow) -> bool:
        """Whether a row of the table is durable."""
        waiting = (each for unstored in (*self._waiting, self._unstored) for each in unstored.knows)
        return all(each != row for each in waiting)

    def moved(self, row: PlaceRow) -> None:
        self._writes.append(row)

    def write(self, write: Write) -> None:
        self._writes.append(write)

    # --- consuming ---

    def consumed(self, log: str) -> int:
        return self._consumed.get(log, 0)

    def consumed_durably(self, log: str) -> int:
        return self._consumed_durably.get(log, 0)

    def consume(self, log: str, upto: int) -> None:
        """As a relay, this storage has made records of everything of another log up to there: with the same `Persist`
        as those records."""
        self._consumed[log] = upto
        self._writes.append(Consumed(log, upto))
        self._unstored.consumed[log] = upto

    # --- the store ---

    def flushed(self, now: Time) -> list[Action]:
        """At the end of each message: what it writes, as one `Persist`."""
        if not self._writes:
            return self._acknowledge_later(now)
        self._writes += self._acknowledged()
        self._serial += 1
        action = Persist(self._serial, tuple(self._writes))
        self._unstored.serial = self._serial
        self._unstored.head = self.epoch
        self._waiting.append(self._unstored)
        self._writes, self._unstored = [], Unstored()
        return [action]

    def _acknowledged(self) -> list[Write]:
        dirty, self.sending.dirty = self.sending.dirty, {}
        flows = [flow for identity in sorted(dirty) if (flow := self.sending.get(identity)) is not None]
        return [Acknowledged(flow.identity, flow.acknowledged) for flow in flows]

    def _acknowledge_later(self, now: Time) -> list[Action]:
        if not self.sending.dirty or self._is_acknowledging:
            return []
        self._is_acknowledging = True
        return [SetTimer(PREFIX + ACKNOWLEDGE_TIMER, now + self._acknowledge_us)]

    def acknowledge(self) -> None:
        """The timer has fired."""
        self._is_acknowledging = False
        self._writes += self._acknowledged()

    def stored(self, serial: int, now: Time) -> Released:
        """Everything up to this `Persist` is durable."""
        released, head = Released(), self.sending.head
        while self._waiting and self._waiting[0].serial <= serial:
            unstored = self._waiting.popleft()
            released.kept.update(unstored.kept)
            released.knows += unstored.knows
            released.consumed.update(unstored.consumed)
            head = unstored.head
        self._stored = max(self._stored, serial)
        self._kept.update(released.kept)
        self._consumed_durably.update(released.consumed)
        if head > self.sending.head:
            self.sending.raise_head(head, now)
        return released

    @property
    def unstored_sources(self) -> list[str]:
        """Sources with publications that are accepted and not durable."""
        return sorted({source for unstored in self._waiting for source in unstored.kept})

    def numbers(self) -> dict[str, int]:
        return dict(self._kept)
