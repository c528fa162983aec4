"""Filters, and what is made of them: conjunctions, advertisements, patterns, subscriptions.

A filter is a union of boxes in normal form (`normal.py`): equal filters are equal objects. What people
read and what brokers index are its *alternatives*, conjunctions of plain constraints that together say
the same (`spelling.py`).
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
from catchment.model.constraint import Constraint, constraint, quoted_name
from catchment.model.domain import ABSENT, NOTHING, Values, all_of
from catchment.model.normal import ALTERNATIVES_MAX, irredundant, normalized
from catchment.model.notification import Notification
from catchment.model.plain import is_plain, spelled_plainly
from catchment.model.spelling import spelled
from catchment.model.values import (
    MICROSECOND,
    Json,
    Value,
    checked_duration,
    checked_name,
    checked_string,
    format_duration,
)

# A filter is repeated in every routing table on its way; what is larger is data.
FILTER_SIZE_MAX: Final = 16_384
# The work of one `and` between unions, before anything cancels.
PRODUCTS_MAX: Final = 4 * ALTERNATIVES_MAX
# A pattern holds this many filters: each is state at some broker for each key.
PATTERN_FILTERS_MAX: Final = 64
PATTERN_KEYS_MAX: Final = 8
IDENTITY_CODEPOINTS_MAX: Final = 1_024

Matchable = Notification | Mapping[str, Value]


def _matched(notification: Matchable) -> Mapping[str, Value]:
    return notification.matched if isinstance(notification, Notification) else notification


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Constraints that must all hold: SIENA's filter."""

    constraints: tuple[Constraint, ...]

    @property
    def box(self) -> Box:
        return box_of(self.constraints)

    @property
    def comparisons(self) -> int:
        return sum(one.comparisons for one in self.constraints)

    def matches(self, notification: Matchable) -> bool:
        values = _matched(notification)
        return all(one.matches(values.get(one.name)) for one in self.constraints)

    def __str__(self) -> str:
        return " and ".join(map(str, self.constraints)) or "true"


def box_of(constraints: Iterable[Constraint]) -> Box:
    sets: dict[str, list[Values]] = {}
    for one in constraints:
        sets.setdefault(one.name, []).append(one.satisfied_by)
    return Box({name: all_of(found) for name, found in sets.items()})


