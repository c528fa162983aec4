"""Filter propagation: the rules of §3.3 on one core, message by message; its timers; what neighbors may not say."""

from collections.abc import Callable
from typing import Any

import pytest

from catchment.errors import InputError
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import (
    HOST,
    SECOND,
    Action,
    Cancel,
    Client,
    ClientUp,
    Deliver,
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
from catchment.routing.propagation.core import PropagationCore
from catchment.routing.propagation.messages import Filtered, PropagationSettings
from catchment.routing.siena.messages import OriginHeader

# Figure 3.2: the upstream router, which is the publisher, then router 1, and below it routers 2 and 3.
UP, TWO, THREE = Neighbor("upstream"), Neighbor("2"), Neighbor("3")
BOB = Client("bob")
SUBSCRIPTION_2, SUBSCRIPTION_3 = Filter("a >= 5 and b <= 5"), Filter("a <= 2 and b >= 10")
TRUE = Filter("true")
TIMED = PropagationSettings(filter_timeout_s=8, publisher_timeout_s=60)


def through(*origins: str, distance: int = 2) -> Distances:
    """A neighbor says that its routes to these lead through the receiver."""
    return Distances(tuple((origin, INFINITY + distance) for origin in origins))


class Router:
    """Router 1 of Figure 3.2, with a clock of its own and a client. Its actions but those of distances."""

    def __init__(self, settings: PropagationSettings | None = None) -> None:
        self.core = PropagationCore("1", settings)
        self.now = 0
        self.seq = 0
        self.timers: dict[str, int] = {}
        for neighbor in (UP, TWO, THREE):
            self.tell(LinkUp(), neighbor)
            self.tell(Distances(((neighbor.name, 0),)), neighbor)
        for child in (TWO, THREE):
            self.tell(through("upstream"), child)
        self.tell(ClientUp("bob"), BOB)

    def tell(self, message: Any, source: Any) -> list[Action]:
        return self._noted(self.core.on_message(message, source, self.now))

    def _noted(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, SetTimer):
                assert action.is_idle
                self.timers[action.name] = action.at
        quiet = (SetTimer,)
        return [
            action
            for action in actions
            if not isinstance(action, quiet) and not (isinstance(action, Send) and type(action.message) is Distances)
        ]

    def event(self, source: Neighbor = UP, origin: str = "upstream", **attributes: Any) -> list[Action]:
        """A notification of the publisher comes."""
        self.seq += 1
        notification = Notification(attributes, source="p", seq=self.seq)
        return self._noted(
            self.core.on_notifications([Routed(notification, OriginHeader(1, origin))], source, self.now)
        )

    def wait(self, seconds: float) -> list[Action]:
        """Time goes by, and timers fire."""
        until, actions = self.now + round(seconds * SECOND), list[Action]()
        while due := sorted((at, name) for name, at in self.timers.items() if at <= until):
            self.now, name = due[0]
            del self.timers[name]
            actions += self.tell(TimerFired(name), HOST)
        self.now = until
        return actions

    @property
    def table(self) -> dict[str, str]:
        """The routing table for the publisher: the expression of each child, and of itself."""
        filters = self.core.filters_by_child("upstream")
        own = " or ".join(map(str, self.core.own_filters())) or "false"
        return {**{f"router {child}": str(filter) for child, filter in filters.items()}, "self": own}


def receivers(actions: list[Action]) -> list[str]:
    return [action.interface.name for action in actions if isinstance(action, Forward)]


def said(actions: list[Action]) -> list[tuple[str, str]]:
    """What the parent is told."""
    return [(publisher, text) for to, publisher, text in said_to(actions) if to == UP]


def said_to(actions: list[Action]) -> list[tuple[Neighbor, str, str]]:
    sent = []
    for action in actions:
        if isinstance(action, Send):
            assert isinstance(action.message, Filtered)
            sent.append((action.interface, action.message.publisher, str(action.message.wanted)))
    return sent


def converged(settings: PropagationSettings | None = None) -> Router:
    """Routers 2 and 3 have sent their filters, and router 1 its composite."""
    router = Router(settings)
    router.event(x=0)
    assert said(router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)) == []
    assert len(said(router.tell(Filtered("upstream", SUBSCRIPTION_3), THREE))) == 1
    return router


# --- tables 3.2 and 3.3 -------------------------------------------------------------------------


def test_table_3_2_after_the_first_event():
    router = Router()
    assert receivers(router.event(a=7, b=0)) == ["2", "3"]
    assert router.table == {"router 2": "true", "router 3": "true", "self": "false"}


