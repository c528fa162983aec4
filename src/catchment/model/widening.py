"""A wider filter for an expression whose normal form is past its budget: what brokers route it by.

The expression is walked once. An `and` keeps what narrows it cheaply: for each attribute at most one constraint that
needs an automaton, and those of its `or`s that leave at most BOXES_MAX products. An `or` that has more than BOXES_MAX
boxes becomes the box around them.
So the result covers the expression, has few alternatives, and is found in time linear in the expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from catchment.errors import LimitError
from catchment.model.box import WHOLE, Box
from catchment.model.budget import BudgetSpent, budget
from catchment.model.constraint import Constraint
from catchment.model.domain import NOTHING, Keys, Values
from catchment.model.expression import And, Expression, Not, Or, positive
from catchment.model.filter import NORMAL_STEPS_MAX, Filter
from catchment.model.merging import widened
from catchment.model.ranges import intersection, union
from catchment.model.strings import EVERY_STRING, Strings

# Alternatives of the wider filter, before they are joined.
BOXES_MAX: Final = 8
# Of a set of strings that is a union of more globs than this, all strings are let through.
GLOBS_MAX: Final = 4
EMPTY: Final = Box({"nothing": NOTHING})


def wider(expression: Expression) -> Filter:
    """A filter that has a normal form and covers the expression."""
    boxes = _boxes(positive(expression))
    around = _around(boxes)
    widest = Box({name: widened(values) for name, values in around.sets.items()})
    for narrowed in (boxes, [around], [widest]):
        try:
            with budget(NORMAL_STEPS_MAX):
                filter = Filter.of_boxes(narrowed)
                if filter.is_normal:
                    return filter
        except (BudgetSpent, LimitError):
            continue
    return Filter.everything()


def _boxes(expression: Expression) -> list[Box]:
    """Boxes whose union covers an expression in positive form; none if it contradicts itself."""
    match expression:
        case bool():
            return [WHOLE] if expression else []
        case Constraint():
            values = expression.satisfied_by
            return [Box({expression.name: values})] if values else []
        case And(parts):
            return _in_all(parts)
        case Or(parts):
            return _in_any(parts)
        case Not():
            raise AssertionError("a positive form has no `not`")


def _in_all(parts: Sequence[Expression]) -> list[Box]:
    boxes = [_box_of([part for part in parts if isinstance(part, Constraint)])]
    # The fewest boxes first: they narrow the most for the products they make.
    others = sorted((_boxes(part) for part in parts if not isinstance(part, Constraint)), key=len)
    for other in others:
        if len(boxes) * len(other) <= BOXES_MAX:
            boxes = [both for box in boxes for its in other if (both := _both(box, its)) is not None]
        else:
            around = _around(other)
            boxes = [both for box in boxes if (both := _both(box, around)) is not None]
    return [box for box in boxes if box]


def _box_of(constraints: Sequence[Constraint]) -> Box:
    box: Box | None = WHOLE
    for constraint in constraints:
        box = None if box is None else _both(box, Box({constraint.name: constraint.satisfied_by}))
    return EMPTY if box is None else box


def _both(one: Box, other: Box) -> Box | None:
    """A box that covers what is in both; None if that is empty. Of two sets of an attribute that both need automata the
    first is kept as it is."""
    sets = dict(one.sets)
    for name, values in other.sets.items():
        known = sets.get(name)
        if known is None:
            sets[name] = values
        elif known.is_ranges and values.is_ranges:
            sets[name] = known & values
        elif known.is_ranges or values.is_ranges:
            # Written side by side: an automaton would say whether anything is left.
            pieces = tuple(a & b for a in known.strings.pieces for b in values.strings.pieces)
            keys = tuple(map(intersection, known.keys, values.keys))
            sets[name] = Values(known.absent and values.absent, keys, Strings(pieces))
        if not sets[name]:
            return None
    return Box(sets)


def _in_any(parts: Sequence[Expression]) -> list[Box]:
    boxes: list[Box] = []
    for part in parts:
        boxes += _boxes(part)
        if len(boxes) > 2 * BOXES_MAX:
            boxes = _fewer(boxes)
    return boxes if len(boxes) <= BOXES_MAX else _fewer(boxes)


def _fewer(boxes: Sequence[Box]) -> list[Box]:
    """At most BOXES_MAX boxes around these: those on the same attributes are joined; if that leaves too many, all."""
    by_names: dict[tuple[str, ...], list[Box]] = {}
    for box in boxes:
        by_names.setdefault(tuple(box.sets), []).append(box)
    joined = [_around(some) for some in by_names.values()]
    return joined if len(joined) <= BOXES_MAX else [_around(joined)]


def _around(boxes: Sequence[Box]) -> Box:
    """A box around some boxes."""
    return reduce(_hull, boxes) if boxes else EMPTY


def _hull(one: Box, other: Box) -> Box:
    return Box({name: _either(one.of(name), other.of(name)) for name in one.sets.keys() & other.sets.keys()})


def _either(one: Values, other: Values) -> Values:
    if one.is_ranges and other.is_ranges:
        return one | other
    pieces = tuple(dict.fromkeys(one.strings.pieces + other.strings.pieces))
    strings = Strings(pieces) if sum(len(piece.parts) for piece in pieces) <= GLOBS_MAX else EVERY_STRING
    return Values(one.absent or other.absent, tuple(map(_union, one.keys, other.keys)), strings)


def _union(one: Keys, other: Keys) -> Keys:
    return union((*one, *other))
