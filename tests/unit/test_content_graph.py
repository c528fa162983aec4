"""Content graphs between brokers: set-up, resubscription, unsubscription, loss, namespaces, access, adaptation.

The brokers are A, B, C, …; A is the rendezvous point."""

from __future__ import annotations

import pytest
from msgspec import convert

from catchment.errors import InputError
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.forwarders import HERE
from catchment.routing.content_graph.loss import RECOVERY_HELD_MAX, RECOVERY_LOG_MAX
from catchment.routing.content_graph.messages import (
    ContentHeader,
    GraphChange,
    GraphSetup,
    NodesWanted,
    Recover,
    Recovered,
    Resubscribed,
    ResubscribedAck,
    SubscribeNodes,
    UnsubscribedAck,
    UnsubscribeNodes,
)
from catchment.routing.content_graph.settings import ContentGraphSettings, Namespaces
from catchment.routing.messages import Cancel, Client, ClientUp, Deliver, Forward, Neighbor, Routed, Send, Subscribe
from tests.unit.content_graph_network import SECOND, Brokers, Parcel

LINE = "AB BC"
LEAGUE, TEAM = "league = 'AL'", "league = 'AL' and team = 'Boston'"


def nodes(brokers: Brokers, name: str) -> dict[str, int]:
    """The nodes of a broker's clients, by filter."""
    return {str(filter): node for filter, node in brokers.place(name).edge.nodes.items()}


def node_of(brokers: Brokers, filter: str) -> int:
    rendezvous = brokers.place("A").rendezvous
    assert rendezvous is not None
    node = rendezvous.preprocessor.find(Filter(filter))
    assert node is not None
    return node


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


# --- preprocessing ------------------------------------------------------------------------------


def test_preprocessors_have_the_version_of_the_rendezvous_point():
    brokers = Brokers(LINE)
    brokers.subscribe("C", "f", LEAGUE)
    assert {brokers.place(name).router.version for name in "ABC"} == {brokers.place("A").router.version}
    brokers.loses = lambda parcel: isinstance(parcel[2], GraphChange) and parcel[1] == "C"
    brokers.subscribe("B", "g", TEAM)
    assert brokers.place("C").router.version < brokers.place("A").router.version
    # C tags with the league alone; the rendezvous point sees that it is out of date, and looks again.
    brokers.publish("C", league="AL", team="Boston", n=1)
    brokers.run()
    assert [(identity, ids) for identity, _, ids in brokers.delivered] == [("g", ("s",)), ("f", ("s",))]


@pytest.mark.parametrize("preprocessing", ["distributed", "central"])
def test_only_the_preprocessor_looks_at_content(preprocessing: str):
    brokers = Brokers("AB BC BD", preprocessing=preprocessing)
    brokers.subscribe("C", "f", LEAGUE)
    brokers.said.clear()
    brokers.publish("D", league="AL", n=1)
    brokers.publish("D", league="NL", n=2)
    brokers.run()
    assert brokers.heard() == [1]
    matched = {name: core.inspect().work.matched for name, core in brokers.cores.items()}
    assert matched == (
        {"A": 0, "B": 0, "C": 0, "D": 2} if preprocessing == "distributed" else dict.fromkeys("ABCD", 0) | {"A": 2}
    )
    # What belongs to no node does not even leave, if the broker knows that.
    sent = [what for sender, _, what in brokers.said if sender == "D" and isinstance(what, tuple)]
    assert len(sent) == (1 if preprocessing == "distributed" else 2)


def test_a_static_graph_has_its_topics_and_no_other():
    brokers = Brokers(LINE, topics=[LEAGUE, TEAM])
    before = brokers.place("A").router.version
    brokers.subscribe("C", "f", TEAM)
    brokers.subscribe("C", "g", "team = 'Boston'")
    assert "is no topic of the namespace 'default'" in brokers.refused[0][2]
    assert brokers.place("A").router.version == before
    brokers.publish("B", league="AL", team="Boston", n=1)
    brokers.run()
    assert brokers.heard() == [1]
    brokers.cancel("C", "f")
    assert len(brokers.place("A").router.table.graph) == 2
    assert not any(core.leftovers() for core in brokers.cores.values())