def test_table_3_3_once_the_network_has_converged():
    router = Router()
    router.event(a=7, b=0)
    assert said(router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)) == []
    composite = "a <= 2 and b >= 10 or a >= 5 and b <= 5"
    assert said(router.tell(Filtered("upstream", SUBSCRIPTION_3), THREE)) == [("upstream", composite)]
    assert router.table == {"router 2": "a >= 5 and b <= 5", "router 3": "a <= 2 and b >= 10", "self": "false"}
    assert receivers(router.event(a=7, b=0)) == ["2"]
    assert receivers(router.event(a=1, b=12)) == ["3"]
    assert receivers(router.event(a=7, b=12)) == []


# --- receiving an event (§3.3.1) ----------------------------------------------------------------


def test_a_leaf_answers_the_first_unwanted_event_with_a_filter():
    leaf = Router()
    for child in (TWO, THREE):
        leaf.tell(LinkDown(), child)
    assert said(leaf.event(a=1)) == [("upstream", "false")]
    # Filters do not expire, so what the parent holds is not said again.
    assert said(leaf.event(a=2)) == []


def test_an_unwanted_event_is_passed_on_while_a_child_is_open_and_causes_nothing():
    router = Router()
    router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)
    actions = router.event(a=0, b=0)
    assert receivers(actions) == ["3"]
    assert said(actions) == []


def test_a_wanted_event_causes_nothing():
    router = converged()
    assert said(router.event(a=7, b=0)) == []


def test_what_a_client_here_wants_is_not_unwanted():
    leaf = Router()
    for child in (TWO, THREE):
        leaf.tell(LinkDown(), child)
    leaf.tell(Subscribe("bob", "s", Filter("a > 3")), BOB)
    actions = leaf.event(a=4)
    assert [type(action) for action in actions] == [Deliver]
    assert said(leaf.event(a=3)) == [("upstream", "a > 3")]


def test_what_does_not_come_from_the_parent_is_dropped():
    router = Router()
    assert router.event(source=TWO, a=1) == []
    # The same notification from the parent is taken.
    router.seq -= 1
    assert receivers(router.event(a=1)) == ["2", "3"]


def test_nothing_is_passed_on_twice_while_trees_change():
    """The parent changes, and the new one sends what the old one had sent."""
    router = Router()
    assert receivers(router.event(a=1)) == ["2", "3"]
    router.tell(Distances((("upstream", 1),)), TWO)
    router.tell(LinkDown(), UP)
    router.seq -= 1
    assert router.event(source=TWO, a=1) == []
    assert receivers(router.event(source=TWO, a=1)) == ["3"]


@pytest.mark.parametrize("origin", ["1", "unknown"])
def test_events_of_ourselves_or_of_nobody_are_dropped(origin: str):
    router = Router()
    assert router.event(origin=origin, a=1) == []
    assert router.core.publishers == ()


# --- receiving a filter message (§3.3.2) --------------------------------------------------------


def test_true_is_passed_on_if_anything_was_sent():
    router = converged()
    assert said(router.tell(Filtered("upstream", TRUE), TWO)) == [("upstream", "true")]
    # Once: then the parent holds nothing of ours.
    assert said(router.tell(Filtered("upstream", TRUE), THREE)) == []


def test_a_changed_filter_is_passed_on_at_once():
    router = converged(TIMED)
    assert said(router.tell(Filtered("upstream", Filter("a > 9")), TWO)) == [
        ("upstream", "a <= 2 and b >= 10 or a > 9")
    ]


def test_the_gap_a_wider_filter_while_another_child_has_expired():
    router = converged(TIMED)
    router.wait(4)
    router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)
    router.wait(4)
    assert router.table == {"router 2": "a >= 5 and b <= 5", "router 3": "true", "self": "false"}
    # The parent still holds a filter that does not have what router 2 wants now.
    assert said(router.tell(Filtered("upstream", Filter("a >= 3")), TWO)) == [("upstream", "true")]


def test_what_the_parent_holds_is_not_said_again():
    router = converged()
    assert said(router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)) == []


# --- changing subscription (§3.3.3) -------------------------------------------------------------


def test_a_changed_subscription_goes_to_every_publisher_that_was_sent_anything():
    router = Router(TIMED)
    router.tell(Distances((("x", 1), ("y", 1))), UP)
    for child in (TWO, THREE):
        router.tell(LinkDown(), child)
    router.event(a=1)
    router.event(origin="x", a=1)
    # Of y nothing was heard, so it was sent nothing.
    assert said(router.tell(Subscribe("bob", "s", Filter("a > 3")), BOB)) == [("upstream", "a > 3"), ("x", "a > 3")]
    # Narrowing too, and suppression delays neither.
    assert said(router.tell(Cancel("bob", "s"), BOB)) == [("upstream", "false"), ("x", "false")]


