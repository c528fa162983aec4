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
    for i, id in enumerate(ids):
        matcher.add(id, Filter.of(("level", ">", i)))
    matches = matcher.match_batch([{"level": level} for level in levels])
    texts = id_texts_of(matches.tables)
    assert texts is not None
    expected = [sorted(ids[:level]) for level in levels]
    offsets, ranks = texts.ranked([matches])
    listed = texts.listed(offsets, ranks)
    assert listed is not None
    assert listed.to_pylist() == expected
    views = texts.views()
    assert (views is None) == any(len(id.encode()) > VIEWED_BYTES_MAX for id in ids)
    if views is not None:
        viewed = texts.listed(offsets, ranks, views)
        assert viewed is not None
        viewed.validate(full=True)
        assert viewed.to_pylist() == expected
