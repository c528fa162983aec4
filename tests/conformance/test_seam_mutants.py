"""Mistakes planted around the cores: in the node, in what brokers say and write on notifications, in what a core says
of itself, in timers, and in the suite. The live broker drives the same node and speaks the same words as the simulator:
a simulated run must find each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from catchment.errors import BadIdError, LimitError
from catchment.node import Node, access
from catchment.node.access import Access
from catchment.routing.baselines.centralized import Registry
from catchment.routing.core import Inspection, KnownBroker, Table
from catchment.routing.messages import Action, Forward, Header, Neighbor, Routed, Send, SetTimer, Suspend
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.link_states import Links, LinkStates
from catchment.routing.parts.remote import RemoteFilters
from catchment.routing.siena import hop_by_hop, merging
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.gateway import HybridCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.routing.siena.messages import OriginHeader
from catchment.routing.systems import SYSTEMS
from catchment.sim.conformance.entries import ENTRIES
from catchment.sim.conformance.ideals.tables import Checked, Ideal
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line
from tests.conformance.planted import Plant, assert_found

SEEDS = range(8)


# --- the node -----------------------------------------------------------------------------------


def names_have_any_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(access, "IDENTITY_CODEPOINTS_MAX", 1_000_000)


def an_identity_may_be_mapped_to_nobody(patch: pytest.MonkeyPatch) -> None:
    check = Access.check_request

    def lenient(self: Access, *given: Any) -> None:
        try:
            check(self, *given)
        except BadIdError:
            return

    patch.setattr(Access, "check_request", lenient)


def requests_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "check_request", lambda self, client, request: None)


def a_loss_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_lose", lambda self, state, identity: None)


def a_loss_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "caught_up", lambda self, client: None)


def a_loss_is_told_twice(patch: pytest.MonkeyPatch) -> None:
    def repeating(self: Node, state: Any, identity: str) -> None:
        for _ in range(2):
            state.outlet.tell_lost(identity, state.lost[identity])
        del state.lost[identity]

    patch.setattr(Node, "_tell_lost", repeating)


def who_is_behind_gets_things(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_is_lost", lambda self, state, identity: False)


def a_link_is_not_told_that_it_is_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "link_up", lambda self, neighbor, cost, outlet: None)


def refusals_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_taken", lambda self, *given, taken=Node._taken: taken(self, *given) and [])


# --- what brokers say ---------------------------------------------------------------------------


def the_messages_of_another_system(patch: pytest.MonkeyPatch) -> None:
    flushed = HopByHopCore._flushed

    def chatting(self: Any, now: int) -> list[Action]:
        more = [Send(neighbor, Links(self.name, now, ())) for neighbor in self.interest.neighbors]
        return [*flushed(self, now), *more]

    patch.setattr(HopByHopCore, "_flushed", chatting)


def the_header_of_another_system(patch: pytest.MonkeyPatch) -> None:
    def onward(routed: Routed) -> Routed:
        return Routed(routed.notification, OriginHeader(routed.header.hops + 1, "somewhere"))

    patch.setattr(hop_by_hop, "onward", onward)


def a_header_without_its_origin(patch: pytest.MonkeyPatch) -> None:
    def unmarked(self: GeneralCore, batch: Any, source: Any, now: int) -> list[Action]:
        actions = on_notifications(self, batch, source, now)
        return [_unmarked(action) if isinstance(action, Forward) else action for action in actions]

    on_notifications = GeneralCore.on_notifications
    patch.setattr(GeneralCore, "on_notifications", unmarked)


def _unmarked(action: Forward) -> Forward:
    batch = [Routed(routed.notification, Header(routed.header.hops)) for routed in action.batch]
    return Forward(action.interface, tuple(batch))


def every_broker_writes_itself_as_the_origin(patch: pytest.MonkeyPatch) -> None:
    """All that is wanted still arrives, and more."""
    patch.setattr(GeneralCore, "_onward", lambda self, header: OriginHeader(header.hops + 1, self.name))


def a_unit_writes_its_own_header(patch: pytest.MonkeyPatch) -> None:
    """In a hybrid network there is one header, whatever the kind of a unit."""
    patch.setattr(HybridCore, "_outward", lambda self, routed: routed)


# --- what a core says of itself -----------------------------------------------------------------


def _lying(patch: pytest.MonkeyPatch, holder: Any) -> None:
    tables = holder.tables

    def lying(self: Any) -> list[Table]:
        return [Table(table.holder, table.filters, table.bytes + 1) for table in tables(self)]

    patch.setattr(holder, "tables", lying)


def bytes_of_other_brokers_are_wrong(patch: pytest.MonkeyPatch) -> None:
    _lying(patch, RemoteFilters)


def bytes_of_registrations_are_wrong(patch: pytest.MonkeyPatch) -> None:
    _lying(patch, Registry)


def bytes_of_clients_are_wrong(patch: pytest.MonkeyPatch) -> None:
    _lying(patch, ClientSide)


def no_table_of_other_brokers_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteFilters, "tables", lambda self: [])


def a_table_of_nobody_is_told(patch: pytest.MonkeyPatch) -> None:
    inspect = HopByHopCore.inspect

    def more(self: Any) -> Inspection:
        inspection = inspect(self)
        return Inspection((*inspection.tables, Table("nobody", 1, 1)), inspection.work)

    patch.setattr(HopByHopCore, "inspect", more)


def gateways_tell_of_their_hubs(patch: pytest.MonkeyPatch) -> None:
    def inspect(self: HybridCore) -> Inspection:
        return Inspection(tuple(table for part in self._parts for table in part.inspect().tables))

    patch.setattr(HybridCore, "inspect", inspect)


def brokers_that_are_gone_are_said_to_be_reached(patch: pytest.MonkeyPatch) -> None:
    known_brokers = LinkStates.known_brokers

    def all_reached(self: LinkStates) -> tuple[KnownBroker, ...]:
        return tuple(KnownBroker(known.name, True, known.links) for known in known_brokers(self))

    patch.setattr(LinkStates, "known_brokers", all_reached)


def subscriptions_are_counted_wrongly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientSide, "subscriptions_count", property(lambda self: 3))


# --- timers -------------------------------------------------------------------------------------


def a_timer_is_idle_that_somebody_waits_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging, "SetTimer", partial(SetTimer, is_idle=True))


def an_idle_timer_is_not_idle(patch: pytest.MonkeyPatch) -> None:
    """A refresh, again and again, that keeps the network from rest."""
    on_message = AcyclicCore.on_message

    def refreshing(self: AcyclicCore, message: Any, source: Any, now: int) -> list[Action]:
        return [*on_message(self, message, source, now), SetTimer("refresh", now + 1_000, is_idle=False)]

    patch.setattr(AcyclicCore, "on_message", refreshing)


# --- the suite ----------------------------------------------------------------------------------


class _Unknown(AcyclicCore):
    """As good, but no ideal knows it."""


def a_core_that_no_ideal_knows(patch: pytest.MonkeyPatch) -> None:
    system = replace(SYSTEMS["siena acyclic"], make=lambda name, settings: _Unknown(name))
    patch.setitem(SYSTEMS, "siena acyclic", system)


def _entry_with(patch: pytest.MonkeyPatch, compare: Callable[[Simulation], Iterator[str | Checked]]) -> None:
    patch.setitem(ENTRIES, "siena acyclic", replace(ENTRIES["siena acyclic"], tables=Ideal(compare)))


def an_ideal_that_looks_at_nothing(patch: pytest.MonkeyPatch) -> None:
    _entry_with(patch, lambda simulation: iter(()))


def an_ideal_that_does_not_say_what_is_held(patch: pytest.MonkeyPatch) -> None:
    _entry_with(patch, lambda simulation: iter([Checked(broker, {}) for broker in simulation.cores]))


MUTANTS: list[tuple[Plant, Sequence[str]]] = [
    (names_have_any_length, ["flooding", "siena general"]),
    (an_identity_may_be_mapped_to_nobody, ["flooding", "siena general"]),
    (requests_are_not_checked, ["flooding"]),
    (a_loss_is_not_counted, ["flooding", "siena acyclic"]),
    (a_loss_is_not_told, ["flooding", "siena acyclic"]),
    (a_loss_is_told_twice, ["flooding"]),
    (who_is_behind_gets_things, ["flooding"]),
    (a_link_is_not_told_that_it_is_up, ["flooding"]),
    (refusals_are_not_answered, ["siena advertising"]),
    (the_messages_of_another_system, ["siena acyclic"]),
    (the_header_of_another_system, ["siena acyclic"]),
    (a_header_without_its_origin, ["siena general"]),
    (every_broker_writes_itself_as_the_origin, ["siena general"]),
    (a_unit_writes_its_own_header, ["siena hybrid"]),
    (
        bytes_of_other_brokers_are_wrong,
        ["siena acyclic", "siena advertising", "siena delegating", "siena merging", "siena general", "siena hybrid"],
    ),
    (bytes_of_registrations_are_wrong, ["centralized"]),
    (bytes_of_clients_are_wrong, ["flooding", "siena hybrid"]),
    (no_table_of_other_brokers_is_told, ["siena hierarchical", "siena delegating", "siena hybrid advertising"]),
    (a_table_of_nobody_is_told, ["siena merging advertising"]),
    (gateways_tell_of_their_hubs, ["siena hybrid"]),
    (brokers_that_are_gone_are_said_to_be_reached, ["siena general", "centralized"]),
    (subscriptions_are_counted_wrongly, ["flooding"]),
    (a_timer_is_idle_that_somebody_waits_for, ["siena merging"]),
    (an_idle_timer_is_not_idle, ["siena acyclic"]),
    (a_core_that_no_ideal_knows, ["siena acyclic"]),
    (an_ideal_that_looks_at_nothing, ["siena acyclic"]),
    (an_ideal_that_does_not_say_what_is_held, ["siena acyclic"]),
]
PLANTED = [(plant, entry) for plant, entries in MUTANTS for entry in entries]


@pytest.mark.parametrize(("plant", "entry"), PLANTED, ids=[f"{entry}-{plant.__name__}" for plant, entry in PLANTED])
def test_is_found(plant: Plant, entry: str, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)


def test_the_limit_on_identities_is_simulated():
    """Too many for a script."""
    simulation = Simulation(line(1), AcyclicCore)
    simulation.connect("alice", "0")
    # One is its own name.
    for number in range(access.CLIENT_IDENTITIES_MAX):
        simulation.ask("alice", Suspend(f"i{number}"))
    (refusal,) = simulation.clients["alice"].refused
    assert isinstance(refusal, LimitError)
    assert "CLIENT_IDENTITIES_MAX" in str(refusal)
    node = simulation.nodes["0"]
    assert node is not None
    assert node.totals.refused == 1
    assert Neighbor("0") not in node.links
