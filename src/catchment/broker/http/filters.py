"""Filter expressions of the CloudEvents Subscriptions API as something to subscribe to.

    {"exact": {"type": "com.example.push"}}      text of attributes, equal; `prefix` and `suffix` likewise
    {"all": [..]}  {"any": [..]}  {"not": {..}}  of other expressions
    {"sql": "source LIKE '%example%'"}           CESQL
    {"catchment": "price > 100"}                 Catchment's own language

An expression is true or false, where Catchment's filters know a third: an attribute that is not there makes `exact`
false, and `not` of that true. What the network is asked for is the tightest filter that lets through all that an
expression matches; where that lets through more, the expression decides here, at the subscriber's broker.

Attributes of other types than string are compared as the text that CESQL gives them: `{"exact": {"level": "5"}}` is
true for the int 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

# How deep expressions may lie in each other: each level is a call; people nest a handful.
FILTER_NESTING_MAX: Final = 32
# Expressions in one subscription, at any depth: each is looked at for each notification that comes so far.
FILTER_EXPRESSIONS_MAX: Final = 256
# What is multiplied out for the network, some milliseconds; the rest is decided here.
PRODUCTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Reach:
    """A filter that lets through all that is meant, and whether it lets through nothing else."""

    filter: Filter
    is_exact: bool


class Expression:
    def matches(self, notification: Notification) -> bool:
        raise NotImplementedError

    def reach(self, positive: bool) -> Reach:
        """Of the expression, or of its opposite."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """`exact`, `prefix` or `suffix`."""

    operator: str
    name: str
    value: str

    def matches(self, notification: Notification) -> bool:
        found = notification.matched.get(self.name)
        return found is not None and _TESTS[self.operator](to_string(represented(found)), self.value)

    def reach(self, positive: bool) -> Reach:
        meant = constraint(self.name, _OPERATORS[self.operator], self.value, "string").satisfied_by
        others = [OF_TYPE[kind] for kind in _others(self.operator, self.value)]
        if positive:
            return Reach(Filter.of_boxes([Box({self.name: any_of([meant, *others])})]), not others)
        return Reach(Filter.of_boxes([Box({self.name: meant.inverse})]), not others)


_OPERATORS: Final = {"exact": "=", "prefix": "prefix", "suffix": "suffix"}
_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}


def _others(operator: str, text: str) -> list[Type]:
    """The types, string aside, of which a value may have a text like this."""
    found = [Type.BOOL] if any(_TESTS[operator](one, text) for one in ("true", "false")) else []
    if set(text) <= set("0123456789+-.einf"):
        found += [Type.INT, Type.FLOAT]
    if set(text) <= set("0123456789-.:TZ"):
        found.append(Type.TIME)
    return found


@dataclass(frozen=True, slots=True)
class Sql(Expression):
    cesql: Cesql

    def matches(self, notification: Notification) -> bool:
        return self.cesql.matches(notification)

    def reach(self, positive: bool) -> Reach:
        return Reach(self.cesql.filter if positive else Filter.everything(), False)


@dataclass(frozen=True, slots=True)
class Native(Expression):
    filter: Filter

    def matches(self, notification: Notification) -> bool:
        return self.filter.matches(notification)

    def reach(self, positive: bool) -> Reach:
        return Reach(self.filter, True) if positive else _opposite(self.filter)


@dataclass(frozen=True, slots=True)
class All(Expression):
    parts: tuple[Expression, ...]

    def matches(self, notification: Notification) -> bool:
        return all(one.matches(notification) for one in self.parts)

    def reach(self, positive: bool) -> Reach:
        return _joined([one.reach(positive) for one in self.parts], positive)


@dataclass(frozen=True, slots=True)
class Any_(Expression):  # noqa: N801 (Any is typing's)
    parts: tuple[Expression, ...]

    def matches(self, notification: Notification) -> bool:
        return any(one.matches(notification) for one in self.parts)

    def reach(self, positive: bool) -> Reach:
        return _joined([one.reach(positive) for one in self.parts], not positive)


@dataclass(frozen=True, slots=True)
class Opposite(Expression):
    inner: Expression

    def matches(self, notification: Notification) -> bool:
        return not self.inner.matches(notification)

    def reach(self, positive: bool) -> Reach:
        return self.inner.reach(not positive)


def _joined(parts: Sequence[Reach], is_and: bool) -> Reach:
    """All of them, or any of them. LimitError only of the latter: of the former some may be left out."""
    is_exact = all(one.is_exact for one in parts)
    if not is_and:
        return Reach(Filter.of_boxes(box for one in parts for box in one.filter.boxes), is_exact)
    found = Filter.everything()
    for one in sorted((one.filter for one in parts), key=lambda some: len(some.boxes)):
        try:
            if len(found.boxes) * len(one.boxes) <= PRODUCTS_MAX:
                found = found & one
                continue
        except LimitError:
            pass
        is_exact = False
    return Reach(found, is_exact)


def _opposite(filter: Filter) -> Reach:
    """What a filter does not match, those included for which it is unknown."""
    parts = [Filter.of_boxes(Box({name: some.inverse}) for name, some in box.sets.items()) for box in filter.boxes]
    return _joined([Reach(one, True) for one in parts], True)


# --- what to subscribe to -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked of the network, and what decides here, where that is wider than what is meant."""

    wanted: Filter | Cesql
    expression: Expression | None = None

    def matches(self, notification: Notification) -> bool:
        return self.expression is None or self.expression.matches(notification)


