"""Mistakes planted in the cores: the suite must find each. A suite that finds none has proved nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from catchment.routing.siena.base import SienaCore

from catchment.model.filter import Filter
from catchment.routing.baselines import CentralizedCore, Registry
from catchment.routing.messages import ClientUp, Forward, LinkDown, Neighbor, Routed, Send
from catchment.routing.parts.clients import Sessions
from catchment.routing.parts.newest import Newest
from catchment.routing.siena import gateway
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import Merged, Merging, MergingCore
from catchment.routing.siena.messages import Interest, Part
from catchment.sim.conformance.entries import CORES, Run
from catchment.sim.conformance.runs import outcome_of

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = range(12)


def covered_filter_not_announced_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forwarding, "_uncover", lambda self, filter, neighbor: None)


def wrong_covering_direction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Forwarding,
        "_has_eligible_above",
        lambda self, filter, neighbor: any(
            one != filter and self._eligible(one, neighbor) for one in self.poset.covered(filter)
        ),
    )


def told_is_kept_when_a_link_comes_up(patch: pytest.MonkeyPatch) -> None:
    connect, disconnect = Forwarding.connect, Forwarding.disconnect
    remembered: dict[tuple[int, Neighbor], Any] = {}

    def stale(self: Any, neighbor: Neighbor) -> None:
        connect(self, neighbor)
        self._told[neighbor].update(remembered.get((id(self), neighbor), {}))

    def remembering(self: Any, neighbor: Neighbor) -> Any:
        if neighbor in self._told:
            remembered[id(self), neighbor] = dict(self._told[neighbor])
        return disconnect(self, neighbor)

    patch.setattr(Forwarding, "connect", stale)
    patch.setattr(Forwarding, "disconnect", remembering)


def interest_is_kept_when_a_link_goes_down(patch: pytest.MonkeyPatch) -> None:
    on_message = SienaCore.on_message

    def deaf(self: Any, message: Any, source: Any, now: int) -> Any:
        return [] if isinstance(message, LinkDown) else on_message(self, message, source, now)

    patch.setattr(SienaCore, "on_message", deaf)


def withdrawals_are_ignored(patch: pytest.MonkeyPatch) -> None:
    on_neighbor = SienaCore._on_neighbor

    def deaf(self: Any, message: Any, source: Neighbor) -> Any:
        if isinstance(message, Interest):
            message = Interest((), message.announced)
        return on_neighbor(self, message, source)

    patch.setattr(SienaCore, "_on_neighbor", deaf)


def delivered_again_after_roaming(patch: pytest.MonkeyPatch) -> None:
    client_up = Sessions.client_up
    patch.setattr(
        Sessions, "client_up", lambda self, client, message: client_up(self, client, ClientUp(message.identity))
    )


def sent_back_where_it_came_from(patch: pytest.MonkeyPatch) -> None:
    on_notifications = SienaCore.on_notifications

    def echoing(self: Any, batch: Sequence[Routed], source: Any, now: int) -> Any:
        found = on_notifications(self, batch, source, now)
        return [*found, Forward(source, tuple(batch))] if isinstance(source, Neighbor) else found

    patch.setattr(SienaCore, "on_notifications", echoing)


def one_copy_for_each_subscription(patch: pytest.MonkeyPatch) -> None:
    due = Sessions.due

    def several(self: Any, batch: Any, now: int) -> Any:
        return [copy for one in due(self, batch, now) for copy in [one] * len(getattr(one, "subscriptions", "x"))]

    patch.setattr(Sessions, "due", several)


def only_the_first_subscription_is_named(patch: pytest.MonkeyPatch) -> None:
    found = Sessions._interested

    def naming_one(self: Sessions, numbers: Any) -> Any:
        return tuple((session, ids[:1], steps) for session, ids, steps in found(self, numbers))

    patch.setattr(Sessions, "_interested", naming_one)


def resumed_in_reverse(patch: pytest.MonkeyPatch) -> None:
    resumed = Sessions._resumed
    patch.setattr(Sessions, "_resumed", lambda self, session: resumed(self, session)[::-1])


def cancelled_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SienaCore, "_restate", lambda self, identity, before: None)


def narrower_ones_are_lost_with_the_wider(patch: pytest.MonkeyPatch) -> None:
    def losing(self: Any, identity: str, before: Any) -> None:
        wanted = set(self.sessions.filters_of(identity))
        for one in before:
            if one not in wanted:
                self._unsubscribe(identity, one)

    patch.setattr(SienaCore, "_restate", losing)


def a_client_that_leaves_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SienaCore, "_forgotten", lambda self, identity: None)


def the_master_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HierarchicalCore, "_always_to", lambda self, source: ())


def a_new_offer_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forwarding, "recompute", lambda self, neighbor: None)


def offers_must_cover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AdvertisingCore, "_may_tell", lambda self, filter, neighbor: False)


def what_was_said_before_a_crash_stands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GeneralCore, "_after", lambda self, seq: seq + 1)
    patch.setattr(GeneralCore, "_outbid", lambda self, message: [])


def everybody_is_below(patch: pytest.MonkeyPatch) -> None:
    """Notifications to all neighbors, and no memory of what was there: they go round."""
    patch.setattr(GeneralCore, "_hops_from", lambda self, origin: {one.name: one.name for one in self._links.costs})
    patch.setattr(Newest, "is_new", lambda self, notification: True)


def records_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    flooded = GeneralCore._flooded
    patch.setattr(
        GeneralCore, "_flooded", lambda self, message, source=None: flooded(self, message) if source is None else []
    )


def what_crosses_keeps_its_origin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway, "_crossing", lambda routed: routed)


def a_gateway_below_a_master_does_not_ask_for_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway, "EVERYTHING", Filter("x > 5 and x < 3"))


def the_root_of_a_hierarchy_keeps_what_comes_up(patch: pytest.MonkeyPatch) -> None:
    port = gateway._port

    def without_master(name: str, membership: Any) -> Any:
        found = port(name, membership)
        if isinstance(found, HierarchicalCore) and found.master == gateway.HUB:
            found.master = None
        return found

    patch.setattr(gateway, "_port", without_master)


def changes_in_a_general_unit_stay_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway.GeneralPort, "_replace", GeneralCore._replace)


def brokers_lost_from_a_general_unit_are_still_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway.GeneralPort, "_on_link_down", GeneralCore._on_link_down)


def units_are_not_told_of_one_another(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway.Hub, "_may_tell", lambda self, filter, neighbor: False)


def nothing_is_registered_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CentralizedCore, "_register_all", lambda self: [])


def the_center_forgets_no_subscription(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registry, "_cancel", lambda self, origin, identity, id: None)


def copies_stay_at_the_center(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CentralizedCore, "_down", lambda self, broker: None)


def what_was_merged_with_it_goes_too(patch: pytest.MonkeyPatch) -> None:
    """The others of a group are not announced anew when one is withdrawn."""
    dissolved = Merged._dissolved

    def losing(self: Any, group: Any) -> Any:
        dissolved(self, group)
        return {}

    patch.setattr(Merged, "_dissolved", losing)


def merged_filters_cover_others(patch: pytest.MonkeyPatch) -> None:
    """What a merged filter covers is said still: the neighbor forgets it, and does not have it when that is gone."""
    enter = Merged._enter

    def leaving(self: Any, filter: Any, before: Any, entered: Any) -> None:
        with pytest.MonkeyPatch.context() as here:
            here.setattr(self._poset, "covered", lambda one: ())
            enter(self, filter, before, entered)

    patch.setattr(Merged, "_enter", leaving)


def a_batch_is_never_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MergingCore, "_say", lambda self, neighbor: [])


def merging_knows_no_budget(patch: pytest.MonkeyPatch) -> None:
    """What is said lets through more than is wanted."""
    patch.setattr(Merging, "join", lambda self, *groups: Filter.everything())


def withdrawn_patterns_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelegatingCore, "_end", lambda self, pattern, source: [Send(source, Part(pattern, (), True))])


def a_part_is_delegated_though_it_comes_anyway(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelegatingCore, "_is_wanted", lambda self, filter, neighbor: False)


def what_a_client_here_offers_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelegatingCore, "_is_offered_here", lambda self, filter: False)


MUTANTS: list[tuple[str, Plant]] = [
    ("siena acyclic", covered_filter_not_announced_again),
    ("siena acyclic", wrong_covering_direction),
    ("siena acyclic", told_is_kept_when_a_link_comes_up),
    ("siena acyclic", interest_is_kept_when_a_link_goes_down),
    ("siena acyclic", withdrawals_are_ignored),
    ("siena acyclic", delivered_again_after_roaming),
    ("siena acyclic", sent_back_where_it_came_from),
    ("siena acyclic", one_copy_for_each_subscription),
    ("siena acyclic", only_the_first_subscription_is_named),
    ("siena acyclic", resumed_in_reverse),
    ("siena acyclic", cancelled_is_kept),
    ("siena acyclic", narrower_ones_are_lost_with_the_wider),
    ("siena acyclic", a_client_that_leaves_is_remembered),
    ("siena hierarchical", the_master_is_not_told),
    ("siena advertising", a_new_offer_changes_nothing),
    ("siena advertising", offers_must_cover),
    ("siena merging", what_was_merged_with_it_goes_too),
    ("siena merging imperfect", merged_filters_cover_others),
    ("siena merging", a_batch_is_never_said),
    ("siena merging", merging_knows_no_budget),
    ("siena delegating", withdrawn_patterns_are_kept),
    ("siena delegating", a_part_is_delegated_though_it_comes_anyway),
    ("siena delegating", what_a_client_here_offers_is_overlooked),
    ("siena general", what_was_said_before_a_crash_stands),
    ("siena general", everybody_is_below),
    ("siena general", records_are_not_passed_on),
    ("siena hybrid", what_crosses_keeps_its_origin),
    ("siena hybrid", a_gateway_below_a_master_does_not_ask_for_everything),
    ("siena hybrid", the_root_of_a_hierarchy_keeps_what_comes_up),
    ("siena hybrid", changes_in_a_general_unit_stay_there),
    ("siena hybrid", brokers_lost_from_a_general_unit_are_still_asked_for),
    ("siena hybrid", units_are_not_told_of_one_another),
    ("siena hybrid advertising", a_new_offer_changes_nothing),
    ("centralized", nothing_is_registered_anew),
    ("centralized", the_center_forgets_no_subscription),
    ("centralized", copies_stay_at_the_center),
]


@pytest.mark.parametrize(("core", "plant"), MUTANTS, ids=[f"{core}-{plant.__name__}" for core, plant in MUTANTS])
def test_is_found(core: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    for seed in SEEDS:
        for network in CORES[core].networks:
            if outcome_of(Run(core, network, seed), shrink=False).violation is not None:
                return
    pytest.fail(f"{plant.__name__} was not found in {len(SEEDS) * len(CORES[core].networks)} runs")
