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

from catchment.errors import LimitError
from catchment.model.box import Box
from catchment.model.covering import Budget, covers_box
from catchment.model.domain import any_of

# A filter is matched and routed as its alternatives; a larger one is several subscriptions.
ALTERNATIVES_MAX: Final = 256
# Consensus compares all pairs, again and again: this keeps it in milliseconds.
PRIME_BOXES_MAX: Final = 32
# Steps to find boxes that the others hold together, in one normalization; then only single boxes absorb.
IRREDUNDANT_STEPS_MAX: Final = 20_000
# Where automata must be asked, all this is a thousand times dearer: beyond so many boxes with suffixes,
# substrings or globs, only equal boxes and boxes that differ in one attribute fall together.
GLOB_BOXES_MAX: Final = 8
IRREDUNDANT_GLOB_STEPS_MAX: Final = 100


def normalized(boxes: Iterable[Box]) -> tuple[Box, ...]:
    found = [box for box in dict.fromkeys(boxes) if box]
    if len(found) < 2:
        return tuple(found)
    found = _joined(found)
    _check_count(found, 4 * ALTERNATIVES_MAX)
    if _is_hard(found):
        _check_count(found, ALTERNATIVES_MAX)
        return tuple(sorted(found, key=_order))
    found = _absorbed(found)
    _check_count(found, ALTERNATIVES_MAX)
    if 1 < len(found) <= PRIME_BOXES_MAX:
        found = _primes(found) or found
    return tuple(irredundant(found))


def _is_hard(boxes: Sequence[Box]) -> bool:
    return sum(not box.is_plain for box in boxes) > GLOB_BOXES_MAX


def _check_count(boxes: Sequence[Box], most: int) -> None:
    if len(boxes) > most:
        raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{len(boxes):,} alternatives", "split the subscription")


def _order(box: Box) -> tuple[object, ...]:
    """A total order that depends on what a box means, not on how it was written."""
    sets = [
        (found.absent, found.keys, found.strings.ranges if found.is_plain else found.strings.identity)
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
    alive: dict[Box, None] = dict.fromkeys(boxes)
    names = sorted({name for box in boxes for name in box.sets})
    while True:
        count = len(alive)
        by_name: dict[str, list[Box]] = defaultdict(list)
        for box in alive:
            for name in box.sets:
                by_name[name].append(box)
        for name in names:
            _join_along(name, alive, by_name)
        if len(alive) == count:
            return list(alive)


def _join_along(name: str, alive: dict[Box, None], by_name: dict[str, list[Box]]) -> None:
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
    """All prime boxes of the union, None when they are too many."""
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
    if _is_hard(kept):
        return kept
    is_plain = all(box.is_plain for box in kept)
    budget = Budget(IRREDUNDANT_STEPS_MAX if is_plain else IRREDUNDANT_GLOB_STEPS_MAX)
    for box in reversed(list(kept)):
        others = [one for one in kept if one is not box]
        if others and budget.steps > 0 and covers_box(others, box, budget):
            kept = others
    return kept
