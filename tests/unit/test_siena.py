"""SIENA's brokers one by one: what they say to neighbors and clients, beside the figures of the text."""

from catchment import Advertisement, Filter, Notification, Pattern
from catchment.errors import BadIdError, BadNotificationError, LimitError
from catchment.routing.core import Table, Work
from catchment.routing.messages import (
    Advertise,
    Cancel,
    Client,
    ClientDown,
    Deliver,
    Forward,
    Header,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    Unadvertise,
)
from catchment.routing.parts import remote
from catchment.routing.parts.link_states import Links
from catchment.routing.siena import advertising, delegating
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import Advertised, Delegated, Interest, OriginHeader, Wants, WantsChange

TWO, THREE = Neighbor("2"), Neighbor("3")
ALICE = Client("alice")
WIDE, NARROW = Filter("x > 0"), Filter("x > 5")


def published(core, source, **attributes):
    notification = Notification(attributes, source="alice", seq=1)
    return notification, core.on_notifications([Routed(notification)], source, 0)


# --- acyclic ------------------------------------------------------------------------------------


def connected(core):
    core.on_message(LinkUp(), TWO, 0)
    core.on_message(LinkUp(), THREE, 0)
    return core


def test_cancelling_the_wider_by_its_id_brings_the_narrower_back():
    core = connected(AcyclicCore("1"))
    core.on_message(Subscribe("alice", "wide", WIDE), ALICE, 0)
    assert core.on_message(Subscribe("alice", "narrow", NARROW), ALICE, 0) == []
    change = Interest((WIDE,), (NARROW,))
    assert core.on_message(Cancel("alice", "wide"), ALICE, 0) == [Send(TWO, change), Send(THREE, change)]


def test_a_refused_request_changes_nothing():
    core = connected(AcyclicCore("1"))
    (refused,) = core.on_message(Cancel("alice", "none"), ALICE, 0)
    assert isinstance(refused, Refuse)
    assert refused.source == ALICE
    assert isinstance(refused.error, BadIdError)
    assert len(core.interest) == 0


def test_a_neighbor_that_comes_up_is_told_the_roots():
    core = AcyclicCore("1")
    for id, filter in (("w", WIDE), ("n", NARROW), ("y", Filter("y any"))):
        core.on_message(Subscribe("alice", id, filter), ALICE, 0)
    assert core.on_message(LinkUp(), TWO, 0) == [Send(TWO, Interest((), (WIDE, Filter("y any"))))]


def test_what_a_neighbor_wanted_goes_with_it():
    core = connected(AcyclicCore("1"))
    core.on_message(Interest(announced=(WIDE,)), TWO, 0)
    assert core.on_message(LinkDown(), TWO, 0) == [Send(THREE, Interest((WIDE,)))]
    assert published(core, THREE, x=1)[1] == []


def test_a_notification_goes_to_who_wants_it_and_not_back():
    core = connected(AcyclicCore("1"))
    core.on_message(Interest(announced=(WIDE,)), TWO, 0)
    core.on_message(Interest(announced=(NARROW,)), THREE, 0)
    core.on_message(Subscribe("bob", "1", WIDE), Client("bob"), 0)
    notification, actions = published(core, TWO, x=7)
    assert actions == [
        Deliver(Client("bob"), "bob", notification, ("1",)),
        Forward(THREE, (Routed(notification, Header(1)),)),
    ]


def test_an_empty_filter_is_told_to_nobody():
    core = connected(AcyclicCore("1"))
    assert core.on_message(Subscribe("alice", "1", Filter("x > 5 and x < 3")), ALICE, 0) == []


def test_a_core_says_what_it_holds_and_what_it_has_done():
    core = connected(AcyclicCore("1"))
    core.on_message(Interest(announced=(WIDE,)), TWO, 0)
    core.on_message(Subscribe("alice", "1", NARROW), ALICE, 0)
    core.on_message(Subscribe("bob", "1", Pattern("[x > 1] -> [x > 2]")), Client("bob"), 0)
    published(core, THREE, x=7)
    inspection = core.inspect()
    assert inspection.tables == (Table("@clients", 3, 5 + len("[x > 1] -> [x > 2]")), Table("2", 1, 5))
    assert (inspection.filters, inspection.bytes) == (4, 28)
    assert inspection.work == Work(matched=1, compared=0)
    assert inspection.brokers is None


