"""Covers and overlaps: one implementation for subscriptions and advertisements (SIENA §3.7).

A filter is a union of boxes. One union covers another when each box of the other lies within it. Where
no single box holds it, what sticks out of one box is cut into smaller boxes and looked for in the rest.
The cutting is exact; past COVER_CUTS_MAX it gives the sound answer "no".

`covers` is exact except past two named limits, where it may answer "no" wrongly: COVER_CUTS_MAX (a
filter covered only by many alternatives together) and `strings.AUTOMATON_STEPS_MAX` (string constraints
whose joint automaton is very large). `overlaps` may answer "yes" wrongly only past the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.model.box import Box

# A union of n alternatives may need a number of cuts exponential in n; real ones need a handful.
COVER_CUTS_MAX: Final = 2_000


class _Budget:
    def __init__(self) -> None:
        self.cuts = COVER_CUTS_MAX


def covers(wider: Sequence[Box], narrower: Sequence[Box]) -> bool:
    """Whether all that is in `narrower` is in `wider`."""
    return all(covers_box(wider, box) for box in narrower)


def covers_box(wider: Sequence[Box], box: Box) -> bool:
    if len(wider) == 1:
        return wider[0].covers(box)
    return _is_covered(box, wider, _Budget())


def _is_covered(box: Box, wider: Sequence[Box], budget: _Budget) -> bool:
    touching = [one for one in wider if one.overlaps(box)]
    if any(one.covers(box) for one in touching):
        return True
    budget.cuts -= 1
    if len(touching) < 2 or budget.cuts < 0:
        return False
    first, *rest = touching
    return all(_is_covered(part, rest, budget) for part in box.minus(first))


def overlaps(first: Sequence[Box], second: Sequence[Box]) -> bool:
    """Whether something is in both."""
    return any(a.overlaps(b) for a in first for b in second)
