"""Filters: reading one raises nothing but a CatchmentError, and no question about one goes past its budget."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from catchment.errors import CatchmentError
from catchment.matching import Matcher
from catchment.model.advertisement import Advertisement
from catchment.model.budget import steps_used
from catchment.model.cesql import Cesql
from catchment.model.filter import RELATION_STEPS_MAX, Filter
from catchment.model.pattern import Pattern
from tests.fuzz import texts

# One question, or the first one with all that it has to find out about both filters: their normal forms, and what they
# are routed by. No question may take more steps of about a microsecond.
QUESTION_STEPS_MAX = 3 * RELATION_STEPS_MAX
NOTIFICATION: dict[str, Any] = {"x": 1, "s": "t7 abc", "a0": 1, "b0": -1, "price": 8.25}


class OverBudgetError(AssertionError):
    pass


def asked(what: str, question: Callable[[], object]) -> object:
    before = steps_used()
    answer = question()
    if (used := steps_used() - before) > QUESTION_STEPS_MAX:
        raise OverBudgetError(f"{what} took {used:,} steps: QUESTION_STEPS_MAX is {QUESTION_STEPS_MAX:,}")
    return answer


def questions(filter: Filter, other: Filter) -> None:
    """What a broker asks about a filter that it is told."""
    routed = filter.routed
    asked("routed", lambda: filter.routed)
    asked("covers", lambda: filter.covers(other))
    asked("is covered", lambda: other.covers(filter))
    asked("overlaps", lambda: filter.overlaps(other))
    asked("is empty", lambda: filter.is_empty)
    matcher = Matcher()
    matcher.add("fuzzed", filter)
    matches = bool(matcher.match(NOTIFICATION))
    assert matches == filter.matches(NOTIFICATION)
    assert not matches or routed.matches(NOTIFICATION)


def read(chance: random.Random) -> tuple[str, Callable[[str], object]]:
    match chance.randrange(8):
        case 0:
            return texts.cesql(chance), Cesql
        case 1:
            return texts.pattern(chance), Pattern
        case 2:
            return texts.advertisement(chance), Advertisement
    return texts.filter_text(chance), Filter


def fuzzed(seed: int, count: int) -> Iterator[str]:
    """Tries so many filters. Yields each text before it is tried: the last one is what something was wrong with."""
    chance = random.Random(seed)
    other = Filter("x > 0 and s contains 't'")
    for _ in range(count):
        text, kind = read(chance)
        yield f"{kind.__name__} {text!r}"
        try:
            made = asked("reading", lambda text=text, kind=kind: kind(text))  # type: ignore[misc]
            if isinstance(made, Cesql):
                made = asked("the filter of CESQL", lambda made=made: made.filter)  # type: ignore[misc]
            if isinstance(made, Filter):
                questions(made, other)
                other = made if chance.random() < 0.3 else other
        except CatchmentError:
            continue
