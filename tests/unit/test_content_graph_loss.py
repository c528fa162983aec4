"""Content graphs: what is lost on the way is found by numbers, recovered or told.

The brokers are A, B, C, …; A is the rendezvous point."""

from __future__ import annotations

from collections import deque

from catchment.model.notification import Notification
from catchment.routing.content_graph.loss import RECOVERY_HELD_MAX, RECOVERY_LOG_MAX
from catchment.routing.content_graph.messages import ContentHeader, NodesWanted, Recover, Recovered, SubscribeNodes
from catchment.routing.messages import LinkDown, Neighbor, Routed
from catchment.routing.parts.link_states import Links
from tests.unit.content_graph_network import LEAGUE, TEAM, Brokers, node_of


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


# --- another way (§6.2) -------------------------------------------------------------------------


def cut_above_c(brokers: Brokers) -> str:
    """C alone has noticed that the link to the broker above it has failed. Returns the broker that is left to it."""
    up = brokers.place("C").router.up
    assert up is not None
    brokers.said.clear()
    brokers.tell("C", LinkDown(), up)
    return "B" if up.name == "D" else "D"


def test_the_other_way_is_taken_in_the_call_that_tells_of_the_failure():
    """Nobody else has heard of it: nothing has to settle first."""
    brokers = Brokers("AB BC AD CD")
    brokers.subscribe("C", "f", LEAGUE)
    other = cut_above_c(brokers)
    kinds = [type(what) for sender, receiver, what in brokers.said if (sender, receiver) == ("C", other)]
    # The new link state goes first on the same link, so whoever is asked knows why.
    assert kinds.index(Links) < kinds.index(SubscribeNodes) < kinds.index(NodesWanted)
    brokers.publish("C", league="AL", n=1, seq=1)
    (parcel,) = [parcel for parcel in brokers.said if isinstance(parcel[2], tuple)]
    assert parcel[:2] == ("C", other)


def test_nothing_is_lost_or_out_of_order_while_the_tree_changes():
    brokers = Brokers("AB BC AD CD")
    brokers.subscribe("C", "f", LEAGUE)
    up = brokers.place("C").router.up
    assert up is not None
    # One notification is lost with the link, one is published before anybody but C knows, and one at each step after.
    brokers.publish("A", league="AL", n=1, seq=1)
    while not any(parcel[1] == "C" and isinstance(parcel[2], tuple) for parcel in brokers.queue):
        brokers.arrive(brokers.queue.popleft())
    brokers.queue.clear()
    cut_above_c(brokers)
    n = 2
    brokers.publish("A", league="AL", n=n, seq=n)
    brokers.queue = deque(parcel for parcel in brokers.queue if {parcel[0], parcel[1]} != {"C", up.name})
    brokers.tell(up.name, LinkDown(), Neighbor("C"))
    while brokers.queue:
        brokers.arrive(brokers.queue.popleft())
        if n < 30:
            n += 1
            brokers.publish("A", league="AL", n=n, seq=n)
    assert brokers.heard() == list(range(1, n + 1))
    assert brokers.missed == []
    assert n > 10
