"""Filters.

A filter is what was written: an expression (`expression.py`). That is enough to match, print, send, store and explain
it, in time linear in its text.

Relations between filters need its *normal form*: a union of boxes (`normal.py`), the same for filters of the same
meaning. It is computed when it is first needed, within NORMAL_STEPS_MAX, and kept. Most filters have one. A filter past
that budget is matched exactly all the same; what changes is said at each relation, and brokers route it by a wider
filter that has a normal form (`routed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Final

from catchment.errors import LimitError
from catchment.model import covering, language
from catchment.model import expression as ex
from catchment.model.box import WHOLE, Box
from catchment.model.budget import BudgetSpent, budget, charge
from catchment.model.conjunction import Conjunction, Matchable, box_of, matched_values
from catchment.model.constraint import STRING_ONLY, Constraint, as_constraint
from catchment.model.expression import And, Expression, Not, Or
from catchment.model.fast_path import spelled_fast
from catchment.model.normal import ALTERNATIVES_MAX, irredundant, normalized
from catchment.model.spelling import spelled
from catchment.model.values import Json, Value

# A filter is repeated in the routing tables of many brokers. See `Filter.size`.
FILTER_SIZE_MAX: Final = 16_384
# Steps of about a microsecond that the normal form of a filter may take.
NORMAL_STEPS_MAX: Final = 4_000
# Constraints that need automata to be compared: a filter with more has no normal form.
HARD_LEAVES_MAX: Final = 8
AUTOMATON_OPERATORS: Final = frozenset(
    operator for operator in STRING_ONLY if not {"prefix", "suffix", "substring"} & set(operator.split())
)
# Steps that a relation between two filters may take, besides their normal forms.
RELATION_STEPS_MAX: Final = 20_000
# Boxes of the normal form that the hash of a filter looks at.
HASHED_BOXES_MAX: Final = 4
# The products of alternatives that a single `and` may make, before equal and contradictory ones are dropped.
PRODUCTS_MAX: Final = 4 * ALTERNATIVES_MAX


class Filter:
    """`Filter("symbol = 'DIS' and price > 100")`, or `Filter.of(("symbol", "=", "DIS"), ("price", ">", 100))`."""

    __slots__ = ("__dict__", "_written", "expression")

    # What was written, and the same as a conjunction if it is nothing else.
    expression: Expression
    _written: Conjunction | None

    def __init__(self, text: str) -> None:
        self._set(language.parse_filter(text))
        # A filter has no more characters and comparisons than its text.
        if len(text) > FILTER_SIZE_MAX:
            self._check_size()

    def _set(self, expression: Expression) -> None:
        self.expression = expression
        self._written = _conjunction(expression)

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Filter:
        """A filter that matches if all constraints hold. Each is a Constraint or (name, operator[, value[, type]])."""
        given = tuple(map(as_constraint, constraints))
        return cls.of_expression(given[0] if len(given) == 1 else And(given) if given else True)

    @classmethod
    def of_expression(cls, expression: Expression) -> Filter:
        filter = cls.__new__(cls)
        filter._set(expression)
        filter._check_size()
        return filter

    @classmethod
    def of_boxes(cls, boxes: Iterable[Box]) -> Filter:
        """The union of some boxes; LimitError if it is too large to be written."""
        return cls._of_normal(normalized(boxes))

    @classmethod
    def _of_normal(cls, boxes: tuple[Box, ...]) -> Filter:
        # Its own normal form is computed from what is written here, as by whoever is sent it: so both get the same.
        _check_alternatives(boxes)
        return cls.of_expression(ex.positive(Or(tuple(map(_of_box, boxes)))))

    @classmethod
    def everything(cls) -> Filter:
        return cls.of_boxes([WHOLE])

    @classmethod
    def nothing(cls) -> Filter:
        return cls.of_boxes([])

    def _check_size(self) -> None:
        if (size := self.size) > FILTER_SIZE_MAX:
            raise LimitError("FILTER_SIZE_MAX", FILTER_SIZE_MAX, f"a size of {size:,}", "split the subscription")

    # --- matching ---

    def matches(self, notification: Matchable) -> bool:
        return ex.is_value(self.expression, matched_values(notification), True)

    # --- the normal form ---

    @cached_property
    def _normal(self) -> tuple[Box, ...] | None:
        """The union of boxes in normal form; None past the budget."""
        if (constraints := self._spelled) is not None:
            return (box_of(constraints),)  # at most two constraints on each name: it is no work
        # Of the ordered expression: so it takes the same steps for whoever reads the filter's text.
        expression = self._ordered[0]
        if _is_hard(expression):
            return None
        try:
            with budget(NORMAL_STEPS_MAX):
                boxes = boxes_of(expression)
                _check_alternatives(boxes)
                return boxes
        except (BudgetSpent, LimitError):
            return None

    @cached_property
    def _sample(self) -> dict[str, Value] | None:
        """The attributes of a notification that it matches; None if it takes much to find one."""
        return self._normal[0].sample() if self._normal else None

    @cached_property
    def _leaves_count(self) -> int:
        return sum(1 for _ in ex.leaves(self.expression))

    @cached_property
    def is_opaque(self) -> bool:
        """Whether it has an opaque constraint (`opaque.py`): then an index holds a wider filter, and asks this one."""
        return ex.has_opaque(self.expression)

    @property
    def is_normal(self) -> bool:
        """Whether it has a normal form within the budget."""
        return self._normal is not None

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The union of boxes in normal form; LimitError if that is past the budget."""
        if self._normal is None:
            raise LimitError(
                "NORMAL_STEPS_MAX", NORMAL_STEPS_MAX, "a filter whose normal form takes more", "use `routed`"
            )
        return self._normal

    @cached_property
    def routed(self) -> Filter:
        """What brokers route it by: the filter itself or, past the budget, a wider one that has a normal form."""
        if self.is_normal:
            return self
        from catchment.model.widening import wider

        return wider(self._ordered[0])

    # --- relations ---

    def covers(self, other: Filter) -> bool:
        """Whether it matches every notification that `other` matches. Where one of the two is past the budget, "no" may
        be wrong."""
        # One notification that the other matches and this one does not decides it.
        if other._sample is not None:
            charge(2 + self._leaves_count // 2)
            if not ex.is_value(self.expression, other._sample, True):
                return False
        # A filter that has a normal form may cover one that has none by covering what that one is routed by.
        boxes, other_boxes = self._normal, other.routed._normal
        try:
            with budget(RELATION_STEPS_MAX):
                if boxes is not None and other_boxes is not None and covering.covers(boxes, other_boxes):
                    return True
                if boxes is not None and other._normal is not None:
                    return False
                return _covers(self._ordered[0], other._ordered[0])
        except BudgetSpent:
            return False

    def overlaps(self, other: Filter) -> bool:
        """Whether some notification could match both. Where one of the two is past the budget, "yes" may be wrong."""
        boxes, other_boxes = self.routed.boxes, other.routed.boxes
        try:
            with budget(RELATION_STEPS_MAX):
                return covering.overlaps(boxes, other_boxes)
        except BudgetSpent:
            return True

    @property
    def is_empty(self) -> bool:
        """Whether no notification can match it, because it contradicts itself. Past the budget, "no" may be wrong."""
        return self._spelled is None and not self.routed.boxes

    def __and__(self, other: Filter) -> Filter:
        if self.is_normal and other.is_normal:
            with_boxes = _intersected(self.boxes, other.boxes)
            if with_boxes is not None:
                return Filter._of_normal(with_boxes)
        return Filter.of_expression(ex.positive(And((self.expression, other.expression))))

    def __or__(self, other: Filter) -> Filter:
        if self.is_normal and other.is_normal:
            try:
                with budget(NORMAL_STEPS_MAX):
                    boxes = normalized(self.boxes + other.boxes)
                return Filter._of_normal(boxes)
            except (BudgetSpent, LimitError):
                pass
        return Filter.of_expression(ex.positive(Or((self.expression, other.expression))))

    # --- form ---

    @cached_property
    def _ordered(self) -> tuple[Expression, str]:
        """The canonical form of the expression as it was written, and its text."""
        return ex.canonical(self.expression)

    @cached_property
    def _spelled(self) -> tuple[Constraint, ...] | None:
        """The canonical spelling of a conjunction, if each name has one constraint, or a lower and an upper bound."""
        if self._written is not None and (constraints := spelled_fast(self._written.constraints)) is not None:
            return constraints
        conjunction = _conjunction(self._ordered[0])
        return None if conjunction is None else spelled_fast(conjunction.constraints)

    @cached_property
    def _canonical(self) -> tuple[Expression, str]:
        """The canonical form, and its text; of a conjunction that has a normal form, what that says."""
        if (constraints := self._spelled) is not None:
            conjunction = Conjunction(constraints)
            return _of_conjunction(conjunction), str(conjunction)
        is_conjunction = _conjunction(self._ordered[0]) is not None
        return (self._shortened() if is_conjunction and self._normal is not None else None) or self._ordered

    def _shortened(self) -> tuple[Expression, str] | None:
        """A conjunction with several constraints on a name, as its normal form writes it."""
        alternatives = [_of_conjunction(conjunction) for conjunction in self.alternatives]
        short = ex.canonical(Or(tuple(alternatives)))
        # Whoever reads this text must find the same normal form.
        return short if Filter.of_expression(short[0])._normal == self._normal else None

    @property
    def canonical(self) -> Expression:
        """The expression with `not` at constraints only, flat, in a fixed order."""
        return self._canonical[0]

    @cached_property
    def alternatives(self) -> tuple[Conjunction, ...]:
        """Conjunctions in canonical form that together mean the same; () when nothing can match. LimitError if the
        normal form is past the budget."""
        if (constraints := self._spelled) is not None:
            return (Conjunction(constraints),)
        return _alternatives_of(self.boxes)

    @property
    def conjunction(self) -> Conjunction | None:
        """The conjunction that the filter was written as; None if it was written in another way. An index takes it as
        it is."""
        return self._written

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        return self.alternatives if self._written is None else (self._written,)

    @property
    def comparisons(self) -> int:
        """How many comparisons it may take to match a notification. Approximation bounds these."""
        if not self.is_normal:
            return sum(constraint.comparisons for constraint in ex.leaves(self.expression))
        return sum(conjunction.comparisons for conjunction in self.alternatives)

    @cached_property
    def size(self) -> int:
        """The characters of names and operands, and 1 for each comparison, as the filter was written."""
        return sum(map(_written_size, ex.leaves(self.expression)))

    @property
    def names(self) -> frozenset[str]:
        """The names of the attributes that the filter looks at."""
        return ex.names_in(self.expression)

    def __str__(self) -> str:
        return self._canonical[1]

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        """Filters of the same meaning are equal, if both have a normal form; else those of the same canonical form.
        Where it takes more than RELATION_STEPS_MAX to see that two are equal, they are not."""
        if self is other:
            return True
        if not isinstance(other, Filter):
            return False
        if self._normal is None or other._normal is None:
            return self._normal is other._normal and self._canonical[1] == other._canonical[1]
        return are_equal(self._normal, other._normal)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        if self._normal is None:
            return hash(self._canonical[1])
        return hash((len(self._normal), *self._normal[:HASHED_BOXES_MAX]))

    def __reduce__(self) -> tuple[object, ...]:
        return Filter.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        """As `{"any": [{"all": [constraint, …]}, …]}` if it is written so, else nested, with `{"not": …}`."""
        parts = self.canonical.parts if isinstance(self.canonical, Or) else (self.canonical,)
        if self.canonical is False:
            return {"any": []}
        return {"any": [_all_json(part) for part in parts]}

    @classmethod
    def from_json(cls, data: object) -> Filter:
        """From `{"any": […]}`, `{"all": […]}`, `{"not": …}` over constraints, or from text."""
        if isinstance(data, str):
            return cls(data)
        return cls.of_expression(ex.from_json(data))


def are_equal(first: Sequence[Box], second: Sequence[Box]) -> bool:
    """Whether two unions of boxes in normal form are the same; no past the budget of a relation."""
    try:
        with budget(RELATION_STEPS_MAX):
            return first == second
    except BudgetSpent:
        return False


def _all_json(part: Expression) -> Json:
    if isinstance(part, And):
        return ex.to_json(part)
    return {"all": [] if part is True else [ex.to_json(part)]}


def _written_size(constraint: Constraint) -> int:
    operands = constraint.value if isinstance(constraint.value, tuple) else (constraint.value,)
    return len(constraint.name) + sum(1 + (len(each) if isinstance(each, str) else 0) for each in operands)


def _of_box(box: Box) -> Expression:
    """A box as an expression: for each attribute what it may be. Nothing is multiplied out."""
    return And(
        tuple(Or(tuple(And(constraints) for constraints in spelled(name, values))) for name, values in box.sets.items())
    )


def _of_conjunction(conjunction: Conjunction) -> Expression:
    constraints = conjunction.constraints
    return constraints[0] if len(constraints) == 1 else And(constraints) if constraints else True


def _alternatives_of(boxes: tuple[Box, ...]) -> tuple[Conjunction, ...]:
    # A set of values may take several alternatives to write: a box becomes the product of those of its names.
    conjunctions = [
        Conjunction(tuple(constraint for part in parts for constraint in part))
        for box in boxes
        for parts in product(*(spelled(*named) for named in box.sets.items()))
    ]
    return tuple(conjunctions if len(boxes) < 2 else _needed(conjunctions))


def _check_alternatives(boxes: Sequence[Box]) -> None:
    """LimitError if it takes too many alternatives to write some boxes."""
    # The upper bound is cheap. Only where it exceeds the limit are they spelled out to count exactly.
    if sum(box.alternatives_max for box in boxes) > ALTERNATIVES_MAX:
        charge(sum(10 + 2 * values.parts for box in boxes for values in box.sets.values()))
        count = sum(prod(len(spelled(*named)) for named in box.sets.items()) for box in boxes)
        if count > ALTERNATIVES_MAX:
            raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{count:,} alternatives", "split the subscription")


def _is_hard(expression: Expression) -> bool:
    """Whether a canonical expression has an opaque constraint, or so many constraints that need automata that its
    normal form nearly always takes more than the budget: it need not be spent to know that."""
    if ex.has_opaque(expression):
        return True
    if isinstance(expression, And) and all(isinstance(part, Constraint) for part in expression.parts):
        names = Counter(leaf.name for leaf in ex.leaves(expression) if leaf.operator in AUTOMATON_OPERATORS)
        return max(names.values(), default=0) > HARD_LEAVES_MAX  # those on other attributes do not meet
    return sum(leaf.operator in AUTOMATON_OPERATORS for leaf in ex.leaves(expression)) > HARD_LEAVES_MAX


def _covers(wider: Expression, narrower: Expression) -> bool:
    """Whether one expression in canonical form covers another, by their structure: an `or` covers what one of its parts
    covers, an `and` what all of them cover; and dually for what is covered. "No" may be wrong."""
    parts = sum(len(each.parts) for each in (wider, narrower) if isinstance(each, And | Or))
    charge(8 + parts // 4)
    if wider == narrower or wider is True or narrower is False:
        return True
    if (isinstance(narrower, And) and wider in narrower.parts) or (isinstance(wider, Or) and narrower in wider.parts):
        return True
    if isinstance(wider, And):
        return all(_covers(part, narrower) for part in wider.parts)
    if isinstance(narrower, Or):
        return all(_covers(wider, part) for part in narrower.parts)
    if isinstance(wider, Or) and any(_covers(part, narrower) for part in wider.parts):
        return True
    if isinstance(narrower, And):
        return any(_covers(wider, part) for part in narrower.parts)
    if isinstance(wider, Or | bool) or isinstance(narrower, bool):
        return False
    if isinstance(wider, Constraint) and wider.is_opaque:
        return False  # it covers itself and what is within an `and` with it; more is not known
    return covering.covers(boxes_of(wider), boxes_of(narrower))


def _needed(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Leaves out each conjunction that lies within the others. Boxes that need each other may be spelled with
    alternatives that do not."""
    by_box = {conjunction.box: conjunction for conjunction in conjunctions}
    return [by_box[box] for box in irredundant(list(by_box))]


def _conjunction(expression: Expression) -> Conjunction | None:
    """An expression that is only constraints, or negations of constraints, joined by `and`, none of them opaque, as a
    conjunction; else None."""
    if expression is True:
        return Conjunction(())
    parts = expression.parts if isinstance(expression, And) else (expression,)
    constraints: list[Constraint] = []
    for part in parts:
        constraint = ex.positive(part) if type(part) is Not else part
        # One that is opaque is no set of values, as those of a conjunction are.
        if type(constraint) is not Constraint or constraint.is_opaque:
            return None
        constraints.append(constraint)
    return Conjunction(tuple(constraints))


# --- from expressions to boxes ------------------------------------------------------------------


def intersections(first: Sequence[Box], second: Sequence[Box]) -> list[Box]:
    """The intersection of two unions of boxes: of each box with each, without the empty ones."""
    if len(first) * len(second) > PRODUCTS_MAX:
        raise LimitError("PRODUCTS_MAX", PRODUCTS_MAX, f"{len(first) * len(second):,} products of alternatives")
    charge(8 * len(first) * len(second))
    return [both for a in first for b in second if (both := a & b)]


def _intersected(first: Sequence[Box], second: Sequence[Box]) -> tuple[Box, ...] | None:
    """The same in normal form; None past a limit."""
    try:
        with budget(NORMAL_STEPS_MAX):
            boxes = normalized(intersections(first, second))
            _check_alternatives(boxes)
            return boxes
    except (BudgetSpent, LimitError):
        return None


def boxes_of(expression: Expression, wanted: bool = True) -> tuple[Box, ...]:
    """The notifications that make an expression true or, if not `wanted`, those that make it false, in normal form.
    BudgetSpent or LimitError where that takes too much."""
    match expression:
        case bool():
            return (WHOLE,) if expression is wanted else ()
        case Constraint():
            charge(2)
            values = expression.satisfied_by if wanted else expression.failed_by
            return normalized([Box({expression.name: values})])
        case Not(inner):
            return boxes_of(inner, not wanted)
        case And(parts) | Or(parts):
            if isinstance(expression, And) is wanted:
                return _boxes_in_all(parts, wanted)
            return normalized([box for part in parts for box in boxes_of(part, wanted)])


def _boxes_in_all(parts: Sequence[Expression], wanted: bool) -> tuple[Box, ...]:
    # First all single constraints at once, then the parts that have alternatives: that makes few products, and each
    # is normalized once.
    constraints = [part for part in parts if wanted and isinstance(part, Constraint)]
    charge(2 * len(parts))
    boxes = normalized([box_of(constraints)])
    for part in parts:
        if not (wanted and isinstance(part, Constraint)):
            boxes = normalized(intersections(boxes, boxes_of(part, wanted)))
    return boxes