def test_what_is_left_is_named():
    core = connected(AcyclicCore("1"))
    core.on_message(Subscribe("alice", "1", NARROW), ALICE, 0)
    core.on_message(Interest(announced=(WIDE,)), TWO, 0)
    assert core.leftovers() == ["1 subscriptions of clients", "x > 5", "x > 0", "x > 0 of 2"]
    core.on_message(ClientDown(), ALICE, 0)
    core.on_message(LinkDown(), TWO, 0)
    assert core.leftovers() == []


# --- advertisements -----------------------------------------------------------------------------


def test_interest_goes_only_where_something_may_come_from():
    core = connected(AdvertisingCore("1"))
    assert core.on_message(Subscribe("alice", "1", NARROW), ALICE, 0) == []
    offer = Advertisement("x > 3")
    assert core.on_message(Advertised(announced=(offer,)), TWO, 0) == [
        Send(THREE, Advertised((), (offer,))),
        Send(TWO, Interest((), (NARROW,))),
    ]
    assert core.on_message(Advertised(announced=(Advertisement("x < 2"),)), THREE, 0) == [
        Send(TWO, Advertised((), (Advertisement("x < 2"),)))
    ]
    assert core.on_message(Advertised(withdrawn=(offer,)), TWO, 0) == [
        Send(THREE, Advertised((offer,))),
        Send(TWO, Interest((NARROW,))),
    ]


def test_what_was_not_advertised_is_refused():
    core = connected(AdvertisingCore("1"))
    core.on_message(Interest(announced=(WIDE,)), TWO, 0)
    _, (refused,) = published(core, ALICE, x=7)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, BadNotificationError)
    assert "advertise" in str(refused.error)
    core.on_message(Advertise("alice", Advertisement("x any")), ALICE, 0)
    notification, actions = published(core, ALICE, x=7)
    assert actions == [Forward(TWO, (Routed(notification, Header(1)),))]
    core.on_message(Unadvertise("alice", Advertisement("x any")), ALICE, 0)
    assert isinstance(published(core, ALICE, x=8)[1][0], Refuse)


def test_offers_of_a_client_go_with_it():
    core = connected(AdvertisingCore("1"))
    core.on_message(Advertise("alice", Advertisement("x any")), ALICE, 0)
    sent = core.on_message(ClientDown(), ALICE, 0)
    assert sent == [Send(neighbor, Advertised((Advertisement("x any"),))) for neighbor in (TWO, THREE)]


# --- general ------------------------------------------------------------------------------------


def test_records_are_flooded_once():
    core = connected(GeneralCore("1"))
    record = Links("9", 5, (("2", 1),))
    assert core.on_message(record, TWO, 0) == [Send(THREE, record)]
    assert core.on_message(record, THREE, 0) == []
    assert core.on_message(Links("9", 4, ()), THREE, 0) == []


def test_a_change_that_does_not_follow_is_refused():
    core = connected(GeneralCore("1"))
    core.on_message(Links("9", 1, ()), TWO, 0)
    core.on_message(Wants("9", 5, (WIDE,)), TWO, 0)
    follows = WantsChange("9", 8, 5, (WIDE,), (NARROW,))
    assert core.on_message(follows, TWO, 0) == [Send(THREE, follows)]
    assert core.wants_of("9") == (NARROW,)
    (refused,) = core.on_message(WantsChange("9", 12, 10, (), (WIDE,)), TWO, 0)
    assert isinstance(refused, Refuse)
    assert core.wants_of("9") == (NARROW,)


def test_what_others_know_from_before_a_crash_is_outbid():
    core = connected(GeneralCore("1"))
    sent = core.on_message(Wants("1", 50, (WIDE,)), TWO, 10)
    assert sent == [Send(neighbor, Wants("1", 51, ())) for neighbor in (TWO, THREE)]
    links = core.on_message(Links("1", 70, ()), TWO, 10)
    assert links == [Send(neighbor, Links("1", 71, (("2", 1), ("3", 1)))) for neighbor in (TWO, THREE)]


