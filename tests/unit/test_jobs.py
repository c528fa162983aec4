"""Jobs of a node: large requests in slices, and what others see meanwhile. Turns are taken by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import get_args, get_type_hints

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.errors import BadIdError, BadNotificationError
from catchment.model.budget import steps_used
from catchment.model.filter import RELATION_STEPS_MAX
from catchment.node import Node, jobs, node, sliced
from catchment.node.jobs import SLICE_CANCELLED_MAX, SLICE_COMPARED_MAX, SLICE_PUBLISHED_MAX, SLICE_STEPS_MAX, TURN
from catchment.node.kept import ClientState
from catchment.routing.messages import (
    Advertise,
    Beat,
    BrokerMessage,
    Cancel,
    CancelMany,
    Client,
    ClientRequest,
    MapIdentity,
    Neighbor,
    Refuse,
    Routed,
    SetTimer,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.parts.wanted import cancels
from catchment.routing.siena import messages
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import MESSAGE_FILTERS_MAX, Advertised, Interest, WantsChange
from catchment.wire.messages import Request
from tests.unit.test_node import Outlet

ALICE, BOB, SOUTH, NORTH = Client("alice"), Client("bob"), Neighbor("south"), Neighbor("north")
MANY = 3 * SLICE_CANCELLED_MAX + 5


class Busy:
    """A node with two clients and a link, whose turns are counted."""

    def __init__(self, core=AcyclicCore) -> None:
        self.timers: list[SetTimer] = []
        self.node = Node("n", core("n"), lambda: 7, self.timers.append)
        self.alice, self.bob, self.south = Outlet(), Outlet(), Outlet()
        self.node.client_up(ALICE, "alice", {}, self.alice)
        self.node.client_up(BOB, "bob", {}, self.bob)
        self.node.link_up(SOUTH, 1, self.south)

    def subscribe(self, count: int = MANY) -> None:
        for number in range(count):
            self.node.requested(ALICE, 1, Subscribe("alice", str(number), Filter(f"x = {number}")))
        self.alice.taken(), self.south.taken()

    def hear(self, message: BrokerMessage) -> None:
        """The neighbor says something, and all of it is heard."""
        self.node.told(SOUTH, message)
        self.turns()
        self.south.taken()

    def publish(self, x: int) -> None:
        publication = Notification({"x": x}, source="bob", seq=x + 1)
        self.node.published(BOB, [(0, [publication])])

    def turn(self) -> bool:
        if not self.timers:
            return False
        assert [(timer.name, timer.is_idle) for timer in self.timers] == [(TURN, False)]
        self.timers.clear()
        self.node.timer_fired(TURN)
        return True

    def turns(self) -> int:
        count = 0
        while self.turn():
            count += 1
        return count

    @property
    def subscriptions(self) -> int:
        return self.node.core.clients.subscriptions_count


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
    assert "alice" not in busy.node.core.clients
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
    assert busy.node.core.clients.wants_of("alice") == {"0": Filter("x = 9")}


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
    assert busy.node.core.leftovers() == []


def test_a_handler_that_comes_back_waits_too():
    busy = Busy()
    busy.subscribe()
    busy.node.client_down(ALICE)
    busy.node.client_up(ALICE, "alice", {}, Outlet())
    busy.node.requested(BOB, 6, MapIdentity("bob", "alice"))
    busy.turns()
    # The mapping came after the end of the first Alice: it does not end with her.
    assert "bob" in busy.node.core.clients


# --- links ---


def filters(count: int = MANY) -> tuple[Filter, ...]:
    return tuple(Filter(f"x = {number}") for number in range(count))


def test_a_link_that_goes_is_forgotten_in_slices_and_others_are_served_in_between():
    busy = Busy()
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.hear(Interest(announced=filters()))
    north.taken()
    busy.node.link_down(SOUTH)
    left = [len(busy.node.core.remote)]
    busy.publish(MANY - 1)
    # Nothing goes over the link that is gone, though the core has not forgotten it yet.
    assert busy.south.taken() == []
    while busy.turn():
        left.append(len(busy.node.core.remote))
    assert left[0] == MANY - SLICE_CANCELLED_MAX
    assert all(before - after <= SLICE_CANCELLED_MAX for before, after in pairwise(left))
    assert left[-1] == 0
    heard = [message for message in north.taken() if isinstance(message, Interest)]
    assert sum(len(message.withdrawn) for message in heard) == MANY
    assert busy.node.core.leftovers() == []


def test_a_neighbor_that_comes_back_waits_until_it_is_forgotten():
    busy = Busy()
    busy.hear(Interest(announced=filters()))
    busy.node.link_down(SOUTH)
    again = Outlet()
    busy.node.link_up(SOUTH, 1, again)
    busy.node.told(SOUTH, Interest(announced=(Filter("x = 1000"),)))
    busy.node.arrived(SOUTH, [Routed(Notification({"x": 3}, source="p", seq=1))])
    busy.node.requested(BOB, 2, Subscribe("bob", "b", Filter("x any")))
    assert (again.taken(), again.told) == (["paused"] * 3, [])
    assert SOUTH not in busy.node.links
    busy.turns()
    # It hears what is wanted here, as over every new link; what it said before is gone.
    assert again.taken() == [Interest(announced=(Filter("x any"),)), "resumed"]
    assert list(busy.node.core.remote.of("south")) == [Filter("x = 1000")]
    assert busy.bob.taken() == [("answer", 2, []), ("delivered", 3)]


def test_what_a_link_said_that_is_gone_again_is_dropped():
    busy = Busy()
    busy.hear(Interest(announced=filters()))
    for _ in range(3):
        busy.node.link_down(SOUTH)
        busy.node.link_up(SOUTH, 1, Outlet())
        busy.node.told(SOUTH, Interest(announced=(Filter("x = 1000"),)))
        busy.node.link_told(SOUTH, Beat(1, 1, 0))
    busy.node.link_down(SOUTH)
    busy.turns()
    assert (busy.node.links, busy.node.core.leftovers()) == ({}, [])
    assert busy.node.jobs.waiting_count == 0


def said(count: int) -> Interest:
    return Interest(tuple(Filter(f"y = {number}") for number in range(5)), filters(count))


def test_what_a_neighbor_says_at_length_is_heard_in_slices():
    busy = Busy()
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.node.told(SOUTH, Interest(announced=said(0).withdrawn))
    north.taken()
    busy.node.told(SOUTH, said(MANY))
    busy.node.arrived(SOUTH, [Routed(Notification({"x": 3}, source="p", seq=1))])
    busy.node.told(SOUTH, Interest(withdrawn=filters(1)))
    held = [len(busy.node.core.remote)]
    busy.publish(0)
    while busy.turn():
        held.append(len(busy.node.core.remote))
    assert held[0] == MESSAGE_FILTERS_MAX + 5
    assert all(abs(after - before) <= MESSAGE_FILTERS_MAX for before, after in pairwise(held))
    assert held[-1] == MANY - 1
    # What is announced here goes on in the same slices, and in none of them is anything missing.
    heard = [message for message in north.taken() if isinstance(message, Interest)]
    assert max(len(message.announced) for message in heard) <= MESSAGE_FILTERS_MAX
    assert [len(message.withdrawn) for message in heard] == [0] * (len(heard) - 2) + [5, 1]
    assert (busy.south.put[-3], busy.south.put[-1]) == ("paused", "resumed")


def test_a_link_may_go_while_what_it_said_is_being_heard():
    busy = Busy()
    busy.node.told(SOUTH, said(MANY))
    busy.node.told(SOUTH, said(MANY))
    busy.node.link_down(SOUTH)
    busy.node.link_up(SOUTH, 1, again := Outlet())
    busy.node.told(SOUTH, Interest(announced=(Filter("x = 1000"),)))
    busy.turns()
    assert list(busy.node.core.remote.of("south")) == [Filter("x = 1000")]
    assert again.taken()[-1] == "resumed"


@pytest.mark.parametrize("make", [AcyclicCore, AdvertisingCore, GeneralCore])
def test_no_message_to_a_neighbor_is_long(make):
    busy = Busy(make)
    for number in range(MANY):
        busy.node.requested(ALICE, 1, Advertise("alice", Advertisement(f"x = {number}")))
        busy.node.requested(ALICE, 1, Subscribe("alice", str(number), Filter(f"x = {number} and y > 0")))
    wide = [
        Subscribe("bob", "wide", Filter("y > 0")),
        Subscribe("bob", "wider", Filter("y any")),
        Cancel("bob", "wider"),
    ]
    for request in [*wide, Cancel("bob", "wide")]:
        busy.node.requested(BOB, 1, request)
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.node.told(NORTH, Advertised(announced=(Advertisement("x any, y any"),))) if make is AdvertisingCore else None
    changes = [each for each in busy.south.put + north.put if isinstance(each, Interest | Advertised | WantsChange)]
    assert sum(len(each.announced) for each in changes) > MANY
    assert max(len(each.announced) + len(each.withdrawn) for each in changes) <= MESSAGE_FILTERS_MAX


def test_a_link_with_little_is_forgotten_at_once():
    busy = Busy()
    busy.node.told(SOUTH, Interest(announced=filters(SLICE_CANCELLED_MAX)))
    busy.node.link_down(SOUTH)
    assert (busy.timers, len(busy.node.core.remote)) == ([], 0)


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
    assert "bob" not in busy.node.core.clients


# --- a budget that is removed is missed ---


def each_turn(busy: Busy, counted: Callable[[], int], begin: Callable[[], None]) -> list[int]:
    """By how much something grows or shrinks in each turn, from the one in which something begins."""
    counts = [counted()]
    begin()
    counts.append(counted())
    while busy.turn():
        counts.append(counted())
    return [abs(after - before) for before, after in pairwise(counts)]


def compared(monkeypatch) -> list[int]:
    """Subscriptions that an unsubscription is compared with. It covers none, and the samples show it at once."""
    busy, asked = Busy(), []
    busy.subscribe(3 * 256)
    monkeypatch.setattr(sliced, "cancels", lambda wider, wanted: asked.append(1) or cancels(wider, wanted))
    request = Unsubscribe("alice", Filter("z = 1"))
    return each_turn(busy, lambda: len(asked), lambda: busy.node.requested(ALICE, 9, request))


def cancelled_by_its_end(monkeypatch) -> list[int]:
    busy = Busy()
    busy.subscribe(MANY)
    return each_turn(busy, lambda: busy.subscriptions, lambda: busy.node.client_down(ALICE))


def cancelled_by_a_request(monkeypatch) -> list[int]:
    busy = Busy()
    busy.subscribe(MANY)
    request = Unsubscribe("alice", Filter("x any"))
    return each_turn(busy, lambda: busy.subscriptions, lambda: busy.node.requested(ALICE, 9, request))


def forgotten_of_a_link(monkeypatch) -> list[int]:
    busy = Busy()
    busy.hear(Interest(announced=filters()))
    return each_turn(busy, lambda: len(busy.node.core.remote), lambda: busy.node.link_down(SOUTH))


def heard_of_a_link(monkeypatch) -> list[int]:
    busy = Busy()
    return each_turn(busy, lambda: len(busy.node.core.remote), lambda: busy.node.told(SOUTH, said(MANY)))


def published(monkeypatch) -> list[int]:
    busy = Busy()
    batch = [Notification({"x": number}, source="bob", seq=number + 1) for number in range(3 * 1_024)]
    return each_turn(busy, lambda: busy.node.totals.published, lambda: busy.node.published(BOB, [(0, batch)]))


def said_while_waiting(monkeypatch) -> list[int]:
    """Requests about an identity that is being taken down: they wait, and then they are done."""
    busy = Busy()
    busy.subscribe(MANY)
    busy.node.client_down(ALICE)
    for number in range(4 * 32):
        busy.node.requested(BOB, number + 1, Subscribe("alice", str(number), Filter("x = 9")))
    answered = lambda: sum(isinstance(each, tuple) for each in busy.bob.put)  # noqa: E731
    return each_turn(busy, answered, lambda: None)


BUDGETS = [
    (sliced, "SLICE_COMPARED_MAX", 256, compared),
    (sliced, "SLICE_CANCELLED_MAX", 64, cancelled_by_its_end),
    (sliced, "SLICE_CANCELLED_MAX", 64, cancelled_by_a_request),
    (node, "SLICE_CANCELLED_MAX", 64, forgotten_of_a_link),
    (messages, "MESSAGE_FILTERS_MAX", 64, heard_of_a_link),
    (node, "SLICE_PUBLISHED_MAX", 1_024, published),
    (jobs, "SLICE_SAID_MAX", 32, said_while_waiting),
]


@pytest.mark.parametrize(("module", "name", "most", "counts"), BUDGETS)
def test_no_turn_does_more_than_its_budget(module, name, most, counts, monkeypatch):
    assert getattr(module, name) == most
    in_turns = counts(monkeypatch)
    assert max(in_turns) == most
    assert sum(in_turns) >= 3 * most


@pytest.mark.parametrize(("module", "name", "most", "counts"), BUDGETS)
def test_a_budget_that_is_removed_is_missed(module, name, most, counts, monkeypatch):
    monkeypatch.setattr(module, name, 10**9)
    assert max(counts(monkeypatch)) > most


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
    assert len(busy.node.core.clients.advertisements_of("alice")) == MANY - 10
    busy.node.client_down(ALICE)
    assert busy.turns() > 1
    assert busy.node.core.leftovers() == []


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
