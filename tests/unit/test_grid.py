"""Brokers of a grid: joining and leaving while the network serves, failures, and what neighbors may not say.

The node ends the link of a neighbor that is refused (`test_node.py`); the core then hears `LinkDown`."""

from typing import Any

import pytest

from catchment import Filter
from catchment.errors import InputError, LimitError, RemoteProtocolError
from catchment.routing.grid.core import GridCore
from catchment.routing.grid.messages import (
    COPY_UNITS_MAX,
    Context,
    Counted,
    Gateway,
    Gateways,
    GridHeader,
    GridSettings,
    Profile,
    ProfileChange,
)
from catchment.routing.grid.units import BLOCK_LIMIT
from catchment.routing.messages import SECOND, Client, ClientDown, LinkDown, LinkUp, Neighbor, Routed
from catchment.routing.parts.link_states import FORGET_US
from catchment.routing.systems import system_named
from catchment.wire.frames import Decoder, WireError, frame
from catchment.wire.messages import Batch, Parcel
from tests.grid_networks import CLUSTER_A, CLUSTER_B, CLUSTER_C, FIVE, FOUR, SC_2, SC_3, SIX, figure_2, grid
from tests.said import language_of
from tests.wired_cores import Wired

WANTED = Filter("x > 1")


def reaches(network: Wired, publisher: str, subscriber: str) -> bool:
    before = len(network.delivered)
    network.publish(publisher, {"x": 2})
    return [broker for broker, _ in network.delivered[before:]].count(subscriber) == 1


# --- joining and leaving ------------------------------------------------------------------------


def test_a_broker_joins_and_leaves_while_the_network_serves():
    network = figure_2()
    network.subscribe("D1", "1", "x > 1")
    network.cores["7"] = GridCore("7", GridSettings("A.SC-1.c"))
    assert not reaches(network, "7", "D1")
    network.link_up("6", "7")
    assert reaches(network, "7", "D1")
    network.subscribe("7", "1", "x > 1")
    assert reaches(network, "D1", "7")
    assert network.cores["C1"].profiles.of(("A",)) == {("SC-1", WANTED): 1}
    network.link_down("6", "7")
    assert reaches(network, "6", "D1")
    assert network.cores["C1"].profiles.of(("A",)) == {}
    assert network.cores["4"].cut_off == [(*CLUSTER_C, "7")]


def test_a_unit_joins_with_what_its_clients_want():
    network = grid({"1": "A.a", "2": "A.b", "3": "B.c", "4": "B.c"}, [("1", "2"), ("3", "4")])
    network.subscribe("4", "1", "x > 1")
    assert not reaches(network, "1", "4")
    network.link_up("2", "3")
    assert reaches(network, "1", "4")
    # A second way to the same unit: one copy all the same.
    network.link_up("1", "4")
    assert network.cores["2"].graph.link_count(("A", "a"), ("B",)) == 1
    assert reaches(network, "1", "4")
    network.link_down("2", "3")
    assert reaches(network, "2", "4")


def test_a_client_that_goes_is_no_longer_counted():
    network = figure_2()
    network.subscribe("6", "1", "x > 1")
    network.subscribe("6", "2", "x > 1")
    network.subscribe("5", "1", "x > 1")
    assert network.cores["b1"].profiles.of(CLUSTER_C) == {("", WANTED): 3}
    network.cancel("6", "1")
    assert network.cores["b1"].profiles.of(CLUSTER_C) == {("", WANTED): 2}
    network._perform("6", network.cores["6"].on_message(ClientDown(), Client("6"), network.now))
    network.run()
    assert network.cores["D1"].profiles.of(("A",)) == {("SC-1", WANTED): 1}
    network.cancel("5", "1")
    assert [core.leftovers() for core in network.cores.values()] == [[]] * len(network.cores)


# --- failures -----------------------------------------------------------------------------------


