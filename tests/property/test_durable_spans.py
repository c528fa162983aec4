"""Whatever is lost, doubled or reordered on the way: a reader takes each entry once, in order, and none is left out.

The twin is obvious: it writes down every entry of the log that is due, and what the reader has taken must be a
beginning of that list. It knows nothing of positions.
"""

from hypothesis import given
from hypothesis import strategies as st

from catchment.model.notification import Notification
from catchment.routing.durable.messages import Share, Taken
from catchment.routing.durable.serving import Serving
from catchment.routing.durable.spans import Verdict, verdict
from catchment.routing.messages import Client, Deliver

HEAD = 12
LOG = "log"
READER = Client("reader")


@st.composite
def pieces(draw, due: list[int]) -> list[Share]:
    """True pieces of the log, in any order and number."""
    shares = []
    for _ in range(draw(st.integers(0, 12))):
        after = draw(st.integers(0, HEAD))
        upto = draw(st.integers(after, HEAD))
        entries = tuple((epoch - 1, ("a",)) for epoch in due if after < epoch <= upto)
        shares.append(Share("reader", 1, after, upto, entries, 0, 0))
    return shares


@st.composite
def runs(draw) -> tuple[list[int], list[Share], list[int]]:
    due = sorted(draw(st.sets(st.integers(1, HEAD))))
    shares = draw(pieces(due))
    return due, shares, draw(st.lists(st.integers(0, 3), min_size=len(shares), max_size=len(shares)))


@given(runs())
def test_a_reader_takes_a_beginning_of_what_it_is_due(run):
    due, shares, taking = run
    serving = Serving()
    serving.begin("reader", READER, 1, {LOG: 0})
    entries = tuple((epoch, Notification({"x": epoch})) for epoch in range(1, HEAD + 1))
    given_epochs: list[int] = []
    taken = acknowledged = 0
    for share, count in zip(shares, taking, strict=True):
        actions, at = serving.share("storage", LOG, share, entries)
        given_epochs += [action.epoch for action in actions if isinstance(action, Deliver)]
        said = [at]
        for _ in range(count):
            if taken < len(given_epochs):
                said.append(serving.taken(READER, Taken("reader", LOG, given_epochs[taken])))
                taken += 1
        acknowledged = max([acknowledged, *(each.position for each in said if each is not None)])
        assert given_epochs == due[: len(given_epochs)]
        # Nothing that was not taken is acknowledged.
        assert {epoch for epoch in due if epoch <= acknowledged} <= set(given_epochs[:taken])


@given(runs(), st.integers(0, HEAD))
def test_a_storage_that_begins_again_brings_the_reader_to_the_end(run, start):
    """After any disorder, one piece from what was taken to the head completes the list."""
    due, shares, _ = run
    serving = Serving()
    serving.begin("reader", READER, 1, {LOG: start})
    entries = tuple((epoch, Notification({"x": epoch})) for epoch in range(1, HEAD + 1))
    got = []
    last = Share("reader", 1, start, HEAD, tuple((e - 1, ("a",)) for e in due if e > start), 0, start)
    for share in [*shares, last]:
        actions, _ = serving.share("storage", LOG, share, entries)
        got += [action.epoch for action in actions if isinstance(action, Deliver)]
    assert got == [epoch for epoch in due if epoch > start]


@given(st.integers(0, 9), st.integers(0, 9) | st.none(), st.integers(0, 9))
def test_the_accept_rule(position, after, upto):
    """Against sets: a piece is of use if it has something new, and says all that lies between."""
    first = position if after is None else after
    told, known = set(range(first + 1, upto + 1)), set(range(1, position + 1))
    has_hole = first > position
    expected = Verdict.GAP if has_hole else Verdict.TAKE if told - known else Verdict.KNOWN
    assert verdict(position, after, upto) is expected
