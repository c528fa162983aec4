"""What brokers say to a durable core that makes no sense: nothing breaks, and nothing that is true is forgotten."""

from typing import Any

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import (
    DIRECTED_HOPS_MAX,
    Ask,
    At,
    Durable,
    Kept,
    Knows,
    Offer,
    Place,
    Reach,
    Share,
    Span,
    SubscribeDurable,
    Taken,
)
from catchment.routing.messages import (
    HOST,
    NUMBER_MAX,
    SECOND,
    Action,
    Client,
    ClientUp,
    Deliver,
    LinkUp,
    Neighbor,
    Refuse,
    Send,
)
from catchment.routing.stored import Opened, Persist, Stored
from catchment.routing.systems import system_named

NOW = 1_000 * SECOND
OTHER, READER = Neighbor("other"), Client("reader")


def core_with_reader() -> DurableCore:
    """A storage with a neighbor, another storage, and a reader of its own."""
    core = DurableCore("here", system_named("siena general").core("here"), Opened("log-here"))
    core.on_message(LinkUp(), OTHER, NOW)
    core.on_message(Reach("other", NOW, (("here", 1),), "log-other"), OTHER, NOW)
    core.on_message(ClientUp("reader"), READER, NOW)
    core.on_message(SubscribeDurable("reader", "a", Filter("x > 0")), READER, NOW)
    core.on_message(Stored(1), HOST, NOW)
    assert core.table.place("reader").broker == "here"
    return core


def deliveries(actions) -> list[int]:
    return [action.epoch for action in actions if isinstance(action, Deliver)]


def span(core: DurableCore, after: int, upto: int, *epochs: int, session: int = 0, place: int = 0) -> Span:
    entries = tuple((epoch, Notification({"x": epoch})) for epoch in epochs)
    shares = tuple((place + i, ("a",)) for i in range(len(epochs)))
    session = session or core.table.place("reader").session
    return Span("other", "log-other", entries, (("here", (Share("reader", session, after, upto, shares),)),))


def only(actions: list[Action]) -> Any:
    """The one action that a message leads to."""
    (action,) = actions
    return action


def test_a_pattern_is_not_durable():
    core = core_with_reader()
    (refusal,) = core.on_message(Durable("x", "a", NOW, Pattern("[x > 0] -> [x > 1]"), "other"), OTHER, NOW)
    assert isinstance(refusal, Refuse)
    assert refusal.source == OTHER


def test_versions_and_sessions_far_ahead_of_the_clock_are_ignored():
    core = core_with_reader()
    before = core.table.place("reader")
    assert core.on_message(Durable("reader", "a", NUMBER_MAX, None, "other"), OTHER, NOW) == []
    assert core.on_message(Place("reader", NUMBER_MAX, "other"), OTHER, NOW) == []
    assert core.table.is_durable("reader")
    assert core.table.place("reader") == before


def test_an_entry_that_is_not_there_is_not_delivered():
    core = core_with_reader()
    assert deliveries(core.on_message(span(core, 0, 1, 1, place=5), OTHER, NOW)) == []
    assert deliveries(core.on_message(span(core, 0, 1, 1), OTHER, NOW)) == [1]


def test_a_span_of_another_session_is_ignored():
    core = core_with_reader()
    assert core.on_message(span(core, 0, 1, 1, session=7), OTHER, NOW) == []


def test_a_gap_is_asked_for_once():
    core = core_with_reader()
    (asked,) = core.on_message(span(core, 3, 4, 4), OTHER, NOW)
    assert isinstance(asked, Send)
    assert isinstance(asked.message, At)
    assert asked.message.again
    assert core.on_message(span(core, 4, 5, 5), OTHER, NOW) == []


def test_a_client_cannot_take_what_it_was_not_given():
    core = core_with_reader()
    core.on_message(span(core, 0, 2, 1, 2), OTHER, NOW)
    said = only(core.on_message(Taken("reader", "log-other", 1), READER, NOW))
    assert said.message.position == 1
    assert core.on_message(Taken("reader", "log-nobody", 1), READER, NOW) == []
    assert core.on_message(Taken("nobody", "log-other", 1), READER, NOW) == []
    said = only(core.on_message(Taken("reader", "log-other", 999), READER, NOW))
    assert said.message.position == 2


def test_what_is_said_about_another_log_session_or_identity_is_ignored():
    core = core_with_reader()
    session = core.table.place("reader").session
    for message in (
        At("here", "log-before", "reader", session, 1),
        At("here", "log-here", "reader", session - 1, 1),
        At("here", "log-here", "nobody", session, 1),
        Kept("here", "other", "log-other", "nobody", 1, True),
        Knows("here", "other", "nobody", "a", 1),
        Ask("here", "other", "nobody", "a", 1),
    ):
        assert core.on_message(message, OTHER, NOW) == [], message
    assert core.alarms == []


def test_a_position_above_the_head_raises_an_alarm():
    core = core_with_reader()
    core.on_message(At("here", "log-here", "reader", core.table.place("reader").session, 99), OTHER, NOW)
    assert len(core.alarms) == 1


def test_directed_messages_do_not_go_in_circles():
    core = core_with_reader()
    at = At("other", "log-other", "reader", 1, 1)
    sent = only(core.on_message(at, OTHER, NOW))
    assert sent.message.hops == 1
    assert core.on_message(At("other", "log-other", "reader", 1, 1, hops=DIRECTED_HOPS_MAX), OTHER, NOW) == []
    circling = Span("x", "log-x", (), (("other", (Share("r", 1, 0, 0, ()),)),), hops=DIRECTED_HOPS_MAX)
    assert core.on_message(circling, OTHER, NOW) == []


def test_an_offer_without_numbers_is_not_stored():
    core = core_with_reader()
    offer = Offer("here", "other", "p", None, (Notification({"x": 1}, source="p"),))
    assert not any(isinstance(action, Persist) for action in core.on_message(offer, OTHER, NOW))


def test_an_offer_with_a_gap_is_answered_with_again():
    core = core_with_reader()
    offer = Offer("here", "other", "p", 5, (Notification({"x": 1}, source="p", seq=6),))
    answer = only(core.on_message(offer, OTHER, NOW))
    assert isinstance(answer.message, Kept)
    assert (answer.message.again, answer.message.last) == (True, 0)
