"""The normal form of a union of boxes: equal unions become equal tuples.

Iterated consensus finds every *prime* box, one that lies in the union and in no larger box of it. The
set of primes depends on the union alone, and so does the irredundant choice made from it in a fixed
order. Past PRIME_BOXES_MAX only boxes that differ in one attribute are joined: still minimized, still
exact, but two such large filters that say the same may then differ as objects (`covers` both ways still
finds them equal).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from catchment.model.box import Box
from catchment.model.covering import Budget, covers_box
from catchment.model.domain import Values

# Consensus compares all pairs, again and again: this keeps it in milliseconds.
PRIME_BOXES_MAX: Final = 32
# Steps to find boxes that the others hold together, in one normalization; then only single boxes absorb.
IRREDUNDANT_STEPS_MAX: Final = 20_000


def normalized(boxes: Iterable[Box]) -> tuple[Box, ...]:
    found = [box for box in dict.fromkeys(boxes) if box]
    if len(found) < 2:
        return tuple(found)
    found = _absorbed(_joined(found))
    if len(found) > 1 and len(found) <= PRIME_BOXES_MAX:
        found = _primes(found) or found
    return tuple(irredundant(found))


def _order(box: Box) -> tuple[object, ...]:
    """A total order that depends on what a box means, not on how it was written."""
    sets = [
        (found.absent, found.keys, found.strings.ranges if found.strings.ranges is not None else found.strings.extremes)
        for found in box.sets.values()
    ]
    return len(sets), tuple(box.sets), repr(sets)


def _absorbed(boxes: Sequence[Box]) -> list[Box]:
    kept: list[Box] = []
    for box in sorted(boxes, key=_order):
        if not any(one.covers(box) for one in kept):
            kept = [one for one in kept if not box.covers(one)]
            kept.append(box)
    return kept


def _joined(boxes: list[Box]) -> list[Box]:
    """Joins boxes that differ in one attribute only, until none do."""
    while True:
        joined = boxes
        for name in sorted({name for box in boxes for name in box.sets}):
            joined = _joined_along(name, joined)
        if len(joined) == len(boxes):
            return joined
        boxes = joined


def _joined_along(name: str, boxes: list[Box]) -> list[Box]:
    groups: dict[Box, list[Box]] = defaultdict(list)
    for box in boxes:
        groups[box.without(name)].append(box)
    return [rest.with_set(name, _union(name, group)) if len(group) > 1 else group[0] for rest, group in groups.items()]


def _union(name: str, boxes: list[Box]) -> Values:
    found = boxes[0].of(name)
    for box in boxes[1:]:
        found |= box.of(name)
    return found


def _primes(boxes: list[Box]) -> list[Box] | None:
    """All prime boxes of the union, None when they are too many."""
    primes, fresh = list(boxes), list(boxes)
    while fresh:
        grown = _absorbed([*primes, *_consensus(primes, fresh)])
        if len(grown) > PRIME_BOXES_MAX:
            return None
        known = set(primes)
        fresh = [box for box in grown if box not in known]
        primes = grown
    return primes


def _consensus(boxes: list[Box], fresh: list[Box]) -> Iterator[Box]:
    recent = set(fresh)
    for a, b in combinations(boxes, 2):
        if a not in recent and b not in recent:
            continue
        for name in a.sets.keys() & b.sets.keys():
            joined = (a.without(name) & b.without(name)).with_set(name, a.of(name) | b.of(name))
            if joined and not a.covers(joined) and not b.covers(joined):
                yield joined


def irredundant(boxes: Sequence[Box]) -> list[Box]:
    """Leaves out boxes that the others hold together, the most complex first; in a fixed order."""
    kept = sorted(boxes, key=_order)
    budget = Budget(IRREDUNDANT_STEPS_MAX)
    for box in reversed(list(kept)):
        others = [one for one in kept if one is not box]
        if others and budget.steps > 0 and covers_box(others, box, budget):
            kept = others
    return kept
