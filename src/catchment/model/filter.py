"""Filters, and what is made of them: advertisements, patterns, subscriptions.

A filter is a union of boxes in normal form (`normal.py`): filters with the same meaning are equal. People read, and
brokers index, its *alternatives*: conjunctions of constraints that together have the same meaning (`spelling.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import product
from math import prod
from typing import Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model import covering, language
from catchment.model.box import WHOLE, Box
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction, Matchable, box_of, matched_values
from catchment.model.constraint import Constraint, constraint, quoted_name
from catchment.model.domain import ABSENT, NOTHING, Values
from catchment.model.fast_path import is_small, spelled_fast
from catchment.model.normal import ALTERNATIVES_MAX, irredundant, normalized
from catchment.model.spelling import spelled
from catchment.model.values import (
    MICROSECOND,
    Json,
    checked_duration,
    checked_name,
    checked_string,
    format_duration,
)

# A filter is repeated in the routing tables of many brokers. See `Filter.size`.
FILTER_SIZE_MAX: Final = 16_384
# The products of alternatives that a single `and` may make, before equal and contradictory ones are dropped.
PRODUCTS_MAX: Final = 4 * ALTERNATIVES_MAX
# Filters in a pattern: each takes memory at some broker, for each key.
PATTERN_FILTERS_MAX: Final = 64
PATTERN_KEYS_MAX: Final = 8
IDENTITY_CODEPOINTS_MAX: Final = 1_024


class Filter:
    """`Filter("symbol = 'DIS' and price > 100")`, or `Filter.of(("symbol", "=", "DIS"), ("price", ">", 100))`."""

    __slots__ = ("__dict__", "_written")

    # The conjunction that the filter was written as; None if it was written in another way.
    _written: Conjunction | None

    def __init__(self, text: str) -> None:
        expression = language.parse_filter(text)
        self._written = _conjunction(expression)
        if self._written is None or not is_small(text, self._written.constraints):
            self.boxes = union_of(expression).boxes
            self._check_size()

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The union of boxes in normal form. A small conjunction gets its box when it is first asked for: most filters
        are only indexed, and the index needs no boxes."""
        assert self._written is not None
        return normalized([self._written.box])

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Filter:
        """A filter that matches if all constraints hold. Each is a Constraint or (name, operator[, value[, type]])."""
        written = Conjunction(tuple(map(_as_constraint, constraints)))
        filter = cls.of_boxes([written.box])
        filter._written = written
        return filter

    @classmethod
    def of_boxes(cls, boxes: Iterable[Box]) -> Filter:
        filter = cls.__new__(cls)
        filter.boxes, filter._written = normalized(boxes), None
        filter._check_size()
        return filter

    @classmethod
    def everything(cls) -> Filter:
        return cls.of_boxes([WHOLE])

    @classmethod
    def nothing(cls) -> Filter:
        return cls.of_boxes([])

    def _check_size(self) -> None:
        # The upper bounds are cheap. Only where they exceed a limit is the filter spelled out to count exactly.
        if sum(box.alternatives_max for box in self.boxes) > ALTERNATIVES_MAX:
            count = sum(prod(len(spelled(*named)) for named in box.sets.items()) for box in self.boxes)
            if count > ALTERNATIVES_MAX:
                raise LimitError(
                    "ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{count:,} alternatives", "split the subscription"
                )
        size = sum(box.size * box.alternatives_max for box in self.boxes)
        if size > FILTER_SIZE_MAX and (size := self.size) > FILTER_SIZE_MAX:
            raise LimitError("FILTER_SIZE_MAX", FILTER_SIZE_MAX, f"a size of {size:,}", "split the subscription")

    # --- relations ---

    def matches(self, notification: Matchable) -> bool:
        values = matched_values(notification)
        return any(box.contains(values) for box in self.boxes)

    def covers(self, other: Filter) -> bool:
        """Whether it matches every notification that `other` matches."""
        return covering.covers(self.boxes, other.boxes)

    def overlaps(self, other: Filter) -> bool:
        """Whether some notification could match both."""
        return covering.overlaps(self.boxes, other.boxes)

    @property
    def is_empty(self) -> bool:
        """Whether no notification can match it, because it contradicts itself."""
        return not (self.boxes if self._written is None else self.alternatives)

    def __and__(self, other: Filter) -> Filter:
        return Filter.of_boxes(intersections(self.boxes, other.boxes))

    def __or__(self, other: Filter) -> Filter:
        return Filter.of_boxes(self.boxes + other.boxes)

    # --- form ---

    @cached_property
    def alternatives(self) -> tuple[Conjunction, ...]:
        """Conjunctions in canonical form that together mean the same; () when nothing can match."""
        if self._written is not None and (constraints := spelled_fast(self._written.constraints)) is not None:
            return (Conjunction(constraints),)
        # A set of values may take several alternatives to write: a box becomes the product of those of its names.
        conjunctions = [
            Conjunction(tuple(constraint for part in parts for constraint in part))
            for box in self.boxes
            for parts in product(*(spelled(*named) for named in box.sets.items()))
        ]
        return tuple(conjunctions if len(self.boxes) < 2 else _needed(conjunctions))

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """Conjunctions that together mean the same: the one that the filter was written as, if it was, else the
        alternatives. An index takes these, because it needs no normal form and sorts constraints itself."""
        return self.alternatives if self._written is None else (self._written,)

    @property
    def comparisons(self) -> int:
        """How many comparisons it may take to match a notification. Approximation bounds these."""
        return sum(conjunction.comparisons for conjunction in self.alternatives)

    @property
    def size(self) -> int:
        """The characters of names and strings, and 1 for each comparison, over all alternatives."""
        return sum(conjunction.box.size for conjunction in self.alternatives)

    @property
    def names(self) -> frozenset[str]:
        """The names of the attributes that the filter depends on."""
        return frozenset(name for box in self.boxes for name in box.sets)

    def __str__(self) -> str:
        return " or ".join(map(str, self.alternatives)) or "false"

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.boxes == other.boxes

    def __hash__(self) -> int:
        return hash(self.boxes)

    def __reduce__(self) -> tuple[object, ...]:
        return Filter.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        return {
            "any": [
                {"all": [constraint.to_json() for constraint in conjunction.constraints]}
                for conjunction in self.alternatives
            ]
        }

    @classmethod
    def from_json(cls, data: object) -> Filter:
        """From `{"any": [{"all": [constraint, …]}, …]}`, or from text."""
        if isinstance(data, str):
            return cls(data)
        alternatives = data.get("any") if isinstance(data, Mapping) and set(data) == {"any"} else None
        if not isinstance(alternatives, list) or not all(map(_is_all, alternatives)):
            raise BadFilterError(
                f'{shown(data)} is not a filter: write text or {{"any": [{{"all": [constraint, …]}}]}}'
            )
        if len(alternatives) > ALTERNATIVES_MAX:
            raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{len(alternatives):,} alternatives")
        return cls.of_boxes(box_of(map(Constraint.from_json, alternative["all"])) for alternative in alternatives)


