"""A wider filter with fewer comparisons, for forwarding (filter propagation §3.4, then better than it).

The paper drops one operand of the deepest `and` and prefers attributes that occur elsewhere. Here every step that
makes the filter smaller is tried:

- drop a constraint, or all constraints on one attribute, from an alternative;
- widen a list of values, or a range with gaps, to one range;
- join two alternatives into the least alternative around both.

The step is taken that lets the fewest additional notifications through for each comparison saved. This is measured
over the whole union: notifications that another alternative lets through anyway cost nothing.

The result always covers the original. A filter of zero comparisons matches everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Final

from catchment.errors import BadFilterError
from catchment.model.box import Box
from catchment.model.conjunction import box_of
from catchment.model.domain import PRESENT, Values
from catchment.model.filter import Filter
from catchment.model.measure import Distribution
from catchment.model.merging import widened
from catchment.model.spelling import spelled

# Up to so many boxes all pairs are tried; beyond, only pairs next to each other in the order of boxes.
JOINED_PAIRS_BOXES_MAX: Final = 24


def approximated(filter: Filter, comparisons_max: int, distribution: Distribution | None = None) -> Filter:
    """A filter that covers `filter` and takes at most `comparisons_max` comparisons."""
    if comparisons_max < 0:
        raise BadFilterError(f"comparisons_max is {comparisons_max}: it cannot be below 0")
    measure = distribution or Distribution()
    if filter.comparisons > comparisons_max:
        filter = filter.routed  # a filter without a normal form has no alternatives to choose from
    while filter.comparisons > comparisons_max:
        filter = _smaller(filter, filter.comparisons - comparisons_max, measure)
    return filter


def _smaller(filter: Filter, excess: int, measure: Distribution) -> Filter:
    best: tuple[float, int] | None = None
    chosen = Filter.everything()
    for order, boxes in enumerate(_candidates(filter.boxes)):
        # Two attributes that are string automata may take too many steps together: then there is no normal form.
        candidate = Filter.of_boxes(boxes).routed
        saved = filter.comparisons - candidate.comparisons
        if saved <= 0:
            continue
        more = sum(
            measure.share_outside(box, filter.boxes + candidate.boxes[:i]) for i, box in enumerate(candidate.boxes)
        )
        cost = (more / min(saved, excess), order)  # comparisons saved beyond the excess are worth nothing
        if best is None or cost < best:
            best, chosen = cost, candidate
    return chosen


def _candidates(boxes: tuple[Box, ...]) -> Iterator[list[Box]]:
    for i, box in enumerate(boxes):
        rest = [other for j, other in enumerate(boxes) if j != i]
        for smaller in _smaller_boxes(box):
            yield [*rest, smaller]
    pairs = combinations(boxes, 2) if len(boxes) <= JOINED_PAIRS_BOXES_MAX else pairwise(boxes)
    for a, b in pairs:
        rest = [other for other in boxes if other is not a and other is not b]
        joined = a.hull(b)
        yield [*rest, joined]
        yield [*rest, Box({name: widened(values) for name, values in joined.sets.items()})]


def _smaller_boxes(box: Box) -> Iterator[Box]:
    for name, values in box.sets.items():
        yield box.without(name)
        for wider in _wider_values(name, values):
            yield box.with_set(name, wider)


def _wider_values(name: str, values: Values) -> Iterator[Values]:
    yield widened(values)
    if not values.absent:
        yield PRESENT
    alternatives = spelled(name, values)
    if len(alternatives) == 1:
        constraints = alternatives[0]
        for i in range(len(constraints)):
            kept = constraints[:i] + constraints[i + 1 :]
            if kept:
                yield box_of(kept).of(name)
