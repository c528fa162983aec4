"""What every core does for its local clients."""

from collections.abc import Iterable

import pytest

from catchment import Advertisement, Cesql, Filter, Notification, Pattern
from catchment.errors import BadIdError
from catchment.model.values import parse_time
from catchment.routing.core import Table
from catchment.routing.messages import (
    Action,
    Advertise,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    DeliverSequence,
    Keep,
    MapIdentity,
    Missed,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.parts import clients
from catchment.routing.parts.clients import ClientSide

ALICE = Client("alice")


def numbered(seq: int, source: str = "p", **attributes: int) -> Notification:
    time = parse_time(f"2026-01-01T00:00:{seq:02}Z")
    return Notification(attributes or {"x": seq}, source=source, seq=seq, time=time)


@pytest.fixture
def side() -> ClientSide:
    made = ClientSide()
    made.client_up(ALICE, ClientUp("alice"))
    made.request(Subscribe("alice", "all", Filter("x any")), ALICE)
    made.request(Subscribe("alice", "big", Filter("x > 2")), ALICE)
    return made


def delivered(actions: Iterable[Action]) -> list[int | None]:
    """The numbers of the notifications that the actions deliver. No action may do anything else."""
    numbers = []
    for action in actions:
        assert isinstance(action, Deliver)
        numbers.append(action.notification.seq)
    return numbers


def test_one_copy_with_the_ids_that_match(side: ClientSide):
    assert side.due([numbered(1), numbered(3)], 0) == [
        Deliver(ALICE, "alice", numbered(1), ("all",)),
        Deliver(ALICE, "alice", numbered(3), ("all", "big")),
    ]


def test_nothing_twice_and_nothing_late(side: ClientSide):
    side.due([numbered(2)], 0)
    assert side.due([numbered(2), numbered(1)], 0) == []
    assert side.due([numbered(1, "q")], 0) == [Deliver(ALICE, "alice", numbered(1, "q"), ("all",))]


def test_what_was_seen_elsewhere_is_not_delivered(side: ClientSide):
    side.client_up(ALICE, ClientUp("alice", {"p": 5}))
    assert side.due([numbered(5)], 0) == []
    assert len(side.due([numbered(6)], 0)) == 1


def test_suspended_ones_wait_in_order(side: ClientSide):
    side.request(Suspend("alice"), ALICE)
    assert side.due([numbered(1), numbered(2)], 0) == [Keep(numbered(1)), Keep(numbered(2))]
    assert delivered(side.request(Resume("alice"), ALICE)) == [1, 2]
    assert len(side.due([numbered(3)], 0)) == 1


def test_what_waits_is_bounded_and_counted(side: ClientSide, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients, "SUSPENDED_MAX", 2)
    side.request(Suspend("alice"), ALICE)
    side.due([numbered(i) for i in range(1, 6)], 0)
    missed, *rest = side.request(Resume("alice"), ALICE)
    assert missed == Missed(ALICE, "alice", 3)
    assert delivered(rest) == [4, 5]


def test_deliveries_go_where_the_identity_is_mapped(side: ClientSide):
    side.request(MapIdentity("alice", "phone"), ALICE)
    assert side.due([numbered(1)], 0) == [Deliver(Client("phone"), "alice", numbered(1), ("all",))]


def test_an_id_is_taken_until_it_is_cancelled(side: ClientSide):
    with pytest.raises(BadIdError, match="already"):
        side.request(Subscribe("alice", "all", Filter("y any")), ALICE)
    side.request(Cancel("alice", "all"), ALICE)
    with pytest.raises(BadIdError, match="no subscription"):
        side.request(Cancel("alice", "all"), ALICE)
    assert side.filters_of("alice") == [Filter("x > 2")]


def test_unsubscribing_cancels_what_is_covered_and_nothing_else(side: ClientSide):
    side.request(Unsubscribe("alice", Filter("x > 5")), ALICE)
    assert len(side.filters_of("alice")) == 2
    side.request(Unsubscribe("alice", Filter("x > 1")), ALICE)
    assert side.filters_of("alice") == [Filter("x any")]


def test_a_pattern_is_watched_here(side: ClientSide):
    side.request(Subscribe("alice", "rise", Pattern("[y = 1] -> [y = 2]")), ALICE)
    assert set(side.filters_of("alice")) >= {Filter("y = 1"), Filter("y = 2")}
    first, second = numbered(1, y=1), numbered(2, y=2)
    complete = DeliverSequence(ALICE, "alice", (first, second), "rise")
    assert side.due([first, second], 0) == [Keep(first), Keep(second), complete]


def test_cesql_is_forwarded_wider_and_delivered_exactly(side: ClientSide):
    side.request(Subscribe("alice", "sql", Cesql("y % 2 = 0")), ALICE)
    assert delivered(side.due([numbered(1, y=3), numbered(2, y=4)], 0)) == [2]


def test_advertisements(side: ClientSide):
    side.request(Advertise("alice", Advertisement("x > 5")), ALICE)
    side.request(Unadvertise("alice", Advertisement("x > 7")), ALICE)
    assert side.advertisements_of("alice") == [Advertisement("x > 5")]
    side.request(Unadvertise("alice", Advertisement("x any")), ALICE)
    assert side.advertisements_of("alice") == []


def test_a_client_that_goes_is_forgotten(side: ClientSide):
    assert side.client_down(ALICE) == ["alice"]
    assert side.due([numbered(1)], 0) == []
    assert side.subscriptions_count == len(side) == 0


def test_what_clients_hold_is_counted_with_its_texts(side: ClientSide):
    assert side.tables() == [Table("@clients", 2, len("x any") + len("x > 2"))]
    side.request(Cancel("alice", "all"), ALICE)
    assert side.tables() == [Table("@clients", 1, 5)]
    side.client_down(ALICE)
    assert side.tables() == []
