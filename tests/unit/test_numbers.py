"""The numbers that publishers give: no number goes back or leaps ahead, and nobody can silence a source."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Notification
from catchment.errors import BadNumberError
from catchment.model.values import INT_MAX
from catchment.node import numbers as numbers_module
from catchment.node.numbers import LINK_SEQ_AHEAD_MAX, SEQ_AHEAD_MAX, Numbers
from catchment.routing.messages import SECOND, Header, Neighbor, Routed, Subscribe
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import OriginHeader
from tests.unit.test_node import ALICE, ALL, TWO, Outlet, come, node_of

HOUR = 3_600 * SECOND
NOW = 1_800_000_000 * SECOND


def note(seq: int | None, source: str | None = "p") -> Notification:
    return Notification({"x": 1}, source=source, seq=seq)


def publish(numbers: Numbers, *seqs: int | None, now: int = NOW, source: str = "p") -> None:
    numbers.remember(numbers.checked([note(seq, source) for seq in seqs], now))


def refusal(numbers: Numbers, *seqs: int, now: int = NOW) -> BadNumberError:
    with pytest.raises(BadNumberError) as raised:
        publish(numbers, *seqs, now=now)
    return raised.value


def test_numbers_grow():
    numbers = Numbers()
    publish(numbers, 1, 2, 7)
    for seq in (7, 6, 0, -(2**63)):
        problem = refusal(numbers, seq)
        assert (problem.after, "goes back" in str(problem)) == (7, True)
    publish(numbers, 8)
    # Another source has numbers of its own, and a notification without a number is not counted.
    publish(numbers, 1, source="q")
    publish(numbers, None)
    assert (numbers.last("p"), numbers.last("q"), numbers.last("r")) == (8, 1, None)


@pytest.mark.parametrize("seq", [INT_MAX, NOW + HOUR, NOW + SEQ_AHEAD_MAX + 1])
@pytest.mark.parametrize("last", [None, 3, NOW - HOUR, NOW + SECOND])
def test_a_number_does_not_leap(seq: int, last: int | None):
    numbers = Numbers()
    if last is not None:
        publish(numbers, last)
    problem = refusal(numbers, seq)
    assert "leaps ahead" in str(problem)
    assert problem.after == max(NOW, last or 0)
    # It has not silenced anybody: the next number is taken at once.
    publish(numbers, problem.after + 1)


def test_a_number_may_be_ahead_as_far_as_clocks_may_differ():
    numbers = Numbers()
    publish(numbers, NOW + SEQ_AHEAD_MAX)
    # Then it goes on in steps of one: that is slower than the clock.
    publish(numbers, NOW + SEQ_AHEAD_MAX + 1)
    assert refusal(numbers, NOW + SEQ_AHEAD_MAX + 3).after == NOW + SEQ_AHEAD_MAX + 1


def test_a_publisher_goes_on_after_the_clock_of_its_broker_was_set_back():
    numbers = Numbers()
    publish(numbers, NOW)
    publish(numbers, *range(NOW + 1, NOW + 1_000), now=NOW - HOUR)
    assert refusal(numbers, NOW - HOUR + 5, now=NOW - HOUR).after == NOW + 999


def test_a_batch_is_taken_as_a_whole_or_not_at_all():
    numbers = Numbers()
    assert refusal(numbers, 4, 5, 5).after == 3
    assert refusal(numbers, 4, INT_MAX).after == NOW
    assert numbers.last("p") is None
    publish(numbers, 4)


def routed(*seqs: int | None, source: str | None = "p") -> list[Routed]:
    return [Routed(note(seq, source), Header(1)) for seq in seqs]


def test_a_broker_learns_numbers_from_its_neighbors():
    numbers = Numbers()
    batch = routed(5, 9, 7, None)
    assert numbers.plausible(batch, NOW) is batch
    assert numbers.plausible(routed(3), NOW)
    assert refusal(numbers, 9).after == 9
    publish(numbers, 10)


def test_absurd_numbers_of_a_neighbor_are_dropped_and_silence_nobody():
    numbers = Numbers()
    batch = [*routed(5), *routed(INT_MAX), *routed(NOW + LINK_SEQ_AHEAD_MAX + 1), *routed(INT_MAX, source=None)]
    assert numbers.plausible(batch, NOW) == [batch[0], batch[3]]
    publish(numbers, 6)
    # One that is ahead by less was honest, perhaps; the source goes on after it.
    ahead = NOW + LINK_SEQ_AHEAD_MAX
    numbers.plausible(routed(ahead), NOW)
    assert refusal(numbers, NOW).after == ahead
    publish(numbers, ahead + 1)


def test_the_number_of_sources_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(numbers_module, "NUMBERED_SOURCES_MAX", 3)
    numbers = Numbers()
    for n in range(5):
        publish(numbers, 7, source=f"s{n}")
    assert [numbers.last(f"s{n}") for n in range(5)] == [None, None, 7, 7, 7]


HALVES = st.integers(0, 5).map(lambda n: n * SEQ_AHEAD_MAX // 2)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("pq"),
            st.lists(HALVES | st.integers(0, 9), min_size=1, max_size=3),
            st.integers(0, 3).map(lambda n: n * SEQ_AHEAD_MAX),
        )
    )
)
def test_numbers_are_taken_as_the_rule_says(publications: Sequence[tuple[str, list[int], int]]):
    numbers = Numbers()
    taken: dict[str, list[int]] = {"p": [], "q": []}
    for source, seqs, now in publications:
        # The rule, number by number, on a copy of all that was taken.
        after = list(taken[source])
        fits = True
        for seq in seqs:
            is_ahead = seq > now + SEQ_AHEAD_MAX and not (after and seq == max(after) + 1)
            fits = fits and not is_ahead and all(seq > earlier for earlier in after)
            after.append(seq)
        try:
            publish(numbers, *seqs, now=now, source=source)
        except BadNumberError as problem:
            assert not fits
            # What the refusal names can be gone on after, at once.
            numbers.checked([note(problem.after + 1, source)], now)
        else:
            assert fits
            taken[source] = after


# --- at a node ----------------------------------------------------------------------------------


def test_what_is_dropped_as_old_or_absurd_is_counted():
    broker = node_of(GeneralCore("1"))
    outlet = come(broker)
    broker.link_up(TWO, 1, Outlet())
    header = OriginHeader(1, "2")
    for seq in (5, 5, 4):
        broker.arrived(Neighbor("2"), [Routed(note(seq), header)])
    assert outlet.taken() == [("delivered", 1)]
    assert broker.counts()["old"] == 2
    broker.arrived(Neighbor("2"), [Routed(note(INT_MAX), header)])
    assert outlet.taken() == []
    assert (broker.counts()["absurd"], broker.counts()["received"]) == (1, 4)
    broker.arrived(Neighbor("2"), [Routed(note(6), header)])
    assert outlet.taken() == [("delivered", 1)]
    # Published here, with a number that is old in the network: refused, not dropped.
    (refused,) = broker.publish(ALICE, [note(6)])
    assert isinstance(refused.error, BadNumberError)
    assert broker.counts()["old"] == 2


def test_deliveries_that_are_not_made_again_stay_counted_when_the_client_is_gone():
    broker, outlet = node_of(GeneralCore("1")), Outlet()
    broker.client_up(ALICE, "alice", {"p": 9}, outlet)
    assert broker.ask(ALICE, Subscribe("alice", "s", ALL)) == []
    assert broker.publish(ALICE, [note(5)]) == []
    assert outlet.taken() == []
    broker.client_down(ALICE)
    assert broker.counts()["old"] == 1