class Filter:
    """`Filter("symbol = 'DIS' and price > 100")`, or `Filter.of(("symbol", "=", "DIS"), ("price", ">", 100))`."""

    __slots__ = ("__dict__", "_written")

    _written: Conjunction | None

    def __init__(self, text: str) -> None:
        expression = language.parse_filter(text)
        self._written = _conjunction(expression)
        if self._written is None or not is_plain(text, self._written.constraints):
            self.boxes = union_of(expression).boxes
            self._check_size()

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """Made when somebody asks, of a plain filter: most are only indexed."""
        assert self._written is not None
        return normalized([self._written.box])

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Filter:
        """All of some constraints: each a Constraint or (name, operator[, value[, type]])."""
        written = Conjunction(tuple(_as_constraint(one) for one in constraints))
        found = cls.of_boxes([written.box])
        found._written = written
        return found

    @classmethod
    def of_boxes(cls, boxes: Iterable[Box]) -> Filter:
        found = cls.__new__(cls)
        found.boxes, found._written = normalized(boxes), None
        found._check_size()
        return found

    @classmethod
    def everything(cls) -> Filter:
        return cls.of_boxes([WHOLE])

    @classmethod
    def nothing(cls) -> Filter:
        return cls.of_boxes([])

    def _check_size(self) -> None:
        if sum(box.alternatives_max for box in self.boxes) > ALTERNATIVES_MAX:
            count = sum(prod(len(spelled(*one)) for one in box.sets.items()) for box in self.boxes)
            if count > ALTERNATIVES_MAX:
                raise LimitError(
                    "ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{count:,} alternatives", "split the subscription"
                )
        size = sum(box.size * box.alternatives_max for box in self.boxes)
        if size > FILTER_SIZE_MAX and (size := self.size) > FILTER_SIZE_MAX:
            raise LimitError("FILTER_SIZE_MAX", FILTER_SIZE_MAX, f"a size of {size:,}", "split the subscription")

    # --- relations ---

    def matches(self, notification: Matchable) -> bool:
        values = _matched(notification)
        return any(box.contains(values) for box in self.boxes)

    def covers(self, other: Filter) -> bool:
        """Whether it matches all that `other` matches."""
        return covering.covers(self.boxes, other.boxes)

    def overlaps(self, other: Filter) -> bool:
        """Whether some notification could match both."""
        return covering.overlaps(self.boxes, other.boxes)

    @property
    def is_empty(self) -> bool:
        """Whether no notification can match it: it contradicts itself."""
        return not (self.boxes if self._written is None else self.alternatives)

    def __and__(self, other: Filter) -> Filter:
        return Filter.of_boxes(intersections(self.boxes, other.boxes))

    def __or__(self, other: Filter) -> Filter:
        return Filter.of_boxes(self.boxes + other.boxes)

    # --- form ---

    @cached_property
    def alternatives(self) -> tuple[Conjunction, ...]:
        """Conjunctions that together say the same; () when nothing can match."""
        if self._written is not None and (plain := spelled_plainly(self._written.constraints)) is not None:
            return (Conjunction(plain),)
        found = [
            Conjunction(tuple(one for part in parts for one in part))
            for box in self.boxes
            for parts in product(*(spelled(*named) for named in box.sets.items()))
        ]
        return tuple(found if len(self.boxes) < 2 else _needed(found))

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """Conjunctions that together say the same, the one it was written as if it was: what an index
        takes in, which brings its own order to constraints and needs no normal form."""
        return self.alternatives if self._written is None else (self._written,)

    @property
    def comparisons(self) -> int:
        """How many comparisons deciding it may take: what approximation bounds."""
        return sum(one.comparisons for one in self.alternatives)

    @property
    def size(self) -> int:
        """Characters of names and strings and one for each comparison, over all alternatives."""
        return sum(one.box.size for one in self.alternatives)

    @property
    def names(self) -> frozenset[str]:
        """The attributes it looks at."""
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
        return {"any": [{"all": [one.to_json() for one in found.constraints]} for found in self.alternatives]}

    @classmethod
    def from_json(cls, found: object) -> Filter:
        """From `{"any": [{"all": [constraint, …]}, …]}`, or from text."""
        if isinstance(found, str):
            return cls(found)
        alternatives = found.get("any") if isinstance(found, Mapping) and set(found) == {"any"} else None
        if not isinstance(alternatives, list) or not all(_is_all(one) for one in alternatives):
            raise BadFilterError(
                f'{shown(found)} is not a filter: write text or {{"any": [{{"all": [constraint, …]}}]}}'
            )
        if len(alternatives) > ALTERNATIVES_MAX:
            raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, f"{len(alternatives):,} alternatives")
        return cls.of_boxes(box_of(map(Constraint.from_json, one["all"])) for one in alternatives)