def test_a_changed_subscription_that_a_wider_one_covers_changes_nothing():
    router = converged()
    router.tell(Subscribe("bob", "s", Filter("a > 3")), BOB)
    assert said(router.tell(Subscribe("bob", "t", Filter("a > 4")), BOB)) == []


def test_a_changed_subscription_with_an_open_child_says_true():
    router = converged(TIMED)
    router.wait(4)
    router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)
    router.wait(4)
    assert said(router.tell(Subscribe("bob", "s", Filter("c = 1")), BOB)) == [("upstream", "true")]


# --- timers (§3.3.5) ----------------------------------------------------------------------------


def test_a_filter_expires_for_its_own_publisher_and_child_alone():
    router = converged(TIMED)
    router.tell(Distances((("x", 1),)), UP)
    router.tell(through("x"), TWO)
    router.wait(2)
    router.event(origin="x", a=1)
    router.tell(Filtered("x", SUBSCRIPTION_2), TWO)
    router.tell(Filtered("upstream", SUBSCRIPTION_3), THREE)
    assert router.wait(6.5) == []
    assert router.table == {"router 2": "true", "router 3": "a <= 2 and b >= 10", "self": "false"}
    assert [str(filter) for filter in router.core.filters_by_child("x").values()] == ["a >= 5 and b <= 5"]
    router.wait(1.5)
    assert router.table == {"router 2": "true", "router 3": "true", "self": "false"}


def test_a_filter_that_comes_again_begins_its_time_anew():
    router = converged(TIMED)
    router.wait(5)
    router.tell(Filtered("upstream", SUBSCRIPTION_2), TWO)
    router.wait(5)
    assert router.table["router 2"] == "a >= 5 and b <= 5"


def test_an_expired_filter_gives_the_child_everything():
    router = converged(TIMED)
    assert receivers(router.event(a=3, b=3)) == []
    router.wait(8)
    assert receivers(router.event(a=3, b=3)) == ["2", "3"]


def test_suppression_silences_unwanted_events_for_half_the_filter_timeout():
    router = converged(TIMED)
    assert said(router.event(a=3, b=3)) == []
    router.wait(3.9)
    assert said(router.event(a=3, b=3)) == []
    router.wait(0.2)
    assert said(router.event(a=3, b=3)) == [("upstream", "a <= 2 and b >= 10 or a >= 5 and b <= 5")]
    assert said(router.event(a=3, b=3)) == []


def test_suppression_is_of_one_publisher():
    router = Router(TIMED)
    router.tell(Distances((("x", 1),)), UP)
    for child in (TWO, THREE):
        router.tell(LinkDown(), child)
    assert said(router.event(a=1)) == [("upstream", "false")]
    assert said(router.event(origin="x", a=1)) == [("x", "false")]


def test_suppression_does_not_delay_widening():
    router = converged(TIMED)
    assert said(router.event(a=3, b=3)) == []
    assert said(router.tell(Filtered("upstream", Filter("a >= 3")), TWO)) == [
        ("upstream", "a <= 2 and b >= 10 or a >= 3")
    ]
    assert said(router.tell(Filtered("upstream", TRUE), TWO)) == [("upstream", "true")]


def test_a_silent_publisher_is_forgotten_and_the_parent_told():
    router = converged(TIMED)
    router.wait(30)
    router.event(a=3, b=3)
    assert router.wait(59.9) == []
    assert "upstream" in router.core.publishers
    assert said(router.wait(0.2)) == [("upstream", "true")]
    assert router.core.publishers == ()
    assert router.core.leftovers() == []


