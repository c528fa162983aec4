"""The node: what it decides for every host, with outlets that only write down what is put into them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.errors import BadIdError, BadNotificationError, CatchmentError, LimitError
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.node import Node, access
from catchment.routing.durable.messages import Confirm, TakeEffect, TellLostLog
from catchment.routing.messages import (
    Advertise,
    BrokerMessage,
    Cancel,
    Client,
    Deliver,
    DeliverSequence,
    Gap,
    Header,
    LinkMessage,
    MapIdentity,
    Neighbor,
    Refuse,
    Routed,
    SetTimer,
    Subscribe,
    Suspend,
)
from catchment.routing.parts.link_states import Links
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.merging import LinkPolicy, MergingCore
from catchment.routing.siena.messages import Interest, WantsChange

ALICE, BOB, TWO, THREE = Client("alice"), Client("bob"), Neighbor("2"), Neighbor("3")
ALL = Filter("x any")


@dataclass
class Outlet:
    """Of a client or of a link. While `behind` it says so of itself; while `too_long` nothing fits."""

    behind: bool = False
    too_long: bool = False
    put: list[object] = field(default_factory=list)
    # What a node tells about gaps: apart, because most tests are not about that.
    gaps: list[Gap] = field(default_factory=list)
    told: list[LinkMessage] = field(default_factory=list)

    def confirm(self, confirm: Confirm) -> None:
        self.put.append(confirm)

    def take_effect(self, effect: TakeEffect) -> None:
        self.put.append(effect)

    def tell_lost_log(self, lost: TellLostLog) -> None:
        self.put.append(lost)

    def _take(self, what: object) -> None:
        if self.too_long:
            raise LimitError("FRAME_BYTES_MAX", 1, "more")
        self.put.append(what)

    def deliver(self, delivery: Deliver) -> None:
        self._take(("delivered", delivery.notification["x"]))

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        self._take(("sequence", len(delivery.notifications)))

    def tell_lost(self, identity: str, count: int) -> None:
        self.put.append(("lost", identity, count))

    def tell_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)

    def tell(self, message: LinkMessage) -> None:
        self.told.append(message)

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        self.put.append(("answer", number, [type(refusal.error) for refusal in refusals]))

    def is_behind(self) -> bool:
        return self.behind

    def pause(self) -> None:
        self.put.append("paused")

    def resume(self) -> None:
        self.put.append("resumed")

    def send(self, message: BrokerMessage) -> None:
        self._take(message)

    def forward(self, batch: Sequence[Routed], is_relayed: bool) -> int:
        self.put.append(("forwarded", [routed.notification["x"] for routed in batch]))
        return 1

    def end(self, reason: str) -> None:
        self.put.append(("ended", reason))

    def taken(self) -> list[object]:
        put, self.put = self.put, []
        return put


def node_of(core: object, timers: list[SetTimer] | None = None) -> Node:
    waiting = [] if timers is None else timers
    return Node("1", core, lambda: 5, waiting.append)  # type: ignore[arg-type]


def numbered(x: int, source: str = "p") -> Notification:
    return Notification({"x": x}, source=source, seq=x)


@pytest.fixture
def broker() -> Node:
    return node_of(AcyclicCore("1"))


def come(broker: Node, client: Client = ALICE, wanted: Filter | None = ALL) -> Outlet:
    outlet = Outlet()
    broker.client_up(client, client.name, {}, outlet)
    if wanted is not None:
        broker.requested(client, 1, Subscribe(client.name, "all", wanted))
        assert outlet.taken() == [("answer", 1, [])]
    return outlet


# --- requests and their answers -----------------------------------------------------------------


def test_each_request_is_answered_with_its_number(broker: Node):
    outlet = come(broker, wanted=None)
    broker.requested(ALICE, 7, Subscribe("alice", "1", ALL))
    broker.requested(ALICE, 8, Cancel("alice", "none"))
    assert outlet.taken() == [("answer", 7, []), ("answer", 8, [BadIdError])]
    assert broker.totals.refused == 1


def test_each_publication_is_answered_with_what_was_refused_of_it():
    broker = node_of(AdvertisingCore("1"))
    outlet = come(broker, wanted=None)
    broker.requested(ALICE, 1, Advertise("alice", Advertisement("x < 5")))
    outlet.taken()
    batches = [(0, [numbered(1, "alice")]), (3, [numbered(2, "alice"), numbered(7, "alice"), numbered(8, "alice")])]
    later = Notification({"x": 3}, source="alice", seq=9)
    broker.published(ALICE, [*batches, (4, [later]), (0, [numbered(10, "alice")])])
    # Nobody waits for number 0, but a refusal is told.
    assert outlet.taken() == [
        ("answer", 3, [BadNotificationError] * 2),
        ("answer", 4, []),
        ("answer", 0, [BadNotificationError]),
    ]
    assert broker.totals.published == 6


def test_equal_notifications_in_two_publications_are_each_answered():
    broker = node_of(AdvertisingCore("1"))
    outlet = come(broker, wanted=None)
    broker.published(ALICE, [(1, [Notification({"x": 1})]), (2, [Notification({"x": 1})])])
    assert outlet.taken() == [("answer", 1, [BadNotificationError]), ("answer", 2, [BadNotificationError])]


def test_what_was_well_said_and_cannot_be_had_is_refused(broker: Node):
    outlet = come(broker)
    broker.misasked(ALICE, 4, CatchmentError("no"))
    assert outlet.taken() == [("answer", 4, [CatchmentError])]


# --- who may ask for what -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * (IDENTITY_CODEPOINTS_MAX + 1)])
def test_names_have_a_length(broker: Node, name: str):
    outlet = come(broker, wanted=None)
    broker.requested(ALICE, 1, Subscribe(name, "1", ALL))
    broker.requested(ALICE, 2, Subscribe("alice", name, ALL))
    assert outlet.taken() == [("answer", 1, [LimitError]), ("answer", 2, [LimitError])]
    assert broker.core.clients.subscriptions_count == 0


def test_a_handler_must_be_there(broker: Node):
    come(broker)
    assert [type(each.error) for each in broker.ask(ALICE, MapIdentity("alice", "bob"))] == [BadIdError]
    phone = come(broker, BOB, wanted=None)
    assert broker.ask(ALICE, MapIdentity("alice", "bob")) == []
    broker.published(BOB, [(0, [numbered(1)])])
    assert phone.taken() == [("delivered", 1)]


def test_identities_of_a_client_are_bounded_apart_from_those_mapped_to_it(
    broker: Node, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access, "CLIENT_IDENTITIES_MAX", 2)
    come(broker)
    come(broker, BOB, wanted=None)
    assert broker.ask(BOB, MapIdentity("b1", "alice")) == []
    assert broker.ask(ALICE, Suspend("a1")) == []
    assert broker.ask(ALICE, Suspend("a1")) == []
    for client, identity in ((ALICE, "a2"), (BOB, "b2")):
        (refusal,) = broker.ask(client, Suspend(identity))
        assert isinstance(refusal.error, LimitError)
        assert refusal.error.limit == "CLIENT_IDENTITIES_MAX"
    assert "a2" not in broker.core.clients


def test_identities_mapped_to_a_client_are_bounded(broker: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "CLIENT_IDENTITIES_MAX", 2)
    come(broker)
    for number in range(3):
        come(broker, Client(f"c{number}"), wanted=None)
        refusals = broker.ask(Client(f"c{number}"), MapIdentity(f"i{number}", "alice"))
        assert [type(refusal.error) for refusal in refusals] == ([LimitError] if number == 2 else [])


def test_a_client_that_comes_again_takes_the_place_of_the_other(broker: Node):
    first = come(broker)
    second = come(broker)
    assert first.taken() == [("ended", "'alice' has connected again")]
    broker.publish(ALICE, [numbered(1)])
    assert first.taken() == []
    assert second.taken() == [("delivered", 1)]


# --- what is lost -------------------------------------------------------------------------------


def test_who_is_behind_loses_what_comes_and_is_told_before_the_next(broker: Node):
    outlet = come(broker)
    outlet.behind = True
    broker.publish(ALICE, [numbered(1), numbered(2)])
    assert outlet.taken() == []
    outlet.behind = False
    broker.publish(ALICE, [numbered(3)])
    assert outlet.taken() == [("lost", "alice", 2), ("delivered", 3)]
    assert (broker.totals.lost, broker.totals.delivered) == (2, 1)


def test_who_has_caught_up_is_told_also_if_nothing_more_comes(broker: Node):
    outlet = come(broker)
    outlet.behind = True
    broker.publish(ALICE, [numbered(1)])
    outlet.behind = False
    broker.caught_up(ALICE)
    broker.caught_up(ALICE)
    assert outlet.taken() == [("lost", "alice", 1)]


def test_a_delivery_that_is_too_long_is_lost_and_counted(broker: Node):
    outlet = come(broker)
    outlet.too_long = True
    broker.publish(ALICE, [numbered(1)])
    outlet.too_long = False
    broker.publish(ALICE, [numbered(2)])
    assert outlet.taken() == [("lost", "alice", 1), ("delivered", 2)]


# --- links --------------------------------------------------------------------------------------


def linked(broker: Node) -> tuple[Outlet, Outlet]:
    outlets = Outlet(), Outlet()
    for neighbor, outlet in zip((TWO, THREE), outlets, strict=True):
        broker.link_up(neighbor, 1, outlet)
        outlet.taken()
    return outlets


def test_arrivals_that_nobody_wants_are_counted_one_by_one(broker: Node):
    _, three = linked(broker)
    broker.told(THREE, Interest(announced=(Filter("x > 5"),)))
    come(broker, wanted=Filter("x = 2"))
    batch = [Routed(numbered(x), Header(1)) for x in (1, 2, 3, 7)]
    broker.arrived(TWO, batch)
    assert broker.totals.unwanted == 2
    broker.arrived(TWO, [Routed(numbered(4), Header(1))])
    assert broker.totals.unwanted == 3
    assert ("forwarded", [7]) in three.taken()
    assert broker.links[TWO].received == 5
    assert (broker.links[TWO].heard, broker.links[THREE].heard) == (2, 1)


def test_what_waits_for_a_suspended_client_is_wanted(broker: Node):
    linked(broker)
    come(broker)
    broker.ask(ALICE, Suspend("alice"))
    broker.arrived(TWO, [Routed(numbered(1), Header(1))])
    assert broker.totals.unwanted == 0


def test_a_neighbor_that_is_refused_loses_its_link():
    broker = node_of(GeneralCore("1"))
    two, _ = linked(broker)
    broker.told(TWO, Links("9", 1, ()))
    broker.told(TWO, WantsChange("9", 12, 10, (), (ALL,)))
    assert [what[0] for what in two.taken() if isinstance(what, tuple)] == ["ended"]


def test_a_message_that_is_too_long_ends_the_link(broker: Node):
    two, three = linked(broker)
    two.too_long = True
    come(broker)
    assert two.taken() == [("ended", "Interest: FRAME_BYTES_MAX is 1, found more")]
    assert three.taken() == [Interest((), (ALL,))]
    # Each began with a report.
    assert (broker.links[TWO].sent, broker.links[THREE].sent) == (1, 2)


def test_a_link_that_is_gone_gets_nothing(broker: Node):
    two, three = linked(broker)
    broker.link_down(TWO)
    come(broker)
    assert two.taken() == []
    assert three.taken() == [Interest((), (ALL,))]


def test_timers_are_the_hosts():
    timers: list[SetTimer] = []
    broker = node_of(MergingCore(AcyclicCore("1"), LinkPolicy(batch=1_000)), timers)
    two, _ = linked(broker)
    come(broker)
    assert timers == [SetTimer("say 2", 1_005), SetTimer("say 3", 1_005)]
    broker.timer_fired("say 2")
    assert two.taken() == [Interest((), (ALL,))]
