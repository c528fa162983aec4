"""What must hold in every state of an explored world: the invariants of durable delivery.

The checks look at what goes out of a core, and at the disks, which remember every record; they share no code with the
core. ExplorationError for what must not be.

I1  `due` never changes after a record is made, and I6, no epoch is used twice: a disk takes each once (`disk.py`).
I2  Every span is true: of (after, upto], exactly these entries are for the identity, and all of them are synced.
I3  A process of the reader gets exactly what it is due, once and in order.
I4  What is confirmed is synced, and is in one log only.
I5  What is acknowledged was taken, so what is collected was too. What is settled was taken by all.
    In a run without faults nothing is asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catchment.routing.durable.messages import At, Confirm, Kept, Share, Span
from catchment.routing.messages import BrokerMessage, Deliver
from catchment.routing.stored import Acknowledged, Persist, PlaceRow, Record
from catchment.sim.explore.disk import Disk, ExplorationError
from catchment.sim.explore.parts import BROKERS, OTHER, READER, Process

if TYPE_CHECKING:
    from catchment.sim.explore.world import World


def check_sent(world: World, broker: str, message: BrokerMessage) -> None:
    """A broker sends a message."""
    match message:
        case Span() if message.storage == broker and not message.hops:
            for _, shares in message.shares:
                for share in shares:
                    _check_share(world.brokers[broker].disk, message, share)
        case Kept() if message.storage == broker and not message.hops and not message.refusal:
            check_confirmed(world, message.seq, message.settled)
        case At() if message.again and not message.hops and not world.has_failed:
            raise ExplorationError(
                f"nothing has failed, and {message.identity} asks for what follows {message.position}"
            )
        case _:
            pass


def _check_share(disk: Disk, span: Span, share: Share) -> None:
    said = f"{span.storage} says to {share.identity}: in ({share.after}, {share.upto}] of {disk.log}"
    if share.upto > disk.head:
        raise ExplorationError(f"{said}, but only {disk.head} is synced")
    entries = {span.entries[place][0]: ids for place, ids in share.entries}
    if entries != disk.due(share.identity, share.after, share.upto) or share.lost:
        raise ExplorationError(f"{said} there are {entries}, lost {share.lost}; that is not so")
    if any(disk.records[epoch].notification != notification for epoch, notification in span.entries):
        raise ExplorationError(f"{said} another notification than was stored")


def check_delivered(world: World, broker: str, process: Process, delivery: Deliver) -> None:
    """A broker delivers something to a process of the reader."""
    name = next(name for name in BROKERS if world.brokers[name].disk.log == delivery.log)
    storage = world.brokers[name]
    before = process.given.get(delivery.log, 0)
    due = storage.disk.due(READER.name, before, storage.disk.head)
    what = f"{broker} delivers epoch {delivery.epoch} of {delivery.log}, after {before}"
    if due.get(delivery.epoch) != delivery.subscriptions or delivery.lost:
        raise ExplorationError(f"{what}: due are {due}")
    if storage.disk.records[delivery.epoch].notification != delivery.notification:
        raise ExplorationError(f"{what}: another notification than was stored")
    # Of what an older process has taken before the storage heard of this one, it need not get anything.
    missed = [epoch for epoch in due if storage.taken_before < epoch < delivery.epoch]
    if missed:
        raise ExplorationError(f"{what}: it has not got {missed}")


def check_confirmed(world: World, seq: int, is_settled: bool) -> None:
    """A storage says that all publications up to a number are kept, and perhaps taken by everybody."""
    stored = {
        record.notification.seq: record for each in world.brokers.values() for record in each.disk.records.values()
    }
    for number in range(1, seq + 1):
        if number not in stored:
            raise ExplorationError(f"publication {number} is confirmed, and on no disk")
        if is_settled and any(identity == OTHER.name for identity, _ in stored[number].due):
            raise ExplorationError(f"publication {number} counts as settled, and {OTHER.name} has not got it")
        if is_settled and number in world.due and number not in world.taken:
            raise ExplorationError(f"publication {number} counts as settled, and the reader has not taken it")


def check_written(world: World, broker: str, persist: Persist) -> None:
    """A storage writes something. Notes which session of the reader it has heard of."""
    storage, stale = world.brokers[broker], world.stale
    for write in persist.writes:
        match write:
            case PlaceRow() if write.identity == READER.name and write.session > storage.session:
                storage.session = write.session
                if stale is not None:
                    storage.taken_before = max(storage.taken_before, stale.positions.get(storage.disk.log, 0))
            case Acknowledged():
                _check_acknowledged(world, broker, write)
            case Record():
                _check_single(world, broker, write)
            case _:
                pass


def _check_acknowledged(world: World, broker: str, write: Acknowledged) -> None:
    storage, reader, stale = world.brokers[broker], world.reader, world.stale
    allowed = 0
    if write.identity == READER.name:
        allowed = max(reader.positions.get(storage.disk.log, 0), storage.taken_before)
        if stale is not None and storage.session <= stale.session:
            allowed = max(allowed, stale.positions.get(storage.disk.log, 0))
    untaken = storage.disk.due(write.identity, allowed, write.epoch)
    if write.epoch > storage.disk.head or untaken:
        what = f"{broker} counts {write.epoch} as acknowledged by {write.identity}, which has taken {allowed}"
        raise ExplorationError(f"{what}: due are {dict(untaken)}, the synced head is {storage.disk.head}")


def _check_single(world: World, broker: str, record: Record) -> None:
    for name, each in world.brokers.items():
        written = [write for persist in each.disk.written for write in persist.writes if isinstance(write, Record)]
        for known in (*each.disk.records.values(), *written):
            if known.notification.seq == record.notification.seq:
                what = f"{broker} makes record {record.epoch} of publication {record.notification.seq}"
                raise ExplorationError(f"{what}, which is record {known.epoch} of {name}")


def check_order(process: Process, number: int) -> None:
    if number <= process.last:
        raise ExplorationError(f"the reader takes publication {number} after {process.last}")


def check_confirm_matches(confirm: Confirm, published: int) -> None:
    if confirm.seq > published:
        raise ExplorationError(f"publication {confirm.seq} is confirmed, {published} is the last")
