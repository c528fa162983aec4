"""Jobs of a node: large requests in slices, and what others see meanwhile. Turns are taken by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args, get_type_hints

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.errors import BadIdError, BadNotificationError
from catchment.model.budget import steps_used
from catchment.model.filter import RELATION_STEPS_MAX
from catchment.node import Node
from catchment.node.jobs import SLICE_CANCELLED_MAX, SLICE_COMPARED_MAX, SLICE_PUBLISHED_MAX, SLICE_STEPS_MAX
from catchment.node.kept import ClientState
from catchment.routing.messages import (
    Advertise,
    Cancel,
    CancelMany,
    ClientRequest,
    MapIdentity,
    Refuse,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.messages import Interest
from catchment.wire.messages import Request
from tests.unit.busy_node import ALICE, BOB, MANY, Busy
from tests.unit.test_node import Outlet


def test_a_client_that_goes_is_taken_down_in_slices():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    left = [busy.subscriptions]
    while busy.turn():
        left.append(busy.subscriptions)
    assert left[0] == MANY - SLICE_CANCELLED_MAX
    assert all(before - after <= SLICE_CANCELLED_MAX for before, after in pairwise(left))
    assert left[-1] == 0
    assert "alice" not in busy.core.clients
    # The neighbor hears one message for each slice.
    heard = [message for message in busy.south.taken() if isinstance(message, Interest)]
    assert sum(len(message.withdrawn) for message in heard) == MANY
    assert len(heard) == len(left) - 1


def test_nothing_is_delivered_to_a_client_that_is_gone():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    busy.publish(MANY - 1)
    assert busy.subscriptions
    assert busy.alice.taken() == []


def test_a_client_that_comes_back_waits_for_its_own_end():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    again = Outlet()
    busy.node.client_up(ALICE, "alice", {}, again)
    busy.node.requested(ALICE, 5, Subscribe("alice", "0", Filter("x = 1000")))
    # What its old subscriptions match is for nobody: the core does not know yet that it is back.
    busy.publish(MANY - 1)
    assert again.taken() == ["paused", "paused"]
    assert busy.turns() > 2
    assert again.taken() == [("answer", 5, []), "resumed"]
    busy.publish(1000)
    busy.publish(1)
    assert again.taken() == [("delivered", 1000)]


def test_others_are_served_between_two_slices():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    busy.node.requested(BOB, 2, Subscribe("bob", "b", Filter("x any")))
    busy.publish(3)
    assert busy.bob.taken() == [("answer", 2, []), ("delivered", 3)]
    assert busy.subscriptions > SLICE_CANCELLED_MAX


def test_whoever_names_an_identity_that_is_busy_waits():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    busy.node.requested(BOB, 3, Subscribe("alice", "0", Filter("x = 9")))
    busy.node.requested(BOB, 4, Subscribe("bob", "b", Filter("x = 8")))
    assert [type(refusal.error) for refusal in busy.node.ask(BOB, Cancel("alice", "0"))] == [BadIdError]
    assert busy.bob.taken() == ["paused", "paused"]
    busy.turns()
    assert busy.bob.taken() == [("answer", 3, []), ("answer", 4, []), "resumed"]
    # As if Alice's end had come before it: the identity is Bob's now.
    assert busy.subscriptions == 2
    assert busy.core.clients.wants_of("alice") == {"0": Filter("x = 9")}


def test_a_client_that_waits_may_go_and_come_and_go():
    busy = Busy()
    busy.subscribe()
    for _ in range(3):
        busy.node.client_down(ALICE)
        busy.node.client_up(ALICE, "alice", {}, Outlet())
        busy.node.requested(ALICE, 5, Subscribe("alice", "new", Filter("x = 1000")))
    busy.node.client_down(ALICE)
    busy.turns()
    assert busy.subscriptions == 0
    assert busy.core.leftovers() == []


def test_a_handler_that_comes_back_waits_too():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    busy.node.client_up(ALICE, "alice", {}, Outlet())
    busy.node.requested(BOB, 6, MapIdentity("bob", "alice"))
    busy.turns()
    # The mapping came after the end of the first Alice: it does not end with her.
    assert "bob" in busy.core.clients


UNWANTED = Filter(" or ".join(f"(y > {i} and z < {i})" for i in range(100)))
MUCH = Filter(" or ".join(f"(x > {100 * i} and x < {100 * i + 90})" for i in range(50)))


@pytest.mark.parametrize("wanted", [UNWANTED, MUCH, Filter("x any")])
def test_an_unsubscription_is_compared_in_slices(wanted):
    busy = Busy()
    busy.subscribe(3 * SLICE_COMPARED_MAX)
    busy.node.published(ALICE, [])
    kept = sum(not wanted.matches({"x": number}) for number in range(3 * SLICE_COMPARED_MAX))
    before = steps_used()
    busy.node.requested(ALICE, 9, Unsubscribe("alice", wanted))
    # What she says next comes after it, whatever it is.
    busy.node.published(ALICE, [(10, [Notification({"x": 1}, source="alice", seq=1)])])
    assert ("answer", 9, []) not in busy.alice.put
    costs = [steps_used() - before]
    while True:
        before = steps_used()
        if not busy.turn():
            break
        costs.append(steps_used() - before)
    assert max(costs) <= SLICE_STEPS_MAX + RELATION_STEPS_MAX
    assert len(costs) >= 3
    assert busy.subscriptions == kept
    answers = [each for each in busy.alice.taken() if isinstance(each, tuple)]
    assert [each for each in answers if each[0] == "answer"] == [("answer", 9, []), ("answer", 10, [])]


def test_a_long_publication_is_handled_in_slices_and_answered_once():
    busy = Busy()
    many = 2 * SLICE_PUBLISHED_MAX + 1
    busy.node.requested(ALICE, 1, Subscribe("alice", "all", Filter("x any")))
    first = [Notification({"x": number}, source="bob", seq=number + 1) for number in range(many)]
    last = Notification({"x": -1}, source="bob", seq=many + 1)
    busy.alice.taken()
    # The second publication of the read is refused as a whole: its number goes back.
    busy.node.published(BOB, [(5, first), (6, first[:1])])
    busy.node.published(BOB, [(7, [last])])
    busy.node.client_down(BOB)
    delivered = [len(busy.alice.taken())]
    assert busy.bob.put == ["paused", "paused"]
    while busy.turn():
        delivered.append(len(busy.alice.taken()))
    assert delivered == [SLICE_PUBLISHED_MAX, SLICE_PUBLISHED_MAX, 2]
    answers = [each for each in busy.bob.taken() if isinstance(each, tuple)]
    assert [(number, bool(refusals)) for _, number, refusals in answers] == [(5, False), (6, True), (7, False)]
    assert "bob" not in busy.core.clients


@pytest.mark.parametrize("is_first", [True, False])
def test_what_stood_behind_a_wide_filter_is_not_stated_before_it_is_cancelled_too(is_first, monkeypatch):
    busy = Busy()
    wide = Subscribe("alice", "wide", Filter("x any"))
    if is_first:
        busy.node.requested(ALICE, 1, wide)
    busy.subscribe(MANY)
    if not is_first:
        busy.node.requested(ALICE, 1, wide)
    for id, text in (("narrow", "x = 5 and y = 1"), ("other", "y = 2")):
        busy.node.requested(ALICE, 1, Subscribe("alice", id, Filter(text)))
    busy.south.taken()
    entered: list[object] = []
    subscribe = busy.core.interest.subscribe

    def counted(*given: object) -> Any:
        entered.append(given)
        return subscribe(*given)

    monkeypatch.setattr(busy.core.interest, "subscribe", counted)
    busy.node.requested(ALICE, 9, Unsubscribe("alice", Filter("x any")))
    busy.turns()
    assert entered == []
    assert busy.core.clients.wants_of("alice") == {"other": Filter("y = 2")}
    assert busy.core.interest.held_by("alice") == (Filter("y = 2"),)
    # What stays, though it stood behind one that goes, is stated: no filter but its own may say that it is covered.
    busy.node.requested(ALICE, 1, wide)
    busy.node.requested(ALICE, 1, Subscribe("alice", "narrow", Filter("x = 5 and y = 1")))
    busy.node.ask(ALICE, Cancel("alice", "wide"))
    assert set(busy.core.interest.held_by("alice")) == {Filter("y = 2"), Filter("x = 5 and y = 1")}
    busy.core.on_message(CancelMany("alice", ("narrow",), going=frozenset(["narrow"])), ALICE, 8)
    assert busy.core.interest.held_by("alice") == (Filter("y = 2"),)


def test_small_requests_take_no_turn():
    busy = Busy()
    busy.subscribe(SLICE_CANCELLED_MAX)
    busy.node.requested(ALICE, 9, Unsubscribe("alice", Filter("x < 3")))
    assert busy.alice.taken() == [("answer", 9, [])]
    busy.node.client_down(ALICE)
    assert (busy.timers, busy.subscriptions) == ([], 0)


def test_advertisements_are_compared_and_withdrawn_in_slices(monkeypatch):
    busy = Busy(AdvertisingCore)
    for number in range(MANY):
        busy.node.requested(ALICE, 1, Advertise("alice", Advertisement(f"x = {number}")))
    monkeypatch.setattr("catchment.node.sliced.SLICE_COMPARED_MAX", 10)
    busy.node.requested(ALICE, 9, Unadvertise("alice", Advertisement("x < 10")))
    assert busy.turns() >= MANY // 10
    assert len(busy.core.clients.advertisements_of("alice")) == MANY - 10
    busy.node.client_down(ALICE)
    assert busy.turns() > 1
    assert busy.core.leftovers() == []


def test_a_slice_of_cancellations_is_no_message_of_clients():
    assert CancelMany not in get_args(get_type_hints(Request)["body"])
    assert CancelMany in get_args(ClientRequest)


LOOKS: list[int] = []


class Looked(Refuse, frozen=True):
    """Counts how often somebody looks which notification was refused."""

    def __getattribute__(self, name: str):
        if name == "notification":
            LOOKS.append(1)
        return super().__getattribute__(name)


def test_refused_publications_are_not_compared_each_with_each(monkeypatch):
    busy = Busy()
    publications = [(number + 1, [Notification({"x": 1}, source="bob", seq=number + 1)]) for number in range(500)]
    refusals = [Looked(BOB, BadNotificationError("no"), batch[0]) for _, batch in publications]
    monkeypatch.setattr(Node, "_taken", lambda self, client, state, notifications: refusals)
    LOOKS.clear()
    busy.node.published(BOB, publications)
    assert len(LOOKS) <= 2 * len(publications)
    assert busy.bob.taken() == [("answer", number, [BadNotificationError]) for number, _ in publications]


def test_a_new_client_state_is_not_known():
    assert not ClientState(Outlet()).is_known
