"""Content graphs: namespaces by scopes, and who may publish and subscribe in them.

The brokers are A, B, C, …; A is the rendezvous point."""

from __future__ import annotations

import pytest
from msgspec import convert

from catchment.errors import InputError
from catchment.model.notification import Notification
from catchment.routing.content_graph.messages import (
    ContentHeader,
)
from catchment.routing.content_graph.settings import ContentGraphSettings, Namespaces
from catchment.routing.messages import Routed
from tests.unit.content_graph_network import LEAGUE, LINE, Brokers, Parcel, node_of, nodes

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
