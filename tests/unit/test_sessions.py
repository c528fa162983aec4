"""What every core does for its local clients."""

import pytest

from catchment import Advertisement, Cesql, Filter, Notification, Pattern
from catchment.errors import BadIdError
from catchment.model.values import parse_time
from catchment.routing import sessions
from catchment.routing.messages import (
    Advertise,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    DeliverSequence,
    MapIdentity,
    Missed,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.parts.clients import Sessions

ALICE = Client("alice")


def numbered(seq: int, source: str = "p", **attributes: int) -> Notification:
    time = parse_time(f"2026-01-01T00:00:{seq:02}Z")
    return Notification(attributes or {"x": seq}, source=source, seq=seq, time=time)


@pytest.fixture
def one() -> Sessions:
    found = Sessions()
    found.client_up(ALICE, ClientUp("alice"))
    found.request(Subscribe("alice", "all", Filter("x any")), ALICE)
    found.request(Subscribe("alice", "big", Filter("x > 2")), ALICE)
    return found


def test_one_copy_with_the_ids_that_match(one: Sessions):
    found = one.due([numbered(1), numbered(3)], 0)
    assert found == [
        Deliver(ALICE, "alice", numbered(1), ("all",)),
        Deliver(ALICE, "alice", numbered(3), ("all", "big")),
    ]


def test_nothing_twice_and_nothing_late(one: Sessions):
    one.due([numbered(2)], 0)
    assert one.due([numbered(2), numbered(1)], 0) == []
    assert one.due([numbered(1, "q")], 0) == [Deliver(ALICE, "alice", numbered(1, "q"), ("all",))]


def test_what_was_seen_elsewhere_is_not_delivered(one: Sessions):
    one.client_up(ALICE, ClientUp("alice", {"p": 5}))
    assert one.due([numbered(5)], 0) == []
    assert len(one.due([numbered(6)], 0)) == 1


def test_suspended_ones_wait_in_order(one: Sessions):
    one.request(Suspend("alice"), ALICE)
    assert one.due([numbered(1), numbered(2)], 0) == []
    found = one.request(Resume("alice"), ALICE)
    assert [action.notification.seq for action in found] == [1, 2]
    assert len(one.due([numbered(3)], 0)) == 1


def test_what_waits_is_bounded_and_counted(one: Sessions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "SUSPENDED_MAX", 2)
    one.request(Suspend("alice"), ALICE)
    one.due([numbered(i) for i in range(1, 6)], 0)
    missed, *rest = one.request(Resume("alice"), ALICE)
    assert missed == Missed(ALICE, "alice", 3)
    assert [action.notification.seq for action in rest] == [4, 5]


def test_deliveries_go_where_the_identity_is_mapped(one: Sessions):
    one.request(MapIdentity("alice", "phone"), ALICE)
    assert one.due([numbered(1)], 0)[0].client == Client("phone")


def test_an_id_is_taken_until_it_is_cancelled(one: Sessions):
    with pytest.raises(BadIdError, match="already"):
        one.request(Subscribe("alice", "all", Filter("y any")), ALICE)
    one.request(Cancel("alice", "all"), ALICE)
    with pytest.raises(BadIdError, match="no subscription"):
        one.request(Cancel("alice", "all"), ALICE)
    assert one.filters_of("alice") == [Filter("x > 2")]


def test_unsubscribing_cancels_what_is_covered_and_nothing_else(one: Sessions):
    one.request(Unsubscribe("alice", Filter("x > 5")), ALICE)
    assert len(one.filters_of("alice")) == 2
    one.request(Unsubscribe("alice", Filter("x > 1")), ALICE)
    assert one.filters_of("alice") == [Filter("x any")]


def test_a_pattern_is_watched_here(one: Sessions):
    one.request(Subscribe("alice", "rise", Pattern("[y = 1] -> [y = 2]")), ALICE)
    assert set(one.filters_of("alice")) >= {Filter("y = 1"), Filter("y = 2")}
    first, second = numbered(1, y=1), numbered(2, y=2)
    assert one.due([first, second], 0) == [DeliverSequence(ALICE, "alice", (first, second), "rise")]


def test_cesql_is_forwarded_wider_and_delivered_exactly(one: Sessions):
    one.request(Subscribe("alice", "sql", Cesql("y % 2 = 0")), ALICE)
    found = one.due([numbered(1, y=3), numbered(2, y=4)], 0)
    assert [action.notification.seq for action in found] == [2]


def test_advertisements(one: Sessions):
    one.request(Advertise("alice", Advertisement("x > 5")), ALICE)
    one.request(Unadvertise("alice", Advertisement("x > 7")), ALICE)
    assert one.advertisements_of("alice") == [Advertisement("x > 5")]
    one.request(Unadvertise("alice", Advertisement("x any")), ALICE)
    assert one.advertisements_of("alice") == []


def test_a_client_that_goes_is_forgotten(one: Sessions):
    assert one.client_down(ALICE) == ["alice"]
    assert one.due([numbered(1)], 0) == []
    assert one.subscriptions_count == len(one) == 0
