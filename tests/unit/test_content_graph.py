"""Content graphs between brokers: set-up of nodes, resubscription, unsubscription.

The brokers are A, B, C, …; A is the rendezvous point."""

from __future__ import annotations

from catchment.model.filter import Filter
from catchment.routing.content_graph.forwarders import HERE
from catchment.routing.content_graph.messages import (
    GraphSetup,
    NodesWanted,
    Resubscribed,
    ResubscribedAck,
    SubscribeNodes,
    UnsubscribedAck,
    UnsubscribeNodes,
)
from catchment.routing.messages import Cancel, Client, Neighbor, Send, Subscribe
from tests.unit.content_graph_network import LEAGUE, LINE, SECOND, TEAM, Brokers, Parcel, node_of, nodes

# --- set-up -------------------------------------------------------------------------------------


def test_figure_3_25_routers_get_edges_from_the_rendezvous_point():
    brokers = Brokers(LINE)
    brokers.subscribe("C", "f", TEAM)
    brokers.said.clear()
    brokers.subscribe("C", "g", LEAGUE)
    assert (brokers.count(SubscribeNodes), brokers.count(GraphSetup)) == (2, 2)
    team, league = node_of(brokers, TEAM), node_of(brokers, LEAGUE)
    for name in "BC":
        table = brokers.place(name).router.table
        assert table.graph.children == {team: set(), league: {team}}
        assert not table.pending
    labels = brokers.place("B").router.table.forwarder.labels
    assert labels == {team: {Neighbor("C"): (team,)}, league: {Neighbor("C"): (league,)}}


def test_a_second_subscriber_to_a_known_node_goes_no_further():
    brokers = Brokers("AB BC BD")
    brokers.subscribe("C", "f", TEAM)
    brokers.said.clear()
    brokers.subscribe("D", "g", TEAM)
    between = [(sender, receiver) for sender, receiver, what in brokers.said if isinstance(what, SubscribeNodes)]
    assert between == [("D", "B")]
    brokers.cancel("C", "f")
    subscribers = brokers.place("B").router.table.subscribers
    assert {node: list(some) for node, some in subscribers.items()} == {node_of(brokers, TEAM): [Neighbor("D")]}
    brokers.publish("A", league="AL", team="Boston", n=1)
    brokers.run()
    assert brokers.heard() == [1]


def test_one_of_several_nodes_of_a_client_goes():
    brokers = Brokers(LINE)
    brokers.subscribe("C", "f", TEAM, "narrow")
    brokers.subscribe("C", "f", LEAGUE, "wide")
    brokers.publish("A", league="AL", team="Boston", n=1)
    brokers.run()
    assert brokers.delivered == [("f", {"league": "AL", "team": "Boston", "n": 1}, ("narrow", "wide"))]
    brokers.delivered.clear()
    brokers.cancel("C", "f", "wide")
    brokers.publish("A", league="AL", team="Boston", n=2)
    brokers.publish("A", league="AL", team="Detroit", n=3)
    brokers.run()
    assert brokers.delivered == [("f", {"league": "AL", "team": "Boston", "n": 2}, ("narrow",))]


def test_a_set_up_that_crosses_an_unsubscription_finds_the_ghost():
    """B unsubscribes from the league while A sets up the team below the league: B knows the league until A has
    acknowledged, and A does not name it any more."""
    brokers = Brokers("AB")
    brokers.subscribe("A", "keeper", LEAGUE)
    brokers.subscribe("B", "f", LEAGUE)
    league = node_of(brokers, LEAGUE)
    held = []

    def crosses(parcel):
        is_crossing = parcel[0] == "B" and isinstance(parcel[2], UnsubscribeNodes)
        held.extend([parcel] * is_crossing)
        return is_crossing

    brokers.loses = crosses
    brokers.subscribe("B", "g", TEAM)
    brokers.cancel("B", "f")
    table = brokers.place("B").router.table
    assert table.is_ghost(league)
    detroit = "league = 'AL' and team = 'Detroit'"
    brokers.subscribe("B", "h", detroit)
    assert not brokers.refused
    # For A, B still wants the league.
    assert table.graph.parents[node_of(brokers, detroit)] == {league}
    brokers.loses = lambda parcel: False
    for parcel in held:
        brokers.arrive(parcel)
    brokers.run()
    assert league not in table
    assert brokers.count(UnsubscribedAck) == 1
    assert table.graph.parents == {node_of(brokers, TEAM): set(), node_of(brokers, detroit): set()}


def test_a_ghost_that_is_wanted_again_is_set_up_again():
    brokers = Brokers("AB")
    brokers.subscribe("B", "f", LEAGUE)
    brokers.subscribe("A", "keeper", LEAGUE)
    brokers.loses = lambda parcel: False
    brokers.tell("B", *cancelling("f"))
    # Before A has heard of it:
    brokers.tell("B", *subscribing("g", LEAGUE))
    brokers.run()
    table = brokers.place("B").router.table
    assert table.wanted == [node_of(brokers, LEAGUE)]
    assert not table.pending
    assert not brokers.place("B").router.unacked
    brokers.publish("A", league="AL", n=1)
    brokers.run()
    assert sorted(brokers.heard()) == [1, 1]