def test_those_of_a_batch_go_each_its_own_way():
    core = connected(GeneralCore("1"))
    for name, wanted in (("2", "x < 3"), ("3", "x > 1")):
        core.on_message(Links(name, 1, (("1", 1),)), Neighbor(name), 0)
        core.on_message(Wants(name, 1, (Filter(wanted),)), Neighbor(name), 0)
    batch = [Routed(Notification({"x": x}, source="alice", seq=x)) for x in (1, 2, 3, 4)]
    first, second = core.on_notifications(batch, ALICE, 0)
    assert [
        (forward.interface, [routed.notification["x"] for routed in forward.batch]) for forward in (first, second)
    ] == [
        (TWO, [1, 2]),
        (THREE, [2, 3, 4]),
    ]
    # What came from 2 does not go back there, with what did not in one batch.
    two, nine = OriginHeader(1, "2"), OriginHeader(1, "9")
    back = [Routed(Notification({"x": 2}, source="bob", seq=1), two), Routed(Notification({"x": 2}), nine)]
    assert core.on_notifications(back, TWO, 0) == [
        Forward(THREE, (Routed(back[0].notification, OriginHeader(2, "2")),))
    ]


# --- what neighbors may state -------------------------------------------------------------------


def refusal(actions):
    (refused,) = actions
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, LimitError)
    return refused.error.limit


def test_a_neighbor_that_states_too_many_filters_is_refused(monkeypatch):
    monkeypatch.setattr(remote, "REMOTE_FILTERS_MAX", 2)
    core = connected(AcyclicCore("1"))
    core.on_message(Interest((), (Filter("x = 1"), Filter("x = 2"))), TWO, 0)
    # What was never stated makes no room.
    one_more = Interest((Filter("x = 7"),), (Filter("x = 3"),))
    assert refusal(core.on_message(one_more, THREE, 0)) == "REMOTE_FILTERS_MAX"
    assert len(core.remote) == 2


def test_wants_that_replace_others_need_no_more_room_than_those(monkeypatch):
    monkeypatch.setattr(remote, "REMOTE_FILTERS_MAX", 2)
    core = connected(GeneralCore("1"))
    both = (Filter("x = 1"), Filter("x = 2"))
    for neighbor in (TWO, THREE):
        core.on_message(Links(neighbor.name, 1, (("1", 1),)), neighbor, 0)
    core.on_message(Wants("2", 1, both), TWO, 0)
    core.on_message(Wants("2", 2, (Filter("x = 3"), Filter("x = 4"))), TWO, 0)
    assert core.wants_of("2") == (Filter("x = 3"), Filter("x = 4"))
    assert refusal(core.on_message(Wants("3", 1, (Filter("x = 5"),)), THREE, 0)) == "REMOTE_FILTERS_MAX"
    assert refusal(core.on_message(WantsChange("2", 3, 2, (), (Filter("x = 5"),)), TWO, 0)) == "REMOTE_FILTERS_MAX"


def test_a_neighbor_that_advertises_or_delegates_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(advertising, "LINK_OFFERS_MAX", 1)
    monkeypatch.setattr(delegating, "LINK_PATTERNS_MAX", 1)
    monkeypatch.setattr(remote, "REMOTE_FILTERS_MAX", 1)
    core = connected(delegating.DelegatingCore("1"))
    core.on_message(Advertised((), (Advertisement("x > 5"),)), TWO, 0)
    assert refusal(core.on_message(Advertised((), (Advertisement("y any"),)), TWO, 0)) == "LINK_OFFERS_MAX"
    # Another link has its own.
    assert not any(
        isinstance(action, Refuse) for action in core.on_message(Advertised((), (Advertisement("z any"),)), THREE, 0)
    )
    first, second = Pattern("[x = 1] -> [x = 2]"), Pattern("[x = 1] -> [x = 3]")
    core.on_message(Delegated((), (first,)), TWO, 0)
    assert refusal(core.on_message(Delegated((), (second,)), TWO, 0)) == "LINK_PATTERNS_MAX"
    wide = Interest((), (Filter("x = 1"), Filter("x = 2")))
    assert refusal(core.on_message(Delegated((), (), (), wide), TWO, 0)) == "REMOTE_FILTERS_MAX"
