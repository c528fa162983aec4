"""Steps: how much work a question about filters may take, counted, never timed.

A question runs within `budget(steps)`. What it does is charged in steps of about a microsecond; past the budget it ends
with `BudgetSpent`, and whoever asked gives the sound answer. Steps depend on the question alone: an answer that was
cached is charged what it cost when it was found (`counted_cache`). So two brokers that are asked the same give the same
answer, whatever they were asked before.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class BudgetSpent(Exception):  # noqa: N818 -- not an error: it ends a computation that nobody waits for any longer
    """The steps of a question are spent. It never leaves the model."""


class _Meter(threading.local):
    # Steps since the thread began, and how many there may be; no limit if that is infinite.
    used: int = 0
    # Of these, the steps of answers that were found before.
    recalled: int = 0
    most: float = math.inf


_METER = _Meter()


def charge(steps: int) -> None:
    """Counts some steps; BudgetSpent if they were the last."""
    before = _METER.used
    _METER.used += steps
    if _METER.used > _METER.most:
        # The count stops one past the budget. Otherwise an answer that is recalled, which is charged at once, would
        # count more than the same answer when it is computed, which ends in the middle.
        _METER.used = max(before, int(_METER.most) + 1)
        raise BudgetSpent


@contextmanager
def budget(steps: int) -> Iterator[None]:
    """What is done within may take so many steps. A budget within a budget is one of its own: what it takes is not
    taken from the outer one, because its answer may be kept, and then takes nothing the next time."""
    outer, before = _METER.most, _METER.used
    _METER.most = before + steps
    try:
        yield
    finally:
        # The limit moves on by what was used within.
        _METER.most = outer + _METER.used - before


@contextmanager
def share(steps: int) -> Iterator[None]:
    """What is done within may take so many steps of the present budget, and BudgetSpent ends it past them. Unlike
    `budget`, what it takes is taken from the present budget too: whoever goes on after BudgetSpent must `charge` first,
    which ends it too if nothing is left."""
    outer = _METER.most
    _METER.most = min(outer, _METER.used + steps)
    try:
        yield
    finally:
        _METER.most = outer


def uncounted(function: F) -> F:
    """A function whose steps do not count: it is short, and its answers are kept."""

    @wraps(function)
    def asked(*question: Any) -> Any:
        before = _METER.used, _METER.recalled, _METER.most
        _METER.most = math.inf
        try:
            return function(*question)
        finally:
            _METER.used, _METER.recalled, _METER.most = before

    return asked  # type: ignore[return-value]


def steps_used() -> int:
    """Steps of this thread so far."""
    return _METER.used


def steps_worked() -> int:
    """The same without the steps of answers that were recalled: what this thread has really done. Only for looking:
    what it depends on, such as which answers are still kept, must not change an answer."""
    return _METER.used - _METER.recalled


def counted_cache(entries_max: int) -> Callable[[F], F]:
    """As `lru_cache`, but an answer that is found again is charged as often. The function must open no `budget` of its
    own: what that takes would be charged to the budget around it, but only when the answer is found again."""

    def decorated(function: F) -> F:
        known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        lock = threading.Lock()

        def asked(*question: Hashable) -> Any:
            kept = known.get(question)
            if kept is not None:
                before = _METER.used
                try:
                    charge(kept[1])
                finally:
                    _METER.recalled += _METER.used - before
                return kept[0]
            before = _METER.used
            answer = function(*question)
            with lock:
                known[question] = (answer, _METER.used - before)
                if len(known) > entries_max:
                    known.popitem(last=False)
            return answer

        asked.cache_clear = known.clear  # type: ignore[attr-defined]
        return asked  # type: ignore[return-value]

    return decorated
