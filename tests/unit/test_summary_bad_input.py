"""What a broken or hostile neighbor says to a broker of `summary`: refused with a reason, or bounded; no other harm.

The node ends the link of a neighbor that is refused (`test_node.py`); the core then hears `LinkDown`."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from catchment import Filter, Notification
from catchment.errors import LimitError, RemoteProtocolError
from catchment.routing.messages import LinkDown, Neighbor, Routed
from catchment.routing.parts import link_states
from catchment.routing.parts.link_states import BROKERS_MAX
from catchment.routing.summary import own, stream
from catchment.routing.summary.core import TOLD_IDS_MAX, SummaryCore
from catchment.routing.summary.messages import (
    PatternIds,
    RangeIds,
    Rows,
    Summarized,
    SummaryChange,
    WalkHeader,
    WeighedLinks,
)
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line
from catchment.wire.frames import Decoder, WireError, frame
from tests.said import language_of
from tests.wired_cores import Wired

ID = ((0, (0,)),)
X = RangeIds(0, 0, 5, 4, ID)
GOOD = Summarized(7, ("x", "s"), ("a",), (0,), ((b"\x01", ID),), Rows((X,)))
CHANGE = SummaryChange(8, 7, (), (), (), (), ((b"\x01", ((0, (1,)),)),), Rows(), Rows((replace(X, ids=((0, (1,)),)),)))


@pytest.fixture
def network() -> Wired:
    """b has a summary of a that a test makes, and one of c that is right."""
    network = Wired(SummaryCore, [("a", "b"), ("b", "c")])
    network.subscribe("c", "1", "x > 1")
    network.hears("b", "a", GOOD)
    assert network.refused == []
    return network


def assert_refused(network: Wired, message: Any, reason: str, kind: type[Exception] = RemoteProtocolError) -> None:
    """The broker refuses it with a reason, keeps what it knew, and goes on with everybody else."""
    core = network.cores["b"]
    before = core.rows_of("a")
    network.hears("b", "a", message)
    (refusal,) = network.refused
    assert refusal.source == Neighbor("a")
    assert isinstance(refusal.error, kind)
    assert reason in str(refusal.error)
    assert core.rows_of("a") == before
    core.on_message(LinkDown(), Neighbor("a"), 5)
    assert set(core.propagation.received()) == {"c"}
    network.publish("b", {"x": 2})
    assert [broker for broker, _ in network.delivered] == ["c"]


SUMMARIES: dict[str, tuple[Callable[[Summarized], Summarized], str]] = {
    "a broker that nobody knows": (
        lambda good: replace(good, brokers=("a", "nowhere"), merged=(0, 1)),
        "summarized for 'nowhere', which nobody has links to",
    ),
    "without its own": (
        lambda good: replace(good, brokers=("a", "c"), merged=(1,)),
        "does not have its own subscriptions",
    ),
    "a merged broker without a name": (lambda good: replace(good, merged=(0, 3)), "merged broker number 3"),
    "an id of a broker without a name": (
        lambda good: replace(good, ids=((b"\x01", ((4, (0,)),)),)),
        "used broker number 4, and named 1 brokers",
    ),
    "a broker with two numbers": (lambda good: replace(good, brokers=("a", "a")), "numbered some brokers twice"),
    "an attribute without a name": (
        lambda good: replace(good, rows=Rows((replace(X, attribute=2),))),
        "used attribute number 2, and named 2 attributes",
    ),
    "an id of an unknown schema": (
        lambda good: replace(good, ids=((b"\x04", ID),)),
        "used attribute number 2, and named 2 attributes",
    ),
    "an id with a long schema": (lambda good: replace(good, ids=((b"\xff" * 100_000, ID),)), "not in its schema"),
    "an attribute with two numbers": (
        lambda good: replace(good, attributes=("x", "x")),
        "numbered some attributes twice",
    ),
    "an attribute with a bad name": (lambda good: replace(good, attributes=("x", "")), "attribute name is empty"),
    "an id without attributes": (lambda good: replace(good, ids=()), "without saying which attributes it names"),
    "a row of an attribute that the id does not name": (
        lambda good: replace(good, rows=Rows((replace(X, attribute=1),))),
        "announced an id for a row of 's', which it does not name",
    ),
    "an id in a row twice": (lambda good: replace(good, rows=Rows((X, X))), "announced an id for a row that it is in"),
    "rows that overlap": (
        lambda good: replace(good, rows=Rows((X, replace(X, low=8)))),
        "announced rows of 'x' that overlap",
    ),
    "a range that is none": (lambda good: replace(good, rows=Rows((replace(X, span=0),))), "which is no range"),
    "a range past all keys": (
        lambda good: replace(good, rows=Rows((replace(X, span=2**63 - 1),))),
        "which is no range",
    ),
    "a negative number": (
        lambda good: replace(good, ids=((b"\x01", ((0, (-1,)),)),)),
        "used -1 as the number of a subscription",
    ),
    "a number that is too large": (
        lambda good: replace(good, ids=((b"\x01", ((0, (1 << 48,)),)),)),
        "as the number of a subscription",
    ),
    "an operator that there is not": (
        lambda good: replace(good, ids=((b"\x02", ID),), rows=Rows((), (PatternIds(1, "like", "a", ID),))),
        "no operator 'like'",
    ),
    "a glob that cannot be": (
        lambda good: replace(good, ids=((b"\x02", ID),), rows=Rows((), (PatternIds(1, "glob", "a\\", ID),))),
        "lone backslash",
    ),
}


@pytest.mark.parametrize("what", SUMMARIES)
def test_a_summary_that_cannot_be(what: str, network: Wired):
    make, reason = SUMMARIES[what]
    assert_refused(network, make(GOOD), reason)


CHANGES: dict[str, tuple[Callable[[SummaryChange], SummaryChange], str]] = {
    "a gap": (lambda good: replace(good, after=6), "told a change of its summary after 6, known is 7"),
    "withdrawn and never announced": (
        lambda good: replace(good, withdrawn=Rows((replace(X, low=6),))),
        "withdrew an id from a row that it is not in",
    ),
    "withdrawn twice": (lambda good: replace(good, withdrawn=Rows((X, X))), "withdrew an id"),
    "announced again": (lambda good: replace(good, announced=Rows((X,))), "announced an id for a row that it is in"),
    "a row that overlaps another": (
        lambda good: replace(good, announced=Rows((RangeIds(0, 0, 2, 4, ((0, (1,)),)),))),
        "announced rows of 'x' that overlap",
    ),
    "its own broker gone": (
        lambda good: replace(good, brokers=("c",), left=(0,), joined=(1,)),
        "does not have its own subscriptions",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_cannot_be(what: str, network: Wired):
    make, reason = CHANGES[what]
    assert_refused(network, make(CHANGE), reason)


def test_what_the_cases_change_is_good(network: Wired):
    network.hears("b", "a", CHANGE)
    assert network.refused == []
    assert len(network.cores["b"].propagation.received()["a"]) == 2


def test_a_row_may_take_the_place_of_one_that_it_overlaps(network: Wired):
    wider = Rows((RangeIds(0, 0, 2, 10, ID),))
    network.hears("b", "a", replace(CHANGE, ids=(), withdrawn=Rows((X,)), announced=wider))
    assert network.refused == []
    assert [(row.low, row.high) for row in network.cores["b"].rows_of("a")] == [(2, 12)]


def test_ids_of_this_broker_are_not_passed_on(network: Wired):
    """A neighbor may send back for a moment what it once got. It must not become what we send."""
    core = network.cores["b"]
    lie = Summarized(9, ("x",), ("a", "b"), (0, 1), ((b"\x01", ((1, (0,)),)),), Rows((replace(X, ids=((1, (0,)),)),)))
    network.hears("b", "a", lie)
    assert network.refused == []
    network.copies.clear()
    network.publish("b", {"x": 5e-324})
    assert [routed.header.to for _, _, routed, _ in network.copies] == []
    assert core.propagation.known() == {"a", "b", "c"}


def test_a_neighbor_cannot_claim_the_subscriptions_of_others():
    """a says that it has those of e, and has none of them. e is not taken as examined, so the walk goes on to d."""
    network = Wired(SummaryCore, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    network.subscribe("e", "1", "x > 1")
    network.hears("b", "a", Summarized(9, (), ("a", "e"), (0, 1), (), Rows()))
    assert network.refused == []
    assert network.cores["b"].propagation.known() == {"a", "b", "c"}
    network.publish("b", {"x": 2})
    assert [broker for broker, _ in network.delivered] == ["e"]


def test_a_neighbor_that_should_send_no_summary_is_not_believed():
    """The hub sends its summary to nobody: what it says is for nobody to examine."""
    network = Wired(SummaryCore, [("hub", "a"), ("hub", "b"), ("hub", "c")])
    network.subscribe("b", "1", "x > 1")
    network.hears("a", "hub", Summarized(9, (), ("hub", "b", "c"), (0, 1, 2), (), Rows()))
    assert network.cores["a"].propagation.known() == {"a"}
    network.publish("a", {"x": 2})
    assert [broker for broker, _ in network.delivered] == ["b"]


# --- floods -------------------------------------------------------------------------------------


def test_a_flood_of_rows_is_bounded(network: Wired, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "SUMMARY_PAIRS_MAX", 10)
    ids = tuple(range(20))
    flood = replace(GOOD, ids=((b"\x01", ((0, ids),)),), rows=Rows((replace(X, ids=((0, ids),)),)))
    assert_refused(network, flood, "SUMMARY_PAIRS_MAX", LimitError)


def test_a_flood_of_attributes_is_bounded(network: Wired, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "SCHEMA_ATTRIBUTES_MAX", 10)
    flood = replace(GOOD, attributes=tuple(f"x{i}" for i in range(11)))
    assert_refused(network, flood, "SCHEMA_ATTRIBUTES_MAX", LimitError)


def test_a_flood_of_brokers_is_bounded(network: Wired, monkeypatch: pytest.MonkeyPatch):
    """Brokers that nobody has a link to find no room, and take none from others."""
    monkeypatch.setattr(link_states, "BROKERS_MAX", 6)
    for i in range(20):
        network.hears("b", "a", WeighedLinks(f"ghost{i}", 1, (), None))
    assert len(network.cores["b"].links.records) <= 6
    assert {"a", "b", "c"} <= set(network.cores["b"].links.records)
    network.publish("b", {"x": 2})
    assert [broker for broker, _ in network.delivered] == ["c"]


def test_a_client_with_too_many_attributes_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own, "OWN_ATTRIBUTES_MAX", 2)
    network = Wired(SummaryCore, [("a", "b")])
    network.subscribe("a", "1", "x > 1 and y > 1")
    network.subscribe("a", "2", "z > 1")
    (refusal,) = network.refused
    assert "OWN_ATTRIBUTES_MAX" in str(refusal.error)
    assert network.cores["a"].clients.subscriptions_count == 1
    # When others are gone, there is room.
    network.cancel("a", "1")
    network.subscribe("a", "3", "z > 1 and y > 1")
    assert len(network.refused) == 1
    assert len(network.cores["b"].propagation.received()["a"]) == 1


def test_a_sender_begins_anew_before_its_numbers_run_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "SCHEMA_ATTRIBUTES_MAX", 5)
    network = Wired(SummaryCore, [("a", "b"), ("b", "c")])
    for i in range(20):
        network.subscribe("a", str(i), f"x{i} = 1")
        if i:
            network.cancel("a", str(i - 1))
    assert network.refused == []
    network.publish("c", {"x19": 1})
    assert [broker for broker, _ in network.delivered] == ["a"]


@pytest.mark.parametrize("degree", [0, -1, 10**7])
def test_a_virtual_degree_that_cannot_be(degree: int, network: Wired):
    assert_refused(network, WeighedLinks("d", 1, (), degree), f"virtual degree of {degree}")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (WalkHeader(1, "b", tuple(map(str, range(BROKERS_MAX + 1))), ()), "BROKERS_MAX"),
        (WalkHeader(1, "b", None, tuple(range(TOLD_IDS_MAX + 1))), "TOLD_IDS_MAX"),
    ],
)
def test_a_huge_header_is_refused(header: WalkHeader, reason: str, network: Wired):
    network.subscribe("b", "1", "x > 1")
    good, bad = (Notification({"x": 2}, source="p", seq=seq) for seq in (1, 2))
    network.gets("b", "a", [Routed(good, WalkHeader(1, "b", None, ())), Routed(bad, header)])
    (refusal,) = network.refused
    assert reason in str(refusal.error)
    assert network.delivered == [("b", good)]


def test_names_that_nobody_knows_are_not_passed_on(network: Wired):
    notification = Notification({"x": 2}, source="p", seq=1)
    network.gets("b", "c", [Routed(notification, WalkHeader(1, "b", ("c", "ghost", "phantom"), ()))])
    assert {name for _, _, routed, _ in network.copies for name in routed.header.checked or ()} <= {"a", "b", "c"}


def test_the_wire_refuses_other_shapes():
    decoder: Decoder[Any] = Decoder(language_of("summary"))
    with pytest.raises(WireError, match="Invalid enum value 7"):
        decoder.feed(frame(replace(GOOD, rows=Rows((replace(X, kind=7),)))))


def test_a_liar_loses_its_link_and_the_others_go_on():
    """In a simulated network: the node ends the link, and the rest of the network keeps its tables."""
    simulation = Simulation(line(4), SummaryCore)
    for identity, broker in (("reader", "3"), ("writer", "1")):
        simulation.connect(identity, broker)
    simulation.subscribe("reader", "1", Filter("x > 1"))
    simulation.settle()
    node = simulation.nodes["1"]
    assert node is not None
    node.told(Neighbor("0"), replace(GOOD, brokers=("nowhere",), merged=(0,)))
    simulation.settle()
    simulation.publish("writer", {"x": 2})
    simulation.settle()
    assert len(simulation.clients["reader"].received) == 1
