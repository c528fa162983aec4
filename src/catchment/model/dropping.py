"""A wider filter with fewer comparisons, found as the filter-propagation text finds it (§3.4): by dropping operands.

Of all `and`s that lie deepest in the expression, take the first and drop one of its operands: the one whose attributes
occur most often elsewhere in the expression, of equals the last. (So the text's example goes through the steps that it
prints.) When no `and` is left and the expression still has too many comparisons, everything matches.

`approximation.py` finds better filters, by trying every step and measuring it. This one is quick: each step takes one
walk over the expression, and nothing is compared.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from catchment.errors import BadFilterError
from catchment.model import expression as ex
from catchment.model.expression import And, Expression, Or
from catchment.model.filter import Filter

# A step walks over the whole expression. If comparisons times steps are more than this, everything matches at once.
DROPPING_STEPS_MAX: Final = 200_000


def with_operands_dropped(filter: Filter, comparisons_max: int) -> Filter:
    """A filter that covers `filter` and takes at most `comparisons_max` comparisons, as they are written."""
    if comparisons_max < 0:
        raise BadFilterError(f"comparisons_max is {comparisons_max}: it cannot be below 0")
    expression = ex.positive(filter.expression)
    count = written_comparisons(expression)
    # Below an `or` nothing is dropped but operands of `and`s: each of its parts keeps a comparison at least.
    if _least(expression) > comparisons_max or (count - comparisons_max) * count > DROPPING_STEPS_MAX:
        return Filter.everything()
    while written_comparisons(expression) > comparisons_max:
        depth = _and_depth(expression)
        if depth is None:
            return Filter.everything()
        names = Counter(constraint.name for constraint in ex.leaves(expression))
        dropped, _ = _with_one_dropped(expression, depth, names)
        # Flat again: an `or` that has lost the `and` around it joins the `or` above.
        expression = ex.positive(dropped)
    return Filter.of_expression(expression)


def written_comparisons(expression: Expression) -> int:
    """How many comparisons an expression takes at most, as it is written."""
    return sum(constraint.comparisons for constraint in ex.leaves(expression))


def _least(expression: Expression) -> int:
    """The fewest comparisons that dropping operands of `and`s comes to."""
    match expression:
        case And(parts):
            return min(map(_least, parts))
        case Or(parts):
            return sum(map(_least, parts))
        case bool():
            return 0
        case _:
            return written_comparisons(expression)


def _and_depth(expression: Expression, depth: int = 0) -> int | None:
    """How deep the deepest `and` lies; None if there is none."""
    if not isinstance(expression, And | Or):
        return None
    below = [found for part in expression.parts if (found := _and_depth(part, depth + 1)) is not None]
    return max(below, default=depth if isinstance(expression, And) else None)


def _with_one_dropped(expression: Expression, depth: int, names: Counter[str]) -> tuple[Expression, bool]:
    """The expression without one operand of the first `and` at that depth, and whether there was one."""
    if not isinstance(expression, And | Or):
        return expression, False
    if depth == 0:
        return (_without_most_repeated(expression, names), True) if isinstance(expression, And) else (expression, False)
    parts = list(expression.parts)
    for place, part in enumerate(parts):
        parts[place], is_done = _with_one_dropped(part, depth - 1, names)
        if is_done:
            return type(expression)(tuple(parts)), True
    return expression, False


def _without_most_repeated(conjunction: And, names: Counter[str]) -> Expression:
    """`names` counts how often the whole expression names each attribute."""

    def elsewhere(operand: Expression) -> int:
        own = Counter(constraint.name for constraint in ex.leaves(operand))
        return sum(names[name] - count for name, count in own.items())

    places = range(len(conjunction.parts))
    dropped = max(places, key=lambda place: (elsewhere(conjunction.parts[place]), place))
    left = tuple(conjunction.parts[place] for place in places if place != dropped)
    return left[0] if len(left) == 1 else And(left)
