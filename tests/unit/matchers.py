"""Matchers, for their tests."""

from catchment.matching import Matcher
from catchment.model.filter import Filter


def matcher_of(**texts):
    found = Matcher()
    for id, text in texts.items():
        found.add(id, Filter(text))
    return found


def many(count, text="x = {i}"):
    found = Matcher()
    found.add_many([f"s{i:03}" for i in range(count)], [Filter(text.format(i=i)) for i in range(count)])
    return found
