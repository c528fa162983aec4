"""What a broker holds of an identity after it subscribed and cancelled: the widest of what it still wants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.messages import Cancel, Client, ClientDown, ClientUp, LinkUp, Neighbor, Subscribe, Unsubscribe
from catchment.routing.siena.acyclic import AcyclicCore
from tests import strategies

ALICE, BOB, SOUTH = Client("alice"), Client("bob"), Neighbor("south")
CLIENTS = (ALICE, BOB)

# Few of them, so that one covers another or says the same in other words.
ranges = st.builds(lambda low, width: Filter(f"x > {low} and x < {low + width}"), st.integers(0, 2), st.integers(2, 5))
in_two = st.builds(
    lambda low: Filter(f"x > {low} and x < {low + 2} or x > {low + 1} and x < {low + 3}"), st.integers(0, 3)
)
filters = ranges | ranges | in_two | strategies.small_scalar_filters
patterns = st.lists(ranges, min_size=1, max_size=3).map(
    lambda steps: Pattern(" -> ".join(f"[{filter}]" for filter in steps))
)
subscriptions = st.tuples(st.just("subscribe"), st.sampled_from(CLIENTS), filters | patterns)
cancellations = st.tuples(st.just("cancel"), st.sampled_from(CLIENTS), st.integers(0, 20))
unsubscriptions = st.tuples(st.just("unsubscribe"), st.sampled_from(CLIENTS), filters)


def says_the_same(first: Filter, second: Filter) -> bool:
    return first.covers(second) and second.covers(first)


def assert_widest(held: tuple[Filter, ...], wanted: list[Filter]) -> None:
    """No filter held covers another, each is wanted, and each that is wanted is covered by one of them."""
    assert not [(wide, other) for wide in held for other in held if wide is not other and wide.covers(other)]
    assert all(any(says_the_same(wide, filter) for filter in wanted) for wide in held)
    assert all(any(wide.covers(filter) for wide in held) for filter in wanted)


def assert_right(core: AcyclicCore) -> None:
    wanted = {
        client: [filter for filter in core.clients.filters_of(client.name) if not filter.is_empty] for client in CLIENTS
    }
    for client in CLIENTS:
        assert_widest(core.interest.held_by(client.name), wanted[client])
    assert_widest(core.interest.told_to(SOUTH), [*wanted[ALICE], *wanted[BOB]])


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
