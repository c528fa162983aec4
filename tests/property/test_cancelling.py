"""What a broker holds of an identity after it subscribed and cancelled: the widest of what it still wants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Cancel, Client, ClientDown, ClientUp, LinkUp, Neighbor, Subscribe, Unsubscribe
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from tests import strategies

ALICE, BOB, SOUTH = Client("alice"), Client("bob"), Neighbor("south")
CLIENTS = (ALICE, BOB)

# Few of them, so that one covers another or says the same in other words.
ranges = st.builds(lambda low, width: Filter(f"x > {low} and x < {low + width}"), st.integers(0, 2), st.integers(2, 5))
in_two = st.builds(
    lambda low: Filter(f"x > {low} and x < {low + 2} or x > {low + 1} and x < {low + 3}"), st.integers(0, 3)
)
filters = ranges | ranges | in_two | strategies.small_scalar_filters
patterns = st.lists(ranges, min_size=1, max_size=3).map(lambda some: Pattern(" -> ".join(f"[{one}]" for one in some)))
subscriptions = st.tuples(st.just("subscribe"), st.sampled_from(CLIENTS), filters | patterns)
cancellations = st.tuples(st.just("cancel"), st.sampled_from(CLIENTS), st.integers(0, 20))
unsubscriptions = st.tuples(st.just("unsubscribe"), st.sampled_from(CLIENTS), filters)


def says_the_same(one: Filter, other: Filter) -> bool:
    return one.covers(other) and other.covers(one)


def assert_widest(found: tuple[Filter, ...], wanted: list[Filter]) -> None:
    """No two of which one covers the other, each of them wanted, and all that is wanted below one."""
    assert not [(one, other) for one in found for other in found if one is not other and one.covers(other)]
    assert all(any(says_the_same(one, other) for other in wanted) for one in found)
    assert all(any(one.covers(other) for one in found) for other in wanted)


def assert_right(core: HopByHopCore) -> None:
    wanted = {one: core.clients.filters_of(one.name) for one in CLIENTS}
    nonempty = {one: [filter for filter in some if not filter.is_empty] for one, some in wanted.items()}
    for one in CLIENTS:
        assert_widest(core.interest.held_by(one.name), nonempty[one])
    assert_widest(core.interest.told_to(SOUTH), [*nonempty[ALICE], *nonempty[BOB]])


@given(
    st.lists(subscriptions | subscriptions | cancellations | cancellations | unsubscriptions, min_size=8, max_size=25)
)
def test_what_is_held_is_the_widest_of_what_is_wanted(steps):
    core = AcyclicCore("north")
    core.on_message(LinkUp(), SOUTH, 0)
    for client in CLIENTS:
        core.on_message(ClientUp(client.name), client, 0)
    for number, (what, client, given_) in enumerate(steps):
        if what == "subscribe":
            core.on_message(Subscribe(client.name, str(number), given_), client, 0)
        elif what == "unsubscribe":
            core.on_message(Unsubscribe(client.name, given_), client, 0)
        elif ids := list(core.clients.wants_of(client.name)):
            core.on_message(Cancel(client.name, ids[given_ % len(ids)]), client, 0)
        assert_right(core)
    for client in CLIENTS:
        core.on_message(ClientDown(), client, 0)
    assert not len(core.interest)
    assert not core.interest.told_to(SOUTH)
