"""What a notification takes the short way of checking for equals what it takes the long way for."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.model.values import INT_MAX, INT_MIN


class Text(str):
    """Somebody's own kind of string."""

    __slots__ = ()


class Number(float):
    """And of number."""

    __slots__ = ()


NAMES = st.sampled_from(("x", "y", "", "$x", "é", "\ud800", "n" * 300, 3, None))
VALUES = st.one_of(
    st.integers(INT_MIN - 2, INT_MAX + 2),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.datetimes(timezones=st.sampled_from((None, UTC, timezone(timedelta(hours=2))))),
    st.sampled_from((-0.0, "\ud800", "a" * 65_536, "a" * 65_537, Text("é"), Number(1.5), None, b"bytes", [1])),
)


def made(attributes, **envelope):
    """The values with their types, or the error."""
    try:
        found = Notification(attributes, **envelope)
    except CatchmentError as problem:
        return type(problem), str(problem)
    return [(name, type(value), repr(value)) for name, value in found.matched.items()]


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_dict_is_checked_as_pairs_are(attributes):
    assert made(attributes) == made(list(attributes.items()))


@given(VALUES, VALUES, VALUES)
def test_an_envelope_has_values_of_its_types(source, seq, time):
    found = made({}, source=source, seq=seq, time=time)
    if isinstance(found, list):
        types = dict.fromkeys(("$source", "$time", "$seq"))
        types |= {name: kind for name, kind, _ in found}
        assert [types["$source"], types["$seq"], types["$time"]] == [
            None if one is None else kind for one, kind in ((source, str), (seq, int), (time, datetime))
        ]
        published = Notification({}, time=time).time
        assert (published is None) is (time is None)
        assert published is None or published.tzinfo is UTC
        assert (Notification({}, source=source).source, Notification({}, seq=seq).seq) == (source, seq)
