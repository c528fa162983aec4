"""Mistakes planted in filter propagation, DVMRP, perfect filtering and distance vectors: the suite must find each.

A mistake that only lets too much through for too long is right by all that the suite knows; such are found by
`tests/unit/test_propagation.py`, whose tests run here with each of these planted (`FOUND_BY_A_TEST`)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.model.filter import Filter
from catchment.routing.baselines.dvmrp import DvmrpCore
from catchment.routing.baselines.messages import Graft, Prune
from catchment.routing.baselines.perfect import PerfectCore, World
from catchment.routing.messages import Action, Forward, Neighbor, Routed, Send
from catchment.routing.parts.distance_vectors import DistanceVectors, RouteChange
from catchment.routing.parts.newest import Newest
from catchment.routing.propagation.composite import Composer, is_everything
from catchment.routing.propagation.core import PropagationCore
from catchment.routing.propagation.tree import Told, TreeFilters
from tests.conformance.planted import Plant, assert_found
from tests.unit import test_propagation as unit

SEEDS = range(12)


# --- filter propagation -------------------------------------------------------------------------


def a_wider_filter_is_lost_while_another_child_is_open(patch: pytest.MonkeyPatch) -> None:
    """As the text has it (§3.3.2)."""
    on_filter = PropagationCore._on_filter

    def textual(self: Any, publisher: str, wanted: Filter, child: Neighbor, now: int) -> Any:
        actions = on_filter(self, publisher, wanted, child, now)
        parents = self.trees.upstream(publisher)
        is_open = publisher in self._filters and any(self._open_below(publisher, parent) for parent in parents)
        is_gap = not is_everything(wanted) and is_open
        return [action for action in actions if not (is_gap and isinstance(action, Send))]

    patch.setattr(PropagationCore, "_on_filter", textual)


def suppression_delays_widening(patch: pytest.MonkeyPatch) -> None:
    say = PropagationCore._say

    def suppressed(self: Any, publisher: str, parent: Neighbor, now: int) -> Any:
        is_silent = now < self._filters[publisher].told_to(parent).silent_until
        return [] if is_silent else say(self, publisher, parent, now)

    patch.setattr(PropagationCore, "_say", suppressed)


def self_is_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "own_filters", lambda self: ())


def changed_subscriptions_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_own_changed", lambda self, now: [])


def true_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_withdraw", lambda self, publisher, parent: [])


def what_the_parent_before_was_told_counts(patch: pytest.MonkeyPatch) -> None:
    """Whoever is upstream now is taken to hold what the one before held."""
    told_to = TreeFilters.told_to

    def same(self: Any, neighbor: Neighbor) -> Any:
        return told_to(self, Neighbor("whoever it is"))

    patch.setattr(TreeFilters, "told_to", same)
    patch.setattr(TreeFilters, "is_told", lambda self, neighbor: same(self, neighbor).sent is not None)


def a_new_child_is_not_told_upstream(patch: pytest.MonkeyPatch) -> None:
    follow = PropagationCore._follow

    def deaf(self: Any, change: RouteChange, now: int) -> Any:
        return follow(self, RouteChange(change.parents, set(), change.lost), now)

    patch.setattr(PropagationCore, "_follow", deaf)


def the_filter_of_a_lost_child_is_kept(patch: pytest.MonkeyPatch) -> None:
    follow = PropagationCore._follow

    def keeping(self: Any, change: RouteChange, now: int) -> Any:
        return follow(self, RouteChange(change.parents, change.gained, set()), now)

    patch.setattr(PropagationCore, "_follow", keeping)


def the_first_filter_of_a_child_stays(patch: pytest.MonkeyPatch) -> None:
    close = TreeFilters.close

    def once(self: Any, child: Neighbor, filter: Filter) -> None:
        if self.is_open(child):
            close(self, child, filter)

    patch.setattr(TreeFilters, "close", once)


def an_approximation_is_narrower(patch: pytest.MonkeyPatch) -> None:
    within_budget = Composer.within_budget

    def narrow(self: Composer, filter: Filter) -> Filter:
        wider = within_budget(self, filter)
        return filter if wider is filter else Filter("place = 'north' and level > 6")

    patch.setattr(Composer, "within_budget", narrow)


def nobody_sends_filters_for_what_is_unwanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_on_unwanted", lambda self, publisher, parent, now: [])


def a_publisher_is_forgotten_and_its_parent_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_forget", lambda self, publisher: self._filters.pop(publisher) and [])


def filters_are_taken_from_anybody_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Notifications come from any neighbor, and nobody remembers what was there."""
    patch.setattr(PropagationCore, "_is_due", lambda self, header, source: header.hops < 12)
    patch.setattr(Newest, "is_new", lambda self, notification: True)


# --- distance vectors ---------------------------------------------------------------------------


def all_neighbors_are_children(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DistanceVectors, "children", lambda self, origin: tuple(sorted(self._heard)))


def nothing_is_poisoned(patch: pytest.MonkeyPatch) -> None:
    number_for = DistanceVectors._number_for
    patch.setattr(
        DistanceVectors, "_number_for", lambda self, origin, neighbor: number_for(self, origin, Neighbor("@"))
    )


