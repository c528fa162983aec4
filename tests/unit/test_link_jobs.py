"""Jobs of a node about its links: what is said at length, links that go, neighbors that come back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.node.jobs import SLICE_CANCELLED_MAX
from catchment.routing.messages import (
    Advertise,
    Beat,
    Cancel,
    Routed,
    Subscribe,
)
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import MESSAGE_FILTERS_MAX, Advertised, Interest, WantsChange
from tests.unit.busy_node import ALICE, BOB, MANY, NORTH, SOUTH, Busy, filters, said
from tests.unit.test_node import Outlet


def test_a_link_that_goes_is_forgotten_in_slices_and_others_are_served_in_between():
    busy = Busy()
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.hear(Interest(announced=filters()))
    north.taken()
    busy.node.link_down(SOUTH)
    left = [len(busy.core.remote)]
    busy.publish(MANY - 1)
    # Nothing goes over the link that is gone, though the core has not forgotten it yet.
    assert busy.south.taken() == []
    while busy.turn():
        left.append(len(busy.core.remote))
    assert left[0] == MANY - SLICE_CANCELLED_MAX
    assert all(before - after <= SLICE_CANCELLED_MAX for before, after in pairwise(left))
    assert left[-1] == 0
    heard = [message for message in north.taken() if isinstance(message, Interest)]
    assert sum(len(message.withdrawn) for message in heard) == MANY
    assert busy.core.leftovers() == []


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
    assert list(busy.core.remote.of("south")) == [Filter("x = 1000")]
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
    assert (busy.node.links, busy.core.leftovers()) == ({}, [])
    assert busy.node.jobs.waiting_count == 0


def test_what_a_neighbor_says_at_length_is_heard_in_slices():
    busy = Busy()
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.node.told(SOUTH, Interest(announced=said(0).withdrawn))
    north.taken()
    busy.node.told(SOUTH, said(MANY))
    busy.node.arrived(SOUTH, [Routed(Notification({"x": 3}, source="p", seq=1))])
    busy.node.told(SOUTH, Interest(withdrawn=filters(1)))
    held = [len(busy.core.remote)]
    busy.publish(0)
    while busy.turn():
        held.append(len(busy.core.remote))
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
    assert list(busy.core.remote.of("south")) == [Filter("x = 1000")]
    assert again.taken()[-1] == "resumed"


@pytest.mark.parametrize("make", [AcyclicCore, AdvertisingCore, GeneralCore])
def test_no_message_to_a_neighbor_is_long(make):
    busy = Busy(make)
    for number in range(MANY):
        busy.node.requested(ALICE, 1, Advertise("alice", Advertisement(f"x = {number}")))
        busy.node.requested(ALICE, 1, Subscribe("alice", str(number), Filter(f"x = {number} and y > 0")))
    busy.node.requested(BOB, 1, Subscribe("bob", "wide", Filter("y > 0")))
    busy.node.requested(BOB, 1, Cancel("bob", "wide"))
    busy.node.link_up(NORTH, 1, north := Outlet())
    busy.node.told(NORTH, Advertised(announced=(Advertisement("x any, y any"),))) if make is AdvertisingCore else None
    changes = [each for each in busy.south.put + north.put if isinstance(each, Interest | Advertised | WantsChange)]
    assert sum(len(each.announced) for each in changes) > MANY
    assert max(len(each.announced) + len(each.withdrawn) for each in changes) <= MESSAGE_FILTERS_MAX


def test_a_link_with_little_is_forgotten_at_once():
    busy = Busy()
    busy.node.told(SOUTH, Interest(announced=filters(SLICE_CANCELLED_MAX)))
    busy.node.link_down(SOUTH)
    assert (busy.timers, len(busy.core.remote)) == ([], 0)
