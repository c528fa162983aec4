"""A neighbor that breaks the protocol of content graphs loses its link with a reason. Nothing else is harmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph import inbox, router
from catchment.routing.content_graph import rendezvous as rendezvous_module
from catchment.routing.content_graph.messages import (
    Again,
    ContentHeader,
    GraphChange,
    GraphSetup,
    Named,
    NodesGiven,
    NodesRefused,
    NodesWanted,
    Numbers,
    Recover,
    Recovered,
    Resubscribed,
    Setup,
    SubscribeNodes,
    UnsubscribedAck,
    UnsubscribeNodes,
)
from catchment.routing.messages import Neighbor, Routed
from tests.unit.content_graph_network import Brokers

LEAGUE, TEAM = "league = 'AL'", "league = 'AL' and team = 'Boston'"


@pytest.fixture
def brokers() -> Brokers:
    """A is the rendezvous point, B is between it and C; C wants the league and the team."""
    brokers = Brokers("AB BC BD")
    brokers.subscribe("C", "f", LEAGUE)
    brokers.subscribe("C", "g", TEAM)
    return brokers


def is_well(brokers: Brokers) -> bool:
    """Whether all go on as before."""
    brokers.delivered.clear()
    brokers.publish("D", league="AL", team="Boston", n=1)
    brokers.run()
    return sorted(identity for identity, _, _ in brokers.delivered) == ["f", "g"]


def node_of(brokers: Brokers, filter: str) -> int:
    rendezvous = brokers.place("A").rendezvous
    assert rendezvous is not None
    node = rendezvous.preprocessor.find(Filter(filter))
    assert node is not None
    return node


FROM_ABOVE: dict[str, Callable[[Brokers], Any]] = {
    "set up node 7, which nobody asked for": lambda brokers: GraphSetup(
        **session_of(brokers), setups=(Setup(7, (), ()),)
    ),
    "acknowledged an unsubscription from node 7 that it was not sent": lambda brokers: UnsubscribedAck(
        **session_of(brokers), nodes=(7,)
    ),
    "the change leads from version 5": lambda brokers: change(brokers, 5, (), ()),
    "node 8 is there already, or a node beside it is not": lambda brokers: change(
        brokers, 0, (), (Named(8, Filter("x = 1"), (7,), ()),)
    ),
    "node 7 is to be removed, and is not there": lambda brokers: change(
        brokers, brokers.place("B").router.version, (7,), ()
    ),
}


def change(brokers: Brokers, after: int, removed: tuple[int, ...], added: tuple[Named, ...]) -> GraphChange:
    return GraphChange(**session_of(brokers), version=9, after=after, is_partial=False, removed=removed, added=added)


def session_of(brokers: Brokers) -> dict[str, Any]:
    return {"namespace": "default", "session": brokers.place("B").router.session}


@pytest.mark.parametrize("reason", FROM_ABOVE)
def test_a_router_above_that_errs_is_refused(brokers: Brokers, reason: str):
    brokers.tell("B", FROM_ABOVE[reason](brokers), Neighbor("A"))
    assert [(name, source) for name, source, _ in brokers.refused] == [("B", "A")]
    assert reason in brokers.refused[0][2]
    assert set(brokers.place("B").router.table.graph) == {node_of(brokers, LEAGUE), node_of(brokers, TEAM)}


def test_a_set_up_beside_an_unknown_node_or_in_a_circle_is_refused(brokers: Brokers):
    place = brokers.place("B")
    league, team = node_of(brokers, LEAGUE), node_of(brokers, TEAM)
    for setup, reason in (
        (Setup(team, (99,), ()), "beside node 99, which is not known here"),
        (Setup(league, (team,), ()), "both above and below another"),
        (Setup(league, (), (league,)), "both above and below another"),
    ):
        place.router.table.pending.add(setup.node)
        brokers.tell("B", GraphSetup(**session_of(brokers), setups=(setup,)), Neighbor("A"))
        assert reason in brokers.refused[-1][2]
        place.router.table.pending.clear()
    assert place.router.table.graph.children == {league: {team}, team: set()}
    assert is_well(brokers)


@pytest.mark.parametrize(
    "message",
    [
        GraphSetup("default", 1, (Setup(7, (), ()),)),
        UnsubscribedAck("default", 1, (7,)),
        NodesRefused("default", 1, (7,)),
        GraphChange("default", 1, 9, 0, False, (), ()),
    ],
)
def test_what_another_than_the_router_above_says_is_ignored(brokers: Brokers, message: Any):
    """It may have been above before the tree changed."""
    for source in ("C", "D"):
        brokers.tell("B", message, Neighbor(source))
    assert brokers.refused == []
    assert is_well(brokers)


@pytest.mark.parametrize(
    "message",
    [
        SubscribeNodes("default", 77, False, True, (1,)),
        UnsubscribeNodes("default", 77, (1,)),
        Resubscribed("default", 77, (1,)),
    ],
)
def test_a_session_that_was_not_begun_is_refused(brokers: Brokers, message: Any):
    brokers.tell("B", message, Neighbor("C"))
    assert "speaks of session 77, which it has not begun" in brokers.refused[0][2]
    assert is_well(brokers)


def test_labels_for_unknown_nodes_are_refused(brokers: Brokers):
    header = ContentHeader(1, "default", False, 1, (4711,), (), "", False)
    batch = (Routed(Notification({"league": "AL"}), header),)
    brokers.arrive(("A", "B", batch))
    assert "sent a notification for node 4711, which was never asked for" in brokers.refused[0][2]
    # From another than the router above it is only dropped.
    brokers.refused.clear()
    brokers.arrive(("D", "B", batch))
    assert brokers.refused == []
    assert brokers.delivered == []
    assert is_well(brokers)


def test_notifications_that_go_round_or_have_no_namespace_are_dropped(brokers: Brokers):
    for header in (
        ContentHeader(1, "nowhere", True, 0, (), (), "", False),
        ContentHeader(9_999, "default", True, 0, (), (), "", False),
        ContentHeader(1, "default", False, 1, (), (), "nobody", False),
    ):
        brokers.arrive(("A" if not header.is_rising else "C", "B", (Routed(Notification({"league": "AL"}), header),)))
    brokers.run()
    assert brokers.delivered == []
    assert is_well(brokers)


def test_an_unknown_namespace_is_refused(brokers: Brokers):
    brokers.tell("B", NodesRefused("elsewhere", 1, ()), Neighbor("C"))
    assert "speaks of the namespace 'elsewhere', which is not in the settings here" in brokers.refused[0][2]


def test_a_node_that_nobody_was_given_is_refused_all_the_way(brokers: Brokers):
    session = brokers.place("B").router.below[Neighbor("D")]
    brokers.tell("B", SubscribeNodes("default", session, False, True, (4711,)), Neighbor("D"))
    brokers.run()
    assert [what.nodes for _, to, what in brokers.said if isinstance(what, NodesRefused) and to == "D"] == [(4711,)]
    assert 4711 not in brokers.place("B").router.table
    assert is_well(brokers)


def test_filters_of_brokers_that_nobody_knows_are_not_kept(brokers: Brokers):
    for origin in ("nobody", "X" * 1_000):
        wanted = NodesWanted("default", origin, 1, 1, True, (), (Filter("x = 1"),))
        brokers.tell("A", wanted, Neighbor("B"))
    rendezvous = brokers.place("A").rendezvous
    assert rendezvous is not None
    assert rendezvous.brokers == ["C"]
    # Old ones of C, and those after a gap, change nothing.
    for seq in (0, 999):
        brokers.tell("A", NodesWanted("default", "C", 1, seq, False, (Filter(LEAGUE),), ()), Neighbor("B"))
    assert is_well(brokers)


def test_nobody_speaks_for_a_broker_that_is_not_behind_it(brokers: Brokers):
    links_seq = brokers.cores["C"].links.seq
    # In the name of C: over the link of D, and with a number that C's own would never reach.
    brokers.tell("B", NodesWanted("default", "C", links_seq, 99, True, (), ()), Neighbor("D"))
    brokers.tell("B", NodesWanted("default", "C", links_seq + 10**15, 1, True, (), ()), Neighbor("C"))
    brokers.run()
    assert is_well(brokers)


def test_answers_that_nobody_asked_for_change_nothing(brokers: Brokers):
    again = Again(Notification({"league": "AL"}, source="p", seq=9), (4711,), ((0, 9), (4711, 9)))
    for answer in (
        NodesGiven("default", "C", 0, 0, ((Filter(LEAGUE), 4711),), ()),
        NodesGiven("default", "C", 2**60, 0, ((Filter("nobody = 'wants'"), 4711),), ()),
        Numbers("default", "C", (4711,), ((4711, 10**9),)),
        Recovered("default", "C", ((4711, 1, 10**12),), (again,), ((4711, 3),), (4711,)),
    ):
        brokers.tell("C", answer, Neighbor("B"))
    brokers.run()
    assert brokers.delivered == []
    assert brokers.missed == []
    assert is_well(brokers)


def test_who_asks_for_too_much_to_be_recovered_gets_what_there_is(brokers: Brokers):
    brokers.publish("D", league="AL", team="Boston", n=1)
    brokers.run()
    brokers.said.clear()
    team = node_of(brokers, TEAM)
    brokers.tell("A", Recover("default", "C", (team,), ((team, 1, 2**62), (99, 1, 2**62))), Neighbor("B"))
    ((_, _, recovered),) = brokers.said
    assert isinstance(recovered, Recovered)
    assert len(recovered.again) == 1
    assert len(recovered.lost) <= 10_000
    assert recovered.foreign == (99,)


def test_floods_are_bounded(brokers: Brokers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(router, "NEIGHBOR_NODES_MAX", 100)
    session = brokers.place("B").router.below[Neighbor("D")]
    brokers.tell("B", SubscribeNodes("default", session, False, True, tuple(range(1, 200))), Neighbor("D"))
    assert "NEIGHBOR_NODES_MAX is 100" in brokers.refused[-1][2]
    assert brokers.place("B").router.table.count_of(Neighbor("D")) == 0
    monkeypatch.setattr(rendezvous_module, "GRAPH_NODES_MAX", 3)
    many = tuple(Filter(f"x = {i}") for i in range(5))
    links_seq = brokers.cores["D"].links.seq
    brokers.tell("A", NodesWanted("default", "D", links_seq, 99, True, (), many), Neighbor("B"))
    assert "GRAPH_NODES_MAX is 3" in brokers.refused[-1][2]
    assert is_well(brokers)


def test_an_inbox_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inbox, "INBOX_MAX", 3)
    brokers = Brokers("AB", offline=True)
    for _ in range(9):
        brokers.tell("A", NodesRefused("default", 1, ()), Neighbor("B"))
    assert "INBOX_MAX is 3" in brokers.refused[-1][2]
