"""The system `summary`, copy by copy: Algorithm 3, what relays do, failures on the way."""

import pytest

from catchment import Notification
from catchment.routing.messages import Client, LinkUp, Neighbor, Routed
from catchment.routing.summary import core as summary_core
from catchment.routing.summary.core import SummaryCore
from catchment.routing.summary.messages import WalkHeader
from tests.summary_networks import FIGURE_7, LINE, RING, wired


def test_who_is_on_the_list_is_not_told_again():
    """2 tells 1; then 5, which also has the subscriptions of 1, must not."""
    network = wired(FIGURE_7)
    network.subscribe("01", "1", "x > 1")
    network.publish("02", {"x": 2})
    assert [broker for broker, _ in network.delivered] == ["01"]
    assert [routed.header.to for _, _, routed, _ in network.copies if routed.header.checked is None] == ["01"]


def test_a_walk_visits_every_broker_that_nobody_knows():
    network = wired(RING)
    network.publish("c", {"x": 1})
    visited = [
        (routed.header.to, set(routed.header.checked)) for _, _, routed, relayed in network.copies if not relayed
    ]
    # From c: b is a neighbor, as near as d, and comes first. It knows a. The last is d.
    assert visited == [("b", {"c"}), ("d", {"a", "b", "c"})]


def test_over_matching_tells_a_broker_whose_clients_get_nothing():
    network = wired(LINE)
    network.subscribe("a", "1", "symbol >* 'OT'")
    network.subscribe("a", "2", "symbol = 'OTE' and x = 1")
    network.subscribe("a", "3", "x = 2 and symbol = 'X'")
    network.publish("b", {"symbol": "OTX", "x": 1})
    assert [broker for broker, _ in network.delivered] == ["a"]
    network.cancel("a", "1")
    network.subscribe("a", "4", "symbol >* 'OT' and y = 1")
    network.copies.clear()
    network.delivered.clear()
    # 'OTE' is in the row of 'OT*': the summary takes 'OTX' for it.
    network.publish("b", {"symbol": "OTX", "x": 1})
    assert [routed.header for _, _, routed, _ in network.copies if routed.header.checked is None] == [
        WalkHeader(1, "a", None, (1,))
    ]
    assert network.delivered == []


@pytest.mark.parametrize(
    ("choice", "visits"),
    [
        ("degree", ["05", "08", "11"]),
        ("nearest", ["11", "10", "08", "05"]),
        # By a number made of the two names: always the same, and in no order of the network.
        ("spread", None),
    ],
)
def test_other_ways_to_choose_the_next_broker(choice: str, visits: list[str] | None):
    network = wired(FIGURE_7, next_broker=choice)
    network.subscribe("01", "1", "x > 1")
    for _ in range(2):
        network.copies.clear()
        network.delivered.clear()
        network.publish("13", {"x": 2})
        assert [broker for broker, _ in network.delivered] == ["01"]
        sent = [routed.header for _, _, routed, relayed in network.copies if not relayed]
        visited = [header.to for header in sent if header.checked is not None]
        assert visits is None or visited == visits
        visits = visited


def test_publisher_order_holds_whatever_matches():
    network = wired(FIGURE_7)
    for broker, text in (("13", "x > 0"), ("04", "x > 3"), ("09", "x in (1, 4, 5)")):
        network.subscribe(broker, "1", text)
    published = [network.publish("06", {"x": x}) for x in (4, 1, 5, 2, 1, 4)]
    for broker in ("13", "04", "09"):
        got = [notification.seq or 0 for there, notification in network.delivered if there == broker]
        assert got == sorted(got)
    assert len(network.delivered) == 6 + 3 + 5
    assert len(published) == 6


def test_a_relay_without_a_way_takes_the_walk_over():
    network = wired([("a", "b"), ("b", "c"), ("b", "d")])
    network.subscribe("d", "1", "x > 1")
    network.subscribe("b", "1", "x > 1")
    # c is gone, and a has not heard of it: a sends by way of b.
    network.link_down("b", "c")
    notification = Notification({"x": 2}, source="p", seq=1)
    network.gets("b", "a", [Routed(notification, WalkHeader(1, "c", ("a",), ()))])
    assert sorted(broker for broker, _ in network.delivered) == ["b", "d"]
    # b is on the list already: its clients had it. What is only for c is dropped.
    network.delivered.clear()
    later = Notification({"x": 2}, source="p", seq=2)
    network.gets("b", "a", [Routed(later, WalkHeader(1, "c", ("a", "b"), ()))])
    network.gets("b", "a", [Routed(later, WalkHeader(1, "c", None, (0,)))])
    assert [broker for broker, _ in network.delivered] == ["d"]


def test_a_neighbor_that_has_not_spoken_yet_gets_nothing():
    core = SummaryCore("a")
    core.on_message(LinkUp(), Neighbor("b"), 1)
    assert core.on_notifications([Routed(Notification({"x": 1}, source="p", seq=1))], Client("p"), 1) == []


def test_a_relay_neither_matches_nor_delivers():
    network = wired(LINE)
    network.subscribe("b", "1", "x > 1")
    notification = Notification({"x": 2}, source="p", seq=1)
    matched = network.cores["b"].inspect().work.matched
    network.gets("b", "a", [Routed(notification, WalkHeader(1, "c", ("a", "b"), ()))])
    assert network.delivered == []
    assert network.cores["b"].inspect().work.matched == matched
    assert [(here, there, relayed) for here, there, _, relayed in network.copies] == [("b", "c", True)]


def test_rows_and_ids_that_are_looked_up_are_counted():
    """What T1 and T2 of §5.2.4 count: the rows that values satisfy, and the ids in them."""
    network = wired(LINE)
    for i, text in enumerate(("x > 1", "x > 2 and s = 'a'", "s >* 'b'")):
        network.subscribe("a", str(i), text)
    for values, steps in (({"x": 5}, 1 + 2), ({"x": 5, "s": "a"}, 2 + 3), ({"s": "c"}, 0), ({"y": 1}, 0)):
        before = network.cores["b"].inspect().work.looked_up
        network.publish("b", values)
        assert network.cores["b"].inspect().work.looked_up - before == steps
    # What was counted is not lost with the link.
    counted = network.cores["b"].inspect().work.looked_up
    network.link_down("a", "b")
    assert network.cores["b"].inspect().work.looked_up == counted == 8


def test_what_goes_round_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(summary_core, "HOPS_MAX", 3)
    network = wired(LINE)
    notification = Notification({"x": 2}, source="p", seq=1)
    network.gets("b", "a", [Routed(notification, WalkHeader(4, "c", ("a",), ()))])
    assert network.copies == []
    network.gets("b", "a", [Routed(notification, WalkHeader(3, "c", ("a",), ()))])
    assert [there for _, there, _, _ in network.copies] == ["c"]