def _needed(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Leaves out each conjunction that lies within the others. Boxes that need each other may be spelled with
    alternatives that do not."""
    by_box = {conjunction.box: conjunction for conjunction in conjunctions}
    return [by_box[box] for box in irredundant(list(by_box))]


def _conjunction(expression: language.Expression) -> Conjunction | None:
    """An expression that is only constraints joined by `and`, as a conjunction; else None."""
    parts = expression.parts if isinstance(expression, language.And) else (expression,)
    constraints = tuple(part for part in parts if isinstance(part, Constraint))
    return Conjunction(constraints) if len(constraints) == len(parts) else None


def _is_all(data: object) -> bool:
    return isinstance(data, Mapping) and set(data) == {"all"} and isinstance(data["all"], list)


def _as_constraint(given: Constraint | Sequence[object]) -> Constraint:
    if isinstance(given, Constraint):
        return given
    if isinstance(given, str) or not 2 <= len(given) <= 4:
        raise BadFilterError(f"{shown(given)} is not a constraint: write (name, operator, value) or add a type")
    return constraint(*given)


# --- expressions --------------------------------------------------------------------------------


def intersections(first: Sequence[Box], second: Sequence[Box]) -> list[Box]:
    """The intersection of two unions of boxes: of each box with each, without the empty ones."""
    if len(first) * len(second) > PRODUCTS_MAX:
        raise LimitError("PRODUCTS_MAX", PRODUCTS_MAX, f"{len(first) * len(second):,} products of alternatives")
    return [both for a in first for b in second if (both := a & b)]


def union_of(expression: language.Expression, positive: bool = True) -> Filter:
    """The notifications that make an expression true or, if not `positive`, those that make it false.

    De Morgan's laws move `not` down to the constraints. They hold in three-valued logic too: a conjunction is false
    if and only if one of its parts is false.
    """
    match expression:
        case bool():
            return Filter.everything() if expression is positive else Filter.nothing()
        case Constraint():
            values = expression.satisfied_by if positive else expression.failed_by
            return Filter.of_boxes([Box({expression.name: values})])
        case language.Not(inner):
            return union_of(inner, not positive)
        case language.And(parts) | language.Or(parts):
            joined = isinstance(expression, language.And) is positive
            return _intersection(parts, positive) if joined else _union(parts, positive)


def _union(parts: Sequence[language.Expression], positive: bool) -> Filter:
    return Filter.of_boxes([box for part in parts for box in union_of(part, positive).boxes])


def _intersection(parts: Sequence[language.Expression], positive: bool) -> Filter:
    # First all single constraints at once, then the parts that have alternatives: that makes few products, and each
    # is normalized once.
    constraints = [part for part in parts if positive and isinstance(part, Constraint)]
    boxes: Sequence[Box] = Filter.of_boxes([box_of(constraints)]).boxes
    for part in parts:
        if not (positive and isinstance(part, Constraint)):
            boxes = Filter.of_boxes(intersections(boxes, union_of(part, positive).boxes)).boxes
    return Filter.of_boxes(boxes)


# --- advertisements -----------------------------------------------------------------------------


class Advertisement:
    """What a publisher may publish: every attribute must satisfy some constraint of the advertisement (SIENA §3.5)."""

    __slots__ = ("box", "constraints")

    constraints: tuple[Constraint, ...]

    def __init__(self, text: str) -> None:
        self._set(language.parse_advertisement(text))

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Advertisement:
        advertisement = cls.__new__(cls)
        advertisement._set([_as_constraint(given) for given in constraints])
        return advertisement

    def _set(self, constraints: Sequence[Constraint]) -> None:
        if len(constraints) > language.FILTER_CONSTRAINTS_MAX:
            raise LimitError("FILTER_CONSTRAINTS_MAX", language.FILTER_CONSTRAINTS_MAX, f"{len(constraints):,}")
        for given in constraints:
            if given.operator == "absent":
                raise BadFilterError(f"an advertisement says what may appear: leave out {given}")
        self.box = _advertised(constraints)
        self.constraints = _irredundant(constraints)

    def matches(self, notification: Matchable) -> bool:
        values = matched_values(notification)
        return self.box.contains(values) and all(name in self.box.sets for name in values if not name.startswith("$"))

    def covers(self, other: Advertisement) -> bool:
        return self.box.covers(other.box)

    def overlaps(self, other: Advertisement | Filter) -> bool:
        """Whether some notification could satisfy both."""
        boxes = other.boxes if isinstance(other, Filter) else (other.box,)
        return covering.overlaps((self.box,), boxes)

    def __str__(self) -> str:
        return ", ".join(map(str, self.constraints))

    def __repr__(self) -> str:
        return f"Advertisement({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advertisement) and self.box == other.box

    def __hash__(self) -> int:
        return hash(self.box)

    def __reduce__(self) -> tuple[object, ...]:
        return Advertisement.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        return {"advertised": [constraint.to_json() for constraint in self.constraints]}

    @classmethod
    def from_json(cls, data: object) -> Advertisement:
        """From `{"advertised": [constraint, …]}`, or from text."""
        if isinstance(data, str):
            return cls(data)
        listed = data.get("advertised") if isinstance(data, Mapping) and set(data) == {"advertised"} else None
        if not isinstance(listed, list):
            raise BadFilterError(
                f'{shown(data)} is not an advertisement: write text or {{"advertised": [constraint, …]}}'
            )
        return cls.of(*map(Constraint.from_json, listed))


def _advertised(constraints: Iterable[Constraint]) -> Box:
    """The box of an advertisement: constraints on the same name are alternatives, and every name may be absent."""
    sets: dict[str, Values] = {}
    for given in constraints:
        sets[given.name] = sets.get(given.name, ABSENT) | given.satisfied_by
    return Box(sets, ABSENT)


def _irredundant(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Leaves out each constraint whose values the other constraints on the same name allow too. Those with the most
    comparisons go first."""
    kept = sorted(set(constraints), key=str)
    for candidate in sorted(kept, key=lambda given: (-given.comparisons, str(given))):
        others = NOTHING
        for other in kept:
            if other.name == candidate.name and other is not candidate:
                others |= other.satisfied_by
        if others and candidate.satisfied_by.is_subset(others):
            kept.remove(candidate)
    return tuple(kept)


# --- patterns and subscriptions -----------------------------------------------------------------


class Pattern:
    """A sequence of filters (SIENA §3.4). `within` limits the time from the first notification to the last; `by` names
    attributes whose values must be the same in all notifications of a sequence."""

    __slots__ = ("_identity", "by", "filters", "within")

    filters: tuple[Filter, ...]
    within: timedelta | None

    def __init__(self, text: str) -> None:
        steps, within, by = language.parse_pattern(text)
        self._set([union_of(step) for step in steps], within, by)

    @classmethod
    def of(cls, *filters: Filter, within: timedelta | None = None, by: Sequence[str] = ()) -> Pattern:
        pattern = cls.__new__(cls)
        pattern._set(filters, within, by)
        return pattern

    def _set(self, filters: Sequence[Filter], within: timedelta | None, by: Sequence[str]) -> None:
        if not filters:
            raise BadFilterError("a pattern needs at least one filter")
        if len(filters) > PATTERN_FILTERS_MAX:
            raise LimitError("PATTERN_FILTERS_MAX", PATTERN_FILTERS_MAX, len(filters))
        if len(by) > PATTERN_KEYS_MAX:
            raise LimitError("PATTERN_KEYS_MAX", PATTERN_KEYS_MAX, len(by))
        self.filters = tuple(filters)
        self.within = within and checked_duration(within // MICROSECOND)
        self.by = tuple(dict.fromkeys(checked_name(name) for name in by))
        self._identity = (self.filters, self.within, self.by)

    @property
    def is_simple(self) -> bool:
        """Whether it is a single filter."""
        return len(self.filters) == 1

    def covers(self, other: Pattern) -> bool:
        """SIENA §3.8: whether both have equally many filters and each covers the other's; and `by` is the same and
        `within` at least as long."""
        return (
            len(self.filters) == len(other.filters)
            and all(mine.covers(its) for mine, its in zip(self.filters, other.filters, strict=True))
            and (self.within is None or (other.within is not None and other.within <= self.within))
            and self.by == other.by
        )

    def __str__(self) -> str:
        within = f" within {format_duration(self.within)}" if self.within else ""
        by = f" by {', '.join(map(quoted_name, self.by))}" if self.by else ""
        return " -> ".join(f"[{filter}]" for filter in self.filters) + within + by

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[object, ...]:
        return Pattern.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"sequence": [filter.to_json() for filter in self.filters]}
        if self.within is not None:
            data["within"] = format_duration(self.within)
        if self.by:
            data["by"] = list(self.by)
        return data

    @classmethod
    def from_json(cls, data: object) -> Pattern:
        """From `{"sequence": [filter, …]}` with `within` and `by` if need be, or from text."""
        if isinstance(data, str):
            return cls(data)
        if not isinstance(data, Mapping) or not {"sequence"} <= set(data) <= {"sequence", "within", "by"}:
            raise BadFilterError(f'{shown(data)} is not a pattern: write text or {{"sequence": [filter, …]}}')
        within, by, sequence = data.get("within"), data.get("by", []), data["sequence"]
        if not (isinstance(sequence, list) and isinstance(by, list) and isinstance(within, str | None)):
            raise BadFilterError(f"{shown(data)} is not a pattern: sequence and by are lists, within a duration")
        duration = None if within is None else language.parse_duration(within)
        return cls.of(*map(Filter.from_json, sequence), within=duration, by=by)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client wants, with an id: a filter in either dialect, or a pattern."""

    id: str
    client: str
    wanted: Filter | Pattern | Cesql

    def __post_init__(self) -> None:
        _checked_identity(self.id)
        _checked_identity(self.client)

    def to_json(self) -> dict[str, Json]:
        return {"id": self.id, "client": self.client, "wanted": {**self.wanted.to_json()}}

    @classmethod
    def from_json(cls, data: object) -> Subscription:
        if not isinstance(data, Mapping) or set(data) != {"id", "client", "wanted"}:
            raise BadFilterError(f"{shown(data)} is not a subscription: it has id, client and wanted")
        return cls(_checked_identity(data["id"]), _checked_identity(data["client"]), _wanted(data["wanted"]))


def _wanted(data: object) -> Filter | Pattern | Cesql:
    if isinstance(data, Mapping) and "sequence" in data:
        return Pattern.from_json(data)
    if isinstance(data, Mapping) and "dialect" in data:
        return Cesql.from_json(data)
    return Filter.from_json(data)


def _checked_identity(identity: object) -> str:
    if not isinstance(identity, str) or not identity or len(identity) > IDENTITY_CODEPOINTS_MAX:
        raise BadFilterError(f"{shown(identity)} is not an identity: use a text of 1 to {IDENTITY_CODEPOINTS_MAX}")
    return checked_string(identity)