def test_a_set_up_names_a_node_only_after_its_own():
    """B has ghosts of the league and the team, with the edge between them, when C asks for both. The team is set up
    first: C does not know the league yet."""
    brokers = Brokers("AB BC")
    for filter, id in ((LEAGUE, "wide"), (TEAM, "narrow")):
        brokers.subscribe("A", "keeper", filter, id)
        brokers.subscribe("B", "f", filter, id)
    rising: list[Parcel] = []

    def waits(parcel: Parcel) -> bool:
        is_rising = parcel[0] == "B" and isinstance(parcel[2], SubscribeNodes | UnsubscribeNodes)
        rising.extend([parcel] * is_rising)
        return is_rising

    brokers.loses = waits
    for id in ("wide", "narrow"):
        brokers.cancel("B", "f", id)
    for filter, id in ((TEAM, "narrow"), (LEAGUE, "wide")):
        brokers.subscribe("C", "g", filter, id)
    brokers.loses = lambda parcel: False
    for parcel in rising:
        brokers.arrive(parcel)
        brokers.run()
    assert brokers.refused == []
    team, league = node_of(brokers, TEAM), node_of(brokers, LEAGUE)
    assert brokers.place("C").router.table.graph.children == {team: set(), league: {team}}


def cancelling(identity: str):
    return Cancel(identity, "s"), Client(identity)


def subscribing(identity: str, filter: str):
    return Subscribe(identity, "s", Filter(filter)), Client(identity)


def test_node_ids_are_never_used_again():
    brokers = Brokers(LINE)
    brokers.subscribe("C", "f", LEAGUE)
    first = node_of(brokers, LEAGUE)
    brokers.cancel("C", "f")
    brokers.subscribe("C", "f", LEAGUE)
    second = node_of(brokers, LEAGUE)
    brokers.restart("A")
    brokers.run()
    third = node_of(brokers, LEAGUE)
    assert first < second < third
    assert brokers.place("C").router.table.wanted == [third]
    brokers.publish("A", league="AL", n=1)
    brokers.run()
    assert brokers.heard() == [1]


def test_a_node_that_the_rendezvous_point_does_not_have_is_refused():
    """§6.1: identifiers that nobody has given."""
    brokers = Brokers(LINE)
    brokers.place("C").router.subscribe_here(4711, brokers.now)
    for action in brokers.place("C").router.flush():
        assert isinstance(action, Send)
        brokers.queue.append(("C", action.interface.name, action.message))
    brokers.run()
    for name in "ABC":
        assert 4711 not in brokers.place(name).router.table
        assert not brokers.place(name).router.table.pending


# --- resubscription -----------------------------------------------------------------------------


def test_figure_3_27_resubscription_and_acknowledgement_renew_times():
    brokers = Brokers(LINE, refresh_s=30.0)
    brokers.subscribe("C", "f", LEAGUE)
    node = node_of(brokers, LEAGUE)
    brokers.said.clear()
    brokers.wait("C", "refresh")
    assert (brokers.count(Resubscribed), brokers.count(ResubscribedAck)) == (1, 1)
    below, above = brokers.place("C").router.table, brokers.place("B").router.table
    assert above.subscribers[node][Neighbor("C")] >= 30 * SECOND
    assert below.confirmed_at[node] >= 30 * SECOND


def test_an_interrupted_subscription_is_recovered_upstream():
    """B has lost what C wants. C finds its node unconfirmed, and subscribes again."""
    brokers = Brokers(LINE, refresh_s=10.0, expiry_s=25.0)
    brokers.subscribe("C", "f", LEAGUE)
    node = node_of(brokers, LEAGUE)
    brokers.place("B").router.table.unsubscribe(node, Neighbor("C"))
    for _ in range(4):
        brokers.wait("C", "refresh")
    brokers.publish("A", league="AL", n=1)
    brokers.run()
    assert brokers.heard() == [1]
    assert not brokers.refused


def test_a_subscription_that_cannot_be_recovered_is_dropped():
    """C hears nothing from B any more: it subscribes again, in vain, and drops the node."""
    brokers = Brokers(LINE, refresh_s=10.0, expiry_s=25.0)
    brokers.subscribe("C", "f", LEAGUE)
    brokers.loses = lambda parcel: parcel[:2] == ("B", "C")
    for _ in range(8):
        brokers.wait("C", "refresh")
    assert nodes(brokers, "C") == {}
    assert brokers.place("C").router.table.wanted == []


def test_a_silent_neighbor_is_dropped_downstream():
    brokers = Brokers(LINE, refresh_s=10.0, expiry_s=25.0)
    brokers.subscribe("C", "f", LEAGUE)
    node = node_of(brokers, LEAGUE)
    brokers.loses = lambda parcel: parcel[0] == "C"
    for _ in range(3):
        brokers.wait("B", "refresh")
    table = brokers.place("B").router.table
    assert (node, Neighbor("C")) in brokers.place("B").router.interrupted
    assert table.subscribers[node]
    brokers.wait("B", "refresh")
    assert node not in table.subscribers
    # A has been told, too.
    assert node not in brokers.place("A").router.table.subscribers


def test_figure_3_30_unsubscription_goes_up_as_far_as_nobody_else_wants_the_node():
    brokers = Brokers("AB BC BD")
    for name, identity in (("C", "f"), ("D", "g")):
        brokers.subscribe(name, identity, TEAM)
    brokers.said.clear()
    brokers.cancel("C", "f")
    assert brokers.count(UnsubscribeNodes) == brokers.count(UnsubscribedAck) == 1
    brokers.said.clear()
    brokers.cancel("D", "g")
    assert brokers.count(UnsubscribeNodes) == brokers.count(UnsubscribedAck) == 2
    assert not any(core.leftovers() for core in brokers.cores.values())


# --- work ---------------------------------------------------------------------------------------


def test_the_rendezvous_point_is_told_each_filter_once():
    brokers = Brokers(LINE)
    for i in range(5):
        brokers.subscribe("C", f"c{i}", LEAGUE)
    # Over two links, besides what B and C said when the tree came up.
    assert brokers.count(NodesWanted) == 2 + 3
    table = brokers.place("C").router.table
    assert table.count_of(HERE) == 1