READABLE = ("source", "seq", "_source", "_seq", "__class__")


class Sealed(Notification):
    """Once it is sealed, only its publisher and number can be read."""

    is_sealed = False

    def __getattribute__(self, name):
        assert not Sealed.is_sealed or name in READABLE, f"{name} was read"
        return super().__getattribute__(name)


def test_neither_content_nor_payload_is_read_on_the_way_or_at_the_subscriber(monkeypatch):
    brokers = Brokers(LINE)
    brokers.subscribe("C", "f", LEAGUE)
    node, version = node_of(brokers, LEAGUE), brokers.place("A").router.version
    sealed = Sealed({"league": "AL"}, source="p", seq=1, payload=b"secret")
    monkeypatch.setattr(Sealed, "is_sealed", True)
    header = ContentHeader(1, "default", False, version, (node,), ((0, 1), (node, 1)), "", False)
    (forward,) = brokers.cores["B"].on_notifications([Routed(sealed, header)], Neighbor("A"), brokers.now)
    assert isinstance(forward, Forward)
    (delivery,) = brokers.cores["C"].on_notifications(forward.batch, Neighbor("B"), brokers.now)
    assert isinstance(delivery, Deliver)
    assert delivery.notification is sealed


def test_what_is_not_a_plain_filter_is_compared_at_the_subscriber():
    brokers = Brokers(LINE)
    brokers.tell("C", ClientUp("f"), Client("f"))
    brokers.tell("C", Subscribe("f", "s", Cesql("LENGTH(team) > 6 AND league = 'AL'")), Client("f"))
    brokers.subscribe("C", "g", LEAGUE)
    for n, team in ((1, "Boston"), (2, "Detroit")):
        brokers.publish("A", league="AL", team=team, n=n)
    brokers.run()
    assert sorted((identity, content["n"]) for identity, content, _ in brokers.delivered) == [
        ("f", 2),
        ("g", 1),
        ("g", 2),
    ]


# --- loss ---------------------------------------------------------------------------------------


def lost(*wanted: int):
    """Loses notifications by the value of `n`."""
    return lambda parcel: isinstance(parcel[2], tuple) and parcel[2][0].notification.get("n") in wanted


def test_figures_3_31_3_32_and_2_7_a_filtered_message_is_no_loss_and_a_lost_one_is():
    brokers = Brokers("AB")
    brokers.subscribe("B", "red sox", "team = 'Boston'")
    brokers.subscribe("A", "cubs", "team = 'Chicago'")
    brokers.said.clear()
    for n, team in enumerate(("Boston", "Chicago", "Boston"), 1):
        brokers.publish("A", team=team, n=n, seq=n)
    brokers.run()
    assert brokers.count(Recover) == 0
    assert sorted(brokers.heard()) == [1, 2, 3]
    brokers.loses = lost(4)
    brokers.publish("A", team="Boston", n=4, seq=4)
    brokers.publish("A", team="Boston", n=5, seq=5)
    brokers.run()
    assert brokers.count(Recover) == brokers.count(Recovered) == 1
    # In the publisher's order: 5 was held until 4 had come.
    assert brokers.heard() == [4, 5]
    assert brokers.missed == []


def test_a_node_that_came_later_counts_from_the_beginning():
    brokers = Brokers("AB BC")
    brokers.subscribe("B", "f", LEAGUE)
    brokers.subscribe("C", "g", TEAM)
    brokers.said.clear()
    # The first one for the team is lost on its way to B, which wants the league.
    brokers.loses = lost(1)
    brokers.publish("A", league="AL", team="Boston", n=1, seq=1)
    brokers.publish("A", league="AL", team="Boston", n=2, seq=2)
    brokers.run()
    # One of B, and one of C that B relays.
    assert brokers.count(Recover) == 3
    assert sorted(brokers.heard()) == [1, 1, 2, 2]