def counting_goes_on_past_infinity(patch: pytest.MonkeyPatch) -> None:
    def best(self: Any, origin: str) -> Any:
        routes = [(said[origin] + 1, neighbor) for neighbor, said in self._heard.items() if origin in said]
        return min(routes, default=None)

    patch.setattr(DistanceVectors, "_best", best)


def a_link_that_fails_leaves_its_routes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DistanceVectors, "down", lambda self, neighbor: RouteChange())


def a_new_neighbor_is_told_nothing(patch: pytest.MonkeyPatch) -> None:
    def up(self: Any, neighbor: Neighbor) -> None:
        self._heard[neighbor], self._told[neighbor] = {}, {}
        self._touched.add(self.name)

    patch.setattr(DistanceVectors, "up", up)


# --- DVMRP --------------------------------------------------------------------------------------


def silenced(patch: pytest.MonkeyPatch, method: str, kind: type, when: Callable[[Any], bool]) -> None:
    """A method of DVMRP sends no message of a kind, if something is so of its core."""
    answer = getattr(DvmrpCore, method)

    def silent(self: Any, *given: Any) -> list[Action]:
        actions = answer(self, *given)
        return [each for each in actions if not (when(self) and isinstance(each, Send) and type(each.message) is kind)]

    patch.setattr(DvmrpCore, method, silent)


def a_first_subscriber_does_not_graft(patch: pytest.MonkeyPatch) -> None:
    silenced(patch, "_requested", Graft, lambda core: True)


def a_graft_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    silenced(patch, "_on_graft", Graft, lambda core: True)


def a_prune_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    silenced(patch, "_on_prune", Prune, lambda core: True)


def a_new_child_is_not_grafted(patch: pytest.MonkeyPatch) -> None:
    silenced(patch, "_follow", Graft, lambda core: True)


def own_subscribers_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    def is_idle(self: Any, publisher: str) -> bool:
        return bool(set(self.vectors.children(publisher)) <= self._pruning(publisher).children)

    patch.setattr(DvmrpCore, "_is_idle", is_idle)


def children_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DvmrpCore, "_is_idle", lambda self, publisher: not self.clients.subscriptions_count)


def a_prune_to_the_parent_before_counts(patch: pytest.MonkeyPatch) -> None:
    follow = DvmrpCore._follow
    patch.setattr(
        DvmrpCore, "_follow", lambda self, change: follow(self, RouteChange(set(), change.gained, change.lost))
    )


def a_lost_child_stays_pruned(patch: pytest.MonkeyPatch) -> None:
    follow = DvmrpCore._follow
    patch.setattr(
        DvmrpCore, "_follow", lambda self, change: follow(self, RouteChange(change.parents, change.gained, set()))
    )


def pruned_children_get_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DvmrpCore, "_on_prune", lambda self, publisher, child, now: [])


# --- perfect filtering --------------------------------------------------------------------------


def links_are_those_of_the_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "links_changed", lambda self: None)


def a_broker_that_is_back_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "enter", lambda self, core: self._cores.setdefault(core.name, core))


def only_the_first_broker_gets_it(patch: pytest.MonkeyPatch) -> None:
    receivers = World.receivers
    patch.setattr(World, "receivers", lambda self, notification, is_new: receivers(self, notification, is_new)[:1])


def everybody_gets_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "receivers", lambda self, notification, is_new: tuple(self._cores))


def links_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    on_notifications = PerfectCore.on_notifications

    def forgetful(self: Any, batch: Sequence[Routed], source: Any, now: int) -> Any:
        actions = on_notifications(self, batch, source, now)
        return [uncounted(action) if isinstance(action, Forward) else action for action in actions]

    def uncounted(forward: Forward) -> Forward:
        copies = [Routed(each.notification, replace(each.header, hops=1)) for each in forward.batch]
        return Forward(forward.interface, tuple(copies))

    patch.setattr(PerfectCore, "on_notifications", forgetful)


def patterns_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    def wants(self: Any, notification: Any) -> bool:
        return any(ids for _, ids, _ in self.clients.matcher.answers([notification])[0])

    patch.setattr(PerfectCore, "wants", wants)


def a_broker_sees_what_was_wanted_at_first(patch: pytest.MonkeyPatch) -> None:
    known: dict[tuple[int, str | None], Any] = {}
    receivers = World.receivers

    def stale(self: World, notification: Any, is_new: bool) -> Any:
        key = id(self), notification.source
        return known.setdefault(key, receivers(self, notification, is_new))

    patch.setattr(World, "receivers", stale)


def copies_go_back(patch: pytest.MonkeyPatch) -> None:
    on_notifications = PerfectCore.on_notifications

    def echoing(self: Any, batch: Sequence[Routed], source: Any, now: int) -> Any:
        actions = on_notifications(self, batch, source, now)
        return [*actions, Forward(source, tuple(batch))] if isinstance(source, Neighbor) else actions

    patch.setattr(PerfectCore, "on_notifications", echoing)
    patch.setattr(Newest, "is_new", lambda self, notification: True)