def _needed(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Leaves out what the others say anyway: a box says at once what conjunctions may say twice."""
    by_box = {one.box: one for one in conjunctions}
    return [by_box[box] for box in irredundant(list(by_box))]


def _conjunction(found: language.Expression) -> Conjunction | None:
    """An expression as one conjunction of the constraints that stand in it, if it is no more than that."""
    parts = found.parts if isinstance(found, language.And) else (found,)
    constraints = tuple(part for part in parts if isinstance(part, Constraint))
    return Conjunction(constraints) if len(constraints) == len(parts) else None


def _is_all(found: object) -> bool:
    return isinstance(found, Mapping) and set(found) == {"all"} and isinstance(found["all"], list)


def _as_constraint(found: Constraint | Sequence[object]) -> Constraint:
    if isinstance(found, Constraint):
        return found
    if isinstance(found, str) or not 2 <= len(found) <= 4:
        raise BadFilterError(f"{shown(found)} is not a constraint: write (name, operator, value) or add a type")
    return constraint(*found)


# --- expressions --------------------------------------------------------------------------------


def intersections(first: Sequence[Box], second: Sequence[Box]) -> list[Box]:
    if len(first) * len(second) > PRODUCTS_MAX:
        raise LimitError("PRODUCTS_MAX", PRODUCTS_MAX, f"{len(first) * len(second):,} products of alternatives")
    return [both for a in first for b in second if (both := a & b)]


def union_of(found: language.Expression, positive: bool = True) -> Filter:
    """The filter of an expression, `not` pushed down to the constraints by De Morgan's laws, which hold
    in three-valued logic: what makes a conjunction false makes one of its parts false."""
    match found:
        case bool():
            return Filter.everything() if found is positive else Filter.nothing()
        case Constraint():
            return Filter.of_boxes([Box({found.name: found.satisfied_by if positive else found.failed_by})])
        case language.Not(inner):
            return union_of(inner, not positive)
        case language.And(parts) | language.Or(parts):
            joined = isinstance(found, language.And) is positive
            return _intersection(parts, positive) if joined else _union(parts, positive)


def _union(parts: Sequence[language.Expression], positive: bool) -> Filter:
    return Filter.of_boxes([box for part in parts for box in union_of(part, positive).boxes])


def _intersection(parts: Sequence[language.Expression], positive: bool) -> Filter:
    # Plain constraints all at once, then what has alternatives: few products, each normalized once.
    plain = [part for part in parts if positive and isinstance(part, Constraint)]
    boxes: Sequence[Box] = Filter.of_boxes([box_of(plain)]).boxes
    for part in parts:
        if not (positive and isinstance(part, Constraint)):
            boxes = Filter.of_boxes(intersections(boxes, union_of(part, positive).boxes)).boxes
    return Filter.of_boxes(boxes)


# --- advertisements -----------------------------------------------------------------------------


class Advertisement:
    """What a publisher may publish: every attribute satisfies some constraint of it (SIENA §3.5)."""

    __slots__ = ("box", "constraints")

    constraints: tuple[Constraint, ...]

    def __init__(self, text: str) -> None:
        self._set(language.parse_advertisement(text))

    @classmethod
    def of(cls, *constraints: Constraint | Sequence[object]) -> Advertisement:
        found = cls.__new__(cls)
        found._set([_as_constraint(one) for one in constraints])
        return found

    def _set(self, constraints: Sequence[Constraint]) -> None:
        if len(constraints) > language.FILTER_CONSTRAINTS_MAX:
            raise LimitError("FILTER_CONSTRAINTS_MAX", language.FILTER_CONSTRAINTS_MAX, f"{len(constraints):,}")
        for one in constraints:
            if one.operator == "absent":
                raise BadFilterError(f"an advertisement says what may appear: leave out {one}")
        self.box = _advertised(constraints)
        self.constraints = _irredundant(constraints)

    def matches(self, notification: Matchable) -> bool:
        values = _matched(notification)
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
        return {"advertised": [one.to_json() for one in self.constraints]}

    @classmethod
    def from_json(cls, found: object) -> Advertisement:
        if isinstance(found, str):
            return cls(found)
        listed = found.get("advertised") if isinstance(found, Mapping) and set(found) == {"advertised"} else None
        if not isinstance(listed, list):
            raise BadFilterError(
                f'{shown(found)} is not an advertisement: write text or {{"advertised": [constraint, …]}}'
            )
        return cls.of(*map(Constraint.from_json, listed))


def _advertised(constraints: Iterable[Constraint]) -> Box:
    sets: dict[str, Values] = {}
    for one in constraints:
        sets[one.name] = sets.get(one.name, ABSENT) | one.satisfied_by
    return Box(sets, ABSENT)


def _irredundant(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Leaves out what the other constraints on the same name allow anyway."""
    kept = sorted(set(constraints), key=str)
    for one in sorted(kept, key=lambda found: (-found.comparisons, str(found))):
        others = NOTHING
        for other in kept:
            if other.name == one.name and other is not one:
                others |= other.satisfied_by
        if others and one.satisfied_by.is_subset(others):
            kept.remove(one)
    return tuple(kept)


# --- patterns and subscriptions -----------------------------------------------------------------


class Pattern:
    """A sequence of filters, within a time and by the values of attributes where it says so (SIENA §3.4)."""

    __slots__ = ("_identity", "by", "filters", "within")

    filters: tuple[Filter, ...]
    within: timedelta | None

    def __init__(self, text: str) -> None:
        steps, within, by = language.parse_pattern(text)
        self._set([union_of(step) for step in steps], within, by)

    @classmethod
    def of(cls, *filters: Filter, within: timedelta | None = None, by: Sequence[str] = ()) -> Pattern:
        found = cls.__new__(cls)
        found._set(filters, within, by)
        return found

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
        return len(self.filters) == 1

    def covers(self, other: Pattern) -> bool:
        """SIENA §3.8: as many filters, each covering the other's; and no tighter in time or key."""
        return (
            len(self.filters) == len(other.filters)
            and all(mine.covers(its) for mine, its in zip(self.filters, other.filters, strict=True))
            and (self.within is None or (other.within is not None and other.within <= self.within))
            and self.by == other.by
        )

    def __str__(self) -> str:
        within = f" within {format_duration(self.within)}" if self.within else ""
        by = f" by {', '.join(map(quoted_name, self.by))}" if self.by else ""
        return " -> ".join(f"[{one}]" for one in self.filters) + within + by

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[object, ...]:
        return Pattern.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"sequence": [one.to_json() for one in self.filters]}
        if self.within is not None:
            found["within"] = format_duration(self.within)
        if self.by:
            found["by"] = list(self.by)
        return found

    @classmethod
    def from_json(cls, found: object) -> Pattern:
        if isinstance(found, str):
            return cls(found)
        if not isinstance(found, Mapping) or not {"sequence"} <= set(found) <= {"sequence", "within", "by"}:
            raise BadFilterError(f'{shown(found)} is not a pattern: write text or {{"sequence": [filter, …]}}')
        within, by, sequence = found.get("within"), found.get("by", []), found["sequence"]
        if not (isinstance(sequence, list) and isinstance(by, list) and isinstance(within, str | None)):
            raise BadFilterError(f"{shown(found)} is not a pattern: sequence and by are lists, within a duration")
        duration = None if within is None else language.parse_duration(within)
        return cls.of(*map(Filter.from_json, sequence), within=duration, by=by)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter (in either dialect) or pattern with an id, for a client."""

    id: str
    client: str
    wanted: Filter | Pattern | Cesql

    def __post_init__(self) -> None:
        _checked_identity(self.id)
        _checked_identity(self.client)

    def to_json(self) -> dict[str, Json]:
        return {"id": self.id, "client": self.client, "wanted": {**self.wanted.to_json()}}

    @classmethod
    def from_json(cls, found: object) -> Subscription:
        if not isinstance(found, Mapping) or set(found) != {"id", "client", "wanted"}:
            raise BadFilterError(f"{shown(found)} is not a subscription: it has id, client and wanted")
        return cls(_checked_identity(found["id"]), _checked_identity(found["client"]), _wanted(found["wanted"]))


def _wanted(found: object) -> Filter | Pattern | Cesql:
    if isinstance(found, Mapping) and "sequence" in found:
        return Pattern.from_json(found)
    if isinstance(found, Mapping) and "dialect" in found:
        return Cesql.from_json(found)
    return Filter.from_json(found)


def _checked_identity(found: object) -> str:
    if not isinstance(found, str) or not found or len(found) > IDENTITY_CODEPOINTS_MAX:
        raise BadFilterError(f"{shown(found)} is not an identity: use a text of 1 to {IDENTITY_CODEPOINTS_MAX}")
    return checked_string(found)
