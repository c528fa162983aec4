"""One durable core, message by message: what no small world shows, because nothing is lost there unnoticed."""

from typing import Any

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import At, Confirm, Durable, Place, Reach, Share, Span, SubscribeDurable
from catchment.routing.messages import (
    HOST,
    SECOND,
    Client,
    ClientUp,
    Deliver,
    LinkUp,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    TimerFired,
)
from catchment.routing.stored import Fetch, Opened, Persist, Record, Stored
from catchment.routing.systems import system_named

NOW = 1_000 * SECOND
FAR, PUBLISHER = Neighbor("far"), Client("p")


def storage() -> DurableCore:
    """A storage whose reader `far-reader` is at its neighbor, with a publisher of its own."""
    core = DurableCore("here", system_named("siena general").core("here"), Opened("log"))
    core.on_message(LinkUp(), FAR, NOW)
    core.on_message(Reach("far", NOW, (("here", 1),)), FAR, NOW)
    core.on_message(Durable("far-reader", "a", NOW, Filter("x > 0"), "far"), FAR, NOW)
    core.on_message(Place("far-reader", NOW, "far"), FAR, NOW)
    core.on_message(ClientUp("p"), PUBLISHER, NOW)
    core.on_message(Stored(2), HOST, NOW)
    return core


def notification(seq: int) -> Notification:
    return Notification({"x": seq}, source="p", seq=seq)


def published(core: DurableCore, *seqs: int, after: int | None = None) -> list[Any]:
    return core.on_publication([notification(seq) for seq in seqs], after, PUBLISHER, NOW)


def stored(core: DurableCore, actions: list[Any]) -> list[Any]:
    (serial,) = [action.serial for action in actions if isinstance(action, Persist)]
    return core.on_message(Stored(serial), HOST, NOW)


def of(kind: type, actions: list[Any]) -> list[Any]:
    return [action.message for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def test_a_repeat_is_confirmed_only_as_far_as_it_is_stored():
    core = storage()
    first = published(core, 1)
    again = published(core, 1)
    confirms = [action for action in again if isinstance(action, Confirm)]
    assert all(confirm.seq == 0 for confirm in confirms)
    assert [action.seq for action in stored(core, first) if isinstance(action, Confirm)] == [1]


def test_a_number_that_nobody_waits_for_does_not_make_an_earlier_one_old():
    core = storage()
    core.on_notifications([Routed(notification(2))], PUBLISHER, NOW)
    actions = published(core, 1)
    (persist,) = [action for action in actions if isinstance(action, Persist)]
    assert [write.notification.seq for write in persist.writes if isinstance(write, Record)] == [1]


def test_one_persist_and_one_span_for_a_batch():
    core = storage()
    actions = published(core, 1, 2, 3)
    assert len([action for action in actions if isinstance(action, Persist)]) == 1
    (span,) = of(Span, stored(core, actions))
    assert [epoch for epoch, _ in span.entries] == [1, 2, 3]


def test_a_storage_asks_when_nothing_is_acknowledged():
    core = storage()
    released = stored(core, published(core, 1))
    (timer,) = [action for action in released if isinstance(action, SetTimer) and action.name == "durable retry"]
    (question,) = of(Span, core.on_message(TimerFired("durable retry"), HOST, timer.at))
    ((_, (share,)),) = question.shares
    assert (share.after, share.upto, share.entries) == (1, 1, ())
    # Acknowledged: nobody is asked any more.
    core.on_message(At("here", "log", "far-reader", NOW, 1), FAR, timer.at)
    assert of(Span, core.on_message(TimerFired("durable retry"), HOST, timer.at + 60 * SECOND)) == []


def test_the_window_is_restored_when_everything_is_sent_again():
    core = storage()
    seqs = tuple(range(1, 301))
    (span,) = of(Span, stored(core, published(core, *seqs)))
    assert len(span.entries) == 256
    (fetch,) = [
        action
        for action in core.on_message(At("here", "log", "far-reader", NOW, 0, again=True), FAR, NOW)
        if isinstance(action, Fetch)
    ]
    assert (fetch.after, fetch.entries_max) == (0, 256)


def test_silence_is_part_of_a_piece():
    core = storage()
    reader = Client("reader")
    core.on_message(ClientUp("reader"), reader, NOW)
    core.on_message(SubscribeDurable("reader", "a", Filter("x > 0")), reader, NOW)
    session = core.table.place("reader").session

    def heard(after: int, upto: int, epoch: int) -> list[int]:
        share = Share("reader", session, after, upto, ((0, ("a",)),))
        span = Span("far", "log-far", ((epoch, Notification({"x": 1})),), (("here", (share,)),))
        return [action.epoch for action in core.on_message(span, FAR, NOW) if isinstance(action, Deliver)]

    # Of (0, 5] only 1: what follows 5 is no gap.
    assert heard(0, 5, 1) == [1]
    assert heard(5, 6, 6) == [6]