def test_a_gatekeeper_that_fails_for_ever_is_left_out_at_once():
    network = figure_2()
    network.subscribe("k1", "1", "x > 1")
    assert network.cores["6"].graph.route(SC_2).hop == FIVE
    for other in ("4", "6", "k1"):
        network.link_down("5", other)
    # What 5 said about its connection to SC-2 is still known, and nobody believes it.
    assert network.cores["6"].graph.route(SC_2).hop == FOUR
    assert network.cores["b1"].graph.link_count(CLUSTER_C, SC_2) == 0
    assert reaches(network, "6", "k1")
    assert network.cores["6"].cut_off == [FIVE]


def test_what_can_no_longer_arrive_is_not_believed():
    """7 spoke to b by way of c. After the cut, b hears of a from 1 alone: what 7 said is old, however true it was."""
    network = grid({"1": "a", "7": "a", "2": "b", "6": "c"}, [("1", "7"), ("1", "2"), ("2", "6"), ("6", "7")])
    network.subscribe("7", "1", "x > 1")
    assert network.cores["2"].gateways.believed == {(1, "1"), (1, "7"), (1, "6")}
    network.link_down("2", "6")
    assert network.cores["2"].gateways.believed == {(1, "1"), (1, "6")}
    network.cancel("7", "1")
    assert network.cores["2"].profiles.of(("a",)) == {}


def test_an_island_goes_on_by_itself():
    network = figure_2()
    network.subscribe("4", "1", "x > 1")
    network.subscribe("D1", "1", "x > 1")
    network.link_down("4", "b1")
    network.link_down("5", "k1")
    assert network.cores["6"].graph.reached() == {FOUR, FIVE}
    assert reaches(network, "6", "4")
    assert reaches(network, "C1", "D1")
    assert not reaches(network, "6", "D1")
    # SC-1 is still split: a and b are cut off from c. SC-2 knows it as one unit, and might choose the way by a.
    network.link_up("5", "k1")
    assert reaches(network, "6", "D1")


def test_what_is_inside_a_unit_is_not_reached_by_way_of_outside():
    """The text calls that a partition: a and b could be reached through SC-2 and SC-3."""
    network = figure_2()
    network.subscribe("b1", "1", "x > 1")
    assert reaches(network, "6", "b1")
    network.link_down("4", "b1")
    assert not reaches(network, "6", "b1")
    assert network.cores["6"].cut_off == [CLUSTER_A, CLUSTER_B]
    network.link_up("4", "b1")
    assert reaches(network, "6", "b1")
    assert network.cores["6"].cut_off == []


def test_statements_that_nobody_believes_are_forgotten():
    network = figure_2()
    network.subscribe("5", "1", "x > 1")
    for other in ("4", "6", "k1"):
        network.link_down("5", other)
    core = network.cores["6"]
    assert core.gateways.statement((0, "5")) is not None
    network.fire_timers_until(network.now + FORGET_US + 120 * SECOND)
    assert core.gateways.statement((0, "5")) is None
    assert core.inspect().tables == ()
    # It comes back, and is known as before.
    for other in ("4", "6", "k1"):
        network.link_up("5", other)
    assert reaches(network, "6", "5")
    assert reaches(network, "D1", "5")
    assert network.refused == []


def test_a_broker_whose_clock_went_back_outbids_what_it_said_before():
    network = figure_2()
    network.subscribe("6", "1", "x > 1")
    network.now = 500 * SECOND
    network.subscribe("6", "2", "x > 2")
    for other in ("4", "5"):
        network.link_down("6", other)
    network.now = 1
    network.cores["6"] = network.make("6")
    for other in ("4", "5"):
        network.link_up("6", other)
    network.subscribe("6", "1", "x = 2")
    assert network.cores["4"].profiles.of(SIX) == {("", Filter("x = 2")): 1}
    assert reaches(network, "D1", "6")
    assert network.refused == []


# --- contexts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"context": "A..c"}, "write the names of units with dots between them"),
        ({"context": ".".join("abcdefghi")}, "it has 9 levels, there may be 8"),
        ({"context": "A.c", "levels": 3}, "context A.c of x has 2 levels, the setting levels says 3"),
        ({"context": {"y": "A.c"}}, "has no context for the broker x"),
        ({"context": 3}, "settings of grid"),
        ({"levels": 0}, "settings of grid"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], reason: str):
    with pytest.raises(InputError, match=reason):
        system_named("grid").core("x", settings)


