"""What must hold in every run with durable clients, checked against what the disks have and what clients have done.

At every record     Its epoch follows the one before; it names the subscriptions that match it, all those that the
                    storage knows for certain, and no others; no publication is in two logs, or twice in one.
At every message    A span is true: of (after, upto], exactly these entries are for the identity, and all are synced.
                    A confirmation covers only what is synced, or what nobody is due.
At every delivery   It comes from a synced record; on one connection nothing comes twice or is left out; no more wait
                    than a window holds.
When it is taken    The application takes exactly what it is due, once, in the order of the log and of each publisher; a
                    client that has lost its memory may take again what it had. What is told as lost is lost.
Acknowledged        Nothing that was not taken.
Takes effect        All storages that are not named as missing have stored the change.
When settled        Everything due was taken, acknowledged and confirmed, as far as storages can be reached; when the
                    whole network works, all logs are empty after collecting, and who had a position in a log that is
                    lost was told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.durable.messages import At, Confirm, Kept, Span, TakeEffect
from catchment.routing.messages import BrokerMessage, Deliver, Time
from catchment.routing.stored import Record
from catchment.sim.conformance.checkers import ViolationError
from catchment.sim.conformance.durable.ledger import Ledger
from catchment.sim.conformance.durable.wants import Wants

# A notification by its publisher and number.
Published = tuple[str, int]


@dataclass(slots=True)
class Reading:
    """How far a client is in one log: on its connection, and its application."""

    # What it was delivered last on this connection, None if it has brought no position.
    delivered: int | None = None
    # What the application has taken last, in order; None after it has lost its memory.
    taken: int | None = 0
    # The greatest that it has ever taken.
    most: int = 0


@dataclass
class DurableChecker:
    """Is told everything by the simulation (`network.py`)."""

    window_entries: int
    wants: Wants = field(default_factory=Wants)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    # Whether anything has failed so far: links, brokers, disks.
    has_failed: bool = False
    delivered_count: int = 0
    asked_again: int = 0
    _readings: dict[tuple[str, str], Reading] = field(default_factory=dict)
    # Where each publication is recorded.
    _recorded: dict[Published, tuple[str, int]] = field(default_factory=dict)
    _synced: dict[Published, tuple[str, int]] = field(default_factory=dict)
    # By identity and source: the number that was taken last.
    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _stored: dict[Published, tuple[Time, Notification]] = field(default_factory=dict)
    _confirmed: Counter[str] = field(default_factory=Counter)
    # Publications that were recorded on a disk that is gone.
    _may_repeat: set[Published] = field(default_factory=set)
    # Lost records that clients were told of, by identity and log.
    told_lost: Counter[tuple[str, str]] = field(default_factory=Counter)

    def reading(self, identity: str, log: str) -> Reading:
        return self._readings.setdefault((identity, log), Reading())

    # --- records ---

    def recorded(self, ledger: Ledger, record: Record) -> None:
        """A storage has made a record; it is not synced yet."""
        notification = record.notification
        key = (notification.source or "", notification.seq or 0)
        place = (ledger.log, record.epoch)
        what = f"{ledger.storage} makes record {record.epoch} of {key}"
        before = self._recorded.get(key, place)
        if before != place and not self._is_gone(before, notification):
            raise ViolationError(f"{what}, which is record {before[1]} of {before[0]}")
        self._recorded[key] = place
        named = {(identity, id) for identity, ids in record.due for id in ids}
        must, may = self.wants.named(notification, ledger.storage, record.at)
        if missing := must - named:
            raise ViolationError(f"{what}, which does not name {sorted(missing)}: they match {notification!r}")
        if wrong := named - may:
            raise ViolationError(f"{what}, which names {sorted(wrong)}: they do not match {notification!r}")

    def synced(self, ledger: Ledger, record: Record) -> None:
        """A record is synced: no crash takes it away."""
        notification = record.notification
        key, place = (notification.source or "", notification.seq or 0), (ledger.log, record.epoch)
        before = self._synced.setdefault(key, place)
        if before != place and not self.ledgers[before[0]].is_lost:
            raise ViolationError(f"{key} is record {before[1]} of {before[0]} and record {place[1]} of {place[0]}")

    def _is_gone(self, place: tuple[str, int], notification: Notification) -> bool:
        """Whether a record was lost with a disk, or before it was synced."""
        ledger = self.ledgers[place[0]]
        record = ledger.records.get(place[1])
        return ledger.is_lost or record is None or record.notification != notification

    def _is_unsynced(self, place: tuple[str, int]) -> bool:
        return place[1] not in self.ledgers[place[0]].records

    def lost(self, ledger: Ledger) -> None:
        """A disk is gone for ever, with the numbers of all publishers: what they publish again comes again."""
        ledger.is_lost = True
        self.wants.forgotten_at(ledger.storage)
        for record in ledger.records.values():
            self._may_repeat.add((record.notification.source or "", record.notification.seq or 0))

    # --- messages ---

    def sent(self, broker: str, message: BrokerMessage) -> None:
        match message:
            case Span() if message.storage == broker and not message.hops:
                self._check_span(message)
            case Kept() if message.storage == broker and not message.hops and not message.refusal:
                self._check_kept(message.source, message.seq, message.log)
            case At() if message.again and not message.hops:
                self.asked_again += 1
                if not self.has_failed:
                    raise ViolationError(f"nothing has failed, and {broker} asks again: {message!r}")
            case _:
                pass

    def _check_span(self, span: Span) -> None:
        ledger = self.ledgers[span.log]
        for _, shares in span.shares:
            for share in shares:
                said = f"{span.storage} says to {share.identity}, of ({share.after}, {share.upto}] of {span.log}"
                if share.upto > ledger.head:
                    raise ViolationError(f"{said}: only {ledger.head} is synced")
                due = ledger.due(share.identity)
                entries = {span.entries[place][0]: ids for place, ids in share.entries}
                # What is acknowledged may have been collected: the receiver has taken it, or begins above it.
                first = max(share.after, share.floor)
                due = {epoch: ids for epoch, ids in due.items() if first < epoch <= share.upto or epoch in entries}
                if (
                    any(due.get(epoch) != ids for epoch, ids in entries.items())
                    or len(due) != len(entries) + share.lost
                ):
                    raise ViolationError(f"{said}: {entries}, lost {share.lost}; due are {due}")
        for epoch, notification in span.entries:
            if ledger.records[epoch].notification != notification:
                raise ViolationError(f"{span.storage} says that {epoch} is {notification!r}")

    # --- publications ---

    def expecting(self, source: str, seq: int, attributes: Mapping[str, Value], now: Time) -> None:
        """A client is about to publish something that is to be stored."""
        self._stored[source, seq] = (now, Notification(attributes))

    def confirmed(self, confirm: Confirm, now: Time) -> None:
        self._check_kept(confirm.source, confirm.seq, confirm.log)
        for number in range(self._confirmed[confirm.source] + 1, confirm.seq + 1):
            if (confirm.source, number) in self._stored:
                self._check_confirmed(confirm, number, now)
        self._confirmed[confirm.source] = max(self._confirmed[confirm.source], confirm.seq)

    def _check_kept(self, source: str, seq: int, log: str) -> None:
        """What is kept is synced, if there is a record."""
        for number in range(self._confirmed[source] + 1, seq + 1):
            place = self._recorded.get((source, number))
            if place is not None and self._is_unsynced(place) and not self.ledgers[place[0]].is_lost:
                raise ViolationError(f"{log} keeps {seq} of {source}; record {place} of {number} is not synced")

    def _check_confirmed(self, confirm: Confirm, number: int, now: Time) -> None:
        published_at, notification = self._stored[confirm.source, number]
        place = self._recorded.get((confirm.source, number))
        if place is not None:
            if self._is_unsynced(place) and not self.ledgers[place[0]].is_lost:
                raise ViolationError(f"{confirm!r}: record {place} of {number} is not synced")
            return
        # Nobody was due at any time between: whoever wanted it all the time has lost it.
        at_first, _ = self.wants.named(notification, confirm.storage, published_at)
        at_last, _ = self.wants.named(notification, confirm.storage, now)
        if must := at_first & at_last:
            raise ViolationError(f"{confirm!r}: there is no record of {number}, which {sorted(must)} must get")

    # --- deliveries ---

    def connected(self, identity: str, positions: dict[str, int]) -> None:
        for log in self.ledgers:
            self.reading(identity, log).delivered = positions.get(log)

    def delivered(self, delivery: Deliver, waiting: int) -> None:
        """A broker gives a delivery to a client that has not taken so many of this log, this one included."""
        ledger, reading = self.ledgers[delivery.log], self.reading(delivery.identity, delivery.log)
        what = f"{delivery.identity} is given epoch {delivery.epoch} of {delivery.log}"
        record = ledger.records.get(delivery.epoch)
        if record is None or record.notification != delivery.notification:
            raise ViolationError(f"{what}: {delivery.notification!r}; it has {record!r}")
        if dict(record.due).get(delivery.identity) != delivery.subscriptions:
            raise ViolationError(f"{what} for {delivery.subscriptions}; due are {record.due}")
        if reading.delivered is not None and delivery.epoch <= reading.delivered:
            raise ViolationError(f"{what} after {reading.delivered}")
        if waiting > self.window_entries:
            raise ViolationError(f"{what}: {waiting} wait to be taken, the window is {self.window_entries}")
        reading.delivered = delivery.epoch

    def took(self, identity: str, log: str, epoch: int, notification: Notification, lost: int) -> None:
        self.delivered_count += 1
        ledger, reading = self.ledgers[log], self.reading(identity, log)
        before = reading.most if reading.taken is None else reading.taken
        self.told_lost[identity, log] += lost
        if lost:
            raise ViolationError(
                f"{identity} is told that {lost} are lost before {epoch} of {log}: nothing is dropped here"
            )
        skipped = [each for each in ledger.due(identity) if before < each < epoch]
        if len(skipped) != lost:
            raise ViolationError(
                f"{identity} takes {epoch} of {log} after {before}, told of {lost} lost: {skipped} are"
            )
        if reading.taken is not None and epoch <= reading.taken:
            raise ViolationError(f"{identity} takes {epoch} of {log} after {reading.taken}")
        if epoch > reading.most:
            self._check_order(identity, notification)
        reading.taken, reading.most = epoch, max(reading.most, epoch)

    def _check_order(self, identity: str, notification: Notification) -> None:
        key, seq = (identity, notification.source or ""), notification.seq or 0
        if (key[1], seq) in self._may_repeat:
            return
        if seq <= self._last.get(key, 0):
            raise ViolationError(f"{identity} takes {seq} of {key[1]} after {self._last[key]}")
        self._last[key] = seq

    def missed(self, identity: str, log: str, lost: int) -> None:
        """Records after the last that it was given are lost."""
        self.told_lost[identity, log] += lost

    def forgot(self, identity: str) -> None:
        """A client has lost its memory: it may get again what was not acknowledged."""
        for (each, _), reading in self._readings.items():
            if each == identity:
                reading.taken = None

    # --- effects ---

    def took_effect(self, effect: TakeEffect, storages: set[str], young: set[str], now: Time) -> None:
        """Of the storages that are `young`, the broker that says so may not have heard yet."""
        change = self.wants.last(effect.identity, effect.id)
        knowing = storages - set(effect.missing)
        for ledger in self.ledgers.values():
            if ledger.storage in knowing and not ledger.is_lost:
                row = ledger.durables.get((effect.identity, effect.id))
                if row is not None and row.wanted == change.wanted:
                    continue
                if ledger.storage not in young:
                    raise ViolationError(f"{effect!r}: {ledger.storage} has {row!r}, asked was {change.wanted}")
                knowing.discard(ledger.storage)
        if effect.missing and not self.has_failed:
            raise ViolationError(f"{effect!r}: nothing has failed")
        self.wants.took_effect(effect.identity, effect.id, knowing, now)

    # --- acknowledged ---

    def check_acknowledged(self) -> None:
        """Nothing counts as acknowledged that was not taken."""
        for log, ledger in self.ledgers.items():
            for identity, epoch in ledger.acknowledged.items():
                most = self.reading(identity, log).most
                untaken = [each for each in ledger.due(identity) if most < each <= epoch]
                if len(untaken) > self.told_lost[identity, log]:
                    raise ViolationError(f"{log} counts {epoch} as taken by {identity}: it has not taken {untaken}")

    def check_all_taken(self, identity: str, log: str, is_acknowledged: bool) -> None:
        """A client that can be reached has taken all that it is due of a log, and acknowledged it."""
        ledger, reading = self.ledgers[log], self.reading(identity, log)
        untaken = [epoch for epoch in ledger.due(identity) if epoch > reading.most]
        if len(untaken) > self.told_lost[identity, log]:
            raise ViolationError(f"all is quiet, and {identity} has not got {untaken} of {log}")
        if is_acknowledged and (due := ledger.due(identity)) and ledger.acknowledged.get(identity, 0) < max(due):
            at = ledger.acknowledged.get(identity, 0)
            raise ViolationError(f"all is quiet, and {log} waits for {identity} at {at}, it has taken {max(due)}")
