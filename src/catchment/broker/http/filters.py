"""Filter expressions of the CloudEvents Subscriptions API, and what the broker subscribes to for them.

    {"exact": {"type": "com.example.push"}}      the text of each attribute equals; `prefix` and `suffix` likewise
    {"all": [..]}  {"any": [..]}  {"not": {..}}  of other expressions
    {"sql": "source LIKE '%example%'"}           CESQL
    {"catchment": "price > 100"}                 Catchment's own language

An expression is true or false. A Catchment filter has a third value, unknown. So if an attribute is absent, `exact` is
false, and `not` of it is true.

The network can only be asked for a filter. For each expression this module computes a covering filter: one that matches
all that the expression matches, and as little else as it can. If the covering filter also matches something else, the
subscriber's broker evaluates the expression itself on what arrives.

`exact`, `prefix` and `suffix` compare text. An attribute that is not a string is compared by the text that CESQL gives
it: `{"exact": {"level": "5"}}` is true for the int 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model.box import Box
from catchment.model.cesql import Cesql
from catchment.model.cesql.expression import OPERATORS, Exists, In, Infix, Like, Not
from catchment.model.cesql.values import CesqlType, represented, to_string
from catchment.model.constraint import constraint
from catchment.model.domain import OF_TYPE, any_of
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Type

# How deep expressions may be nested. Each level is a Python call; people nest a handful.
FILTER_NESTING_MAX: Final = 32
# Expressions in one subscription, at any depth. The broker may evaluate each of them for every notification.
FILTER_EXPRESSIONS_MAX: Final = 256
# Pairs of boxes that are intersected for a covering filter: some milliseconds. What is left out is evaluated here.
PRODUCTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class CoveringFilter:
    """A filter that matches all that an expression matches; `is_exact` if it matches nothing else."""

    filter: Filter
    is_exact: bool


class FilterExpression:
    def matches(self, notification: Notification) -> bool:
        raise NotImplementedError

    def covering(self, is_negated: bool) -> CoveringFilter:
        """A filter that covers the expression or, if `is_negated`, its negation. Asking for the negation, rather than
        negating a covering filter, is what keeps `not` sound: the complement of a wider filter would be too narrow."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TextTest(FilterExpression):
    """One attribute of an `exact`, `prefix` or `suffix`."""

    dialect: str
    attribute: str
    text: str

    def matches(self, notification: Notification) -> bool:
        value = notification.matched.get(self.attribute)
        return value is not None and _TESTS[self.dialect](to_string(represented(value)), self.text)

    def covering(self, is_negated: bool) -> CoveringFilter:
        strings = constraint(self.attribute, _OPERATORS[self.dialect], self.text, "string").satisfied_by
        # Filters cannot test the text of a number, boolean or time. If some value of such a type may have a fitting
        # text, all values of that type are let through, by the test and by its negation alike.
        others = [OF_TYPE[type] for type in _other_types(self.dialect, self.text)]
        values = strings.inverse if is_negated else any_of([strings, *others])
        return CoveringFilter(Filter.of_boxes([Box({self.attribute: values})]), not others)


_OPERATORS: Final = {"exact": "=", "prefix": "prefix", "suffix": "suffix"}
_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}


def _other_types(dialect: str, text: str) -> list[Type]:
    """The types besides string that may have a value whose text passes the test."""
    types = [Type.BOOL] if any(_TESTS[dialect](boolean, text) for boolean in ("true", "false")) else []
    if set(text) <= set("0123456789+-.einf"):
        types += [Type.INT, Type.FLOAT]
    if set(text) <= set("0123456789-.:TZ"):
        types.append(Type.TIME)
    return types


@dataclass(frozen=True, slots=True)
class Sql(FilterExpression):
    cesql: Cesql

    def matches(self, notification: Notification) -> bool:
        return self.cesql.matches(notification)

    def covering(self, is_negated: bool) -> CoveringFilter:
        return CoveringFilter(Filter.everything() if is_negated else self.cesql.filter.routed, False)


@dataclass(frozen=True, slots=True)
class Native(FilterExpression):
    """A filter in Catchment's own language."""

    filter: Filter

    def matches(self, notification: Notification) -> bool:
        return self.filter.matches(notification)

    def covering(self, is_negated: bool) -> CoveringFilter:
        if self.filter.is_normal:
            return _complement(self.filter) if is_negated else CoveringFilter(self.filter, True)
        return CoveringFilter(Filter.everything() if is_negated else self.filter.routed, False)


@dataclass(frozen=True, slots=True)
class AllOf(FilterExpression):
    parts: tuple[FilterExpression, ...]

    def matches(self, notification: Notification) -> bool:
        return all(part.matches(notification) for part in self.parts)

    def covering(self, is_negated: bool) -> CoveringFilter:
        coverings = [part.covering(is_negated) for part in self.parts]
        # De Morgan: the negation of a conjunction is the disjunction of the negated parts.
        return _union(coverings) if is_negated else _intersection(coverings)


@dataclass(frozen=True, slots=True)
class AnyOf(FilterExpression):
    parts: tuple[FilterExpression, ...]

    def matches(self, notification: Notification) -> bool:
        return any(part.matches(notification) for part in self.parts)

    def covering(self, is_negated: bool) -> CoveringFilter:
        coverings = [part.covering(is_negated) for part in self.parts]
        return _intersection(coverings) if is_negated else _union(coverings)


@dataclass(frozen=True, slots=True)
class Negation(FilterExpression):
    inner: FilterExpression

    def matches(self, notification: Notification) -> bool:
        return not self.inner.matches(notification)

    def covering(self, is_negated: bool) -> CoveringFilter:
        return self.inner.covering(not is_negated)