def test_the_numbers_of_the_nodes_below_are_known_from_the_beginning():
    """Figure 3-31: the subscriber is told the numbers of the node and of all below it."""
    brokers = Brokers("AB BC")
    brokers.subscribe("C", "g", TEAM)
    for n in (1, 2):
        brokers.publish("A", league="AL", team="Boston", n=n, seq=n)
    brokers.run()
    # Only now somebody at B wants the league: the first two about the team are none of its business.
    brokers.subscribe("B", "f", LEAGUE)
    brokers.said.clear()
    brokers.delivered.clear()
    brokers.publish("A", league="AL", team="Boston", n=3, seq=3)
    brokers.run()
    assert brokers.count(Recover) == 0
    assert sorted(brokers.heard()) == [3, 3]


def test_the_last_notification_is_missed_by_the_numbers_that_are_told_from_time_to_time():
    brokers = Brokers("AB")
    brokers.subscribe("B", "f", LEAGUE)
    brokers.loses = lost(1)
    brokers.publish("A", league="AL", n=1, seq=1)
    brokers.run()
    assert brokers.heard() == []
    brokers.wait("B", "refresh")
    assert brokers.heard() == [1]


def test_what_is_lost_with_a_link_is_recovered_when_it_is_back():
    brokers = Brokers("AB BC AD CD")
    for name in "CD":
        brokers.subscribe(name, name, LEAGUE)
    up = brokers.place("C").router.up
    assert up is not None
    brokers.publish("A", league="AL", n=1, seq=1)
    # The notification is under way to C when the link goes down.
    while not any(parcel[1] == "C" and isinstance(parcel[2], tuple) for parcel in brokers.queue):
        brokers.arrive(brokers.queue.popleft())
    brokers.unlink("C", up.name)
    brokers.run()
    assert brokers.place("C").router.up != up
    assert sorted(identity for identity, _, _ in brokers.delivered) == ["C", "D"]


def test_what_cannot_be_recovered_is_told():
    brokers = Brokers("AB")
    brokers.subscribe("B", "f", LEAGUE)
    place = brokers.place("A")
    assert place.rendezvous is not None
    brokers.loses = lost(*range(1, 4))
    for n in range(1, 4):
        brokers.publish("A", league="AL", n=n, seq=n)
    brokers.run()
    place.rendezvous.log.forget()
    brokers.publish("A", league="AL", n=9, seq=9)
    brokers.run()
    assert brokers.heard() == [2, 3, 9]
    assert brokers.missed == [("f", 1)]


def test_after_a_while_what_is_missing_is_given_up():
    brokers = Brokers("AB")
    brokers.subscribe("B", "f", LEAGUE)
    brokers.loses = lambda parcel: lost(1)(parcel) or isinstance(parcel[2], Recover)
    brokers.publish("A", league="AL", n=1, seq=1)
    brokers.publish("A", league="AL", n=2, seq=2)
    brokers.run()
    assert brokers.heard() == []
    brokers.wait("B", "recover default")
    assert brokers.heard() == [2]
    assert brokers.missed == [("f", 1)]
    # What comes too late is no longer new.
    brokers.wait("B", "refresh")
    assert brokers.heard() == []


def test_what_is_kept_and_held_is_bounded():
    brokers = Brokers("AB")
    brokers.subscribe("B", "f", LEAGUE)
    brokers.loses = lambda parcel: lost(1)(parcel) or isinstance(parcel[2], Recover)
    for n in range(1, RECOVERY_HELD_MAX + 3):
        brokers.publish("A", league="AL", n=n, seq=n)
        brokers.run()
    assert len(brokers.delivered) == RECOVERY_HELD_MAX + 1
    assert brokers.missed == [("f", 1)]
    place = brokers.place("A")
    assert place.rendezvous is not None
    assert len(place.rendezvous.log) == RECOVERY_LOG_MAX


