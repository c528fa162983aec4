"""A long change between brokers, said as several: the same at the end, and never less in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.routing.siena import messages
from catchment.routing.siena.messages import in_parts

some = st.lists(st.integers(0, 12), unique=True, max_size=10)


@given(some, some, some, st.integers(1, 4))
def test_parts_say_the_same_with_nothing_missing_in_between(
    held: list[int], gone: list[int], new: list[int], most: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "MESSAGE_FILTERS_MAX", most)
        parts = in_parts(gone, new)
    # In one message, withdrawals come first.
    at_once = (set(held) - set(gone)) | set(new)
    needed = set(held) & at_once
    now = set(held)
    for withdrawn, announced in parts:
        assert len(withdrawn) + len(announced) <= most
        now = (now - set(withdrawn)) | set(announced)
        assert now >= needed
    assert now == at_once
    # All announcements come before all withdrawals: what a withdrawn filter let through, an announced one may too.
    if len(parts) > 1:
        kinds = [bool(withdrawn) for withdrawn, _ in parts]
        assert kinds == sorted(kinds)
        assert not any(withdrawn and announced for withdrawn, announced in parts)
