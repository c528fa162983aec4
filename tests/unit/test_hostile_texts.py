"""Texts that cost much once: reading them takes no step of a budget, and questions about them take bounded steps."""

from collections.abc import Callable
from typing import Any

import pytest

from catchment import Filter
from catchment.matching import Matcher
from catchment.model.budget import steps_used

# Of all that is asked of a filter below. Each question has a budget of its own.
QUESTIONS_STEPS_MAX = 1_000_000


def filled(part: Callable[[int], str], joined: str, characters: int = 10_000) -> str:
    """As many parts as fit into so many characters."""
    parts: list[str] = []
    size = 0
    while (size := size + len(part(len(parts))) + len(joined)) <= characters:
        parts.append(part(len(parts)))
    return joined.join(parts)


def listed(operator: str, text: str, characters: int) -> str:
    alternatives = filled(lambda i: f's {operator} "{text}{i}"', " or ", characters)
    return f"({alternatives})"


TEXTS = {
    "pairs": " and ".join(f"(a{i} > 0 or b{i} < 0)" for i in range(7)),
    "many pairs": filled(lambda i: f"(a{i} > 0 or b{i} < 0)", " and "),
    "suffixes": listed("suffix", "t", 9_000),
    "substrings": listed("contains", "t", 9_000),
    "substrings of both cases": listed("contains nocase", "T", 9_000),
    "lists and not lists": f"{listed('suffix', 't', 3_000)} and {listed('contains', 'u', 3_000)} and not "
    f"{listed('contains', 'v', 1_500)} and not {listed('prefix', 'w', 1_500)}",
    "globs": filled(lambda i: f's glob "*a{i}?b*c*"', " and "),
    "no globs": filled(lambda i: f'not s glob "*a?{i}b*c*"', " and "),
    "ranges": filled(lambda i: f"(x > {2 * i} and x < {2 * i + 1})", " or "),
    "absences": filled(lambda i: f"(not exists(a{i}) or a{i} = 1)", " and "),
    "differences": filled(lambda i: f's != "t{i}"', " and "),
}
ROWS: list[dict[str, Any]] = [
    {"s": "t7"},
    {"s": "u5 T3 t1"},
    {"x": 5},
    {"x": 4.5},
    {f"a{i}": 1 for i in range(400)},
    {},
]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_reading_and_matching_take_no_steps(text: str) -> None:
    before = steps_used()
    filter = Filter(text)
    matcher = Matcher()
    matcher.add("hostile", filter)
    matched = [filter.matches(row) for row in ROWS]
    assert [bool(matcher.match(row)) for row in ROWS] == matched
    assert steps_used() == before


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_questions_take_bounded_steps(text: str) -> None:
    filter, other = Filter(text), Filter('s contains "t" and a1 > 0')
    before = steps_used()
    assert filter.routed.covers(filter)
    assert filter.covers(filter)
    assert not filter.covers(other) or other.overlaps(filter) or other.is_empty
    assert not filter.is_empty
    assert filter == Filter(text) == Filter(str(filter)) == Filter.from_json(filter.to_json())
    assert steps_used() - before < QUESTIONS_STEPS_MAX
    assert all(filter.routed.matches(row) for row in ROWS if filter.matches(row))