def test_a_publisher_that_comes_back_is_new():
    router = converged(TIMED)
    router.wait(100)
    assert router.core.publishers == ()
    assert receivers(router.event(a=3, b=3)) == ["2", "3"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"publisher_timeout_s": 8, "filter_timeout_s": 8}, "publisher_timeout_s is 8 and filter_timeout_s 8"),
        ({"publisher_timeout_s": 5, "filter_timeout_s": 8}, "the publisher's must be longer"),
        ({"publisher_timeout_s": 5}, "publisher_timeout_s is 5 and filter_timeout_s 0"),
        ({"filter_timeout_s": -1}, "are 0 s or more"),
        ({"filter_timeout_s": 4, "suppression_s": 4}, "suppression must be shorter"),
        ({"comparisons_max": 0}, "comparisons_max is 0: use 1 or more"),
        ({"infinity": 1}, "infinity is 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], what: str):
    with pytest.raises(InputError, match=what):
        PropagationCore("1", PropagationSettings(**given))


# --- topology change (§6.2) ---------------------------------------------------------------------


def test_a_new_child_is_open_and_the_parent_told():
    router = converged()
    four = Neighbor("4")
    router.tell(LinkUp(), four)
    router.tell(Distances((("4", 0),)), four)
    assert said(router.tell(through("upstream"), four)) == [("upstream", "true")]
    assert router.table["router 4"] == "true"


def test_a_lost_child_is_forgotten_and_the_parent_told_what_is_left():
    router = converged()
    assert said(router.tell(LinkDown(), TWO)) == [("upstream", "a <= 2 and b >= 10")]
    assert router.table == {"router 3": "a <= 2 and b >= 10", "self": "false"}


def test_a_new_parent_has_been_told_nothing():
    router = converged()
    router.tell(Distances((("upstream", 1),)), TWO)
    # Router 2 is no child any longer: it is the way to the publisher when the link fails.
    actions = router.tell(LinkDown(), UP)
    assert [action for action in actions if isinstance(action, Send)] == []
    assert router.core.vectors.parent("upstream") == TWO
    actions = router.event(source=TWO, a=7, b=7)
    assert said_to(actions) == [(TWO, "upstream", "a <= 2 and b >= 10")]


def test_a_publisher_that_cannot_be_reached_is_forgotten():
    router = converged()
    router.tell(LinkDown(), UP)
    assert router.core.publishers == ()


# --- what neighbors may not say -----------------------------------------------------------------


def refused(actions: list[Action], source: Neighbor) -> str:
    (refusal,) = actions
    assert isinstance(refusal, Refuse)
    assert refusal.source == source
    return str(refusal.error)


@pytest.mark.parametrize("publisher", ["unknown", "2", "3"])
def test_a_filter_for_a_tree_that_the_neighbor_is_not_in_is_refused(publisher: str):
    router = converged()
    before = router.table
    reason = refused(router.tell(Filtered(publisher, SUBSCRIPTION_2), TWO), TWO)
    assert reason == (
        f"neighbor '2' sent a filter for '{publisher}', and its route to that broker does not lead through here"
    )
    assert (router.table, router.core.publishers) == (before, ("upstream",))


def test_a_filter_from_the_parent_is_refused():
    assert "does not lead through here" in refused(converged().tell(Filtered("upstream", TRUE), UP), UP)


@pytest.mark.parametrize("entry", [("x", -3), ("x", 10**9), ("x", 0), ("2", 3)])
def test_impossible_distances_are_refused_and_harm_nothing(entry: tuple[str, int]):
    router = converged()
    assert "told the number" in refused(router.tell(Distances((entry,)), TWO), TWO)
    assert receivers(router.event(a=7, b=0)) == ["2"]


def test_a_flood_of_filters_takes_the_room_of_one():
    router = converged()
    for bound in range(200):
        router.tell(Filtered("upstream", Filter(f"a > {bound}")), TWO)
    (table,) = [table for table in router.core.inspect().tables if table.holder == "2"]
    assert (table.filters, table.bytes) == (1, len("a > 199"))


def test_a_filter_past_our_budget_is_held_as_a_wider_one():
    router = Router(PropagationSettings(comparisons_max=2))
    router.event(x=0)
    router.tell(Filtered("upstream", Filter("a >= 5 and b <= 5 or a <= 2 and b >= 10")), TWO)
    held = router.core.filters_by_child("upstream")[TWO]
    assert held.covers(SUBSCRIPTION_2)
    assert held.covers(SUBSCRIPTION_3)
    assert held.comparisons <= 2
    many = " or ".join(f"x{i} = 1" for i in range(9))
    router.tell(Filtered("upstream", Filter(many)), TWO)
    assert router.table["router 2"] == "true"


# --- for `tests/conformance/test_multicast_mutants.py` ------------------------------------------

FINDING: tuple[Callable[[], None], ...] = (
    test_a_filter_expires_for_its_own_publisher_and_child_alone,
    test_an_expired_filter_gives_the_child_everything,
    test_suppression_silences_unwanted_events_for_half_the_filter_timeout,
    test_suppression_is_of_one_publisher,
    test_a_filter_that_comes_again_begins_its_time_anew,
    test_a_silent_publisher_is_forgotten_and_the_parent_told,
    test_a_flood_of_filters_takes_the_room_of_one,
)