MUTANTS: list[tuple[str, Plant]] = [
    ("propagation with timeouts", a_wider_filter_is_lost_while_another_child_is_open),
    ("propagation with timeouts", suppression_delays_widening),
    ("propagation", self_is_left_out),
    ("propagation", changed_subscriptions_are_not_told),
    ("propagation", true_is_not_passed_on),
    ("propagation", what_the_parent_before_was_told_counts),
    ("propagation", a_new_child_is_not_told_upstream),
    ("propagation", the_filter_of_a_lost_child_is_kept),
    ("propagation", the_first_filter_of_a_child_stays),
    ("propagation within a budget", an_approximation_is_narrower),
    ("propagation", nobody_sends_filters_for_what_is_unwanted),
    ("propagation", filters_are_taken_from_anybody_for_ever),
    ("propagation", all_neighbors_are_children),
    ("propagation", nothing_is_poisoned),
    ("propagation", counting_goes_on_past_infinity),
    ("propagation", a_link_that_fails_leaves_its_routes),
    ("dvmrp", a_new_neighbor_is_told_nothing),
    ("dvmrp", a_first_subscriber_does_not_graft),
    ("dvmrp", a_graft_is_not_passed_on),
    ("dvmrp", a_prune_is_not_passed_on),
    ("dvmrp", a_new_child_is_not_grafted),
    ("dvmrp", own_subscribers_are_overlooked),
    ("dvmrp", children_are_overlooked),
    ("dvmrp", a_prune_to_the_parent_before_counts),
    ("dvmrp", a_lost_child_stays_pruned),
    ("dvmrp", pruned_children_get_everything),
    ("perfect", links_are_those_of_the_beginning),
    ("perfect", a_broker_that_is_back_is_not_seen),
    ("perfect", only_the_first_broker_gets_it),
    ("perfect", everybody_gets_it),
    ("perfect", links_are_not_counted),
    ("perfect", patterns_are_not_seen),
    ("perfect", a_broker_sees_what_was_wanted_at_first),
    ("perfect", copies_go_back),
]


# --- what lets too much through for too long ----------------------------------------------------


def a_timer_opens_another_child(patch: pytest.MonkeyPatch) -> None:
    watch = PropagationCore._watch_filter

    def wrong(self: Any, publisher: str, child: Neighbor, now: int) -> Any:
        others = [other for other in self.vectors.children(publisher) if other != child]
        return watch(self, publisher, others[0] if others else child, now)

    patch.setattr(PropagationCore, "_watch_filter", wrong)


def a_timer_is_of_a_child_in_all_trees(patch: pytest.MonkeyPatch) -> None:
    opening = TreeFilters.open

    def expiring(self: Any, publisher: str, child: Neighbor, now: int) -> Any:
        def expire(now: int) -> list[Action]:
            for tree in self._filters.values():
                opening(tree, child)
            return []

        return self._set_timer(f"filter {child}", now + self._filter_timeout, expire)

    patch.setattr(PropagationCore, "_watch_filter", expiring)


def an_expired_filter_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_watch_filter", lambda self, publisher, child, now: [])


def a_timer_is_not_begun_anew(patch: pytest.MonkeyPatch) -> None:
    set_timer = PropagationCore._set_timer

    def once(self: Any, name: str, at: int, act: Any) -> Any:
        return [] if name in self._timers else set_timer(self, name, at, act)

    patch.setattr(PropagationCore, "_set_timer", once)


def nothing_is_suppressed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Told, "silent_until", property(lambda self: 0, lambda self, time: None), raising=False)


def suppression_is_of_all_publishers(patch: pytest.MonkeyPatch) -> None:
    last = [0]
    patch.setattr(
        Told,
        "silent_until",
        property(lambda self: last[0], lambda self, time: last.__setitem__(0, max(time, last[0]))),
        raising=False,
    )


def publishers_are_remembered_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_watch_publisher", lambda self, publisher, at: [])


def an_event_does_not_keep_a_publisher(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TreeFilters, "heard_at", property(lambda self: 0, lambda self, time: None), raising=False)


FOUND_BY_A_TEST: list[Plant] = [
    a_timer_opens_another_child,
    a_timer_is_of_a_child_in_all_trees,
    an_expired_filter_stays,
    a_timer_is_not_begun_anew,
    nothing_is_suppressed,
    suppression_is_of_all_publishers,
    publishers_are_remembered_for_ever,
    a_publisher_is_forgotten_and_its_parent_not_told,
    an_event_does_not_keep_a_publisher,
]


@pytest.mark.parametrize("plant", FOUND_BY_A_TEST, ids=lambda plant: plant.__name__)
def test_is_found_by_a_test(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    for test in unit.FINDING:
        test()
    plant(monkeypatch)
    for test in unit.FINDING:
        try:
            test()
        except AssertionError:
            return
    pytest.fail(f"{plant.__name__} was not found by {len(unit.FINDING)} tests")


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=[plant.__name__ for _, plant in MUTANTS])
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)
