"""Content graphs: who looks at content, adaptive forwarding, subscriptions off-line.

The brokers are A, B, C, …; A is the rendezvous point."""

from __future__ import annotations

import pytest

from catchment.model.cesql import Cesql
from catchment.model.notification import Notification
from catchment.routing.content_graph.messages import (
    ContentHeader,
    GraphChange,
)
from catchment.routing.messages import Client, ClientUp, Deliver, Forward, Neighbor, Routed, Subscribe
from tests.unit.content_graph_network import LEAGUE, LINE, TEAM, Brokers, node_of

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