def _union(coverings: Sequence[CoveringFilter]) -> CoveringFilter:
    """LimitError if the union is too large: leaving out a part would make it too narrow."""
    boxes = (box for covering in coverings for box in covering.filter.boxes)
    return CoveringFilter(Filter.of_boxes(boxes), all(covering.is_exact for covering in coverings))


def _intersection(coverings: Iterable[CoveringFilter]) -> CoveringFilter:
    """Leaves out what would make the intersection too large, which only makes it wider."""
    intersection, is_exact = Filter.everything(), True
    # The smallest filters first: they narrow the result at the least cost.
    for covering in sorted(coverings, key=lambda covering: len(covering.filter.boxes)):
        is_exact = is_exact and covering.is_exact
        try:
            if len(intersection.boxes) * len(covering.filter.boxes) <= PRODUCTS_MAX:
                intersection = intersection & covering.filter
                continue
        except LimitError:
            pass
        is_exact = False
    return CoveringFilter(intersection, is_exact)


def _complement(filter: Filter) -> CoveringFilter:
    """All that a filter does not match, including that for which it is unknown."""
    # A box is matched if every attribute is in its set. So its complement is a union: some attribute is not.
    outside = (
        Filter.of_boxes(Box({name: values.inverse}) for name, values in box.sets.items()) for box in filter.boxes
    )
    return _intersection(CoveringFilter(complement, True) for complement in outside)


# --- what to subscribe to -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """`wanted` is what the broker subscribes to. If that is wider than what was asked for, `expression` decides."""

    wanted: Filter | Cesql
    expression: FilterExpression | None = None

    def matches(self, notification: Notification) -> bool:
        """Whether a notification that `wanted` matches is to be delivered."""
        return self.expression is None or self.expression.matches(notification)


def selection_of(expression: FilterExpression) -> Selection:
    if isinstance(expression, Sql):
        return Selection(expression.cesql)
    if isinstance(expression, Native):
        return Selection(expression.filter)
    covering = expression.covering(is_negated=False)
    return Selection(covering.filter, None if covering.is_exact else expression)


def combined(parts: Sequence[FilterExpression]) -> FilterExpression:
    """An expression that is true when all parts are; if there are none, it is always true."""
    if not parts:
        return Native(Filter.everything())
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


# --- from JSON ----------------------------------------------------------------------------------


def expressions_of(value: object) -> list[FilterExpression]:
    """The expressions in the array `filters` of a subscription. A BadFilterError says which of them is wrong."""
    return _Parser().parse_array(value, "filters", 1)


class _Parser:
    def __init__(self) -> None:
        self._count = 0

    def parse_array(self, value: object, place: str, depth: int) -> list[FilterExpression]:
        if not isinstance(value, list):
            raise BadFilterError(f"{place} must be an array of expressions, found {shown(value)}")
        return [self.parse(element, f"{place}[{i}]", depth) for i, element in enumerate(value)]

    def parse(self, value: object, place: str, depth: int) -> FilterExpression:
        self._count += 1
        if depth > FILTER_NESTING_MAX:
            raise LimitError("FILTER_NESTING_MAX", FILTER_NESTING_MAX, f"more at {place[:60]}")
        if self._count > FILTER_EXPRESSIONS_MAX:
            raise LimitError("FILTER_EXPRESSIONS_MAX", FILTER_EXPRESSIONS_MAX, "more", "split the subscription")
        if not isinstance(value, Mapping) or len(value) != 1:
            raise BadFilterError(
                f'{place} must be an object with one dialect, like {{"exact": {{…}}}}, found {shown(value)}'
            )
        ((dialect, operand),) = value.items()
        return self._of_dialect(dialect, operand, f"{place}.{shown(dialect)[1:-1]}", depth)

    def _of_dialect(self, dialect: str, operand: Any, place: str, depth: int) -> FilterExpression:
        match dialect:
            case "exact" | "prefix" | "suffix":
                return _text_tests(dialect, operand, place)
            case "all" | "any" if operand == []:
                raise BadFilterError(f"{place} must have at least one expression")
            case "all":
                return AllOf(tuple(self.parse_array(operand, place, depth + 1)))
            case "any":
                return AnyOf(tuple(self.parse_array(operand, place, depth + 1)))
            case "not":
                return Negation(self.parse(operand, place, depth + 1))
            case "sql":
                return sql(_text(operand, place))
            case "catchment":
                return Native(Filter(_text(operand, place)))
        known = "exact, prefix, suffix, all, any, not, sql, catchment"
        raise BadFilterError(f"{place}: there is no dialect {shown(dialect)}: use one of {known}")


def _text_tests(dialect: str, operand: object, place: str) -> FilterExpression:
    if not isinstance(operand, Mapping) or not operand:
        raise BadFilterError(f"{place} must be an object of attributes and texts, found {shown(operand)}")
    for name, text in operand.items():
        if not name or not isinstance(text, str) or not text:
            raise BadFilterError(f"{place}: an attribute and its text must not be empty, found {shown({name: text})}")
    return combined([TextTest(dialect, name, text) for name, text in operand.items()])


def _text(operand: object, place: str) -> str:
    if not isinstance(operand, str):
        raise BadFilterError(f"{place} must be a string, found {shown(operand)}")
    return operand


def sql(text: str) -> Sql:
    """The Subscriptions API casts the result to a Boolean, so an attribute with the text 'true' is true."""
    cesql = Cesql(text)
    return Sql(cesql if _is_boolean(cesql) else Cesql(f"BOOL({cesql})"))


def _is_boolean(cesql: Cesql) -> bool:
    """Whether the expression always gives a Boolean, so that it needs no cast."""
    root = cesql.root
    if isinstance(root, Infix):
        return OPERATORS[root.rest[-1][0]].returns is CesqlType.BOOLEAN
    return isinstance(root, Not | Like | In | Exists)
