"""The filter that a CESQL expression implies. Brokers route by it.

For each boolean subexpression an `Outcome` holds unions of boxes: T, the notifications for which its value may be true
without a fault, and F, those for which it may be false without a fault. Each may be too large, never too small, and so
is what is computed from them. A fault anywhere rejects the notification. But an AND or OR that stops early does not
evaluate its right operand, so that one can have no fault:

    x AND y   T: T(x) & T(y)                   F: F(x) | T(x) & F(y)
    x OR y    T: T(x) | F(x) & T(y)            F: F(x) & F(y)
    x XOR y   T: T(x) & F(y) | F(x) & T(y)     F: T(x) & T(y) | F(x) & F(y)

and NOT swaps them. F is often a large set with a few holes, which takes many constraints to write. Where OR has
F(x) & …, the union contains T(x) anyway, so any set from F(x) up to F(x) | T(x) gives the same result. N is such a set
that is short to write, such as "x exists". P is the same for T(x) in AND:

    x AND y   P: P(x) & P(y)                   N: F(x) | P(x) & N(y)
    x OR y    P: T(x) | N(x) & P(y)            N: N(x) & N(y)
    x XOR y   P and N: (P(x) | N(x)) & (P(y) | N(y))

Only the sets that are needed are computed: a conjunction of a hundred tests needs only their T.

A test of a single attribute against constants gives the attribute values that pass and fail (`conditions.py`).
For anything else (arithmetic, most functions, two attributes) it is known which attributes are always evaluated and to
which types they must be castable.

What grows too large is widened: unions to the boxes around their parts, sets to a single range of each type. The result
is always sound. It is exact where the sets of values are exact and no limit is reached.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Final, NamedTuple

from catchment.errors import LimitError
from catchment.model import domain
from catchment.model.box import WHOLE, Box
from catchment.model.budget import BudgetSpent, budget, charge, steps_used
from catchment.model.cesql.analysis import EQUALITY, attribute_box, constant_value, is_constant, needs, static_type
from catchment.model.cesql.conditions import (
    Condition,
    attribute_values,
    castability_condition,
    equality_condition,
    is_range,
    like_condition,
    membership_condition,
    order_condition,
    truth_condition,
)
from catchment.model.cesql.expression import (
    LOGIC,
    OPERATORS,
    Attribute,
    Call,
    Exists,
    Expression,
    In,
    Infix,
    Like,
    Not,
)
from catchment.model.cesql.values import CesqlType, Faults, cast
from catchment.model.constraint import IN_VALUES_MAX
from catchment.model.domain import ABSENT, OF_TYPE, PRESENT, Values
from catchment.model.filter import Filter
from catchment.model.merging import widened
from catchment.model.normal import ALTERNATIVES_MAX
from catchment.model.strings import EVERY_STRING
from catchment.model.values import Type

# As many tests as a filter may have alternatives. Further tests count as tests that anything may pass or fail.
CESQL_FILTER_TESTS_MAX: Final = 256
# Up to so many boxes the normal form of a union takes milliseconds. A larger union is widened to fewer boxes.
CESQL_FILTER_BOXES_MAX: Final = 32
# Steps of about a microsecond in all (`budget.py`). After that, a further `and` keeps one of its sides, and a further
# `or` counts as anything.
CESQL_FILTER_STEPS_MAX: Final = 6_000
# What a test costs to read: the sets of values that pass and fail it.
_TEST_STEPS: Final = 60
# A pattern that is no prefix is combined with other tests of its attribute in an automaton, whose size grows with the
# texts of the tests. These limits bound that to seconds in the worst case. Of a test past them only its needs count.
CESQL_FILTER_PATTERN_MEETINGS_MAX: Final = 4
CESQL_FILTER_PATTERN_CODEPOINTS_MAX: Final = 128

Union = tuple[Box, ...]

NOTHING: Final[Union] = ()
ANYTHING: Final[Union] = (WHOLE,)


def implied_filter(root: Expression) -> Filter:
    """A filter that matches every notification that the expression matches, as narrow as possible."""
    return _fitted(implied_boxes(root))


def implied_boxes(root: Expression) -> Union:
    """The boxes of the implied filter, before they are made to fit the limits of a filter."""
    boxes = _Derivation().matching(root)
    return _as_union(needs(root, CesqlType.BOOLEAN)) if WHOLE in boxes else boxes


class Outcome(NamedTuple):
    """T, F, P and N as explained above; ANYTHING for those that were not asked for."""

    true: Union = ANYTHING
    false: Union = ANYTHING
    if_true: Union = ANYTHING
    if_false: Union = ANYTHING


UNKNOWN: Final = Outcome()
PARTS: Final = "TFPN"
_SWAPPED: Final = str.maketrans("TFPN", "FTNP")


class Tested(NamedTuple):
    """A test of a single attribute, which may first be cast by INT, BOOL or STRING."""

    name: str
    cast_to: CesqlType | None
    condition: Condition


class _Derivation:
    """A walk over an expression, and how much of each limit is left."""

    def __init__(self) -> None:
        self._steps_left = CESQL_FILTER_STEPS_MAX
        self._tests_left = CESQL_FILTER_TESTS_MAX
        self._meetings_left = CESQL_FILTER_PATTERN_MEETINGS_MAX
        self._codepoints_by_name: dict[str, int] = defaultdict(int)
        self._names_with_pattern: set[str] = set()

    def matching(self, root: Expression) -> Union:
        """The notifications for which the value may be the Boolean true; a value that only casts to true does not
        count."""
        if isinstance(root, Attribute):
            return _as_union(attribute_box(root.name, equal_to_true()))
        return self.outcome(root, "T").true if static_type(root) is CesqlType.BOOLEAN else NOTHING

    def outcome(self, node: Expression, asked: str) -> Outcome:
        """The outcome of a node as a Boolean. `asked` holds the letters of the parts that are needed, such as "TN"."""
        if is_constant(node):
            return _constant_outcome(node)
        match node:
            case Not(operand):
                inner = self.outcome(operand, asked.translate(_SWAPPED))
                return Outcome(inner.false, inner.true, inner.if_false, inner.if_true)
            case Exists(name):
                present, absent = (_as_union(attribute_box(name, values)) for values in (PRESENT, ABSENT))
                return Outcome(present, absent)
            case Infix() if node.rest[0][0] in LOGIC:
                return self._chain_outcome(node, asked)
        if not self._tests_left or self._steps_left <= 0:
            return UNKNOWN
        self._tests_left -= 1
        self._steps_left -= _TEST_STEPS
        tested = self._affordable(tested_by(node), node)
        return _needed_outcome(node) if tested is None else _tested_outcome(tested)

    def _chain_outcome(self, chain: Infix, asked: str) -> Outcome:
        """First, from the last operator back, which parts are needed of each side. Then, from the first operand on,
        the outcomes."""
        asked_of_sides: list[tuple[str, str]] = []
        for symbol, _ in reversed(chain.rest):
            of_right = "".join(_TABLE[symbol, part].of_right for part in asked)
            asked_of_sides.append((asked, of_right))
            asked = "".join(part for part in PARTS if any(part in _TABLE[symbol, whole].of_left for whole in asked))
        left = self.outcome(chain.first, asked)
        for (symbol, operand), (asked, of_right) in zip(chain.rest, reversed(asked_of_sides), strict=True):
            left = self._combined(symbol, left, self.outcome(operand, of_right), asked)
        return left

    def _combined(self, symbol: str, x: Outcome, y: Outcome, asked: str) -> Outcome:
        return Outcome(*(_TABLE[symbol, part].compute(self, x, y) if part in asked else ANYTHING for part in PARTS))

    def _affordable(self, tested: Tested | None, node: Expression) -> Tested | None:
        """The test, if the limits allow it; else None."""
        if tested is None:
            return None
        if isinstance(node, Like) and not is_range(node.pattern):
            self._names_with_pattern.add(tested.name)
        codepoints = len(str(node))
        if tested.name in self._names_with_pattern and not self._may_meet(tested.name, codepoints):
            return None
        self._codepoints_by_name[tested.name] += codepoints
        return tested

    def _may_meet(self, name: str, codepoints: int) -> bool:
        """Whether the limits allow one more test of an attribute that has a pattern; the test may be that pattern."""
        if self._codepoints_by_name[name]:
            self._meetings_left -= 1
        codepoints += self._codepoints_by_name[name]
        return self._meetings_left >= 0 and codepoints <= CESQL_FILTER_PATTERN_CODEPOINTS_MAX

    # --- unions of boxes ---

    def both(self, first: Union, second: Union) -> Union:
        if first is ANYTHING or second is ANYTHING:
            return second if first is ANYTHING else first
        return self._within_limit(lambda: _both(first, second), first)

    def either(self, first: Union, second: Union) -> Union:
        if not first or not second:
            return first or second
        return self._within_limit(lambda: _tidied(first + second), ANYTHING)

    def _within_limit(self, compute: Callable[[], Union], wider: Union) -> Union:
        """What is computed or, if that takes more steps than are left, something wider."""
        before = steps_used()
        try:
            with budget(self._steps_left):
                return compute()
        except BudgetSpent:
            return wider
        finally:
            self._steps_left -= steps_used() - before


class _Combination(NamedTuple):
    """An entry of the table: which parts of the two sides it takes, and how it combines them."""

    of_left: str
    of_right: str
    compute: Callable[[_Derivation, Outcome, Outcome], Union]


def _both_without_fault(by: _Derivation, x: Outcome, y: Outcome) -> Union:
    return by.both(by.either(x.if_true, x.if_false), by.either(y.if_true, y.if_false))


_TABLE: Final[dict[tuple[str, str], _Combination]] = {
    ("AND", "T"): _Combination("T", "T", lambda by, x, y: by.both(x.true, y.true)),
    ("AND", "F"): _Combination("FP", "F", lambda by, x, y: by.either(x.false, by.both(x.if_true, y.false))),
    ("AND", "P"): _Combination("P", "P", lambda by, x, y: by.both(x.if_true, y.if_true)),
    ("AND", "N"): _Combination("FP", "N", lambda by, x, y: by.either(x.false, by.both(x.if_true, y.if_false))),
    ("OR", "T"): _Combination("TN", "T", lambda by, x, y: by.either(x.true, by.both(x.if_false, y.true))),
    ("OR", "F"): _Combination("F", "F", lambda by, x, y: by.both(x.false, y.false)),
    ("OR", "P"): _Combination("TN", "P", lambda by, x, y: by.either(x.true, by.both(x.if_false, y.if_true))),
    ("OR", "N"): _Combination("N", "N", lambda by, x, y: by.both(x.if_false, y.if_false)),
    ("XOR", "T"): _Combination(
        "TF", "TF", lambda by, x, y: by.either(by.both(x.true, y.false), by.both(x.false, y.true))
    ),
    ("XOR", "F"): _Combination(
        "TF", "TF", lambda by, x, y: by.either(by.both(x.true, y.true), by.both(x.false, y.false))
    ),
    ("XOR", "P"): _Combination("PN", "PN", _both_without_fault),
    ("XOR", "N"): _Combination("PN", "PN", _both_without_fault),
}


def _both(first: Union, second: Union) -> Union:
    if len(first) * len(second) > CESQL_FILTER_BOXES_MAX * 8:
        first, second = sorted((first, second), key=len)
        second = _around(second)
    charge(8 * len(first) * len(second))
    return _tidied([a & b for a in first for b in second])


def _tidied(boxes: Sequence[Box]) -> Union:
    """Drops empty boxes and boxes that lie within others, and widens the rest to few boxes."""
    if WHOLE in boxes:
        return ANYTHING
    charge(10 + len(boxes) * sum(1 + len(box.sets) for box in boxes))
    kept: list[Box] = []
    for box in sorted(_joined([box for box in boxes if box]), key=lambda candidate: len(candidate.sets)):
        if not any(other.covers(box) for other in kept):
            kept = [other for other in kept if not box.covers(other)]
            kept.append(box)
    return _fewer(kept)


def _joined(boxes: Sequence[Box]) -> list[Box]:
    """Joins boxes that restrict a single attribute, and the same one: a disjunction of values is a set of values."""
    alone: dict[str, Values] = {}
    others: list[Box] = []
    for box in boxes:
        if len(box.sets) != 1:
            others.append(box)
            continue
        ((name, values),) = box.sets.items()
        alone[name] = _bounded(alone[name] | values) if name in alone else values
    return others + [Box({name: values}) for name, values in alone.items()]


def _bounded(values: Values) -> Values:
    """The set, widened to a single range of each type if its list of values is longer than a filter may have."""
    count = max(*map(len, values.keys), len(values.strings.ranges or ()))
    return values if count <= IN_VALUES_MAX else widened(values)


def _fewer(boxes: Sequence[Box]) -> Union:
    """At most CESQL_FILTER_BOXES_MAX boxes around these. Half of that number stay as they are. Of the rest, boxes over
    the same attributes become the box around them; if that is not enough, all of the rest become one box."""
    if len(boxes) <= CESQL_FILTER_BOXES_MAX:
        return tuple(boxes)
    kept, rest = boxes[: CESQL_FILTER_BOXES_MAX // 2], boxes[CESQL_FILTER_BOXES_MAX // 2 :]
    groups: dict[tuple[str, ...], list[Box]] = defaultdict(list)
    for box in rest:
        groups[tuple(box.sets)].append(box)
    around = [box for group in groups.values() for box in _around(group)]
    fewer = (*kept, *around)
    return fewer if len(fewer) <= CESQL_FILTER_BOXES_MAX else (*kept, *_around(around))


def _around(boxes: Sequence[Box]) -> Union:
    return (reduce(Box.hull, boxes),) if boxes else NOTHING


def _as_union(box: Box | None) -> Union:
    return (box,) if box is not None and box else NOTHING


# --- nodes without logic -------------------------------------------------------------------------


def _constant_outcome(node: Expression) -> Outcome:
    faults = Faults()
    truth = cast(node.evaluate({}, faults), CesqlType.BOOLEAN, faults)
    if faults.reported:
        return Outcome(NOTHING, NOTHING, NOTHING, NOTHING)
    return Outcome(true=ANYTHING if truth else NOTHING, false=NOTHING if truth else ANYTHING)


def _needed_outcome(node: Expression) -> Outcome:
    needed = _as_union(needs(node, CesqlType.BOOLEAN))
    return Outcome(needed, needed, needed, needed)


# --- tests of one attribute ---------------------------------------------------------------------


def equal_to_true() -> Values:
    return OF_TYPE[Type.BOOL] & attribute_values(truth_condition().passing, None)


def _tested_outcome(tested: Tested) -> Outcome:
    passing, failing = (_bounded(attribute_values(side, tested.cast_to)) for side in tested.condition)
    joint = _joint(passing, failing)
    sets = passing, failing, joint, joint
    return Outcome(*(_as_union(attribute_box(tested.name, values)) for values in sets))


def _joint(first: Values, second: Values) -> Values:
    """The union of the passing and the failing values. If they are given by a pattern, they are complements: together
    they hold every string, and no automaton need be asked."""
    if first.strings.ranges is None or second.strings.ranges is None:
        return replace(first, strings=EVERY_STRING) | replace(second, strings=EVERY_STRING)
    return first | second


def tested_by(node: Expression) -> Tested | None:
    """The test of a single attribute that a node is; None if it is none."""
    match node:
        case Attribute() | Call():
            return _castability(node) or _viewed(node, truth_condition())
        case Like(operand, pattern):
            return _viewed(operand, like_condition(pattern))
        case In(operand, elements) if all(map(is_constant, elements)):
            values = [constant_value(element) for element in elements]
            known = [value for value in values if value is not None]
            return _viewed(operand, membership_condition(known)) if len(known) == len(values) else None
        case Infix(first, ((symbol, second),)) if OPERATORS[symbol].returns is CesqlType.BOOLEAN:
            return _compared(first, symbol, second)
    return None


def _viewed(node: Expression, condition: Condition) -> Tested | None:
    """A condition on a node that is an attribute, or the cast of one."""
    match node:
        case Attribute(name):
            return Tested(name, None, condition)
        case Call("INT" | "BOOL" | "STRING", (Attribute(name),)):
            return Tested(name, static_type(node), condition)
    return None


def _castability(node: Expression) -> Tested | None:
    match node:
        case Call("IS_INT", (Attribute(name),)):
            return Tested(name, None, castability_condition(CesqlType.INTEGER))
        case Call("IS_BOOL", (Attribute(name),)):
            return Tested(name, None, castability_condition(CesqlType.BOOLEAN))
    return None


_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(first: Expression, symbol: str, second: Expression) -> Tested | None:
    """A comparison with a constant on either side. `=` casts its left side to the type of the right, so a constant on
    the left is cast to the type of the attribute, as by IN."""
    if is_constant(second) and (value := constant_value(second)) is not None:
        condition = equality_condition(value) if symbol in EQUALITY else order_condition(symbol, value)
        return _viewed(first, Condition(*reversed(condition)) if symbol == "!=" else condition)
    if is_constant(first) and (value := constant_value(first)) is not None:
        condition = membership_condition([value]) if symbol in EQUALITY else order_condition(_MIRRORED[symbol], value)
        return _viewed(second, Condition(*reversed(condition)) if symbol == "!=" else condition)
    return None


# --- fitting a filter's limits ------------------------------------------------------------------


def _fitted(boxes: Union) -> Filter:
    """The boxes as a filter. If they exceed the limits of a filter they are widened, and if need be widened again."""
    for widen in (lambda: boxes, lambda: _with_fewer_alternatives(boxes), lambda: _by_presence(boxes)):
        try:
            with budget(CESQL_FILTER_STEPS_MAX):
                return Filter.of_boxes(widen())
        except (BudgetSpent, LimitError):
            continue
    return Filter.everything()


def _with_fewer_alternatives(boxes: Union) -> list[Box]:
    """Widens, in each box, the sets that take the most constraints to write: to a single range, or to presence."""
    return [_box_with_fewer_alternatives(box, ALTERNATIVES_MAX // len(boxes)) for box in boxes]


def _box_with_fewer_alternatives(box: Box, most: int) -> Box:
    sets = dict(box.sets)
    for wider in (widened, _presence):
        for name in sorted(sets, key=lambda candidate: -sets[candidate].parts):
            if prod(values.parts for values in sets.values()) > most:
                sets[name] = wider(sets[name])
    return Box(sets)


def _by_presence(boxes: Union) -> list[Box]:
    (around,) = _around(boxes)
    return [Box({name: _presence(values) for name, values in around.sets.items()})]


def _presence(values: Values) -> Values:
    return domain.EVERYTHING if values.absent else PRESENT
