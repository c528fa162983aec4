"""Matches as Arrow lists of ids: as strings, and as views where ids are short enough."""

from hypothesis import example, given
from hypothesis import strategies as st

from catchment.matching import Matcher
from catchment.matching.lists import VIEWED_BYTES_MAX, id_texts_of
from catchment.model.filter import Filter

LONGEST = "x" * VIEWED_BYTES_MAX
ids = st.lists(st.text(min_size=1, max_size=VIEWED_BYTES_MAX + 1), min_size=1, max_size=12, unique=True)
levels = st.lists(st.integers(0, 13), max_size=12)


@given(ids, levels)
@example([LONGEST, LONGEST[1:], "é" * (VIEWED_BYTES_MAX // 2), "\0", "\0\0"], [5, 0, 3])
@example([LONGEST + "x", "a"], [2, 1])
def test_views_say_what_strings_say(ids, levels):
    matcher = Matcher()
    for i, one in enumerate(ids):
        matcher.add(one, Filter.of(("level", ">", i)))
    found = matcher.match_batch([{"level": level} for level in levels])
    words = id_texts_of(found.tables)
    expected = [sorted(ids[:level]) for level in levels]
    assert words.listed(*words.ranked([found])).to_pylist() == expected
    views = words.views()
    assert (views is None) == any(len(one.encode()) > VIEWED_BYTES_MAX for one in ids)
    if views is not None:
        listed = words.listed(*words.ranked([found]), views)
        listed.validate(full=True)
        assert listed.to_pylist() == expected
