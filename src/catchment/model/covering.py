"""Covers and overlaps: one implementation for subscriptions and advertisements (SIENA §3.7).

A filter is a union of boxes. A union covers another if each box of the other lies within it. Where no single box
contains such a box, the part that sticks out of a wider box is cut into smaller boxes, and these are looked for in the
other wider boxes. The cutting is exact. Past COVER_STEPS_MAX it gives the sound answer "no".

`covers` is exact except past two named limits, where it may answer "no" wrongly: COVER_STEPS_MAX (a
filter covered only by many alternatives together) and `automaton.AUTOMATON_STEPS_MAX` (string constraints
whose joint automaton is very large). `overlaps` may answer "yes" wrongly only past the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.model.box import Box
from catchment.model.budget import charge

# Comparisons of boxes for one question. A union of n alternatives may need exponentially many; real
# unions need a handful.
COVER_STEPS_MAX: Final = 10_000


class Budget:
    """How many steps are left. Several questions may share a budget, so that together they take bounded time."""

    def __init__(self, steps: int = COVER_STEPS_MAX) -> None:
        self.steps = steps


def covers(wider: Sequence[Box], narrower: Sequence[Box]) -> bool:
    """Whether the union `narrower` lies within the union `wider`."""
    return all(covers_box(wider, box) for box in narrower)


def covers_box(wider: Sequence[Box], box: Box, budget: Budget | None = None) -> bool:
    """Whether a box lies within the union `wider`."""
    charge(4 * len(wider))
    if any(other.covers(box) for other in wider):
        return True
    if len(wider) < 2:
        return False
    # One notification of the box that is in none of the others decides it, before anything is cut.
    sample = box.sample()
    if sample is not None and not any(other.contains(sample) for other in wider):
        return False
    # A box with few constraints is large and leaves the fewest parts: those come first.
    return not _sticks_out(box, sorted(wider, key=lambda other: len(other.sets)), budget or Budget())


def _sticks_out(box: Box, wider: Sequence[Box], budget: Budget) -> bool:
    """Whether some of `box` is in none of `wider` (or, past the budget, may be)."""
    # A part of `box`, and the first box of `wider` that was not yet cut out of it.
    open_parts = [(box, 0)]
    while open_parts:
        part, at = open_parts.pop()
        while at < len(wider) and budget.steps > 0 and not wider[at].overlaps(part):
            at += 1
            budget.steps -= 1
            charge(4)
        if at == len(wider) or budget.steps <= 0:
            return True
        budget.steps -= 1
        charge(10)
        open_parts.extend((rest, at + 1) for rest in part.minus(wider[at]))
    return False


def overlaps(first: Sequence[Box], second: Sequence[Box]) -> bool:
    """Whether the two unions have a notification in common."""
    charge(4 * len(first) * len(second))
    return any(a.overlaps(b) for a in first for b in second)
