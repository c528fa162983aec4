"""Each budget of a slice is kept; and if it is removed, that is found. All is counted, nothing is timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from catchment import Filter, Notification
from catchment.node import jobs, node, sliced
from catchment.routing.messages import (
    Subscribe,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.wanted import cancels
from catchment.routing.siena import messages
from catchment.routing.siena.messages import Interest
from tests.unit.busy_node import ALICE, BOB, MANY, SOUTH, Busy, filters, said


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
    busy, asked = Busy(), Counter[str]()
    busy.subscribe(3 * 256)

    def counted(wider: Wanted, wanted: Wanted) -> bool:
        asked["times"] += 1
        return cancels(wider, wanted)

    monkeypatch.setattr(sliced, "cancels", counted)
    request = Unsubscribe("alice", Filter("z = 1"))
    return each_turn(busy, lambda: asked["times"], lambda: busy.node.requested(ALICE, 9, request))


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
    return each_turn(busy, lambda: len(busy.core.remote), lambda: busy.node.link_down(SOUTH))


def heard_of_a_link(monkeypatch) -> list[int]:
    busy = Busy()
    return each_turn(busy, lambda: len(busy.core.remote), lambda: busy.node.told(SOUTH, said(MANY)))


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