def test_a_broker_without_settings_is_in_the_one_cluster():
    core = system_named("grid").core("x")
    assert isinstance(core, GridCore)
    assert core.path == ("grid", "x")
    by_table = system_named("grid").core("x", {"context": {"x": "A.c", "y": "A.d"}, "levels": 2})
    assert isinstance(by_table, GridCore)
    assert by_table.path == ("A", "c", "x")


@pytest.fixture
def network() -> Wired:
    network = figure_2()
    network.subscribe("b1", "1", "x > 1")
    return network


def assert_refused(network: Wired, message: Any, reason: str, kind: type[Exception] = RemoteProtocolError) -> None:
    """Broker 4 refuses what 6 says, with a reason; nothing else changes, and others are served."""
    core = network.cores["4"]
    before = dict(core.graph.edges), core.profiles.of(SIX), core.profiles.of(CLUSTER_B)
    network.hears("4", "6", message)
    (refusal,) = network.refused
    assert refusal.source == Neighbor("6")
    assert isinstance(refusal.error, kind)
    assert reason in str(refusal.error)
    assert before == (dict(core.graph.edges), core.profiles.of(SIX), core.profiles.of(CLUSTER_B))
    network.link_down("4", "6")
    assert reaches(network, "5", "b1")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (
            ("A", "c", "x"),
            "is in a system of 2 levels, this broker is A.SC-1.c.4: give both contexts of the same length",
        ),
        (("A", "SC-1", "c", "y"), "says that it is A.SC-1.c.y, this broker is A.SC-1.c.4"),
        (FOUR, "says that it is A.SC-1.c.4, this broker is A.SC-1.c.4"),
    ],
)
def test_a_context_that_contradicts_is_refused(network: Wired, path: tuple[str, ...], reason: str):
    core = network.cores["4"]
    core.on_message(LinkUp(), Neighbor("x"), 1)
    (refusal,) = core.on_message(Context(path), Neighbor("x"), 1)
    assert reason in str(refusal.error)
    assert Neighbor("x") not in core.gateways.links
    core.on_message(LinkDown(), Neighbor("x"), 1)
    assert reaches(network, "6", "b1")


def test_a_context_does_not_change_on_a_link(network: Wired):
    assert_refused(network, Context(("A", "SC-1", "d", "6")), "changed its context to A.SC-1.d.6 on a link that is up")


def test_a_full_cluster_refuses_one_more_and_names_another():
    brokers = [f"{number:02}" for number in range(BLOCK_LIMIT)]
    network = grid(dict.fromkeys(brokers, "A.1"), [("00", other) for other in brokers[1:]])
    core = network.cores["00"]
    assert len(core.graph.reached()) == BLOCK_LIMIT - 1
    core.on_message(LinkUp(), Neighbor("x"), 1)
    (refusal,) = core.on_message(Context(("A", "1", "x")), Neighbor("x"), 1)
    assert isinstance(refusal.error, LimitError)
    assert "BLOCK_LIMIT" in str(refusal.error)
    assert "give x another context, such as A.2" in str(refusal.error)
    # With that one it is taken.
    core.on_message(LinkDown(), Neighbor("x"), 1)
    core.on_message(LinkUp(), Neighbor("x"), 1)
    core.on_message(Context(("A", "2", "x")), Neighbor("x"), 1)
    assert core.gateways.links[Neighbor("x")].level == 1


# --- what neighbors may not say -----------------------------------------------------------------

