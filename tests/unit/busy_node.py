"""A node whose turns are taken by hand: for the tests of its jobs."""

from __future__ import annotations

from typing import Any

from catchment import Filter, Notification
from catchment.node import Node
from catchment.node.jobs import SLICE_CANCELLED_MAX, TURN
from catchment.routing.messages import (
    BrokerMessage,
    Client,
    Neighbor,
    SetTimer,
    Subscribe,
)
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.messages import Interest
from tests.unit.test_node import Outlet

ALICE, BOB, SOUTH, NORTH = Client("alice"), Client("bob"), Neighbor("south"), Neighbor("north")
MANY = 3 * SLICE_CANCELLED_MAX + 5


class Busy:
    """A node with two clients and a link, whose turns are counted."""

    def __init__(self, core=AcyclicCore) -> None:
        self.timers: list[SetTimer] = []
        self.core: Any = core("n")
        self.node = Node("n", self.core, lambda: 7, self.timers.append)
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
        return int(self.core.clients.subscriptions_count)


def filters(count: int = MANY) -> tuple[Filter, ...]:
    return tuple(Filter(f"x = {number}") for number in range(count))


def said(count: int) -> Interest:
    return Interest(tuple(Filter(f"y = {number}") for number in range(5)), filters(count))