def selection_of(expression: Expression) -> Selection:
    if isinstance(expression, Sql):
        return Selection(expression.cesql)
    reach = expression.reach(True)
    return Selection(reach.filter, None if reach.is_exact else expression)


def everything_of(parts: Sequence[Expression]) -> Expression:
    """All of them; of none, everything."""
    if not parts:
        return Native(Filter.everything())
    return parts[0] if len(parts) == 1 else All(tuple(parts))


# --- from JSON ----------------------------------------------------------------------------------


def expressions_of(found: object) -> list[Expression]:
    """From the array `filters` of a subscription; BadFilterError says which of it is wrong."""
    if not isinstance(found, list):
        raise BadFilterError(f"filters is an array of expressions, found {shown(found)}")
    return _Reader().listed(found, "filters", 1)


class _Reader:
    def __init__(self) -> None:
        self._count = 0

    def listed(self, found: object, place: str, depth: int) -> list[Expression]:
        if not isinstance(found, list):
            raise BadFilterError(f"{place} is an array of expressions, found {shown(found)}")
        return [self.read(one, f"{place}[{i}]", depth) for i, one in enumerate(found)]

    def read(self, found: object, place: str, depth: int) -> Expression:
        self._count += 1
        if depth > FILTER_NESTING_MAX:
            raise LimitError("FILTER_NESTING_MAX", FILTER_NESTING_MAX, f"more at {place[:60]}")
        if self._count > FILTER_EXPRESSIONS_MAX:
            raise LimitError("FILTER_EXPRESSIONS_MAX", FILTER_EXPRESSIONS_MAX, "more", "split the subscription")
        if not isinstance(found, Mapping) or len(found) != 1:
            raise BadFilterError(f'{place} is an object with one dialect, as {{"exact": {{…}}}}, found {shown(found)}')
        ((dialect, given),) = found.items()
        return self._of_dialect(dialect, given, f"{place}.{shown(dialect)[1:-1]}", depth)

    def _of_dialect(self, dialect: str, given: Any, place: str, depth: int) -> Expression:
        match dialect:
            case "exact" | "prefix" | "suffix":
                return _texts(dialect, given, place)
            case "all" | "any" if given == []:
                raise BadFilterError(f"{place} has at least one expression")
            case "all":
                return All(tuple(self.listed(given, place, depth + 1)))
            case "any":
                return Any_(tuple(self.listed(given, place, depth + 1)))
            case "not":
                return Opposite(self.read(given, place, depth + 1))
            case "sql":
                return sql(_text(given, place))
            case "catchment":
                return Native(Filter(_text(given, place)))
        known = "exact, prefix, suffix, all, any, not, sql, catchment"
        raise BadFilterError(f"{place}: there is no dialect {shown(dialect)}: use one of {known}")


def _texts(dialect: str, given: object, place: str) -> Expression:
    if not isinstance(given, Mapping) or not given:
        raise BadFilterError(f"{place} is an object of attributes and texts, found {shown(given)}")
    for name, value in given.items():
        if not name or not isinstance(value, str) or not value:
            raise BadFilterError(f"{place}: an attribute and its text are not empty, found {shown({name: value})}")
    return everything_of([Text(dialect, name, value) for name, value in given.items()])


def _text(given: object, place: str) -> str:
    if not isinstance(given, str):
        raise BadFilterError(f"{place} is a text, found {shown(given)}")
    return given


def sql(text: str) -> Sql:
    """The result counts as a Boolean, as the Subscriptions API says: also the text 'true' of an attribute does."""
    found = Cesql(text)
    return Sql(found if _is_boolean(found) else Cesql(f"BOOL({found})"))


def _is_boolean(found: Cesql) -> bool:
    root = found.root
    if isinstance(root, Infix):
        return OPERATORS[root.rest[-1][0]].returns is CesqlType.BOOLEAN
    return isinstance(root, Not | Like | In | Exists)
