"""A wider filter for an expression whose normal form is past its budget: what brokers route it by.

The positive form is walked once. An `and` is the product of its parts as long as that has at most BOXES_MAX boxes: the
parts with the fewest boxes come first, and of each further part only the box around it counts. An `or` of more than
BOXES_MAX boxes becomes the boxes around those that restrict the same attributes. Of the conditions on one string
attribute the longest texts are kept, because they let the least through; a long list of texts becomes what they have in
common: how they begin or end.

The walk takes at most WALK_STEPS_MAX: a part that it does not get to counts as true, and an `and` comes to its
constraints and its short parts first. So the result covers the expression. If it has no normal form within its budget,
simpler ways follow: with fewer texts, with none, and at last only which attributes must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import takewhile
from math import prod
from typing import Final, TypeVar

from catchment.errors import LimitError
from catchment.model import domain
from catchment.model.box import WHOLE, Box
from catchment.model.budget import BudgetSpent, budget, charge
from catchment.model.constraint import Constraint
from catchment.model.domain import NOTHING, PRESENT, Values
from catchment.model.expression import And, Expression, Not, Or
from catchment.model.filter import Filter
from catchment.model.folding import folded
from catchment.model.globs import Glob, prefix_glob, suffix_glob
from catchment.model.merging import widened
from catchment.model.normal import ALTERNATIVES_MAX
from catchment.model.ranges import intersection
from catchment.model.spelling import spelled
from catchment.model.strings import EVERY_STRING, NO_STRING, Piece, Strings, any_of, of_glob

T = TypeVar("T")
# Steps that a walk over the expression may take, and those in which its boxes are brought into normal form.
WALK_STEPS_MAX: Final = 8_000
WIDENING_STEPS_MAX: Final = 3_000
# Boxes of the wider filter: with so many, its normal form takes half of its budget at most.
BOXES_MAX: Final = 8
# How much is kept, at first and if that takes too many steps: of the texts that an attribute must contain, of those
# that it may be or contain, and of ranges of values.
KEPT: Final = ((4, 24, 256), (1, 4, 32), (0, 0, 1))
EMPTY: Final = Box({"nothing": NOTHING})


def wider(expression: Expression) -> Filter:
    """A filter that has a normal form and covers an expression in positive form."""
    for kept in KEPT:
        boxes = _within_budget(partial(_Walk(*kept).boxes, expression))
        if boxes == [WHOLE]:
            break
        if boxes is not None and (filter := _normal(boxes)) is not None:
            return filter
    return _normal(_present(expression)) or Filter.everything()


def _normal(boxes: list[Box]) -> Filter | None:
    """The filter of some boxes, if it has a normal form."""
    filter = _within_budget(lambda: Filter.of_boxes(_fitted(boxes)))
    return filter if filter is not None and filter.is_normal else None


def _within_budget(asked: Callable[[], T]) -> T | None:
    try:
        with budget(WIDENING_STEPS_MAX):
            return asked()
    except (BudgetSpent, LimitError):
        return None


def _present(expression: Expression) -> list[Box]:
    """The attributes that a notification must have."""
    return [Box(dict.fromkeys(_needed(expression), PRESENT))]


def _needed(expression: Expression) -> set[str]:
    match expression:
        case Constraint():
            return set() if expression.operator == "absent" else {expression.name}
        case And(parts):
            return set[str]().union(*map(_needed, parts))
        case Or(parts):
            return set.intersection(*map(_needed, parts))
        case _:
            return set()


class _Walk:
    """A walk over an expression, and how much it keeps: of texts that must all be there, of alternative texts, and of
    ranges of values."""

    def __init__(self, conditions_max: int, texts_max: int, ranges_max: int) -> None:
        self._conditions_max = conditions_max
        self._texts_max = texts_max
        self._ranges_max = ranges_max
        self._steps_left = WALK_STEPS_MAX

    def boxes(self, expression: Expression) -> list[Box]:
        """Boxes whose union covers an expression; none if it contradicts itself."""
        if self._steps_left <= 0:
            return [WHOLE]
        match expression:
            case bool():
                return [WHOLE] if expression else []
            case Constraint():
                box = self._box_of([expression])
                return [box] if box else []
            case And(parts):
                return self._in_all(parts)
            case Or(parts):
                return self._in_any(parts)
            case Not():
                raise AssertionError("a positive form has no `not`")

    def _in_all(self, parts: Sequence[Expression]) -> list[Box]:
        boxes = [self._box_of([part for part in parts if isinstance(part, Constraint)])]
        short_first = sorted((part for part in parts if isinstance(part, Or)), key=lambda part: len(part.parts))
        # The fewest boxes first: they narrow the most for the products they make.
        for other in sorted(map(self.boxes, short_first), key=len):
            if self._steps_left <= 0:
                break  # what the others exclude is let through
            factors = other if len(boxes) * len(other) <= BOXES_MAX else [self._around(other)]
            if factors != [WHOLE]:
                boxes = [both for box in boxes for its in factors if (both := self._both(box, its))]
        return [box for box in boxes if box]

    def _box_of(self, constraints: Sequence[Constraint]) -> Box:
        """A box around a conjunction."""
        by_name: dict[str, list[Constraint]] = {}
        for constraint in constraints[: max(1, self._steps_left // 2)]:
            by_name.setdefault(constraint.name, []).append(constraint)
        self._steps_left -= 4 + 2 * len(constraints) + 4 * len(by_name)
        return Box({name: self._met_by_all(some) for name, some in by_name.items()})

    def _met_by_all(self, constraints: list[Constraint]) -> Values:
        """The values that meet all constraints on an attribute; of those that need globs, only some are kept."""
        sets = [constraint.satisfied_by for constraint in constraints]
        # What is excluded comes last: it lets nearly everything through.
        easy = sorted((values for values in sets if values.is_ranges), key=lambda values: values.parts)
        easy = easy[: self._ranges_max]
        # The longest texts let the least through. What must not be there lets nearly everything through.
        hard = sorted((values for values in sets if not values.is_ranges), key=_narrowness)
        loose = [values for values in hard if values.is_easy][: self._conditions_max]
        kept = loose or hard[: min(1, self._conditions_max)]
        # Of those that are not kept it remains that the value is a string.
        rest = [_with_strings(hard[0], EVERY_STRING)] if len(kept) < len(hard) else []
        return domain.all_of([*easy, *kept, *rest])

    def _both(self, first: Box, second: Box) -> Box:
        """A box around what is in both."""
        sets = dict(first.sets)
        for name, values in second.sets.items():
            sets[name] = self._narrowed(sets[name], values) if name in sets else values
        self._steps_left -= 8 + len(sets) // 2
        return Box(sets)

    def _narrowed(self, first: Values, second: Values) -> Values:
        """The values in both sets; where that takes many texts or an automaton, the strings of one of them."""
        count = len(first.strings.pieces) * len(second.strings.pieces)
        if first.is_ranges or second.is_ranges or (first.is_easy and second.is_easy and count <= self._texts_max):
            return first & second
        kept = min(first, second, key=lambda values: (len(values.strings.pieces), _narrowness(values)))
        keys = tuple(map(intersection, first.keys, second.keys))
        return Values(first.absent and second.absent, keys, kept.strings)

    def _in_any(self, parts: Sequence[Expression]) -> list[Box]:
        sets: dict[str, list[Values]] = {}
        boxes: list[Box] = []
        self._steps_left -= 2 * len(parts)
        for part in parts:
            if self._steps_left <= 0:
                return [WHOLE]
            if isinstance(part, Constraint):
                sets.setdefault(part.name, []).append(part.satisfied_by)
            else:
                boxes += self.boxes(part)
                if len(boxes) > 4 * BOXES_MAX:
                    boxes = self._fewer(boxes)
        if len(boxes) + len(sets) > BOXES_MAX and len(sets) > 4 * BOXES_MAX:
            return [WHOLE]  # on so many attributes that no box but this is around them all
        boxes += [Box({name: self._met_by_any(some)}) for name, some in sets.items()]
        return boxes if len(boxes) <= BOXES_MAX else self._fewer(boxes)

    def _fewer(self, boxes: Sequence[Box]) -> list[Box]:
        """At most BOXES_MAX boxes around these: those on the same attributes are joined; if that leaves too many, all
        of them."""
        by_names: dict[tuple[str, ...], list[Box]] = {}
        for box in boxes:
            by_names.setdefault(tuple(box.sets), []).append(box)
        joined = [self._around(some) for some in by_names.values()]
        return joined if len(joined) <= BOXES_MAX else [self._around(joined)]

    def _around(self, boxes: Sequence[Box]) -> Box:
        """A box around some boxes."""
        if not boxes or WHOLE in boxes:
            return WHOLE if boxes else EMPTY
        names = reduce(lambda common, box: common & box.sets.keys(), boxes[1:], set(boxes[0].sets))
        return Box({name: self._met_by_any([box.sets[name] for box in boxes]) for name in sorted(names)})

    def _met_by_any(self, sets: Sequence[Values]) -> Values:
        """The values in some of the sets; of strings that take many texts or automata, what they have in common."""
        self._steps_left -= 8 + 4 * len(sets)
        keys = domain.any_of([_with_strings(values, NO_STRING) for values in sets])
        either = _with_strings(keys, self._strings_in_any([values.strings for values in sets]))
        return either if either.parts <= self._ranges_max else widened(either)

    def _strings_in_any(self, sets: Sequence[Strings]) -> Strings:
        globs = [strings for strings in sets if not strings.is_ranges]
        count = sum(len(strings.pieces) for strings in globs)
        if not globs or (count <= self._texts_max and all(strings.is_loose for strings in globs)):
            return any_of(sets)
        pieces = [piece for strings in globs for piece in strings.pieces]
        ranges = [strings for strings in sets if strings.is_ranges]
        return any_of([*ranges, _in_common(pieces) if self._texts_max else EVERY_STRING])


# --- sets of values -----------------------------------------------------------------------------


def _narrowness(values: Values) -> tuple[bool, int]:
    pieces = values.strings.pieces
    longest = min((max((len(glob.wanted) for glob in piece.wanted), default=0) for piece in pieces), default=0)
    return not longest, -longest


def _with_strings(values: Values, strings: Strings) -> Values:
    return Values(values.absent, values.keys, strings)


def _in_common(pieces: Sequence[Piece]) -> Strings:
    """The strings that begin or end as all strings of some pieces do."""
    ignores_case = any(glob.ignores_case for piece in pieces for glob in piece.wanted)
    starts = [_longest(piece, _start_of, ignores_case) for piece in pieces]
    ends = [_longest(piece, _end_of, ignores_case) for piece in pieces]
    start, end = _common_start(starts), _common_start([text[::-1] for text in ends])[::-1]
    if not start and not end:
        return EVERY_STRING
    return of_glob(suffix_glob(end, ignores_case) if len(end) >= len(start) else prefix_glob(start, ignores_case))


def _common_start(texts: Sequence[str]) -> str:
    least, greatest = min(texts), max(texts)  # what these two begin with, those between them begin with too
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(least, greatest, strict=False)))


def _longest(piece: Piece, text_of: Callable[[Glob], str], ignores_case: bool) -> str:
    texts = (text_of(glob) for glob in piece.wanted)
    return max((folded(text) if ignores_case else text for text in texts), key=len, default="")


def _start_of(glob: Glob) -> str:
    """The text that all strings begin with that a glob matches."""
    if glob.waiting & 1:
        return ""
    # Characters up to the first position that waits, or to the first that may be any character.
    waits = (glob.waiting & -glob.waiting).bit_length() - 1 if glob.waiting else len(glob.wanted)
    return "".join(takewhile(bool, glob.wanted[:waits]))  # type: ignore[arg-type]


def _end_of(glob: Glob) -> str:
    last = glob.waiting.bit_length() - 1 if glob.waiting else 0
    return "".join(takewhile(bool, reversed(glob.wanted[last:])))[::-1]  # type: ignore[arg-type]


def _fitted(boxes: Sequence[Box]) -> list[Box]:
    """Boxes around these that together take at most ALTERNATIVES_MAX alternatives to write."""
    return [_with_few_alternatives(box, ALTERNATIVES_MAX // len(boxes)) for box in boxes]


def _with_few_alternatives(box: Box, most: int) -> Box:
    sets = dict(box.sets)
    counts = {name: len(spelled(name, values)) for name, values in sets.items()}
    charge(sum(4 + values.parts // 2 for values in sets.values()))
    for name in sorted(counts, key=lambda name: -counts[name]):
        if prod(counts.values()) > most:
            wide = widened(sets[name])
            strings = wide.strings if wide.is_ranges else _in_common(wide.strings.pieces)
            sets[name] = _with_strings(wide, strings)
            counts[name] = len(spelled(name, sets[name]))
    return Box(sets)
