"""Mistakes planted in the cores: the suite must find each. A suite that finds none has proved nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.model.filter import Filter
from catchment.model.monitor import Monitor
from catchment.routing.baselines.centralized import CentralizedCore, Registry
from catchment.routing.messages import ClientUp, Forward, LinkDown, Neighbor, Routed, Send
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.newest import Newest
from catchment.routing.siena import gateway, hop_by_hop
from catchment.routing.siena.advertising import OfferingCore
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.routing.siena.merging import Merged, Merging, MergingCore
from catchment.routing.siena.messages import Interest, Part
from tests.conformance.planted import Plant, assert_found

SEEDS = range(12)


def covered_filter_not_announced_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forwarding, "_uncover", lambda self, filter, neighbor: None)


def wrong_covering_direction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Forwarding,
        "_has_eligible_above",
        lambda self, filter, neighbor: any(
            narrower != filter and self._eligible(narrower, neighbor) for narrower in self.poset.covered(filter)
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
    on_message = HopByHopCore.on_message

    def deaf(self: Any, message: Any, source: Any, now: int) -> Any:
        return [] if isinstance(message, LinkDown) else on_message(self, message, source, now)

    patch.setattr(HopByHopCore, "on_message", deaf)


def withdrawals_are_ignored(patch: pytest.MonkeyPatch) -> None:
    on_interest = HopByHopCore._on_interest

    def deaf(self: Any, message: Interest, source: Neighbor, now: int) -> Any:
        return on_interest(self, Interest((), message.announced), source, now)

    patch.setattr(HopByHopCore, "_on_interest", deaf)


def delivered_again_after_roaming(patch: pytest.MonkeyPatch) -> None:
    client_up = ClientSide.client_up
    patch.setattr(
        ClientSide, "client_up", lambda self, client, message: client_up(self, client, ClientUp(message.identity))
    )


def sent_back_where_it_came_from(patch: pytest.MonkeyPatch) -> None:
    on_notifications = HopByHopCore.on_notifications

    def echoing(self: Any, batch: Sequence[Routed], source: Any, now: int) -> Any:
        actions = on_notifications(self, batch, source, now)
        return [*actions, Forward(source, tuple(batch))] if isinstance(source, Neighbor) else actions

    patch.setattr(HopByHopCore, "on_notifications", echoing)


def one_copy_for_each_subscription(patch: pytest.MonkeyPatch) -> None:
    due = ClientSide.due

    def several(self: Any, batch: Any, now: int) -> Any:
        actions = due(self, batch, now)
        return [copy for action in actions for copy in [action] * len(getattr(action, "subscriptions", "x"))]

    patch.setattr(ClientSide, "due", several)


def only_the_first_subscription_is_named(patch: pytest.MonkeyPatch) -> None:
    interested = ClientSide._interested

    def naming_one(self: ClientSide, numbers: Any) -> Any:
        return tuple((identity, ids[:1], steps) for identity, ids, steps in interested(self, numbers))

    patch.setattr(ClientSide, "_interested", naming_one)


def resumed_in_reverse(patch: pytest.MonkeyPatch) -> None:
    resumed = ClientSide._resumed
    patch.setattr(ClientSide, "_resumed", lambda self, identity: resumed(self, identity)[::-1])


def cancelled_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientInterest, "_restate", lambda self, identity, gone: None)


def narrower_ones_are_lost_with_the_wider(patch: pytest.MonkeyPatch) -> None:
    def losing(self: Any, identity: str, gone: Sequence[Filter]) -> None:
        for filter in gone:
            self._interest.unsubscribe(identity, filter)

    patch.setattr(ClientInterest, "_restate", losing)


def a_client_that_leaves_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientInterest, "client_down", lambda self, client: self._clients.client_down(client))


def the_master_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HierarchicalCore, "_always_to", lambda self, source: ())


def a_new_offer_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forwarding, "recompute", lambda self, neighbor: None)


def offers_must_cover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OfferingCore, "_may_tell", lambda self, filter, neighbor: False)


def what_was_said_before_a_crash_stands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GeneralCore, "_after", lambda self, seq, now: seq + 1)
    patch.setattr(GeneralCore, "_outbid", lambda self, message, now: [])


def everybody_is_below(patch: pytest.MonkeyPatch) -> None:
    """Notifications to all neighbors, and no memory of what was there: they go round."""
    patch.setattr(GeneralCore, "_hops_from", lambda self, origin: {each.name: each.name for each in self.links.costs})
    patch.setattr(Newest, "is_new", lambda self, notification: True)


def records_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    flooded = GeneralCore._flooded
    patch.setattr(
        GeneralCore, "_flooded", lambda self, message, source=None: flooded(self, message) if source is None else []
    )


def what_crosses_keeps_its_origin(patch: pytest.MonkeyPatch) -> None:
    def further(routed: Routed, links: int) -> Routed:
        return Routed(routed.notification, replace(routed.header, hops=routed.header.hops + links))

    patch.setattr(gateway, "_crossing", lambda routed: further(routed, -1))
    patch.setattr(hop_by_hop, "onward", lambda routed: further(routed, 1))


def links_inside_a_gateway_are_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway, "_crossing", lambda routed: routed)


def links_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hop_by_hop, "onward", lambda routed: routed)


def a_gateway_below_a_master_does_not_ask_for_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway, "EVERYTHING", Filter("x > 5 and x < 3"))


def the_root_of_a_hierarchy_keeps_what_comes_up(patch: pytest.MonkeyPatch) -> None:
    port = gateway._port

    def without_master(name: str, membership: Any) -> Any:
        core = port(name, membership)
        if isinstance(core, HierarchicalCore) and core.master == gateway.HUB:
            core.master = None
        return core

    patch.setattr(gateway, "_port", without_master)


def changes_in_a_general_unit_stay_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gateway.GeneralPort, "_change", GeneralCore._change)


def brokers_lost_from_a_general_unit_are_still_asked_for(patch: pytest.MonkeyPatch) -> None:
    from_neighbor = gateway.GeneralPort._from_neighbor

    def careless(self: Any, message: Any, source: Neighbor, now: int) -> Any:
        is_down = isinstance(message, LinkDown)
        return (GeneralCore._from_neighbor if is_down else from_neighbor)(self, message, source, now)

    patch.setattr(gateway.GeneralPort, "_from_neighbor", careless)


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
            here.setattr(self._poset, "covered", lambda filter: ())
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


def what_was_not_advertised_is_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OfferingCore, "_is_advertised", lambda self, routed: True)


def nothing_waits_for_who_is_suspended(patch: pytest.MonkeyPatch) -> None:
    resumed = ClientSide._resumed
    patch.setattr(ClientSide, "_resumed", lambda self, identity: resumed(self, identity)[1:])


def who_is_suspended_gets_things(patch: pytest.MonkeyPatch) -> None:
    request = ClientSide.request

    def deaf(self: ClientSide, message: Any, client: Any) -> Any:
        return [] if type(message).__name__ == "Suspend" else request(self, message, client)

    patch.setattr(ClientSide, "request", deaf)


def sequences_take_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Monitor, "_unexpired", lambda self, key, match: self._waiting.get(key, ()))


def sequences_mix_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Monitor, "_key", lambda self, notification: ())


def a_port_still_matches_what_its_hub_has_withdrawn(patch: pytest.MonkeyPatch) -> None:
    hub_wants = gateway.GeneralPort._hub_wants

    def keeping(self: Any, message: Interest) -> None:
        with pytest.MonkeyPatch.context() as here:
            here.setattr(self.remote, "remove", lambda broker, filter: None)
            hub_wants(self, message)

    patch.setattr(gateway.GeneralPort, "_hub_wants", keeping)


def a_core_raises(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HopByHopCore, "_disconnect", lambda self, neighbor: self.missing)


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
    ("siena hybrid", links_inside_a_gateway_are_counted),
    ("siena hybrid", a_gateway_below_a_master_does_not_ask_for_everything),
    ("siena hybrid", the_root_of_a_hierarchy_keeps_what_comes_up),
    ("siena hybrid", changes_in_a_general_unit_stay_there),
    ("siena hybrid", brokers_lost_from_a_general_unit_are_still_asked_for),
    ("siena hybrid", units_are_not_told_of_one_another),
    ("siena hybrid advertising", a_new_offer_changes_nothing),
    ("siena hybrid", a_port_still_matches_what_its_hub_has_withdrawn),
    ("siena merging hierarchical", the_master_is_not_told),
    ("siena advertising", what_was_not_advertised_is_sent),
    ("siena delegating", what_was_not_advertised_is_sent),
    ("flooding", nothing_waits_for_who_is_suspended),
    ("flooding", who_is_suspended_gets_things),
    ("flooding", sequences_take_any_time),
    ("flooding", sequences_mix_keys),
    ("siena acyclic", a_core_raises),
    ("siena acyclic", links_are_not_counted),
    ("centralized", nothing_is_registered_anew),
    ("centralized", the_center_forgets_no_subscription),
    ("centralized", copies_stay_at_the_center),
]


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=[f"{entry}-{plant.__name__}" for entry, plant in MUTANTS])
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)