def test_what_another_than_the_router_above_sends_down_is_not_taken():
    brokers = Brokers("AB BC BD")
    brokers.subscribe("C", "f", LEAGUE)
    node, version = node_of(brokers, LEAGUE), brokers.place("A").router.version
    header = ContentHeader(1, "default", False, version, (node,), ((0, 1), (node, 1)), "", False)
    brokers.arrive(("D", "B", (Routed(Notification({"league": "AL"}), header),)))
    brokers.run()
    assert brokers.heard() == []


# --- namespaces ---------------------------------------------------------------------------------

SCOPES = [
    {"name": "sport", "scope": "kind = 'sport'", "rendezvous": "B"},
    {"name": "traffic", "scope": "kind = 'traffic'", "rendezvous": "C"},
]


def test_a_subscription_enters_every_scope_that_it_overlaps():
    brokers = Brokers("AB BC CD", scopes=SCOPES)
    brokers.subscribe("D", "all", "n > 0")
    brokers.subscribe("D", "sport", "kind = 'sport' and n > 0")
    for name in ("default", "sport", "traffic"):
        wanted = brokers.place("D", name).edge.filters
        assert len(wanted) == (2 if name == "sport" else 1)
    for n, kind in enumerate(("sport", "traffic", "weather"), 1):
        brokers.publish("A", source=kind, kind=kind, n=n, seq=1)
        brokers.run()
    assert sorted((identity, content["n"]) for identity, content, _ in brokers.delivered) == [
        ("all", 1), ("all", 2), ("all", 3), ("sport", 1),
    ]  # fmt: skip
    # Each went over its own rendezvous point.
    assert brokers.place("B", "sport").rendezvous is not None
    assert brokers.place("A", "sport").rendezvous is None


def test_namespaces_with_different_rendezvous_points_have_order_each_for_itself():
    """The first one goes over B, far away; the second over C overtakes it. Neither is lost, and neither comes twice."""
    brokers = Brokers("AB BC CD", scopes=SCOPES)
    brokers.subscribe("D", "f", "n > 0")
    sport: list[Parcel] = []

    def holds_sport(parcel: Parcel) -> bool:
        is_sport = isinstance(parcel[2], tuple) and parcel[2][0].notification["n"] == 1
        sport.extend([parcel] * is_sport)
        return is_sport

    brokers.loses = holds_sport
    brokers.publish("D", seq=1, kind="sport", n=1)
    brokers.publish("D", seq=2, kind="traffic", n=2)
    brokers.run()
    assert brokers.heard() == [2]
    brokers.loses = lambda parcel: False
    brokers.arrive(sport[0])
    brokers.arrive(sport[0])
    brokers.run()
    assert brokers.heard() == [1]


def test_scopes_must_be_disjoint_and_have_names_of_their_own():
    with pytest.raises(InputError, match="'a' and 'b' overlap"):
        Namespaces(settings_with(("a", "x > 3"), ("b", "x < 5")))
    with pytest.raises(InputError, match="two scopes have the name 'a'"):
        Namespaces(settings_with(("a", "x > 3"), ("a", "x < 2")))
    assert len(Namespaces(settings_with(("a", "x > 3"), ("b", "x < 2"))).all) == 3


def settings_with(*scopes: tuple[str, str]) -> ContentGraphSettings:
    given = [{"name": name, "scope": scope, "rendezvous": "A"} for name, scope in scopes]
    return convert({"rendezvous": "A", "scopes": given}, ContentGraphSettings)


# --- access -------------------------------------------------------------------------------------


