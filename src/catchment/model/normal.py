"""The normal form of a union of boxes: equal unions become equal tuples.

A *prime* box lies in the union, and no larger box of the union contains it. Iterated consensus lists all prime boxes.
They depend on the union alone, not on how it was written. So does the irredundant choice among them, which is made in
a fixed order. Past PRIME_BOXES_MAX boxes only those that differ in a single attribute are joined. The result is still
minimized and exact, but two such large filters with the same meaning may differ as objects; `covers` in both directions
still shows that they are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from catchment.errors import LimitError
from catchment.model.box import Box
from catchment.model.budget import charge
from catchment.model.covering import Budget, covers_box
from catchment.model.domain import any_of

# Brokers match and route a filter as its alternatives. A filter with more of them should be several subscriptions.
ALTERNATIVES_MAX: Final = 256
# Consensus compares all pairs in each round: this keeps it in milliseconds.
PRIME_BOXES_MAX: Final = 32
# In one normalization so many steps are spent on boxes that lie within the union of the others. After that, only boxes
# that lie within a single other box are left out.
IRREDUNDANT_STEPS_MAX: Final = 20_000
# Where automata are needed, all this takes a thousand times as long. Beyond so many boxes with suffixes, substrings or
# globs, only equal boxes and boxes that differ in a single attribute are joined.
GLOB_BOXES_MAX: Final = 8
IRREDUNDANT_GLOB_STEPS_MAX: Final = 100


def normalized(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """The normal form of a union of boxes; LimitError where it has too many."""
    kept = [box for box in dict.fromkeys(boxes) if box]
    if len(kept) < 2:
        return tuple(kept)
    kept = _joined(kept)
    _check_count(kept, 4 * ALTERNATIVES_MAX)
    if _is_hard(kept):
        _check_count(kept, ALTERNATIVES_MAX)
        return tuple(sorted(kept, key=_order))
    kept = _absorbed(kept)
    _check_count(kept, ALTERNATIVES_MAX)
    if 1 < len(kept) <= PRIME_BOXES_MAX:
        kept = _primes(kept) or kept
    return tuple(irredundant(kept))


def _is_hard(boxes: Sequence[Box]) -> bool:
    """Whether too many boxes need automata to be compared."""
    return sum(not box.is_easy for box in boxes) > GLOB_BOXES_MAX


def _check_count(boxes: Sequence[Box], most: int) -> None:
    if len(boxes) > most:
        raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{len(boxes):,} alternatives", "split the subscription")


def _order(box: Box) -> tuple[object, ...]:
    """A total order that depends on what a box means, not on how it was written."""
    sets = [
        (values.absent, values.keys, values.strings.ranges if values.is_ranges else values.strings.identity)
        for values in box.sets.values()
    ]
    return len(sets), tuple(box.sets), repr(sets)


def _absorbed(boxes: Sequence[Box]) -> list[Box]:
    """Leaves out each box that lies within another."""
    kept: list[Box] = []
    for box in sorted(boxes, key=_order):
        charge(2 + 4 * len(kept))
        if not any(other.covers(box) for other in kept):
            kept = [other for other in kept if not box.covers(other)]
            kept.append(box)
    return kept


def _joined(boxes: list[Box]) -> list[Box]:
    """Joins boxes that differ in a single attribute, until there are no such boxes."""
    alive: dict[Box, None] = dict.fromkeys(boxes)
    names = sorted({name for box in boxes for name in box.sets})
    while True:
        count = len(alive)
        charge(4 * sum(len(box.sets) for box in alive))
        by_name: dict[str, list[Box]] = defaultdict(list)
        for box in alive:
            for name in box.sets:
                by_name[name].append(box)
        for name in names:
            _join_along(name, alive, by_name)
        if len(alive) == count:
            return list(alive)


def _join_along(name: str, alive: dict[Box, None], by_name: dict[str, list[Box]]) -> None:
    """Joins the boxes that differ only in the attribute `name`."""
    groups: dict[Box, list[Box]] = defaultdict(list)
    for box in dict.fromkeys(by_name[name]):
        if box in alive:
            groups[box.without(name)].append(box)
    for rest, group in groups.items():
        if len(group) > 1:
            for box in group:
                alive.pop(box)
            joined = rest.with_set(name, any_of([box.of(name) for box in group]))
            alive[joined] = None
            for other in joined.sets:
                by_name[other].append(joined)


def _primes(boxes: list[Box]) -> list[Box] | None:
    """All prime boxes of the union; None when they are too many."""
    primes, fresh = list(boxes), list(boxes)
    while fresh:
        grown = _absorbed([*primes, *_consensus(primes, fresh)])
        if len(grown) > PRIME_BOXES_MAX or _is_hard(grown):
            return None
        known = set(primes)
        fresh = [box for box in grown if box not in known]
        primes = grown
    return primes


def _consensus(boxes: list[Box], fresh: list[Box]) -> Iterator[Box]:
    """Boxes within the union of two: along one attribute they reach through both, along the others they are what the
    two have in common. Pairs of which neither box is fresh were compared in an earlier round."""
    recent = set(fresh)
    for a, b in combinations(boxes, 2):
        if a not in recent and b not in recent:
            continue
        charge(10)
        for name in a.sets.keys() & b.sets.keys():
            joined = (a.without(name) & b.without(name)).with_set(name, a.of(name) | b.of(name))
            if joined and not a.covers(joined) and not b.covers(joined):
                yield joined


def irredundant(boxes: Sequence[Box]) -> list[Box]:
    """Leaves out boxes that lie within the union of the others. The most complex are tried first, in a fixed order, so
    that the choice depends on the boxes alone."""
    kept = sorted(boxes, key=_order)
    if _is_hard(kept):
        return kept
    needs_no_automaton = all(box.is_easy for box in kept)
    budget = Budget(IRREDUNDANT_STEPS_MAX if needs_no_automaton else IRREDUNDANT_GLOB_STEPS_MAX)
    for box in reversed(list(kept)):
        others = [other for other in kept if other is not box]
        charge(2 + 4 * len(others))
        if others and budget.steps > 0 and covers_box(others, box, budget):
            kept = others
    return kept