GATEWAY = Gateway(("6", "x"), 2, 1, ("A", "SC-9"))
BAD_STATEMENTS = [
    (Gateways(("B", "SC-4"), "B1", 5, ()), "told of B.SC-4, which only those in B may hear"),
    (Gateways(("A", "SC-2", "k"), "k1", 5, ()), "told of A.SC-2.k, which only those in A.SC-2 may hear"),
    (Gateways((*CLUSTER_C, "6"), "5", 5, ()), "told of A.SC-1.c.6 in the name of 5"),
    (Gateways(SC_3, "g1", 5, (Gateway(("g1", "b1"), 1, 1, CLUSTER_B),)), "a connection of level 1 of A.SC-3"),
    (Gateways((*CLUSTER_C, "6", "z"), "z", 5, ()), "told of A.SC-1.c.6.z"),
    (Gateways(SIX, "6", 10**15, ()), "ahead of the clock here"),
    (Profile(("B", "SC-4"), "B1", 5, ()), "told of B.SC-4, which only those in B may hear"),
    (Profile(SIX, "6", 5, (Counted("c", WANTED, 1),)), "says wrongly in which units its predicates are"),
    (Profile(("B",), "B1", 5, (Counted("", WANTED, 1),)), "says wrongly in which units its predicates are"),
    (ProfileChange(SIX, "6", 9, 7, (), ()), "told a change of the profile of A.SC-1.c.6 by 6 after 7, known is 1"),
    (
        ProfileChange(SIX, "6", 9, 1, (Counted("", WANTED, 1),), ()),
        "takes 1 of x > 1 from the profile of A.SC-1.c.6 by 6: it has 0",
    ),
]


@pytest.mark.parametrize(("message", "reason"), BAD_STATEMENTS)
def test_a_bad_statement_is_refused(network: Wired, message: Any, reason: str):
    assert_refused(network, message, reason)


def test_nothing_is_said_before_the_context(network: Wired):
    core = network.cores["4"]
    core.on_message(LinkUp(), Neighbor("x"), 1)
    (refusal,) = core.on_message(Gateways((*CLUSTER_C, "x"), "x", 5, ()), Neighbor("x"), 1)
    assert "made a statement before it said its context" in str(refusal.error)


def test_a_change_of_an_unknown_speaker_changes_nothing(network: Wired):
    """Nobody has stated connections of 9: nothing is kept for it."""
    core = network.cores["4"]
    tables = core.inspect().tables
    network.hears("4", "6", ProfileChange((*CLUSTER_C, "9"), "9", 5, 4, (), (Counted("", WANTED, 1),)))
    assert core.inspect().tables == tables
    assert reaches(network, "6", "b1")


def test_a_count_never_goes_below_zero():
    """The same end of a link twice, in whatever order: the connection is gone once."""
    network = figure_2()
    core = network.cores["6"]
    network.link_down("5", "k1")
    last = core.gateways.statement((0, "5"))
    assert core.graph.link_count(FIVE, SC_2) == 0
    network.hears("6", "4", last)
    network.hears("6", "4", Gateways(FIVE, "5", 0, ()))
    assert core.graph.link_count(FIVE, SC_2) == 0
    assert core.graph.link_count(FIVE, SIX) == 1
    network.link_up("5", "k1")
    assert core.graph.link_count(FIVE, SC_2) == 1


def test_a_made_up_connection_is_no_edge(network: Wired):
    """6 says that it has a link to SC-9: nobody at the other end says so."""
    core = network.cores["4"]
    said = core.gateways.statement((0, "6"))
    network.hears("4", "6", Gateways(SIX, "6", said.seq + 1, (*said.gateways, GATEWAY)))
    assert ("A", "SC-9") not in core.graph.reached()
    assert core.graph.link_count(SIX, ("A", "SC-9")) == 0
    assert reaches(network, "6", "b1")


@pytest.mark.parametrize("unit", [("Z",), ("A", "SC-9"), (*CLUSTER_C, "9"), (*SIX, "more")])
def test_a_destination_that_there_is_not_is_dropped(network: Wired, unit: tuple[str, ...]):
    notification = network.publish("6", {"x": 0})
    routed = Routed(notification, GridHeader(1, (SIX,), (unit,)))
    assert network.cores["4"].on_notifications([routed], Neighbor("6"), 1) == []


def test_too_many_destinations_end_the_link(network: Wired):
    notification = network.publish("6", {"x": 0})
    decoder: Decoder[Any] = Decoder(language_of("grid"))

    def batch(count: int) -> Batch[GridHeader]:
        header = GridHeader(1, (SIX,), tuple(("A", str(number)) for number in range(count)))
        return Batch((Parcel(header, (notification,)),))

    assert decoder.feed(frame(batch(COPY_UNITS_MAX))) == [batch(COPY_UNITS_MAX)]
    with pytest.raises(WireError):
        decoder.feed(frame(batch(COPY_UNITS_MAX + 1)))