def test_who_may_publish_is_checked_where_it_is_published_and_at_the_rendezvous_point():
    brokers = Brokers(LINE, publishers=["press"])
    brokers.subscribe("C", "f", LEAGUE)
    brokers.publish("B", source="anybody", seq=1, league="AL", n=1)
    assert "'anybody' may not publish in the namespace 'default'" in brokers.refused[0][2]
    brokers.publish("B", source="press", seq=1, league="AL", n=2)
    brokers.run()
    assert brokers.heard() == [2]
    # A broker that does not check: the rendezvous point does.
    node, version = node_of(brokers, LEAGUE), brokers.place("A").router.version
    forged = Notification({"league": "AL", "n": 3}, source="anybody", seq=2)
    header = ContentHeader(1, "default", True, version, (node,), (), "", False)
    brokers.arrive(("B", "A", (Routed(forged, header),)))
    brokers.run()
    assert brokers.heard() == []
    assert brokers.cores["A"].stream.refused == 1


def test_who_may_subscribe():
    brokers = Brokers(LINE, subscribers=["member"])
    brokers.subscribe("C", "guest", LEAGUE)
    assert "'guest' may not subscribe to the namespace 'default'" in brokers.refused[0][2]
    brokers.subscribe("C", "member", LEAGUE)
    assert len(brokers.refused) == 1
    assert list(nodes(brokers, "C")) == [LEAGUE.replace("'", '"')]


# --- adaptive forwarding ------------------------------------------------------------------------


def test_few_brokers_get_copies_by_name_and_flat_graphs_get_lists():
    brokers = Brokers("AB BC BD BE", adaptive=True)
    brokers.subscribe("C", "f", LEAGUE)

    def header_at(sender: str) -> ContentHeader:
        brokers.said.clear()
        brokers.publish("A", league="AL", team="Boston", n=1)
        brokers.run()
        headers = [what[0].header for name, _, what in brokers.said if name == sender and isinstance(what, tuple)]
        assert isinstance(headers[0], ContentHeader)
        return headers[0]

    assert header_at("A").to == "C"
    brokers.subscribe("D", "g", TEAM)
    brokers.subscribe("E", "h", LEAGUE)
    header = header_at("A")
    assert (header.to, header.names_all, len(header.nodes)) == ("", True, 2)
    brokers.subscribe("E", "h", "league any", "wider")
    header = header_at("A")
    assert (header.to, header.names_all, header.nodes) == ("", False, (node_of(brokers, TEAM),))
    brokers.delivered.clear()
    header_at("A")
    assert sorted(identity for identity, _, _ in brokers.delivered) == ["f", "g", "h"]


# --- off-line -----------------------------------------------------------------------------------


def test_subscriptions_wait_for_their_turn_and_notifications_do_not():
    brokers = Brokers("AB", offline=True)
    settle(brokers)
    brokers.subscribe("B", "f", LEAGUE)
    settle(brokers)
    brokers.subscribe("B", "g", TEAM)
    assert len(brokers.cores["A"].inbox) == 1
    brokers.publish("A", league="AL", team="Boston", n=1)
    brokers.run()
    # By the table as it was: only f is there yet.
    assert [identity for identity, _, _ in brokers.delivered] == ["f"]
    settle(brokers)
    brokers.publish("A", league="AL", team="Boston", n=2)
    brokers.run()
    assert sorted(identity for identity, _, _ in brokers.delivered) == ["f", "f", "g"]


def settle(brokers: Brokers) -> None:
    while waiting := [name for name, timer in brokers.timers if timer == "inbox"]:
        brokers.wait(waiting[0], "inbox")


# --- work ---------------------------------------------------------------------------------------


def test_the_rendezvous_point_is_told_each_filter_once():
    brokers = Brokers(LINE)
    for i in range(5):
        brokers.subscribe("C", f"c{i}", LEAGUE)
    # Over two links, besides what B and C said when the tree came up.
    assert brokers.count(NodesWanted) == 2 + 3
    table = brokers.place("C").router.table
    assert table.count_of(HERE) == 1
