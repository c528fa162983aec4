"""DVMRP-style multicast on one core, message by message: prune, graft, expiry; what neighbors may not say."""

from typing import Any

import pytest

from catchment.errors import InputError
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.baselines.dvmrp import DvmrpCore
from catchment.routing.baselines.messages import DvmrpSettings, Graft, Prune
from catchment.routing.messages import (
    HOST,
    SECOND,
    Action,
    Cancel,
    Client,
    ClientUp,
    Forward,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    TimerFired,
)
from catchment.routing.parts.distance_vectors import INFINITY, Distances
from catchment.routing.siena.messages import OriginHeader

UP, TWO, THREE, BOB = Neighbor("up"), Neighbor("2"), Neighbor("3"), Client("bob")


class Router:
    """Router 1, between the publisher `up` and two routers below."""

    def __init__(self, prune_timeout_s: float = 0.0) -> None:
        self.core = DvmrpCore("1", DvmrpSettings(prune_timeout_s=prune_timeout_s))
        self.now = self.seq = 0
        self.timers: dict[str, int] = {}
        for neighbor in (UP, TWO, THREE):
            self.tell(LinkUp(), neighbor)
            self.tell(Distances(((neighbor.name, 0),)), neighbor)
        for child in (TWO, THREE):
            self.tell(Distances((("up", INFINITY + 2),)), child)
        self.tell(ClientUp("bob"), BOB)

    def tell(self, message: Any, source: Any) -> list[str]:
        return self._shown(self.core.on_message(message, source, self.now))

    def event(self, source: Neighbor = UP, origin: str = "up") -> list[str]:
        self.seq += 1
        notification = Notification({"a": 1}, source="p", seq=self.seq)
        batch = [Routed(notification, OriginHeader(1, origin))]
        return self._shown(self.core.on_notifications(batch, source, self.now))

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        for name in [name for name, at in self.timers.items() if at <= self.now]:
            del self.timers[name]
            assert self.tell(TimerFired(name), HOST) == []

    def _shown(self, actions: list[Action]) -> list[str]:
        """In few words: `-> 2` for what is forwarded, `Prune up -> up` for what is sent. Without distances."""
        shown = []
        for action in actions:
            if isinstance(action, SetTimer):
                assert action.is_idle
                self.timers[action.name] = action.at
            elif isinstance(action, Forward):
                shown.append(f"-> {action.interface}")
            elif isinstance(action, Send) and isinstance(action.message, Prune | Graft):
                shown.append(f"{type(action.message).__name__} {action.message.publisher} -> {action.interface}")
            elif isinstance(action, Refuse):
                shown.append(f"refused: {action.error}")
        return shown


def pruned(prune_timeout_s: float = 0.0) -> Router:
    """Both children have pruned themselves, and so has the router."""
    router = Router(prune_timeout_s)
    assert router.event() == ["-> 2", "-> 3"]
    assert router.tell(Prune("up"), TWO) == []
    assert router.tell(Prune("up"), THREE) == ["Prune up -> up"]
    return router


def test_a_prune_of_all_children_is_passed_on():
    router = pruned()
    # What is under way still comes, and causes nothing.
    assert router.event() == []


def test_a_router_with_a_subscriber_does_not_prune_itself():
    router = Router()
    router.tell(Subscribe("bob", "s", Filter("a = 0")), BOB)
    router.tell(Prune("up"), TWO)
    assert router.tell(Prune("up"), THREE) == []
    assert router.event() == []
    # The last subscriber is gone: the next notification shows it.
    assert router.tell(Cancel("bob", "s"), BOB) == []
    assert router.event() == ["Prune up -> up"]


def test_a_leaf_prunes_itself_when_something_comes():
    router = Router()
    router.tell(LinkDown(), TWO)
    router.tell(LinkDown(), THREE)
    assert router.event() == ["Prune up -> up"]


def test_a_graft_is_passed_on_once():
    router = pruned()
    assert router.tell(Graft("up"), TWO) == ["Graft up -> up"]
    assert router.tell(Graft("up"), THREE) == []
    assert router.event() == ["-> 2", "-> 3"]


def test_a_first_subscriber_grafts():
    router = pruned()
    assert router.tell(Subscribe("bob", "s", Filter("a = 0")), BOB) == ["Graft up -> up"]
    assert router.tell(Subscribe("bob", "t", Filter("a = 0")), BOB) == []


def test_a_new_child_grafts():
    router = pruned()
    four = Neighbor("4")
    router.tell(LinkUp(), four)
    assert router.tell(Distances((("4", 0), ("up", INFINITY + 2))), four) == ["Graft up -> up"]
    assert router.event() == ["-> 4"]


def test_a_new_parent_knows_of_no_prune():
    router = pruned()
    router.tell(Distances((("up", 1),)), TWO)
    router.tell(LinkDown(), UP)
    assert router.event(source=TWO) == ["Prune up -> 2"]


def test_a_prune_expires_and_is_said_again_when_it_is_needed():
    router = pruned(prune_timeout_s=8)
    router.wait(3)
    assert router.event() == []
    router.wait(2)
    # The parent's may have expired: half of the timeout is over.
    assert router.event() == ["Prune up -> up"]
    router.wait(3)
    assert router.event() == ["-> 2", "-> 3"]


def test_what_does_not_come_from_the_parent_is_dropped():
    router = Router()
    assert router.event(source=TWO) == []
    assert router.event(origin="unknown") == []


@pytest.mark.parametrize("message", [Prune("unknown"), Graft("2"), Prune("3")])
def test_a_prune_for_a_tree_that_the_neighbor_is_not_in_is_refused(message: Prune | Graft):
    router = pruned()
    (refusal,) = router.tell(message, TWO)
    assert refusal.startswith("refused: neighbor '2' pruned or grafted for ")
    assert router.tell(Graft("up"), THREE) == ["Graft up -> up"]


def test_impossible_distances_are_refused():
    (refusal,) = pruned().tell(Distances((("x", -1),)), TWO)
    assert refusal.startswith("refused: neighbor '2' told the number -1")


def test_a_timeout_is_not_below_zero():
    with pytest.raises(InputError, match="prune_timeout_s is -1: use 0 s or more"):
        DvmrpCore("1", DvmrpSettings(prune_timeout_s=-1))
